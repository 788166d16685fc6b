"""Interface between an algorithm on rounds of exact sums and the processes that run it.

``AlgorithmPlan`` is one run, as a configuration describes it; ``Outcome`` is the server's result; ``SiloContext`` is a
participant's identity. `parties.methods.registry` selects the algorithm by the configuration's table. An algorithm's
server is a coroutine against `mechanisms.silos.Silos`; an algorithm's participant is a `mechanisms.silos.Silo`. Neither
knows of processes. All values here are public, except tables.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mechanisms.accounting import Ledger
from mechanisms.silos import Request, Silo, Silos
from mechanisms.text_table import TextTable
from parties.config import Config


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A server's result of a run; all of it is public.

    Attributes:
        facts: Entries of report.json.
        files: Files of the run's folder, by name.
        tables: Tables of the page: (title, heads, rows).
        lines: Output of the command, for people: names and texts.
    """

    facts: Mapping[str, object]
    files: Mapping[str, bytes] = field(default_factory=dict)
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[object]]]] = ()
    lines: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class SiloContext:
    """A participant's identity: ``name``, ``number``, ``folder``; and ``epsilon``, if the participant chose its own."""

    name: str
    number: int
    folder: Path
    epsilon: float | None = None


class AlgorithmPlan(Protocol):
    """One run of an algorithm. Server and participants make the plan from the same configuration."""

    @property
    def document(self) -> Mapping[str, object]:
        """All settings, with defaults filled in, as JSON. The server refuses participants with other settings."""

    @property
    def sums(self) -> int:
        """Maximum number of sums."""

    @property
    def kinds(self) -> Sequence[tuple[Request, int]]:
        """Every kind of sum, as a request without payload, with its maximum count."""

    @property
    def rho(self) -> float:
        """Maximum total cost of the charged sums, in zCDP: the budget of each ledger. 0 if no sum is charged."""

    @property
    def private(self) -> bool:
        """True if the release has a guarantee. Without one, participants have to confirm that they know this."""

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence (of which data, against which parties), or a statement that there is none."""

    @property
    def private_answers(self) -> bool:
        """True if each participant's answers are private by themselves, so that their exact sums are harmless."""

    def check_table(self, table: TextTable, name: str) -> None:
        """Raises DataError, with ``name`` as the table's name, if ``table`` does not fit. Any number of rows is
        allowed.
        """

    def silo(self, table: TextTable, context: SiloContext, ledger: Ledger) -> Silo:
        """Returns a participant with ``table``. Raises DataError if the table does not fit, ConfigError."""

    async def serve(self, silos: Silos, *, say: Callable[[str], None]) -> Outcome:
        """Runs the server's part. ``say`` receives progress texts for people. Raises MechanismError."""

    def judge(self, folder: Path, table: TextTable) -> Mapping[str, float]:
        """Returns figures of the outcome's files in ``folder`` against the pooled ``table`` of a trial; not private."""


@dataclass(frozen=True, slots=True)
class FederatedMethod:
    """A method on rounds of secure sums between silos, as `parties.methods.registry` has it.

    ``name`` is its table in configurations. ``plan`` makes a run of a configuration, or raises ConfigError.
    ``not_shown`` is a sentence for the audit: what it cannot show of the method's results. ``of_persons`` is true for a
    method whose plan gives a unit of `Config.rows_of_unit` rows the configured guarantee; others protect single rows.
    """

    name: str
    plan: Callable[[Config], AlgorithmPlan]
    not_shown: str
    of_persons: bool = False


def plan_digest(plan: AlgorithmPlan) -> str:
    """Hex SHA-256 of the plan's settings. Server and participants compare their digests."""
    canonical = json.dumps(plan.document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(b"syncret silos 1 plan\n" + canonical.encode()).hexdigest()
