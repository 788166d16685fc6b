"""The measurements of `syncret bench overhead`, each with its command, and the records of them.

A job's ``run`` returns the document for --json; ``sweep`` lists the jobs of `make bench-overhead`. The records' file is
written whole after every job, so that an interrupted sweep continues without measuring again.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from bench.experiment.documents import Document
from bench.overhead.client import (
    PAPER_ROUNDS,
    Population,
    Subject,
    document,
    formula_results,
    measured_results,
    upload_results,
)
from bench.overhead.formula import owner_rows, passed_on_payload
from bench.overhead.growth import AXES, measure_growth
from bench.overhead.servers import measure_servers
from protocols.upload import ROWS, SEEDED

CLIENT, FORMULA, UPLOAD, SERVERS, GROWTH = "client", "formula", "upload", "servers", "growth"
"""Kinds of records."""
_COMMAND = "syncret bench overhead"
GENERATED = ("magic", "credit", "intrusion")
"""Tables of the paper that are seldom available: their domains are known."""
TABLES = ("adult", "census", "covtype", "marketing")
UTILITY_ROUNDS = (2, 5, 10, 20, 50)
"""The sweep of `syncret bench utility` over T, on Adult; the others' are `PAPER_ROUNDS` and 10."""
FLEET = 10_000
"""Number of phones."""
POPULATIONS = (Population(5, 1.0), Population(20, 1.0), Population(), Population(FLEET, 0.1))
"""A few banks, a hospital network, the paper's, and phones."""


class Job(Protocol):
    """One measurement."""

    @property
    def kind(self) -> str:
        """Kind of the record on the page."""

    @property
    def command(self) -> str:
        """Command line that repeats the measurement."""

    def run(self) -> dict[str, object]:
        """Returns the document for --json. Raises DatasetError, ValueError, RuntimeError, ChildFailed."""


@dataclass(frozen=True, slots=True)
class ClientJob:
    """Measures a client's traffic on one table; with ``upload`` that of DistAIM's client in this form alone."""

    dataset: str
    rounds: tuple[int, ...] = PAPER_ROUNDS
    population: Population = field(default_factory=Population)
    formula_only: bool = False
    generated: bool = False
    upload: str | None = None

    @property
    def kind(self) -> str:
        """Kind of the record: by formula, one upload, or all methods measured."""
        return FORMULA if self.formula_only else UPLOAD if self.upload else CLIENT

    @property
    def command(self) -> str:
        """See ``Job.command``."""
        usual, words = Population(), [_COMMAND, f"--dataset {self.dataset}"]
        words.append(f"--rounds {','.join(map(str, self.rounds))}")
        if self.population.clients != usual.clients:
            words.append(f"--clients {self.population.clients}")
        if self.population.participation != usual.participation:
            words.append(f"--participation {self.population.participation:g}")
        words += [f"--upload {self.upload}"] if self.upload else []
        words += ["--formula-only"] * self.formula_only + ["--generated"] * self.generated
        return " ".join([*words, "--json"])

    def run(self) -> dict[str, object]:
        """See ``Job.run``."""
        subject = Subject.load(self.dataset, rows=not self.formula_only, generated=self.generated)
        if self.upload is not None:
            results = upload_results(subject, self.rounds, self.upload, self.population)
        else:
            make = formula_results if self.formula_only else measured_results
            results = make(subject, self.rounds, self.population)
        return document(subject, results, self.population)


@dataclass(frozen=True, slots=True)
class ServersJob:
    """Measures the three servers of a DistAIM run in which everybody takes part from the first round on."""

    kind: ClassVar[str] = SERVERS
    dataset: str
    rounds: int
    clients: int = 100
    upload: str = SEEDED
    generated: bool = False

    @property
    def command(self) -> str:
        """See ``Job.command``."""
        words = [_COMMAND, "--servers", f"--dataset {self.dataset}", f"--rounds {self.rounds}"]
        words += [f"--clients {self.clients}", f"--upload {self.upload}"]
        return " ".join([*words, *["--generated"] * self.generated, "--json"])

    def run(self) -> dict[str, object]:
        """See ``Job.run``."""
        subject = Subject.load(self.dataset, rows=True, generated=self.generated)
        if subject.codes is None:
            raise RuntimeError("a subject with rows has codes")
        run = measure_servers(
            subject.workload,
            subject.codes,
            clients=self.clients,
            rounds=self.rounds,
            upload=self.upload,
        )
        capacity = owner_rows(subject.rows, self.clients)
        passed_on = self.clients * passed_on_payload(subject.workload, self.upload, capacity)
        return {"dataset": self.dataset, **asdict(run), "passed_on_by_formula": passed_on}


@dataclass(frozen=True, slots=True)
class GrowthJob:
    """Measures a client's traffic along an axis."""

    kind: ClassVar[str] = GROWTH
    axis: str

    @property
    def command(self) -> str:
        """See ``Job.command``."""
        return f"{_COMMAND} --growth {self.axis} --json"

    def run(self) -> dict[str, object]:
        """See ``Job.run``."""
        return {"axis": self.axis, "points": [asdict(p) for p in measure_growth(self.axis)]}


def sweep() -> Iterator[Job]:
    """Yields all jobs of the page."""
    yield ClientJob("adult")
    for name in GENERATED[:2]:
        yield ClientJob(name, generated=True)
    # The others take long: one T at a time, so that an interruption costs little.
    for number in PAPER_ROUNDS:
        for name in TABLES[1:]:
            yield ClientJob(name, (number,))
        for name in GENERATED[2:]:
            yield ClientJob(name, (number,), generated=True)
    # Table 3: the T at which the utility benchmark has workload errors.
    for name in TABLES:
        yield ClientJob(name, UTILITY_ROUNDS if name == "adult" else (10,))
    # Table 3: private's best T, if the paper does not have it; Intrusion as in Table 2.
    yield ClientJob("magic", (5,), generated=True)
    yield ClientJob("marketing", (100,))
    yield ClientJob("intrusion", (10,), generated=True)
    # A bank's and a hospital network's runs: few owners, all in every round.
    for clients in (5, 20):
        yield ClientJob("adult", (10, 32), Population(clients, 1.0))
    # Phones: four rows each, a thousand of them in a round.
    yield ClientJob("adult", (10,), Population(FLEET, 0.1))
    for clients in (5, 20, 100):
        yield ServersJob("adult", 10, clients)
    yield ServersJob("adult", 32, 5)
    yield ServersJob("adult", 10, 5, "plain")
    for axis in AXES:
        yield GrowthJob(axis)
    yield from _rows()


def _rows() -> Iterator[Job]:
    """Yields jobs on owners of rows: one upload of each table, everything by formula, and the servers' part."""
    every = {**dict.fromkeys(TABLES, False), **dict.fromkeys(GENERATED, True)}
    for name, generated in every.items():
        yield ClientJob(name, (PAPER_ROUNDS[0],), generated=generated, upload=ROWS)
    for population in POPULATIONS:
        if population != Population():
            yield ClientJob("adult", (PAPER_ROUNDS[0],), population, upload=ROWS)
    for name in every:
        for population in POPULATIONS:
            yield ClientJob(name, PAPER_ROUNDS, population, formula_only=True)
    # Beside `syncret bench utility --sweep rows`.
    for name in (*every, "adult-uci"):
        yield ClientJob(name, (10,), formula_only=True)
    yield ServersJob("adult", 4, 100, ROWS)


@dataclass(frozen=True, slots=True)
class Record:
    """Output ``document`` of ``command`` with --json, and its circumstances."""

    command: str
    kind: str
    document: dict[str, object]
    commit: str
    date: str
    machine: dict[str, object]


class Records:
    """The records of ``path`` by command; a missing file has none. Raises DatasetError for another file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._document = Document(
            path.name,
            _COMMAND,
            parse=lambda row: Record(**row),
            to_row=asdict,
            key=lambda record: record.command,
        )
        self._records = {record.command: record for record in self._document.read(path.parent)}

    def __contains__(self, command: str) -> bool:
        return command in self._records

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def of(self, kind: str) -> list[Record]:
        """Returns the records of one kind, in the order they were made."""
        return [record for record in self if record.kind == kind]

    def add(self, record: Record) -> None:
        """Keeps a record in place of an older one of its command. Raises StoreError if it cannot be written."""
        self._document.add(self.path.parent, [record])
        self._records[record.command] = record
