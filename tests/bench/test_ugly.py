"""Deliberately ugly tables: the real one survives every check, a bad synthesizer fails those that it should.

The checks' control is a synthesizer of equal bins, and a list of single faults, each with the check that finds it.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.networks import ROOT
from bench.quality.environment import COPULA, VARIABLE, ask
from bench.quality.forms import FORMS, number_of, plain
from bench.quality.methods import Budget
from bench.quality.pairs import pair_distance, permuted
from bench.quality.peers import given, peer_columns, written_back
from bench.quality.report import RUNS, markdown
from bench.quality.runs import Job, Record
from bench.quality.store import QualityEntry
from bench.quality.survival import CHECKS, survival
from bench.quality.tables import SHAPED, UNIFORM, load_table
from bench.quality.ugly import CLINIC, MARKS, NAMES, SHOP, ugly_table
from mechanisms.table import encode

ROWS = 3000


def lost(name: str, real: pd.DataFrame, drawn: pd.DataFrame) -> list[str]:
    return [check.name for check in survival(name, real, drawn) if not check.passed]


def equal_bins(name: str, real: pd.DataFrame, seed: int = 3) -> pd.DataFrame:
    """A bad synthesizer: numbers alike between the least and the greatest, with all their digits; codes alike."""
    rng, columns = np.random.default_rng(seed), {}
    for column in real.columns:
        if column in FORMS[name]:
            numbers = [number_of(name, column, cell) for cell in real[column]]
            drawn = rng.uniform(np.nanmin(numbers), np.nanmax(numbers), len(real))
            columns[column] = [repr(float(x)) for x in drawn]
        else:
            columns[column] = rng.choice(real[column].unique(), len(real)).tolist()
    return pd.DataFrame(columns, dtype=str)


@pytest.mark.parametrize("name", NAMES)
def test_ugly_table_is_the_same_for_a_seed_and_its_rows_hang_together(name: str) -> None:
    table = ugly_table(name, ROWS)
    assert table.equals(ugly_table(name, ROWS))
    assert not table.equals(ugly_table(name, ROWS, seed=1))
    numbers = frozenset(FORMS[name])
    read = plain(name, table)
    # Other rows drawn alike are nearer than the same rows without what joins their columns.
    half, rest = read[: ROWS // 2], read[ROWS // 2 :]
    assert pair_distance(half, rest, numbers) < pair_distance(half, permuted(rest, 1), numbers)


def test_ugly_tables_have_what_they_are_said_to_have() -> None:
    clinic, shop = (ugly_table(name, 10_000) for name in (CLINIC, SHOP))

    def share(cells: "pd.Series[str]", value: str) -> float:
        return float((cells == value).mean())

    assert share(shop["cost"], "0") == pytest.approx(0.6, abs=0.03)
    assert shop["cost"].nunique() > 3900
    assert share(clinic["closed"], "9999-12-31 00:00:00") == pytest.approx(0.02, abs=0.005)
    assert share(clinic["pressure"], "-99") == pytest.approx(0.02, abs=0.005)
    assert 0.02 < share(clinic["crp"], "<5") < 0.2
    assert 0.001 < float((pd.to_numeric(clinic["weight"]) > 1000).mean()) < 0.006
    assert clinic["diagnosis"].nunique() > 200
    assert set(shop["area"].str[0]) == {"0"}
    assert set(shop["price"].str[-3:]) == {".99", ".49"}
    assert share(shop["rating"], "") > share(shop["rating"], "n/a") > 0.02


@pytest.mark.parametrize("name", NAMES)
def test_survival_of_the_real_table_and_of_its_shuffled_columns_is_whole(name: str) -> None:
    table = ugly_table(name, ROWS)
    assert lost(name, table, table) == []
    assert lost(name, table, permuted(table, 4)) == []
    assert len(survival(name, table, table)) == len(CHECKS[name]) > 30


def test_survival_counts_a_column_that_is_left_out_as_lost() -> None:
    table = ugly_table(SHOP, ROWS)
    failed = lost(SHOP, table, table.drop(columns="bill"))
    assert failed == [name for name in CHECKS[SHOP] if name.startswith("bill: ")]


@pytest.mark.parametrize("name", NAMES)
def test_survival_of_equal_bins_is_poor(name: str) -> None:
    table = ugly_table(name, ROWS)
    failed = set(lost(name, table, equal_bins(name, table)))
    expected = {
        CLINIC: {
            "admitted: DD.MM.YYYY",
            "period: YYYYMM, no impossible month",
            "closed: midnight alone",
            "closed: 9999-12-31",
            "diagnosis: frequent codes",
            "crp: <5",
            "crp: 99th percentile",
            "pressure: -99",
            "weight: grams by mistake",
            "visits: whole, from 1",
            "arrived: HH:MM",
        },
        SHOP: {
            "cost: 0",
            "cost: distance of Kolmogorov",
            "amount: heap at hundreds",
            "income: median",
            "income: 99th percentile",
            "price: .99 or .49",
            "bill: $1,234.56",
            "change: +1.5%",
            "area: frequent codes",
            "rating: missing",
        },
    }
    assert expected[name] <= failed
    assert len(failed) > len(CHECKS[name]) / 2


FAULTS: tuple[tuple[str, str, Callable[[str], str], str], ...] = (
    (SHOP, "cost", lambda cell: "0.0" if cell == "0" else cell, "cost: 0"),
    (SHOP, "amount", lambda cell: str(int(cell) + 1), "amount: heap at hundreds"),
    (SHOP, "income", lambda cell: cell + "1", "income: two decimals"),
    (SHOP, "price", lambda cell: cell[:-2] + "50", "price: .99 or .49"),
    (SHOP, "bill", lambda cell: cell.replace(",", ""), "bill: $1,234.56"),
    (SHOP, "change", lambda cell: cell.replace("+", ""), "change: +1.5%"),
    (SHOP, "area", lambda cell: cell.lstrip("0"), "area: leading zero"),
    (SHOP, "area", lambda cell: "00" + cell[2:], "area: codes of the list"),
    (SHOP, "rating", lambda cell: cell or "70", "rating: missing"),
    (SHOP, "rating", lambda cell: "" if cell == "n/a" else cell, "rating: n/a"),
    (CLINIC, "admitted", lambda cell: "30.02" + cell[5:], "admitted: no impossible date"),
    (CLINIC, "period", lambda cell: cell[:4] + "13", "period: YYYYMM, no impossible month"),
    (CLINIC, "closed", lambda cell: cell[:-8] + "07:00:00", "closed: midnight alone"),
    (CLINIC, "closed", lambda cell: cell.replace("9999", "2021"), "closed: 9999-12-31"),
    (CLINIC, "crp", lambda cell: "2.5" if cell == "<5" else cell, "crp: <5"),
    (CLINIC, "pressure", lambda cell: cell.replace("-99", "120"), "pressure: -99"),
    (
        CLINIC,
        "weight",
        lambda cell: "70.0" if len(cell) > 5 else cell,
        "weight: grams by mistake",
    ),
    (CLINIC, "visits", lambda cell: "2" if cell == "1" else cell, "visits: 1"),
    (CLINIC, "diagnosis", lambda cell: cell[:3], "diagnosis: codes of the list"),
    (CLINIC, "arrived", lambda cell: cell.lstrip("0"), "arrived: HH:MM"),
)


@pytest.mark.parametrize(
    ("name", "column", "fault", "check"),
    FAULTS,
    ids=[f"{fault[0]}, {fault[3]}" for fault in FAULTS],
)
def test_survival_finds_a_single_fault(
    name: str, column: str, fault: Callable[[str], str], check: str
) -> None:
    table = ugly_table(name, ROWS)
    failed = lost(name, table, table.assign(**{column: table[column].map(fault)}))
    assert check in failed
    assert all(each.startswith(f"{column}: ") for each in failed)


@pytest.mark.parametrize("name", NAMES)
def test_forms_write_what_they_read(name: str) -> None:
    table = ugly_table(name, ROWS)
    for column, form in FORMS[name].items():
        for cell in set(table[column]) - {"", *MARKS[name].get(column, ())}:
            assert form.write(form.read(cell)) == cell


def test_load_table_has_an_ugly_table_in_every_description_and_reads_it_for_scores() -> None:
    for name in NAMES:
        table = load_table(name, ROWS)
        assert (len(table.train), len(table.test)) == (2700, 300)
        for kind in (UNIFORM, SHAPED):
            encode(table.domains[kind], table.train)
        assert table.numbers == set(FORMS[name])
        read = table.plain(table.train)
        for column in table.numbers:
            assert (pd.to_numeric(read[column]).notna() == (read[column] != "")).all()


@pytest.mark.parametrize("name", NAMES)
def test_peers_get_numbers_and_what_they_draw_is_written_as_it_was(name: str) -> None:
    table = load_table(name, ROWS)
    columns, frame = peer_columns(table), given(table)
    assert [column["name"] for column in columns] == list(frame.columns)
    for column in columns:
        if "low" in column:
            known = pd.to_numeric(frame[str(column["name"])]).dropna()
            assert known.between(column["low"], column["high"]).all()
    back = written_back(table, frame)
    # Fifteen digits of a cost go out, all others come back.
    same = [column for column in table.train if column != "cost"]
    assert back[same].equals(table.train[same].reset_index(drop=True))
    assert lost(name, table.train, back) == []


def test_page_and_file_say_what_was_lost(tmp_path: Path) -> None:
    def entry(method: str, repeat: int, *names: str, survived: float) -> QualityEntry:
        job = Job(SHOP, method, UNIFORM, 1000, repeat, Budget())
        record = Record(shapes=1.0, survived=survived, lost=names, scorer="stand-in 1")
        return QualityEntry(job, record, "0" * 7, "2026-01-01")

    entries = [
        entry("real", 0, survived=1.0),
        entry("sdv-copula", 0, "cost: 0", survived=0.5),
        entry("standard", 0, survived=1.0),
        entry("standard", 1, "price: .99", survived=0.9),
    ]
    RUNS.add(tmp_path, entries)
    assert sorted(map(repr, RUNS.read(tmp_path))) == sorted(map(repr, entries))
    page = markdown(entries)
    assert "### What survives" in page
    assert "| ugly-shop | 100% | 95% ± 7% | 50% |" in page
    assert "| check | real | standard, uniform | sdv-copula |" in page
    assert "| cost: 0 |  |  | 1 of 1 |" in page
    assert "| price: .99 |  | 1 of 2 |  |" in page


def test_key_of_what_is_not_private_has_no_epsilon() -> None:
    keys = {Job(SHOP, "sdv-copula", UNIFORM, 100, 0, Budget(epsilon)).key for epsilon in (1, 4)}
    assert len(keys) == 1


def test_copula_asks_sdv(tmp_path: Path) -> None:
    python = Path(os.environ.get(VARIABLE, ROOT / ".venv-quality" / "bin" / "python"))
    if not python.exists() or subprocess.run([python, "-c", "import rdt"], check=False).returncode:
        pytest.skip("no environment with SDV; `make bench-quality` makes one")
    table = load_table(SHOP, ROWS)
    train, out = tmp_path / "train.csv", tmp_path / "out.csv"
    given(table).to_csv(train, index=False)
    request = {
        "method": "copula",
        "train": str(train),
        "out": str(out),
        "columns": peer_columns(table),
    }
    answer = ask(COPULA, request, limit_s=120)
    assert str(answer["synthesizer"]).startswith("sdv ")
    drawn = written_back(table, pd.read_csv(out, dtype=str, keep_default_na=False))
    assert list(drawn.columns) == list(table.train.columns)
    assert len(drawn) == len(table.train)
    assert "bill: $1,234.56" not in lost(SHOP, table.train, drawn)
