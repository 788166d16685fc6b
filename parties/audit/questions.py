"""Five questions that an audit answers, in words for an officer: each with its checks folded under it.

Who took part; how much was spent, and by whom; what was opened; whether the table follows; what the audit does not
show. The answers have the facts that an assessment by Article 35 of the GDPR asks of the computation: the processors
and the number of sources, the period, the measure of the risk to a person, and what left the computation. Purposes,
necessity and the lawful basis are the controllers' to state. No value here is secret.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from parties.audit.checks import federation, flaim
from parties.audit.checks.participants import counted_owners, excluded
from parties.audit.checks.privacy import RunTerms
from parties.audit.checks.report import charges_of
from parties.audit.evidence import Evidence
from parties.audit.findings import CONTRADICTIONS, FAIL, PASS, Check, CheckFailure
from parties.federation.sums_schema import SILO_OPENED_SUM
from parties.federation.transcript_schema import JOINED
from parties.methods.distaim import attacker_on
from parties.methods.flaim.report import attacker_on as flaim_attacker
from parties.methods.flaim.settings import neighbours_text
from parties.methods.flaim.transcript_schema import CHOICES, SUMS
from parties.mpc.steps import PASSED
from parties.report.attacker import attacker_text, two_studies_text
from parties.report.privacy_text import NOT_PRIVATE_TEXT, unit_text
from protocols.steps import CHOICE, COMPARISONS, COUNTS

TOOK_PART, SPENT, OPENED, FOLLOWS, NOT_SHOWN = (
    "took_part",
    "spent",
    "opened",
    "follows",
    "not_shown",
)
QUESTIONS = {
    TOOK_PART: "Who took part?",
    SPENT: "How much was spent, and by whom?",
    OPENED: "What was opened?",
    FOLLOWS: "Does the table follow from it?",
    NOT_SHOWN: "What does this audit not show?",
}
_OF_CHECKS = {
    TOOK_PART: (
        "files",
        "chains",
        "form",
        "certificates",
        "signatures",
        "parties",
        "completeness",
        "agreement",
        "configuration",
        "clients",
        "limits",
        "clocks",
    ),
    SPENT: ("charges", "ledger", "accountants"),
    FOLLOWS: (
        "published",
        "table",
        "model",
        "estimator",
        "files made",
        "report",
        "quality",
        "contents",
    ),
}
"""Checks of each question, by name; all others are on what was sent and opened."""
_KINDS = {
    CHOICE.what: "chosen queries",
    COUNTS.what: "sets of noisy counts",
    PASSED.what: "answers to whether an owner's counts are within their bound",
    COMPARISONS.what: "comparisons of rows that had been shuffled in secret",
    CHOICES: "lists of clients' choices",
    SUMS: "noisy sums over clients",
    SILO_OPENED_SUM: "sums over silos",
}
_CLAIMED = "The records say the following, and checks below contradict them"
_UNKNOWN = "Not known: the transcripts do not show it; see the checks."
_CONTROLLERS = (
    "Purposes, necessity and lawful basis are not in the records: the controllers state them."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One question's answer: the ``status`` of its checks together, ``sentences``, and names of its ``checks``."""

    key: str
    question: str
    status: str
    sentences: tuple[str, ...]
    checks: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Returns the answer for `syncret audit --json`."""
        return {**asdict(self), "sentences": list(self.sentences), "checks": list(self.checks)}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Functions for the facts of a method's run, each of which yields sentences and may raise CheckFailure."""

    took_part: Callable[[], Iterator[str]]
    spent: Callable[[], Iterator[str]]


def question_of(check: str) -> str:
    """Returns the key of the question that a check is folded under."""
    return next((key for key, names in _OF_CHECKS.items() if check in names), OPENED)


def answers(
    checks: Sequence[Check],
    evidence: Evidence | None,
    facts: RunFacts | None,
    *,
    unchecked: str,
    limits: Sequence[str],
) -> tuple[Answer, ...]:
    """Returns the answers to the five questions, in their order."""
    sentences = {
        TOOK_PART: _said(None if facts is None else facts.took_part),
        SPENT: _said(None if facts is None else facts.spent),
        OPENED: _said(None if evidence is None else lambda: _opened(evidence)),
        FOLLOWS: tuple(_follows(checks)),
        NOT_SHOWN: (*filter(None, [unchecked]), *limits, _CONTROLLERS),
    }
    found = []
    for key, question in QUESTIONS.items():
        own = [check for check in checks if question_of(check.name) == key]
        failed = [check.name for check in own if check.status == FAIL]
        said = sentences[key]
        if failed and key != FOLLOWS:
            said = (f"{_CLAIMED} ({', '.join(failed)}):", *said)
        names = tuple(check.name for check in own)
        found.append(Answer(key, question, FAIL if failed else PASS, said, names))
    return tuple(found)


def _said(facts: Callable[[], Iterator[str]] | None) -> tuple[str, ...]:
    try:
        return (_UNKNOWN,) if facts is None else tuple(facts())
    except (CheckFailure, *CONTRADICTIONS):
        return (_UNKNOWN,)


def facts_of_three(evidence: Evidence, terms: RunTerms) -> RunFacts:
    """Returns the facts of a run of three servers."""

    def took_part() -> Iterator[str]:
        names = [transcript.header.text("name") for transcript in evidence.transcripts]
        counted, left_out = counted_owners(evidence), excluded(evidence)
        yield f"Three servers held shares of the rows: {', '.join(names)}."
        yield f"{_owners(len(counted), 'data owner')} counted: {_names(counted)}."
        if left_out:
            yield f"Not counted: {_names({owner.client for owner in left_out})}."
        yield _period(evidence)

    def spent() -> Iterator[str]:
        charges, run = charges_of(evidence.transcripts[0]), terms.config.run
        bound = attacker_on(terms.study, terms.plan.rho)
        yield (
            f"Each counted data owner spent the same privacy budget of its table: epsilon = {run.epsilon:g}, "
            f"delta = {run.delta:g}, for {unit_text(terms.config)}. The servers' ledgers have {len(charges)} charges."
        )
        yield attacker_text(bound, run.unit)
        yield two_studies_text(bound)

    return RunFacts(took_part, spent)


def facts_of_flaim(evidence: Evidence, terms: "flaim.FlaimTerms") -> RunFacts:
    """Returns the facts of a run of FLAIM."""

    def spent() -> Iterator[str]:
        config, bound = terms.config, flaim_attacker(terms.config)
        if bound is None:
            yield NOT_PRIVATE_TEXT
            return
        yield (
            f"Each client spent the same privacy budget of its table: epsilon = {config.run.epsilon:g}, delta = "
            f"{config.run.delta:g}, for {neighbours_text(config)}."
        )
        yield attacker_text(bound, config.run.unit)
        yield two_studies_text(bound)

    return RunFacts(lambda: _one_server(evidence, "client"), spent)


def facts_of_silos(evidence: Evidence, terms: "federation.SilosTerms") -> RunFacts:
    """Returns the facts of a run between silos."""

    def spent() -> Iterator[str]:
        yield f"Each silo: {terms.plan.guarantee}" if terms.plan.private else terms.plan.guarantee

    return RunFacts(lambda: _one_server(evidence, "silo"), spent)


def _one_server(evidence: Evidence, who: str) -> Iterator[str]:
    (transcript,) = evidence.transcripts
    joined = {
        note.text("client") for attempt in transcript.attempts for note in attempt.notes(JOINED)
    }
    yield f"One server took the sums: {transcript.header.text('name')}."
    yield f"{_owners(len(joined), who)} there: {_names(joined)}."
    yield _period(evidence)


def _opened(evidence: Evidence) -> Iterator[str]:
    transcript = evidence.transcripts[0]
    counts = Counter(e.text("what") for e in transcript.entries if e.kind == "opened")
    listed = [f"{count} {_KINDS.get(what, what[:40])}" for what, count in counts.items()]
    yield f"Opened were {', '.join(listed) or 'no values'}. Nothing else was opened."
    yield "Others can also see the names of those who took part, and sizes and times of messages."


def _follows(checks: Sequence[Check]) -> Iterator[str]:
    own = [check for check in checks if question_of(check.name) == FOLLOWS]
    failed = [check.name for check in own if check.status == FAIL]
    open_ones = [check.name for check in own if check.status not in (PASS, FAIL)]
    if failed:
        yield f"No: {', '.join(failed)} {'does' if len(failed) == 1 else 'do'} not hold."
    elif any(check.status == PASS for check in own):
        yield "Yes: the published files follow from the records, as far as the checks below go."
    if open_ones:
        yield f"Not judged: {', '.join(open_ones)}."


def _period(evidence: Evidence) -> str:
    entries = evidence.transcripts[0].entries
    first, last = (_moment(entry.time) for entry in (entries[0], entries[-1]))
    return f"The computation ran from {first} to {last}."


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _owners(count: int, noun: str) -> str:
    return f"{count} {noun} was" if count == 1 else f"{count} {noun}s were"


def _names(names: set[str], most: int = 12) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) + more) or "nobody"
