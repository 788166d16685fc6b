"""Impossible settings are refused by the key to change, as every command starts; possible ones match the plan."""

import asyncio
import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import parties.foundation.process
import parties.mpc.planning.validation
import parties.mpc.server
from mechanisms.pgm import CELLS_PER_MB
from mechanisms.scores import build_spec
from parties.cli.main import cli
from parties.cli.plan import plan as plan_command
from parties.config import CertificateFiles, Config
from parties.foundation.errors import ConfigError
from parties.foundation.exit_codes import Status, describe
from parties.foundation.process import memory_bytes
from parties.local.resource_plan import lines_of, make_resource_plan
from parties.methods.distaim import report_notes
from parties.methods.flaim.settings import check_flaim, flaim_noise, settings_of
from parties.mpc.planning import validation
from parties.mpc.planning.budget import make_plan, zcdp_epsilon
from parties.mpc.planning.resources import (
    NetworkAssumptions,
    cell_noise,
    estimate_resources,
    usual_growth,
)
from parties.mpc.planning.validation import (
    check_memory,
    selectable_candidates,
    selection_bounds,
    validate_run,
)
from parties.mpc.server import run_mpc_server
from parties.mpc.submission.submit import submit
from parties.session.study import Study
from protocols.select_spec import bounds
from tests.parties.audit_runs import make_run
from tests.parties.mesh import Recording
from tests.parties.small import write_small
from tests.parties.support import make_codes, make_config

GIGA = 10**9


def wide(sizes: Mapping[str, int], changes: Mapping[str, object] | None = None) -> Config:
    """A run with one query of columns with so many bins."""
    columns = [
        {"name": name, "kind": "integer", "low": 0, "high": size - 1, "bins": size}
        for name, size in sizes.items()
    ]
    queries: dict[str, object] = {
        "column": columns,
        "workload.queries": [list(sizes)],
        "workload.degree": None,
        "workload.count": None,
        "workload.seed": None,
    }
    return make_config({**queries, **(changes or {})})


def many_columns(count: int, degree: int) -> Config:
    columns = [{"name": f"c{n}", "kind": "integer", "low": 0, "high": 1} for n in range(count)]
    return make_config({"column": columns, "workload.degree": degree})


REFUSED = [
    pytest.param(
        lambda: wide({"a": 46_000, "b": 46_000}, {"clients.rows_per_client": 300_000}),
        "workload",
        r"has a query \(a, b\) of 2116000000 cells; expected at most 2032283647",
        id="too many cells for the ring",
    ),
    pytest.param(
        lambda: many_columns(75, 3),
        "workload",
        "has 67,525 queries, .* expected at most 65,536 sets of columns to choose from: fewer queries",
        id="too many candidates",
    ),
    pytest.param(
        lambda: wide(
            {"a": 7000, "b": 7000}, {"run.check": "cells", "clients.rows_per_client": 100}
        ),
        "run.check",
        r'is "cells", which proves nothing of query \(a, b\): it has 49000000 cells, .* more than 42524428 can wrap; '
        'expected check = "totals"',
        id="cells of a marginal that wraps",
    ),
    pytest.param(
        lambda: wide({"a": 12_000, "b": 12_000}, {"run.upload": "plain"}),
        "run.upload",
        'is "plain", which puts 2.3 GB into a box for one server; expected at most 2.1 GB: upload = "seeded"',
        id="a box that is too large",
    ),
    pytest.param(
        lambda: make_config({"run.epsilon": 1e-3}),
        "run",
        "cannot be carried out: .* expected a larger run.epsilon",
        id="noise that no sampler has",
    ),
]


@pytest.mark.parametrize(("make_one", "key", "text"), REFUSED)
def test_check_feasible_refuses_by_the_key_to_change(make_one, key: str, text: str) -> None:  # type: ignore[no-untyped-def]
    config = make_one()
    with pytest.raises(ConfigError, match=text) as caught:
        validate_run(Study.of(config))
    assert caught.value.key == key
    assert describe(caught.value).status == Status.CONFIG


def test_check_feasible_takes_what_it_advises() -> None:
    for config in (
        wide({"a": 7000, "b": 7000}),
        wide({"a": 7000, "b": 7000}, {"run.check": "cells", "clients.rows_per_client": 80}),
        wide({"a": 6500, "b": 6500}, {"run.check": "cells"}),
        wide({"a": 12_000, "b": 12_000}),
        many_columns(36, 3),
        make_config(),
    ):
        assert validate_run(Study.of(config)).rounds == config.run.rounds


def test_check_feasible_knows_the_scores_that_a_selection_refuses() -> None:
    """Exactly where the selection of all candidates would: `protocols.select_spec.bounds` decides both."""
    config = make_config({"clients.rows_per_client": 2**20, "run.epsilon": 20.0, "run.rounds": 1})
    workload = config.build_workload()
    plan = make_plan(Study(config, workload))
    candidates = selectable_candidates(workload)
    spec = build_spec(
        workload,
        candidates,
        np.full(workload.cells, 2**24, np.uint32),
        total=config.max_rows,
        sigma=plan.noise_sigma,
        epsilon=plan.epsilon,
        max_rows=config.max_rows,
    )
    assert selection_bounds(Study(config, workload), plan) == bounds(spec)


def test_selection_bounds_of_an_annealed_run_are_those_of_its_finest_round() -> None:
    fixed = make_config()
    annealed = make_config({"run.schedule": "annealed", "run.rounds": None})
    bits = [
        selection_bounds(Study.of(config), make_plan(Study.of(config)))
        for config in (fixed, annealed)
    ]
    assert bits[1][1] > bits[0][1]


def test_check_memory_refuses_what_the_host_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config()
    check_memory(config, 2 * GIGA, "this server", memory=2 * GIGA)
    with pytest.raises(ConfigError, match=r"about 2\.0 GB of memory for this server, of 1\.9 GB"):
        check_memory(config, 2 * GIGA, "this server", memory=19 * GIGA // 10)
    monkeypatch.setattr(validation, "memory_bytes", lambda: None)
    check_memory(config, 10**18, "this server")  # Where the system does not say, it is tried.


def test_memory_bytes_is_the_container_s_where_that_is_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = memory_bytes()
    assert whole is not None
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(parties.foundation.process, "_LIMITS", (limit, tmp_path / "none"))
    for text, expected in (("max\n", None), (f"{GIGA}\n", GIGA), (f"{1 << 62}\n", None)):
        limit.write_text(text)
        found = memory_bytes()
        assert found is not None
        assert found == expected if expected else found >= whole


# Before anything is sent, charged or computed.


@pytest.fixture
def impossible(monkeypatch: pytest.MonkeyPatch) -> Config:
    """A run that no host here has the memory for."""
    monkeypatch.setattr(validation, "memory_bytes", lambda: 10**6)
    return make_config()


async def test_run_party_refuses_before_it_writes_anything(
    impossible: Config, tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    files = certificates["party-0"]
    tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
    config = impossible.override({"tls": tls})
    with pytest.raises(ConfigError, match="for this server"):
        await run_mpc_server(
            config,
            0,
            tmp_path / "server",
            progress=Recording(),
            closed=asyncio.Event(),
            register=tmp_path / "register.sqlite",
        )
    assert not (tmp_path / "server").exists()
    assert not (tmp_path / "register.sqlite").exists()


async def test_submit_refuses_before_it_counts_or_charges(
    impossible: Config, tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    charged: list[str] = []
    with pytest.raises(ConfigError, match="for a data owner"):
        await submit(
            impossible,
            make_codes(20),
            certificates["clinic-a"],
            state=tmp_path / "state",
            spend=charged.append,
        )
    assert not charged
    assert not (tmp_path / "state").exists()


def write(config: Config, folder: Path) -> tuple[Path, Path]:
    """Its file, without servers, and a table."""
    path, table = folder / "trial.toml", folder / "table.csv"
    path.write_text(config.override({"party": None, "tls": None}).resolved_toml())
    table.write_text("sex,ward,age\nf,x,3\nm,y,7\nf,z,1\n")
    return path, table


def test_run_refuses_before_it_makes_a_folder(impossible: Config, tmp_path: Path) -> None:
    path, table = write(impossible, tmp_path)
    done = CliRunner().invoke(
        cli, ["run", str(path), "--data", str(table), "--out", str(tmp_path / "out")]
    )
    assert isinstance(done.exception, ConfigError)
    assert "a trial on one machine" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_run_of_central_aim_is_not_held_to_what_servers_can(
    impossible: Config, tmp_path: Path
) -> None:
    path, table = write(impossible, tmp_path)
    (tmp_path / "out").write_text("in the way")
    arguments = ["run", str(path), "--data", str(table), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, [*arguments, "--method", "aim"])
    assert not isinstance(done.exception, ConfigError)


# FLAIM.


def test_check_flaim_refuses_a_sum_that_secagg_does_not_take() -> None:
    config = wide({"a": 20_000, "b": 20_000})
    with pytest.raises(ConfigError, match="a sum has 400040000 cells; expected at most 268435456"):
        check_flaim(Study.of(config))
    small = make_config()
    assert check_flaim(Study.of(small)) == settings_of(small)


@pytest.mark.parametrize(("variant", "marginals"), [("private", 3), ("pairs", 6)])
def test_flaim_noise_is_that_of_a_round_s_participants(variant: str, marginals: int) -> None:
    config = make_config(
        {"clients.expected": 40, "clients.minimum": None, "clients.participation": 0.25}
    ).override({"flaim": {"variant": variant, "noise": "distributed", "minimum": 5}})
    members, cells = flaim_noise(Study.of(config), 4000)
    settings = settings_of(config)
    schedule = settings.schedule(marginals)
    assert members == 10
    assert cells[0].sigma == settings.sum_noise(schedule.sigma).deviation(10)
    assert cells[0].average == 4000 * 10 / 40 / 2


# What is said of a run that can be.


def test_needs_are_what_a_run_sends(
    tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    """Of an owner to the byte; of servers at most, and with the largest query chosen in every round nearly that."""
    run = make_run(tmp_path, certificates)
    report = json.loads((run / "report.json").read_text())
    config = make_config()
    workload = config.build_workload()
    needs = estimate_resources(Study(config, workload), make_plan(Study(config, workload)))
    for pid in range(3):
        lines = (run / "transcripts" / f"party-{pid}.jsonl").read_text().splitlines()
        sent = sum(
            record["bytes"]
            for record in map(json.loads, lines)
            if record["kind"] == "sent" and record["step"] not in OF_NAMES
        )
        # That smaller marginals were chosen than the largest is the difference.
        assert 0.5 * needs.server_sent_bytes[pid] < sent <= needs.server_sent_bytes[pid]
    assert needs.owner_sent_bytes == {
        "seeded": int(report["communication"]["client_sent_bytes_mean"])
    }


OF_NAMES = ("agree", "clients.resume", "clients.agree", "finish")
"""Steps whose messages have lists of names and states in them."""


def test_needs_grow_with_cells_rounds_and_owners() -> None:
    small, large = wide({"a": 300, "b": 300}), wide({"a": 3000, "b": 3000})
    low, high = (estimate_resources(Study.of(c), make_plan(Study.of(c))) for c in (small, large))
    for name in ("owner_memory_bytes", "server_disk_bytes", "passed_on_bytes", "estimate_most_s"):
        assert getattr(low, name) < getattr(high, name)
    # The large pair does not fit into the model, so that less of it is written.
    phases = low.seconds.keys() - {"write"}
    assert all(low.seconds[phase] <= high.seconds[phase] for phase in phases)
    study = Study.of(wide({"a": 600, "b": 300}))
    assert low.seconds["write"] < estimate_resources(study, make_plan(study)).seconds["write"]
    assert high.owner_sent_bytes["seeded"] > 4 * 9_000_000
    assert high.server_memory_bytes[1] < high.server_memory_bytes[0]


def test_model_size_counts_the_queries_that_a_model_may_have() -> None:
    config = wide({"a": 3000, "b": 3000}, {"run.max_model_mb": 60})
    needs = estimate_resources(Study.of(config), make_plan(Study.of(config)))
    assert needs.model.largest_mb == pytest.approx(9_000_000 / 2**17)
    assert (needs.model.queries, needs.model.fit_ever) == (1, 0)
    config = config.override({"run.max_model_mb": 80})
    needs = estimate_resources(Study.of(config), make_plan(Study.of(config)))
    assert (needs.model.fit_first, needs.model.fit_ever) == (0, 1)


def test_cell_noise_stands_beside_the_average_count() -> None:
    workload = make_config().build_workload()
    cells, coarser = (
        {e.query: e for e in cell_noise(workload, 600, sigma, initial_sigma=5.0)}
        for sigma in (25.0, 500.0)
    )
    assert len(cells) == 3 + 3
    assert (cells["sex",].average, cells["sex", "age"].average) == (300, 30)
    assert (cells["sex",].sigma, cells["sex", "age"].sigma) == (5.0, 25.0)
    # sqrt(2/pi) sigma of each cell where counts are far above the noise.
    assert cells["sex",].left == pytest.approx(math.sqrt(2 / math.pi) * 5 / 300, rel=1e-3)
    assert cells["sex", "age"].left < 0.7
    assert not cells["sex", "age"].drowned
    assert 1.5 < coarser["sex", "age"].left <= 2
    assert coarser["sex", "age"].drowned
    assert coarser["sex",] == cells["sex",]


def test_private_columns_are_planned_with_the_cells_that_noise_leaves() -> None:
    columns = [{"name": f"c{i}", "kind": "integer", "values": "private"} for i in range(6)]
    config = make_config({"column": columns, "run.input": "rows", "workload.degree": 2})
    few, many = (
        make_resource_plan(
            config, rows=rows, capacity=None, memory=64 * GIGA, network=NetworkAssumptions()
        )
        for rows in (300, 10**6)
    )
    assert few.needs.usual_model_bytes < 0.2 * many.needs.usual_model_bytes
    assert few.needs.seconds["estimate"] < many.needs.seconds["estimate"]
    assert few.noise[0].columns[0].cells < 8 < 30 < many.noise[0].columns[0].cells
    # Limits are those of all cells that there may be.
    assert few.needs.server_memory_bytes == many.needs.server_memory_bytes
    assert few.needs.model == many.needs.model


def planned(config: Config, **options: object) -> list[str]:
    values: dict[str, object] = {
        "rows": None,
        "capacity": None,
        "memory": 64 * GIGA,
        **options,
    }
    return list(make_resource_plan(config, network=NetworkAssumptions(), **values).warnings)  # type: ignore[arg-type]


def test_make_warns_of_a_run_of_columns_alone() -> None:
    """Of few rows; controls: many rows, and a run with explicit rounds."""
    annealed = {
        "run.schedule": "annealed",
        "run.rounds": None,
        "run.epsilon": 0.5,
        "run.fallback": "columns",
    }
    said = "measures single columns alone"
    assert any(said in text for text in planned(make_config(annealed), rows=40))
    assert not any(said in text for text in planned(make_config(annealed), rows=4000))
    assert not any(said in text for text in planned(make_config({"run.epsilon": 0.5}), rows=40))


def test_make_warns_of_noise_that_drowns_everything_and_refuses_nothing() -> None:
    assert planned(make_config({"clients.rows_per_client": 10_000})) == []
    (text, columns) = planned(make_config(), rows=5)
    assert "drowns every query" in text
    assert "run.epsilon" in text
    assert "drowns even columns: sex, ward, age; fewer bins" in columns


def test_make_warns_of_queries_that_no_model_may_have_and_of_slow_lines() -> None:
    found = planned(
        wide({"a": 4000, "b": 4000}, {"timeouts.submit_s": 20.0, "timeouts.receive_s": 4.0})
    )
    assert "1 of 1 queries can never be in the model, which has at most 80 MB" in "".join(found)
    assert "a line of 26 Mbit/s to be through in timeouts.submit_s = 20" in "".join(found)
    assert "timeouts.receive_s = 4 is too short" in "".join(found)


def test_plan_refuses_a_server_without_the_memory(tmp_path: Path) -> None:
    path, _ = write(make_config(), tmp_path)
    done = CliRunner().invoke(plan_command, [str(path), "--memory", "0.1"])
    assert isinstance(done.exception, ConfigError)
    text = str(done.exception)
    assert "needs about 220.0 MB of memory for compute server 0, of 100.0 MB that there are" in text
    assert "(workload.degree)" in text


def test_plan_says_cells_bytes_memory_seconds_and_noise(tmp_path: Path) -> None:
    config = make_config({"clients.rows_per_client": 10_000})
    path, _ = write(config, tmp_path)
    run = CliRunner()
    done = run.invoke(plan_command, [str(path), "--rows", "600"])
    assert done.exit_code == 0, done.output
    for text in (
        "56 in 3 queries that are in no other",
        "largest query   ward, age: 30 cells",
        "as seeded, once, whatever its table has",
        "noise distaim",
        "with 600 rows",
        "of 3 columns an error of 0.0",
        "of at most 2",
        "may be twice as long or half",
    ):
        assert text in done.output, done.output
    assert "noise flaim" not in done.output
    document = json.loads(run.invoke(plan_command, [str(path), "--json"]).stdout)
    assert document["rows"] == 30_000
    assert document["needs"]["owner_sent_bytes"]["seeded"] == 4 * 56 + 3488 + 64 + 16 - 16
    assert math.isfinite(document["needs"]["estimate_most_s"])
    assert [item["method"] for item in document["noise"]] == ["distaim"]


def test_plan_says_what_a_fixed_schedule_costs_composed_numerically(tmp_path: Path) -> None:
    figures = []
    plain: dict[str, object] = {"run.accountant": "zcdp"}
    for changes in (plain, {**plain, "run.unit": "person", "run.rows_per_person": 3}):
        config = make_config(changes)
        path, _ = write(config, tmp_path)
        done = CliRunner().invoke(plan_command, [str(path)])
        assert "composed numerically" in done.output, done.output
        document = json.loads(CliRunner().invoke(plan_command, [str(path), "--json"]).stdout)
        figures.append(document["epsilon_composed"] / config.run.epsilon)
    # Three rows of a person move counts three times as far, and the noise is three times as large.
    assert figures[0] == pytest.approx(figures[1], rel=0.01)
    assert 0.9 < figures[0] < 0.97
    annealed = {"run.schedule": "annealed", "run.rounds": None}
    path, _ = write(make_config({**plain, **annealed}), tmp_path)
    done = CliRunner().invoke(plan_command, [str(path)])
    assert done.exit_code == 0, done.output
    assert "composed" not in done.output


@pytest.mark.parametrize("schedule", ["fixed", "annealed"])
def test_plan_says_what_zcdp_would_charge(tmp_path: Path, schedule: str) -> None:
    rounds = {"run.rounds": None} if schedule == "annealed" else {}
    path, _ = write(make_config({"run.schedule": schedule, **rounds}), tmp_path)
    document = json.loads(CliRunner().invoke(plan_command, [str(path), "--json"]).stdout)
    assert 1.05 < document["epsilon_zcdp"] < 1.12
    assert document["epsilon_composed"] is None
    assert "by zCDP" in CliRunner().invoke(plan_command, [str(path)]).output


def test_a_large_epsilon_that_zcdp_would_not_charge_is_planned_and_reported() -> None:
    large = {"run.epsilon": 16.0, "run.delta": 1e-5}
    config = make_config(large | {"run.schedule": "annealed", "run.rounds": None})
    assert zcdp_epsilon(Study.of(config)) == math.inf
    made = make_resource_plan(
        config, rows=None, capacity=None, memory=2**36, network=NetworkAssumptions()
    )
    assert (made.plain, " by zCDP" in "\n".join(lines_of(made))) == (None, False)
    result = {"rounds_done": config.run.rounds, "selected": [], "sigma": 1.0}
    assert "would have no epsilon at this delta" in " ".join(report_notes(result, config))


def test_plan_goes_by_the_rows_that_owners_declare(tmp_path: Path) -> None:
    config = make_config({"clients.rows_per_client": 10_000, "run.input": "rows"})
    path, _ = write(config, tmp_path)
    needs = [
        json.loads(CliRunner().invoke(plan_command, [str(path), "--json", *more]).stdout)["needs"]
        for more in ([], ["--capacity", "100"])
    ]
    assert needs[0]["owner_sent_bytes"]["rows"] > 3 * needs[1]["owner_sent_bytes"]["rows"]
    assert needs[0]["server_sent_bytes"][1] > needs[1]["server_sent_bytes"][1]
    done = CliRunner().invoke(plan_command, [str(path), "--capacity", "10001"])
    assert "a capacity of 10001 rows; expected 1 to 10000" in str(done.exception)


def test_plan_goes_by_the_owners_even_part_of_the_rows(tmp_path: Path) -> None:
    """Without declared capacities: the plan would otherwise take as much as any owner may have."""
    bound = 100_000
    config = make_config({"clients.rows_per_client": bound, "run.input": "rows"})
    path, _ = write(config, tmp_path)

    def planned(*more: str) -> dict[str, object]:
        found = CliRunner().invoke(plan_command, [str(path), "--json", *more])
        document: dict[str, object] = json.loads(found.stdout)
        return document

    expected = config.clients.expected
    by_rows, by_hand = planned("--rows", str(123 * expected)), planned("--capacity", "130")
    assert by_rows["capacity"] == 130
    assert by_rows["needs"] == by_hand["needs"]
    assert (
        planned()["capacity"] == planned("--rows", str(2 * bound * expected))["capacity"] == bound
    )
    both = planned("--rows", str(123 * expected), "--capacity", "500")
    assert both["capacity"] == 500
    text = CliRunner().invoke(plan_command, [str(path), "--rows", str(123 * expected)]).output
    assert "declares 130 rows at most (join --capacity)" in text


def test_usual_growth_joins_all_columns_then_adds_three_times_of_four() -> None:
    columns = [{"name": f"c{n}", "kind": "integer", "low": 0, "high": 1} for n in range(12)]
    annealed = {"run.schedule": "annealed", "run.rounds": None, "run.rule": "remaining-error"}
    pairs = {"workload.degree": 2, "workload.count": "all", "workload.seed": None}
    config = make_config({"column": columns, **annealed, **pairs})
    workload = config.build_workload()
    plan = make_plan(Study(config, workload))
    stages = usual_growth(workload, plan, 31, limit_mb=1.0)
    assert [stage.targets for stage in stages[:12]] == list(range(12, 24))
    # After 10 of the 11 rounds that join them 10 pairs of 2 x 2 cells, and a column by itself.
    assert (plan.tree_rounds, stages[0].cells, stages[10].cells) == (11, 24, 42)
    assert stages[-1].targets == 23 + 20 * 3 // 4
    assert all(a.cells <= b.cells for a, b in itertools.pairwise(stages))
    small = usual_growth(workload, plan, 31, limit_mb=45 / CELLS_PER_MB)
    assert small[-1].cells <= 45


def test_plan_says_the_noise_of_flaim_where_the_config_has_it(tmp_path: Path) -> None:
    path, _ = write(make_config().override({"flaim": {"minimum": 3}}), tmp_path)
    done = CliRunner().invoke(plan_command, [str(path), "--rows", "600"])
    assert "noise flaim" in done.output
    assert "in sums over 3 clients" in done.output


def test_plan_counts_seconds_by_the_network_that_it_is_told(tmp_path: Path) -> None:
    path, _ = write_small(tmp_path)

    def seconds(*options: str) -> float:
        shown = CliRunner().invoke(cli, ["plan", str(path), "--json", *options])
        return float(sum(json.loads(shown.output)["needs"]["seconds"].values()))

    usual = seconds()
    # 1 kbit/s for tens of kilobytes; a second for each of some 200 messages.
    assert seconds("--bandwidth", "0.001") > usual + 100
    assert seconds("--latency", "1000") > usual + 100
