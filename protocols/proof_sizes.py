"""Allowed sizes of the messages of a check, for an auditor, who has nothing but sizes.

``problem_of`` compares the messages of three parties in one check (``verify``) with the formulas of ``costs``.
``Tables`` is a check's proof of tables: by its messages (``tables_of``) beside the one that counting rows requires
(``count_checks``). ``most_gates`` bounds the ANDs that messages can prove. Matrices, carries, challenges, digests and
last elements have few possible sizes; the number of each follows from the number of proofs, and that from the messages
of the two others. Known limit: quotients, one message of each proof of products in a ring, have a size that goes by the
number of products, which no transcript says; where one has the size of a matrix, another message may pass for it. The
receiver takes none but the right sizes. All values here are public. Source: README section 7.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocols.blocks import PROVED_AT_ONCE
from protocols.galois import DEGREE
from protocols.inner_proof import blocks_of, last_size
from protocols.mersenne import F61, F127, Field
from protocols.row_plan import LIFT_CELLS, CountPlan
from protocols.verify_bits import BLOCKS
from protocols.verify_rings import SCHEMES
from protocols.verify_tables import Operand, stars

_WORD, _DIGEST, _CHALLENGE = 8, 32, 16
_FINE = 1
_ELEMENT = 2 * DEGREE
_UNIT = 4
"""Divisor, in bytes, of the size of every number that is sent in a proof."""


@dataclass(frozen=True, slots=True)
class Told:
    """Sizes of a party's messages in one check, in their order: to the party before, and to the next one."""

    before: Sequence[int]
    next: Sequence[int]


def most_gates(told: Told) -> int:
    """Returns the most words of ANDs that a prover's messages in a check can prove: within a factor of 16."""
    sizes, few, many = Counter(told.next), *(_matrix(F61, 1, blocks) for blocks in BLOCKS)
    blocks = BLOCKS[1] if sizes[many] else BLOCKS[0]
    # The first two steps work on bits; each of the others leaves a sixteenth of the terms.
    steps = sizes[few] + sizes[many] - 2
    terms = last_size(F61) * blocks_of(F61) ** steps if steps >= 0 else 0
    return terms * blocks // BLOCKS[0]


@dataclass(frozen=True, slots=True)
class Tables:
    """A check's proof of tables: of so many rows, with so many combined entries in each; 0 rows for no proof."""

    rows: int = 0
    entries: int = 0


def tables_of(told: Told) -> Tables:
    """Returns the proof of tables at the end of a party's messages in a check."""
    rows = _rows_of(told.next)
    return Tables(rows, told.before[-2] // _ELEMENT - 1) if rows else Tables()


def count_checks(plan: CountPlan, rows: int) -> list[Tables]:
    """Returns the proofs of tables, check by check, while so many rows are counted (``rows.count_rows``)."""
    found, entries = list[Tables](), 2 * _terms(plan)
    lifts = -(-plan.cells // (LIFT_CELLS * PROVED_AT_ONCE))
    for segment in plan.segments(rows):
        blocks = list(plan.blocks(range(len(segment))))
        found += [Tables(sum(map(len, some)), entries) for some in plan.proved_at_once(blocks)]
        # The last counts to be lifted are proved in a later check.
        found += [Tables()] * (lifts - 1)
    return found


def _terms(plan: CountPlan) -> int:
    """Returns the number of products of combined entries in a row: ``verify_tables.RowTables.terms``."""
    by_row = [
        (_operand(product.high, i), _operand(product.low, j))
        for level in range(1, plan.levels + 1)
        if plan.tabled(level)
        for _, product in plan.level(level)
        for i, j in plan.grids(product)
    ]
    copies, doubled = Counter[tuple[int, int]](), list[tuple[Operand, Operand]]()
    for count in plan.counts:
        pair = count.left, count.right
        left, right = (_operand(node, range(plan.size(node)), copies[pair]) for node in pair)
        doubled.append((left, right))
        copies[pair] += 1
    return len(stars(by_row)) + len(stars(doubled))


def _operand(node: int, entries: range, copy: int = 0) -> Operand:
    return Operand(node, copy, entries.start, len(entries))


def _matrix(field: Field, claims: int, blocks: int) -> int:
    return _WORD * field.words * claims * (blocks * blocks - 1)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a prover's matrices, in any step, and of the elements that left shows in the end."""

    matrices: frozenset[int]
    last: frozenset[int]

    @classmethod
    def of(cls, claims: Mapping[Field, set[int]]) -> "Sizes":
        """Returns the sizes of proofs in these fields, with so many claims each."""
        found = {_matrix(F61, 1, blocks) for blocks in BLOCKS}
        for field, several in claims.items():
            # The last step has at least two elements a side, and one more that is random.
            steps = blocks_of(field), *range(3, last_size(field) + 2)
            found.update(_matrix(field, some, blocks) for some in several for blocks in steps)
        return cls(frozenset(found), frozenset(_CHALLENGE * field.words for field in claims))


def _claims() -> dict[Field, set[int]]:
    """Returns the numbers of claims that a step of each field may be about: several at the first alone."""
    found: dict[Field, set[int]] = {F61: {1}}
    for scheme in SCHEMES.values():
        found.setdefault(scheme.field, {1}).add(scheme.sums)
    return found


SIZES = Sizes.of(_claims())
FORMER_SIZES = Sizes.of({F61: {1}, F127: {1, 2}, Field(521): {1}})
"""Sizes in messages of versions before 20, which had one larger field for Z_2^64 and Z_2^128."""
CARRIES = frozenset(
    _WORD * scheme.sums * -(-scheme.carry_bits(1 << bits) // 64)
    for scheme in SCHEMES.values()
    for bits in range(40)
)
"""Sizes of the numbers W of a proof in a ring."""


def problem_of(told: Sequence[Told], known: Sizes = SIZES) -> str | None:
    """Returns the problem in the sizes of the messages of parties 0, 1 and 2 in one check; None if there is none."""
    to_the_one_before = {_CHALLENGE, _DIGEST, *known.last}
    sizes = [(list(each.before), list(each.next)) for each in told]
    for pid, (before, following) in enumerate(sizes):
        if min(len(before), len(following)) < 2 or (before[-1], following[-1]) != (_FINE, _FINE):
            return f"server {pid} did not end a check with a word to both"
        if before[0] != following[0] + _DIGEST or following[0] != sizes[0][1][0]:
            return f"server {pid} began a check with {before[0]} and {following[0]} bytes"
    if (problem := _take_tables(sizes)) is not None:
        return problem
    for pid, (before, _) in enumerate(sizes):
        for size in before[1:-1]:
            if size not in to_the_one_before:
                return f"server {pid} sent {size} bytes as a verifier; the protocol has no such message"
    heard = [Counter(before[1:-1]) for before, _ in sizes]
    proving = [following[1:-1] for _, following in sizes]
    gates = {_gates(pid, heard, proving, last=known.last) for pid in range(3)}
    if len(gates) > 1 or not gates <= {0, 3}:
        return "the servers' messages do not belong to one number of proofs"
    for pid, messages in enumerate(proving):
        # A proof in a ring has a challenge less than messages, and two that are no matrices.
        challenges = heard[(pid + 1) % 3][_CHALLENGE] - max(gates) // 3
        in_rings = len(messages) - challenges
        carries = sum(size in CARRIES for size in messages)
        other = [size for size in messages if size not in known.matrices | CARRIES]
        if carries < in_rings or len(other) > in_rings or any(size % _UNIT for size in other):
            return f"server {pid} sent {other} bytes as a prover, where matrices have other sizes"
    return None


def _take_tables(sizes: Sequence[tuple[list[int], list[int]]]) -> str | None:
    """Takes a proof of tables, which comes last, out of each server's messages; returns the problem, if any."""
    rows = [_rows_of(following) for _, following in sizes]
    if not any(rows):
        return None
    shown = {before[-2] for before, _ in sizes}
    if len(set(rows)) > 1 or len(shown) > 1:
        return "the servers' messages do not belong to one proof of tables"
    # Left's last row has a combined entry for each of two factors, and its part of the claim.
    entries, rest = divmod(shown.pop(), _ELEMENT)
    folds = _folded(rows[0])
    heard = [_CHALLENGE] * (2 + len(folds)) + [_DIGEST]
    for pid, (before, following) in enumerate(sizes):
        if rest or entries < 3 or entries % 2 == 0 or before[-2 - len(heard) : -2] != heard:
            return (
                f"server {pid} sent other sizes to the server before it than a proof of tables has"
            )
        del before[-2 - len(heard) : -1]
        del following[-3 - len(folds) : -1]
    return None


def _rows_of(following: Sequence[int]) -> int:
    """Returns the rows of the tables whose proof is at the end of these messages; 0 without such a proof."""
    for start, size in enumerate(following):
        rows, rest = divmod(size, _ELEMENT)
        if rest == 0 and list(following[start + 1 :]) == [*_folded(rows), _DIGEST, _FINE]:
            return rows
    return 0


def _folded(rows: int) -> list[int]:
    """Returns the sizes of a prover's messages for tables of so many rows, one each time two rows become one."""
    sizes, left = list[int](), 1 + rows
    while left > 1:
        sizes.append(left // 2 * _ELEMENT)
        left -= left // 2
    return sizes


def _gates(
    pid: int,
    heard: Sequence[Counter[int]],
    proving: Sequence[Sequence[int]],
    *,
    last: frozenset[int],
) -> int:
    """Returns three times the number of each party's proofs of gates, by the parties' messages.

    Party p sends before it: a digest for each of its own proofs and, for each proof of the next one, its last element,
    of 32 bytes in F127, 64 in F255 and 96 in F383; as the one right of the party before, a challenge for each of its
    messages but one a proof in a ring.
    """
    after, prior = (pid + 1) % 3, (pid + 2) % 3
    words = heard[pid][_DIGEST] + sum(heard[pid][size] for size in last - {_CHALLENGE, _DIGEST})
    challenges = heard[after][_CHALLENGE] + heard[prior][_CHALLENGE]
    return words + challenges - len(proving[pid]) - len(proving[after])
