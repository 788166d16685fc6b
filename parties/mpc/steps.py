"""The steps of a DistAIM run: what the servers do between selections and measurements, and the table of all.

Provides ``STEPS``, by name, with the type of `protocols.steps`; what ``FINISH`` and ``ESTIMATE`` say on the wire; and
the facts that formulas take. Those who run the steps and the audit use the same entries, in groups by the facts
that their formulas take: a new step is one of them. Public: everything.
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
"""What the lead says at intervals while it works."""
DONE = b"done"
"""What each says at the end."""
_NO_PROBLEM_BYTES = 2
_FINE_BYTES = 1


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """Clients of these ``capacities`` counted in, in so many batches."""

    capacities: Sequence[int]
    batches: int


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """So many ``owners`` whose ``sums`` each are checked; ``cells`` each as well, unless that is 0."""

    owners: int
    sums: int
    cells: int


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What one server sent to each of its peers in a step that was taken so many times; ``model`` is a model's size."""

    sizes: Sequence[int]
    times: int
    rounds: int
    is_lead: bool
    model: int


def _comparison(counted: BatchFacts) -> Cost:
    """Digests go round one server after the other; each tells both others of no problem, and what it heard."""
    replies = _NO_PROBLEM_BYTES + 3 * DIGEST_BYTES
    each = DIGEST_BYTES * len(counted.capacities) + 2 * replies * counted.batches
    return Cost(5 * counted.batches, (each, each, each))


def _broadcast_and_echo(messages: MessageFacts) -> str | None:
    """A list, or a state, told to both others each time, and then the digests of all three."""
    echoes = sum(size == 3 * DIGEST_BYTES for size in messages.sizes)
    if len(messages.sizes) == 2 * messages.times == messages.rounds and echoes >= messages.times:
        return None
    return f"{len(messages.sizes)} messages to each peer in {messages.rounds} rounds; a state and digests are right"


def _committed(messages: MessageFacts) -> str | None:
    """Each tells both others the digest of what the round goes by, before it is recorded and after."""
    sizes = messages.sizes
    if len(sizes) == 2 * messages.times == messages.rounds and set(sizes) <= {DIGEST_BYTES}:
        return None
    return f"{len(sizes)} messages to each peer in {messages.rounds} rounds; two digests each time are right"


def _estimates(messages: MessageFacts) -> str | None:
    """The lead says that it works, and then its model's answers; all three say what they heard.

    After a restart a follower may show a model that the lead has not, once a time, instead of it.
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
    """Each tells its traffic, that it is done, and what it heard of the lead, which says what it has published."""
    ticks = messages.sizes.count(len(WORKING)) if messages.is_lead else 0
    others = len(messages.sizes) - ticks
    right = others == (4 if messages.is_lead else 3)
    right = right and {len(DONE), DIGEST_BYTES} <= set(messages.sizes)
    right = right and (not messages.is_lead or len(DONE) + ENCODED_SIZE in messages.sizes)
    return None if right else "other messages than the end of a run has"


def _proved(messages: MessageFacts) -> str | None:
    """Each says what there is to prove, proves it, sees the others' proofs, and says at the end that all is right.

    Sizes go by how much was multiplied; a receiver takes none but the right ones.
    """
    sizes, times = messages.sizes, messages.times
    if sizes.count(_FINE_BYTES) != times:
        return f"{sizes.count(_FINE_BYTES)} last words for {times} proofs"
    return None


PASSED = MayOpen("clients.passed", charge=None, itemsize=8)
"""A bit an owner, 1 for whatever table of at most as many rows as the bound."""

AGREE: Step[MessageFacts] = Step("agree", Phase.START, problem=_broadcast_and_echo)
ESTIMATE: Step[MessageFacts] = Step("estimate", Phase.MODEL, problem=_estimates)
PREPARE: Step[Never] = Step("prepare", Phase.MODEL)
COMMIT: Step[MessageFacts] = Step("commit", Phase.BEGUN, problem=_committed)
"""Before a round's first charge: all three have recorded the same inputs of it."""
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
"""Contains `protocols.steps.OF_COUNTING`, which are taken for every segment of a batch's rows; with sources, before
them ``OF_LINKING`` once, or ``LINK_ALIGN``."""
FINISH: Step[MessageFacts] = Step("finish", Phase.END, problem=_end)

CLIENTS_VERIFY: Step[MessageFacts] = Step(
    proofs_of(CLIENTS_COUNT.name), Phase.ARRIVALS, problem=_proved
)
COUNT_VERIFY: Step[MessageFacts] = Step(
    proofs_of(COUNT_FACTORS.name), Phase.ARRIVALS, problem=_proved
)
"""While rows are counted, after some blocks of them, and of counts that are lifted."""
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
"""In malicious mode: what is opened, or kept, was proved before."""
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
"""By what is opened: the step that may, and how."""
