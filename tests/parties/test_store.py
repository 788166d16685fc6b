"""The durable store: kill -9, full disk, wrong folder, idempotence; its ledger is in test_ledger."""

import errno
import gc
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.accounting import ExponentialEvent, LedgerEntry
from parties.foundation.errors import RunClosed, RunFull, StoreError, SubmissionConflict
from parties.mpc.exclusion import Exclusion
from parties.mpc.records import Checkpoint, ParticipantRecord, RunningTotal
from parties.mpc.storage import incoming
from parties.mpc.storage.incoming import OutgoingUpload
from parties.mpc.storage.outbox import DeliveryStatus
from parties.mpc.storage.store import Store
from parties.mpc.submission.messages import Submission
from parties.mpc.submission.sealed_upload import ServerReceipt
from parties.storage import database
from parties.storage.privacy_ledger import DurableLedger
from protocols.ring import R64
from protocols.shares import Share
from tests.parties.support import (
    bodies_in,
    file_size_limit,
    make_submission,
    make_total,
    make_upload,
)

PID = 0
CONFIG = "c0" * 32
COMPONENTS = ("aa" * 32, "bb" * 32)


@pytest.fixture
def large_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every body is kept in a file."""
    monkeypatch.setattr(incoming, "SMALL_BYTES", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "party-0", CONFIG) as opened:
        yield opened


def files_of(store: Store, folder: str) -> list[str]:
    return sorted(path.name for path in (store.directory / folder).iterdir())


def put(
    store: Store,
    submission: Submission,
    body: bytes,
    limit: int = 3,
    *,
    sealed: str = "",
    outgoing: Sequence[int] = (),
) -> bool:
    """Store a body, of the upload whose common part has the digest of `sealed`, and what is to be passed on."""
    upload = make_upload(submission, sealed)
    with store.submissions.incoming() as part, store.submissions.incoming() as whole:
        part.write(body)
        whole.write(b"sealed: " + body)
        kept = OutgoingUpload(whole, outgoing) if outgoing else None
        return store.submissions.accept(upload, part, COMPONENTS, limit=limit, outgoing=kept)


def set_many(store: Store, count: int) -> None:
    for number in range(count):
        store.set_meta(f"key {number}", "value")


def make_checkpoint(round: int = 1, candidate: int = 2, shift: float = 0.0) -> Checkpoint:
    return Checkpoint(round, candidate, 20.5, 3, np.array([1.5, -2.25, 0.1]) + shift)


# Opening


def test_store_keeps_everything_when_it_is_opened_again(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "party-0"
    total = make_total(
        2, ("a", "b"), np.arange(5, dtype=np.uint32), np.full(5, 2**32 - 1, np.uint32)
    )
    with Store(folder, CONFIG) as first:
        put(first, make_submission("clinic-a"), b"one")
        first.totals.save(total)
        first.releases.save_checkpoint(make_checkpoint())
        DurableLedger(first, 1.0).charge(1, "select", ExponentialEvent(1.0))
        first.traffic.add("clinic-a", received=10, sent=3)
        first.traffic.add("clinic-a", received=1, sent=1)
        first.set_meta("phase", "rounds")
        first.state.close_to_clients()
    with Store(folder, CONFIG) as again:
        stored = again.submissions.all()
        assert [item.submission for item in stored] == [make_submission("clinic-a")]
        assert (stored[0].size, stored[0].own_digest, stored[0].next_digest) == (3, *COMPONENTS)
        assert again.submissions.read("clinic-a") == b"one"
        upload = make_upload(make_submission("clinic-a"))
        assert (stored[0].upload, again.submissions.upload("clinic-a")) == (
            upload.upload.digest(),
            upload,
        )
        assert again.submissions.upload_digest("clinic-a") == upload.upload.digest()
        assert (
            again.submissions.upload_digest("clinic-b"),
            again.submissions.upload("clinic-b"),
        ) == (None, None)
        loaded = again.totals.load(2, PID)
        assert loaded.clients == total.clients
        np.testing.assert_array_equal(loaded.share.own, total.share.own)
        np.testing.assert_array_equal(loaded.share.next, total.share.next)
        assert [item.to_dict() for item in again.releases.checkpoints()] == [
            make_checkpoint().to_dict()
        ]
        assert DurableLedger(again).entries == [
            LedgerEntry(1, "select", ExponentialEvent(1.0), 0.125)
        ]
        assert again.traffic.by_client() == {"clinic-a": (2, 11, 4)}
        assert again.meta("phase") == "rounds"
        assert again.state.closed_to_clients


def test_store_refuses_a_folder_in_use_or_of_another_run(tmp_path: Path) -> None:
    with (
        Store(tmp_path / "s", CONFIG),
        pytest.raises(StoreError, match="in use by another process"),
    ):
        Store(tmp_path / "s", CONFIG)
    with pytest.raises(StoreError, match="another run or configuration"):
        Store(tmp_path / "s", "d1" * 32)
    Store(tmp_path / "s", CONFIG).close()


def test_store_refuses_an_unusable_folder_or_database(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened: Not a directory") as caught:
        Store(tmp_path / "file" / "s", CONFIG)
    assert caught.value.path == tmp_path / "file" / "s"
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "store.sqlite").write_bytes(b"not a database, but long enough" * 100)
    with pytest.raises(StoreError, match=r"store\.sqlite: cannot be opened: .*not a database"):
        Store(tmp_path / "s", CONFIG)
    # The refusal lets go of the folder.
    (tmp_path / "s" / "store.sqlite").unlink()
    Store(tmp_path / "s", CONFIG).close()


def test_store_sweeps_what_a_kill_left_behind(tmp_path: Path) -> None:
    with Store(tmp_path / "s", CONFIG) as store:
        put(store, make_submission("clinic-a"), b"one")
        kept = files_of(store, "submissions")
        for folder in ("incoming", "submissions", "outbox", "totals", "checkpoints"):
            (store.directory / folder / "left-over").write_bytes(b"half")
    with Store(tmp_path / "s", CONFIG) as store:
        assert files_of(store, "submissions") == kept
        for folder in ("incoming", "outbox", "totals", "checkpoints"):
            assert files_of(store, folder) == []


# Submissions


def test_accept_counts_a_client_once(store: Store) -> None:
    first = make_submission("clinic-a")
    assert put(store, first, b"one") is True
    assert put(store, first, b"one") is False
    with pytest.raises(SubmissionConflict, match="clinic-a"):
        put(store, first, b"one", sealed="otherwise")
    with pytest.raises(SubmissionConflict):
        put(store, make_submission("clinic-a", nonce="11" * 16), b"one")
    assert store.submissions.read("clinic-a") == b"one"
    assert len(store.submissions.all()) == 1
    # Digests of shares are for the mesh, not for a log.
    assert not set(COMPONENTS) & set(repr(store.submissions.all()[0]).split("'"))
    assert store.submissions.all()[0].own_digest == COMPONENTS[0]
    assert files_of(store, "incoming") == []


def test_accept_refuses_when_full_or_closed_but_knows_what_it_has(store: Store) -> None:
    for client in ("clinic-a", "clinic-b"):
        put(store, make_submission(client), client.encode(), limit=2)
    with pytest.raises(RunFull, match="2 expected clients"):
        put(store, make_submission("clinic-c"), b"three", limit=2)
    store.state.close_to_clients()
    with pytest.raises(RunClosed):
        put(store, make_submission("clinic-c"), b"three", limit=9)
    assert put(store, make_submission("clinic-a"), b"clinic-a", limit=2) is False
    assert [item.submission.client for item in store.submissions.all()] == ["clinic-a", "clinic-b"]


def test_page_is_in_client_order_up_to_a_round(store: Store) -> None:
    for client, number in (("clinic-c", 1), ("clinic-a", 3), ("clinic-b", 2)):
        put(store, make_submission(client, first_round=number), b"x")
    pages = [store.submissions.page(number, "") for number in (0, 1, 2, 3)]
    assert {page.upto for page in pages} == {None}
    names = [[item.submission.client for item in page.submissions] for page in pages]
    assert names == [
        [],
        ["clinic-c"],
        ["clinic-b", "clinic-c"],
        ["clinic-a", "clinic-b", "clinic-c"],
    ]


def test_submissions_that_come_between_two_looks_are_seen(store: Store) -> None:
    seen = []
    for client in ("clinic-c", "clinic-a", "clinic-b"):
        put(store, make_submission(client), b"x")
        seen.append([item.submission.client for item in store.submissions.all()])
    assert seen == [
        ["clinic-c"],
        ["clinic-a", "clinic-c"],
        ["clinic-a", "clinic-b", "clinic-c"],
    ]


def test_discard_shares_leaves_no_body_that_was_on_its_way_in(store: Store) -> None:
    """It was opened, and the run ended before it was taken; a kill now must leave none."""
    with store.submissions.incoming() as body:
        body.write(b"a share")
        store.discard_shares()
        assert files_of(store, "incoming") == []


def test_add_traffic_leaves_the_next_entry_durable_on_return(store: Store) -> None:
    def synchronous() -> int:
        return int(store._db.execute("PRAGMA synchronous").fetchone()[0])

    before = synchronous()
    store.traffic.add("clinic-a", received=1, sent=1)
    assert synchronous() == before == 2, "2 is FULL"


def test_clients_whose_names_differ_in_case_are_two(store: Store) -> None:
    put(store, make_submission("clinic"), b"lower")
    put(store, make_submission("CLINIC"), b"upper")
    assert (store.submissions.read("clinic"), store.submissions.read("CLINIC")) == (
        b"lower",
        b"upper",
    )


@pytest.mark.parametrize("name", ["submissions", "totals", "checkpoints"])
def test_reading_refuses_damaged_files(store: Store, name: str, large_bodies: None) -> None:
    put(store, make_submission("clinic-a"), b"one")
    store.totals.save(make_total(1, (), np.ones(9, np.uint32)))
    store.releases.save_checkpoint(make_checkpoint())
    read: dict[str, Callable[[], object]] = {
        "submissions": lambda: store.submissions.read("clinic-a"),
        "totals": lambda: store.totals.load(1, PID),
        "checkpoints": store.releases.checkpoints,
    }
    read[name]()
    (path,) = (store.directory / name).iterdir()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"):
        read[name]()
    path.unlink()
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        read[name]()


def test_reading_refuses_what_is_not_there(store: Store) -> None:
    with pytest.raises(StoreError, match=r"holds no .* of client 'clinic-a'"):
        store.submissions.read("clinic-a")
    with pytest.raises(StoreError, match="no running total of round 4"):
        store.totals.load(4, PID)


# What is passed on

RECEIPT = ServerReceipt("party-1", b"key", b"signature")


def digest(client: str) -> str:
    return make_upload(make_submission(client)).upload.digest()


def test_outbox_keeps_an_upload_until_nobody_waits_for_it(store: Store) -> None:
    outbox = store.outbox
    for client in ("clinic-b", "clinic-a"):
        put(store, make_submission(client), client.encode(), outgoing=(1, 2))
    assert outbox.waiting(1) == outbox.waiting(2) == ["clinic-b", "clinic-a"]
    assert outbox.content("clinic-a") == b"sealed: clinic-a"
    assert outbox.delivery_status("clinic-a") == DeliveryStatus({}, (1, 2), {})
    outbox.delivered("clinic-a", 1, RECEIPT, upload=digest("clinic-a"), sent=10, received=3)
    assert outbox.waiting(1) == ["clinic-b"]
    assert outbox.content("clinic-a") == b"sealed: clinic-a"
    outbox.delivered("clinic-a", 2, RECEIPT, upload=digest("clinic-a"), sent=20, received=4)
    assert outbox.content("clinic-a") is None
    assert outbox.delivery_status("clinic-a") == DeliveryStatus({1: RECEIPT, 2: RECEIPT}, (), {})
    outbox.refused("clinic-b", 1, "no", upload=digest("clinic-b"))
    outbox.delivered("clinic-b", 2, RECEIPT, upload=digest("clinic-b"), sent=20, received=4)
    assert outbox.delivery_status("clinic-b") == DeliveryStatus({2: RECEIPT}, (), {1: "no"})
    assert outbox.waiting(1) == outbox.waiting(2) == []
    assert outbox.passed_on() == (50, 11)
    assert bodies_in(store.directory, "outbox") == []


def test_outbox_takes_an_upload_again_that_was_refused(store: Store) -> None:
    put(store, make_submission(), b"one", outgoing=(1, 2))
    outbox = store.outbox
    outbox.refused("clinic-a", 1, "no", upload=digest("clinic-a"))
    assert put(store, make_submission(), b"one", outgoing=(1,)) is False
    assert outbox.delivery_status("clinic-a") == DeliveryStatus({}, (1, 2), {})
    assert outbox.content("clinic-a") == b"sealed: one"


def test_outbox_is_there_when_the_store_is_opened_again(tmp_path: Path, large_bodies: None) -> None:
    with Store(tmp_path / "s", CONFIG) as store:
        put(store, make_submission("clinic-a"), b"one", outgoing=(1, 2))
        put(store, make_submission("clinic-b"), b"two", outgoing=(1, 2))
        store.outbox.delivered(
            "clinic-b", 2, RECEIPT, upload=digest("clinic-b"), sent=1, received=1
        )
        (store.directory / "outbox" / "left-over").write_bytes(b"half")
    with Store(tmp_path / "s", CONFIG) as store:
        assert store.outbox.waiting(1) == ["clinic-a", "clinic-b"]
        assert store.outbox.waiting(2) == ["clinic-a"]
        assert len(files_of(store, "outbox")) == 2
        # Its last delivery was not on the disk when the power failed; that its file is gone says that it was.
        for path in (store.directory / "outbox").iterdir():
            path.unlink()
    with Store(tmp_path / "s", CONFIG) as store:
        assert store.outbox.waiting(1) == store.outbox.waiting(2) == []
        assert store.submissions.read("clinic-a") == b"one"


# Full disk


def test_accept_stores_nothing_when_the_disk_is_full(store: Store) -> None:
    with file_size_limit(200_000):
        with pytest.raises(
            StoreError, match="File too large; expected a writable folder with free"
        ):
            put(store, make_submission("clinic-a"), bytes(300_000))
        assert put(store, make_submission("clinic-b"), b"small") is True
    assert [item.submission.client for item in store.submissions.all()] == ["clinic-b"]
    assert files_of(store, "incoming") == []
    assert len(bodies_in(store.directory, "submissions")) == 1
    assert put(store, make_submission("clinic-a"), bytes(300_000)) is True


def test_store_stays_as_it_was_when_the_database_cannot_grow(store: Store) -> None:
    put(store, make_submission("clinic-a"), b"one")
    size = max((store.directory / f"store.sqlite{end}").stat().st_size for end in ("", "-wal"))
    with file_size_limit(size):
        with pytest.raises(StoreError, match=r"store\.sqlite: cannot be written"):
            set_many(store, 1000)
        for body in (b"two", bytes(incoming.SMALL_BYTES + 1)):
            with pytest.raises(StoreError, match=r"store\.sqlite: cannot be written"):
                put(store, make_submission("clinic-b"), body)
        # A large body's file had its place already when the row was refused.
        assert len(bodies_in(store.directory, "submissions")) == 1
    assert store.submissions.count() == 1
    store.set_meta("key", "value")
    assert store.meta("key") == "value"
    assert put(store, make_submission("clinic-b"), b"two") is True


# Totals and checkpoints


def test_save_total_keeps_the_last_two_rounds(store: Store) -> None:
    for number in range(4):
        vector = np.full(3, number, np.uint32)
        store.totals.save(make_total(number, (f"client-{number}",), vector))
    assert store.totals.rounds() == [2, 3]
    assert len(files_of(store, "totals")) == 2
    again = np.full(3, 99, np.uint32)
    store.totals.save(make_total(3, ("other",), again))
    assert store.totals.load(3, PID).share.own.tolist() == [99, 99, 99]
    assert store.totals.load(2, PID).share.own.tolist() == [2, 2, 2]


def test_save_standings_keeps_the_last_ones(store: Store) -> None:
    first = ParticipantRecord("a", "1" * 64, 0)
    assert store.records.all() == []
    store.records.save([ParticipantRecord("b", "2" * 64, 1), first])
    assert store.records.all() == [first, ParticipantRecord("b", "2" * 64, 1)]
    out = ParticipantRecord("b", "2" * 64, 2, Exclusion.COMPONENTS_DIFFER, (0, 2))
    store.records.save([out])
    assert store.records.all() == [out]
    assert (store.records.find("b"), store.records.find("a")) == (out, None)


def test_commitment_depends_on_the_key_and_on_all_of_a_total(store: Store) -> None:
    key, one = store.totals.commitment_key(), np.ones(3, np.uint32)
    assert store.totals.commitment_key() == key
    totals = [
        make_total(1, ("a", "b"), one),
        make_total(2, ("a", "b"), one),
        make_total(1, ("a",), one),
        make_total(1, ("a", "b"), one, 2 * one),
        make_total(1, ("a", "b"), 2 * one, one),
    ]
    commitments = {total.commitment(key) for total in totals} | {totals[0].commitment(bytes(32))}
    assert len(commitments) == 6
    assert make_total(1, ("a", "b"), one.copy()).commitment(key) == totals[0].commitment(key)


def test_total_is_checked_and_shows_no_shares() -> None:
    vector = np.array([123456789], np.uint32)
    assert "123456789" not in repr(make_total(1, ("a",), vector))
    with pytest.raises(TypeError, match="one shape and type"):
        make_total(1, (), vector, vector.astype(np.int64))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one shape and type"):
        make_total(1, (), vector, np.zeros(2, np.uint32))
    with pytest.raises(ValueError, match="vector of counts"):
        make_total(1, (), vector.reshape(1, 1))
    with pytest.raises(ValueError, match="vector of counts"):
        RunningTotal(1, Share(R64, PID, R64.zeros((2,)), R64.zeros((2,))))


def test_save_checkpoint_is_idempotent_and_refuses_contradictions(store: Store) -> None:
    for candidate in (5, 2):
        store.releases.save_checkpoint(make_checkpoint(0, candidate))
    for checkpoint in (make_checkpoint(1), make_checkpoint(0, 2), make_checkpoint(1)):
        store.releases.save_checkpoint(checkpoint)
    assert [(item.round, item.candidate) for item in store.releases.checkpoints()] == [
        (0, 5),
        (0, 2),
        (1, 2),
    ]
    with pytest.raises(StoreError, match="round 1, candidate 2 is stored with another"):
        store.releases.save_checkpoint(make_checkpoint(1, shift=1.0))
    with pytest.raises(StoreError, match="servers disagree"):
        store.releases.save_checkpoint(Checkpoint(1, 2, 20.5, 4, make_checkpoint().noisy))
    assert len(store.releases.checkpoints()) == 3
    store.releases.drop_checkpoint(1, 2)
    store.releases.save_checkpoint(make_checkpoint(1, shift=1.0))
    assert len(store.releases.checkpoints()) == 3


@given(noisy=st.lists(st.floats(allow_nan=False), max_size=5), sigma=st.floats(0.1, 1e6))
def test_checkpoint_survives_json_exactly(noisy: list[float], sigma: float) -> None:
    item = Checkpoint(3, 4, sigma, 5, np.array(noisy, dtype=np.float64))
    again = Checkpoint.from_dict(json.loads(json.dumps(item.to_dict())))
    assert again.to_dict() == item.to_dict()
    np.testing.assert_array_equal(again.noisy, item.noisy)


@pytest.mark.parametrize(
    "change",
    [
        {"round": -1},
        {"round": True},
        {"candidate": "2"},
        {"clients": 1.5},
        {"sigma": None},
        {"noisy": "?"},
        {"noisy": "AAAA"},
        {"noisy": [1.0]},
        {"extra": 1},
    ],
)
def test_checkpoint_from_dict_refuses_other_contents(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"checkpoint|base64|buffer"):
        Checkpoint.from_dict({**make_checkpoint().to_dict(), **change})


def test_files_of_a_store_are_its_owners_alone(store: Store, large_bodies: None) -> None:
    put(store, make_submission("clinic-a"), b"one", outgoing=(1,))
    store.totals.save(make_total(1, (), np.ones(9, np.uint32)))
    store.releases.save_checkpoint(make_checkpoint())
    with store.submissions.incoming() as body:
        body.write(b"on its way")
        found = [path for path in store.directory.rglob("*") if path.name != "lock"]
        files = {path.relative_to(store.directory).parts[0] for path in found if path.is_file()}
        assert files >= {
            "incoming",
            "submissions",
            "outbox",
            "totals",
            "checkpoints",
            "store.sqlite",
        }
        assert [path.name for path in found if path.stat().st_mode & 0o077] == []


# kill -9

WRITER = """
import sys
import numpy as np
from pathlib import Path
from parties.mpc.records import Checkpoint
from parties.mpc.storage.outbox import Outbox
from parties.mpc.submission.sealed_upload import ServerReceipt
from parties.mpc.storage.incoming import OutgoingUpload
from parties.mpc.storage.store import Store
from parties.storage.privacy_ledger import DurableLedger
from mechanisms.events import ExponentialEvent
from tests.parties.support import make_submission, make_total, make_upload

with Store(Path(sys.argv[1]), "c0" * 32) as store:
    ledger = DurableLedger(store, 1.0)
    for number in range(100000):
        ledger.charge(number, "select", ExponentialEvent(1e-3))
        vector = np.full(20000, number, np.uint32)
        store.totals.save(make_total(number, (), vector))
        store.releases.save_checkpoint(Checkpoint(number, 0, 1.0, 1, np.full(500, float(number))))
        name = f"client-{number}"
        upload = make_upload(make_submission(name))
        with store.submissions.incoming() as body, store.submissions.incoming() as whole:
            # Some are small, and kept in the database; others are not.
            copies = 10000 if number % 3 else 500
            body.write(name.encode() * copies)
            whole.write(b"sealed: " + name.encode() * copies)
            kept = OutgoingUpload(whole, (1, 2))
            store.submissions.accept(upload, body, ("a", "b"), limit=10**6, outgoing=kept)
        if number % 2:
            for pid in (1, 2):
                receipt = ServerReceipt(f"party-{pid}", b"key", b"signature")
                store.outbox.delivered(
                    name, pid, receipt, upload=upload.upload.digest(), sent=1, received=1
                )
        print(number, flush=True)
"""


def copies(name: str) -> int:
    """Of its name in a body of the writer above."""
    return 10000 if int(name.removeprefix("client-")) % 3 else 500


def test_store_holds_all_that_it_confirmed_after_kill_9(tmp_path: Path) -> None:
    folder = tmp_path / "party-0"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert writer.stdout is not None
    confirmed = -1
    for line in writer.stdout:
        confirmed = int(line)
        if confirmed == 25:
            break
    os.kill(writer.pid, signal.SIGKILL)
    confirmed = max([confirmed, *(int(line) for line in writer.stdout.read().split())])
    writer.stdout.close()
    writer.wait()
    assert confirmed >= 25
    with Store(folder, CONFIG) as store:
        # Nothing confirmed is missing; at most the one write that was under way is there besides.
        assert confirmed + 1 <= len(DurableLedger(store).entries) <= confirmed + 2
        assert confirmed + 1 <= len(store.releases.checkpoints()) <= confirmed + 2
        for item in store.releases.checkpoints():
            assert (item.noisy == item.round).all()
        last = store.totals.rounds()[-1]
        assert last in (confirmed, confirmed + 1)
        assert (store.totals.load(last, PID).share.own == last).all()
        stored = store.submissions.all()
        assert confirmed + 1 <= len(stored) <= confirmed + 2
        for record in stored:
            name = record.submission.client
            assert store.submissions.read(name) == name.encode() * copies(name)
        assert len(bodies_in(store.directory, "submissions")) == len(stored)
        # What was accepted is passed on, or waits with all that is to be passed on; nothing else is there.
        outbox = store.outbox
        waiting = set(outbox.waiting(1)) | set(outbox.waiting(2))
        assert len(bodies_in(store.directory, "outbox")) == len(waiting)
        for record in stored:
            client = record.submission.client
            standing = outbox.delivery_status(client)
            assert {*standing.receipts, *standing.kept_for} == {1, 2}
            if client in waiting:
                assert outbox.content(client) == b"sealed: " + client.encode() * copies(client)


def test_what_is_accepted_at_the_same_time_shares_a_write_to_the_disk_that_all_wait_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 24 threads has its answer after a write that began when its row was there."""
    written: list[int] = []
    real = database.sync_content

    def slow(path: Path) -> None:
        there = store.submissions.count()
        time.sleep(0.05)  # Sleeps: slow.
        real(path)
        written.append(there)

    monkeypatch.setattr(database, "sync_content", slow)

    def accept(number: int) -> bool:
        put(store, make_submission(f"clinic-{number}"), b"one", limit=100)
        (row,) = store.rows("SELECT rowid FROM submission WHERE client = ?", f"clinic-{number}")
        return max(written) >= row[0]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(accept, range(24)))
    # Without sharing it is 24; how many come together hangs on how busy the machine is.
    found = len(written)
    assert found <= 18
    store.flush()  # There is nothing more to write.
    assert len(written) == found


def test_nothing_is_accepted_that_the_disk_did_not_confirm(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor has whoever sends it again a receipt for what is in no disk's hands."""

    def broken(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(database, "sync_content", broken)
        for _ in range(2):
            with pytest.raises(StoreError, match="Input/output error"):
                put(store, make_submission("clinic-a"), b"one")
    assert put(store, make_submission("clinic-a"), b"one") is False


def test_store_is_synchronous(store: Store) -> None:
    """A kill does not lose what the kernel has; only this setting makes a power cut lose nothing either."""
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_submissions_take_a_few_hundred_bytes_of_memory_for_each_owner(tmp_path: Path) -> None:
    owners = 100
    with Store(tmp_path / "s", CONFIG) as store:
        for number in range(owners):
            put(store, make_submission(f"owner-{number}"), b"one", limit=owners)
        store.submissions.count()
        gc.collect()
        tracemalloc.start()
        try:
            stored = store.submissions.all()
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(stored) == owners
    assert held < 800 * owners
