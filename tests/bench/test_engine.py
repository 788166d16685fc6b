"""The engine's benchmark: real runs at tiny sizes, the numbers' consistency, the command and its files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import networks
from bench.cli import bench
from bench.engine import floor, report
from bench.engine import measure as engine
from bench.engine.goals import judged
from bench.engine.measure import Peer, Result
from bench.engine.tasks import (
    MALICIOUS,
    SEMI_HONEST,
    TASKS,
    TRUNCATED_BITS,
    adult_plan,
    group_sizes,
)
from bench.engine.whole import measure_run, runs_markdown
from bench.networks import Network
from protocols import costs
from protocols.context import Context
from protocols.frames import HEADER
from protocols.ring import R64
from protocols.row_plan import plan_counting
from tests.bench.pages import whole
from tests.protocols.local import run_parties

# A TLS 1.3 record: header, type and tag, around at most 16 KiB.
RECORD_BYTES = 5 + 1 + 16
RECORD_PAYLOAD = 1 << 14
_FIELDS = """
    seconds per_second fastest slowest repeat bytes_per_party bytes_by_party frame_bytes_per_party
    wire_bytes_per_party messages_per_party rounds peak_bytes_per_party cpu_seconds network shaping
    floor tls transcript task security
"""
FIELDS = set(_FIELDS.split())


@pytest.fixture(scope="module")
def loopback() -> Iterator[Network]:
    with networks.opened("loopback") as network:
        yield network


def result(**changes: Any) -> Result:
    fields: dict[str, Any] = {
        "task": "abs_error",
        "size": 1000,
        "unit": "cells",
        "seconds": 0.5,
        "fastest": 0.25,
        "slowest": 1.0,
        "repeat": 3,
        "bytes_per_party": 12_000.0,
        "bytes_by_party": (11_000.0, 12_000.0, 13_000.0),
        "frame_bytes_per_party": 12_120.0,
        "wire_bytes_per_party": 12_340.0,
        "messages_per_party": 10.0,
        "rounds": 9,
        "peak_bytes_per_party": 30_000,
        "cpu_seconds": 0.75,
        "network": "loopback",
        "shaping": "none",
        "floor": {"keystream": 0.01, "seconds": 0.01},
        "peer": Peer("MPyC", 5.0, 100),
    }
    return Result(**fields | changes)


@pytest.mark.parametrize(
    ("task", "size"),
    [
        pytest.param("abs_error", 640, marks=pytest.mark.slow),
        pytest.param("select", 500, marks=pytest.mark.slow),
        pytest.param("box_muller", 100, marks=pytest.mark.slow),
        pytest.param("discrete_gaussian", 100, marks=pytest.mark.slow),
        ("distributed_noise", 100),
        ("truncate", 20_000),
        ("multiply", 5000),
        ("expand_input", 5000),
        pytest.param("count_rows", 100, marks=pytest.mark.slow),
    ],
)
def test_measure_counts_what_the_sockets_carried(loopback: Network, task: str, size: int) -> None:
    found = engine.measure(task, size, repeat=2, network=loopback)
    messages = found.messages_per_party
    assert found.frame_bytes_per_party == pytest.approx(
        found.bytes_per_party + HEADER.size * messages
    )
    # A header and a payload may be records of their own.
    records = 2 * messages + found.frame_bytes_per_party / RECORD_PAYLOAD
    overhead = found.wire_bytes_per_party - found.frame_bytes_per_party
    assert RECORD_BYTES * messages - 1e-6 <= overhead <= RECORD_BYTES * records + 1e-6
    assert found.fastest <= found.seconds <= found.slowest
    assert found.tls
    assert found.peer is None
    assert found.floor["seconds"] == pytest.approx(sum(found.floor[part] for part in floor.PARTS))
    if task == "select":
        # In turns with an absolute error in the same processes, as the only task here.
        assert found.beside is not None
        assert found.over_beside is not None
        assert found.over_beside > 1
        assert {"beside", "over_beside"} < set(found.to_json())
    else:
        assert not {"beside", "over_beside"} & set(found.to_json())
    if task == "multiply":
        assert (found.bytes_per_party, found.rounds, messages) == (8 * size, 1, 1)
    if task == "truncate":
        expected = costs.truncate(size, 8, TRUNCATED_BITS)
        assert (found.bytes_per_party, found.rounds) == (sum(expected.sent) / 3, expected.rounds)
    if task == "distributed_noise":
        assert (found.bytes_per_party, found.rounds) == (8 * size + 32, 2)
    if task in ("discrete_gaussian", "distributed_noise"):
        document = found.to_json()
        assert document["samples"] == size
        assert document["sigma"] == 20.889
        assert 0 < float(str(document["statistical_distance"])) < 2.0**-63
    if task == "count_rows":
        expected = costs.count_rows(adult_plan(), size)
        assert (found.bytes_per_party, found.rounds) == (sum(expected.sent) / 3, expected.rounds)
        document = found.to_json()
        assert (document["rows"], document["cells"]) == (size, 2_743_713)
    if task == "expand_input":
        assert (messages, found.rounds, found.floor["socket"]) == (0, 0, 0)


def test_measure_in_malicious_mode_proves_what_was_multiplied(loopback: Network) -> None:
    found = engine.measure("multiply", 1000, repeat=1, network=loopback, security=MALICIOUS)
    proof = costs.settle(costs.verify_rings(R64, 1000, 2000), flags=4)
    assert found.bytes_per_party == pytest.approx(8 * 1000 + sum(proof.sent) / 3)
    assert found.rounds == 1 + proof.rounds
    assert found.to_json()["security"] == MALICIOUS


def test_engine_refuses_what_cannot_be_proved() -> None:
    arguments = ["engine", "--task", "distributed_noise", "--security", "malicious"]
    ran = CliRunner().invoke(bench, arguments)
    assert ran.exit_code == 2
    assert "distributed_noise cannot be proved" in ran.stderr


def test_count_rows_counts_as_its_formula_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task in one process, of a smaller domain; the real one is of 2.74 million cells, whatever the rows."""
    plan = plan_counting((5, 9, 100), ((0, 1), (1, 2)))
    monkeypatch.setattr("bench.engine.tasks.adult_plan", lambda: plan)

    async def program(ctx: Context) -> object:
        return await TASKS["count_rows"].prepare(ctx, 100)(ctx)

    assert tuple(run_parties(program).sent_bytes) == costs.count_rows(plan, 100).sent


def test_engine_prints_json_with_a_peer_and_writes_files(tmp_path: Path) -> None:
    arguments = [
        "engine",
        "--task",
        "multiply",
        "--size",
        "300",
        "--repeat",
        "1",
        "--json",
        "--output",
    ]
    ran = CliRunner().invoke(bench, [*arguments, str(tmp_path / "new")])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found == json.loads((tmp_path / "new" / "engine.json").read_text(encoding="utf-8"))
    [only] = found["results"]
    assert set(only) == FIELDS | {"cells", "peer"}
    assert only["cells"] == 300
    assert set(only["peer"]) == {"name", "seconds", "size", "tls"}
    assert only["peer"]["name"].startswith("MPyC")
    assert only["peer"]["size"] == 300
    assert (tmp_path / "new" / "engine.png").stat().st_size > 1000
    assert "| multiply | loopback | 300 cells |" in whole(tmp_path / "new" / "engine.md")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--task", "divide"], "'divide' is not one of"),
        (["--size", "0"], "0 is not in the range"),
        (["--repeat", "0"], "0 is not in the range"),
        (["--network", "moon"], "'moon' is not one of"),
        (["--sweep", "--size", "10"], "--sweep and --size exclude each other"),
    ],
)
def test_engine_refuses_bad_options(arguments: list[str], complaint: str) -> None:
    ran = CliRunner().invoke(bench, ["engine", *arguments])
    assert ran.exit_code == 2
    assert complaint in ran.stderr
    assert ran.stdout == ""


def test_engine_sweeps_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, str]] = []

    def measure(task: str, size: int, *, network: Network, **_: object) -> Result:
        asked.append((task, size, network.name))
        return result(task=task, size=size, network=network.name)

    monkeypatch.setattr("bench.engine.cli.measure", measure)
    monkeypatch.setattr(networks, "has_netem", lambda: False)
    arguments = [
        "engine",
        "--sweep",
        "--task",
        "truncate",
        "--network",
        "loopback",
        "--network",
        "wan",
        "--json",
    ]
    ran = CliRunner().invoke(bench, arguments)
    assert ran.exit_code == 0, ran.output
    task = TASKS["truncate"]
    assert asked == [
        *(("truncate", size, "loopback") for size in task.sizes),
        ("truncate", task.default, "wan"),
    ]


def test_measure_says_why_a_party_failed(
    loopback: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_PARTY", "bench.no_such_module")
    with pytest.raises(RuntimeError, match=r"party . failed: .*no_such_module"):
        engine.measure("multiply", 10, repeat=1, network=loopback)


def test_peers_measure_a_task_and_size_once(
    loopback: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []

    def mpyc(network: Network, task: str, size: int, *, gmpy2: bool) -> Peer:
        ran.append((task, size))
        return Peer("MPyC", 1.0, size)

    monkeypatch.setattr(engine, "_mpyc", mpyc)
    peers = engine.Peers(loopback)
    sizes = [peers.measure("abs_error", size).size for size in (50, 10**6, 10**7, 50)]
    assert ran == [("abs_error", 50), ("abs_error", sizes[1])]
    assert sizes == [50, sizes[1], sizes[1], 50]


def test_load_counts_two_streams_for_each_byte_sent() -> None:
    work = floor.load(sent=100, rounds=3, held=50, drawn=7)
    assert work == floor.Load(keystream=207, memory=457, sent=100, rounds=3)


@pytest.mark.parametrize(("cells", "groups"), [(1, 64), (64, 64), (1000, 7), (10, 250)])
def test_group_sizes_are_positive_and_even(cells: int, groups: int) -> None:
    sizes = group_sizes(cells, groups)
    assert sizes.sum() == cells
    assert sizes.size == min(cells, groups)
    assert 1 <= sizes.min() <= sizes.max() <= sizes.min() + 1


def test_markdown_has_a_row_for_each_result() -> None:
    results = [result(), result(network="wan", shaping="relay", peer=None)]
    text = report.markdown(report.document(results, 3), results)
    rows = [line for line in text.splitlines() if line.startswith("| abs_error")]
    assert [row.split(" | ")[1] for row in rows] == ["loopback", "wan (relay)"]
    # 5 s for 100 cells against 0.5 s for 1,000.
    assert rows[0].endswith("| 5 (100) | 100 |")


def test_markdown_has_both_modes_side_by_side_with_the_peers_figures() -> None:
    both = [
        result(task="abs_error", size=1_000_000, seconds=s, network="loopback", security=mode)
        for mode, s in ((SEMI_HONEST, 0.1), (MALICIOUS, 0.5))
    ]
    page = report.markdown(report.document(both, 1), both)
    (row,) = [line for line in page.splitlines() if "181 B" in line]
    assert "| 0.1000 | 0.5000 | 5.0 |" in row
    assert "0.118 s, 18 B" in row
    assert "Both security modes" not in report.markdown(report.document(both[:1], 1), both[:1])


def test_sweep_leaves_out_what_takes_minutes_to_prove() -> None:
    truncate = TASKS["truncate"]
    assert max(truncate.sizes_of(MALICIOUS)) < max(truncate.sizes_of(SEMI_HONEST))
    assert TASKS["expand_input"].sizes_of(MALICIOUS) == ()


def test_repetitions_are_more_of_short_work_and_fewer_of_long_work_that_is_done_several_times() -> (
    None
):
    error, whole = TASKS["abs_error"], TASKS["select"]
    assert error.repetitions(5, error.default, SEMI_HONEST) == 25
    assert error.repetitions(5, error.default, MALICIOUS) == 5
    assert error.repetitions(5, 10 * error.default, SEMI_HONEST) == 5
    assert whole.repetitions(5, whole.default, SEMI_HONEST) == 5
    assert whole.repetitions(5, 10 * whole.default, SEMI_HONEST) == 1
    assert whole.repetitions(40, whole.default, MALICIOUS) == 2
    assert not whole.compared(10 * whole.default, SEMI_HONEST)
    assert not whole.compared(whole.default, MALICIOUS)


def test_judged_takes_the_network_and_the_size_of_the_goal() -> None:
    results = [
        result(size=1_000_000, seconds=0.09, rounds=11),
        result(size=1_000_000, seconds=9.0, network="wan"),
        result(task="select", size=1_000_000, seconds=0.3, rounds=84, over_beside=1.25),
        result(task="select", size=1_000_000, seconds=1.6, network="wan"),
        result(task="box_muller", size=1 << 15, seconds=0.2),
    ]
    found = {one.goal.what: one for one in judged(results)}
    assert found["absolute error, 10^6 cells: seconds"].figure == 0.09
    assert found["absolute error, 10^6 cells: seconds"].met
    assert not found["absolute error: rounds"].met
    assert found[
        "select, 250 candidates: seconds beyond the absolute error"
    ].figure == pytest.approx(0.21)
    # In turns in the same processes, and not of two runs of them.
    assert found["select, 250 candidates: seconds over the absolute error's"].figure == 1.25
    assert found["select, 250 candidates, 10^6 cells: seconds"].figure == 1.6
    assert not found["select, 250 candidates, 10^6 cells: seconds"].met
    assert found["Box-Muller: samples a second"].met
    # The sizes of a sweep are missing; of a select without turns nothing is said of its absolute error.
    assert not any("dearest" in what for what in found)
    alone = [result(size=1_000_000), result(task="select", size=1_000_000)]
    assert not any("over the absolute error's" in one.goal.what for one in judged(alone))
    text = report.markdown(report.document(results, 3), results)
    assert "| absolute error: rounds | loopback | at most 10 | 11 | 9 | no |" in text
    assert (
        "| Box-Muller: samples a second | loopback | at least 130,000 | 163,840 | 132,000 | yes |"
        in text
    )


def test_document_names_no_host_and_no_path() -> None:
    text = json.dumps(report.document([result()], 3))
    assert str(Path.home()) not in text
    assert str(networks.ROOT) not in text
    assert {"commit", "date", "machine", "parameters"} <= set(json.loads(text))


@pytest.mark.slow
def test_whole_run_goes_through_the_relay_and_has_a_row_on_the_page() -> None:
    """Rounds of messages alone take a LAN's round trips; the servers' addresses differ by who sees them."""
    run = measure_run("lan", SEMI_HONEST, "counts", name="synthfs", rows=400)
    assert sum(run.phases.values()) == pytest.approx(run.seconds, rel=0.05)
    assert run.phases["select"] > 10 * 24 * 0.5e-3
    assert 0 < run.workload_error < 2
    assert min(run.sent_mb) > 0
    page = "\n".join(runs_markdown([run]))
    assert "| counts | semi-honest | lan |" in page
    assert runs_markdown([]) == []
