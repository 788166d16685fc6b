"""What a compute server leaves behind: its costs, its result, and at the lead the model and the synthetic table.

Every file is complete or not there. All of it is public: costs are sizes and times, results are released values.

    transcript.jsonl   every message, opening and charge (`protocols.transcript`)
    costs.json         by attempt (a restart begins a new one): steps, openings, seconds
    result.json        rounds, clients, who was counted and who excluded, selections, ledger
    model/             at the lead: the final model (`mechanisms.model`)
    synthetic.csv      at the lead: the synthetic table
    quality.json       at the lead: how good it is, as far as what was opened says (`parties.report.quality`)

Shares do not outlive the run: what is secret goes when all three servers are done, or when an operator gives up.

Provides ``discard_secrets``, which a server does at its end (and goes on with at its next start, if it was killed
meanwhile), and ``forget_run``, for a run that will not be finished: its store is closed for good. Submissions, running
totals, what waits to be passed on, the key of the totals' commitments and the server's sealing key go: what was
recorded of the traffic stays closed for good. Transcript, model, ledger, costs and result stay; so does a tape
(`tape`), which was asked for, but when the run is forgotten.

Secret: what is deleted. Known limits: files are unlinked, and the database is written anew, without what was in it;
nothing is overwritten, which would mean little on a flash disk, a file system with a journal or a copy elsewhere. Who
is to rely on it has an encrypted disk.
"""

import secrets
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import LedgerEntry
from mechanisms.aim import AimResult, estimated_total
from mechanisms.model import Model
from mechanisms.sampling import public_generator
from mechanisms.workload import Workload
from parties.config import CertificateFiles, Config
from parties.foundation.errors import StoreError
from parties.foundation.untrusted_text import parse_json
from parties.mpc.records import ParticipantRecord
from parties.mpc.replay.log import REPLAY_FOLDER
from parties.mpc.storage.store import Store
from parties.observability.events import Progress
from parties.session.result_digests import MODEL_FOLDER, TABLE_FILE, ResultDigests, result_digests
from parties.storage.database import FILE
from parties.storage.files import atomic_replacement, disk_errors, write_json
from parties.storage.release_registry import RegisteredFolder, ReleaseRegistry, StudyRegistration
from parties.storage.user_paths import registry_path
from protocols.context import Costs
from protocols.durable import sync


class CostsFile:
    """The costs of this attempt, beside those of the attempts before it."""

    def __init__(self, path: Path, costs: Costs) -> None:
        self.costs = costs
        self._path = path
        self._started = time.time()
        self.seconds: dict[str, float] = {}
        self.steps = costs.steps
        self._before = read_attempts(path)

    def save(self) -> None:
        """Write the file anew. Raises StoreError."""
        write_json(self._path, {"attempts": self._attempts()})

    def sent_by_step(self) -> dict[str, int]:
        """Bytes sent so far, by step, over all attempts; steps that sent nothing are left out."""
        sums: Counter[str] = Counter()
        for attempt in self._attempts():
            for step in attempt["steps"]:
                sums[step["step"]] += step["sent_bytes"]
        return {step: sent for step, sent in sums.items() if sent}

    def _attempts(self) -> list[dict[str, Any]]:
        attempt: dict[str, Any] = {
            "started": self._started,
            "seconds": {**self.seconds, "total": time.time() - self._started},
            "steps": [asdict(step) for step in self.costs.steps],
            "openings": [asdict(opening) for opening in self.costs.openings],
        }
        return [*self._before, attempt]


def read_attempts(path: Path) -> list[dict[str, Any]]:
    """The attempts in a costs file; none where there is no file or no such file."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
        return list(document["attempts"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def result_document(
    result: AimResult,
    workload: Workload,
    *,
    config: Config,
    rho_total: float,
    ledger: Sequence[LedgerEntry],
    records: Sequence[ParticipantRecord] = (),
    finished_early: bool = False,
) -> dict[str, object]:
    """The content of result.json but for the traffic; ``finished_early``: as the operators asked."""
    selected = []
    for number in range(1, result.rounds_done + 1):
        until = [m for m in result.measurements if m.round <= number]
        for measurement in (m for m in until if m.round == number):
            selected.append(
                {
                    "round": number,
                    "query": list(workload.candidates[measurement.candidate]),
                    "clients": measurement.clients,
                    "rows_estimated": estimated_total(until, measurement.clients, config.max_rows),
                    "sigma": measurement.sigma,
                }
            )
    return {
        "rounds_done": result.rounds_done,
        "finished_early": finished_early,
        "clients": result.clients,
        "excluded": [s.to_dict() for s in records if s.excluded is not None],
        "counted": [s.to_dict() for s in records if s.excluded is None],
        "rows_estimated": result.total,
        "sigma": result.measurements[0].sigma,
        "rho_total": rho_total,
        "ledger": [entry.to_dict() for entry in ledger],
        "selected": selected,
    }


class WrittenOutputs(NamedTuple):
    """What was written: as all servers seal it, and the table's codes (rows, columns)."""

    said: ResultDigests
    codes: NDArray[np.int32]


def write_synthetic(directory: Path, model: Model, config: Config, *, total: int) -> WrittenOutputs:
    """Draw the rows, write ``synthetic.csv`` and ``model/``, durably; returns what they are. Raises StoreError."""
    # Pandas takes a fifth of a second to import, which only the lead needs.
    from mechanisms.synthetic import synthetic_parts
    from mechanisms.writing import form_of, write_rows

    rows = config.run.rows or total
    seed = secrets.randbits(64) if config.run.seed is None else config.run.seed
    parts = synthetic_parts(model, rows, seed=seed)
    folder = directory / MODEL_FOLDER
    with disk_errors(folder):
        model.save(folder)
        for written in (*folder.iterdir(), folder):
            sync(written)
    # Last of all: where there is a table, its model is there too.
    with atomic_replacement(directory / TABLE_FILE, durable=True) as beside:
        write_rows(beside, parts, config.domain, form_of(directory / TABLE_FILE))
    # The codes that the parts were made of: to draw them again takes less than to read the file.
    return WrittenOutputs(
        result_digests(directory, rows), model.sample(rows, public_generator(seed))
    )


STORE_FOLDER = "store"
"""The store's folder in a server's."""


def has_store(directory: Path) -> bool:
    """Whether a server's folder has a store in it."""
    return (directory / STORE_FOLDER / FILE).exists()


def check_open(store: Store) -> None:
    """Refuse a store that was forgotten. Raises StoreError."""
    since = store.forgotten
    if since is not None:
        raise StoreError(
            store.directory,
            f"was forgotten on {since} (syncret forget): its shares and its sealing key are deleted; expected a new "
            "configuration, with a new card of this server, and another folder",
        )


def discard_secrets(
    store: Store, files: CertificateFiles, registration: StudyRegistration, *, progress: Progress
) -> None:
    """Delete all that is secret of a run that has ended. May be repeated. Raises StoreError.

    A sealing key that another study of ``registration`` has, too, and is not over with, stays until that one is.
    """
    store.discard_shares()
    if others := registration.sharing_seal():
        key = ""
        progress.event("key-kept", f"{files.seal} stays: {', '.join(others)} needs it, too")
    else:
        key = _delete_key(files.seal, progress)
    registration.end()
    progress.event(
        "deleted",
        f"deleted: the data owners' submissions and totals{key}; transcript, model, ledger, costs and result stay",
    )


def forget_run(
    config: Config,
    pid: int,
    directory: Path,
    *,
    progress: Progress,
    register: Path | None = None,
) -> None:
    """Close the store in the folder of server ``pid`` for good, and delete all that is secret, a tape too.

    ``register`` as in ``server.run_party``. Raises StoreError: none is there, in use, of another configuration.
    """
    if not has_store(directory):
        raise StoreError(directory, "is no compute server's folder; expected the one of its --dir")
    with Store(directory / STORE_FOLDER, config.digest()) as store:
        store.forget()
        if (directory / REPLAY_FOLDER).exists():
            with disk_errors(directory / REPLAY_FOLDER, "deleted"):
                shutil.rmtree(directory / REPLAY_FOLDER)
        study = RegisteredFolder.of_server(config, pid, store.identity, directory)
        registration = StudyRegistration(ReleaseRegistry(registry_path(register)), study)
        discard_secrets(store, config.require_tls(pid), registration, progress=progress)


def _delete_key(path: Path, progress: Progress) -> str:
    """What to say of it. One that cannot be deleted here is left to the operator: the run has ended all the same."""
    try:
        path.unlink()
        sync(path.parent)
    except FileNotFoundError:
        return ""
    except OSError as error:
        progress.event(
            "key-kept",
            f"WARNING: {path} cannot be deleted ({error.strerror or error}): delete it yourself. Whoever has it opens "
            "what was recorded of the owners' uploads",
        )
        return ""
    return f", and the sealing key {path}"
