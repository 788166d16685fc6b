"""The distance of pairs: 0 of a table and itself, that of what joins columns where they are shuffled."""

import numpy as np
import pandas as pd
import pytest

from bench.quality.pairs import pair_distance, permuted


def joined(rows: int, seed: int) -> pd.DataFrame:
    """Two columns that say the same and one of its own, all cells text."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 10, rows)
    return pd.DataFrame(
        {
            "number": numbers.astype(str),
            "word": np.array(list("abcdefghij"))[numbers],
            "other": np.array(["x", "y"])[rng.integers(0, 2, rows)],
        }
    )


def test_pair_distance_is_nothing_of_a_table_and_itself() -> None:
    table = joined(500, 1)
    assert pair_distance(table, table, frozenset({"number"})) == 0


def test_pair_distance_sees_what_shuffled_columns_have_lost() -> None:
    """Ten equal pairs become a hundred: nine tenths of the rows are elsewhere, in one of three pairs of columns."""
    table = joined(20_000, 2)
    shuffled = permuted(table, 3)
    for name in table.columns:
        assert sorted(shuffled[name]) == sorted(table[name])
    found = pair_distance(table, shuffled, frozenset({"number"}))
    assert found == pytest.approx(0.9 / 3, abs=0.02)
    # A control: another draw of the same is near.
    assert pair_distance(table, joined(20_000, 4), frozenset({"number"})) < 0.03


def test_pair_distance_goes_by_values_and_not_by_how_they_are_written() -> None:
    table = joined(1_000, 5)
    again = table.assign(number=table["number"] + ".0")
    assert pair_distance(table, again, frozenset({"number"})) == 0
    assert pair_distance(table, again, frozenset()) > 0.5


def test_pair_distance_counts_missing_and_unknown_values_apart() -> None:
    table = joined(1_000, 6)
    lost = table.assign(number="", word="unheard")
    assert pair_distance(table, lost, frozenset({"number"})) == pytest.approx(1, abs=0.01)


def test_pair_distance_refuses_tables_without_pairs() -> None:
    with pytest.raises(ValueError, match="pairs"):
        pair_distance(joined(3, 1)[["word"]], joined(3, 1)[["word"]], frozenset())
    with pytest.raises(ValueError, match="pairs"):
        pair_distance(joined(3, 1), joined(3, 1)[:0], frozenset())
