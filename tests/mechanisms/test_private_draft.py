"""Drafts without a value of the table: what differs between two tables of the same kind is not in them."""

import io
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mechanisms.columns import Moment
from mechanisms.draft import draft_domain
from mechanisms.errors import DataError
from mechanisms.origins import counted
from mechanisms.private_draft import draft_with_private_numbers, private_draft
from mechanisms.reading import read_table
from mechanisms.table import encode
from parties.cli.main import cli
from parties.config import load_config
from parties.config.provenance import check_confirmed
from parties.foundation.errors import ConfigError
from parties.local.assemble import finish_trial
from parties.local.methods import open_method_folder, run_method
from parties.local.request import TrialRequest, load_trial
from parties.mpc.planning.draft_sizes import draft_text_with_upload_sizes
from parties.observability.events import Progress, TextLines
from tests.mechanisms.office_columns import OFFICE

ROWS = 3000


def stays(seed: int, *, year: int = 2019, cost: float = 7.0, age: float = 55.0) -> pd.DataFrame:
    """Stays with ugly columns: full-precision costs with zeros, ends at 9999-12-31, codes, times, German dates."""
    rng = np.random.default_rng(seed)
    admitted = pd.to_datetime(f"{year}-01-01") + pd.to_timedelta(rng.integers(0, 700, ROWS), "D")
    end = (
        (admitted + pd.to_timedelta(rng.integers(0, 30, ROWS), "D")).strftime("%Y-%m-%d").to_numpy()
    )
    end = np.where(rng.random(ROWS) < 0.05, "9999-12-31", end)
    costs = np.where(rng.random(ROWS) < 0.6, 0.0, np.exp(rng.normal(cost, 1.2, ROWS)))
    minutes = rng.integers(0, 24 * 60, ROWS)
    ages = [str(int(n)) for n in np.clip(rng.normal(age, 18, ROWS), 0, 120)]
    ages[7] = ""
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], ROWS),
            "age": ages,
            "cost": [repr(float(value)) for value in costs],
            "admitted": admitted.strftime("%d.%m.%Y"),
            "end": end,
            "at": [f"{m // 60:02d}:{m % 60:02d}" for m in minutes],
            "since": [str(int(t.timestamp() * 1000)) for t in admitted],
            "born": admitted.strftime("%d-%b-%y"),
            "code": rng.choice(["A00", "B11", "C22"], ROWS),
        }
    )


def draft_text_of(table: pd.DataFrame, path: Path) -> str:
    table.to_csv(path, index=False)
    return draft_text_with_upload_sizes("stays", private_draft(draft_domain(path)))[0]


def test_two_tables_without_a_value_in_common_have_the_same_draft(tmp_path: Path) -> None:
    one = draft_text_of(stays(1), tmp_path / "one.csv")
    other = stays(2, year=1981, cost=3.0, age=20.0)
    other["sex"] = other["sex"].map({"f": "x", "m": "y"})
    other["code"] = other["code"].str.lower()
    assert draft_text_of(other, tmp_path / "other.csv") == one
    # The control: the usual draft tells them apart.
    usual = [
        draft_text_with_upload_sizes("stays", draft_domain(tmp_path / name))[0]
        for name in ("one.csv", "other.csv")
    ]
    assert usual[0] != usual[1]


def test_a_private_draft_is_public_takes_the_table_and_names_what_is_to_be_listed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "stays.csv"
    stays(1).to_csv(path, index=False)
    shown = CliRunner().invoke(
        cli, ["data", "draft", str(path), "--private", "--out", str(tmp_path / "d.toml")]
    )
    assert shown.exit_code == 0, shown.output
    assert "To be listed from a code book" in shown.output
    config = load_config(tmp_path / "d.toml")
    assert "table" not in counted(config.domain)
    assert "unsaid" not in counted(config.domain)
    assert config.domain.names == ("age", "cost", "admitted", "end", "at", "since", "born")
    assert set(config.domain.ignore) == {"sex", "code"}
    assert encode(config.domain, read_table(path), ignore_extra=True).shape == (ROWS, 7)
    document = tomllib.loads((tmp_path / "d.toml").read_text())
    free = [table for table in document["column"] if table.get("values") == "private"]
    assert [table["name"] for table in free] == ["age", "cost", "admitted", "end", "since", "born"]
    allowed = {"name", "kind", "values", "coarse", "missing", "decimals", "unit", "format"}
    assert not {key for table in free for key in table} - allowed
    # Times of day are public, and the hours of a day are their bounds.
    (at,) = [table for table in document["column"] if table not in free]
    assert (at["name"], at["low"], at["high"], at["bins"]) == ("at", 0, 24 * 60 - 1, "private")
    assert at["from"] == "public: the hours of a day"


def test_the_terminal_names_columns_with_texts_among_numbers(tmp_path: Path) -> None:
    table = stays(1)
    table.loc[::9, "age"] = "refused"
    path = tmp_path / "stays.csv"
    table.to_csv(path, index=False)
    shown = CliRunner().invoke(
        cli, ["data", "draft", str(path), "--private", "--out", str(tmp_path / "d.toml")]
    )
    assert "to be listed in marks:\n  age\n" in shown.output
    assert "refused" not in (tmp_path / "d.toml").read_text().replace('such as "refused"', "")


def test_the_document_of_a_private_draft_tells_nothing_of_the_table(tmp_path: Path) -> None:
    documents = []
    for seed, rows in ((1, 3000), (2, 2900)):
        path = tmp_path / "stays.csv"
        table = stays(seed, year=2019 - 30 * (seed - 1))[:rows]
        # An identifier is left out, and the usual draft says how many different values it has.
        table["stay_id"] = [str(917 * i % 99_991) for i in range(rows)]
        table.to_csv(path, index=False)
        shown = CliRunner().invoke(cli, ["data", "draft", str(path), "--private", "--json"])
        assert shown.exit_code == 0, shown.output
        documents.append(shown.output)
    assert documents[0] == documents[1]
    assert "stay_id" in documents[0]
    # The control: the usual document counts them.
    usual = CliRunner().invoke(cli, ["data", "draft", str(tmp_path / "stays.csv"), "--json"]).output
    assert "2900" in usual


def numbers_text_of(table: pd.DataFrame, path: Path) -> str:
    table.to_csv(path, index=False)
    draft = draft_with_private_numbers(draft_domain(path))
    return draft_text_with_upload_sizes("stays", draft)[0]


def marked(table: pd.DataFrame) -> pd.DataFrame:
    """The table with texts among numbers, and numbers that are split out of cells."""
    table.loc[::9, "age"] = "refused"
    rng = np.random.default_rng(len(table))
    table["pressure"] = [f"{a}/{b}" for a, b in rng.integers(50, 180, (len(table), 2))]
    return table


def test_two_tables_that_differ_in_numbers_alone_have_the_same_draft_with_private_numbers(
    tmp_path: Path,
) -> None:
    one, other = marked(stays(1)), marked(stays(2, year=1981, cost=3.0, age=20.0))
    other[["sex", "code"]] = one[["sex", "code"]]
    # Numbers that the usual draft asks about in one of the tables: times of day, and times since 1970.
    for name, asked, plain in (("hour", 15, 77), ("since", 1_545_004_800, 1_545_004_801)):
        steps = range(len(one))
        one[name] = [
            str(asked + (100 * (i % 9) + i % 40 if name == "hour" else 60 * i)) for i in steps
        ]
        other[name] = [str(plain + 61 * i) for i in steps]
    one.to_csv(tmp_path / "asked.csv", index=False)
    assert len(draft_domain(tmp_path / "asked.csv").questions) >= 2
    text = numbers_text_of(one, tmp_path / "one.csv")
    assert numbers_text_of(other, tmp_path / "other.csv") == text
    # Categories are the table's.
    other["sex"] = other["sex"].map({"f": "x", "m": "y"})
    assert numbers_text_of(other, tmp_path / "third.csv") != text


def test_a_draft_with_private_numbers_keeps_categories_that_a_study_with_others_refuses(
    tmp_path: Path,
) -> None:
    path = tmp_path / "stays.csv"
    marked(stays(1)).assign(again=["0", "1"] * (ROWS // 2)).to_csv(path, index=False)
    command = ["data", "draft", str(path), "--private-numbers", "--out", str(tmp_path / "d.toml")]
    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 0, shown.output
    # Two sexes, three codes, a mark, and the bounds of few numbers.
    assert "Values read from the table in the clear: 8. No epsilon" in shown.output
    config = load_config(tmp_path / "d.toml")
    assert set(config.domain.names) == {*stays(1).columns, "pressure 1", "pressure 2", "again"}
    assert counted(config.domain)["table"] == 8
    with pytest.raises(ConfigError, match=r"'sex' \(categories.*'age' \(marks\)") as refused:
        check_confirmed(config)
    assert "cost" not in str(refused.value)
    codes = encode(config.domain, read_table(path), ignore_extra=True)
    assert codes.shape == (ROWS, 12)


def test_one_option_says_what_a_draft_reads(tmp_path: Path) -> None:
    path = tmp_path / "stays.csv"
    stays(1).to_csv(path, index=False)
    both = CliRunner().invoke(cli, ["data", "draft", str(path), "--private", "--private-numbers"])
    assert both.exit_code == 2
    assert "expected one of them" in both.output
    for option, said in ((), "Values read"), (("--private",), "No value of the table"):
        shown = CliRunner().invoke(cli, ["data", "draft", str(path), *option])
        assert said in shown.stderr
        assert said not in shown.stdout.replace("# No value of the table", "")


def test_private_bins_leave_no_date_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "stays.csv"
    stays(1).to_csv(path, index=False)
    columns = {c.name: c for c in draft_domain(path, private_bins=True).domain.columns}
    for name in ("admitted", "end", "born"):
        column = columns[name]
        assert isinstance(column, Moment)
        assert column.private is not None
        assert not column.edges + column.atoms + column.within
    assert (columns["end"].low, columns["end"].high) == ("0001-01-01", "9999-12-31")


def test_a_table_of_categories_alone_has_no_private_draft(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("sex\n" + "f\nm\n" * 20)
    with pytest.raises(DataError, match="list them from a code book"):
        private_draft(draft_domain(path))


@pytest.mark.slow
async def test_a_run_finds_bounds_and_heaps_by_noisy_counts_alone(tmp_path: Path) -> None:
    table, path, study = stays(3), tmp_path / "stays.csv", tmp_path / "stays.toml"
    study.write_text(draft_text_of(table, path))
    request = TrialRequest("aim", "stays", None, "iid", None, 0)
    config = load_config(study).override({"run.epsilon": 2.0})
    trial = load_trial(config, read_table(path), request, source=str(path))
    folder = open_method_folder(trial, tmp_path / "run")
    document = finish_trial(
        trial, folder, await run_method(trial, folder, Progress(TextLines(stream=io.StringIO())))
    )
    assert document["about"]["provenance"]["private"] == 7  # type: ignore[index]
    drawn = pd.read_csv(folder.path / "synthetic.csv", dtype=str, keep_default_na=False)
    cost, real = (pd.to_numeric(each["cost"], errors="coerce") for each in (drawn, table))
    assert (cost == 0).mean() == pytest.approx((real == 0).mean(), abs=0.03)
    assert cost.quantile(0.75) == pytest.approx(real.quantile(0.75), rel=0.3)
    assert cost.quantile(0.95) == pytest.approx(real.quantile(0.95), rel=0.5)
    age, real_age = (pd.to_numeric(each["age"], errors="coerce") for each in (drawn, table))
    assert age.median() == pytest.approx(real_age.median(), abs=4)
    assert ((age > -30) & (age < 200)).mean() > 0.97
    assert (drawn["end"] == "9999-12-31").mean() == pytest.approx(0.05, abs=0.03)
    near = drawn["admitted"].str[-4:].isin(["2018", "2019", "2020", "2021"])
    assert near.mean() > 0.95
    assert drawn["at"].str.fullmatch(r"([01]\d|2[0-3]):[0-5]\d|").all()


def test_a_private_draft_bounds_years_of_two_digits_by_their_century(tmp_path: Path) -> None:
    path, rng = tmp_path / "t.csv", np.random.default_rng(1)
    path.write_text("\n".join(["born", *OFFICE["births"].write(rng, 300)]))
    (column,) = private_draft(draft_domain(path)).domain.columns
    assert isinstance(column, Moment)
    assert (column.low, column.high, column.form) == ("1920-01-01", "2019-12-31", "%d.%m.%y[1920]")
