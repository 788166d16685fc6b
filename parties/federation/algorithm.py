"""What an algorithm on rounds of exact sums is to the processes that carry it out.

Provides ``AlgorithmPlan`` (one run of it, as a configuration describes it), ``Outcome`` (what its server leaves),
``SiloContext`` (where a silo is) and ``plan_digest``. `parties.methods.registry` finds the one whose table a
configuration has. An algorithm's server is a coroutine against `mechanisms.silos.Silos`, its silo a
`mechanisms.silos.Silo`; neither knows of processes. Public: all of it but tables.
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


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run's server leaves, all of it public.

    ``facts`` are for report.json, ``files`` are written into the run's folder by name, ``tables`` are for the page:
    (title, heads, rows); ``lines`` for people who gave the command: names and texts.
    """

    facts: Mapping[str, object]
    files: Mapping[str, bytes] = field(default_factory=dict)
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[object]]]] = ()
    lines: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class SiloContext:
    """A silo's own: its ``name`` and ``number``, its ``folder``, and its own ``epsilon`` where it has chosen one."""

    name: str
    number: int
    folder: Path
    epsilon: float | None = None


class AlgorithmPlan(Protocol):
    """One run of an algorithm. Server and silos make it of the same configuration."""

    @property
    def document(self) -> Mapping[str, object]:
        """All settings, defaults filled in, as JSON: whoever has others is not let in."""

    @property
    def sums(self) -> int:
        """How many sums it takes, at most."""

    @property
    def kinds(self) -> Sequence[tuple[Request, int]]:
        """Every kind of sum that there is, as a request without payload, and how many of it there are at most."""

    @property
    def rho(self) -> float:
        """What the charged sums cost together, at most, in zCDP: the budget of each ledger. 0: none is charged."""

    @property
    def private(self) -> bool:
        """Whether what is released has a guarantee. Where not, silos have to say that they know."""

    @property
    def guarantee(self) -> str:
        """Which guarantee, of what, against whom, in a sentence; or that there is none."""

    @property
    def private_answers(self) -> bool:
        """Whether each silo's answers are private by themselves, so that exact sums of them harm nobody."""

    def check_table(self, table: TextTable, name: str) -> None:
        """Raises DataError, calling it ``name``, where a ``table`` does not fit, of any number of rows."""

    def silo(self, table: TextTable, context: SiloContext, ledger: Ledger) -> Silo:
        """A silo with ``table``. Raises DataError where that does not fit, ConfigError."""

    async def serve(self, silos: Silos, *, say: Callable[[str], None]) -> Outcome:
        """The server's part. ``say`` tells people what goes on. Raises MechanismError."""

    def judge(self, folder: Path, table: TextTable) -> Mapping[str, float]:
        """In a trial: figures of the outcome's files in ``folder`` against the pooled ``table``; not private."""


def plan_digest(plan: AlgorithmPlan) -> str:
    """Hex SHA-256 of the plan's settings, which server and silos compare."""
    canonical = json.dumps(plan.document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(b"syncret silos 1 plan\n" + canonical.encode()).hexdigest()
