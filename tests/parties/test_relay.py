"""Uploads that servers pass on: honest ones arrive at all three, and no server can make one up, alter or read one."""

import asyncio
import contextlib
import io
import shutil
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from parties.config import CertificateFiles, Config
from parties.crypto.hpke import SealKey
from parties.foundation.errors import SealError
from parties.identity.tls import certificate_bytes, client_context, make_certificates, pinned_key_in
from parties.mpc.intake import forwarder
from parties.mpc.storage.store import Store
from parties.mpc.submission import sealed_upload as sealed
from parties.mpc.submission.sealed_upload import (
    CERTIFICATE_HEADER,
    CLIENT_HEADER,
    SIGNATURE_HEADER,
    ReceiptSigner,
    ReceivedUpload,
    SealedUpload,
    SignedUpload,
    check_receipt,
    open_part,
    receipts_in,
    seal_boxes,
)
from parties.network.http_connections import TlsConnector
from protocols.errors import CheckFailed
from protocols.upload import check_component
from tests.parties.support import (
    OWNERS,
    PARTIES,
    Ready,
    bodies_in,
    make_config,
    make_upload,
    running_servers,
    sealed_upload,
    sign,
)
from tests.parties.two_faced import two_faced

Certificates = dict[str, CertificateFiles]


@dataclass
class Asker:
    """Somebody with a certificate who sends requests to the servers' ingest addresses."""

    config: Config
    certificates: Certificates

    async def put(
        self, pid: int, path: str, headers: dict[str, str], body: bytes, *, by: str
    ) -> tuple[int, dict[str, object]]:
        name = PARTIES[pid]
        context = client_context(self.certificates[by], pinned_key_in(self.certificates[name].cert))
        url = f"https://{self.config.parties[pid].ingest}/v1/runs/trial/{path}"
        async with (
            aiohttp.ClientSession(connector=TlsConnector(context)) as session,
            session.put(url, headers=headers, data=io.BytesIO(body)) as response,
        ):
            return response.status, await response.json()

    async def upload(self, pid: int, ready: Ready) -> tuple[int, dict[str, object]]:
        """As its owner does."""
        headers, by = ready.signed.headers(), ready.signed.submission.client
        return await self.put(pid, "submission", headers, ready.sealed.content, by=by)

    async def pass_on(
        self, pid: int, signed: SignedUpload, part: ReceivedUpload, *, by: str = "party-0"
    ) -> tuple[int, dict[str, object]]:
        """As another server does."""
        return await self.put(pid, "part", signed.headers_between_servers(), part.content, by=by)


@pytest.fixture
def asker(certificates: Certificates) -> Asker:
    return Asker(make_config({"timeouts.submit_s": 3.0}), certificates)


@pytest.fixture
async def store(asker: Asker, tmp_path: Path) -> AsyncIterator[Store]:
    """Server 1's, which listens alone."""
    async with running_servers(asker.config, tmp_path, asker.certificates, (1,)) as stores:
        yield stores[1]


def what(answer: dict[str, object]) -> tuple[str, str]:
    error = answer["error"]
    assert isinstance(error, dict)
    return str(error["where"]), str(error["what"])


async def until_waiting_for_nobody(store: Store) -> None:
    async with asyncio.timeout(10):
        while store.outbox.waiting(0) + store.outbox.waiting(1) + store.outbox.waiting(2):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


# What is right


@pytest.mark.parametrize("form", ["seeded", "plain"])
@pytest.mark.parametrize("pid", range(3))
async def test_an_upload_to_any_server_reaches_all_three(
    tmp_path: Path, certificates: Certificates, pid: int, form: str
) -> None:
    asker = Asker(make_config({"run.upload": form}), certificates)
    ready = sealed_upload(asker.config)
    async with running_servers(asker.config, tmp_path, certificates) as stores:
        status, answer = await asker.upload(pid, ready)
        assert (status, answer["kept_for"]) == (201, [])
        receipts = receipts_in(answer)
        assert [receipt.party for receipt in receipts] == list(PARTIES)
        for receipt in receipts:
            check_receipt(receipt, ready.signed.upload, asker.config)
        assert [stores[i].submissions.read("clinic-a") for i in range(3)] == list(
            ready.parts.bodies
        )
        assert {stores[i].submissions.upload_digest("clinic-a") for i in range(3)} == {
            ready.signed.upload.digest()
        }
        # Nothing is kept where it is not needed any more; bytes are counted at who passed them on.
        assert bodies_in(stores[pid].directory, "outbox") == []
        others = [i for i in range(3) if i != pid]
        sent = sum(len(ready.sealed.for_server(i).content) for i in others)
        assert [stores[i].outbox.passed_on()[0] for i in range(3)] == [
            sent if i == pid else 0 for i in range(3)
        ]
        assert [list(stores[i].traffic.by_client()) for i in others] == [[], []]
        status, answer = await asker.upload(others[0], ready)
        assert (status, answer["status"], answer["kept_for"]) == (200, "already stored", [])


async def test_parts_for_a_server_that_is_away_wait_and_survive_a_restart(
    asker: Asker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "LONGEST_PAUSE_S", 0.3)
    config, certificates = asker.config, asker.certificates
    ready = sealed_upload(config)
    async with running_servers(config, tmp_path, certificates, (0, 1)) as stores:
        status, answer = await asker.upload(0, ready)
        assert (status, answer["kept_for"]) == (202, ["party-2"])
        assert [receipt.party for receipt in receipts_in(answer)] == ["party-0", "party-1"]
        assert stores[0].outbox.waiting(2) == ["clinic-a"]
    # The one that took it was away in between; the one that was away comes back later still.
    async with running_servers(config, tmp_path, certificates, (0,)) as stores:
        await asyncio.sleep(0.3)  # Sleeps: quiet.
        async with running_servers(config, tmp_path, certificates, (2,)) as late:
            await until_waiting_for_nobody(stores[0])
            assert late[2].submissions.read("clinic-a") == ready.parts.bodies[2]
        assert bodies_in(stores[0].directory, "outbox") == []
        receipts = stores[0].outbox.delivery_status("clinic-a").receipts
        for receipt in receipts.values():
            check_receipt(receipt, ready.signed.upload, config)
        assert sorted(receipts) == [1, 2]


async def test_more_parts_wait_for_a_server_that_is_away_than_are_queued(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are queued, four wait in the outbox; all are passed on, in one life of the server and in the next."""
    monkeypatch.setattr(forwarder, "LONGEST_PAUSE_S", 0.3)
    monkeypatch.setattr(forwarder, "MAX_QUEUED", 2)
    asker = Asker(make_config({"timeouts.submit_s": 3.0, "clients.expected": 4}), certificates)
    config, clients, queued = asker.config, list(OWNERS), list[int]()
    add = forwarder._PeerQueue.add

    def counted(peer: forwarder._PeerQueue, *arguments: Any) -> None:
        add(peer, *arguments)
        queued.append(len(peer._tries))

    monkeypatch.setattr(forwarder._PeerQueue, "add", counted)
    async with running_servers(config, tmp_path, certificates, (0,)) as stores:
        for client in clients[:3]:
            status, answer = await asker.upload(0, sealed_upload(config, client))
            assert (status, answer["kept_for"]) == (202, ["party-1", "party-2"])
        async with running_servers(config, tmp_path, certificates, (1,)) as there:
            async with asyncio.timeout(10):
                while stores[0].outbox.waiting(1):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert there[1].submissions.count() == 3
        await asker.upload(0, sealed_upload(config, clients[3]))
        assert stores[0].outbox.waiting(2) == clients
    async with running_servers(config, tmp_path, certificates, (0, 1, 2)) as stores:
        await until_waiting_for_nobody(stores[0])
        assert [store.submissions.count() for store in stores.values()] == [4, 4, 4]
    assert max(queued) == 2


async def test_why_parts_wait_is_logged_once(
    asker: Asker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(forwarder, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(forwarder, "LONGEST_PAUSE_S", 0.05)
    async with running_servers(asker.config, tmp_path, asker.certificates, (0, 1)):
        await asker.upload(0, sealed_upload(asker.config))
        await asyncio.sleep(0.5)  # Sleeps: quiet.
    assert caplog.text.count("party-2: parts wait: cannot be reached") == 1


async def test_a_delivery_that_was_not_noted_is_made_again_and_counts_once(
    asker: Asker, tmp_path: Path
) -> None:
    """A kill between the other server's receipt and the note of it."""
    ready = sealed_upload(asker.config)
    part = ready.sealed.for_server(1)
    async with running_servers(asker.config, tmp_path, asker.certificates, (1,)) as stores:
        first = await asker.pass_on(1, ready.signed, part)
        again = await asker.pass_on(1, ready.signed, part, by="party-2")
        assert (first[0], again[0]) == (201, 200)
        assert first[1] == again[1]
        assert len(stores[1].submissions.all()) == 1


async def test_a_refusal_ends_with_its_reason(asker: Asker, tmp_path: Path) -> None:
    ready = sealed_upload(asker.config)
    async with running_servers(asker.config, tmp_path, asker.certificates) as stores:
        stores[2].state.close_to_clients()
        status, answer = await asker.upload(0, ready)
        assert (status, answer["kept_for"]) == (202, [])
        refused = answer["refused"]
        assert isinstance(refused, dict)
        assert "takes no submissions any more" in refused["party-2"]
        assert bodies_in(stores[0].directory, "outbox") == []


# Servers that deviate


async def test_a_server_cannot_make_up_an_owner(asker: Asker, store: Store, tmp_path: Path) -> None:
    """It has no certificate of the run's authority for one, and its own is no owner's."""
    ready = sealed_upload(asker.config)
    part, upload = ready.sealed.for_server(1), ready.signed.upload
    foreign = make_certificates(tmp_path / "foreign", [], ["clinic-a"])["clinic-a"]
    old = make_certificates(tmp_path / "old", [], ["clinic-a"], valid_days=-1)["clinic-a"]
    for certificate, message in (
        (certificate_bytes(foreign), "none of the run's authority"),
        (certificate_bytes(old), "none of the run's authority"),
        (b"certificate", "none of the run's authority"),
        (certificate_bytes(asker.certificates["party-0"]), "of 'party-0', the submission of"),
        (certificate_bytes(asker.certificates["clinic-b"]), "of 'clinic-b', the submission of"),
    ):
        signed = replace(ready.signed, certificate=certificate)
        status, answer = await asker.pass_on(1, signed, part)
        assert (status, what(answer)[0]) == (403, f"header {SIGNATURE_HEADER}")
        assert message in what(answer)[1]
    made_up = sealed_upload(asker.config, "party-0", signed_by="party-0")
    status, answer = await asker.pass_on(1, made_up.signed, made_up.sealed.for_server(1))
    assert (status, what(answer)[1]) == (403, "'party-0' is a compute server of this run")
    assert upload.digest() == ready.signed.upload.digest()
    assert store.submissions.all() == []


def changed_at_its_end(data: bytes) -> bytes:
    """The bytes, of which the last one is another, whatever it is."""
    return data[:-1] + bytes([data[-1] ^ 1])


async def test_a_server_cannot_alter_what_it_passes_on(asker: Asker, store: Store) -> None:
    """Box, common part and fields are signed: any other one has to be signed by the owner as well."""
    ready, other = sealed_upload(asker.config), sealed_upload(asker.config, first_round=2)
    part = ready.sealed.for_server(1)
    assert part.common is not None
    for changed in (
        other.sealed.for_server(1),
        replace(part, common=changed_at_its_end(part.common)),
    ):
        status, answer = await asker.pass_on(1, ready.signed, changed)
        assert (status, what(answer)[0]) == (400, "body")
    forged = replace(ready.signed, upload=other.signed.upload)
    status, answer = await asker.pass_on(1, forged, other.sealed.for_server(1))
    assert (status, what(answer)) == (
        403,
        (f"header {SIGNATURE_HEADER}", "a signature is not one of 'clinic-a'"),
    )
    assert store.submissions.all() == []


async def test_only_the_other_servers_pass_parts_on(
    asker: Asker, store: Store, tmp_path: Path
) -> None:
    """No owner, not the server itself, and nobody with another key who has the authority's help."""
    ready = sealed_upload(asker.config)
    folder = tmp_path / "second"
    folder.mkdir()
    for name in ("ca.crt", "ca.key"):
        shutil.copy(asker.certificates["party-0"].ca.with_name(name), folder / name)
    second = make_certificates(folder, ["party-0"])["party-0"]
    everyone = {**asker.certificates, "second": second}
    impostor = Asker(asker.config, everyone)
    for by in ("clinic-a", "party-1", "second"):
        status, answer = await impostor.pass_on(1, ready.signed, ready.sealed.for_server(1), by=by)
        assert (status, what(answer)[0]) == (403, "client certificate")
    assert store.submissions.all() == []


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (CERTIFICATE_HEADER, None),
        (CERTIFICATE_HEADER, "?"),
        (CERTIFICATE_HEADER, "AAAA" * 1500),
        (CLIENT_HEADER, None),
        (CLIENT_HEADER, "../clinic-a"),
    ],
)
async def test_parts_with_malformed_headers_are_refused(
    asker: Asker, store: Store, header: str, value: str | None
) -> None:
    ready = sealed_upload(asker.config)
    headers = ready.signed.headers_between_servers()
    del headers[header]
    if value is not None:
        headers[header] = value
    body = ready.sealed.for_server(1).content
    status, _ = await asker.put(1, "part", headers, body, by="party-0")
    assert status == 400
    assert store.submissions.all() == []


@pytest.mark.parametrize(("change", "status"), [(-1, 400), (1, 413), (10_000_000, 413)])
async def test_parts_of_another_size_are_refused(
    asker: Asker, store: Store, change: int, status: int
) -> None:
    ready = sealed_upload(asker.config)
    body = ready.sealed.for_server(1).content
    wrong = body[:change] if change < 0 else body + bytes(change)
    headers = ready.signed.headers_between_servers()
    got, _ = await asker.put(1, "part", headers, wrong, by="party-0")
    assert got == status
    assert store.submissions.all() == []


async def test_parts_follow_the_rules_for_submissions(asker: Asker, store: Store) -> None:
    """Another one of a client is a conflict, one of another run does not fit, and a full or ended run takes none."""
    ready = sealed_upload(asker.config)
    assert (await asker.pass_on(1, ready.signed, ready.sealed.for_server(1)))[0] == 201
    other = sealed_upload(asker.config, nonce="11" * 16)
    assert (await asker.pass_on(1, other.signed, other.sealed.for_server(1)))[0] == 409
    unfit = sealed_upload(asker.config, "clinic-b", first_round=9)
    assert (await asker.pass_on(1, unfit.signed, unfit.sealed.for_server(1)))[0] == 422
    for client in ("clinic-b", "clinic-c"):
        more = sealed_upload(asker.config, client)
        assert (await asker.pass_on(1, more.signed, more.sealed.for_server(1)))[0] == 201
    late = sealed_upload(asker.config, "clinic-d")
    assert (await asker.pass_on(1, late.signed, late.sealed.for_server(1)))[0] == 403
    store.state.close_to_clients()
    assert (await asker.pass_on(1, late.signed, late.sealed.for_server(1)))[0] == 410
    assert (await asker.pass_on(1, ready.signed, ready.sealed.for_server(1)))[0] == 200


@contextlib.asynccontextmanager
async def confirming(
    config: Config, certificates: Certificates, pid: int, receipt: object
) -> AsyncIterator[list[int]]:
    """A server that answers every part with `receipt`; yields the sizes of what it got."""
    sizes: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        sizes.append(len(await request.read()))
        return web.json_response({"receipts": [receipt]}, status=201)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates[PARTIES[pid]].cert, certificates[PARTIES[pid]].key)
    await web.TCPSite(
        runner, "127.0.0.1", config.parties[pid].ingest.port, ssl_context=context
    ).start()
    try:
        yield sizes
    finally:
        await runner.cleanup()


async def test_a_receipt_that_does_not_hold_is_none(asker: Asker, tmp_path: Path) -> None:
    """It is of another server, of another upload, or of nobody: the part goes on waiting."""
    config, ready = asker.config, sealed_upload(asker.config)
    maker = ReceiptSigner.load("party-0", asker.certificates["party-0"])
    wrong = ReceiptSigner.load("party-2", asker.certificates["party-2"])
    elsewhere = make_upload(ready.signed.submission).upload
    for receipt in (
        maker.make(ready.signed.upload).to_dict(),
        wrong.make(elsewhere).to_dict(),
        {"party": "party-2"},
    ):
        folder = tmp_path / str(receipt)[-20:-10].replace("/", "-")
        async with (
            confirming(config, asker.certificates, 2, receipt) as sizes,
            running_servers(config, folder, asker.certificates, (0, 1)) as stores,
        ):
            status, answer = await asker.upload(0, ready)
            assert (status, answer["kept_for"]) == (202, ["party-2"])
            assert sizes[0] == len(ready.sealed.for_server(2).content)
            assert stores[0].outbox.waiting(2) == ["clinic-a"]


# What can be read


def test_a_server_cannot_open_what_it_passes_on(certificates: Certificates) -> None:
    config = make_config()
    ready = sealed_upload(config)
    keys = [SealKey.load(certificates[name].seal) for name in PARTIES]
    upload = ready.signed.upload
    for pid, key in enumerate(keys):
        assert open_part(pid, key, upload, ready.sealed.for_server(pid)) == ready.parts.bodies[pid]
        for other in {0, 1, 2} - {pid}:
            for number in (pid, other):
                with pytest.raises(SealError):
                    open_part(number, key, upload, ready.sealed.for_server(other))


def test_what_an_owner_sends_shows_nothing_of_what_is_shared() -> None:
    """No seed, no key and no cell of x2 is in the bytes on the owner's connection below TLS."""
    for form in ("seeded", "plain"):
        ready = sealed_upload(make_config({"run.upload": form}))
        sent = ready.sealed.content + str(ready.signed.headers()).encode()
        secret = [bytes(16), bytes(range(16)), bytes(range(32)), ready.parts.common]
        for text in [part for part in secret if part]:
            assert text not in sent
        for part in (*ready.parts.private, ready.parts.common):
            for start in range(0, len(part) - 8, 8):
                assert part[start : start + 8] not in sent


def test_parts_are_bound_to_their_submission_server_and_common_part(
    certificates: Certificates,
) -> None:
    config = make_config()
    ready, other = sealed_upload(config), sealed_upload(config, first_round=2)
    key = SealKey.load(certificates["party-1"].seal)
    part, upload = ready.sealed.for_server(1), ready.signed.upload
    assert part.common is not None
    for wrong in (
        replace(upload, submission=other.signed.submission),
        replace(upload, common=other.signed.upload.common),
    ):
        with pytest.raises(SealError):
            open_part(1, key, wrong, part)
    with pytest.raises(SealError, match="common part"):
        open_part(1, key, upload, replace(part, common=changed_at_its_end(part.common)))


# Owners that lie


def lying_upload(config: Config) -> Ready:
    """Signed by its owner, and with another key for the common part in the third box than in the second."""
    honest = sealed_upload(config)
    submission, keys = honest.signed.submission, (bytes(range(32)), bytes(range(32, 64)))
    common = two_faced(*keys, bytes(12), sealed._common_context(submission), honest.parts.common)
    servers = [party.seal_to for party in config.require_parties()]
    first, second, third = (
        seal_boxes(honest.parts, submission, servers, key=key, common=common)[pid]
        for pid, key in enumerate((keys[0], *keys))
    )
    made = SealedUpload((first, second, third), common, (1, 2))
    return Ready(honest.parts, made, sign(made.describe(submission), "clinic-a"))


async def test_a_common_part_that_opens_to_two_bodies_is_found_by_its_holders(
    asker: Asker, tmp_path: Path
) -> None:
    """Every server can open what it gets, and has signed so: the comparison of components is what refuses it."""
    ready = lying_upload(asker.config)
    async with running_servers(asker.config, tmp_path, asker.certificates) as stores:
        status, _ = await asker.upload(0, ready)
        assert status == 201
        bodies = [stores[pid].submissions.read("clinic-a") for pid in range(3)]
        stored = [stores[pid].submissions.all()[0] for pid in range(3)]
    assert bodies[1][16:] != bodies[2][16:]
    for sender, receiver in ((0, 1), (2, 0)):
        claimed = bytes.fromhex(stored[sender].next_digest)
        check_component(bytes.fromhex(stored[receiver].own_digest), claimed)
    with pytest.raises(CheckFailed, match="different versions"):
        check_component(bytes.fromhex(stored[2].own_digest), bytes.fromhex(stored[1].next_digest))
