"""Joins on shares against joins in the clear, whatever the rows, and what a server may not learn of them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import costs, link, link_costs
from protocols.bitslice import from_bits, to_bits
from protocols.context import Context
from protocols.link import SourceRows
from protocols.link_plan import Linking
from protocols.ring import BITS
from protocols.shares import Share
from protocols.steps import OF_LINKING, Linked
from protocols.verify import ProductVerifier
from tests.protocols.local import Outcome, components, reconstruct, run_parties, share_of
from tests.protocols.test_steps import costs_by_step

KEY_BITS = 20


@dataclass
class Table:
    """A source: who is present, keys, and one column of ``width`` bits."""

    present: np.ndarray
    keys: np.ndarray
    codes: np.ndarray
    width: int
    per_person: int = 1

    @property
    def rows(self) -> int:
        return len(self.keys)

    def planes(self, key_bits: int = KEY_BITS) -> np.ndarray:
        rows = [self.present.astype(np.uint8)]
        rows += [(self.keys >> bit & 1).astype(np.uint8) for bit in range(key_bits)]
        rows += [(self.codes >> bit & 1).astype(np.uint8) for bit in range(self.width)]
        return from_bits(np.array(rows))


def table(
    generator: np.random.Generator, rows: int, keys: int, per_person: int = 1, there: float = 0.8
) -> Table:
    """Random rows with so many different keys."""
    width = int(generator.integers(0, 7))
    return Table(
        generator.random(rows) < there,
        generator.integers(0, max(1, keys), rows),
        generator.integers(0, 1 << width, rows),
        width,
        per_person,
    )


def sources_of(ctx: Context, parts: Sequence[list[np.ndarray]], tables: Sequence[Table]) -> Any:
    return [
        SourceRows(share_of(ctx, part, BITS), table.rows, table.per_person)
        for part, table in zip(parts, tables, strict=True)
    ]


def joining(tables: Sequence[Table], *, verified: bool = False, key_bits: int = KEY_BITS) -> Any:
    parts = [components(BITS, t.planes(key_bits), seed=i) for i, t in enumerate(tables)]

    async def program(ctx: Context) -> tuple[Share, int]:
        if verified:
            ctx.verifier = ProductVerifier()
        return await link.join(ctx, sources_of(ctx, parts, tables), key_bits=key_bits)

    return program


def rows_of(outcome: Outcome, widths: Sequence[int]) -> list[tuple[int, ...] | None]:
    """Candidates in the clear: codes by source, None for who is not present. Cells beyond them are zeros."""
    planes, rows = reconstruct([share for share, _ in outcome.results]), outcome.results[0][1]
    bits = to_bits(planes, 64 * planes.shape[1]).astype(np.int64)
    assert planes.shape[0] == 1 + sum(widths)
    assert not bits[:, rows:].any()
    starts = np.cumsum([1, *widths])
    codes = [
        sum((bits[start + b] << b for b in range(width)), np.zeros(bits.shape[1], np.int64))
        for start, width in zip(starts, widths, strict=False)
    ]
    return [tuple(int(code[i]) for code in codes) if bits[0, i] else None for i in range(rows)]


def joined(tables: Sequence[Table]) -> list[tuple[int, ...] | None]:
    """The control: what each row of the main source becomes."""
    main, found = linking(tables).main, []
    by_key = []
    for one in tables:
        rows = defaultdict(list)
        for i in np.flatnonzero(one.present):
            rows[int(one.keys[i])].append(int(i))
        by_key.append({k: r for k, r in rows.items() if len(r) <= one.per_person})
    for i in range(tables[main].rows):
        key = int(tables[main].keys[i])
        if i in by_key[main].get(key, []) and all(key in rows for rows in by_key):
            at = [i if s == main else by_key[s][key][0] for s in range(len(tables))]
            found.append(tuple(int(t.codes[j]) for t, j in zip(tables, at, strict=True)))
        else:
            found.append(None)
    return found


def linking(tables: Sequence[Table], key_bits: int = KEY_BITS) -> Linking:
    return Linking(
        tuple(t.rows for t in tables),
        tuple(t.width for t in tables),
        tuple(t.per_person for t in tables),
        key_bits,
    )


def assert_joined(tables: Sequence[Table], *, verified: bool = False) -> Outcome:
    outcome = run_parties(joining(tables, verified=verified))
    assert rows_of(outcome, [t.width for t in tables]) == joined(tables)
    return outcome


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=5),
    st.integers(1, 25),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
)
def test_join_equals_a_plain_join_of_any_tables(
    sizes: list[int], keys: int, several: int, seed: int
) -> None:
    """Duplicates, absent rows and none at all, keys of zero; in one source up to ``several`` rows of a key count."""
    generator = np.random.default_rng(seed)
    tables = [table(generator, rows, keys) for rows in sizes]
    tables[seed % len(tables)].per_person = several
    assert_joined(tables)


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_join_equals_pandas_merge(overlap: float) -> None:
    generator = np.random.default_rng(7)
    people = generator.permutation(1 << 12)
    ours, theirs = people[:150], people[int(150 * (1 - overlap)) :][:150]
    tables = [
        Table(np.ones(150, bool), generator.permutation(keys), generator.integers(0, 32, 150), 5)
        for keys in (ours, theirs)
    ]
    outcome = run_parties(joining(tables))
    frames = [pd.DataFrame({"key": t.keys, "code": t.codes}) for t in tables]
    expected = frames[0].merge(frames[1], on="key")[["code_x", "code_y"]]
    found = [row for row in rows_of(outcome, [5, 5]) if row is not None]
    assert len(found) == round(150 * overlap)
    assert sorted(found) == sorted(map(tuple, expected.to_numpy().tolist()))


@pytest.mark.parametrize("rows", [32, 64])
def test_join_counts_at_the_very_end_of_a_word(rows: int) -> None:
    for seed in range(3):
        generator = np.random.default_rng(seed)
        assert_joined([table(generator, rows, 40, there=1.0) for _ in range(2)])
        assert_joined([table(generator, 2 * rows, 30, per_person=3, there=1.0)])


@pytest.mark.parametrize("sizes", [(0, 5, 3), (5, 0), (0,), (1,), (1, 1)])
def test_join_of_sources_without_rows_has_none(sizes: tuple[int, ...]) -> None:
    generator = np.random.default_rng(1)
    outcome = assert_joined([table(generator, rows, 1, there=1.0) for rows in sizes])
    assert outcome.results[0][1] == min(sizes)


def test_join_in_malicious_mode_is_the_same() -> None:
    generator = np.random.default_rng(3)
    assert_joined([table(generator, rows, 30) for rows in (40, 35, 50)], verified=True)
    assert_joined([table(generator, 60, 20, per_person=2)], verified=True)


def changed(before: list[Any], after: list[Any]) -> tuple[int, int]:
    """Numbers of joined rows that went, and that came."""
    gone, come = list(filter(None, before)), list(filter(None, after))
    for row in list(gone):
        if row in come:
            gone.remove(row)
            come.remove(row)
    return len(gone), len(come)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_join_changes_by_few_rows_whichever_rows_of_a_key_are_taken_away(
    seed: int, several: int
) -> None:
    """The sensitivity: rows come or go and not both, at most m, of tables with duplicates and strangers' rows."""
    generator = np.random.default_rng(seed)
    tables = [table(generator, 12, 4) for _ in range(generator.integers(1, 4))]
    tables[-1].per_person = several
    before = joined(tables)
    for one in tables:
        taken = (one.keys == 0) & (generator.random(one.rows) < 0.5)
        one.present = one.present & ~taken
    gone, come = changed(before, joined(tables))
    assert min(gone, come) == 0
    assert gone + come <= several


@pytest.mark.parametrize("verified", [False, True])
def test_join_opens_comparisons_and_nothing_else_under_the_names_and_costs_of_its_steps(
    verified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, gates, reshared = np.random.default_rng(5), [0], ProductVerifier.reshared

    def counting(self: ProductVerifier, place: bytes, *told: object) -> None:
        reshared(self, place, *told)  # type: ignore[arg-type]
        gates[0] += told[-1].size  # type: ignore[attr-defined]

    monkeypatch.setattr(ProductVerifier, "reshared", counting)
    tables = [table(generator, rows, 30) for rows in (70, 40, 20)]
    tables[0].per_person = 3
    outcome = run_parties(joining(tables, verified=verified))
    openings = outcome.parties[0].costs.openings
    assert {(o.step, o.what) for o in openings} == {("link.sort", "link.order")}
    facts = Linked(linking(tables), tuple(o.count for o in openings))
    found = costs_by_step(outcome)
    with costs.with_verifier(verified):
        assert {s.name: s.of(facts) for s in OF_LINKING} == {
            name: cost for name, cost in found.items() if name != "link.verify"
        }
        total = sum((s.of(facts) for s in OF_LINKING), costs.Cost())
        assert total == link_costs.join(facts.link, facts.levels)
        assert gates == [3 * total.gates if verified else 0]


def test_align_takes_the_rows_that_are_present_in_all() -> None:
    generator = np.random.default_rng(2)
    tables = [table(generator, 100, 5) for _ in range(3)]
    parts = [components(BITS, t.planes(0), seed=i) for i, t in enumerate(tables)]
    outcome = run_parties(lambda c: link.align(c, sources_of(c, parts, tables)))
    present = np.logical_and.reduce([t.present for t in tables])
    expected = [tuple(int(t.codes[i]) for t in tables) if present[i] else None for i in range(100)]
    assert rows_of(outcome, [t.width for t in tables]) == expected
    assert not outcome.parties[0].costs.openings
    cost = link_costs.align(100, 3)
    assert (outcome.rounds, tuple(outcome.sent_bytes)) == (cost.rounds, cost.sent)


def test_sources_that_cannot_be_joined_are_refused() -> None:
    with pytest.raises(ValueError, match="6 sources; 1 to 5"):
        Linking((1,) * 6, (1,) * 6, (1,) * 6, 80)
    with pytest.raises(ValueError, match="two sources allow several rows"):
        Linking((1, 1), (1, 1), (2, 3), 80)
    with pytest.raises(ValueError, match="source 1 allows 0 rows"):
        Linking((1, 1), (1, 1), (1, 0), 80)
    with pytest.raises(ValueError, match="key of 0 bits"):
        Linking((1,), (1,), (1,), 0)
    rows = Share(BITS, 0, BITS.zeros((5, 1)), BITS.zeros((5, 1)))
    with pytest.raises(ValueError, match="is not 65 rows"):
        link.linking_of([SourceRows(rows, 65)], 3)
    with pytest.raises(ValueError, match="keys of 7 bits"):
        link.linking_of([SourceRows(rows, 5)], 7)
