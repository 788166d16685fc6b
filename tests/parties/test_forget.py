"""Shares do not outlive the run: what a server's folder holds at the end, after a kill, and when it is forgotten."""

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import parties.mpc.mesh
import parties.mpc.outputs
import parties.mpc.server
import parties.mpc.session
from parties.audit.runner import audit_folder
from parties.cli.main import cli
from parties.config import CertificateFiles, Config
from parties.foundation.errors import CertificateError, StoreError
from parties.mpc.outputs import STORE_FOLDER, forget_run
from parties.mpc.records import RunningTotal
from parties.mpc.server import run_mpc_server
from parties.mpc.storage.folder_files import FolderFiles
from parties.mpc.storage.store import Store
from parties.mpc.storage.submissions import SubmissionStore
from parties.mpc.storage.totals import TotalStore
from parties.storage.privacy_ledger import DurableLedger
from protocols.errors import ProtocolError
from protocols.pairing import Seals
from protocols.sealing import BoxKey
from tests.parties.audit_runs import collect
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.support import PARTIES, make_config

Certificates = dict[str, CertificateFiles]
PIECE = 24
"""Bytes of a share that are looked for: none of these comes about twice by chance."""


@pytest.fixture(autouse=True)
def secrets_seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bytes]]:
    """Pieces of all bodies and totals that any server kept, and the keys that commit to totals, by kind."""
    seen: dict[str, list[bytes]] = {"body": [], "total": [], "key": []}
    read, save, key = SubmissionStore.read, TotalStore.save, TotalStore.commitment_key

    def reading(self: SubmissionStore, client: str, version: int) -> bytes:
        body = read(self, client, version)
        # A seeded body is a pair of keys, or a key and a vector.
        seen["body"] += [body[:PIECE], body[-PIECE:]]
        return body

    def saving(self: TotalStore, total: RunningTotal) -> None:
        seen["total"] += [
            np.asarray(part[:8], "<u4").tobytes()[:PIECE]
            for part in (total.share.own, total.share.next)
        ]
        save(self, total)

    def keyed(self: TotalStore) -> bytes:
        found = key(self)
        seen["key"] += [found, found.hex().encode()]
        return found

    monkeypatch.setattr(SubmissionStore, "read", reading)
    monkeypatch.setattr(TotalStore, "save", saving)
    monkeypatch.setattr(TotalStore, "commitment_key", keyed)
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    return seen


@pytest.fixture
def cluster(tmp_path: Path, certificates: Certificates) -> Cluster:
    return Cluster(make_config({"run.rounds": 2}), tmp_path / "run", certificates)


def found_in(folder: Path, pieces: Mapping[str, list[bytes]]) -> set[str]:
    """Kinds of secrets, and sealing keys, in any file of a folder."""
    kinds = set()
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            kinds |= {kind for kind, items in pieces.items() if any(i in data for i in items)}
            kinds |= {"seal"} if path.suffix == ".seal" else set()
    return kinds


def opened(cluster: Cluster, pid: int) -> Store:
    return Store(cluster.directory(pid) / STORE_FOLDER, cluster.config.digest())


# At the end


async def test_nothing_secret_is_left_when_all_three_are_done(
    cluster: Cluster, secrets_seen: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # The control: what would be found.
        patch.setattr(parties.mpc.session, "discard_secrets", lambda *_, **__: None)
        assert await cluster.run(owners=EVERYONE) == [None] * 3
        assert found_in(cluster.folder, secrets_seen) == {"body", "total", "key", "seal"}
    texts = Recording()
    assert await cluster.run(records={0: texts}) == [None] * 3
    assert found_in(cluster.folder, secrets_seen) == set()
    (said,) = [text for text in texts.texts if text.startswith("deleted")]
    assert "party-0.seal" in said
    for pid in range(3):
        directory = cluster.directory(pid)
        assert {"transcript.jsonl", "result.json", "costs.json"} < {
            p.name for p in directory.iterdir()
        }
        with opened(cluster, pid) as store:
            assert DurableLedger(store).entries
            assert store.releases.checkpoints()
            assert store.submissions.count() == 3
            assert {s.own_digest + s.next_digest for s in store.submissions.all()} == {""}


async def test_servers_that_have_ended_meet_again_and_the_audit_passes(cluster: Cluster) -> None:
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    published = (cluster.directory(0) / "synthetic.csv").read_bytes()
    for _ in range(2):
        assert await cluster.run() == [None] * 3
    assert (cluster.directory(0) / "synthetic.csv").read_bytes() == published
    found = audit_folder(collect(cluster, cluster.folder / "audited"))
    assert [check for check in found.checks if check.status == "fail"] == []


async def test_a_server_that_was_stopped_before_its_end_finishes_with_two_that_have_ended(
    cluster: Cluster, secrets_seen: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = parties.mpc.session.discard_secrets

    def all_but_one(store: Store, *args: object, **kwargs: object) -> None:
        if store.directory.parent == cluster.directory(1):
            store.drop_meta("ended")  # As if it had been killed a moment earlier.
        else:
            real(store, *args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(parties.mpc.session, "discard_secrets", all_but_one)
        assert await cluster.run(owners=EVERYONE) == [None] * 3
    assert "total" in found_in(cluster.directory(1), secrets_seen)
    assert await cluster.run() == [None] * 3
    assert found_in(cluster.folder, secrets_seen) == set()


async def test_a_deletion_that_was_broken_off_goes_on_at_the_next_start(
    cluster: Cluster, secrets_seen: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FolderFiles.discard
    with monkeypatch.context() as patch:

        def broken(self: FolderFiles, table: str) -> None:
            if table == "total":
                raise StoreError(Path("store"), "cannot be deleted: Input/output error")
            real(self, table)

        patch.setattr(FolderFiles, "discard", broken)
        ended = await cluster.run(owners=EVERYONE)
    assert all(isinstance(error, StoreError) for error in ended)
    assert {"total", "key", "seal"} <= found_in(cluster.folder, secrets_seen)
    # Alone it does not get through to the others, but it need not for this.
    await cluster.run(pids=(0,))
    assert found_in(cluster.directory(0), secrets_seen) == set()
    assert await cluster.run() == [None] * 3
    assert found_in(cluster.folder, secrets_seen) == set()


async def test_a_tape_is_kept_at_the_end_as_its_warning_says_and_goes_when_it_is_forgotten(
    tmp_path: Path, certificates: Certificates, secrets_seen: dict[str, list[bytes]]
) -> None:
    config = make_config({"run.rounds": 1, "run.record_replay": True})
    cluster = Cluster(config, tmp_path, certificates)
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    directory = cluster.directory(1)
    assert found_in(directory / STORE_FOLDER, secrets_seen) == set()
    assert "body" in found_in(directory / "replay", secrets_seen)
    warning = (directory / "replay" / "WARNING.txt").read_text()
    assert "kept when the run has ended" in warning
    forget_run(cluster.with_own_certificates()[1], 1, directory, progress=Recording())
    assert not (directory / "replay").exists()


async def test_a_sealing_key_that_cannot_be_deleted_is_named_and_the_run_has_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.unlink

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".seal":
            raise OSError(30, "Read-only file system")
        real(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    record = Recording()
    assert await cluster.run(owners=EVERYONE, records={2: record}) == [None] * 3
    (said,) = [text for text in record.texts if "delete it yourself" in text]
    assert "party-2.seal cannot be deleted (Read-only file system)" in said


# A run that is not finished


async def test_without_its_sealing_key_a_server_takes_no_part_in_a_run_that_has_not_ended(
    cluster: Cluster,
) -> None:
    assert None not in await cluster.run(owners=EVERYONE, kill=(1, "round", 1))
    cluster.own_files(PARTIES[1]).seal.unlink()
    with pytest.raises(CertificateError, match=r"party-1\.seal"):
        await start(cluster, 1)


async def test_nothing_is_computed_with_a_server_that_offers_another_sealing_key_and_has_not_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that have ended offer one, and are met; who has it and is to compute is refused, and named."""
    real = parties.mpc.mesh.sealing_keys

    def another(config: Config, files: CertificateFiles, *, ended: bool) -> Seals:
        seals = real(config, files, ended=ended)
        return replace(seals, own=BoxKey.generate()) if PARTIES[1] in files.seal.name else seals

    with monkeypatch.context() as patch:
        patch.setattr(parties.mpc.mesh, "sealing_keys", another)
        ended = await cluster.run(owners=EVERYONE)
    for pid in (0, 2):
        assert isinstance(ended[pid], ProtocolError)
        with opened(cluster, pid) as store:
            assert store.releases.checkpoints() == []
    assert any("party 1 has another sealing key" in str(ended[pid]) for pid in (0, 2))
    # With its own one all goes well.
    assert await cluster.run(owners=EVERYONE) == [None] * 3


async def test_forget_deletes_what_is_secret_and_closes_the_run_for_good(
    cluster: Cluster, secrets_seen: dict[str, list[bytes]]
) -> None:
    assert None not in await cluster.run(owners=EVERYONE, kill=(1, "round", 1))
    directory, files = cluster.directory(1), cluster.own_files(PARTIES[1])
    config = cluster.with_own_certificates()[1]
    assert {"body", "total"} <= found_in(directory, secrets_seen)
    with opened(cluster, 1) as store:
        charged = DurableLedger(store).entries
        with pytest.raises(StoreError, match="in use"):
            forget_run(config, 1, directory, progress=Recording())
    forget_run(config, 1, directory, progress=Recording())
    assert found_in(directory, secrets_seen) == set()
    assert not files.seal.exists()
    with opened(cluster, 1) as store:
        assert DurableLedger(store).entries == charged
    assert (directory / "transcript.jsonl").exists()
    with pytest.raises(StoreError, match=r"was forgotten on .*expected a new configuration"):
        await start(cluster, 1)
    # A copy of the key does not open it again.
    shutil.copy(cluster.certificates[PARTIES[1]].seal, files.seal)
    with pytest.raises(StoreError, match="was forgotten"):
        await start(cluster, 1)


async def test_forget_that_was_broken_off_may_be_repeated_and_the_run_is_closed_at_once(
    cluster: Cluster, secrets_seen: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert None not in await cluster.run(owners=EVERYONE, kill=(1, "round", 1))
    directory = cluster.directory(1)
    config = cluster.with_own_certificates()[1]
    with monkeypatch.context() as patch:
        patch.setattr(Store, "discard_shares", broken_off)
        with pytest.raises(KeyboardInterrupt):
            forget_run(config, 1, directory, progress=Recording())
    with pytest.raises(StoreError, match="was forgotten"):
        await start(cluster, 1)
    forget_run(config, 1, directory, progress=Recording())
    assert found_in(directory, secrets_seen) == set()


def test_forget_makes_no_store_where_there_is_none(
    tmp_path: Path, certificates: Certificates
) -> None:
    files = certificates[PARTIES[0]]
    with pytest.raises(StoreError, match="is no compute server's folder"):
        forget_run(make_config(), 0, tmp_path / "none", progress=Recording())
    assert list(tmp_path.iterdir()) == []
    assert files.seal.exists()


async def test_forget_the_command_refuses_another_configuration(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert None not in await cluster.run(owners=EVERYONE, kill=(1, "round", 1))
    own = cluster.with_own_certificates()[0]
    for config, status in ((own.override({"run.id": "another"}), 7), (own, 0)):
        path = write(config, tmp_path)
        arguments = ["forget", str(path), "--pid", "0", "--dir", str(cluster.directory(0))]
        arguments += ["--register", str(tmp_path / "register")]
        result = CliRunner().invoke(cli, arguments)
        if status:
            assert isinstance(result.exception, StoreError)
            assert "another run or configuration" in str(result.exception)
        else:
            assert result.exit_code == 0, result.output
            assert (
                "deleted: the data owners' submissions and totals, and the sealing key"
                in result.output
            )
    assert (tmp_path / "register").exists()
    with opened(cluster, 0) as store:
        assert store.state.forgotten is not None


def write(config: Config, folder: Path) -> Path:
    path = folder / "config.toml"
    path.write_text(config.resolved_toml())
    return path


def broken_off(self: Store) -> None:
    raise KeyboardInterrupt


async def start(cluster: Cluster, pid: int) -> None:
    config = cluster.with_own_certificates()[pid]
    await run_mpc_server(
        config, pid, cluster.directory(pid), progress=Recording(), closed=asyncio.Event()
    )
