"""Constraints in configurations and whole runs: digests, rounds, refusals, synthetic rows, samples, the audit."""

import csv
import datetime
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mechanisms.errors import DataError, DomainError
from mechanisms.sampling import public_generator
from parties.cli.main import cli
from parties.config import config_from_dict, load_config
from parties.foundation.errors import ConfigError
from parties.methods.registry import plan_of

ROWS = 600
COLUMNS = """
[run]
id = "stays"
epsilon = 2.0
delta = 1e-4
rows = 3000
iterations = 20
final_iterations = 40
large_delta = true
{run}
[workload]
degree = 2
count = "all"
[clients]
expected = 3
rows_per_client = 1000
[[column]]
name = "sex"
kind = "categorical"
categories = ["F", "M"]
[[column]]
name = "pregnant"
kind = "categorical"
categories = ["no", "yes"]
[[column]]
name = "start"
kind = "date"
low = "2020-01-01"
high = "2020-12-31"
bins = 5
[[column]]
name = "end"
kind = "date"
low = "2020-01-01"
high = "2021-12-31"
bins = 7
[[column]]
name = "days"
kind = "integer"
low = 0
high = 400
[[column]]
name = "net"
kind = "integer"
low = 0
high = 100
bins = 4
[[column]]
name = "vat"
kind = "real"
low = 0.0
high = 20.0
decimals = 2
bins = 4
[[column]]
name = "gross"
kind = "real"
low = 0.0
high = 120.0
decimals = 2
"""
CONSTRAINTS = """
[[constraint]]
never = "pregnant = yes and sex = M"
[[constraint]]
order = ["start", "end"]
violations = "repair"
[[constraint]]
column = "days"
equals = "end - start"
[[constraint]]
column = "gross"
equals = "net + vat"
"""


def config_file(folder: Path, *, constraints: str = CONSTRAINTS, run: str = "") -> Path:
    path = folder / "config.toml"
    path.write_text(COLUMNS.format(run=run) + constraints)
    return path


def table_file(folder: Path, *, wrong: tuple[int, ...] = ()) -> Path:
    """A table of stays; in the rows ``wrong`` the end lies before the start."""
    draw, first = public_generator(8), datetime.date(2020, 1, 1)
    path = folder / "stays.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sex", "pregnant", "start", "end", "days", "net", "vat", "gross"])
        for row in range(ROWS):
            sex = "FM"[int(draw.integers(2))]
            start = first + datetime.timedelta(days=int(draw.integers(10, 366)))
            days = -3 if row in wrong else int(draw.integers(0, 40))
            net, vat = int(draw.integers(0, 101)), int(draw.integers(0, 2001))
            pregnant = "yes" if sex == "F" and draw.random() < 0.4 else "no"
            end = start + datetime.timedelta(days=days)
            amounts = [net, f"{vat / 100:.2f}", f"{net + vat / 100:.2f}"]
            writer.writerow([sex, pregnant, start, end, days, *amounts])
    return path


def violations(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a table that contradict a constraint, by arithmetic of its own."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            start, end = (datetime.date.fromisoformat(row[name]) for name in ("start", "end"))
            cents = round(float(row["net"]) * 100) + round(float(row["vat"]) * 100)
            right = (
                not (row["pregnant"] == "yes" and row["sex"] == "M")
                and start <= end
                and (end - start).days == int(row["days"])
                and cents == round(float(row["gross"]) * 100)
            )
            if not right:
                yield row


def run(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(
        cli, ["run", str(folder / "config.toml"), "--data", str(folder / "stays.csv"), *options]
    )


def test_config_reads_constraints_and_counts_the_rounds_of_modelled_columns(tmp_path: Path) -> None:
    config = load_config(config_file(tmp_path))
    assert config.domain.names == ("sex", "pregnant", "start", "end", "net", "vat")
    assert config.run.rounds == 16 * 6
    again = config_from_dict(tomllib.loads(config.resolved_toml()), source="x", base=tmp_path)
    assert again.digest() == config.digest()
    assert again.domain == config.domain


def test_constraints_are_part_of_the_digest(tmp_path: Path) -> None:
    digests = {
        load_config(config_file(tmp_path, constraints=constraints)).digest()
        for constraints in ("", CONSTRAINTS, CONSTRAINTS.replace('violations = "repair"\n', ""))
    }
    assert len(digests) == 3


def test_config_names_the_constraint_that_is_wrong(tmp_path: Path) -> None:
    wrong = config_file(tmp_path, constraints='[[constraint]]\nnever = "sex = X"\n')
    with pytest.raises(ConfigError, match=r"\[\[constraint\]\] never = 'sex = X': 'X' is no value"):
        load_config(wrong)
    (tmp_path / "config.toml").write_text(COLUMNS.format(run="") + '[constraint]\nnever = "a"\n')
    with pytest.raises(ConfigError, match="constraint"):
        load_config(tmp_path / "config.toml")


def test_central_run_and_samples_satisfy_the_constraints(tmp_path: Path) -> None:
    config_file(tmp_path)
    table_file(tmp_path, wrong=(5, 70))
    done = run(tmp_path, "--method", "aim", "--out", str(tmp_path / "r"))
    assert done.exit_code == 0, done.output
    assert "2 of 600 rows contradict [[constraint]] order = ['start', 'end'] and are left out" in (
        done.output
    )
    assert list(violations(tmp_path / "r" / "synthetic.csv")) == []
    more = tmp_path / "more.csv"
    sampled = CliRunner().invoke(
        cli, ["data", "sample", str(tmp_path / "r"), "-n", "5000", "--out", str(more)]
    )
    assert sampled.exit_code == 0, sampled.output
    assert list(violations(more)) == []
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert {each["column"] for each in report["columns"]} >= {"days", "gross"}


def test_a_table_that_contradicts_a_constraint_is_refused_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    config_file(tmp_path, constraints=CONSTRAINTS.replace('violations = "repair"\n', ""))
    table_file(tmp_path, wrong=(5, 70))
    refused = run(tmp_path, "--method", "aim", "--out", str(tmp_path / "r"))
    assert isinstance(refused.exception, DataError)
    assert "2 values are not allowed" in str(refused.exception)
    assert "line 7, column 'end' (constraint)" in str(refused.exception)
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_without_constraints_rows_contradict_them(tmp_path: Path) -> None:
    """Control."""
    config_file(tmp_path, constraints="")
    table_file(tmp_path)
    done = run(tmp_path, "--method", "aim", "--out", str(tmp_path / "r"))
    assert done.exit_code == 0, done.output
    assert len(list(violations(tmp_path / "r" / "synthetic.csv"))) > 1000


def test_servers_make_such_rows_and_the_audit_passes(tmp_path: Path) -> None:
    config_file(tmp_path, run="rounds = 3")
    table_file(tmp_path, wrong=(5,))
    folder = tmp_path / "r"
    done = run(tmp_path, "--method", "distaim", "--clients", "3", "--out", str(folder))
    assert done.exit_code == 0, done.output
    assert list(violations(folder / "synthetic.csv")) == []
    audited = CliRunner().invoke(cli, ["audit", str(folder), "--json"])
    assert audited.exit_code == 0, audited.output
    checks = {each["name"]: each for each in json.loads(audited.output)["checks"]}
    assert checks["table"]["status"] == checks["model"]["status"] == "pass"


def test_fed_tda_refuses_what_its_rows_cannot_be_held_to(tmp_path: Path) -> None:
    text = (
        config_file(tmp_path)
        .read_text()
        .replace("[workload]", "rounds = 1\n[silos]\n[tda]\n[workload]")
    )
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises((ConfigError, DomainError), match="Fed-TDA draws columns that no such"):
        plan_of(load_config(tmp_path / "config.toml"))


def sources_files(folder: Path, *, link: str) -> list[str]:
    """The table of stays as two sources, with an id; returns the options that name them."""
    with table_file(folder).open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {"a": ["sex", "pregnant", "start"], "b": ["end", "days", "net", "vat", "gross"]}
    key = ["id"] if link == "key" else []
    options = []
    for name, own in columns.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*key, *own])
            for number, row in enumerate(rows):
                writer.writerow([*[f"p{number}"][: len(key)], *(row[column] for column in own)])
        options += ["--source", f"{name}={folder / name}.csv"]
    return options


SOURCES = """
[[source]]
name = "a"
columns = ["sex", "pregnant", "start"]
key = ["id"]
[[source]]
name = "b"
columns = ["end", "net", "vat"]
key = ["id"]
"""


@pytest.mark.slow
def test_rows_of_linked_sources_satisfy_constraints_that_no_owner_can_check(tmp_path: Path) -> None:
    config_file(tmp_path, run="rounds = 3", constraints=CONSTRAINTS + SOURCES)
    options = sources_files(tmp_path, link="key")
    folder = tmp_path / "r"
    command = [
        "run",
        str(tmp_path / "config.toml"),
        *options,
        "--clients",
        "1",
        "--out",
        str(folder),
    ]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert list(violations(folder / "synthetic.csv")) == []


def test_rows_linked_by_order_are_not_left_out(tmp_path: Path) -> None:
    by_order = SOURCES.replace('key = ["id"]\n', "")
    config = config_file(tmp_path, run='link = "order"', constraints=CONSTRAINTS + by_order)
    with pytest.raises(ConfigError, match="a row that is left out moves all later"):
        load_config(config)


@pytest.mark.slow
def test_measured_bins_have_the_zeros_of_their_constraints(tmp_path: Path) -> None:
    text = config_file(tmp_path).read_text()
    for bins in ("bins = 5", "bins = 7", "bins = 4"):
        text = text.replace(bins, 'bins = "private"')
    text += '[[constraint]]\nnever = "net > 90 and vat > 19.99"\nviolations = "repair"\n'
    (tmp_path / "config.toml").write_text(text)
    table_file(tmp_path)
    folder = tmp_path / "r"
    done = run(
        tmp_path, "--method", "distaim", "--clients", "3", "--rounds", "3", "--out", str(folder)
    )
    assert done.exit_code == 0, done.output
    assert list(violations(folder / "synthetic.csv")) == []
    audited = CliRunner().invoke(cli, ["audit", str(folder), "--json"])
    checks = {each["name"]: each for each in json.loads(audited.output)["checks"]}
    assert checks["table"]["status"] == checks["model"]["status"] == "pass", audited.output
