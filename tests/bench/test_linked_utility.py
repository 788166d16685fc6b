"""Benchmark of linked tables: how a table is split by columns, and what the page says."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.datasets import Dataset
from bench.linked_utility import Result, config_of, link_utility, page, split_by_columns
from mechanisms.domain import Domain, Integer
from parties.local.request import AIM, DISTAIM, TrialRequest, load_linked_trial
from parties.local.sources import LocatedTable

SIZES = (5, 7, 3, 4)


def dataset(rows: int = 200) -> Dataset:
    draw = np.random.default_rng(1)
    codes = draw.integers(0, SIZES, (rows, len(SIZES))).astype(np.int32)
    domain = Domain(tuple(Integer(f"c{i}", 0, n - 1, n) for i, n in enumerate(SIZES)))
    return Dataset("small", domain, codes[:150], codes[150:], None)


@pytest.mark.parametrize(("overlap", "joined"), [(1.0, 80), (0.5, 40), (0.25, 20)])
def test_split_by_columns_joins_to_rows_of_the_table(overlap: float, joined: int) -> None:
    """Every joined row is one of the table's, and as many as the overlap says are joined."""
    table = dataset()
    tables = split_by_columns(table, 80, overlap, seed=3)
    config = config_of(table, rows=80, epsilon=1.0, rounds=2, degree=2, queries=4)
    located = {name: LocatedTable(part, name) for name, part in tables.items()}
    trial = load_linked_trial(config, located, TrialRequest(AIM, "small", 2, "iid", None, 1))
    assert len(trial.codes) == joined
    known = {tuple(row) for row in np.concatenate([table.train, table.test]).tolist()}
    assert {tuple(row) for row in trial.codes.tolist()} <= known
    assert tables["left"].columns["number"] != tables["right"].columns["number"]


def test_split_by_columns_refuses_a_table_with_too_few_people() -> None:
    with pytest.raises(ValueError, match="has 200 rows; 225 are needed"):
        split_by_columns(dataset(), 150, 0.5, seed=1)


def test_page_has_both_methods_side_by_side() -> None:
    results = [
        Result("small", 0.8, method, repeat, 100, 80, error, 2.0, 3.0)
        for method, error in ((DISTAIM, 0.25), (AIM, 0.24))
        for repeat in (1, 2)
    ]
    (line,) = page(results).splitlines()[2:]
    assert line.startswith("| small | 80% | 80 of 100 | 0.250 ± 0.000 | 0.240 ± 0.000 |")


def test_link_utility_says_which_table_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCRET_DATA_DIR", str(tmp_path))
    (tmp_path / "magic.csv").write_text("a\n1\n", encoding="utf-8")
    told = CliRunner().invoke(link_utility, ["--dataset", "magic"])
    assert told.exit_code == 1
    assert "has no column" in told.stderr
