"""Rules of an audit: a table of checks with their names and prerequisites, and the code that runs them.

An ``AuditCase`` has a run's evidence and its terms, the auditor's reading of the configuration in it. The rules
``READABLE`` come before all others. No value here is secret.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Generic, TypeVar

from parties.audit.checks import identity
from parties.audit.evidence import Evidence, load_transcripts
from parties.audit.findings import (
    CONTRADICTIONS,
    PASS,
    SERVER_LIMITS,
    Check,
    CheckFailure,
    make_check,
    skipped_check,
)

Terms = TypeVar("Terms")
Known = TypeVar("Known", covariant=True)
Needed = TypeVar("Needed", contravariant=True)


class Prerequisite(Enum):
    """Prerequisite of a check, named after the check that establishes it."""

    NOTHING = ""
    FILES = "files"
    FORM = "form"
    CONFIGURATION = "configuration"


class AuditCase(Generic[Known]):
    """A run folder: its transcripts ``names``, and the terms that ``terms_of`` computes from their configuration."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        certificates: Path,
        terms_of: Callable[[Evidence], Known],
        *,
        agreed: Path | None = None,
    ) -> None:
        self._directory = directory
        self._names = tuple(names)
        self._certificates = certificates
        self._terms_of = terms_of
        self._agreed = agreed

    @cached_property
    def evidence(self) -> Evidence:
        """Parsed transcripts. Raises CheckFailure if one cannot be read."""
        paths = [self._directory / "transcripts" / name for name in self._names]
        transcripts = load_transcripts(paths)
        return Evidence(self._directory, transcripts, self._certificates, self._agreed)

    @cached_property
    def terms(self) -> Known:
        """Terms of the configuration. Raises CheckFailure, or one of CONTRADICTIONS, if it is unusable."""
        return self._terms_of(self.evidence)

    def has_terms(self) -> bool:
        """True if the configuration is usable."""
        try:
            return self.terms is not None
        except (CheckFailure, *CONTRADICTIONS):
            return False

    def files(self) -> str:
        """Verifies that all transcripts are there and can be read."""
        return f"The folder has {', '.join(self._names[: len(self.evidence.transcripts)])}."


@dataclass(frozen=True, slots=True)
class Rule(Generic[Needed]):
    """A check by its name: ``check`` returns the sentence of a pass, or raises CheckFailure or NotApplicable."""

    name: str
    check: Callable[[AuditCase[Needed]], str]
    needs: Prerequisite


READABLE: tuple[Rule[object], ...] = (
    Rule("files", lambda case: case.files(), Prerequisite.NOTHING),
    Rule("chains", lambda case: identity.chains(case.evidence.transcripts), Prerequisite.FILES),
    Rule("form", lambda case: identity.form(case.evidence.transcripts), Prerequisite.FILES),
)


def run_rules(case: AuditCase[Terms], rules: Sequence[Rule[Terms]]) -> tuple[Check, ...]:
    """Makes every check in its order; a check with an unmet prerequisite is reported as skipped."""
    made: dict[str, Check] = {}
    for rule in rules:
        if _is_met(rule.needs, made, case):
            made[rule.name] = make_check(rule.name, partial(rule.check, case))
        else:
            made[rule.name] = skipped_check(rule.name, rule.needs.value)
    return tuple(made.values())


def _is_met(need: Prerequisite, made: dict[str, Check], case: AuditCase[object]) -> bool:
    if need is Prerequisite.NOTHING:
        return True
    if need is Prerequisite.CONFIGURATION:
        # A configuration allows checks even if it is not the agreed one.
        return made[Prerequisite.FORM.value].status == PASS and case.has_terms()
    return made[need.value].status == PASS


@dataclass(frozen=True, slots=True)
class ServerAudit(Generic[Terms]):
    """Audit of one server's transcript: the terms of its configuration, the rules, and the limits by the terms."""

    terms_of: Callable[[Evidence], Terms]
    rules: Sequence[Rule[Terms]]
    limits_of: Callable[[Terms], tuple[str, ...]] = lambda terms: SERVER_LIMITS
