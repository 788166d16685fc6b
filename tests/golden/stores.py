"""Stores of an earlier tree: ``make`` leaves one of each kind in a folder, ``contents`` opens and reads them.

Made are a compute server's folder in the middle of a run, and an owner's state file beside it; the ledgers of a FLAIM
server, of a FLAIM client and of a silo, and a finished round of that server; an owner's budget; a server's register; a
service's database; two backups of the server's folder, by a passphrase and by a key. Nothing in them is anybody's.
"""

import asyncio
import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from parties.config import Config, load_config
from parties.crypto.encrypted_file import PassphraseWrapper, PublicKeyWrapper
from parties.crypto.hpke import SealKey
from parties.foundation.errors import StudyReleased
from parties.identity.tls import make_certificates
from parties.methods.flaim.history import RoundJournal
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.records import RunningTotal, StoredSubmission
from parties.mpc.storage.store import Store
from parties.mpc.submission.state import (
    SubmissionState,
    WithdrawnSubmissions,
    completed_receipt_of,
    counts_digest_in,
    load_withdrawn,
    mark_withdrawn,
)
from parties.mpc.submission.submit import prepare
from parties.service.backup import back_up, manifest_of, restore
from parties.session.study import Study
from parties.storage.database import Database
from parties.storage.owner_budget import OwnerBudget
from parties.storage.population_budget import Release
from parties.storage.populations import TableIdentity
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from parties.storage.release_registry import RegisteredFolder, ReleaseRegistry
from protocols.errors import PeerClosed
from tests.golden.archives import HERE, SUFFIX, pack, unpack
from tests.golden.services import make_service, service_in
from tests.parties import flaim_support, silos_support
from tests.parties.mesh import EVERYONE, Cluster
from tests.parties.support import certificates, make_codes, make_config

ARCHIVE = HERE / f"stores{SUFFIX}"
VALUES = HERE / "stores.json"
OWNER = "clinic-a"
PASSPHRASE = "a passphrase of no secret"
SERVERS = ((0, "server-0"), (1, "server-1"))
_DIGEST, _OTHER = "c1" * 32, "c2" * 32
FIRST = RegisteredFolder(_DIGEST, "alpha", "study-1", "a" * 32, Path("/first"), "5e" * 32)
SECOND = replace(FIRST, config=_OTHER, store="b" * 32, folder=Path("/second"))
_RUNNING = {
    "run.noise": "distributed",
    "run.iterations": 5,
    "run.final_iterations": 5,
    "timeouts.receive_s": 60.0,
}


def make(folder: Path) -> None:
    """The empty ``folder`` gets every store."""
    asyncio.run(_server(folder))
    asyncio.run(_flaim(folder))
    asyncio.run(_silo(folder))
    _budget(folder / "budget.sqlite")
    _register(folder / "register.sqlite")
    make_service(folder)
    key = SealKey.generate()
    (folder / "backup.seal").write_bytes(key.pem())
    for name, opener in (
        ("locked", PublicKeyWrapper(key.public)),
        ("passphrase", PassphraseWrapper(PASSPHRASE)),
    ):
        back_up(
            folder / "server-0",
            folder / f"{name}.backup",
            opener,
            register=folder / "register.sqlite",
        )


async def _server(folder: Path) -> None:
    """A run, whose server 1 is stopped in round 2, leaves two servers' folders; an owner leaves its state files."""
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster(make_config(_RUNNING), Path(name), certificates())
        ended = await cluster.run(owners=EVERYONE, kill=(1, "round", 2))
        assert isinstance(ended[0], PeerClosed), ended
        for pid, server in SERVERS:
            shutil.copytree(cluster.directory(pid), folder / server)
        _write(cluster.config, folder / "server.toml")
        shutil.copy(cluster.folder / f"{OWNER}.state", folder / "complete.state")
        workload, codes = cluster.config.build_workload(), make_codes(20)
        prepare(
            cluster.config,
            OwnerInput.of(Study(cluster.config, workload), codes),
            cluster.certificates[OWNER],
            workload=workload,
            first_round=1,
            state=folder / "begun.state",
        )
        withdrawn = WithdrawnSubmissions(cluster.config.digest(), OWNER, 2, ("0d" * 32,), "proof")
        mark_withdrawn(folder / "withdrawn.state", withdrawn)


async def _flaim(folder: Path) -> None:
    """A run of FLAIM leaves the server's ledger and rounds, and a client's ledger."""
    with tempfile.TemporaryDirectory() as name:
        files = make_certificates(Path(name), [flaim_support.SERVER], flaim_support.NAMES)
        config = flaim_support.flaim_config(files)
        await flaim_support.play(config, files, Path(name))
        shutil.copytree(Path(name) / "server" / "store", folder / "flaim-server")
        shutil.copytree(Path(name) / OWNER, folder / "flaim-client")
        _write(config, folder / "flaim.toml")


async def _silo(folder: Path) -> None:
    """A run between silos leaves a silo's ledger."""
    with tempfile.TemporaryDirectory() as name:
        files = make_certificates(Path(name), [silos_support.SERVER], silos_support.NAMES)
        config = silos_support.silos_config(files)
        plan = silos_support.Tails(config)
        await silos_support.play(config, files, Path(name), plan)
        shutil.copytree(Path(name) / OWNER, folder / "silo")
        _write(config, folder / "silo.toml")


def _write(config: Config, path: Path) -> None:
    """The file gets all that the parties agreed on, without the places of keys."""
    path.write_text(config.override({"tls": None}).resolved_toml())


def _budget(path: Path) -> None:
    budget = OwnerBudget(path)
    stays = TableIdentity(None, "/data/stays.csv", "0a" * 32)
    one = Release(_DIGEST, "study-1", "distaim", 0.02, 1.0, 1e-5, distance=1e-9)
    budget.charge(stays, one, "first")
    budget.set_limit("stays", 3.0, 1e-5)
    two = replace(one, config=_OTHER, run="study-2", accountant="gaussian")
    budget.charge(stays, two, "second")
    budget.charge(stays, two, "third", replaces=["second"])
    budget.charge(TableIdentity("visits"), replace(two, method="flaim", unit="person"), "fourth")
    budget.give_back(_DIGEST, ["first"], "proof")


def _register(path: Path) -> None:
    register = ReleaseRegistry(path)
    for study in (FIRST, SECOND):
        register.begin(study)
        register.release(study, ["north", "south"], charges=3)
    register.end(FIRST)


# Reading


def contents(folder: Path, beside: Path) -> dict[str, object]:
    """The document has the values of all stores in ``folder``; the empty folder ``beside`` gets restored backups."""
    return {
        **{name: _of_server(folder / name, folder / "server.toml", pid) for pid, name in SERVERS},
        "owner": _of_owner(folder, folder / "server.toml"),
        "flaim-server": _of_ledger(folder / "flaim-server", folder / "flaim.toml"),
        "flaim-rounds": _of_rounds(folder / "flaim-server" / "rounds", folder / "flaim.toml"),
        "flaim-client": _of_ledger(folder / "flaim-client", folder / "flaim.toml"),
        "silo": _of_ledger(folder / "silo", folder / "silo.toml"),
        "budget": _of_budget(folder / "budget.sqlite"),
        "register": _of_register(folder / "register.sqlite"),
        "service": service_in(folder),
        **{name: _of_backup(folder, name, beside) for name in ("locked", "passphrase")},
    }


def _of_server(server: Path, toml: Path, pid: int) -> dict[str, object]:
    config = load_config(toml)
    with Store(server / "store", config.digest()) as store:
        totals = [store.totals.load(round, pid) for round in store.totals.rounds()]
        keys = store.state.noise_keys()
        return {
            "identity": store.identity,
            "closed": store.state.closed_to_clients,
            "ended": store.state.ended,
            "submissions": [_of_submission(store, stored) for stored in store.submissions.all()],
            "standings": [standing.to_dict() for standing in store.records.all()],
            "finals": [asdict(final) for final in store.finalized.finalized()],
            "totals": [_of_total(total, store.totals.commitment_key()) for total in totals],
            "noise_keys": None if keys is None else _digest(keys.own, keys.next, keys.private),
            "inputs": [inputs.to_list() for inputs in store.releases.inputs()],
            "estimates": [
                [round, digest, _digest(store.releases.estimate(round))]
                for round, digest in store.releases.estimates().items()
            ],
            "checkpoints": [
                [point.round, point.candidate, point.sigma, point.clients, point.noisy.tolist()]
                for point in store.releases.checkpoints()
            ],
            "roll": [store.registry.counted, store.registry.held, store.registry.known],
            "members": [list(member) for member in store.registry.members],
            "ledger": _entries(DurableLedger(store)),
            "traffic": store.traffic.by_client(),
        }


def _of_submission(store: Store, stored: StoredSubmission) -> list[object]:
    submission = stored.submission
    signed = store.submissions.upload(submission.client)
    return [
        asdict(submission),
        stored.upload,
        [stored.body_digest, stored.own_digest, stored.next_digest],
        stored.size,
        _digest(store.submissions.read(submission.client, submission.version)),
        None if signed is None else _digest(signed.upload.message(), signed.signature),
    ]


def _of_total(total: RunningTotal, key: bytes) -> list[object]:
    return [
        total.round,
        [list(member) for member in total.members],
        _digest(total.share.own.tobytes(), total.share.next.tobytes()),
        total.commitment(key).hex(),
    ]


def _of_owner(folder: Path, toml: Path) -> dict[str, object]:
    """The values are of three state files: of a submission that is begun, that all servers have, that was withdrawn."""
    digest = load_config(toml).digest()
    begun, complete = SubmissionState.read(folder / "begun.state"), folder / "complete.state"
    withdrawn = load_withdrawn(folder / "withdrawn.state", digest, OWNER)
    return {
        "begun": asdict(begun),
        "of this configuration": begun.config == digest,
        "seeds": [begun.seeds.s0.hex(), begun.seeds.s1.hex()],
        "sealed": [_digest(box) for box in begun.sealed_boxes],
        "complete": completed_receipt_of(complete, digest, OWNER),
        "counts": counts_digest_in(complete),
        "withdrawn": None if withdrawn is None else asdict(withdrawn),
    }


def _of_ledger(folder: Path, toml: Path) -> dict[str, object]:
    with Database(folder, load_config(toml).digest(), LEDGER) as database:
        return {"identity": database.identity, "entries": _entries(DurableLedger(database))}


def _of_rounds(folder: Path, toml: Path) -> list[object]:
    history = RoundJournal(folder, load_config(toml).build_workload())
    return [
        [asdict(client) for client in history.population],
        *(
            [
                done.round,
                done.participants,
                list(done.choosers.items()),
                [[m.candidate, m.deviation, m.contributors, m.one_way] for m in done.measurements],
                [m.noisy.tolist() for m in done.measurements],
                done.lost,
            ]
            for done in history.rounds
        ),
    ]


def _entries(ledger: DurableLedger) -> list[object]:
    return [[e.round, e.step, e.event_text, e.rho, e.opening] for e in ledger.entries]


def _of_budget(path: Path) -> list[object]:
    return [
        [
            *(dataset.name, dataset.rho_limit, dataset.epsilon, dataset.delta),
            [[asdict(run.release), run.submission, run.at, run.returned] for run in dataset.runs],
        ]
        for dataset in OwnerBudget(path).datasets()
    ]


def _of_register(path: Path) -> list[object]:
    register = ReleaseRegistry(path)
    elsewhere = replace(FIRST, store="f" * 32)
    found: list[object] = []
    for study in (FIRST, SECOND, elsewhere):
        record = register.record(study.config, study.store)
        found.append(None if record is None else asdict(record))
    found.append(register.released_elsewhere(elsewhere))
    found.append(register.released_elsewhere(FIRST))
    found.append(list(register.sharing_seal(elsewhere)))
    try:
        register.check_client(elsewhere, "north")
    except StudyReleased as error:
        found.append(str(error))
    return found


def _of_backup(folder: Path, name: str, beside: Path) -> dict[str, object]:
    file = folder / f"{name}.backup"
    key = SealKey.load(folder / "backup.seal")
    opener = (
        PassphraseWrapper(PASSPHRASE) if name == "passphrase" else PublicKeyWrapper(key.public, key)
    )
    manifest = manifest_of(file, opener)
    to, register = beside / name, beside / f"{name}.sqlite"
    restore(file, to, opener, register=register)
    pid, server = SERVERS[0]
    return {
        "manifest": json.loads(manifest.stored()),
        "files": sorted(p.relative_to(to).as_posix() for p in to.rglob("*") if p.is_file()),
        "same": _of_server(to, folder / "server.toml", pid)
        == _of_server(folder / server, folder / "server.toml", pid),
        "register": _of_register(register),
    }


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def in_json(values: object) -> object:
    """The function returns ``values`` as a JSON file has them, with moments in words."""
    text = json.dumps(values, default=lambda moment: moment.isoformat(), indent=1)
    return json.loads(text)


def main() -> None:
    """The command makes the archive and the values anew."""
    with tempfile.TemporaryDirectory() as name:
        folder, kept, beside = (Path(name) / part for part in ("made", "kept", "beside"))
        folder.mkdir()
        beside.mkdir()
        make(folder)
        pack(folder, ARCHIVE, [path for path in folder.rglob("*") if path.is_file()])
        values = in_json(contents(unpack(ARCHIVE, kept), beside))
    VALUES.write_text(json.dumps(values, indent=1) + "\n")
    print(ARCHIVE.name, ARCHIVE.stat().st_size)


if __name__ == "__main__":
    main()
