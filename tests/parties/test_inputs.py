"""Input forms: counts end as shares of their sum, and a form whose servers talk shares a total with them."""

import contextlib
import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from parties.config import CELLS, NO_CHECK, TOTALS
from parties.mpc.inputs import (
    AdditionResult,
    InputForm,
    RowLimit,
    SubmissionBatch,
    input_form,
    input_forms,
)
from parties.mpc.inputs.counts import Counts
from parties.mpc.participants.finalized import Finalized
from parties.mpc.participants.listing import Page
from parties.mpc.participants.registry import TABLES as ROLL_TABLES
from parties.mpc.participants.registry import ParticipantRegistry
from parties.mpc.records import ParticipantRecord, RunningTotal, StoredSubmission
from parties.mpc.replay.effects import ParticipantView
from parties.mpc.steps import CLIENTS_CHECK, CLIENTS_COMPARE, PASSED, CheckFacts
from parties.session.study import Study
from parties.storage.database import Database
from protocols import base
from protocols.context import Context
from protocols.shares import Share
from protocols.upload import FORMS, PLAIN, SEEDED, UploadSeeds
from tests.parties.support import make_arrivals, make_codes, make_config, make_submission
from tests.protocols.local import reconstruct, run_parties

CONFIG = make_config({"clients.expected": 2, "clients.minimum": 2})
WORKLOAD = CONFIG.build_workload()
CAPACITY = CONFIG.clients.rows_per_client
CLIENTS = ("clinic-a", "clinic-b")
Bodies = Mapping[str, list[bytes]]


def values_of(form: InputForm, clients: Sequence[str]) -> dict[str, NDArray[np.unsignedinteger]]:
    return {c: form.values(make_codes(20, seed), CAPACITY) for seed, c in enumerate(clients)}


def bodies_of(form: InputForm, clients: Sequence[str] = CLIENTS) -> dict[str, list[bytes]]:
    values = values_of(form, clients)
    return {c: list(form.share(values[c], UploadSeeds.draw()).bodies) for c in clients}


def stored(form: InputForm, pid: int, client: str, body: bytes) -> StoredSubmission:
    submission = replace(make_submission(client), form=form.name, first_round=1)
    own, next_ = (digest.hex() for digest in form.component_digests(pid, body, CAPACITY))
    whole = hashlib.sha256(body).hexdigest()
    return StoredSubmission.of(submission, "ab" * 32, whole, own, next_, len(body), 0.0)


def batch_at(form: InputForm, pid: int, bodies: Bodies, check: str = NO_CHECK) -> SubmissionBatch:
    mine = tuple(stored(form, pid, client, bodies[client][pid]) for client in bodies)
    return SubmissionBatch(1, mine, lambda client: bodies[client][pid], RowLimit(check, CAPACITY))


@pytest.mark.parametrize("name", FORMS)
def test_add_ends_in_shares_of_the_sum_and_sends_nothing(name: str) -> None:
    form = input_form(name, WORKLOAD)
    bodies = bodies_of(form)

    async def party(ctx: Context) -> Share:
        total = RunningTotal.empty(1, ctx.pid, WORKLOAD.maximal_cells).share
        batch = batch_at(form, ctx.pid, bodies)
        once = await form.add(ctx, total, batch)
        twice = await form.add(ctx, once.total, batch.without(CLIENTS[:1]))
        assert not once.failed | twice.failed
        return twice.total

    outcome = run_parties(party)
    first, second = values_of(form, CLIENTS).values()
    np.testing.assert_array_equal(reconstruct(outcome.results), first + 2 * second)
    assert outcome.sent_bytes == [0, 0, 0]


def uneven(counts: NDArray[np.unsignedinteger]) -> None:
    """A row more in the first maximal marginal."""
    counts[0] += 1


def heavy(counts: NDArray[np.unsignedinteger]) -> None:
    """One row more than the bound in each maximal marginal."""
    for start in WORKLOAD.maximal_offsets[:-1]:
        counts[start] += CAPACITY + 1 - 20


def negative(counts: NDArray[np.unsignedinteger]) -> None:
    """A row moved from one cell to another, that was not there."""
    empty = int(np.flatnonzero(counts == 0)[0])
    start = max(s for s in WORKLOAD.maximal_offsets if s <= empty)
    counts[empty] = 2**32 - 1
    counts[start + (empty == start)] += 1


OWNERS = ("honest", "uneven", "empty", "heavy", "negative", "full")


def owners(form: InputForm) -> dict[str, NDArray[np.unsignedinteger]]:
    """Inputs of honest owners, with no row, with 20 and with as many as there may be, and of others."""
    shared = {owner: form.values(make_codes(20), CAPACITY) for owner in OWNERS}
    uneven(shared["uneven"])
    heavy(shared["heavy"])
    negative(shared["negative"])
    return shared | {
        "empty": form.values(make_codes(0), CAPACITY),
        "full": form.values(make_codes(CAPACITY), CAPACITY),
    }


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("check", "failed"),
    [
        (NO_CHECK, set()),
        (TOTALS, {"uneven", "heavy"}),
        (CELLS, {"uneven", "heavy", "negative"}),
    ],
)
def test_add_leaves_out_who_is_not_within_its_limit_and_opens_a_bit_an_owner(
    name: str, check: str, failed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two owners in a part, so that verdicts of several parts are put together.
    monkeypatch.setattr("protocols.bounded.CELLS_AT_ONCE", 2 * WORKLOAD.maximal_cells)
    form = input_form(name, WORKLOAD)
    shared = owners(form)
    bodies = {o: list(form.share(shared[o], UploadSeeds.draw()).bodies) for o in OWNERS}

    async def party(ctx: Context) -> Share:
        total = RunningTotal.empty(1, ctx.pid, WORKLOAD.maximal_cells).share
        added = await form.add(ctx, total, batch_at(form, ctx.pid, bodies, check))
        assert added.failed == failed
        return added.total

    outcome = run_parties(party)
    expected = sum(shared[owner] for owner in OWNERS if owner not in failed)
    np.testing.assert_array_equal(reconstruct(outcome.results), expected)
    opened = [(PASSED.what, [owner not in failed for owner in OWNERS])] if failed else []
    for party_ in outcome.parties:
        found = [(what, np.frombuffer(value, "<u8")) for what, value in party_.opened_values]
        assert [(what, bits.astype(bool).tolist()) for what, bits in found] == opened
    if failed:
        cells = WORKLOAD.maximal_cells if check == CELLS else 0
        facts = CheckFacts(len(OWNERS), len(WORKLOAD.maximal), cells)
        assert CLIENTS_CHECK.cost is not None
        cost = CLIENTS_CHECK.cost(facts)
        steps = [party_.costs.steps[-1] for party_ in outcome.parties]
        assert tuple(step.sent_bytes for step in steps) == cost.sent
        assert {step.rounds for step in steps} == {cost.rounds}


def test_add_checks_nobody_where_nobody_is_left() -> None:
    form = input_form(SEEDED, WORKLOAD)

    async def party(ctx: Context) -> AdditionResult:
        total = RunningTotal.empty(1, ctx.pid, WORKLOAD.maximal_cells).share
        return await form.add(ctx, total, batch_at(form, ctx.pid, {}, TOTALS))

    outcome = run_parties(party)
    assert [added.failed for added in outcome.results] == [frozenset()] * 3
    assert outcome.sent_bytes == [0, 0, 0]


@pytest.mark.parametrize("name", FORMS)
def test_sizes_are_those_of_every_part(name: str) -> None:
    form = input_form(name, WORKLOAD)
    for values in values_of(form, CLIENTS).values():
        parts = form.share(values, UploadSeeds.draw())
        assert [len(p) for p in parts.private] == [
            form.private_size(pid, CAPACITY) for pid in range(3)
        ]
        assert (len(parts.common), parts.holders) == (form.common_size(CAPACITY), form.holders)


@pytest.mark.parametrize(
    "values", [np.zeros(56, np.uint64), np.zeros(3, np.uint32), np.zeros((7, 8), np.uint32)]
)
def test_share_refuses_other_vectors(values: NDArray[np.unsignedinteger]) -> None:
    with pytest.raises(ValueError, match="56 uint32"):
        input_form(SEEDED, WORKLOAD).share(values, UploadSeeds.draw())


@pytest.mark.parametrize(("rows", "sizes"), [(0, []), (1, [1]), (5, [2, 2, 1])])
def test_batches_have_everyone_once_in_order(
    rows: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    form = input_form(SEEDED, WORKLOAD)
    monkeypatch.setattr(
        "parties.mpc.inputs.counts._BATCH_BYTES", 2 * form.common_size(CAPACITY) + 1
    )
    bodies = bodies_of(form, [f"clinic-{number}" for number in range(rows)])
    due = batch_at(form, 0, bodies).submissions
    batches = form.batches(due)
    assert [len(batch) for batch in batches] == sizes
    assert tuple(item for batch in batches for item in batch) == due


def test_input_forms_are_those_of_the_config() -> None:
    for name in FORMS:
        forms = input_forms(Study(make_config({"run.upload": name}), WORKLOAD))
        assert {key: form.name for key, form in forms.items()} == {name: name}


class Squares(Counts):
    """A form whose servers have to talk: what it adds are the squares of what was sent."""

    async def add(self, ctx: Context, total: Share, batch: SubmissionBatch) -> AdditionResult:
        sent = await super().add(ctx, RunningTotal.empty(0, ctx.pid, self.cells).share, batch)
        with ctx.step("test.squares", round=batch.round) as c:
            return AdditionResult(total + await base.multiply(c, sent.total, sent.total))


"""No authority is asked where nobody has withdrawn."""


@dataclass
class Held:
    """A server's holdings: everything is there from the start."""

    registry: ParticipantRegistry
    all: list[StoredSubmission]
    body: Callable[[str], bytes]
    saved: list[RunningTotal] = field(default_factory=list)

    @property
    def here(self) -> list[StoredSubmission]:
        return self.all

    def page(self, up_to_round: int, after: str, revoked: Collection[str]) -> Page:
        here = self.here
        known = self.registry.find(s.submission.client for s in here)
        return Page(tuple(s for s in here if s.submission.client not in known))

    def stored(self, client: str, upload: str) -> StoredSubmission:
        raise NotImplementedError

    def count(self) -> int:
        return len(self.all)

    def read(self, client: str, version: int) -> bytes:
        return self.body(client)

    def settle(self, client: str, version: int, withdrawal: object = None) -> None:
        raise NotImplementedError

    @property
    def view(self) -> ParticipantView:
        records = CountedRecords(len(self.all))
        return ParticipantView(self.registry, self, NoFinalized(), NewTotals(self.saved), records)


class NoFinalized:
    """Nobody is counted for good."""

    def finalized(self) -> list[Finalized]:
        return []

    def finalized_among(self, clients: Iterable[str]) -> dict[str, str]:
        return {}

    def unregistered(self, after: str, upto: str | None) -> dict[str, str]:
        return {}

    def save_finalized(self, finals: Collection[Finalized]) -> None:
        assert list(finals) == []


@dataclass
class NewTotals:
    """Totals of a run that has none yet."""

    saved: list[RunningTotal]

    def retain(self, rounds: Collection[int]) -> None:
        assert list(rounds) == []

    def rounds(self) -> list[int]:
        return []

    def load(self, round: int, pid: int) -> RunningTotal:
        raise NotImplementedError

    def save(self, total: RunningTotal) -> None:
        self.saved.append(total)

    def commitment_key(self) -> bytes:
        return bytes(32)


@dataclass
class CountedRecords:
    """Records of ``number`` owners, all counted."""

    number: int

    def all(self) -> list[ParticipantRecord]:
        return []

    def save(self, records: Iterable[ParticipantRecord]) -> None:
        assert [s.excluded for s in records] == [None] * self.number


@pytest.fixture
def make_roll(tmp_path: Path) -> Iterator[Callable[[], ParticipantRegistry]]:
    """Rolls of servers, which last as long as the test."""
    with contextlib.ExitStack() as stack:

        def make() -> ParticipantRegistry:
            folder = tmp_path / secrets.token_hex(4)
            return ParticipantRegistry(
                stack.enter_context(Database(folder, "c0" * 32, ROLL_TABLES))
            )

        yield make


def test_count_in_adds_forms_to_one_total_each_with_its_own_steps(
    make_roll: Callable[[], ParticipantRegistry],
) -> None:
    """One owner sends counts, one a form whose servers multiply in a step of its own."""
    forms: dict[str, InputForm] = {
        SEEDED: Counts(SEEDED, WORKLOAD),
        PLAIN: Squares(PLAIN, WORKLOAD),
    }
    sent = dict(zip(CLIENTS, forms.values(), strict=True))
    bodies = {
        c: form.share(form.values(make_codes(20), CAPACITY), UploadSeeds.draw()).bodies
        for c, form in sent.items()
    }

    async def party(ctx: Context) -> RunningTotal:
        mine = [stored(form, ctx.pid, c, bodies[c][ctx.pid]) for c, form in sent.items()]
        held = Held(make_roll(), mine, lambda client: bodies[client][ctx.pid])
        arrivals = make_arrivals(ctx, CONFIG, held.view, forms, WORKLOAD.maximal_cells)
        total = await arrivals.admit(0)
        assert held.saved == [total]
        return total

    outcome = run_parties(party)
    totals = outcome.results
    # Each form's owners in the order of their names, form after form.
    assert {total.clients for total in totals} == {(CLIENTS[1], CLIENTS[0])}
    counts = forms[SEEDED].values(make_codes(20), CAPACITY)
    found = reconstruct([total.share for total in totals])
    np.testing.assert_array_equal(found, counts + counts * counts)
    steps = [(cost.step, cost.round, cost.rounds) for cost in outcome.parties[0].costs.steps]
    assert ("test.squares", 0, 1) in steps
    names = [step for step, *_ in steps if not step.startswith("clients.")]
    assert names == ["test.squares"]
    counted = [step for step, *_ in steps if step == CLIENTS_COMPARE.name]
    assert counted == [CLIENTS_COMPARE.name] * 2


class Together(Counts):
    """A form whose servers work for every batch, of which two owners fill one."""

    @property
    def by_capacity(self) -> bool:
        return True

    def batches(self, due: Sequence[StoredSubmission]) -> list[tuple[StoredSubmission, ...]]:
        return [tuple(due[start : start + 2]) for start in range(0, len(due), 2)]

    def exceed_batch(self, owners: int, rows: int) -> bool:
        return owners > 2


@dataclass
class Arriving(Held):
    """Holdings to which one submission more has come each time somebody looks."""

    there: int = 0
    withdrawn: int = -1
    """After so many looks the first owner takes its submission back."""

    @property
    def here(self) -> list[StoredSubmission]:
        self.there += 1
        gone = 1 if 0 <= self.withdrawn < self.there else 0
        return self.all[gone : self.there]

    def count(self) -> int:
        return min(self.there, len(self.all))

    @property
    def view(self) -> ParticipantView:
        return replace(super().view, records=CountedRecords(len(self.all) - (self.withdrawn > 0)))


def count_in_as_they_come(
    make_roll: Callable[[], ParticipantRegistry], form: InputForm, *, withdrawn: int = -1
) -> tuple[RunningTotal, list[str]]:
    """Final total of party 0, and the clients of each batch, of three owners that come one after the other."""
    clients = ("clinic-a", "clinic-b", "clinic-c")
    bodies = bodies_of(form, clients)
    batches: list[str] = []

    async def party(ctx: Context) -> RunningTotal:
        mine = [stored(form, ctx.pid, c, bodies[c][ctx.pid]) for c in clients]
        roll = make_roll()
        held = Arriving(roll, mine, lambda client: bodies[client][ctx.pid], withdrawn=withdrawn)

        def note(client: str, **_: object) -> None:
            if ctx.pid == 0:
                batches.append(client)

        config = make_config({"clients.expected": 3, "clients.minimum": 1})
        arrivals = make_arrivals(
            ctx, config, held.view, {SEEDED: form}, WORKLOAD.maximal_cells, on_client=note
        )
        return await arrivals.admit(0)

    outcome = run_parties(party)
    compared = [c for c in outcome.parties[0].costs.steps if c.step == CLIENTS_COMPARE.name]
    found = reconstruct([total.share for total in outcome.results])
    shared = values_of(form, clients)
    counted = outcome.results[0].clients
    np.testing.assert_array_equal(found, sum(shared[client] for client in counted))
    assert tuple(batches) == counted
    return outcome.results[0], [step.step for step in compared]


def test_count_in_adds_counts_as_they_come_and_holds_other_forms_until_a_batch_is_full(
    make_roll: Callable[[], ParticipantRegistry],
) -> None:
    total, batches = count_in_as_they_come(make_roll, Counts(SEEDED, WORKLOAD))
    assert (len(total.clients), len(batches)) == (3, 3)
    total, batches = count_in_as_they_come(make_roll, Together(SEEDED, WORKLOAD))
    assert (total.clients, len(batches)) == (("clinic-a", "clinic-b", "clinic-c"), 2)


def test_count_in_does_not_count_who_left_while_its_batch_was_waiting(
    make_roll: Callable[[], ParticipantRegistry],
) -> None:
    total, batches = count_in_as_they_come(make_roll, Together(SEEDED, WORKLOAD), withdrawn=2)
    assert (total.clients, len(batches)) == (("clinic-b", "clinic-c"), 1)
