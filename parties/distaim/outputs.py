"""What a compute server leaves behind: its costs, its result, and at the lead the model and the synthetic table.

Every file is complete or not there. All of it is public: costs are sizes and times, results are released values.

    transcript.jsonl   every message, opening and charge (`protocols.transcript`)
    costs.json         by attempt (a restart begins a new one): steps, openings, seconds
    result.json        rounds, clients, who was counted and who excluded, selections, ledger
    model/             at the lead: the final model (`mechanisms.model`)
    synthetic.csv      at the lead: the synthetic table
    quality.json       at the lead: how good it is, as far as what was opened says (`parties.report.quality`)
"""

import secrets
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
from parties.config import Config
from parties.distaim.stored import Standing
from parties.files import disk_errors, replacing, write_json
from parties.published import MODEL, TABLE, Published, published
from parties.texts import json_of
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
        document = json_of(path.read_text(encoding="utf-8"))
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
    standings: Sequence[Standing] = (),
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
        "excluded": [s.to_dict() for s in standings if s.excluded is not None],
        "counted": [s.to_dict() for s in standings if s.excluded is None],
        "rows_estimated": result.total,
        "sigma": result.measurements[0].sigma,
        "rho_total": rho_total,
        "ledger": [entry.to_dict() for entry in ledger],
        "selected": selected,
    }


class Written(NamedTuple):
    """What was written: as all servers seal it, and the table's codes (rows, columns)."""

    said: Published
    codes: NDArray[np.int32]


def write_synthetic(directory: Path, model: Model, config: Config, *, total: int) -> Written:
    """Draw the rows, write ``synthetic.csv`` and ``model/``, durably; returns what they are. Raises StoreError."""
    # Pandas takes a fifth of a second to import, which only the lead needs.
    from mechanisms.synthetic import synthetic_parts
    from mechanisms.writing import form_of, write_rows

    rows = config.run.rows or total
    seed = secrets.randbits(64) if config.run.seed is None else config.run.seed
    parts = synthetic_parts(model, rows, seed=seed)
    folder = directory / MODEL
    with disk_errors(folder):
        model.save(folder)
        for written in (*folder.iterdir(), folder):
            sync(written)
    # Last of all: where there is a table, its model is there too.
    with replacing(directory / TABLE, durable=True) as beside:
        write_rows(beside, parts, config.domain, form_of(directory / TABLE))
    # The codes that the parts were made of: to draw them again takes less than to read the file.
    return Written(published(directory, rows), model.sample(rows, public_generator(seed)))
