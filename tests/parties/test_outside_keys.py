"""Keys that another program keeps outside of a server's folder: files that change, and what goes on meanwhile."""

import contextlib
import io
import json
import os
import signal
import ssl
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509 import load_der_x509_certificate

from parties.cli.main import cli
from parties.config import CertificateFiles
from parties.crypto.encrypted_file import EncryptingWriter, PassphraseWrapper
from parties.crypto.hpke import read_private
from parties.crypto.pinned_key import PinnedKey
from parties.crypto.pkcs11_key import uri_pem
from parties.foundation.errors import CertificateError, OutsideKeyError, StoreError
from parties.identity import tls
from parties.identity.held_key import HeldKey
from parties.identity.tls import load_identity, load_key, private_pem
from parties.observability.failure_causes import CURES, Cause, Cure, cause_of
from parties.service import rotation
from parties.service.backup import FORM, back_up, restore
from parties.service.events import service_events
from parties.service.identity import KEYS, ServiceIdentity, create_identity
from parties.service.key_changes import KeyChanges
from parties.service.study_intake import new_card
from tests.parties.serving import Cluster, cluster, make_identities
from tests.until import process_of

OPENER = PassphraseWrapper("a passphrase of some words")
Swap = Callable[[Path, bytes], None]


def write_key(path: Path, key: Ed25519PrivateKey) -> Path:
    path.write_bytes(private_pem(key))
    path.chmod(0o600)
    return path


@pytest.fixture
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def held(tmp_path: Path, key: Ed25519PrivateKey) -> Iterator[HeldKey]:
    """A key behind a link, at which Kubernetes' secret driver has a second and a third one."""
    (tmp_path / "..2026").mkdir()
    write_key(tmp_path / "..2026" / "key", key)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "outside").symlink_to("..data/key")
    (tmp_path / "own.key").symlink_to(tmp_path / "outside")
    made = HeldKey(tmp_path / "own.key", key.public_key())
    yield made
    made.close()


def in_place(link: Path, data: bytes) -> None:
    link.resolve().write_bytes(data)


def renamed(link: Path, data: bytes) -> None:
    beside = link.parent / "beside"
    beside.write_bytes(data)
    beside.chmod(0o600)
    beside.rename(link.parent / "outside")


def linked(link: Path, data: bytes) -> None:
    folder = link.parent / f"..{len(list(link.parent.iterdir()))}"
    folder.mkdir()
    (folder / "key").write_bytes(data)
    (folder / "key").chmod(0o600)
    new = link.parent / "..data_tmp"
    new.symlink_to(folder.name)
    new.rename(link.parent / "..data")


@pytest.mark.parametrize("swap", [in_place, renamed, linked])
def test_a_file_that_is_half_written_or_of_another_key_is_said_and_the_key_stays(
    held: HeldKey, key: Ed25519PrivateKey, tmp_path: Path, swap: Swap
) -> None:
    link, whole = tmp_path / "own.key", private_pem(key)
    assert held.look() is False
    for bad, said in (
        (whole[:40], "not a private key"),
        (b"", "not a private key"),
        (private_pem(Ed25519PrivateKey.generate()), "another key than the one that the other"),
    ):
        swap(link, bad)
        held.look()
        assert said in held.problem
        assert "goes on with the key that was there before" in held.problem
        assert held.path.read_bytes() == whole
        assert load_key(held.path).public_key() == key.public_key()
    swap(link, b"# by the agent\n" + whole)
    assert held.look() is True
    assert held.problem == ""


def test_a_file_that_has_gone_is_said_once_and_comes_back(
    held: HeldKey, key: Ed25519PrivateKey, tmp_path: Path
) -> None:
    target = (tmp_path / "own.key").resolve()
    target.unlink()
    assert (held.look(), held.look()) == (True, False)
    assert "No such file" in held.problem
    assert load_key(held.path).public_key() == key.public_key()
    write_key(target, key)
    assert held.look() is True
    assert held.problem == ""


def test_held_key_is_in_memory_alone_and_ends_with_it(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    (tmp_path / "own.key").symlink_to(write_key(tmp_path / "outside", key))
    made = HeldKey(tmp_path / "own.key", key.public_key())
    assert os.readlink(made.path).startswith("/memfd:")
    made.close()
    assert not made.path.exists()


def test_a_key_of_another_program_may_be_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: Ed25519PrivateKey
) -> None:
    path = write_key(tmp_path / "key", key)
    for mode, mine, others in ((0o400, True, True), (0o440, False, True), (0o444, False, False)):
        path.chmod(mode)
        for user, allowed in ((path.stat().st_uid, mine), (path.stat().st_uid + 1, others)):
            monkeypatch.setattr(os, "geteuid", lambda user=user: user)
            if allowed:
                assert read_private(path, "private key", "a PEM file")
            else:
                with pytest.raises(CertificateError, match="others may read it"):
                    read_private(path, "private key", "a PEM file")


@pytest.mark.timeout(20)
def test_a_pipe_a_device_or_a_token_in_a_files_place_is_said_and_not_waited_for(
    held: HeldKey, tmp_path: Path
) -> None:
    target = (tmp_path / "own.key").resolve()
    for bad, said in (
        (lambda: os.mkfifo(target, 0o600), "no regular file"),
        (lambda: target.symlink_to("/dev/zero"), "no regular file"),
        (lambda: target.write_bytes(b"#" * 70_000), "no regular file"),
        (
            lambda: target.write_bytes(uri_pem("pkcs11:token=a;object=b?pin-source=file:/run/pin")),
            "another program may not give",
        ),
    ):
        target.unlink()
        bad()
        if not target.is_symlink():
            target.chmod(0o600)
        held.look()
        assert said in held.problem
        with pytest.raises(OutsideKeyError, match=said):
            load_key(tmp_path / "own.key")
    (tmp_path / "own.key").unlink()
    assert held.look() is True
    assert "is no link any more" in held.problem


def test_a_relative_link_leads_on_from_its_own_folder(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    write_key(tmp_path / "outside", key)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "own.key").symlink_to("../outside")
    made = HeldKey(tmp_path / "keys" / "own.key", key.public_key())
    assert os.path.samefile(made.target, tmp_path / "outside")
    made.close()


# A service with such a key.


def services(folder: Path, key: Ed25519PrivateKey) -> list[Path]:
    """Three services' folders; alpha's key is outside."""
    return make_identities(folder, keys={"alpha": write_key(folder / "outside.pem", key)})


def test_a_service_of_a_key_outside_has_links_and_reads_its_file_when_it_signs_alone(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    alpha = services(tmp_path, key)[0]
    identity = ServiceIdentity.load(alpha)
    identity.hold_key()
    new_card(identity, "distaim")
    (card,) = alpha.glob("cards/*/tls/own.key")
    outside = tmp_path / "outside.pem"
    assert os.readlink(card) == os.readlink(alpha / KEYS / "own.key") == str(outside)
    held = private_pem(key)
    kept = [path for path in alpha.rglob("*") if not path.is_symlink() and path.is_file()]
    assert kept
    assert not any(held.splitlines()[1] in path.read_bytes() for path in kept)
    outside.write_bytes(held[:30])
    assert ServiceIdentity.load(alpha).own == identity.own
    identity.reload()
    tls.pinned_server_context(identity.files)
    with pytest.raises(OutsideKeyError, match=r"is a link to .*outside\.pem") as refused:
        new_card(identity, "distaim")
    assert cause_of(refused.value).cause is Cause.KEY
    assert list(alpha.glob("cards/.*")) == []


def test_init_again_takes_the_same_file_and_no_other(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    alpha = services(tmp_path, key)[0]
    own = ServiceIdentity.load(alpha).own
    again = create_identity(alpha, "alpha", own.mesh, own.ingest, key_file=tmp_path / "outside.pem")
    assert again.key == own.key
    other = write_key(tmp_path / "other.pem", Ed25519PrivateKey.generate())
    with pytest.raises(CertificateError, match="is there already"):
        create_identity(alpha, "alpha", own.mesh, own.ingest, key_file=other)
    with pytest.raises(CertificateError, match="is there already"):
        create_identity(tmp_path / "beta", "beta", own.mesh, own.ingest, key_file=other)


def test_commands_take_a_key_that_lies_outside_and_withdraw_the_next_one(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    folder, outside = tmp_path / "alpha", write_key(tmp_path / "outside.pem", key)

    def done(*command: str) -> dict[str, Any]:
        ended = CliRunner().invoke(cli, ["serve", *command, "--dir", str(folder), "--json"])
        assert ended.exit_code == 0, ended.output
        return dict(json.loads(ended.stdout))

    ends = ("--mesh", "127.0.0.1:1", "--ingest", "127.0.0.1:2")
    out = tmp_path / "alpha.server"
    made = done("init", "alpha", *ends, "--key", str(outside), "--out", str(out))
    assert os.readlink(folder / KEYS / "own.key") == str(outside)
    done("join", str(out))
    following = write_key(tmp_path / "next.pem", Ed25519PrivateKey.generate())
    announced = done("rotate", "--key", str(following))
    assert announced["key"] != made["key"]
    assert os.readlink(folder / KEYS / "next.key") == str(following)
    assert [done("rotate", "--withdraw")["withdrawn"] for _ in range(2)] == [True, False]
    assert not os.path.lexists(folder / KEYS / "next.key")


def test_wrong_keys_of_a_study_are_its_operators_to_cure(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    """Inside of the folder they need a decision, as before."""
    alpha = services(tmp_path, key)[0]
    files = ServiceIdentity.load(alpha).files
    write_key(tmp_path / "outside.pem", Ed25519PrivateKey.generate())
    authority = CertificateFiles(files.cert, files.cert, files.key)
    with pytest.raises(OutsideKeyError, match="not the key of") as refused:
        load_identity(authority)
    assert CURES[cause_of(refused.value).cause] is Cure.OPERATOR
    inside = write_key(tmp_path / "inside.key", Ed25519PrivateKey.generate())
    with pytest.raises(CertificateError, match="not the key of") as refused_too:
        load_identity(CertificateFiles(files.cert, files.cert, inside))
    assert CURES[cause_of(refused_too.value).cause] is Cure.DECISION


async def _unchanged() -> None:
    """Renews no connection."""


async def test_rotation_to_another_file_leaves_studies_with_the_former_one(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    alpha, *_ = services(tmp_path, key)
    identity = ServiceIdentity.load(alpha)
    identity.hold_key()
    new_card(identity, "distaim")
    (before,) = alpha.glob("cards/*/tls")
    before.rename(tmp_path / "study")
    with pytest.raises(CertificateError, match="has the key at work"):
        rotation.announce(identity, new_key=True, key_file=tmp_path / "outside.pem")
    after = Ed25519PrivateKey.generate()
    made = rotation.announce(
        identity, new_key=True, key_file=write_key(tmp_path / "next.pem", after)
    )
    assert identity.own.key == made.former
    rotation.activate(identity)
    assert identity.own.key == made.server.key
    assert os.readlink(alpha / KEYS / "own.key") == str(tmp_path / "next.pem")
    assert load_key(identity.files.key).public_key() == after.public_key()
    assert load_key(tmp_path / "study" / "own.key").public_key() == key.public_key()
    # What becomes of the former file is nothing to the service any more.
    (tmp_path / "outside.pem").unlink()
    changes = KeyChanges(
        identity,
        {},
        studies=cast("Any", SimpleNamespace(events=service_events())),
        reconnect=_unchanged,
    )
    await changes.step()
    assert changes.troubles() == []
    (tmp_path / "next.pem").write_bytes(b"-----BEGIN")
    await changes.step()
    assert ["next.pem: not a private key" in text for text in changes.troubles()] == [True]
    assert ServiceIdentity.load(alpha).own.key == made.server.key


def test_a_link_is_in_a_backup_and_its_key_is_not(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    alpha = services(tmp_path, key)[0]
    new_card(ServiceIdentity.load(alpha), "distaim")
    file, to, register = tmp_path / "backup", tmp_path / "restored", tmp_path / "register"
    contents = back_up(alpha, file, OPENER, register=register).contents
    assert contents is not None
    assert [name.split("/")[-1] for name in contents.private_keys] == ["own.seal"]
    assert {name.split("/")[-1] for name in contents.outside} == {"own.key"}
    assert len(contents.outside) == 2
    restored = restore(file, to, OPENER, register=register)
    assert restored.contents == contents
    assert ServiceIdentity.load(to).own.key == ServiceIdentity.load(alpha).own.key
    assert os.readlink(to / KEYS / "own.key") == str(tmp_path / "outside.pem")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("folder/keys/own.key", "relative"),
        ("folder/keys/other.key", "/outside"),
        ("folder/../own.key", "/outside"),
        ("keys/../../own.key", "/outside"),
    ],
)
def test_no_other_link_is_restored(tmp_path: Path, name: str, target: str) -> None:
    with pytest.raises(StoreError, match="which no copy has"):
        _restored(tmp_path, [(name, target)])
    assert not (tmp_path / "to").exists()


def test_nothing_is_restored_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    _restored(tmp_path, [("folder/keys/own.key", str(victim))])
    assert victim.stat().st_mode & 0o777 == 0o755
    for entries in (
        [("folder/own.key", str(victim)), ("folder/own.key/evil", "")],
        [("folder/own.key/evil", ""), ("folder/own.key", str(victim))],
    ):
        with pytest.raises((StoreError, OSError)):
            _restored(tmp_path, entries)
        assert list(victim.iterdir()) == []


def test_a_link_that_was_left_is_announced_with_its_file_alone(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    alpha = services(tmp_path, key)[0]
    identity = ServiceIdentity.load(alpha)
    file = write_key(tmp_path / "next.pem", Ed25519PrivateKey.generate())
    (alpha / KEYS / "next.key").symlink_to(file)
    with pytest.raises(CertificateError, match="which nobody has announced"):
        rotation.announce(identity, new_key=True)
    assert rotation.announce(identity, new_key=True, key_file=file).former == identity.own.key


def _restored(tmp_path: Path, entries: list[tuple[str, str]]) -> None:
    """Restores an archive with these entries: links to their targets, and files without one."""
    file, to = tmp_path / "forged", tmp_path / "to"
    manifest = {"folder": "x", "made_at": "", "syncret": "", "stores": [], "keys": False}
    with file.open("wb") as raw:
        sink = EncryptingWriter(raw, OPENER)
        with tarfile.open(fileobj=sink, mode="w|") as archive:
            data = json.dumps({**manifest, "form": FORM}).encode()
            first = tarfile.TarInfo("manifest.json")
            first.size = len(data)
            archive.addfile(first, io.BytesIO(data))
            for name, target in entries:
                entry = tarfile.TarInfo(name)
                if target:
                    entry.type, entry.linkname = tarfile.SYMTYPE, target
                archive.addfile(entry, io.BytesIO(b""))
        sink.finish()
    try:
        restore(file, to, OPENER, register=tmp_path / "no-register")
    finally:
        for path in sorted(to.rglob("*"), reverse=True) if to.exists() else ():
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        if to.exists():
            to.rmdir()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    """Three services; gamma's key is outside."""
    (tmp_path / "secrets").mkdir()
    outside = write_key(tmp_path / "secrets" / "gamma.key", Ed25519PrivateKey.generate())
    with cluster(tmp_path, keys={"gamma": outside}) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_study_waits_for_a_key_that_its_operator_has_lost_and_ends_when_it_is_back(
    three: Cluster,
) -> None:
    gamma, secret = three.serves[2], three.folder / "secrets" / "gamma.key"
    digest = three.propose("away", expected="3\nwait_s = 900")
    three.approve(digest)
    for serve in three.serves:
        serve.until_state("away", "running")
    whole = secret.read_bytes()
    secret.write_bytes(whole[:50])
    gamma.until(lambda s: any("not a private key" in t for t in s["troubles"]), "said")
    # The services still know one another; a process that begins now needs the file.
    os.kill(process_of(gamma.folder, " worker "), signal.SIGKILL)
    says = "gamma: its key is not where it was"
    for serve in three.serves:
        serve.until(lambda s: says in s["studies"][0]["why"], "waits for the key")
    secret.write_bytes(whole)
    three.submit_when_running("away")
    assert not gamma.get("/status")["troubles"]


def test_pinned_peers_take_a_held_key_in_their_handshakes(
    tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    """A context of the held copy presents the certificate of the pinned key."""
    alpha, beta, _ = services(tmp_path, key)
    identity, peer = ServiceIdentity.load(alpha), ServiceIdentity.load(beta)
    identity.hold_key()
    (tmp_path / "outside.pem").unlink()
    seen: list[str] = []
    pins = [PinnedKey("alpha", identity.own.key)]
    client = tls.pinned_client_context(
        peer.files,
        pins,
        lambda der: seen.append(tls.common_name(load_der_x509_certificate(der), "it")),
    )
    server = tls.pinned_server_context(identity.files)
    ways = [ssl.MemoryBIO() for _ in range(4)]
    ends = [
        server.wrap_bio(ways[0], ways[1], server_side=True),
        client.wrap_bio(ways[2], ways[3]),
    ]
    for _ in range(4):
        for number in (1, 0):
            with contextlib.suppress(ssl.SSLWantReadError):
                ends[number].do_handshake()
            ways[2 if number == 0 else 0].write(ways[1 if number == 0 else 3].read())
    assert set(seen) == {"alpha"}
