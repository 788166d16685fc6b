"""How an audit is made: a table of rules, each with a name, a check, and what it needs to be judged.

Provides ``Rule``, ``Prerequisite``, ``AuditCase`` (a run's evidence, and its terms: what the configuration in it says),
``run_rules``, and ``READABLE``, the rules that come before all others. Nothing is secret.
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
    Check,
    CheckFailure,
    make_check,
    skipped_check,
)

Terms = TypeVar("Terms")
Known = TypeVar("Known", covariant=True)
Needed = TypeVar("Needed", contravariant=True)


class Prerequisite(Enum):
    """What a check needs, named after the check that tells whether it is there."""

    NOTHING = ""
    FILES = "files"
    FORM = "form"
    CONFIGURATION = "configuration"


class AuditCase(Generic[Known]):
    """A run folder: the transcripts ``names`` in it, and what ``terms_of`` makes of the configuration in them."""

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
        """The transcripts. Raises Failed where one cannot be read."""
        paths = [self._directory / "transcripts" / name for name in self._names]
        transcripts = load_transcripts(paths)
        return Evidence(self._directory, transcripts, self._certificates, self._agreed)

    @cached_property
    def terms(self) -> Known:
        """What the configuration says. Raises Failed, or one of CONTRADICTIONS, where nothing can be made of it."""
        return self._terms_of(self.evidence)

    def has_terms(self) -> bool:
        """Whether something can be made of the configuration."""
        try:
            return self.terms is not None
        except (CheckFailure, *CONTRADICTIONS):
            return False

    def files(self) -> str:
        """All transcripts are there and can be read."""
        return f"The folder has {', '.join(self._names[: len(self.evidence.transcripts)])}."


@dataclass(frozen=True, slots=True)
class Rule(Generic[Needed]):
    """A check by its name: ``check`` returns the sentence of a pass, or raises Failed or NotApplicable."""

    name: str
    check: Callable[[AuditCase[Needed]], str]
    needs: Prerequisite


READABLE: tuple[Rule[object], ...] = (
    Rule("files", lambda case: case.files(), Prerequisite.NOTHING),
    Rule("chains", lambda case: identity.chains(case.evidence.transcripts), Prerequisite.FILES),
    Rule("form", lambda case: identity.form(case.evidence.transcripts), Prerequisite.FILES),
)


def run_rules(case: AuditCase[Terms], rules: Sequence[Rule[Terms]]) -> tuple[Check, ...]:
    """Make every check in its order; one whose needs are not met is said to be skipped."""
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
        # What it says can be judged even where it is not what was agreed on.
        return made[Prerequisite.FORM.value].status == PASS and case.has_terms()
    return made[need.value].status == PASS
