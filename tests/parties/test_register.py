"""A server's register: what was released from one folder is not released again from another one."""

import asyncio
import json
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import parties.mpc.server
from parties.config import CertificateFiles
from parties.federation.server import run_federated_server
from parties.foundation.errors import StoreError, StudyReleased, SubmissionRefused
from parties.foundation.exit_codes import FederationRefused, Status, describe
from parties.identity.tls import make_certificates
from parties.methods.flaim.server import flaim_plan
from parties.mpc.server import run_mpc_server
from parties.mpc.storage.store import Store
from parties.mpc.submission.submit import submit
from parties.storage.files import write_atomic
from parties.storage.privacy_ledger import DurableLedger
from parties.storage.release_registry import RegisteredFolder, ReleaseRegistry, StudyRegistration
from parties.storage.requested_rounds import RequestedRounds
from tests.parties.flaim_support import NAMES, SERVER, Events, flaim_config, play
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.small import write_small
from tests.parties.support import PARTIES, make_codes, make_config

Certificates = dict[str, CertificateFiles]
ROOT = Path(__file__).resolve().parents[2]
FIRST = RegisteredFolder("c1" * 32, "alpha", "study-1", "a" * 32, Path("/first"), "5e" * 32)
OTHER = replace(FIRST, store="b" * 32, folder=Path("/other"))


@pytest.fixture
def register(tmp_path: Path) -> ReleaseRegistry:
    return ReleaseRegistry(tmp_path / "places" / "register.sqlite")


@pytest.fixture
def cluster(tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    config = make_config({"run.rounds": 2, "timeouts.connect_s": 9.0})
    return Cluster(config, tmp_path / "run", certificates)


# The file


def test_begin_refuses_another_folder_once_something_was_released(
    register: ReleaseRegistry,
) -> None:
    for study in (FIRST, OTHER):
        register.begin(study)
    register.release(OTHER, ["north"])
    with pytest.raises(StudyReleased) as refused:
        register.begin(FIRST)
    assert describe(refused.value).status == Status.STORAGE
    message = str(refused.value)
    today = time.strftime("%Y-%m-%dT", time.gmtime())
    for part in ("/first: run study-1 of alpha", "released from /other", today, str(register.path)):
        assert part in message
    assert "with fresh noise" in message
    assert "a new configuration" in message
    with pytest.raises(StudyReleased):
        register.release(FIRST, ["north"])
    # The folder itself goes on, wherever it is by now.
    register.begin(replace(OTHER, folder=Path("/moved")))
    register.release(OTHER, ["south"])
    with pytest.raises(StudyReleased, match="released from /moved"):
        register.begin(FIRST)


def test_begin_tells_configurations_and_servers_apart(register: ReleaseRegistry) -> None:
    register.begin(FIRST)
    register.release(FIRST, ["north"])
    for study in (replace(OTHER, config="c2" * 32), replace(OTHER, server="beta")):
        register.begin(study)
        register.check_client(study, "north")
        register.release(study, ["north"])


def test_check_client_refuses_whom_another_folder_has_released(register: ReleaseRegistry) -> None:
    for study in (FIRST, OTHER):
        register.begin(study)
    register.check_client(OTHER, "north")
    register.release(FIRST, ["north", "south"])
    with pytest.raises(StudyReleased, match="client 'north' is in a release") as refused:
        register.check_client(OTHER, "north")
    # What a client is told has none of the server's paths.
    assert "/" not in refused.value.message
    register.check_client(OTHER, "west")
    register.check_client(FIRST, "north")


def test_resume_refuses_fewer_charges_than_were_made(register: ReleaseRegistry) -> None:
    study = StudyRegistration.begin(register.path, FIRST)
    study.resume(0)
    study.release(["north"], 0)
    study.release(["north"], 64)
    again = StudyRegistration.begin(register.path, FIRST)
    for charges in (0, 63):
        with pytest.raises(StudyReleased, match=f"knows of {charges} charges.* and 64 were made"):
            again.resume(charges)
    # A charge may be in the ledger only: the register is told of it with the next one.
    again.resume(65)


def test_sealing_keys_are_shared_until_the_studies_are_over(register: ReleaseRegistry) -> None:
    second = replace(OTHER, config="c2" * 32)
    for study in (FIRST, second, replace(second, store="c" * 32, seal="")):
        register.begin(study)
    assert register.sharing_seal(FIRST) == ["/other"]
    register.end(second)
    assert register.sharing_seal(FIRST) == []
    assert register.sharing_seal(replace(FIRST, seal="")) == []


def race(path: Path, number: int) -> bool:
    try:
        study = replace(FIRST, store=str(number))
        registered = StudyRegistration.begin(path, study)
        for client in range(5):
            registered.release([f"owner-{client}"])
    except StudyReleased:
        return False
    return True


def test_one_of_many_processes_releases(tmp_path: Path) -> None:
    path = tmp_path / "register.sqlite"
    with multiprocessing.get_context("forkserver").Pool(4) as pool:
        done = pool.starmap(race, [(path, number) for number in range(8)])
    assert done.count(True) == 1


def test_a_damaged_register_is_refused(register: ReleaseRegistry) -> None:
    register.path.write_bytes(b"")
    with pytest.raises(StoreError, match=r"register\.sqlite: is damaged"):
        ReleaseRegistry(register.path)
    assert register.path.read_bytes() == b""


# Compute servers


async def start(cluster: Cluster, pid: int, directory: Path) -> None:
    config = cluster.with_own_certificates()[pid]
    await run_mpc_server(
        config,
        pid,
        directory,
        progress=Recording(),
        closed=asyncio.Event(),
        register=cluster.register(pid),
    )


async def test_run_party_refuses_a_fresh_folder_once_the_first_charge_was_made(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Not only after the end: what was charged may have been opened."""
    assert None not in await cluster.run(owners=EVERYONE, kill=(1, "round", 1))
    for pid in range(3):
        with pytest.raises(StudyReleased, match=rf"released from .*server-{pid} "):
            await start(cluster, pid, tmp_path / f"fresh-{pid}")
        assert not (tmp_path / f"fresh-{pid}" / "transcript.jsonl").exists()
    # From where it was, the run goes on.
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    shutil.copy(cluster.certificates[PARTIES[0]].seal, cluster.own_files(PARTIES[0]).seal)
    with pytest.raises(StudyReleased):
        await start(cluster, 0, tmp_path / "again")


async def test_run_party_refuses_an_old_copy_of_its_folder_where_all_three_are_old(
    cluster: Cluster,
) -> None:
    """It has the name of the folder that released, and lacks what that one charged afterwards."""
    assert None not in await cluster.run(owners=EVERYONE, kill=(1, "round", 0))
    copies = [
        shutil.copytree(cluster.directory(pid), cluster.folder / f"copy-{pid}") for pid in range(3)
    ]
    seals = {path: path.read_bytes() for path in cluster.folder.glob("*/*.seal")}
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    for path, content in seals.items():
        if not path.exists():
            write_atomic(path, content, secret=True)
    for pid in range(3):
        shutil.rmtree(cluster.directory(pid))
        shutil.copytree(copies[pid], cluster.directory(pid))
    ended = await cluster.run(owners=EVERYONE)
    assert None not in ended
    assert any(isinstance(error, StudyReleased) for error in ended)
    assert "old copy" in str(next(e for e in ended if isinstance(e, StudyReleased)))
    for pid in range(3):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            assert {checkpoint.round for checkpoint in store.releases.checkpoints()} <= {0}


async def test_run_party_takes_a_fresh_folder_while_nothing_was_released(cluster: Cluster) -> None:
    assert None not in await cluster.run(owners=EVERYONE[:1], kill=(1, "waiting", None))
    cluster.directory(1).rename(cluster.folder / "given-up")
    for owner in EVERYONE:
        # Theirs is another submission: the first one is at two servers only.
        (cluster.folder / f"{owner}.state").unlink(missing_ok=True)
    for pid in (0, 2):
        cluster.directory(pid).rename(cluster.folder / f"given-up-{pid}")
    assert await cluster.run(owners=EVERYONE) == [None] * 3


async def test_run_party_opens_and_charges_nothing_that_the_register_does_not_have(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, tuple[str, ...]]] = []

    def full(
        self: ReleaseRegistry,
        study: RegisteredFolder,
        clients: Iterable[str],
        charges: int = 0,
        **_: object,
    ) -> None:
        with pytest.raises(StoreError, match="in use"):
            Store(study.folder / "store", study.config)
        seen.append((PARTIES.index(study.server), tuple(clients)))
        raise StoreError(self.path, "cannot be written: no room")

    monkeypatch.setattr(ReleaseRegistry, "release", full)
    ended = await cluster.run(owners=EVERYONE)
    assert None not in ended
    assert any(isinstance(error, StoreError) for error in ended)
    # In one order, that of their arrival.
    assert {frozenset(clients) for _, clients in seen} == {frozenset(EVERYONE)}
    assert len({clients for _, clients in seen}) == 1
    for pid in range(3):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            assert DurableLedger(store).entries == []
        assert '"what":"measure' not in (cluster.directory(pid) / "transcript.jsonl").read_text()


async def test_run_party_takes_in_nobody_whom_another_folder_has_released(
    cluster: Cluster,
) -> None:
    """Both were started before anything was released; the other one has been faster meanwhile."""
    waiting = asyncio.create_task(cluster.run(owners=(), closed=False))
    try:
        for _ in range(200):
            await asyncio.sleep(0.05)
            if all((cluster.directory(pid) / "transcript.jsonl").exists() for pid in range(3)):
                break
        for pid, name in enumerate(PARTIES):
            other = RegisteredFolder(
                cluster.config.digest(), name, "trial", "f" * 32, Path("/other")
            )
            StudyRegistration.begin(cluster.register(pid), other).release(["clinic-a"])
        with pytest.raises(SubmissionRefused, match="is in a release of this configuration") as no:
            await submit(cluster.config, make_codes(20), cluster.certificates["clinic-a"])
        assert no.value.status == 409
        assert "/other" not in str(no.value)
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_sealing_key_stays_for_a_study_that_is_not_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = cluster.config.override({"run.id": "another"})
    seal = cluster.own_files(PARTIES[0]).seal
    other = StudyRegistration.begin(
        cluster.register(0), RegisteredFolder.of_server(config, 0, "f" * 32, tmp_path / "another")
    )
    record = Recording()
    assert await cluster.run(owners=EVERYONE, records={0: record}) == [None] * 3
    assert seal.exists()
    assert f"{seal} stays: {tmp_path / 'another'} needs it, too" in record.texts
    other.end()
    assert await cluster.run() == [None] * 3
    assert not seal.exists()


# FLAIM's server


@pytest.fixture(scope="module")
def flaim_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("flaim-certs"), [SERVER], NAMES)


async def test_run_server_refuses_a_fresh_folder_and_clients_of_another_release(
    tmp_path: Path, flaim_certificates: Certificates
) -> None:
    config, register = flaim_config(flaim_certificates), tmp_path / "register.sqlite"
    await play(config, flaim_certificates, tmp_path, register=register)
    for name in ("fresh", "fresh again"):
        with pytest.raises(StudyReleased, match=rf"released from {tmp_path / 'server'}"):
            await run_federated_server(
                config,
                tmp_path / name,
                progress=Events(),
                closed=asyncio.Event(),
                register=register,
                plan=flaim_plan(config),
            )
    # The first folder ends once more.
    await play(config, flaim_certificates, tmp_path, register=register)


async def test_run_server_sends_away_whom_another_folder_has_released(
    tmp_path: Path, flaim_certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, register = flaim_config(flaim_certificates), tmp_path / "register.sqlite"
    begin = StudyRegistration.begin

    def overtaken(path: Path, study: RegisteredFolder) -> StudyRegistration:
        mine = begin(path, study)
        begin(path, replace(study, store="f" * 32, folder=Path("/other"))).release(NAMES[:1])
        return mine

    monkeypatch.setattr(StudyRegistration, "begin", overtaken)
    with pytest.raises(Exception, match=r"clients|released") as ended:
        await play(
            config.override({"clients.wait_s": 2.0}),
            flaim_certificates,
            tmp_path,
            register=register,
        )
    assert not isinstance(ended.value, FederationRefused)
    text = (tmp_path / "server" / "transcript.jsonl").read_text()
    assert f"client '{NAMES[0]}' is in a release of this configuration already" in text
    assert '"kind":"ledger"' not in text


async def test_run_server_refuses_an_old_copy_that_would_repeat_a_round_paid_before(
    tmp_path: Path, flaim_certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client pays for two of the rounds 0, 2, 3 and 4: rounds 0 and 2 are charged, 3 and 4 cost nothing more."""
    values = {"flaim.variant": "pairs", "run.rounds": 4, "clients.participation": 0.5}
    config, register = flaim_config(flaim_certificates, values), tmp_path / "register.sqlite"
    enter, old, killed = RequestedRounds.enter, tmp_path / "old", tmp_path / "killed"

    def copied_around(self: RequestedRounds, number: int, participants: Sequence[int]) -> None:
        if number == 4:
            shutil.copytree(tmp_path / "server", old)
        enter(self, number, participants)
        if number == 4:
            shutil.copytree(tmp_path / "server", killed)

    monkeypatch.setattr(RequestedRounds, "enter", copied_around)
    await play(config, flaim_certificates, tmp_path, register=register)
    options = {"progress": Events(), "closed": asyncio.Event(), "register": register}
    with pytest.raises(StudyReleased, match="is an old copy of run trial"):
        await run_federated_server(config, old, plan=flaim_plan(config), **options)
    # A server that was killed in the last round has its model left to make, of the other rounds.
    await run_federated_server(config, killed, plan=flaim_plan(config), **options)
    found = json.loads((killed / "result.json").read_text())
    assert {entry["round"] for entry in found["ledger"]} == {0, 2}
    assert (found["rounds_done"], found["lost_rounds"]) == (4, [4])
    assert found["participants"][-1] == {"round": 4, "participants": 3, "lost": True}


# Trials


def test_trials_write_a_key_alone_outside_their_folders_and_may_be_repeated(tmp_path: Path) -> None:
    """The key beside this user's budget seals the record of the table that a run read."""
    home = tmp_path / "home"
    home.mkdir()
    dropped = ("SYNCRET_BUDGET", "SYNCRET_REGISTER", "XDG_DATA_HOME", "XDG_STATE_HOME")
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    environment |= {"HOME": str(home), "MPLCONFIGDIR": str(tmp_path / "matplotlib")}
    config, data = write_small(tmp_path, rounds=1)
    for command, out in (("run", "a"), ("run", "b"), ("flaim", "c")):
        options = ["--out", tmp_path / out, "--json"]
        ended = subprocess.run(
            [sys.executable, "-m", "parties", command, config, "--data", data, *options],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        assert list(tmp_path.joinpath(out).rglob("*.sqlite*")) == []
    (key,) = (path for path in home.rglob("*") if path.is_file())
    assert (key.name, stat.S_IMODE(key.stat().st_mode)) == ("budget.sqlite.key", 0o600)
