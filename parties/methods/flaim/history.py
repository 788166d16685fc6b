"""Journal of a FLAIM run's finished rounds on the server's disk: a restarted server continues after the last one.

Each finished round is one file: the round's releases, the choosers and contributors, and the clients' declared rows so
far. After a kill at any moment the file is complete or absent. All values here are public and have their noise. The
journal is trusted as the ledger beside it is; the SHA-256 at the end of a file detects accidental damage.

A file is one line of JSON (its keys are those of ``FlaimRound``; ``rows`` by client), the counts of each measurement as
little-endian doubles, and 32 bytes of SHA-256 over everything before.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mechanisms.flaim import FlaimMeasurement, FlaimRound, Participant
from mechanisms.workload import Workload
from parties.foundation.errors import StoreIncompatible
from parties.storage.files import disk_errors, write_atomic

_DIGEST_BYTES = 32


class RoundJournal:
    """The finished rounds in ``directory``, which the first save creates.

    ``rounds`` are the recorded rounds in order; ``population`` are the participants of the run up to the last of them.
    Raises StoreError for a damaged file.
    """

    def __init__(self, directory: Path, workload: Workload) -> None:
        self._directory = directory
        self._workload = workload
        self.rounds: tuple[FlaimRound, ...] = ()
        self.population: tuple[Participant, ...] = ()
        while (path := self._path(len(self.rounds))).exists():
            self._load(path)

    def save(self, done: FlaimRound, population: Sequence[Participant]) -> None:
        """Stores the next round; the round is on disk when this returns. Raises StoreError."""
        document = {
            "round": done.round,
            "participants": done.participants,
            "choosers": [[candidate, clients] for candidate, clients in done.choosers.items()],
            "measurements": [
                [m.candidate, m.deviation, m.contributors, m.one_way] for m in done.measurements
            ],
            "lost": done.lost,
            "rows": [[p.client, p.rows] for p in population],
        }
        chunks = [json.dumps(document).encode() + b"\n"]
        chunks += [m.noisy.astype("<f8").tobytes() for m in done.measurements]
        data = b"".join(chunks)
        path = self._path(len(self.rounds))
        with disk_errors(path):
            self._directory.mkdir(mode=0o700, exist_ok=True)
        write_atomic(path, data + hashlib.sha256(data).digest(), durable=True, secret=True)
        self.rounds, self.population = (*self.rounds, done), tuple(population)

    def mark_lost(self, begun: Mapping[int, Sequence[int]]) -> None:
        """Records the rounds of ``begun`` that are not in the journal as lost, with their participants.

        Raises StoreError.
        """
        last = self.rounds[-1].round if self.rounds else -1
        for number in sorted(number for number in begun if number > last):
            self.save(FlaimRound(number, tuple(begun[number]), {}, (), lost=True), self.population)

    def clear(self) -> None:
        """Deletes all rounds, so that the run starts again. Raises StoreError."""
        with disk_errors(self._directory):
            for number in reversed(range(len(self.rounds))):
                self._path(number).unlink()
        self.rounds, self.population = (), ()

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:05d}.round"

    def _load(self, path: Path) -> None:
        with disk_errors(path, "read"):
            data = path.read_bytes()
        body = data[:-_DIGEST_BYTES]
        if hashlib.sha256(body).digest() != data[-_DIGEST_BYTES:]:
            raise StoreIncompatible(path, "is damaged: its SHA-256 is not the one at its end")
        line, _, counts = body.partition(b"\n")
        document = json.loads(line)
        self.rounds = (*self.rounds, self._round(document, counts))
        self.population = tuple(Participant(client, rows) for client, rows in document["rows"])

    def _round(self, document: dict[str, Any], counts: bytes) -> FlaimRound:
        measurements, start = [], 0
        for candidate, deviation, contributors, one_way in document["measurements"]:
            cells = self._workload.slice(candidate)
            end = start + 8 * (cells.stop - cells.start)
            noisy = np.frombuffer(counts[start:end], "<f8").astype(np.float64)
            measurements.append(
                FlaimMeasurement(
                    document["round"], candidate, noisy, deviation, tuple(contributors), one_way
                )
            )
            start = end
        return FlaimRound(
            document["round"],
            tuple(document["participants"]),
            {candidate: tuple(clients) for candidate, clients in document["choosers"]},
            tuple(measurements),
            document["lost"],
        )
