"""Known answers of packing rows and of counting them: tests/vectors/rows.json, in the manner of ``test_vectors``.

A good vector is a whole run: tables with capacities become bodies, bodies in three components become counts, which are
opened. ``python -m tests.protocols.test_row_vectors`` writes the file anew, after a change of the wire format.
"""

import json
from typing import Any

import numpy as np
import pytest

from protocols import base, rows
from protocols.context import Context
from protocols.products import NumpyProducts
from protocols.ring import R32
from protocols.row_layout import RowLayout
from protocols.row_plan import plan_counting
from protocols.shares import Share
from tests.protocols.local import components
from tests.protocols.played import Program, play
from tests.protocols.test_vectors import (
    FOLDER,
    OUTCOME,
    SETTING,
    Row,
    _messages,
    _refused,
    _setting,
    check_bad,
    named,
    outcome,
    vectors,
)

PRODUCTS = NumpyProducts(1)
ROWS = vectors("rows")
COUNTING = {"sizes", "queries", "capacities"}
OPENING = "open"


def counting(case: dict[str, Any]) -> Program:
    async def program(ctx: Context, bodies_sh: Share) -> list[int]:
        queries = tuple(tuple(query) for query in case["queries"])
        plan = plan_counting(tuple(case["sizes"]), queries)
        owners, start = [], 0
        for capacity in case["capacities"]:
            stop = start + plan.layout.body_size(capacity)
            own, next_ = (
                part[start:stop].astype(np.uint8) for part in (bodies_sh.own, bodies_sh.next)
            )
            owners.append(rows.SharedRows(capacity, own, next_))
            start = stop
        rows_bsh = rows.shared_rows(ctx.pid, plan.layout, owners)
        counts = await rows.count_rows(
            ctx, rows_bsh, sum(case["capacities"]), plan, products=PRODUCTS
        )
        with ctx.step(OPENING) as c:
            return (await base.open_value(c, counts, "counts")).tolist()

    return program


def test_row_vectors_hold_good_and_bad_ones_under_different_names() -> None:
    for cases in ROWS.values():
        assert len({case["name"] for case in cases}) == len(cases) > 0


@pytest.mark.parametrize("case", ROWS["good"], ids=named)
def test_row_vectors_good(case: dict[str, Any]) -> None:
    assert case.keys() == {"name", "tables", "bodies", "counts"} | SETTING | COUNTING | OUTCOME
    layout = RowLayout(tuple(case["sizes"]))
    for table, capacity, body in zip(
        case["tables"], case["capacities"], case["bodies"], strict=True
    ):
        codes = np.array(table, np.int32).reshape(-1, len(case["sizes"]))
        assert layout.pack(codes, capacity).tobytes().hex() == body
    parts = [np.array(part, np.uint8) for part in case["components"]]
    assert (parts[0] ^ parts[1] ^ parts[2]).tobytes().hex() == "".join(case["bodies"])
    played = play(case, counting(case))
    assert played.result == [case["counts"]] * 3
    assert outcome(played) == {key: case[key] for key in OUTCOME}


@pytest.mark.parametrize("case", ROWS["bad"], ids=named)
def test_row_vectors_bad(case: dict[str, Any]) -> None:
    good = next(g for g in ROWS["good"] if g["name"] == case["of"])
    check_bad(case, good, counting)


# Writing the file anew.


def _case(
    name: str,
    sizes: list[int],
    queries: list[list[int]],
    capacities: list[int],
    tables: list[list[list[int]]],
) -> dict[str, Any]:
    layout = RowLayout(tuple(sizes))
    bodies = [
        layout.pack(np.array(table, np.int32).reshape(-1, len(sizes)), capacity)
        for table, capacity in zip(tables, capacities, strict=True)
    ]
    whole = np.concatenate([np.zeros(0, np.uint8), *bodies])
    masks = [part.astype(np.uint8) for part in components(R32, np.arange(2 * whole.size))[:1]]
    first, second = masks[0].reshape(2, -1)
    case = _setting(name, []) | {
        "components": [first.tolist(), second.tolist(), (whole ^ first ^ second).tolist()],
        "sizes": sizes,
        "queries": queries,
        "capacities": capacities,
        "tables": tables,
        "bodies": [body.tobytes().hex() for body in bodies],
    }
    played = play(case, counting(case))
    assert not played.failed, played.failed
    return case | {"counts": played.result[0]} | outcome(played)


def _rows() -> dict[str, Any]:
    tables = [[[1, 2, 0, 4], [0, 0, 0, 0], [1, 2, 0, 4]], [], [[0, 1, 0, 3]]]
    good = [
        _case("three owners", [2, 3, 1, 5], [[0, 1, 3], [2]], [3, 2, 4], tables),
        _case("no rows", [3, 2], [[0, 1]], [], []),
        _case("absent rows only", [4], [[0]], [65], [[]]),
        _case("one column of 100", [100], [[0]], [3], [[[99], [0], [64]]]),
    ]
    messages: list[Row] = [
        ("a count flipped", OPENING, (0, 1), -1, "flipped"),
        ("the digest of the counts flipped", OPENING, (1, 0), -1, "flipped"),
        ("the last sum of the lift flipped", "count.cells", (1, 0), -1, "flipped"),
        ("a bit of a valid row short", "count.rows", (1, 0), -1, "short"),
        ("an entry of a factor more", "count.factors", (2, 1), 1, "longer"),
        ("twice the counts short", "count.factors", (0, 2), -1, "short"),
    ]
    bad = _messages(good[0], counting, OPENING, messages)
    of = "three owners"
    bad += [
        _refused("bodies of other capacities", of, "", capacities=[3, 2, 3, 1, 40]),
        _refused("a query of no column", of, "", queries=[[]]),
        _refused("a query of a column that is not there", of, "", queries=[[0, 4]]),
        _refused("a query of one column twice", of, "", queries=[[1, 1]]),
        _refused("nothing to count", of, "", queries=[]),
        _refused("a column of no category", of, "", sizes=[2, 0, 1, 5]),
        _refused("too many cells", of, "", sizes=[1 << 20, 1 << 20, 1, 5]),
    ]
    return {"good": good, "bad": bad}


if __name__ == "__main__":
    path = FOLDER / "rows.json"
    path.write_text(json.dumps(_rows(), indent=1) + "\n", encoding="utf-8")
