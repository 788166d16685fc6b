"""Steps of a DistAIM run between selections and measurements, and the table of all steps.

``STEPS`` maps names to steps of the type in `protocols.steps`. The steps are grouped by the facts that their cost
formulas take. Servers and audit use the same entries: a new step is one of them. All values here are public.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Never

from parties.session.result_digests import ENCODED_SIZE
from protocols.costs import Cost, check_owners
from protocols.steps import (
    COUNT_FACTORS,
    LINK_ALIGN,
    LINK_SORT,
    MEASURE,
    OF_COUNTING,
    OF_LINKING,
    OF_MEASUREMENT,
    OF_RECODING,
    OF_SELECTION,
    SELECT,
    MayOpen,
    Phase,
    Step,
    proofs_of,
)

DIGEST_BYTES = 32
WORKING = b"w"
"""Message that the lead sends at intervals while it works."""
DONE = b"done"
"""Message that each server sends at the end."""
_NO_PROBLEM_BYTES = 2
_FINE_BYTES = 1


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """Clients with these ``capacities`` that are counted in ``batches`` batches."""

    capacities: Sequence[int]
    batches: int


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """Number of ``owners`` whose ``sums`` each are checked, and their ``cells`` each as well, unless ``cells`` is 0."""

    owners: int
    sums: int
    cells: int


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """Messages of one server to each peer in a step taken ``times`` times; ``model`` is a model's size in bytes."""

    sizes: Sequence[int]
    times: int
    rounds: int
    is_lead: bool
    model: int


def _comparison(counted: BatchFacts) -> Cost:
    """Cost of a comparison: digests go round the servers; each reports "no problem" to both others, then echoes."""
    replies = _NO_PROBLEM_BYTES + 3 * DIGEST_BYTES
    each = DIGEST_BYTES * len(counted.capacities) + 2 * replies * counted.batches
    return Cost(5 * counted.batches, (each, each, each))


def _broadcast_and_echo(messages: MessageFacts) -> str | None:
    """Verifies a list, or a state, sent to both others each time, followed by the digests of all three."""
    echoes = sum(size == 3 * DIGEST_BYTES for size in messages.sizes)
    if len(messages.sizes) == 2 * messages.times == messages.rounds and echoes >= messages.times:
        return None
    return f"{len(messages.sizes)} messages to each peer in {messages.rounds} rounds; a state and digests are right"


def _committed(messages: MessageFacts) -> str | None:
    """Verifies the digests of the round's inputs: each server sends one to both others before and after recording."""
    sizes = messages.sizes
    if len(sizes) == 2 * messages.times == messages.rounds and set(sizes) <= {DIGEST_BYTES}:
        return None
    return f"{len(sizes)} messages to each peer in {messages.rounds} rounds; two digests each time are right"


def _estimates(messages: MessageFacts) -> str | None:
    """Verifies that the lead sends keepalives and then its model's answers, and that all three echo.

    After a restart, a follower may once each time show a model that the lead lacks, instead of the lead.
    """
    echoes = sum(size == DIGEST_BYTES for size in messages.sizes)
    # A small model may be as long as a digest.
    replies = [size for size in messages.sizes if not (messages.is_lead and size == len(WORKING))]
    right = messages.times <= len(replies) <= 2 * messages.times <= 2 * echoes
    if right and max(replies, default=0) <= messages.model:
        return None
    if not messages.is_lead:
        return "only the lead sends more than a digest and a model here"
    return (
        f"expected {messages.times} models of at most {messages.model} bytes and ticks of {len(WORKING)} "
        "byte"
    )


def _end(messages: MessageFacts) -> str | None:
    """Verifies that each server sends traffic, final word and echo of the lead, and the lead its result digests."""
    ticks = messages.sizes.count(len(WORKING)) if messages.is_lead else 0
    others = len(messages.sizes) - ticks
    right = others == (4 if messages.is_lead else 3)
    right = right and {len(DONE), DIGEST_BYTES} <= set(messages.sizes)
    right = right and (not messages.is_lead or len(DONE) + ENCODED_SIZE in messages.sizes)
    return None if right else "other messages than the end of a run has"


def _proved(messages: MessageFacts) -> str | None:
    """Verifies the number of proofs: each server states the products, proves them, and confirms the others' proofs.

    Sizes depend on the number of products; a receiver refuses any other size.
    """
    sizes, times = messages.sizes, messages.times
    if sizes.count(_FINE_BYTES) != times:
        return f"{sizes.count(_FINE_BYTES)} last words for {times} proofs"
    return None


PASSED = MayOpen("clients.passed", charge=None, itemsize=8)
"""One bit a participant: 1 for every table of at most as many rows as the bound."""

AGREE: Step[MessageFacts] = Step("agree", Phase.START, problem=_broadcast_and_echo)
ESTIMATE: Step[MessageFacts] = Step("estimate", Phase.MODEL, problem=_estimates)
PREPARE: Step[Never] = Step("prepare", Phase.MODEL)
COMMIT: Step[MessageFacts] = Step("commit", Phase.BEGUN, problem=_committed)
"""Record of the same inputs at all three servers, before a round's first charge."""
CLIENTS_RESUME: Step[MessageFacts] = Step(
    "clients.resume", Phase.ARRIVALS, problem=_broadcast_and_echo
)
CLIENTS_AGREE: Step[MessageFacts] = Step(
    "clients.agree", Phase.ARRIVALS, problem=_broadcast_and_echo
)
CLIENTS_COMPARE: Step[BatchFacts] = Step("clients.compare", Phase.ARRIVALS, cost=_comparison)
CLIENTS_CHECK: Step[CheckFacts] = Step(
    "clients.check",
    Phase.ARRIVALS,
    cost=lambda c: check_owners(c.owners, c.sums, c.cells),
    opens=PASSED,
)
CLIENTS_COUNT: Step[Never] = Step("clients.count", Phase.ARRIVALS)
"""Contains `protocols.steps.OF_COUNTING`, taken for every segment of a batch's rows.

With sources, ``OF_LINKING`` comes once before them, or ``LINK_ALIGN``.
"""
FINISH: Step[MessageFacts] = Step("finish", Phase.END, problem=_end)

CLIENTS_VERIFY: Step[MessageFacts] = Step(
    proofs_of(CLIENTS_COUNT.name), Phase.ARRIVALS, problem=_proved
)
COUNT_VERIFY: Step[MessageFacts] = Step(
    proofs_of(COUNT_FACTORS.name), Phase.ARRIVALS, problem=_proved
)
"""Proofs while rows are counted, after some blocks of them, and proofs of lifted counts."""
PREPARE_VERIFY: Step[MessageFacts] = Step(proofs_of(PREPARE.name), Phase.ARRIVALS, problem=_proved)
LINK_VERIFY: Step[MessageFacts] = Step(proofs_of(LINK_SORT.name), Phase.ARRIVALS, problem=_proved)
SELECT_VERIFY: Step[MessageFacts] = Step(
    proofs_of(SELECT.name), Phase.CHOICE, first_round=1, problem=_proved
)
MEASURE_VERIFY: Step[MessageFacts] = Step(
    proofs_of(MEASURE.name), Phase.MEASUREMENT, problem=_proved
)

OF_PROOFS = (
    CLIENTS_VERIFY,
    COUNT_VERIFY,
    PREPARE_VERIFY,
    LINK_VERIFY,
    SELECT_VERIFY,
    MEASURE_VERIFY,
)
"""Steps of malicious mode: every opened or kept value was proved before."""
OF_MESSAGES: tuple[Step[MessageFacts], ...] = (
    AGREE,
    ESTIMATE,
    COMMIT,
    CLIENTS_RESUME,
    CLIENTS_AGREE,
    FINISH,
)
OF_BATCHES: tuple[Step[BatchFacts], ...] = (CLIENTS_COMPARE,)
OF_CHECKS: tuple[Step[CheckFacts], ...] = (CLIENTS_CHECK,)
_ALL: tuple[Step[Never], ...] = (
    PREPARE,
    CLIENTS_COUNT,
    *OF_MESSAGES,
    *OF_PROOFS,
    *OF_BATCHES,
    *OF_CHECKS,
    *OF_LINKING,
    LINK_ALIGN,
    *OF_RECODING,
    *OF_COUNTING,
    *OF_SELECTION,
    *OF_MEASUREMENT,
)
STEPS: Mapping[str, Step[Never]] = {step.name: step for step in _ALL}
OPENED_IN: Mapping[str, tuple[Step[Never], MayOpen]] = {
    step.opens.what: (step, step.opens) for step in _ALL if step.opens
}
"""Step and rule of each opening, by the name of the opened value."""
