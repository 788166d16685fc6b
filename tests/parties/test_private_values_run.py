"""DistAIM with private values: real servers find bounds, bins, heaps and categories from noisy counts alone."""

import asyncio
import hashlib
import io
import json
import math
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from mechanisms.columns import Categorical, fine_cells
from mechanisms.numbers import Real
from mechanisms.private_categories import PrivateCategories
from mechanisms.reading import read_table
from mechanisms.resolving import coarse_codes
from mechanisms.table import encode
from parties.audit.runner import audit_folder
from parties.cli.main import cli
from parties.config import CertificateFiles, Config, bound_text, load_config
from parties.foundation.errors import ConfigError
from parties.foundation.version import AUDITED_WIRES
from parties.identity.study_setup import create_study
from parties.identity.tls import Authority
from parties.local.assemble import finish_trial
from parties.local.methods import open_method_folder, run_method
from parties.local.request import TrialRequest, load_trial
from parties.mpc.estimation import make_estimator
from parties.mpc.planning import validation
from parties.mpc.planning.budget import make_plan
from parties.mpc.planning.validation import validate_run
from parties.observability.events import Progress, TextLines
from parties.service.kit import make_kits
from parties.session.study import Study
from protocols.fields import encode as encoded
from tests.mechanisms.test_private_values import LIST, ugly
from tests.parties.audit_runs import Finished, Lines, copy_run, finish, read_lines
from tests.parties.mesh import EVERYONE
from tests.parties.support import make_config
from tests.parties.tampering import Forger, failed
from tests.parties.test_provenance import cards_of

Certificates = dict[str, CertificateFiles]
OWNER_ROWS = 150
CODES = ("A00", "B11", "C22", "D33", "E44", "F55")
"""Public candidates, of which no row has the last three."""
PRIVATE: dict[str, object] = {
    "run.rounds": 1,
    "run.epsilon": 20.0,
    "run.iterations": 20,
    "run.final_iterations": 40,
    "run.noise": "distributed",
    "run.input": "auto",
    "clients.rows_per_client": 1000,
    "column": [
        {"name": "cost", "kind": "real", "values": "private", "decimals": 1, "coarse": 4},
        {"name": "end", "kind": "date", "values": "private", "coarse": 4, "missing": True},
        {
            "name": "code",
            "kind": "categorical",
            "values": "private",
            "candidates": list(CODES),
            "coarse": 4,
        },
    ],
}
CAPACITIES = dict.fromkeys(EVERYONE, OWNER_ROWS)


def rows_of(seed: int) -> pd.DataFrame:
    """Six in ten costs are zero, one end in five is 9999-12-31, and one code in ten is not listed."""
    rng = np.random.default_rng(seed)
    costs = np.where(rng.random(OWNER_ROWS) < 0.6, 0.0, rng.uniform(100, 900, OWNER_ROWS))
    days = pd.to_datetime("2022-01-01") + pd.to_timedelta(rng.integers(0, 60, OWNER_ROWS), "D")
    ends = days.strftime("%Y-%m-%d").to_numpy(object)
    ends[rng.random(OWNER_ROWS) < 0.2] = "9999-12-31"
    ends[rng.random(OWNER_ROWS) < 0.1] = ""
    listed = rng.choice(["A00", "B11", "C22", "Z99"], OWNER_ROWS, p=[0.4, 0.3, 0.2, 0.1])
    return pd.DataFrame(
        {"cost": [f"{c:.1f}" for c in costs], "end": ends, "code": listed}, dtype=object
    )


def tables(config: Config) -> Mapping[str, NDArray[np.int32]]:
    """Each owner's rows as codes of fine cells."""
    return {owner: encode(config.domain, rows_of(seed)) for seed, owner in enumerate(EVERYONE)}


def counted(config: Config) -> NDArray[np.int32]:
    """All rows in the cells that a run chose, which ``config`` has."""
    before = make_config(PRIVATE)
    codes = np.concatenate([*tables(before).values()])
    return coarse_codes(before.domain, config.domain, codes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Finished:
    return finish(
        tmp_path_factory.mktemp("private-values"),
        certificates,
        PRIVATE,
        capacities=CAPACITIES,
        estimator=make_estimator,
        tables=tables,
    )


def test_run_finds_heaps_and_keeps_the_codes_that_rows_have(finished: Finished) -> None:
    cost, end, code = finished.config.domain.columns
    assert isinstance(cost, Real)
    assert (0, 0) in cost.cells.ranges
    assert isinstance(code, Categorical)
    assert code.values == ("A00", "B11", "C22", "other")
    table = pd.read_csv(finished.run / "synthetic.csv", dtype=str, keep_default_na=False)
    assert (table["cost"].astype(float) == 0).mean() == pytest.approx(0.6, abs=0.08)
    assert (table["end"] == "9999-12-31").mean() == pytest.approx(0.18, abs=0.08)
    assert set(table["end"].str[:4]) <= {"2021", "2022", "9999", ""}
    assert set(table["code"]) == {"A00", "B11", "C22", "other"}
    assert end.size < len(fine_cells(end).ranges)  # type: ignore[arg-type]


def test_run_measures_the_fine_cells_of_all_columns_in_round_0(finished: Finished) -> None:
    finished.check_counts(counted(finished.config))
    opened = [
        record["count"]
        for record in read_lines(finished.run, 0)
        if record.get("what") == "measure.counts" and record["round"] == 0
    ]
    assert opened == list(make_config(PRIVATE).domain.shape)


def test_audit_passes_and_computes_the_values_anew(finished: Finished) -> None:
    audit = audit_folder(finished.run)
    assert failed(audit) == set(), [check for check in audit.checks if check.status == "fail"]
    passed = {check.name for check in audit.checks if check.status == "pass"}
    assert {"costs", "model", "table", "openings", "limits", "ledger"} <= passed
    ledger = [r for r in read_lines(finished.run, 0) if r["kind"] == "ledger" and r["round"] == 0]
    assert len(ledger) == 3
    report = json.loads((finished.run / "report.json").read_text())
    assert report["synthetic_rows"] > 0


@pytest.mark.slow
def test_a_bundle_has_the_values_that_the_run_chose(finished: Finished, tmp_path: Path) -> None:
    out = tmp_path / "run.zip"
    made = CliRunner().invoke(cli, ["bundle", str(finished.run), "--out", str(out)])
    assert made.exit_code == 0, made.output
    with zipfile.ZipFile(out) as files:
        schema = json.loads(files.read("schema.json"))
    fields = {field["name"]: field for field in schema["fields"]}
    assert fields["code"]["constraints"]["enum"] == ["A00", "B11", "C22", "other"]
    assert fields["cost"]["constraints"]["maximum"] < 2000
    audited = CliRunner().invoke(cli, ["audit", str(out)])
    assert audited.exit_code == 0, audited.output
    assert "pass  contents" in audited.output


def more_of_an_absent_code(lines: Lines) -> None:
    fine = [r for r in lines if r.get("what") == "measure.counts" and r["round"] == 0]
    fine[2].update(value=encoded(np.full(len(CODES) + 1, 2**20, "<u4").tobytes()))


def test_audit_catches_a_category_that_the_counts_do_not_show(
    finished: Finished, tmp_path: Path, certificates: Certificates
) -> None:
    """Told alike by all three servers, and signed by them."""
    forger = Forger(copy_run(finished.run, tmp_path), finished.run, certificates)
    forger.edit(more_of_an_absent_code)
    assert "model" in failed(audit_folder(forger.run))


@pytest.mark.parametrize("wire", [wire for wire in AUDITED_WIRES if wire < 19])
def test_audit_accuses_no_server_of_a_version_that_chose_other_cells(
    wire: int, finished: Finished, tmp_path: Path, certificates: Certificates
) -> None:
    forger = Forger(copy_run(finished.run, tmp_path), finished.run, certificates)
    forger.edit(lambda lines: lines[0].update(wire=wire))
    details = {c.detail for c in audit_folder(forger.run).checks if c.status == "fail"}
    said = f"has messages of version {wire}, in which noisy counts chose other cells of a column"
    assert details, "a run of an older version passes"
    assert all(said in detail for detail in details), details


def test_counts_are_refused_beside_private_values() -> None:
    with pytest.raises(ConfigError, match=r"run.input.*values = \"private\".*'cost'.*\"rows\""):
        validate_run(Study.of(make_config(PRIVATE | {"run.input": "counts"})))


def test_too_many_cells_beside_private_values_are_not_sent_as_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(validation, "MAX_CELLS", 50)
    with pytest.raises(
        ConfigError, match=r"run.input.*\"auto\".*at most 50, or a smaller coarse"
    ) as caught:
        validate_run(Study.of(make_config(PRIVATE)))
    assert '"counts"' not in str(caught.value)


def share_of_round_0(config: Config) -> float:
    """The first measurements' share of what is for measuring."""
    plan = make_plan(Study.of(config))
    first = math.fsum(plan.accountant.cost(event) for event in plan.events(0))
    return first / plan.rho / config.run.measure_share


def test_round_0_has_more_of_the_budget_where_values_are_private(finished: Finished) -> None:
    listed = [
        {"name": name, "kind": "categorical", "categories": ["x", "y"]} for name in ("a", "b")
    ]
    free = [{"name": name, "kind": "integer", "values": "private"} for name in ("c", "d")]
    changes = {"run.noise": "discrete-gaussian", "run.rounds": 3, "run.epsilon": 1.0}

    def share(columns: list[dict[str, object]], **keys: object) -> float:
        more = {f"run.{key}": value for key, value in keys.items()}
        return share_of_round_0(make_config(changes | more | {"column": columns}))

    assert share(listed) == pytest.approx(0.2, abs=0.001)
    assert share(free) == pytest.approx(0.441, abs=0.001)
    assert 0.25 < share([*listed, *free]) < 0.4
    # A given share stays, and so does the papers' rule.
    assert share(free, initial_share=0.1) == pytest.approx(0.1, abs=0.001)
    assert share(free, rule="aim") == pytest.approx(share(listed, rule="aim"), abs=0.001)
    # What was measured changes no charge of the same run.
    config = make_config(PRIVATE)
    plans = [make_plan(Study.of(of)) for of in (config, config.resolved(finished.config.domain))]
    assert plans[0].initial == plans[1].initial


def test_a_trial_of_an_ugly_table_keeps_heaps_medians_marks_and_frequent_codes(
    tmp_path: Path,
) -> None:
    rng, table = np.random.default_rng(3), ugly(10_000, 5)
    often = ["A07", "C33", "K50", "T99"]
    codes = np.array(often)[rng.integers(0, 4, len(table))]
    rare = rng.random(len(table)) < 0.3
    codes[rare] = np.array(LIST)[rng.integers(0, len(LIST), rare.sum())]
    table["code"], table["sex"] = codes, rng.choice(["f", "m"], len(table))
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "codes.txt").write_text("\n".join([*LIST, ""]))
    (tmp_path / "study.toml").write_text(UGLY_STUDY)
    config = load_config(tmp_path / "study.toml")
    assert config.domain.columns[4].private == PrivateCategories(LIST)
    path = tmp_path / "table.csv"
    request = TrialRequest("aim", "ugly", None, "iid", None, 0)
    trial = load_trial(config, read_table(path), request, source=str(path))
    folder = open_method_folder(trial, tmp_path / "run")
    report = asyncio.run(run_method(trial, folder, Progress(TextLines(stream=io.StringIO()))))
    document = finish_trial(trial, folder, report)
    drawn = pd.read_csv(folder.path / "synthetic.csv", dtype=str, keep_default_na=False)
    assert len(drawn) == pytest.approx(len(table), rel=0.03)
    assert (drawn["cost"].astype(float) == 0).mean() == pytest.approx(0.6, abs=0.03)
    incomes = [pd.to_numeric(of["income"]) for of in (table, drawn)]
    assert incomes[1].median() == pytest.approx(incomes[0].median(), rel=0.1)
    assert (incomes[1] == -99).mean() == pytest.approx(0.02, abs=0.012)
    assert (drawn["end"] == "9999-12-31").mean() == pytest.approx(0.02, abs=0.012)
    # Empty years beside full ones count from three deviations: about one run in ten has some percent there.
    assert drawn["end"].str[:4].isin(["2019", "2020", "9999"]).mean() > 0.92
    assert pd.to_numeric(drawn["ratio"]).median() == pytest.approx(1.0, abs=0.01)
    assert {*often, "other"} == set(drawn["code"])
    for value in often:
        assert (drawn["code"] == value).mean() == pytest.approx(0.175, abs=0.03)
    fine = {of["column"] for of in document["quality"]["fine"]}  # type: ignore[index]
    assert fine == {"cost", "income", "end", "ratio"}
    # No claim is wrong, though the real table has codes that the run merged.
    assert not [q for q in document["quality"]["columns"] if q["wrong"]]  # type: ignore[index]
    assert document["about"]["provenance"]["private"] == 5  # type: ignore[index]


UGLY_STUDY = """\
[run]
epsilon = 1.0
delta = 1e-5
iterations = 50
final_iterations = 300

[workload]
degree = 2

[clients]
expected = 10
rows_per_client = 2000

[[column]]
name = "cost"
kind = "real"
values = "private"
decimals = 2

[[column]]
name = "income"
kind = "integer"
values = "private"

[[column]]
name = "end"
kind = "date"
values = "private"

[[column]]
name = "ratio"
kind = "real"
values = "private"
decimals = 3

[[column]]
name = "code"
kind = "categorical"
values = "private"
candidates = "codes.txt"
from = "public: a code list"

[[column]]
name = "sex"
kind = "categorical"
categories = ["f", "m"]
from = "public: the form"
"""


def test_a_list_of_candidates_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(UGLY_STUDY)
    with pytest.raises(ConfigError, match=r"column.candidates: is 'codes.txt'.*beside the config"):
        load_config(tmp_path / "study.toml")
    (tmp_path / "study.toml").write_text(UGLY_STUDY.replace('"codes.txt"', '"../codes.txt"'))
    (tmp_path.parent / "codes.txt").write_text("A00")
    with pytest.raises(ConfigError, match="expected a list, or the name of a file in the config's"):
        load_config(tmp_path / "study.toml")


def test_a_list_of_candidates_goes_where_its_config_goes(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(UGLY_STUDY)
    (tmp_path / "codes.txt").write_text("A00\r\n\nB11\n")
    cards = cards_of("distaim", tmp_path)
    Authority.make(tmp_path / "authority", 10)
    founded = create_study(
        study, cards, authority=tmp_path / "authority", out=tmp_path / "s", valid_days=9
    )
    (code,) = [c for c in founded.domain.columns if c.name == "code"]
    assert isinstance(code, Categorical)
    assert code.categories == ("A00", "B11")
    made = make_kits(
        tmp_path / "s" / "study.toml", cards, ["north"], out=tmp_path / "kits", zipped=False
    )
    for kit in made:
        assert load_config(kit / "study" / "study.toml").domain == founded.domain
    # The study's text binds the file by its hash, and its digest the list.
    there = tmp_path / "s" / "codes.txt"
    assert (
        hashlib.sha256(there.read_bytes()).hexdigest()
        in (tmp_path / "s" / "study.toml").read_text()
    )
    assert load_config(study).domain == founded.domain
    there.write_text("A00\nB11\nC22\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "s" / "study.toml")
    for part in (
        "s/study.toml: column.candidates: is 'codes.txt'",
        f"{there} is another file than the study was made with",
        "expected the file that came with the config",
        "(sha256 of column 'code')",
    ):
        assert part in str(caught.value)
    there.unlink()
    with pytest.raises(ConfigError, match=r"cannot be read.*beside the config"):
        load_config(tmp_path / "s" / "study.toml")


def test_a_table_of_an_implied_column_goes_where_its_config_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    implied = (
        '\n[[column]]\nname = "sexes"\nimplied_by = "sex"\ntable = "sexes.csv"  # by the form\n'
    )
    study = tmp_path / "study.toml"
    study.write_text(UGLY_STUDY + implied)
    (tmp_path / "codes.txt").write_text("A00\nB11\n")
    (tmp_path / "sexes.csv").write_text("sex,sexes\nf,female\nm,male\n")
    Authority.make(tmp_path / "authority", 10)
    options = {"authority": tmp_path / "authority", "valid_days": 9}
    founded = create_study(study, cards_of("distaim", tmp_path), out=tmp_path / "s", **options)
    assert founded.domain.implied[0].values == (("f", "female"), ("m", "male"))
    # The bytes that are hashed are those that are read: a file that changes in between is not mixed up.
    read = Counter[str]()
    first = Path.read_bytes
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: read.update([path.name]) or first(path))
        load_config(tmp_path / "s" / "study.toml")
    assert read["sexes.csv"] == 1
    (tmp_path / "s" / "sexes.csv").write_text("sex,sexes\nf,male\nm,female\n")
    with pytest.raises(ConfigError, match=r"column.table: is 'sexes.csv'.*is another file"):
        load_config(tmp_path / "s" / "study.toml")
    # A name that shares its line with other keys takes no hash: its author adds it.
    one_line = UGLY_STUDY.replace("[[column]]", "[[else]]").partition("[[else]]")[0]
    columns = "column = [{name = 'c', kind = 'categorical', values = 'private', candidates = 'codes.txt'}]\n"
    with pytest.raises(ConfigError, match=r'expected sha256 = "[0-9a-f]{64}" in its column'):
        bound_text(columns + one_line, study)


def test_plan_warns_of_values_that_noise_may_hide(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(UGLY_STUDY)
    (tmp_path / "codes.txt").write_text("\n".join(LIST))
    said = {
        rows: CliRunner().invoke(cli, ["plan", str(tmp_path / "study.toml"), "--rows", rows]).output
        for rows in ("150", "9000")
    }
    assert "noise may hide where the values of cost, income, end, ratio lie" in said["150"]
    assert 'expected low and high from a code book beside bins = "private"' in said["150"]
    assert "a value of code needs 8" in said["150"]
    assert "noise may hide" not in said["9000"]
    assert "a value of code" not in said["9000"]


def test_other_methods_refuse_private_values() -> None:
    config = make_config(PRIVATE)
    with pytest.raises(ConfigError, match=r"column.values: is \"private\" in column 'cost'"):
        config.check_bounds()
    with pytest.raises(ConfigError, match=r"column.values.*expected low and high"):
        config.check_bins()
