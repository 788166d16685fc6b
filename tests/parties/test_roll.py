"""Participants are read page by page, and a server's memory does not grow with its owners."""

import asyncio
import contextlib
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

import parties.mpc.participants.admission
import parties.mpc.participants.listing
import parties.mpc.storage.queries
import parties.storage.database
from parties.identity.signing import Issuer
from parties.mpc.exclusion import Exclusion
from parties.mpc.inputs.counts import Counts
from parties.mpc.participants.finalized import Finalized
from parties.mpc.participants.listing import (
    MAX_PENDING_VERSIONS,
    ListedUpload,
    Listing,
    WithdrawalScope,
)
from parties.mpc.participants.registry import RegistryEntry
from parties.mpc.participants.sync import SyncPage, sync_participants
from parties.mpc.participants.waiting_text import WaitStatus
from parties.mpc.records import ParticipantRecord, StoredSubmission
from parties.mpc.replay.effects import Effects
from parties.mpc.storage.store import Store
from parties.session.operator_commands import CommandSet
from protocols.context import Context
from protocols.errors import ProtocolViolation
from protocols.upload import PLAIN
from tests.parties.support import make_arrivals, make_config, make_submission, make_upload
from tests.protocols.local import LocalMesh, LocalParty, run_parties

SMALL = 10
CONFIG = make_config({"clients.expected": 5_000, "clients.minimum": 1, "clients.wait_s": 86_400.0})
WORKLOAD = CONFIG.build_workload()
NOBODY = cast(Issuer, None)
WHOSE = WithdrawalScope("trial", "ef" * 32, NOBODY)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store", "c0" * 32) as store:
        yield store


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten uploads a page."""
    for module in (parties.mpc.participants.listing, parties.mpc.storage.queries):
        monkeypatch.setattr(module, "MAX_PAGE_UPLOADS", SMALL)
    monkeypatch.setattr("parties.mpc.participants.registry._PAGE_ROWS", SMALL)


def put(store: Store, client: str, *, version: int = 1, form: str = PLAIN) -> None:
    """An upload that holds zeros alone, of which all components are the same."""
    submission = make_submission(client, version=version, form=form, nonce=f"{version:032x}")
    with store.submissions.incoming() as body:
        body.write(bytes(16 * WORKLOAD.maximal_cells))
        store.submissions.accept(make_upload(submission), body, ("ab" * 32,) * 2, limit=5_000)


def names(submissions: Sequence[StoredSubmission]) -> list[str]:
    return [stored.submission.client for stored in submissions]


def owner(number: int) -> str:
    return f"owner-{number:04d}"


# The roll


def test_roll_keeps_members_in_the_order_of_the_total_over_pages(
    store: Store, small_pages: None
) -> None:
    roll = store.registry
    roll.begin([("z", "11" * 32), ("a", "22" * 32)], {"z": 1}, 3)
    late = [owner(number) for number in range(3 * SMALL, 0, -1)]
    for client in late:
        put(store, client)
    by_name = {s.submission.client: s for s in store.submissions.all()}
    roll.count([by_name[client] for client in late], "plain", 4)
    assert [client for client, _ in roll.members] == ["z", "a", *late] == [*roll.members.names]
    assert (len(roll.members), ("a", "22" * 32) in roll.members) == (3 * SMALL + 2, True)
    rounds = {standing.client: standing.round for standing in roll.records()}
    assert (rounds["z"], rounds["a"], rounds[late[0]]) == (1, 3, 4)
    assert [*rounds] == sorted(["z", "a", *late])


def test_roll_tells_who_is_held_counted_excluded_and_gone(store: Store) -> None:
    roll = store.registry
    roll.begin([], {}, 0)
    for client in "abcd":
        put(store, client)
    a, b, c, d = store.submissions.all()
    roll.hold([a, b], "rows")
    assert roll.held_by_kind() == [("rows", 2, 200)]
    roll.count([c], "rows", 1)
    out = ParticipantRecord("d", d.upload, 1, Exclusion.OUT_OF_BOUNDS, (1, 2))
    roll.exclude([(out, 1)])
    assert (roll.held, roll.counted, roll.known) == (2, 1, 4)
    assert roll.find(["c", "d", "x"]) == {
        "c": RegistryEntry("c", 1, c.upload, True, None),
        "d": RegistryEntry("d", 1, d.upload, False, Exclusion.OUT_OF_BOUNDS),
    }
    # Who is held is not decided on.
    assert roll.settled("abcdx") == {"c": 1, "d": 1}
    assert list(roll.records()) == [ParticipantRecord("c", c.upload, 1), out]
    roll.end("c", 2)
    roll.end("c", 1)
    assert roll.settled("c") == {"c": 2}
    roll.release()
    roll.drop(["c"])
    assert (roll.held, roll.counted, roll.known, len(roll.members)) == (0, 0, 1, 0)
    roll.begin([], {}, 0)
    assert (roll.known, roll.settled("c")) == (0, {})


# Pages


def pages_of(store: Store, revoked: Sequence[str] = ()) -> list[list[tuple[str, int]]]:
    found, after = [], ""
    while True:
        page = store.submissions.page(1, after, revoked)
        found.append([(s.submission.client, s.submission.version) for s in page.submissions])
        if page.upto is None:
            return found
        assert page.upto > after
        after = page.upto


def test_pages_have_everybody_once_and_all_versions_of_a_client_together(
    store: Store, small_pages: None
) -> None:
    for number in range(2 * SMALL):
        for version in range(1, 1 + (4 if number % 3 == 0 else 1)):
            put(store, owner(number), version=version)
    pages = pages_of(store)
    assert max(map(len, pages)) <= SMALL
    whole = [item for page in pages for item in page]
    assert whole == [(s.submission.client, s.submission.version) for s in store.submissions.all()]
    for number in range(2 * SMALL):
        assert sum(any(client == owner(number) for client, _ in page) for page in pages) == 1
    # As many as a page has, and none after them.
    assert [len(page) for page in pages[:-1]] >= [SMALL - MAX_PENDING_VERSIONS] * (len(pages) - 1)


def test_page_leaves_out_what_is_held_decided_revoked_or_comes_too_late(store: Store) -> None:
    """Of who is counted for good it has the upload that is, where the total lacks it, and nothing else."""
    for client in "abcdefg":
        put(store, client)
    put(store, "a", version=2)
    put(store, "b", version=2)
    put(store, "f", version=2)
    by_name = {(s.submission.client, s.submission.version): s for s in store.submissions.all()}
    store.registry.begin([("e", by_name["e", 1].upload)], {}, 0)
    store.registry.hold([by_name["a", 2]], "plain")
    store.registry.count([by_name["b", 1]], "plain", 0)
    finals = [Finalized(c, by_name[c, 1].upload, 0) for c in "efg"]
    store.finalized.save_finalized(finals)
    assert pages_of(store, "cg") == [[("b", 2), ("d", 1), ("f", 1), ("g", 1)]]
    assert store.finalized.unregistered("", None) == {c: by_name[c, 1].upload for c in "fg"}
    assert store.finalized.unregistered("f", None).keys() == {"g"}
    assert store.finalized.unregistered("", "f").keys() == {"f"}
    assert store.submissions.page(0, "").submissions == ()


# What servers say to one another


def lists(clients: Sequence[str], **changes: object) -> Listing:
    uploads = frozenset(ListedUpload(client, "ab" * 32, 1) for client in clients)
    return replace(Listing(True, uploads), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (lists(["b"]), "out of their order"),
        (lists(["a"]), "out of their order"),
        (lists([f"c{n}" for n in range(SMALL)], upto="c8"), "out of their order"),
        (lists(["c"], upto="c"), "too early"),
        (lists([], upto="z"), "too early"),
        (lists([f"c{n}" for n in range(SMALL)], upto="no name"), "too early"),
        (lists([f"c{n}" for n in range(SMALL + 1)]), "malformed"),
    ],
)
def test_listing_refuses_a_page_that_no_server_makes(
    small_pages: None, said: Listing, problem: str
) -> None:
    """The clients behind "b": a page with others, with too many, or one of few that others would follow."""
    with pytest.raises(ProtocolViolation, match=problem):
        Listing.parse(said.to_bytes(), 1, WHOSE, "b")
    whole = lists([f"c{n}" for n in range(SMALL)], upto="c9")
    assert Listing.parse(whole.to_bytes(), 1, WHOSE, "b") == whole


@pytest.mark.usefixtures("small_pages")
def test_roll_call_ends_each_page_where_the_first_of_the_three_does(tmp_path: Path) -> None:
    """The servers hold 40, 20 and 4 owners, in part the same ones; each page is of the same clients at all three."""
    there = [range(40), range(0, 40, 2), range(3, 40, 10)]

    async def party(ctx: Context) -> list[tuple[str, str | None, list[list[str]]]]:
        with Store(tmp_path / str(ctx.pid), "c0" * 32) as store:
            for number in there[ctx.pid]:
                put(store, owner(number))
            return [
                (
                    heard.after,
                    heard.upto,
                    [sorted(item.client for item in one.uploads) for one in heard.listings],
                )
                async for heard in called(ctx, store)
            ]

    first, second, third = run_parties(party).results
    assert first == second == third
    assert (first[0][0], first[-1][1], len(first)) == ("", None, 5)
    for pid in range(3):
        listed = [client for _, _, lists in first for client in lists[pid]]
        assert listed == [owner(number) for number in there[pid]]
    for after, upto, lists in first:
        assert all(after < client <= (upto or client) for one in lists for client in one)


def called(ctx: Context, store: Store) -> AsyncIterator[SyncPage]:
    return sync_participants(
        ctx,
        store.submissions,
        WHOSE,
        0,
        up_to_round=1,
        ready=True,
        commands=CommandSet(),
        expected=5_000,
    )


# Memory


class ForgetfulMesh(LocalMesh):
    """Keeps none of what went through it."""

    def slot(self, sender: int, receiver: int, label: int) -> "asyncio.Future[object]":  # type: ignore[override]
        self.sent.clear()
        return super().slot(sender, receiver, label)  # type: ignore[return-value]


class Worked(Counts):
    """Counts as a form whose servers work for every batch, of which no batch here is full."""

    @property
    def by_capacity(self) -> bool:
        return True


async def counting(ctx: Context, store: Store, form: Counts, watch: "Watched") -> None:
    """A server that counts in who comes, until the test is over."""
    await make_arrivals(
        ctx,
        CONFIG,
        Effects().participants(store),
        {PLAIN: form},
        WORKLOAD.maximal_cells,
        on_waiting=lambda state: watch.hear(ctx.pid, state),
    ).admit(0)


class Watched:
    """Numbers of owners that each server has counted, or holds."""

    def __init__(self) -> None:
        self.complete = [0, 0, 0]
        self._changed = asyncio.Event()

    def hear(self, pid: int, state: WaitStatus) -> None:
        self.complete[pid] = state.complete
        self._changed.set()

    async def until(self, owners: int) -> None:
        async with asyncio.timeout(120):
            while self.complete != [owners] * 3:
                self._changed.clear()
                await self._changed.wait()


def traced_bytes() -> int:
    """Of what the servers' code allocated, and the JSON that it read: not of source lines that a log may look up."""
    gc.collect()
    places = [tracemalloc.Filter(True, place) for place in ("*/parties/*", "*/json/*")]
    found = tracemalloc.take_snapshot().filter_traces(places)
    return sum(trace.size for trace in found.traces)


async def least_traced() -> int:
    """The least of some looks: a worker thread lets go of its last batch when it has a turn."""
    found = []
    for _ in range(4):
        found.append(traced_bytes())
        await asyncio.sleep(0.05)
    return min(found)


@pytest.mark.parametrize(
    "form", [Counts(PLAIN, WORKLOAD), Worked(PLAIN, WORKLOAD)], ids=["counted", "held"]
)
async def test_memory_does_not_grow_with_the_owners_that_are_counted_or_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Counts
) -> None:
    """From 400 to 800 owners three servers grow by less than 60 bytes an owner and server, of Python's memory.

    An upload's record alone takes 700 bytes, as a test within this one sees.
    """
    monkeypatch.setattr(parties.storage.database, "sync_content", lambda path: None)
    monkeypatch.setattr(parties.mpc.participants.admission, "_FIRST_SYNC_PAUSE_S", 0.02)
    mesh, watch, grown = ForgetfulMesh(1), Watched(), []
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(Store(tmp_path / str(p), "c0" * 32)) for p in range(3)]
        tasks = [
            asyncio.create_task(
                counting(Context(LocalParty(mesh, p), b"test"), stores[p], form, watch)
            )
            for p in range(3)
        ]
        tracemalloc.start()
        try:
            for number in range(800):
                for store in stores:
                    put(store, owner(number))
                if (number + 1) % 400 == 0:
                    waiting = asyncio.create_task(watch.until(number + 1))
                    await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
                    assert not [task.exception() for task in tasks if task.done()]
                    await waiting
                    grown.append(await least_traced())
            kept = stores[0].submissions.all()
            grown.append(traced_bytes())
            assert len(kept) == 800
        finally:
            tracemalloc.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    first, second, with_kept = grown
    assert (second - first) / (3 * 400) < 60
    assert (with_kept - second) / 800 > 500
