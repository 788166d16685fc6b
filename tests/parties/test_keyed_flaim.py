"""FLAIM on the views of tables with keys: the budget of a person, runs, their audit, studies on hosts."""

import json
import zipfile
from pathlib import Path

import pytest
import tomli_w

import syncret
from mechanisms.reading import read_text
from parties.audit.keyed import audit_keyed
from parties.config import Config, load_config
from parties.foundation.errors import ConfigError
from parties.foundation.untrusted_text import parse_toml
from parties.methods.keyed_study import FLAIM, load_keyed_study, person_epsilon
from tests.parties.test_keyed_study import ran, syncret_command, written

SMALL = ("--clients", 3, "--minimum", 3)


def changed(path: Path, **sections: object) -> Path:
    """The configuration with other sections, beside it."""
    document = parse_toml(path.read_text(encoding="utf-8")) | sections
    other = path.with_name("changed.toml")
    other.write_text(tomli_w.dumps(document), encoding="utf-8")
    return other


def as_flaim(config: Config) -> Config:
    return config.override({"flaim.minimum": 3})


@pytest.mark.parametrize("accountant", ["gaussian", "zcdp"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0, 30.0])
def test_views_cost_a_person_the_budget_together(
    tmp_path: Path, accountant: str, epsilon: float
) -> None:
    path, _ = written(tmp_path, epsilon=epsilon, accountant=accountant)
    study = load_keyed_study(path, method=FLAIM)
    spent = person_epsilon(study.configs.values(), 1e-5)
    assert 0.99 * epsilon < spent <= epsilon
    # What stands in the folder of a run, or in a study for hosts, is divided alike.
    again = changed(path, flaim={}, run=study.document["run"])
    assert load_keyed_study(again).configs["stays"].run == study.configs["stays"].run
    # The control: each view with the whole budget.
    alone = {"run.epsilon": epsilon, "run.delta": 1e-5}
    whole = [config.override(alone) for config in study.configs.values()]
    assert person_epsilon(whole, 1e-5) > 1.2 * epsilon


def test_a_division_for_the_gaussian_would_cost_a_person_more(tmp_path: Path) -> None:
    path, _ = written(tmp_path, epsilon=30.0)
    others = load_keyed_study(path, method="distaim")
    assert others.method is None
    assert person_epsilon(others.configs.values(), 1e-5) <= 30.0
    assert person_epsilon(map(as_flaim, others.configs.values()), 1e-5) > 30.03


@pytest.mark.parametrize(
    ("noise", "server"),
    [
        ("server", "none: it saw sums before their noise"),
        ("distributed", "the same, with up to 5% of a sum's clients (or one of them)"),
    ],
)
def test_a_run_makes_tables_that_hold_together(tmp_path: Path, noise: str, server: str) -> None:
    path, options = written(tmp_path)
    out = tmp_path / "run"
    said = ran(
        *("run", path, *options, "--method", FLAIM, "--simulate", "--noise", noise),
        *(*SMALL, "--out", out),
    )
    assert f"against server  {server}" in said
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["privacy"]["spent at most"] <= 4.0
    assert server in report["privacy"]["against the server"]
    (own,) = report["figures"]["synthetic"]
    assert (own["broken"], own["unordered"]) == (0, 0)
    patients, stays = (read_text(out / f"{name}.csv") for name in ("patients", "stays"))
    assert set(stays.columns["pid"]) <= set(patients.columns["pid"])
    assert len(stays) == own["rows"] > 0
    # Drawn again, of the study with the budget divided for FLAIM, though the configuration has no [flaim].
    views = [f"--view={name}={out / 'views' / name}" for name in ("patients", "stays")]
    ran("data", "tables", path, *views, "-n", 25, "--out", tmp_path / "again")
    assert len(read_text(tmp_path / "again" / "patients.csv")) == 25
    dearer = changed(path, run={"epsilon": 2.0, "delta": 1e-5})
    refused = syncret_command("data", "tables", dearer, *views, "--out", tmp_path / "other")
    assert "run.epsilon: is" in str(refused.exception)


@pytest.mark.slow
def test_a_server_and_clients_make_tables_that_an_audit_follows(tmp_path: Path) -> None:
    path, options = written(tmp_path)
    tables = {option.partition("=")[0]: option.partition("=")[2] for option in options[1::2]}
    config = changed(path, flaim={"minimum": 3})
    run = syncret.synthesize_tables(tables, config, method=FLAIM, out=tmp_path / "run")
    assert set(run.tables) == {"patients", "stays"}
    assert run.report["method"] == FLAIM
    audited = json.loads(ran("audit", run.folder, "--json"))
    assert [check["status"] for check in audited["checks"]] == ["pass"] * 5
    assert sorted(audited["views"]) == ["patients", "stays"]
    # Of a study whose persons pay less this is none.
    document = parse_toml(config.read_text(encoding="utf-8"))
    document["run"]["epsilon"] = 1.0
    less = tmp_path / "less.toml"
    less.write_text(tomli_w.dumps(document), encoding="utf-8")
    assert "budget" in audit_keyed(run.folder, agreed=less).failed
    run.save(tmp_path / "run.zip", uncharged="a test", budget=tmp_path / "budget.sqlite")
    bundled = json.loads(ran("audit", tmp_path / "run.zip", "--json"))
    assert [check["status"] for check in bundled["checks"]] == ["pass"] * 5
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert b"made by FLAIM: " in archive.read("model-card.md")


def test_a_study_for_hosts_is_of_flaim(tmp_path: Path) -> None:
    path, options = written(tmp_path)
    config = changed(path, flaim={"minimum": 3, "noise": "distributed"})
    ran("data", "tables", config, *options, "--out", tmp_path / "views")
    study = load_keyed_study(config)
    for name, view in study.configs.items():
        written_config = load_config(tmp_path / "views" / f"{name}.toml")
        assert written_config.digest() == view.digest()
        assert written_config.flaim is not None
        assert written_config.flaim.noise == "distributed"
    plan = json.loads(ran("plan", config, "--rows", 1000, "--json"))
    assert {each["noise"][-1]["method"] for each in plan.values()} == {FLAIM}
    # A run by another method leaves the section out, and counts as that method does.
    assert load_keyed_study(config, method="aim").configs["stays"].flaim is None


def test_what_flaim_does_not_do_is_refused(tmp_path: Path) -> None:
    path, options = written(tmp_path)
    oracle = syncret_command("run", path, *options, "--method", FLAIM, "--variant", "oracle")
    assert "flaim.variant: is 'oracle', which is not private" in str(oracle.exception)
    found = syncret_command("run", path, *options, "--variant", "pairs")
    assert "--variant is not of distaim" in found.output
    found = syncret_command("run", path, *options, "--method", FLAIM, "--input", "rows")
    assert "--input is not of flaim" in found.output
    document = parse_toml(path.read_text(encoding="utf-8"))
    document["table"][0]["linked"] = "rows"
    linked = changed(path, table=document["table"], flaim={})
    with pytest.raises(ConfigError, match=r"table.linked: is 'rows' beside FLAIM"):
        load_keyed_study(linked)
    with pytest.raises(ValueError, match="expected one of distaim, aim, flaim"):
        syncret.synthesize_tables({}, path, method="tda")
