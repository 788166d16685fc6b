"""Recoding of rows on shares: a column's fine code becomes that of the coarse cell that it lies in.

Secret: rows. Public: the tables of ``Recoding``, and the number of rows. Source: own; one-hots and tables of `lookup`.
"""

from collections.abc import Iterator

from protocols.bitslice import words_for
from protocols.boolean import and_all
from protocols.context import Context
from protocols.lookup import PublicTable, one_hot
from protocols.ring import BITS
from protocols.row_layout import Recoding
from protocols.row_plan import SEGMENT_ROWS
from protocols.shares import Share, concatenate

_WORD = 64


async def recode(ctx: Context, rows_bsh: Share, rows: int, recoding: Recoding) -> Share:
    """Returns the same rows with coarse codes; a row whose fine code names no category is absent.

    Shapes: (fine.bits, words_for(rows)) -> (coarse.bits, words_for(rows)); cells beyond ``rows`` are zeros and stay so.
    Leaks: none.
    Rounds: for each 32,704 rows, those of ``one_hot`` for each column, and ``and_all`` where one is partial.
    Communication: a bit a row for each entry of the columns' one-hots but their edges, and ``and_all``.
    Raises: ValueError where the share has another shape; ChannelError, ProtocolViolation.
    Source: own. The one-hot of a coarse cell is the XOR of the fine one-hot's bits in it, so that reading is local.
    """
    if rows_bsh.ring is not BITS or rows_bsh.shape != (recoding.fine.bits, words_for(rows)):
        raise ValueError(f"{rows_bsh!r} is not {rows} rows of {recoding.fine.bits} bits")
    parts = [await _recoded(ctx, rows_bsh[:, words], recoding) for words in _segments(rows)]
    if len(parts) == 1:
        return parts[0]
    return concatenate(*(part.transposed() for part in parts)).transposed()


def _segments(rows: int) -> Iterator[slice]:
    """Yields the words of so many rows at once; an empty part where there are none."""
    step = SEGMENT_ROWS // _WORD
    return (slice(start, start + step) for start in range(0, max(1, words_for(rows)), step))


async def _recoded(ctx: Context, rows_bsh: Share, recoding: Recoding) -> Share:
    fine, coarse = recoding.fine, recoding.coarse
    named, codes = [rows_bsh[:1]], dict[int, Share]()
    for column in recoding.columns:
        start, table = fine.starts[column], recoding.tables[column]
        hot_bsh = await one_hot(ctx, rows_bsh[start : start + fine.widths[column]])
        # Entries of no category read 0, in the code and in the bit that says that a category is named.
        words = [(code, 1) for code in table] + [(0, 0)] * (hot_bsh.shape[0] - len(table))
        read = PublicTable.of(words, max(1, coarse.widths[column])).read(hot_bsh)
        codes[column] = read[: coarse.widths[column], 0]
        if recoding.is_partial(column):
            named.append(read[:1, 1])
    present = named[0]
    if len(named) > 1:
        present = (await and_all(ctx, concatenate(*named))).reshape(1, -1)
    kept = [
        codes.get(column, rows_bsh[start : start + fine.widths[column]])
        for column, start in enumerate(fine.starts)
    ]
    return concatenate(present, *kept)
