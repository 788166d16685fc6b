"""Keys of servers that end and are replaced: by three services as processes, and step by step."""

import base64
import datetime
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from parties.config import load_config
from parties.foundation.errors import CertificateError, CertificateExpired, ConfigError, StoreError
from parties.foundation.exit_codes import Status
from parties.identity.join_documents import ensure_join_request, fingerprint_words
from parties.identity.signing import Issuer
from parties.identity.study_setup import issue_certificates
from parties.identity.tls import Authority, load_certificate, load_key, public_pem, self_signed
from parties.observability.events import Event, Progress
from parties.service import rotation
from parties.service.admin_listener import make_operator, renew_operator
from parties.service.console.view import overview_values, render
from parties.service.expiry import admin_certificates, check_valid, service_certificates
from parties.service.identity import ServiceIdentity, join_servers
from parties.service.key_changes import KeyChanges, KeyRefused
from parties.service.metrics import render as metrics
from parties.service.peer_state import PeerState
from parties.service.peer_sync import Peer
from parties.service.rotation import Announcement
from parties.service.settings import load_settings
from parties.service.studies import StudyEvent
from tests.parties.serving import SERVERS, Cluster, Serve, cluster, make_identities, syncret

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three services that the tests of this file share."""
    with cluster(tmp_path_factory.mktemp("keys"), "--max-running", "3") as made:
        yield made


def announces(serve: Serve) -> list[dict[str, Any]]:
    return [key for key in serve.get("/status")["keys"] if not key["renews"]]


def key_of(serve: Serve) -> str:
    return ServiceIdentity.load(serve.folder).own.key


def rotated(three: Cluster, *others: int) -> str:
    """Announces a new key of alpha and has it confirmed by the others; returns its words."""
    alpha = three.serves[0]
    said = json.loads(alpha.command("serve", "rotate", "--json"))
    for pid in others or (1, 2):
        serve = three.serves[pid]
        serve.until(lambda status: status["keys"], "hears of the new key")
        serve.command("serve", "rotate", "alpha", said["words"])
    return str(said["words"])


@pytest.mark.slow
def test_a_new_key_is_at_work_from_the_next_study_and_the_former_never_again(
    three: Cluster,
) -> None:
    """It takes 60 s: a study goes on with its key while people confirm another, and an old folder comes back."""
    alpha, beta, gamma = three.serves
    # It waits for its owners while people compare words, however slow the machine is.
    patient = "3\nwait_s = 900"
    under_way = three.propose("under-way", expected=patient)
    left_over = three.propose("left-over")
    three.approve(under_way)
    for serve in three.serves:
        serve.until_state("under-way", "running")
    ends = alpha.get(f"/studies/{under_way}/status")["certificates"]
    assert [(end["kind"], end["state"]) for end in ends] == [
        ("server", "valid"),
        ("authority", "soon"),
    ]
    before = key_of(alpha)
    copies = [three.folder / f"old-{serve.folder.name}" for serve in (alpha, beta)]
    for serve, copy in zip((alpha, beta), copies, strict=True):
        shutil.copytree(serve.folder, copy, ignore=shutil.ignore_patterns("*.sock"))

    words = rotated(three, 1)
    assert key_of(alpha) == before, "gamma has not confirmed it"
    listed = gamma.command("study", "list")
    assert "alpha announces a new key" in listed
    assert "waits for gamma" in " ".join(alpha.command("study", "list").split())
    others = "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about"
    refused = ("serve", "rotate", "alpha", others, "--dir", str(gamma.folder))
    assert "the words are not those of the key" in syncret(*refused, cwd=three.folder, status=2)
    assert key_of(alpha) == before
    gamma.command("serve", "rotate", "alpha", words)
    for serve in three.serves:
        serve.until(lambda status: not status["keys"], "the new key is at work")
        serve.until(lambda status: all(p["there"] for p in status["peers"]), "all there")
        assert not serve.get("/status")["troubles"]
    assert fingerprint_words(key_of(alpha)) == words
    known = [ServiceIdentity.load(serve.folder) for serve in three.serves]
    assert {identity.servers[0].key for identity in known} == {key_of(alpha)}
    assert {identity.former_key(before) is not None for identity in known} == {True}

    # What was only proposed names the former key, and is not begun any more.
    said = ("study", "approve", left_over, "--dir", str(beta.folder))
    assert "a key of alpha that was replaced" in syncret(*said, cwd=three.folder, status=2)
    # The study under way was not interrupted, and ends with the former key.
    for serve in three.serves:
        study = serve.until_state("under-way", "running")
        assert study["process"]["restarts"] == 0
    three.submit("under-way")
    for serve in three.serves:
        serve.until_state("under-way", "finished")
    next_study = three.propose("next-one", 1)
    config = load_config(three.folder / "study-next-one" / "next-one.toml")
    assert config.parties[0].key == key_of(alpha)
    three.approve(next_study)
    three.submit_when_running("next-one")

    # A copy from before is refused, and says so; it does not bring the former key back.
    alpha.end()
    old = Serve(copies[0], alpha.options, alpha.environment)
    old.start()
    try:
        hint = "from before its key was replaced"
        old.until(lambda s: all(hint in p["problem"] for p in s["peers"]), "refused by both")
        beta.until(lambda s: hint in s["peers"][0]["problem"], "refuses it")
        old.command("serve", "rotate")
        assert not announces(beta)
        assert key_of(beta) == known[1].own.key
    finally:
        old.end()
    alpha.start()
    for serve in three.serves:
        serve.until(lambda status: all(p["there"] for p in status["peers"]), "all there again")

    # A copy of another server knows the former key: the words and the file bring it up to date.
    beta.end()
    old = Serve(copies[1], beta.options, beta.environment)
    old.start()
    try:
        old.until(lambda s: hint in s["peers"][0]["problem"], "refuses alpha")
        file = str(alpha.folder / "alpha.server")
        old.command("serve", "rotate", "alpha", words, "--file", file)
        old.until(lambda s: all(p["there"] for p in s["peers"]), "knows alpha again")
    finally:
        old.end()
    beta.start()
    for serve in three.serves:
        serve.until(lambda status: all(p["there"] for p in status["peers"]), "all there again")


def test_a_renewed_certificate_is_told_to_the_others_and_shown_before_it_ends(
    three: Cluster,
) -> None:
    """Nobody compares words, since the key stays; 20 days are few, and every place says so."""
    beta, others = three.serves[1], (three.serves[0], three.serves[2])
    key = key_of(beta)
    beta.until(lambda s: not s["troubles"], "nothing amiss")
    beta.command("certs", "renew", "server", "--days", "20")
    for serve in (beta, *others):
        serve.until(
            lambda s: any(c["name"] == "beta" and c["state"] == "soon" for c in s["certificates"]),
            "the renewed certificate",
        )
        serve.until(lambda s: all(p["there"] for p in s["peers"]), "all there")
        assert ServiceIdentity.load(serve.folder).former_key(key) is None
    assert key_of(beta) == key
    beta.until(lambda s: len(s["troubles"]) == 1, "that certificate alone")
    status = beta.get("/status")
    (said,) = status["troubles"]
    assert re.fullmatch(
        r"the certificate of this server, beta ends in 19 days, on \S+ \S+ UTC: syncret certs renew server --dir .*",
        said,
    )
    assert said in " ".join(beta.command("study", "list").split())
    others[0].until(
        lambda s: any("renews it there" in trouble for trouble in s["troubles"]), "what to do"
    )
    page = render(
        "_studies.html",
        **overview_values(status, {"studies": status.get("studies", []), "total": 0}),
    )
    assert "Certificates: 1 to be renewed" in page
    assert "ends in 19 days" in page
    body, _ = metrics([], own=status)
    found = re.findall(
        r'^syncret_certificate_expiry_seconds\{kind="(\w+)",name="(\w+)".*\} (\S+)$',
        body.decode(),
        re.MULTILINE,
    )
    left = {(kind, name): float(value) for kind, name, value in found}
    assert 19 * 86_400 < left["server", "beta"] <= 20 * 86_400
    assert left["peer", "alpha"] > 3_000 * 86_400


# Step by step.


@pytest.fixture
def identities(tmp_path: Path) -> list[ServiceIdentity]:
    return [ServiceIdentity.load(folder) for folder in make_identities(tmp_path)]


def test_announcement_is_of_the_key_at_work_alone(identities: list[ServiceIdentity]) -> None:
    alpha, beta, gamma = identities
    made = rotation.announce(alpha, new_key=True)
    known = beta.servers[0]
    assert Announcement.parse(made.text, known).server == made.server
    with pytest.raises(CertificateError, match="the one at work"):
        Announcement.parse(made.text, beta.servers[2])
    forged = json.loads(made.text) | {
        "signature": json.loads(rotation.announce(gamma, new_key=True).text)["signature"]
    }
    with pytest.raises(CertificateError, match="not signed with its key"):
        Announcement.parse(json.dumps(forged), known)
    swapped = json.loads(made.text) | {"server": gamma.own.signed(own_key(gamma))}
    with pytest.raises(CertificateError, match="not signed with its key"):
        Announcement.parse(json.dumps(swapped), known)
    halves = [json.dumps(json.loads(made.text) | {key: "\ud800"}) for key in ("server", "former")]
    more = json.dumps(json.loads(made.text) | {"more": 1})
    for text in ("", "{}", "[1]", "x" * 100_000, more, *halves):
        with pytest.raises(CertificateError, match="announcement"):
            Announcement.parse(text, known)


def own_key(identity: ServiceIdentity) -> Ed25519PrivateKey:
    return cast("Ed25519PrivateKey", load_key(identity.files.key))


def test_announcement_of_other_addresses_is_refused(identities: list[ServiceIdentity]) -> None:
    """A thief of the key could otherwise lead the others to a host of its own before anybody compares words."""
    alpha, beta, gamma = identities
    moved = replace(alpha.own, mesh=gamma.own.mesh)
    text = moved.signed(own_key(alpha))
    message = f"syncret rotation 1\n{alpha.own.key}\n{text}".encode()
    document = {
        "rotation": 1,
        "former": alpha.own.key,
        "server": text,
        "signature": base64.b64encode(own_key(alpha).sign(message)).decode(),
    }
    with pytest.raises(CertificateError, match="another address"):
        Announcement.parse(json.dumps(document), beta.servers[0])


def test_old_announcement_is_void_and_a_retired_key_stays_so(
    identities: list[ServiceIdentity], tmp_path: Path
) -> None:
    alpha, beta, _ = identities
    first = alpha.own
    made = rotation.announce(alpha, new_key=True)
    assert rotation.announce(alpha, new_key=True).text == made.text
    with pytest.raises(ConfigError, match="a new key is announced already"):
        rotation.announce(alpha, new_key=False)
    rotation.activate(alpha)
    rotation.confirm(beta, 0, made.content)
    assert [server.key for server in beta.accepted(0)] == [first.key, made.server.key]
    rotation.promote(beta, 0)
    assert [server.key for server in beta.accepted(0)] == [made.server.key]
    with pytest.raises(CertificateError, match="replaces the key"):
        Announcement.parse(made.text, beta.servers[0])
    content = (tmp_path / "gamma" / "servers" / "0-alpha.server").read_text()
    with pytest.raises(CertificateError, match="was replaced before"):
        rotation.confirm(beta, 0, content)
    files = [
        tmp_path / "gamma" / "servers" / f"{n}-{name}.server" for n, name in enumerate(SERVERS)
    ]
    with pytest.raises(CertificateError, match="this key was replaced"):
        join_servers(beta.folder, files)
    assert (
        first.certificate.public_bytes(Encoding.PEM)
        not in (beta.folder / "servers" / "known.pem").read_bytes()
    )


def test_key_that_comes_by_a_file_is_at_work_at_once(identities: list[ServiceIdentity]) -> None:
    """Of a stolen key nothing is awaited under it."""
    alpha, beta, _ = identities
    made = rotation.announce(alpha, new_key=True)
    rotation.confirm(beta, 0, made.content, at_once=True)
    assert [server.key for server in beta.accepted(0)] == [made.server.key]
    assert beta.former_key(alpha.own.key) is not None


class Killed(BaseException):
    pass


@pytest.mark.parametrize("new_key", [True, False])
def test_activation_that_is_killed_anywhere_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, new_key: bool
) -> None:
    replaced = os.replace
    for kill_at in range(1, 30):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        alpha = ServiceIdentity.load(make_identities(folder)[0])
        before, made, calls = alpha.own, rotation.announce(alpha, new_key=new_key), 0

        def replace_or_die(source: Path, target: Path, kill_at: int = kill_at) -> None:
            nonlocal calls
            calls += 1
            if calls == kill_at:
                raise Killed
            replaced(source, target)

        monkeypatch.setattr(os, "replace", replace_or_die)
        try:
            rotation.activate(alpha)
            done = True
        except Killed:
            done = False
        monkeypatch.setattr(os, "replace", replaced)
        rotation.finish_activation(alpha.folder)
        found = ServiceIdentity.load(alpha.folder)
        at_work = before if kill_at == 1 and not done else made.server
        assert found.own == at_work
        assert load_certificate(found.files.cert, "own") == at_work.certificate
        assert load_key(found.files.key).public_key() == at_work.certificate.public_key()
        assert (found.former_key(before.key) is not None) == (new_key and at_work == made.server)
        if done:
            assert kill_at > 4
            return
    raise AssertionError("it never came to its end")


def test_key_of_this_server_that_is_elsewhere_and_not_here_is_said_loudly(
    identities: list[ServiceIdentity],
) -> None:
    """A thief of the key announces one of its own to beta, and this server's operator hears of it."""
    alpha, beta, _ = identities
    thief = replace(beta.servers[0], certificate=self_signed("alpha", own_key(beta), 9))

    def troubles(**said: dict[str, str]) -> list[str]:
        state = replace(PeerState("beta", 2, 0), **cast("Any", said))
        peer = SimpleNamespace(server=beta.own, announced=None, statement=state)
        return KeyChanges(
            alpha, cast("Any", {1: peer}), studies=cast("Any", None), reconnect=cast("Any", None)
        ).troubles()

    assert troubles(heard={}, confirmed={"alpha": alpha.own.fingerprint}) == []
    for what in ("heard", "confirmed"):
        (text,) = troubles(**{what: {"alpha": thief.fingerprint}})
        assert "this server's key was stolen" in text


def announcement(
    identity: ServiceIdentity,
    key: Ed25519PrivateKey | None = None,
    days: float = 4_000,
    **changes: object,
) -> str:
    """An announcement of whoever has the key at work of ``identity``: a thief's, or one with other values."""
    own, at_work = identity.own, own_key(identity)
    server = replace(own, certificate=self_signed(own.name, key or at_work, days))
    text = server.signed(key or at_work)
    message = f"syncret rotation 1\n{own.key}\n{text}".encode()
    signature = base64.b64encode(at_work.sign(message)).decode()
    made = {"rotation": 1, "former": own.key, "server": text, "signature": signature}
    return json.dumps({**made, **changes})


STRANGE = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(st.characters(), max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
"""JSON values; texts have halves of surrogate pairs, which JSON can say and no encoding."""


@given(
    changes=st.dictionaries(
        st.sampled_from(["rotation", "former", "server", "signature", "more"]), STRANGE, max_size=3
    )
)
@example(changes={"server": "\ud800"})
@example(changes={"former": "\udfff"})
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_that_a_peer_announces_ends_a_service(
    identities: list[ServiceIdentity], changes: dict[str, object]
) -> None:
    alpha, beta, _ = identities
    peer = Peer(alpha, 1)
    peer._hear(announcement(beta, **changes))
    assert peer.announced is None or not changes or peer.announced.server.key == beta.own.key
    assert bool(peer.announced) != bool(peer.problem and peer.problem != "not asked yet")


def test_problem_of_a_peer_with_ever_other_words_is_an_event_at_a_limited_rate(
    identities: list[ServiceIdentity],
) -> None:
    taken: list[Event] = []
    peer = Peer(identities[0], 1, Progress(cast("Any", SimpleNamespace(take=taken.append))))
    for number in range(100):
        peer.problem = f"unknown form {number}"
        peer._log_problem()
    peer.problem = ""
    peer._log_problem()
    assert [event.name for event in taken] == ["peer.away", "peer.there"]


class Noted:
    """The rest of alpha's service: what was noted, and how often it connected anew."""

    def __init__(self, alpha: ServiceIdentity) -> None:
        self.events: list[str] = []
        self.reconnected = 0
        self.peers = {pid: Peer(alpha, pid) for pid in alpha.peers}
        self.changes = KeyChanges(
            alpha, self.peers, studies=cast("Any", self), reconnect=self._reconnect
        )

    async def _reconnect(self) -> None:
        self.reconnected += 1

    async def note(self, event: StudyEvent) -> None:
        self.events.append(event.what)

    async def hear(self, text: str) -> None:
        """Hears beta's announcement, with a state that has just come."""
        beta = self.peers[1]
        beta._hear(text)
        beta._state, beta.seen_at = PeerState("beta", 2, 0), time.monotonic()
        await self.changes.step()


async def test_a_thief_of_the_old_key_undoes_nothing_that_was_confirmed_by_words(
    identities: list[ServiceIdentity],
) -> None:
    alpha, beta, _ = identities
    noted = Noted(alpha)
    made = rotation.announce(beta, new_key=True)
    await noted.hear(made.text)
    await noted.changes.confirm("beta", fingerprint_words(made.server.key), "anna")
    for text in (announcement(beta), "", announcement(beta, days=5_000)):
        await noted.hear(text)
        assert alpha.accepted(1)[-1].key == made.server.key
        assert "does not announce the key any more" in " ".join(noted.changes.troubles())
    assert noted.events == ["key.confirmed"]
    # What was taken back at beta is accepted until somebody says so.
    await noted.changes.forget("beta", "anna")
    assert [server.key for server in alpha.accepted(1)] == [beta.own.key]
    assert noted.changes.troubles() == []
    assert ServiceIdentity.load(alpha.folder).successors == {}
    with pytest.raises(KeyRefused, match="was confirmed here"):
        await noted.changes.forget("beta", "anna")
    with pytest.raises(KeyRefused, match="is no other server"):
        await noted.changes.forget("eve", "anna")


async def test_renewals_without_words_have_not_ended_and_come_seldom(
    identities: list[ServiceIdentity],
) -> None:
    """Each ends all connections of the service, and is a row in its book."""
    alpha, beta, _ = identities
    noted = Noted(alpha)
    await noted.hear(announcement(beta, days=-5))
    assert noted.events == []
    for more in range(20):
        await noted.hear(announcement(beta, days=9 + more))
    assert (noted.events, noted.reconnected) == (["key.certificate-renewed"], 1)


async def test_words_of_another_servers_key_are_shown_nowhere(
    identities: list[ServiceIdentity],
) -> None:
    """A text that can be pasted would confirm a thief's key."""
    alpha, beta, _ = identities
    noted = Noted(alpha)
    made = rotation.announce(beta, new_key=True)
    await noted.hear(made.text)
    rotation.announce(alpha, new_key=True)
    await noted.changes.step()
    said = noted.changes.to_list()
    own = noted.changes.own
    assert own is not None
    assert fingerprint_words(own.server.key) in json.dumps(said)
    for text in (json.dumps(said), *noted.changes.troubles()):
        assert made.server.key not in text
        assert fingerprint_words(made.server.key) not in text


def test_a_withdrawal_and_an_activation_never_leave_half_of_both(
    identities: list[ServiceIdentity], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command may come at any moment of the service's activation."""
    alpha, beta, _ = identities
    before, made = alpha.own, rotation.announce(alpha, new_key=True)
    finish = rotation.finish_activation

    def after_a_withdrawal(folder: Path) -> None:
        assert not rotation.withdraw(alpha)
        finish(folder)

    monkeypatch.setattr(rotation, "finish_activation", after_a_withdrawal)
    rotation.activate(alpha)
    assert ServiceIdentity.load(alpha.folder).own == made.server
    # A key that was taken back is gone, and comes back with no later announcement.
    first = rotation.announce(beta, new_key=True)
    assert rotation.withdraw(beta)
    assert not rotation.withdraw(beta)
    assert rotation.announced(beta) is None
    assert rotation.announce(beta, new_key=True).server.key != first.server.key
    # Without its key nothing is put to work.
    (beta.folder / "keys" / "next.key").unlink()
    with pytest.raises(StoreError, match="is gone"):
        rotation.activate(beta)
    assert load_certificate(beta.files.cert, "own").public_key() == own_key(beta).public_key()
    assert before.key != alpha.own.key


def test_a_withdrawal_that_is_killed_leaves_no_key_to_a_later_announcement(
    identities: list[ServiceIdentity], monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha, *_ = identities
    first = rotation.announce(alpha, new_key=True)

    def killed(keys: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(rotation, "_finish_withdrawal", killed)
        with pytest.raises(Killed):
            rotation.withdraw(alpha)
    assert rotation.announce(alpha, new_key=True).server.key != first.server.key


async def test_server_alone_puts_its_next_key_to_work_by_itself(tmp_path: Path) -> None:
    """Of FLAIM: its clients get the new key with the next study's configuration."""
    hub = ServiceIdentity.load(make_identities(tmp_path, ("hub",))[0])
    before, made = hub.own.key, rotation.announce(hub, new_key=True)
    noted: list[StudyEvent] = []

    async def reconnect() -> None:
        pass

    async def note(event: StudyEvent) -> None:
        noted.append(event)

    studies = cast("Any", SimpleNamespace(note=note))
    changes = KeyChanges(hub, {}, studies=studies, reconnect=reconnect)
    await changes.step()
    assert (hub.own, changes.own, changes.troubles()) == (made.server, None, [])
    assert hub.former_key(before) is not None
    assert [event.what for event in noted] == ["key.at-work"]
    await changes.step()
    assert len(noted) == 1


def ended(identity: ServiceIdentity, days: float = -1) -> None:
    """Its certificate ended ``days`` ago."""
    own = self_signed(identity.own.name, own_key(identity), days)
    identity.files.cert.write_bytes(public_pem(own))


def operators(folder: Path, **days: float) -> None:
    """Operators with certificates for so many days, let in by the settings; the server's own is of the first."""
    made = [
        make_operator(folder, name, hosts=["localhost"], days=left, password="p")
        for name, left in days.items()
    ]
    prints = ", ".join(f'"{one.fingerprint}"' for one in made)
    (folder / "settings.toml").write_text(
        f'[admin]\naddress = "127.0.0.1:7444"\nclients = [{prints}]\n'
    )


def test_serve_refuses_a_certificate_that_has_ended_with_words(
    identities: list[ServiceIdentity], tmp_path: Path
) -> None:
    alpha, beta, gamma = identities
    ended(alpha)
    said = syncret("serve", "--dir", str(alpha.folder), cwd=tmp_path, status=Status.CERTIFICATE)
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    assert f"this server, alpha has ended on {yesterday:%Y-%m-%d}" in said
    assert f"syncret certs renew server --dir {alpha.folder}" in said
    # Renewed, it may start: the others know it by its key, and hear of the new certificate by and by.
    syncret("certs", "renew", "server", "--dir", str(alpha.folder), cwd=tmp_path)
    check_valid(alpha)
    operators(beta.folder, anna=-0.01, ben=30)
    said = syncret("serve", "--dir", str(beta.folder), cwd=tmp_path, status=Status.CERTIFICATE)
    assert "the admin API of 127.0.0.1:7444 has ended" in said
    syncret("certs", "renew", "admin", "--dir", str(beta.folder), cwd=tmp_path)
    check_valid(beta)
    texts = [text for end in service_certificates(beta) if (text := end.sentence())]
    assert len(texts) == 2
    assert "the operator anna has ended" in texts[0]
    operators(gamma.folder, carl=60, dora=60)
    check_valid(gamma)
    for name in ("carl", "dora"):
        (gamma.folder / "admin" / f"{name}.crt").unlink()
    operators(gamma.folder, carl=-0.01, dora=-0.01)
    with pytest.raises(CertificateExpired, match=r"operator carl .* operator dora has ended"):
        check_valid(gamma)


def test_operator_has_one_certificate_and_a_new_one_is_let_in_in_its_place(tmp_path: Path) -> None:
    operators(tmp_path, anna=3, ben=90)
    said = syncret(
        "certs", "operator", "anna", "--dir", str(tmp_path), cwd=tmp_path, status=Status.CERTIFICATE
    )
    assert "anna has a certificate already" in said
    assert "syncret certs renew operator anna" in said
    assert "free space" not in said
    settings = tmp_path / "settings.toml"
    former = load_settings(tmp_path).admin.clients[0]
    spelt = ":".join(former[i : i + 2] for i in range(0, 64, 2)).upper()
    settings.write_text(settings.read_text().replace(former, spelt))
    made = json.loads(
        syncret(
            "certs", "renew", "operator", "anna", "--dir", str(tmp_path), "--json", cwd=tmp_path
        )
    )
    admin = load_settings(tmp_path).admin
    assert admin.clients[0] == made["fingerprint"] != former
    found = {end.name: end for end in admin_certificates(tmp_path, admin)}
    assert found["anna"].left.days == 364
    listed = x509.load_pem_x509_certificates((tmp_path / "admin" / "operators.pem").read_bytes())
    assert former not in [one.fingerprint(hashes.SHA256()).hex() for one in listed]
    assert "ben" in found
    said = syncret(
        "certs",
        "renew",
        "operator",
        "eve",
        "--dir",
        str(tmp_path),
        cwd=tmp_path,
        status=Status.CERTIFICATE,
    )
    assert "eve has no certificate yet" in said


@pytest.mark.parametrize("first", [True, False])
def test_no_operator_has_the_name_of_the_apis_own_files(tmp_path: Path, *, first: bool) -> None:
    if not first:
        operators(tmp_path, anna=9)
    before = sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(CertificateError, match="the API's own files"):
        make_operator(tmp_path, "admin", hosts=["localhost"], days=9, password="p")
    with pytest.raises(CertificateError, match="the API's own files"):
        renew_operator(tmp_path, "admin", days=9, password="p")
    assert before == sorted((p, p.read_bytes()) for p in tmp_path.rglob("*") if p.is_file())


def test_owners_and_authoritys_certificates_are_made_anew_for_the_same_keys(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "authority", 5)
    ensure_join_request("north", keys=tmp_path / "tls", path=tmp_path / "north.request")
    (path,) = issue_certificates(
        [tmp_path / "north.request"], authority=authority.directory, out=tmp_path, valid_days=3
    )
    before = load_certificate(path, "north's")
    syncret("certs", "renew", "authority", cwd=tmp_path)
    syncret("certs", "renew", "owner", str(path), cwd=tmp_path)
    after, renewed = load_certificate(path, "north's"), Authority.load(authority.directory)
    assert after.public_key() == before.public_key()
    assert after.not_valid_after_utc - before.not_valid_after_utc > datetime.timedelta(days=300)
    assert renewed.certificate.public_key() == authority.certificate.public_key()
    assert renewed.certificate != authority.certificate
    # Both certificates are the authority's, by whichever of its own.
    for certificate in (before, after):
        for issuer in (authority, renewed):
            Issuer(issuer.certificate).signatory(certificate.public_bytes(Encoding.DER))
    other = Authority.make(tmp_path / "other", 5)
    with pytest.raises(CertificateError, match="not issued by the authority"):
        other.renewed(before, path, 9)
    server = other.issue(
        "alpha", Ed25519PrivateKey.generate().public_key(), server=True, valid_days=9
    )
    with pytest.raises(CertificateError, match="not a data owner's"):
        other.renewed(server, path, 9)
