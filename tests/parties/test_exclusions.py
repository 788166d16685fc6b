"""Excluded owners: the evidence that servers need to exclude an owner, and the lies that are seen."""

import asyncio
import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parties.mpc.inputs.counts
import parties.mpc.server
from mechanisms.workload import Workload, count_marginals
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from parties.identity.signing import Issuer
from parties.mpc.exclusion import Exclusion
from parties.mpc.participants import consistency
from parties.mpc.participants.consistency import Accusation, compare_components
from parties.mpc.participants.listing import (
    IncompleteSubmission,
    ListedUpload,
    Listing,
    WithdrawalScope,
    find_incomplete,
)
from parties.mpc.records import ParticipantRecord, StoredSubmission, status_answer
from parties.mpc.storage.store import Store
from parties.mpc.transcript_schema import ACCUSED
from protocols.context import Context
from protocols.echo import DIGEST_BYTES
from protocols.errors import ProtocolViolation
from tests.parties import support
from tests.parties.audit_runs import collect, copy_run
from tests.parties.mesh import EVERYONE, Cluster, make_uniform
from tests.parties.support import make_config, make_submission
from tests.parties.tampering import Forger, dropping, failed, setting
from tests.protocols.local import Outcome, run_parties

CLIENTS = EVERYONE[:2]
WAITING = {"counted": False, "round": None, "excluded": None}
ECHO_BYTES = 3 * DIGEST_BYTES
Digests = Mapping[tuple[str, int], str]
"""By client and server: what it says of a component, where that is not what it is."""


def digest(client: str, component: int) -> str:
    return hashlib.sha256(f"{client}/{component}".encode()).hexdigest()


def held(pid: int, lies: Digests, component: int) -> list[StoredSubmission]:
    """Submissions of everyone at server `pid`; its lies are about `component`."""

    def of(client: str, number: int) -> str:
        lie = lies.get((client, pid)) if number == component else None
        return lie or digest(client, number)

    return [
        StoredSubmission.of(make_submission(c), "", "", of(c, pid), of(c, (pid + 1) % 3), 1, 0.0)
        for c in CLIENTS
    ]


def comparing(lies: Digests, component: int = 2, seed: int = 1) -> Outcome:
    async def party(ctx: Context) -> tuple[Accusation, ...]:
        return await compare_components(ctx, held(ctx.pid, lies, component))

    return run_parties(party, seed=seed)


def test_compare_accuses_nobody_where_all_hold_the_same() -> None:
    outcome = comparing({})
    assert outcome.results == [()] * 3
    assert outcome.rounds == 5


@pytest.mark.parametrize("component", [0, 1, 2])
@pytest.mark.parametrize("before", [False, True], ids=["its own server", "the server before"])
def test_compare_shows_what_both_holders_claim_where_they_differ(
    component: int, before: bool
) -> None:
    """Either of the two has another component, by the owner's fault or its own: both show theirs to all transcripts."""
    holder = (component - before) % 3
    outcome = comparing({(CLIENTS[1], holder): "ab" * 32}, component)
    assert outcome.rounds == 7
    first, *others = outcome.results
    assert others == [first] * 2
    (accusation,) = first
    assert (accusation.client, accusation.by) == (CLIENTS[1], (component,))
    shown = accusation.shown[component]
    assert shown.keys() == {component, (component - 1) % 3}
    assert len(set(shown.values())) == 2


def test_compare_shows_digests_that_say_nothing_without_the_key_of_their_holders() -> None:
    """The same component is shown otherwise under other keys, and never as its plain digest."""
    lies = {(CLIENTS[1], 2): "ab" * 32}
    shown = [comparing(lies, seed=seed).results[0][0].shown[2] for seed in (1, 2)]
    assert shown[0].keys() == shown[1].keys() == {1, 2}
    assert not {*shown[0].values()} & {*shown[1].values(), "ab" * 32, digest(CLIENTS[1], 2)}


def test_compare_ends_where_a_server_accuses_and_shows_what_the_other_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Server 2 drops an owner whose component it holds as server 1 does, without a digest of its own to show."""
    differing = consistency._disputed_components

    async def lying(ctx: Context, batch: Any) -> list[str]:
        found = await differing(ctx, batch)
        return [CLIENTS[0]] if ctx.pid == 2 else found

    monkeypatch.setattr(consistency, "_disputed_components", lying)
    with pytest.raises(ProtocolViolation, match="one of the two has lied"):
        comparing({})


@pytest.mark.parametrize(
    "reply",
    [
        b"[]",
        b"nonsense",
        b'{"clinic-a": "late"}',
        b'{"clinic-a": "out of bounds"}',
        b'{"clinic-a": "incomplete"}',
        b'{"nobody": "components differ"}',
        b'{"clinic-a": 3}',
    ],
)
def test_compare_refuses_exclusions_without_a_reason_that_there_is(
    reply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = Context.exchange

    async def other(self: Context, payload: bytes, **limits: int) -> list[bytes]:
        lies = self.pid == 0 and len(payload) != ECHO_BYTES
        return await exchange(self, reply if lies else payload, **limits)

    monkeypatch.setattr(Context, "exchange", other)
    with pytest.raises(ProtocolViolation, match="excludes clients"):
        comparing({})


@pytest.mark.parametrize("reply", [b"[]", b"{}", b"[null]", b'["ab"]', b'["zz"]', b"3", b"[3]"])
def test_compare_refuses_a_holder_that_does_not_show_its_component(
    reply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, calls = Context.exchange, [0, 0, 0]

    async def other(self: Context, payload: bytes, **limits: int) -> list[bytes]:
        calls[self.pid] += len(payload) != ECHO_BYTES
        lies = self.pid == 1 and calls[1] == 2 and len(payload) != ECHO_BYTES
        return await exchange(self, reply if lies else payload, **limits)

    monkeypatch.setattr(Context, "exchange", other)
    with pytest.raises(ProtocolViolation, match="does not show"):
        comparing({(CLIENTS[0], 2): "ab" * 32})


def test_incomplete_names_the_servers_that_do_not_list_a_submission() -> None:
    a, b = ListedUpload("a", "1" * 64, 1), ListedUpload("b", "2" * 64, 1)
    other = replace(b, digest="3" * 64)
    assert find_incomplete([{a, b}, {a, b}, {a, b}], {a, b}, 3) == {}
    assert find_incomplete([{a}, {a, b}, {b}], set(), 3) == {
        "a": IncompleteSubmission(a.digest, 3, (2,)),
        "b": IncompleteSubmission(b.digest, 3, (0,)),
    }
    assert find_incomplete([{b}, {other}, {other}], set(), 3) == {
        "b": IncompleteSubmission(b.digest, 3, (1, 2)),
    }


RIGHT = ["clinic-a", "ab" * 32, 1, 1]
WHOSE = WithdrawalScope("trial", "ef" * 32, Issuer.load(support.certificates()["clinic-a"].ca))


@pytest.mark.parametrize(
    "clients",
    [
        [["<b>", "ab" * 32, 1, 1]],
        [["c" * 64, "ab" * 32, 1, 1]],
        [["clinic-a", "AB", 1, 1]],
        [["clinic-a", "ab" * 32, True, 1]],
        [["clinic-a", "ab" * 32, 1, True]],
        [["clinic-a", "ab" * 32, 1, 0]],
        [["clinic-a", "ab" * 32, 1]],
        [RIGHT, ["clinic-a", "cd" * 32, 1, 1]],
    ],
)
def test_listing_refuses_clients_that_no_server_can_have_stored(clients: list[object]) -> None:
    """A server's list stands in the reports, as incomplete, on its word alone."""
    listing = Listing(True, frozenset({ListedUpload("clinic-a", "ab" * 32, 1)}))
    asked = {"close": False, "finish": False, "revoked": []}
    said = {"ready": True, "clients": [RIGHT], "withdrawn": [], "asked": asked, "upto": None}
    assert listing.to_bytes() == json.dumps(said).encode()
    assert Listing.parse(listing.to_bytes(), 1, WHOSE) == listing
    with pytest.raises(ProtocolViolation, match="party 1"):
        Listing.parse(json.dumps(said | {"clients": clients}).encode(), 1, WHOSE)
    with pytest.raises(ProtocolViolation, match="not JSON"):
        Listing.parse(b"[" * 60_000, 1, WHOSE)


@pytest.mark.parametrize(
    ("standing", "closed", "answer"),
    [
        (None, False, WAITING),
        (None, True, WAITING),
        (ParticipantRecord("a", "", 2), False, {"counted": True, "round": 2, "excluded": None}),
        (
            ParticipantRecord("a", "", 2, Exclusion.OUT_OF_BOUNDS),
            False,
            {"counted": False, "round": 2, "excluded": "out of bounds"},
        ),
        (ParticipantRecord("a", "", 2, Exclusion.INCOMPLETE), False, WAITING),
        (
            ParticipantRecord("a", "", 2, Exclusion.INCOMPLETE),
            True,
            {"counted": False, "round": 2, "excluded": "incomplete"},
        ),
    ],
)
def test_answer_to_tells_counted_waiting_and_excluded_apart(
    standing: ParticipantRecord | None, closed: bool, answer: dict[str, object]
) -> None:
    assert status_answer(standing, closed=closed) == answer


# Whole runs, with an owner that does not follow the protocol.


@pytest.fixture(autouse=True)
def _uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)


async def run_with_a_heavy_owner(
    folder: Path, certificates: dict[str, CertificateFiles], monkeypatch: pytest.MonkeyPatch
) -> Cluster:
    """Two honest owners, and one that adds a row to a single marginal."""

    def counted(codes: NDArray[np.int32], workload: Workload) -> NDArray[np.uint32]:
        counts = count_marginals(codes, workload)
        counts[0] += cheating
        return counts

    monkeypatch.setattr(parties.mpc.inputs.counts, "count_marginals", counted)
    config = make_config({"clients.minimum": 2, "run.rounds": 1})
    cluster = Cluster(config, folder, certificates)
    cheating = 0
    running = asyncio.create_task(cluster.run())
    await asyncio.sleep(0.5)  # Sleeps: head start.
    await cluster.submit(EVERYONE[:2])
    cheating = 1
    await cluster.submit(EVERYONE[2:])
    assert await running == [None] * 3
    return cluster


async def test_run_excludes_an_owner_whose_counts_are_out_of_bounds(
    tmp_path: Path, certificates: dict[str, CertificateFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await run_with_a_heavy_owner(tmp_path, certificates, monkeypatch)
    results = [json.loads((cluster.directory(pid) / "result.json").read_text()) for pid in range(3)]
    for result in results:
        assert result["clients"] == 2
        assert [item["client"] for item in result["counted"]] == [*EVERYONE[:2]]
        (excluded,) = result["excluded"]
        assert (excluded["client"], excluded["excluded"]) == (EVERYONE[2], "out of bounds")
    # The owner compares the digest on its receipt, and can ask each server.
    for pid in range(3):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            for item in results[0]["counted"]:
                assert store.submissions.upload_digest(item["client"]) == item["digest"]
                assert status_answer(store.records.find(item["client"]), closed=True)["counted"]
            asked = status_answer(store.records.find(EVERYONE[2]), closed=True)
            assert asked == {"counted": False, "round": 0, "excluded": "out of bounds"}
    audit = audit_folder(collect(cluster, tmp_path / "run"))
    assert audit.ok
    (check,) = (check for check in audit.checks if check.name == "limits")
    assert "3 owners were checked" in check.detail
    assert "1 were excluded" in check.detail
    # Started again after its end, nobody is counted in, and the result says the same.
    assert await cluster.run() == [None] * 3
    again = json.loads((cluster.directory(0) / "result.json").read_text())
    assert (again["counted"], again["excluded"]) == (results[0]["counted"], results[0]["excluded"])


@pytest.fixture(scope="module")
def disputed(
    tmp_path_factory: pytest.TempPathFactory, certificates: dict[str, CertificateFiles]
) -> Path:
    """A run folder in which server 2 holds another component of an owner than server 1."""
    folder = tmp_path_factory.mktemp("disputed")
    cluster = Cluster(make_config({"clients.minimum": 2, "run.rounds": 1}), folder, certificates)
    differing = consistency._disputed_components

    async def lying(ctx: Context, batch: list[StoredSubmission]) -> list[str]:
        if ctx.pid == 2:
            batch = [
                replace(stored, packed=stored.packed[:32] + b"\xab" * 32 + stored.packed[64:])
                if stored.submission.client == EVERYONE[0]
                else stored
                for stored in batch
            ]
        return await differing(ctx, batch)

    blinded = consistency._blinded

    def lie(ctx: Context, batch: Any, item: Any) -> str:
        shown = blinded(ctx, batch, item)
        return hashlib.sha256(shown.encode()).hexdigest() if ctx.pid == 2 else shown

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parties.mpc.server, "make_estimator", make_uniform)
        patch.setattr(consistency, "_disputed_components", lying)
        patch.setattr(consistency, "_blinded", lie)
        assert asyncio.run(cluster.run(owners=EVERYONE)) == [None] * 3
    return collect(cluster, folder / "run")


def test_audit_shows_who_claims_what_of_an_excluded_owner(disputed: Path) -> None:
    assert audit_folder(disputed).ok
    for pid in range(3):
        lines = (disputed / "transcripts" / f"party-{pid}.jsonl").read_text().splitlines()
        (note,) = (
            record for record in map(json.loads, lines) if record.get("what") == ACCUSED.what
        )
        assert note["client"] == EVERYONE[0]
        assert note["shown"].keys() == {"2"}
        assert note["shown"]["2"].keys() == {"1", "2"}


@pytest.mark.parametrize(
    ("change", "pids"),
    [
        (dropping("note", what=ACCUSED.what), (0, 1, 2)),
        (setting("note", "shown", {}, what=ACCUSED.what), (0, 1, 2)),
        (
            setting("note", "shown", {"2": {"1": "ab", "2": "ab"}}, what=ACCUSED.what),
            (0, 1, 2),
        ),
        (
            setting("note", "shown", {"2": {"0": "ab", "2": "cd"}}, what=ACCUSED.what),
            (0, 1, 2),
        ),
        (setting("note", "shown", {"2": {"1": "ab", "2": "cd"}}, what=ACCUSED.what), (0,)),
        (setting("client", "reason", "incomplete", accepted=False), (0, 1, 2)),
    ],
)
def test_audit_catches_an_exclusion_that_is_not_shown(
    disputed: Path,
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    change: Any,
    pids: tuple[int, ...],
) -> None:
    run = copy_run(disputed, tmp_path)
    Forger(run, run, certificates).edit(change, *pids)
    assert "limits" in failed(audit_folder(run))
    shutil.rmtree(run)
