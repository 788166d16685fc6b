"""Joins on shares: rows of several sources that have one key become rows of the columns of all of them.

``join`` is for sources linked by a key, ``align`` for sources whose rows are in one order already. All rows go into one
list, which is shuffled in secret (`shuffle`) and sorted by presence, key and number (`sort`); a run of equal keys then
has the rows of a person, source after source. Values travel within a run to the rows of the *main* source; these go
back to their own places, so that exactly they come out: a candidate for each row of the main source, present or not.

Rule of the join (README section 8). A source has a public number m of rows that a key may have there, 1 in all sources
but one at most. A row counts if its key has no more rows than that in its source; of a key that has more, none does. A
row of the main source is joined if it counts and every other source has a row of its key that counts. So of two tables
of which one has some more rows of one key, the joined rows of the one are among those of the other, or one has none: at
most m joined rows change, whatever owners send. Keys of absent rows match nothing.

Secret: rows, their matches and the number of matches. Public: sizes, and the order of the shuffled rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from protocols.base import multiply
from protocols.bitslice import words_for
from protocols.boolean import and_all
from protocols.context import Context
from protocols.link_plan import Linking, doublings
from protocols.ring import BITS
from protocols.row_words import shifted, to_planes_of, to_words
from protocols.shares import Share, concatenate
from protocols.shuffle import Passes, shuffle, unshuffle
from protocols.sort import sort_order
from protocols.steps import LINK_ALIGN, LINK_JOIN, LINK_RETURN, LINK_SHUFFLE, LINK_SORT


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SourceRows:
    """Rows of one source, of all its owners: presence, the key's planes, the columns' as ``RowLayout`` has them.

    ``rows_bsh`` has shape (1 + key_bits + columns' bits, words_for(rows)) with zeros beyond ``rows``; absent ones count
    among these. ``per_person`` is m of the module's description.
    """

    rows_bsh: Share
    rows: int
    per_person: int = 1


def linking_of(sources: Sequence[SourceRows], key_bits: int) -> Linking:
    """Returns the public facts of a join. Raises ValueError for sources that cannot be joined."""
    for number, source in enumerate(sources):
        shape = source.rows_bsh.shape
        if (
            source.rows_bsh.ring is not BITS
            or len(shape) != 2
            or shape[0] < 1 + key_bits
            or shape[1] != words_for(source.rows)
        ):
            raise ValueError(
                f"source {number}: {source.rows_bsh!r} is not {source.rows} rows with keys of {key_bits} bits"
            )
    return Linking(
        tuple(source.rows for source in sources),
        tuple(source.rows_bsh.shape[0] - 1 - key_bits for source in sources),
        tuple(source.per_person for source in sources),
        key_bits,
    )


async def join(ctx: Context, sources: Sequence[SourceRows], *, key_bits: int) -> tuple[Share, int]:
    """Joins 1 to 5 sources, an inner join; returns its candidate rows and their number. See the module's description.

    Shapes: returns (1 + all columns' bits, words_for(candidates)): presence, then the columns of the sources in the
        order given; candidates are the rows of ``Linking.main``, in their order.
    Leaks: none; opened is the order of shuffled rows, and no party knows the shuffle.
    Rounds: those of ``link_costs``: two shuffles, the sort's levels, and some 10 + 2 log2(reach).
    Communication: that of ``link_costs``; see README section 8.
    Raises: ValueError for sources that cannot be joined; CheckFailed, with a verifier, where a party deviated;
        ChannelError, ProtocolViolation.
    Source: README section 8.
    """
    link = linking_of(sources, key_bits)
    if not link.candidates:
        return _nothing(ctx, 1 + sum(link.widths)), 0
    round_ = ctx.cost.round
    passes = Passes.draw(ctx, link.total)
    with ctx.step(LINK_SHUFFLE.name, round=round_) as c:
        shuffled = await shuffle(c, _listed(sources, link), passes)
    with ctx.step(LINK_SORT.name, round=round_) as c:
        keys_bsh = shuffled[:, : words_for(link.sort_bits)]
        order = await sort_order(c, keys_bsh, link.sort_bits)
    with ctx.step(LINK_JOIN.name, round=round_) as c:
        joined_bsh = await _joined(c, to_planes_of(shuffled[order], link.row_bits), link)
    with ctx.step(LINK_RETURN.name, round=round_) as c:
        back = to_words(joined_bsh, link.total)[np.argsort(order)]
        returned = await unshuffle(c, back, passes)
    # The main source's rows are the list's last ones.
    brought = to_planes_of(returned[link.total - link.candidates :], link.back_bits)
    return _in_order(brought, sources[link.main].rows_bsh[1 + key_bits :], link), link.candidates


async def align(ctx: Context, sources: Sequence[SourceRows]) -> tuple[Share, int]:
    """Aligns sources whose rows are in one order, without keys: row i of all of them is one row, present if all are.

    Shapes: sources (1 + columns' bits, words) of as many rows; returns as ``join``.
    Leaks: none.
    Rounds: ``and_all`` of as many planes as there are sources.
    Communication: a plane for each source but one.
    Raises: ValueError for sources that differ in their rows; ChannelError, ProtocolViolation.
    Source: own.
    """
    if len({source.rows for source in sources}) != 1:
        sizes = ", ".join(str(source.rows) for source in sources)
        raise ValueError(f"sources of {sizes} rows are not aligned; expected as many in each")
    with ctx.step(LINK_ALIGN.name, round=ctx.cost.round) as c:
        present = await and_all(c, concatenate(*(source.rows_bsh[:1] for source in sources)))
    columns = (source.rows_bsh[1:] for source in sources)
    return concatenate(present.reshape(1, -1), *columns), sources[0].rows


def _nothing(ctx: Context, bits: int) -> Share:
    return Share(BITS, ctx.pid, BITS.zeros((bits, 0)), BITS.zeros((bits, 0)))


def _listed(sources: Sequence[SourceRows], link: Linking) -> Share:
    """Returns all rows in one list (total, row_words), of the bits that ``Linking`` says. Local."""
    parts = []
    for place, source in enumerate(link.order):
        planes_bsh, rows = sources[source].rows_bsh, link.rows[source]
        words, pid = planes_bsh.shape[1], planes_bsh.pid

        def zeros(bits: int, words: int = words, pid: int = pid) -> Share:
            return Share(BITS, pid, BITS.zeros((bits, words)), BITS.zeros((bits, words)))

        present, key = planes_bsh[:1], planes_bsh[1 : 1 + link.key_bits]
        columns = planes_bsh[1 + link.key_bits :] if source != link.main else zeros(0)
        flags = concatenate(zeros(place), present, zeros(link.flags - place - 1))
        row = concatenate(zeros(link.number_bits), key, present, flags, columns)
        across = to_words(concatenate(row, zeros(link.row_bits - row.shape[0])), rows)
        # The number is public here, a constant in component 0; once rows have been shuffled no party knows it any more.
        numbers = np.zeros((rows, link.row_words), np.uint64)
        numbers[:, 0] = np.arange(rows, dtype=np.uint64) | np.uint64(place << link.index_bits)
        parts.append(across ^ numbers)
    return concatenate(*parts)


async def _joined(ctx: Context, rows_bsh: Share, link: Linking) -> Share:
    """Returns the rows that go back, (back_bits, words), of sorted rows (row_bits, words).

    Only rows of the main source are meaningful: their presence in the join, and the columns of the others.
    """
    counting_bsh, run = await _counting(ctx, rows_bsh, link)
    main = counting_bsh[-1:]
    if not link.others:
        return main
    columns_at = link.sort_bits + link.flags
    widths = [link.widths[s] for s in link.others]
    columns = [rows_bsh[columns_at : columns_at + width] for width in widths]
    factors = [
        concatenate(*[counting_bsh[n : n + 1]] * width) for n, width in enumerate(widths) if width
    ]
    values = counting_bsh[:-1]
    if factors:
        values = concatenate(
            values, await multiply(ctx, concatenate(*columns), concatenate(*factors))
        )
    # A run has at most one value of each source; a row gets those of the rows within reach that are in its run.
    jumps = list(link.jumps())
    for jump in jumps:
        far = concatenate(values, run) if jump != jumps[-1] else values
        # v_i += E_i v_{i-t}, E_i the AND of e over t rows; E_i E_{i-t} is that over 2 t (README section 8, step 4).
        came = await multiply(ctx, shifted(far, jump), run)
        count = values.shape[0]
        values, run = values ^ came[:count], came[count:]
    has = values[: len(link.others)]
    present = await and_all(ctx, concatenate(main, has))
    return concatenate(present.reshape(1, -1), values[len(link.others) :])


async def _counting(ctx: Context, rows_bsh: Share, link: Linking) -> tuple[Share, Share]:
    """Returns the sorted rows that count, a plane for each source in ``order``; and those with their predecessor's key.

    Shapes: (sources, words) and (1, words).
    """
    number, top = link.number_bits, link.sort_bits
    flags = rows_bsh[top : top + link.flags]
    before = shifted(rows_bsh[link.index_bits : top], 1)
    same = ~(rows_bsh[link.index_bits : top] ^ before)
    # Of two rows with the same presence one is enough to know that both are present; beyond the last row none is.
    key = concatenate(rows_bsh[top - 1 : top], same[number - link.index_bits :])
    # e_i: row i has its predecessor's key, and both are present.
    run = (await and_all(ctx, key)).reshape(1, -1)
    twice = run
    if link.source_bits:
        # d_i: and its predecessor's source, whose bits lie lowest.
        twice = (await and_all(ctx, concatenate(run, same[: link.source_bits]))).reshape(1, -1)
    few = {most: await _few(ctx, twice, most) for most in link.limits}
    rules = (few[link.per_person[source]] for source in link.order)
    return await multiply(ctx, flags, concatenate(*rules)), run


async def _few(ctx: Context, twice: Share, most: int) -> Share:
    """Returns the rows whose key has at most ``most`` rows in their source.

    ``twice`` are the rows whose predecessor has both their key and source. A key has more rows exactly where ``most``
    rows on end are ``twice``, and the last of them is one of its rows or of the ``most`` rows after any. Shapes: (1,
    words). Rounds and communication: a plane for each of ``doublings``.
    """
    many = twice
    for step in doublings(most):
        many = await multiply(ctx, many, shifted(many, step))
    # Zeros are shifted in from beyond the rows, hence an OR.
    for step in doublings(most + 1):
        many = ~(await multiply(ctx, ~many, ~shifted(many, -step)))
    return ~many


def _in_order(brought: Share, main_columns: Share, link: Linking) -> Share:
    """Returns presence and all columns in the order of the sources. Local."""
    columns, start = dict[int, Share](), 1
    for source in link.others:
        columns[source] = brought[start : start + link.widths[source]]
        start += link.widths[source]
    columns[link.main] = main_columns
    return concatenate(brought[:1], *(columns[source] for source in range(len(link.rows))))
