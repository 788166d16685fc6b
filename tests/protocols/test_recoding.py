"""Rows with other codes on shares, against the same in the clear; and what that sends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import costs
from protocols.context import Context
from protocols.recoding import recode
from protocols.row_layout import Recoding, RowLayout
from protocols.rows import SharedRows, shared_rows
from protocols.shares import Share
from tests.protocols.local import Outcome, reconstruct, run_parties
from tests.protocols.test_rows import bodies_of

RECODING = Recoding(
    RowLayout((5, 3, 64)),
    RowLayout((2, 3, 3)),
    {0: (0, 0, 1, 1, 1), 2: tuple(min(2, code // 20) for code in range(64))},
)


def recoded(recoding: Recoding, capacity: int, raw: np.ndarray) -> Outcome:
    parts = bodies_of(raw, 7)

    async def program(ctx: Context) -> Share:
        held = [SharedRows(capacity, parts[ctx.pid], parts[ctx.next_pid])]
        return await recode(ctx, shared_rows(ctx.pid, recoding.fine, held), capacity, recoding)

    return run_parties(program)


@given(st.integers(0, 150), st.integers(0, 2**32 - 1))
def test_recode_gives_coarse_codes_and_drops_rows_of_no_category(rows: int, seed: int) -> None:
    """Bodies are random bits: codes that are categories or none, rows that are there or not."""
    fine, coarse = RECODING.fine, RECODING.coarse
    raw = np.random.default_rng(seed).integers(0, 256, fine.body_size(rows), np.uint8)
    codes, present = fine.unpack(raw, rows)
    known = present & (codes[:, 0] < 5)
    planes = reconstruct(recoded(RECODING, rows, raw).results)
    bits = np.unpackbits(planes.view(np.uint8), axis=1, bitorder="little")[:, :rows]
    assert planes.shape[0] == coarse.bits
    np.testing.assert_array_equal(bits[0].astype(bool), known)
    for column, (start, width) in enumerate(zip(coarse.starts, coarse.widths, strict=True)):
        found = sum(bits[start + bit].astype(int) << bit for bit in range(width))
        table = np.array(RECODING.tables.get(column, range(4)))
        expected = table[np.minimum(codes[:, column], len(table) - 1)]
        np.testing.assert_array_equal(found[known], expected[known])


@pytest.mark.parametrize("rows", [1, 64, 200, 33_000])
def test_recode_sends_what_its_formula_says_and_opens_nothing(rows: int) -> None:
    codes = np.zeros((rows, 3), np.int32)
    outcome = recoded(RECODING, rows, RECODING.fine.pack(codes, rows))
    cost = costs.recode(RECODING, rows)
    assert outcome.rounds == cost.rounds
    assert tuple(outcome.sent_bytes) == cost.sent
    assert not any(party.opened_values for party in outcome.parties)
    planes = reconstruct(outcome.results)
    assert int(np.bitwise_count(planes[0]).sum()) == rows
    assert not planes[1:].any()


def test_recoding_refuses_a_table_that_does_not_fit() -> None:
    for tables in ({0: (0, 1)}, {0: (0, 0, 1, 1, 2)}, {}):
        with pytest.raises(ValueError, match="column 0 has no table"):
            Recoding(RowLayout((5, 3)), RowLayout((2, 3)), tables)
