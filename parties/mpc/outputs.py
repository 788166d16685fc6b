"""Outputs of a compute server: its costs, its result, and at the lead the model and the synthetic table.

Every file is complete or does not exist. All of them are public: costs are sizes and times, results are released
values.

    transcript.jsonl   every message, opening and charge (`protocols.transcript`)
    costs.json         by attempt (a restart begins a new one): steps, openings, seconds
    result.json        rounds, clients, counted and excluded participants, selections, ledger
    model/             at the lead: the final model (`mechanisms.model`)
    synthetic.csv      at the lead: the synthetic table
    quality.json       at the lead: its quality, estimated from opened values (`parties.report.quality`)

Shares do not outlive the run: secrets are deleted when all three servers are done, or when an operator gives up.
``discard_secrets`` runs at a server's end, and is completed at the next start if the server was killed meanwhile.
``forget_run`` closes the store of an unfinished run for good. Both delete submissions, running totals, outbox entries,
the key of the totals' commitments and the server's sealing key: recorded traffic can never be opened after that.
Transcript, model, ledger, costs and result stay. A replay log, which the operator asked for, stays too, unless the run
is forgotten.

Secret: the deleted data. Known limits: files are unlinked, and the database is written anew without the deleted rows;
nothing is overwritten, which would mean little on a flash disk, a file system with a journal or a copy elsewhere. An
operator who relies on deletion needs an encrypted disk.
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
    """Costs of this attempt, beside those of the attempts before it."""

    def __init__(self, path: Path, costs: Costs) -> None:
        self.costs = costs
        self._path = path
        self._started = time.time()
        self.seconds: dict[str, float] = {}
        self.steps = costs.steps
        self._before = read_attempts(path)

    def save(self) -> None:
        """Writes the file anew. Raises StoreError."""
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
    """Attempts in a costs file; empty if the file is missing or malformed."""
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
    """Content of result.json except the traffic; ``finished_early``: the operators ended the run."""
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
    """Written files: their digests, which all servers seal, and the table's codes (rows, columns)."""

    said: ResultDigests
    codes: NDArray[np.int32]


def write_synthetic(directory: Path, model: Model, config: Config, *, total: int) -> WrittenOutputs:
    """Draws the rows and writes ``synthetic.csv`` and ``model/`` durably; returns their digests. Raises StoreError."""
    # Imported here because only the lead needs pandas, which takes a fifth of a second to import.
    from mechanisms.synthetic import SyntheticRows
    from mechanisms.writing import form_of, write_rows

    rows = config.run.rows or total
    seed = secrets.randbits(64) if config.run.seed is None else config.run.seed
    drawn = SyntheticRows(model, rows, seed=seed)
    folder = directory / MODEL_FOLDER
    with disk_errors(folder):
        model.save(folder)
        for written in (*folder.iterdir(), folder):
            sync(written)
    # The table is written last, so that a table always has its model.
    with atomic_replacement(directory / TABLE_FILE, durable=True) as beside:
        write_rows(beside, drawn.parts(), config.domain, form_of(directory / TABLE_FILE))
    return WrittenOutputs(result_digests(directory, rows), drawn.codes)


STORE_FOLDER = "store"
"""Name of the store's folder in a server's folder."""


def has_store(directory: Path) -> bool:
    """True if a server's folder has a store."""
    return (directory / STORE_FOLDER / FILE).exists()


def check_open(store: Store) -> None:
    """Raises StoreError if the store was forgotten."""
    since = store.state.forgotten
    if since is not None:
        raise StoreError(
            store.directory,
            f"was forgotten on {since} (syncret forget): its shares and its sealing key are deleted; expected a new "
            "configuration, with a new card of this server, and another folder",
        )


def discard_secrets(
    store: Store, files: CertificateFiles, registration: StudyRegistration, *, progress: Progress
) -> None:
    """Deletes all secrets of a run that has ended. May be repeated. Raises StoreError.

    A sealing key stays if another unfinished study of ``registration`` uses it, until that study is over.
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
    """Closes the store in the folder of server ``pid`` for good, and deletes all secrets and any replay log.

    ``register`` as in ``server.run_mpc_server``. Raises StoreError if there is no store, if it is in use, or if it
    belongs to another configuration.
    """
    if not has_store(directory):
        raise StoreError(directory, "is no compute server's folder; expected the one of its --dir")
    with Store(directory / STORE_FOLDER, config.digest()) as store:
        store.state.forget()
        if (directory / REPLAY_FOLDER).exists():
            with disk_errors(directory / REPLAY_FOLDER, "deleted"):
                shutil.rmtree(directory / REPLAY_FOLDER)
        study = RegisteredFolder.of_server(config, pid, store.identity, directory)
        registration = StudyRegistration(ReleaseRegistry(registry_path(register)), study)
        discard_secrets(store, config.require_tls(pid), registration, progress=progress)


def _delete_key(path: Path, progress: Progress) -> str:
    """Deletes the key and returns a text about it; empty if there is none, or if it cannot be deleted.

    An event tells the operator to delete such a key; the run has ended all the same.
    """
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
