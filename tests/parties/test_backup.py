"""Backups: taken while a server runs, opened by nobody else, and restored without the ledger going back."""

import asyncio
import io
import json
import shutil
import sqlite3
import tarfile
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from parties.cli.main import cli
from parties.config import CertificateFiles
from parties.crypto import encrypted_file
from parties.crypto.encrypted_file import EncryptingWriter, PublicKeyWrapper
from parties.crypto.hpke import SealKey
from parties.foundation.errors import SealError, StoreError, StudyReleased
from parties.foundation.exit_codes import describe
from parties.mpc import server
from parties.mpc.storage.store import Store
from parties.observability.events import FieldValue
from parties.service import backup as backup_module
from parties.service.admin_listener import make_operator
from parties.service.backup import back_up, manifest_of, restore
from parties.service.identity import ServiceIdentity
from parties.service.process_info import LAST_BACKUP, folder_dict
from parties.service.rotation import announce
from parties.service.snapshot import snapshot
from parties.service.study_intake import new_card
from parties.storage.privacy_ledger import DurableLedger
from parties.storage.release_registry import RegisteredFolder, ReleaseRegistry
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.serving import make_identities, syncret
from tests.parties.support import bodies_in, make_config, make_submission, make_total
from tests.parties.test_store import CONFIG, put

KEY = SealKey.generate()
OWN = PublicKeyWrapper(KEY.public, KEY)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A server's folder with two submissions, a total, a transcript, and what passes."""
    made = tmp_path / "server"
    with Store(made / "store", CONFIG) as store:
        put(store, make_submission("clinic-a"), b"shares of a")
        put(store, make_submission("clinic-b"), b"shares of b", outgoing=(1,))
        store.totals.save(make_total(0, ("clinic-z",), np.arange(9, dtype=np.uint32)))
    (made / "transcript.jsonl").write_text("one\ntwo\n")
    (made / "store" / "incoming" / "half").write_bytes(b"half a body")
    (made / ".costs.json.0123abcd").write_bytes(b"half a file")
    return made


def contents(folder: Path) -> dict[str, bytes]:
    found = snapshot(folder)
    files = {name: listed.path.read_bytes() for name, listed in found.files.items()}
    return {**files, **dict.fromkeys(found.databases, b"database")}


def register_in(folder: Path) -> Path:
    return folder / "register.sqlite"


def restored(file: Path, to: Path, **options: object) -> Path:
    restore(file, to, OWN, register=register_in(to.parent), **options)  # type: ignore[arg-type]
    return to


def test_a_restored_folder_has_all_that_the_server_kept_and_nothing_that_passes(
    folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "copy"
    manifest = back_up(folder, file, OWN)
    assert manifest == manifest_of(file, OWN)
    (kept,) = manifest.stores
    assert (kept.path, kept.config, kept.charges) == ("store/store.sqlite", CONFIG, 0)
    again = restored(file, tmp_path / "again")
    assert contents(again) == contents(folder)
    assert not [path for path in again.rglob("*") if "half" in path.name or path.name[0] == "."]
    with Store(again / "store", CONFIG) as store, Store(folder / "store", CONFIG) as before:
        assert store.identity == before.identity
        assert store.submissions.read("clinic-a") == b"shares of a"
        assert store.totals.load(0, 0).share.own.tolist() == list(range(9))


def test_a_backup_and_what_is_made_of_it_is_its_owner_s_alone(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    back_up(folder, file, OWN)
    assert file.stat().st_mode & 0o777 == 0o600
    data = file.read_bytes()
    for secret in (b"shares of a", b"clinic-a", b"SQLite format", b"transcript.jsonl"):
        assert secret not in data
    again = restored(file, tmp_path / "again")
    modes = {path.stat().st_mode & 0o777 for path in (again, *again.rglob("*"))}
    assert modes == {0o700, 0o600}


def test_a_backup_is_of_one_moment_while_the_store_is_written_to(
    folder: Path, tmp_path: Path
) -> None:
    """A writer that never rests for long: every file that a row of the copy names is in the copy, whole."""
    over, made = threading.Event(), 0

    def write() -> None:
        nonlocal made
        with Store(folder / "store", CONFIG) as store:
            while not over.is_set():
                made += 1
                client = f"client-{made}"
                put(store, make_submission(client), client.encode() * 1000, limit=10**6)
                over.wait(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            back_up(folder, tmp_path / f"copy-{number}", OWN)
    finally:
        over.set()
        writer.join()
    for number in range(3):
        again = restored(tmp_path / f"copy-{number}", tmp_path / f"again-{number}")
        with Store(again / "store", CONFIG) as store:
            clients = [item.submission.client for item in store.submissions.all()]
            assert 2 <= len(clients) <= made + 2
            for client in clients:
                body = store.submissions.read(client)
                assert body.startswith((client.encode(), b"shares of"))


def test_a_file_that_has_gone_while_it_is_copied_begins_the_copy_anew(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_module, "_BACKUP_PAUSE_S", 0.0)
    real, times = backup_module.snapshot, 0

    def then_a_round_is_over(place: Path) -> object:
        nonlocal times
        found = real(place)
        times += 1
        if times == 1:
            with Store(folder / "store", CONFIG) as store:
                for round in (1, 2):
                    counts = np.full(9, round, np.uint32)
                    store.totals.save(make_total(round, ("clinic-z",), counts))
        return found

    monkeypatch.setattr(backup_module, "snapshot", then_a_round_is_over)
    back_up(folder, tmp_path / "copy", OWN)
    assert times == 2
    with Store(restored(tmp_path / "copy", tmp_path / "again") / "store", CONFIG) as store:
        assert store.totals.rounds() == [1, 2]
        assert store.totals.load(2, 0).share.own.tolist() == [2] * 9


def test_a_transcript_that_grows_is_copied_up_to_the_moment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = backup_module.snapshot

    def then_it_grows(place: Path) -> object:
        found = real(place)
        with (folder / "transcript.jsonl").open("a") as file:
            file.write("three\n")
        return found

    monkeypatch.setattr(backup_module, "snapshot", then_it_grows)
    back_up(folder, tmp_path / "copy", OWN)
    again = restored(tmp_path / "copy", tmp_path / "again")
    assert (again / "transcript.jsonl").read_text() == "one\ntwo\n"


def test_keys_and_register_come_back_where_they_are_asked_for(folder: Path, tmp_path: Path) -> None:
    keys, there = tmp_path / "tls", tmp_path / "there"
    keys.mkdir()
    (keys / "own.key").write_text("key")
    register = register_in(tmp_path)
    ReleaseRegistry(register)
    back_up(folder, tmp_path / "copy", OWN, keys=keys, register=register)
    there.mkdir()
    manifest = restore(
        tmp_path / "copy",
        there / "server",
        OWN,
        keys=there / "tls",
        register=there / "state" / "register.sqlite",
    )
    assert manifest.keys
    assert manifest.contents is not None
    assert (manifest.contents.private_keys, manifest.contents.register) == (("keys/own.key",), True)
    assert (there / "tls" / "own.key").read_text() == "key"
    assert ReleaseRegistry(there / "state" / "register.sqlite").record(CONFIG, "?") is None
    assert sorted(path.name for path in there.iterdir()) == ["server", "state", "tls"]
    back_up(folder, tmp_path / "without", OWN)
    with pytest.raises(StoreError, match="has no keys in it"):
        restored(tmp_path / "without", tmp_path / "x", keys=tmp_path / "y")
    assert not (tmp_path / "x").exists()


def test_back_up_refuses_places_that_are_none(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    for of, to, words in (
        (tmp_path / "nobody", tmp_path / "copy", "is no folder"),
        (folder, tmp_path / "there", "is there already"),
        (folder, folder / "copy", "in the folder of which it is a backup"),
        (folder, tmp_path / "no" / "copy", "cannot be written"),
    ):
        with pytest.raises(StoreError, match=words):
            back_up(of, to, OWN)


def test_restore_replaces_nothing(folder: Path, tmp_path: Path) -> None:
    back_up(folder, tmp_path / "copy", OWN)
    with pytest.raises(StoreError, match="is there already; expected the name of a new folder"):
        restored(tmp_path / "copy", folder)
    (tmp_path / "empty").mkdir()
    restored(tmp_path / "copy", tmp_path / "empty")


def test_a_damaged_backup_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    back_up(folder, file, OWN)
    data = file.read_bytes()
    before = sorted(tmp_path.iterdir())
    for damaged in (data[:-1], data[:2000], data[:-40] + bytes(40), b"", b"PK\x03\x04" + data):
        file.write_bytes(damaged)
        with pytest.raises(SealError, match="copy: "):
            restored(file, tmp_path / "again")
        assert sorted(tmp_path.iterdir()) == before


MANIFEST = {"folder": "x", "made_at": "", "syncret": "", "stores": [], "keys": False, "form": 1}


def forged(path: Path, *entries: tarfile.TarInfo, said: object = MANIFEST) -> Path:
    """A file of somebody who has the public key."""
    with path.open("wb") as file:
        sink = EncryptingWriter(file, OWN)
        with tarfile.open(fileobj=sink, mode="w|") as archive:
            first = tarfile.TarInfo("manifest.json")
            first.size = len(json.dumps(said))
            archive.addfile(first, io.BytesIO(json.dumps(said).encode()))
            for entry in entries:
                archive.addfile(entry, io.BytesIO(b"x" * entry.size))
        sink.finish()
    return path


def link(name: str, to: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, to
    return entry


@pytest.mark.parametrize(
    "said",
    [
        [],
        {"form": 1},
        {"form": 2},
        MANIFEST | {"more": 1},
        MANIFEST | {"stores": [7]},
        MANIFEST | {"stores": [{"path": "../../x/store", "config": "", "store": "", "charges": 0}]},
        MANIFEST | {"stores": [{"path": "/x/store", "config": "", "store": "", "charges": 0}]},
        MANIFEST | {"stores": [{"path": 7, "config": "", "store": "", "charges": 0}]},
    ],
)
def test_restore_takes_no_manifest_that_none_of_ours_has(tmp_path: Path, said: object) -> None:
    with pytest.raises(StoreError, match=r"expected (a backup|1)"):
        restored(forged(tmp_path / "copy", said=said), tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "entry",
    [
        tarfile.TarInfo("folder/../../outside"),
        tarfile.TarInfo("/etc/outside"),
        tarfile.TarInfo("elsewhere/file"),
        tarfile.TarInfo("folder"),
        tarfile.TarInfo("register.sqlite/x"),
        link("folder/link", "/etc/passwd", tarfile.SYMTYPE),
        link("folder/link", "manifest.json", tarfile.LNKTYPE),
        link("folder/pipe", "", tarfile.FIFOTYPE),
    ],
    ids=lambda entry: f"{entry.name} {entry.type!r}",
)
def test_what_leads_out_of_the_folder_is_refused(tmp_path: Path, entry: tarfile.TarInfo) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(StoreError, match="which no copy has"):
        restored(forged(tmp_path / "copy", entry), place / "again")
    assert list(place.iterdir()) == []


def test_no_link_is_made_below_a_link(tmp_path: Path) -> None:
    victim, place = tmp_path / "victim", tmp_path / "place"
    victim.mkdir()
    place.mkdir()
    links = [
        link("folder/own.key", str(victim), tarfile.SYMTYPE),
        link("folder/own.key/next.key", "/outside", tarfile.SYMTYPE),
    ]
    for entries in (links, links[::-1]):
        with pytest.raises(StoreError, match="which no copy has"):
            restored(forged(tmp_path / "copy", *entries), place / "again")
    assert list(victim.iterdir()) == list(place.iterdir()) == []


# The commands


def called(*arguments: object) -> tuple[int, str]:
    """Status and output, with errors as `syncret` shows them."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    error = "" if result.exception is None else str(describe(result.exception).message)
    return result.exit_code, result.output + error


def test_commands_copy_and_restore_by_key_and_by_passphrase(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encrypted_file, "_SCRYPT", {"n": 1 << 4, "r": 8, "p": 1})
    monkeypatch.chdir(tmp_path)
    assert called("certs", "backup-key", "offsite")[0] == 0
    assert (tmp_path / "offsite.backup-key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "words").write_text("correct horse battery\nwhat it is for\n")
    for ways, opens in (
        (["--for", "offsite.backup-pub"], ["--key", "offsite.backup-key"]),
        (["--passphrase-file", "words"], ["--passphrase-file", "words"]),
    ):
        name = f"copy{len(ways[0])}"
        status, output = called("backup", folder, "--to", name, *ways)
        assert (status, "0 charges in its ledger" in output) == (0, True), output
        assert "private keys: none in it" in output
        status, output = called("restore", name, "--list", "--json", *opens)
        assert json.loads(output)["stores"][0]["config"] == CONFIG
        assert called("restore", name, "--to", f"again-{name}", *opens)[0] == 0
        assert contents(tmp_path / f"again-{name}") == contents(folder)


def test_commands_copy_and_restore_keys_and_register_where_they_are_asked_to(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encrypted_file, "_SCRYPT", {"n": 1 << 4, "r": 8, "p": 1})
    (tmp_path / "words").write_text("correct horse battery\n")
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "own.key").write_text("key")
    register = register_in(tmp_path)
    ReleaseRegistry(register)
    opens = ("--passphrase-file", tmp_path / "words")
    status, output = called(
        *("backup", folder, "--to", tmp_path / "copy", *opens),
        *("--keys", tmp_path / "tls", "--register", register),
    )
    assert (status, "the release registry: in it" in output) == (0, True), output
    status, output = called(
        *("restore", tmp_path / "copy", "--to", tmp_path / "again", *opens),
        *("--keys", tmp_path / "again-tls", "--register", tmp_path / "again-register"),
    )
    assert status == 0, output
    assert (tmp_path / "again-tls" / "own.key").read_text() == "key"
    assert (tmp_path / "again-register").exists()


def test_backup_and_list_name_every_private_key_and_what_else_is_in_it(tmp_path: Path) -> None:
    """Of a service's folder: keys are recognised here by their content, and there by their names."""
    (tmp_path / "services").mkdir()
    alpha = ServiceIdentity.load(make_identities(tmp_path / "services")[0])
    make_operator(alpha.folder, "anna", hosts=["localhost"], days=9, password="p")
    new_card(alpha, "distaim")
    announce(alpha, new_key=True)
    secret = {
        path.relative_to(alpha.folder).as_posix()
        for path in alpha.folder.rglob("*")
        if path.is_file() and (b"PRIVATE KEY" in path.read_bytes() or path.suffix == ".p12")
    }
    assert len(secret) == 7
    syncret("certs", "backup-key", "offsite", cwd=tmp_path)
    made = ("backup", str(alpha.folder), "--to", "copy", "--for", "offsite.backup-pub")
    said = syncret(*made, cwd=tmp_path)
    opens = ("restore", "copy", "--list", "--key", "offsite.backup-key")
    assert syncret(*opens, cwd=tmp_path) == said
    assert "keys: none" not in said
    assert "private keys: 7 (admin/admin.key, " in said
    assert "keys/next.key, keys/own.key" in said
    age = folder_dict(alpha.folder)["backup_age_s"]
    assert isinstance(age, float)
    assert 0 <= age < 100
    assert folder_dict(tmp_path)["backup_age_s"] is None
    assert "database: not in it" in said
    assert "registry: not in it" in said
    listed = json.loads(syncret(*opens, "--json", cwd=tmp_path))["contents"]
    assert set(listed["private_keys"]) == secret
    files = [
        path for path in alpha.folder.rglob("*") if path.is_file() and path.name != LAST_BACKUP
    ]
    assert listed["files"] == len(files)
    assert listed["size"] == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["backup", "server", "--to", "x"], "nobody to ask for a passphrase"),
        (["backup", "server", "--to", "x", "--passphrase-file", "short"], "has 5 characters"),
        (["backup", "server", "--to", "x", "--passphrase-file", "none"], "none: cannot be read"),
        (["backup", "server", "--to", "x", "--for", "short"], "expected the .backup-pub"),
        (["backup", "server", "--to", "x", "--for", "a", "--passphrase-file", "b"], "in one way"),
        (["restore", "short", "--to", "x", "--passphrase-file", "long"], "is no backup"),
        (["restore", "short", "--key", "long"], "give --to DIR, or --list"),
        (["restore", "short", "--to", "x", "--list"], "give --to DIR, or --list"),
        (["restore", "short", "--to", "x", "--key", "long"], "others may read it"),
    ],
)
def test_commands_refuse_what_cannot_be_with_words(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("short")
    (tmp_path / "long").write_text("correct horse battery")
    before = sorted(tmp_path.iterdir())
    status, output = called(*arguments)
    assert status != 0
    assert words in " ".join(output.split())
    assert sorted(tmp_path.iterdir()) == before


# Restored servers go on, and the ledger does not go back


@pytest.fixture
def cluster(
    tmp_path: Path, certificates: Mapping[str, CertificateFiles], monkeypatch: pytest.MonkeyPatch
) -> Cluster:
    monkeypatch.setattr(server, "make_estimator", make_uniform)
    return Cluster(make_config(), tmp_path, certificates)


def charges_of(cluster: Cluster, pid: int) -> int:
    with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
        return len(DurableLedger(store).entries)


def at(event: str, round: int, do: Callable[[], object]) -> Recording:
    def look(name: str, fields: Mapping[str, FieldValue]) -> None:
        if (name, fields.get("round")) == (event, round):
            do()

    return Recording(look)


async def test_a_server_restored_from_a_backup_of_a_running_one_goes_on_with_the_others_ledger(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Taken in round 1, the disk lost in round 3: its ledger is brought up to the others', and the run ends well."""
    file, folder, register = tmp_path / "copy", cluster.directory(1), cluster.register(1)
    records = {1: at("round", 1, lambda: back_up(folder, file, OWN, register=register))}
    ended = await cluster.run(owners=EVERYONE, records=records, kill=(0, "round", 3))
    assert None not in ended
    charged = charges_of(cluster, 1)
    shutil.rmtree(folder)
    with pytest.raises(StoreError, match=r"charged . times by then, and . times by now"):
        restore(file, folder, OWN, register=register)
    assert not folder.exists()
    manifest = restore(file, folder, OWN, register=register, behind=True)
    assert manifest.stores[0].charges == charges_of(cluster, 1) < charged
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    assert len({charges_of(cluster, pid) for pid in range(3)}) == 1
    assert charges_of(cluster, 1) >= charged
    # What was deleted at the end stays so.
    shutil.rmtree(folder)
    with pytest.raises(StoreError, match="have ended since"):
        restore(file, folder, OWN, register=register, behind=True)


def test_of_several_runs_those_that_have_ended_come_back_without_their_shares(
    tmp_path: Path,
) -> None:
    """A service with two studies, one of which ended after the backup; it was lost, but for its register."""
    service, register = tmp_path / "service", ReleaseRegistry(register_in(tmp_path))
    for name in ("over", "open"):
        place = service / "studies" / name
        with Store(place / "run" / "store", CONFIG) as store:
            put(store, make_submission("clinic-a"), f"shares of {name}".encode())
            study = RegisteredFolder(CONFIG, "alpha", name, store.identity, place / "run")
        (place / "run" / "replay").mkdir()
        (place / "run" / "replay" / "tape.bin").write_bytes(b"recorded")
        (place / "tls").mkdir()
        (place / "tls" / "own.seal").write_bytes(b"seal")
        register.begin(study)
        if name == "over":
            ended = study
    back_up(service, tmp_path / "copy", OWN)
    register.end(ended)
    again = restored(tmp_path / "copy", tmp_path / "again")
    kept = contents(again)
    secret = {name for name, data in kept.items() if data in (b"recorded", b"seal")}
    assert secret == {"studies/open/run/replay/tape.bin", "studies/open/tls/own.seal"}
    for name, there in (("open", 1), ("over", 0)):
        assert len(bodies_in(again / "studies" / name / "run" / "store", "submissions")) == there
    assert b"shares of over" not in kept.values()
    with Store(again / "studies" / "over" / "run" / "store", CONFIG) as store:
        assert store.state.ended


async def test_three_servers_restored_to_the_same_old_backup_do_not_release_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    files = [tmp_path / f"copy-{pid}" for pid in range(3)]

    def copy(pid: int) -> Callable[[], object]:
        return lambda: back_up(cluster.directory(pid), files[pid], OWN)

    records = {pid: at("round", 1, copy(pid)) for pid in range(1, 3)}
    await cluster.run(owners=EVERYONE, records=records, kill=(0, "round", 3))
    for pid in (1, 2):
        shutil.rmtree(cluster.directory(pid))
        restore(
            files[pid], cluster.directory(pid), OWN, register=cluster.register(pid), behind=True
        )
    shutil.rmtree(cluster.directory(0))
    restore(files[1], cluster.directory(0), OWN, register=tmp_path / "none.sqlite", behind=True)
    ended = await cluster.run(owners=EVERYONE)
    assert any(isinstance(error, StudyReleased) for error in ended)


async def test_a_backup_beside_the_event_loop_holds_nobody_up(folder: Path, tmp_path: Path) -> None:
    await asyncio.to_thread(back_up, folder, tmp_path / "copy", OWN)
    with closing(sqlite3.connect(folder / "store" / "store.sqlite")) as db:
        assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)
