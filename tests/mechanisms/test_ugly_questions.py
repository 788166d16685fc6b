"""Questions and conditions on every ugly column of numbers go by the values that its rows have.

A model of the column alone answers; rows drawn of it, read as numbers, have to agree. Each figure is compared at five
standard deviations of the drawn rows: a false alarm in 10^6, of some hundred comparisons.
"""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mechanisms.conditional_rows import Wanted, conditional_rows
from mechanisms.domain import Domain, Integer, Real
from mechanisms.draft import draft_domain
from mechanisms.estimate_errors import Knowledge, MarginalError
from mechanisms.estimates import estimates
from mechanisms.model import Model
from mechanisms.question import parse_question, parse_where
from mechanisms.reading import read_text
from mechanisms.table import encode
from tests.mechanisms.ugly_columns import MARKS, NUMBER, SPELLINGS, table_of

ROWS, DRAWN, DEVIATIONS = 400, 2000, 5.0
NAMES = [name for name, spelling in SPELLINGS.items() if spelling.kind == NUMBER]
DECADES = [f"{10**exponent:.12g}" for exponent in np.random.default_rng(4).uniform(-30, 9, ROWS)]


def model_of(path: Path) -> tuple[Model, list[Integer | Real]]:
    """The distribution of a drafted table's columns, each by itself, and those of numbers."""
    domain = draft_domain(path).domain
    codes = encode(domain, read_text(path))
    columns = tuple(domain.columns)
    counts = tuple(
        np.bincount(codes[:, at], minlength=column.size).astype(np.float64)
        for at, column in enumerate(columns)
    )
    cliques = tuple((column.name,) for column in columns)
    model = Model(Domain(columns, domain.missing_values), cliques, (-1,) * len(columns), counts)
    return model, [column for column in columns if isinstance(column, Integer | Real)]


def numbers_of(model: Model, column: Integer | Real, where: str = "") -> np.ndarray:
    """The numbers in rows that are drawn, under a condition; marks and missing values are none."""
    wanted = Wanted(rows=DRAWN, where=parse_where(where)) if where else Wanted(rows=DRAWN)
    rows = pd.concat(conditional_rows(model, wanted, seed=1).parts)
    texts = [text for text in rows[column.name] if isinstance(text, str)]
    plain = [column.plain(text) for text in texts if text not in column.marks]
    return np.array([float(text) for text in plain if text])


def check_column(model: Model, column: Integer | Real) -> None:
    """Raises AssertionError unless conditions and figures are those of the drawn numbers."""
    found = numbers_of(model, column)
    knowledge = Knowledge(
        float(ROWS), {(c.name,): MarginalError(2.0, 0.01, c.size) for c in model.domain.columns}
    )

    def answer(text: str) -> float:
        (estimate,) = estimates(model, knowledge, parse_question(text))
        assert isinstance(estimate.value, float | int), estimate
        return float(estimate.value)

    name = f"`{column.name}`"
    deviation = float(found.std()) / math.sqrt(len(found))
    mean, error = float(found.mean()), DEVIATIONS * deviation
    assert answer(f"mean({name})") == pytest.approx(mean, rel=1e-9, abs=error)
    for level in (0.2, 0.5, 0.8):
        bound = answer(f"quantile({name}, {level})")
        error = DEVIATIONS * math.sqrt(level * (1 - level) / len(found)) + 1e-9
        # Of a number that many rows have, the quantile is that one.
        assert (found < bound).mean() - error <= level <= (found <= bound).mean() + error
    for bound in np.quantile(found, (0.1, 0.5, 0.9), method="nearest"):
        text = repr(float(bound))
        share = float((found >= bound).mean()) * len(found) / DRAWN
        error = DEVIATIONS * math.sqrt(max(share * (1 - share), 1e-4) / DRAWN) + 1e-9
        assert answer(f"share({name} >= {text})") == pytest.approx(share, abs=error)
        assert (numbers_of(model, column, f"{name} >= {text}") >= bound).all()
        below = found < bound
        if below.any():
            assert (numbers_of(model, column, f"{name} < {text}") < bound).all()


@pytest.mark.parametrize(
    ("place", "name"),
    [
        pytest.param(place, name, id=name, marks=[pytest.mark.slow] if place % 14 else [])
        for place, name in enumerate(NAMES)
    ],
)
def test_figures_of_ugly_columns_are_those_of_their_rows(
    place: int, name: str, tmp_path: Path
) -> None:
    of = table_of(name, [*MARKS][place % len(MARKS)], rows=ROWS, seed=place)
    path = tmp_path / "ugly.csv"
    path.write_bytes(of.content)
    model, columns = model_of(path)
    assert columns, model.domain
    for column in columns:
        check_column(model, column)


@pytest.mark.parametrize("sign", ["", "-"])
def test_figures_of_many_decades_are_those_of_their_rows(sign: str, tmp_path: Path) -> None:
    path = tmp_path / "ugly.csv"
    path.write_text("\n".join(["x,g", *(f"{sign}{text},a" for text in DECADES)]))
    model, columns = model_of(path)
    (column,) = columns
    assert isinstance(column, Real)
    assert column.digits is not None
    check_column(model, column)
