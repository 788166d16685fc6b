"""`syncret run --source`: tables of several sources against a plaintext join, and what is refused at once."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.errors import DataError
from mechanisms.linking import LIMBS
from mechanisms.text_table import TextTable
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import Config, load_config
from parties.foundation.errors import ConfigError
from parties.foundation.exit_codes import Status
from parties.local.assemble import finish_trial
from parties.local.methods import open_method_folder, run_method
from parties.local.request import Trial, TrialRequest, load_linked_trial
from parties.local.sources import LocatedTable
from parties.observability.events import Progress, TextLines
from tests.parties.commands import snapshot
from tests.parties.small import write_small

CONFIG = """
[run]
id = "linked"
epsilon = 5.0
delta = 1e-5
rounds = 1
iterations = 5
final_iterations = 5

[workload]
degree = 2
count = "all"

[clients]
expected = 4
rows_per_client = 500

[[source]]
name = "clinics"
columns = ["age", "sex"]
key = ["number", "born"]

[[source]]
name = "registry"
columns = ["ward"]
key = ["person", "birth"]

[[column]]
name = "sex"
kind = "categorical"
categories = ["f", "m"]

[[column]]
name = "ward"
kind = "categorical"
categories = ["x", "y", "z"]

[[column]]
name = "age"
kind = "integer"
low = 0
high = 9
"""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> TextTable:
    columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    return TextTable(columns, range(2, len(rows) + 2))


def clinics(people: Sequence[int]) -> TextTable:
    rows = [(f" N{p} ", f"19{p % 90 + 10}-03-04", str(p % 10), "fm"[p % 2]) for p in people]
    return table(("number", "born", "age", "sex"), rows)


def registry(people: Sequence[int]) -> TextTable:
    rows = [(f"n{p}", f"04.03.19{p % 90 + 10}", "xyz"[p % 3]) for p in people]
    return table(("person", "birth", "ward"), rows)


def config_file(folder: Path, text: str = CONFIG) -> Path:
    path = folder / "linked.toml"
    path.write_text(text)
    return path


def write(folder: Path, name: str, content: TextTable) -> Path:
    path = folder / name
    content.frame().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return load_config(config_file(tmp_path_factory.mktemp("config")))


def trial_of(
    config: Config, tables: Mapping[str, TextTable], *, clients: int = 2, method: str = "distaim"
) -> Trial:
    located = {name: LocatedTable(content, f"{name}.csv") for name, content in tables.items()}
    request = TrialRequest(method, "linked", clients, "iid", None, 1)
    return load_linked_trial(config, located, request)


PEOPLE = st.lists(st.integers(0, 8), min_size=1, max_size=12)


@given(st.lists(st.integers(0, 30), unique=True, min_size=1), PEOPLE)
@settings(max_examples=30)
def test_trial_joins_as_a_dictionary_would(
    config: Config, patients: list[int], registered: list[int]
) -> None:
    """A person who stands twice in the registry, at two owners, joins nothing; at one owner that is refused."""
    once = [p for p in registered if registered.count(p) == 1]
    expected = sorted((p % 2, p % 3, p % 10) for p in patients if p in once)
    tables = {"clinics": clinics(patients), "registry": registry(registered)}
    # As many owners as rows: no owner has a key twice.
    clients = max(len(patients), len(registered))
    if not expected:
        with pytest.raises(DataError, match="no row of one source has a partner"):
            trial_of(config, tables, clients=clients)
        return
    trial = trial_of(config, tables, clients=clients)
    assert sorted(map(tuple, trial.codes.tolist())) == expected
    nobody = np.zeros(len(trial.names), np.bool_)
    assert len(trial.counted(nobody)) == 0
    assert np.array_equal(trial.counted(~nobody), trial.codes)


def test_trial_has_owners_of_each_source_and_shares_keys_salted_by_the_configuration(
    config: Config,
) -> None:
    trial = trial_of(config, {"clinics": clinics(range(30)), "registry": registry(range(20))})
    assert trial.names == ("clinics-000", "clinics-001", "registry-000", "registry-001")
    assert trial.partition.sizes.tolist() == [15, 15, 10, 10]
    shared = trial.shared(trial.config)
    assert shared.shape == (50, LIMBS + 2)
    assert not shared[30:, LIMBS + 1].any()
    keys = {tuple(row) for row in shared[:30, :LIMBS]}
    assert len(keys & {tuple(row) for row in shared[30:, :LIMBS]}) == 20
    other = trial.shared(trial.config.override({"run.seed": 3}))
    assert not keys & {tuple(row) for row in other[:, :LIMBS]}


@pytest.mark.parametrize(
    ("tables", "error", "said"),
    [
        (
            {"clinics": clinics([1, 2, 1]), "registry": registry([1])},
            DataError,
            r"clinics.csv \(rows of clinics-000\): lines 2, 4 have the same linking key",
        ),
        (
            {"clinics": table(("number", "born", "age", "sex"), [("", "1980-01-01", "1", "f")]),
             "registry": registry([1])},
            DataError,
            "line 2 has no linking key",
        ),
        (
            {"clinics": clinics([1]), "registry": table(("person", "birth", "ward"), [("n1", "17", "x")])},
            DataError,
            "cannot match: 'born' in clinics.csv has dates; 'birth' in registry.csv has numbers",
        ),
        (
            {"clinics": clinics([1]), "registry": table(("person", "ward"), [("n1", "x")])},
            DataError,
            "registry.csv: column 'birth' of the linking key is not in the table",
        ),
        ({"clinics": clinics([1]), "registry": registry([2])}, DataError, "no row of one source"),
        ({"clinics": clinics([1])}, ConfigError, "clinics, registry; tables are given for clinics"),
        (
            {"clinics": clinics([1]), "registry": registry([1]), "other": registry([1])},
            ConfigError,
            "expected one for each",
        ),
    ],
)  # fmt: skip
def test_trial_refuses_tables_before_anything_is_written(
    config: Config, tables: Mapping[str, TextTable], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        trial_of(config, tables, clients=1)
    assert "N1" not in str(caught.value)
    assert "n1" not in str(caught.value).replace("column", "")


async def test_central_aim_is_of_the_join_and_its_report_names_the_sources(
    config: Config, tmp_path: Path
) -> None:
    tables = {"clinics": clinics(range(60)), "registry": registry(range(20, 90))}
    trial = trial_of(config, tables, method="aim")
    folder = open_method_folder(trial, tmp_path / "out")
    report = await run_method(trial, folder, Progress(TextLines(stream=io.StringIO())))
    document = json.loads(json.dumps(finish_trial(trial, folder, report)))
    assert document["workload"]["sources"][0] == {
        "name": "clinics", "columns": ["age", "sex"], "owners": 2,
        "rows_capacity": 2 * trial.config.clients.rows_per_client,
    }  # fmt: skip
    assert document["utility"]["workload_error"] < 2
    assert "one of the sources clinics, registry" in document["about"]["unit"]


def test_person_without_sources_is_the_owners_word(tmp_path: Path) -> None:
    """Counts, or rows without keys: m scales the noise, and the report says whose word it is."""
    text = CONFIG.split("[[source]]")[0] + "[[column]]" + CONFIG.split("[[column]]", 1)[1]
    text = text.replace("[run]", '[run]\nunit = "person"\nrows_per_person = 3')
    config = load_config(config_file(tmp_path, text))
    assert config.rows_of_unit == 3
    data = write(tmp_path, "t.csv", table(("sex", "ward", "age"), [("f", "x", "1")] * 50))
    out = tmp_path / "out"
    assert run_command_line(cli, ["run", str(config_file(tmp_path, text)), "--data", str(data), "--method", "aim",
                         "--out", str(out)]) == 0  # fmt: skip
    report = json.loads((out / "report.json").read_text())
    assert "at most 3 in the whole table" in report["about"]["unit"]
    assert any("The owners state that" in sentence for sentence in report["trust"])
    total = report["privacy"]["rho_total"]
    assert report["parameters"]["rows_of_unit"] == 3
    assert f"{total * 9:.4g} for 3 of them" in (out / "report.html").read_text()


def test_run_takes_sources_or_a_table_and_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config_file(tmp_path)
    data = write(tmp_path, "clinics.csv", clinics([1]))
    plain, _ = write_small(tmp_path)
    before = snapshot(tmp_path)
    source = f"clinics={data}"
    for options, status, said in (
        ([], Status.USAGE, "give --data, or --source NAME=TABLE"),
        (["--data", str(data), "--source", source], Status.USAGE, "give --data, or --source"),
        (["--source", source, "--source", source], Status.USAGE, "a name stands twice"),
        (["--source", "clinics"], Status.USAGE, "'clinics' is not NAME=TABLE"),
        (
            ["--data", str(data)],
            Status.CONFIG,
            "expected --source clinics=TABLE --source registry=TABLE",
        ),
        (["--source", source], Status.CONFIG, "tables are given for clinics"),
    ):
        assert (
            run_command_line(cli, ["run", str(path), *options, "--out", str(tmp_path / "out")])
            == status
        )
        assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert (
        run_command_line(cli, ["run", "--method", "flaim", str(path), "--data", str(data)])
        == Status.CONFIG
    )
    assert "source: is DistAIM's and central AIM's alone" in capsys.readouterr().err
    assert run_command_line(cli, ["run", str(plain), "--source", source]) == Status.CONFIG
    assert "source: is missing; tables are given for clinics" in capsys.readouterr().err
    assert snapshot(tmp_path) == before


def test_domain_drafts_sources_with_their_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The column that all tables have is the key; no value of it is in the draft, which loads."""
    people = range(100, 160)
    one = write(tmp_path, "a.csv", table(("id", "age"), [(f"0{p}", str(p % 10)) for p in people]))
    other = write(
        tmp_path, "b.csv", table(("id", "ward"), [(f"0{p}", "xyz"[p % 3]) for p in people])
    )
    assert (
        run_command_line(
            cli, ["data", "draft", "--source", f"one={one}", "--source", f"other={other}"]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "0123" not in text
    drafted = load_config(config_file(tmp_path, text.replace("[run]", '[run]\nid = "draft"')))
    assert [(s.name, s.columns, s.key) for s in drafted.sources] == [
        ("one", ("age",), ("id",)),
        ("other", ("ward",), ("id",)),
    ]
    assert run_command_line(cli, ["plan", str(tmp_path / "linked.toml")]) == 0
    assert "its rows: " in capsys.readouterr().out
