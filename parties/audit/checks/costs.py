"""Checks ``traffic`` and ``costs``: rounds and bytes of every step, computed from configuration and public choices.

``traffic`` compares each server's own account of its steps with the messages in its transcript. ``costs`` compares the
messages with the formulas of the protocol's steps; ``expected`` returns the formulas' result by step and round. Steps
that carry lists of names or states have no formula for their size: for those, ``costs`` verifies the number of
messages, and that both peers were sent the same amount. All values here are public.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np

from mechanisms.accounting import Schedule
from mechanisms.scores import AIM, build_spec
from parties.audit.checks.linkage import capacities_of, is_linked, linked_facts
from parties.audit.checks.privacy import RunTerms, candidates_of, rounds_of
from parties.audit.checks.proofs import (
    counted_problem,
    gates_problem,
    is_proof,
    problem_of,
    sizes_problem,
)
from parties.audit.evidence import Evidence, MeshSession, TranscriptAttempt, TranscriptEntry
from parties.audit.findings import require
from parties.config import CELLS, MALICIOUS
from parties.mpc.estimation import LEAD, estimate_bytes
from parties.mpc.inputs.rows import counting_plan, row_recoding
from parties.mpc.planning.budget import rule_of, security_bits
from parties.mpc.steps import (
    CLIENTS_COMPARE,
    COUNT_VERIFY,
    OF_BATCHES,
    OF_CHECKS,
    OF_MESSAGES,
    PASSED,
    STEPS,
    BatchFacts,
    CheckFacts,
    MessageFacts,
)
from parties.mpc.transcript_schema import (
    AGREED,
    COUNTING,
    RECOUNTING,
    REPLACED,
    SELECTING,
    WITHDRAWN,
)
from protocols.costs import Cost, dearest_counts, is_verified, with_verifier
from protocols.measure import noise_of
from protocols.proof_sizes import Tables, count_checks
from protocols.select_spec import bounds
from protocols.steps import (
    CHOICE,
    COUNTS,
    LINK_ALIGN,
    LINK_SORT,
    MEASURE_NOISE,
    OF_COUNTING,
    OF_LINKING,
    OF_MEASUREMENT,
    OF_RECODING,
    OF_SELECTION,
    SELECT_BITS,
    Aligned,
    Counting,
    Linked,
    Measurement,
    Selection,
    Step,
)
from protocols.supply import AT_ONCE

Facts = TypeVar("Facts")


class StepInRound(NamedTuple):
    """A step, by name, and its round, -1 if it has none."""

    step: str
    round: int

    def __str__(self) -> str:
        return f"step {self.step}" + (f" of round {self.round}" if self.round >= 0 else "")


_BY_MESSAGES = {step.name: step for step in OF_MESSAGES}


@dataclass(slots=True)
class MessageTally:
    """Sums over one server's messages of one step and round."""

    sent: int = 0
    received: int = 0
    messages: int = 0
    sizes: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


def step_in_round(entry: TranscriptEntry) -> StepInRound:
    """Returns the step and round of a message, an opening or an account."""
    return StepInRound(entry.text("step"), entry.number("round"))


def tallies(attempt: TranscriptAttempt) -> dict[StepInRound, MessageTally]:
    """Returns the sums of an attempt's messages, by step and round."""
    sums: dict[StepInRound, MessageTally] = defaultdict(MessageTally)
    for entry in attempt.of("sent", "received"):
        tally, size = sums[step_in_round(entry)], entry.number("bytes")
        if entry.kind == "sent":
            tally.sent += size
            tally.messages += 1
            tally.sizes[entry.number("peer")].append(size)
        else:
            tally.received += size
    return dict(sums)


def steps_of(attempt: TranscriptAttempt) -> dict[StepInRound, list[TranscriptEntry]]:
    """Returns a server's own account of its finished steps, by step and round."""
    accounts: dict[StepInRound, list[TranscriptEntry]] = defaultdict(list)
    for entry in attempt.of("step"):
        accounts[step_in_round(entry)].append(entry)
    return dict(accounts)


def is_step_complete(key: StepInRound, session: MeshSession) -> bool:
    """True if all three servers recorded the whole step: the mesh did not break down in its round."""
    if session.clean:
        return True
    step = STEPS.get(key.step)
    return (step is None or step.in_round) and key.round < session.sealed_round


def traffic(evidence: Evidence) -> str:
    """Verifies that every server's account of its steps equals the sums of its messages."""
    count = 0
    for session in evidence.sessions:
        for attempt in session.present:
            steps, sums = steps_of(attempt), tallies(attempt)
            for key in sorted(steps.keys() | sums.keys()):
                if is_step_complete(key, session):
                    _account(key, steps.get(key, []), sums.get(key, MessageTally()), attempt)
                    count += 1
    return f"The accounts of {count} steps are what the messages add up to."


def _account(
    key: StepInRound, steps: list[TranscriptEntry], tally: MessageTally, attempt: TranscriptAttempt
) -> None:
    where = f"server {attempt.pid}, {key}"
    require(bool(steps), f"{where}: there are messages and no account of the step")
    totals = {"sent": tally.sent, "received": tally.received, "messages": tally.messages}
    for name, total in totals.items():
        said = sum(entry.number(name) for entry in steps)
        require(
            said == total, f"{where}: {name} is said to be {said}; the messages add up to {total}"
        )


def costs(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that every step took the rounds and bytes of its formula."""
    with with_verifier(terms.config.run.security == MALICIOUS):
        return _costs(evidence, terms)


def _costs(evidence: Evidence, terms: RunTerms) -> str:
    exact = 0
    for session in evidence.sessions:
        _proofs(session)
        _counted_proofs(session, terms)
        for attempt in session.present:
            wanted, sums = expected(attempt, evidence, terms), tallies(attempt)
            steps = steps_of(attempt)
            _gates(session, attempt, wanted)
            for key in sorted(wanted.keys() | sums.keys()):
                step = STEPS.get(key.step)
                if step is not None and step.contains:
                    continue
                tally, done = sums.get(key, MessageTally()), steps.get(key, [])
                where = f"server {attempt.pid}, {key}"
                if not is_step_complete(key, session):
                    _at_most(where, key, tally, attempt, terms, wanted.get(key))
                elif key in wanted:
                    _exactly(where, wanted[key], tally, done, attempt.pid)
                    exact += 1
                else:
                    _public(where, key, tally, done, attempt, terms)
    return f"Rounds and bytes of {exact} steps are those of the formulas; the other steps have the messages they need."


def _proofs(session: MeshSession) -> None:
    """Verifies the sizes of the servers' proofs."""
    attempts = list(session.present)
    keys = {step_in_round(entry) for attempt in attempts for entry in attempt.of("sent")}
    for key in sorted(key for key in keys if is_proof(key.step)):
        if is_step_complete(key, session):
            problem = sizes_problem(attempts, key.step, key.round)
            require(problem is None, f"{key}: {problem}")


def _counted_proofs(session: MeshSession, terms: RunTerms) -> None:
    """Verifies, in a run with a verifier, that each round's multiplications of counting rows were all proved."""
    if not is_verified():
        return
    for attempt in session.present:
        wanted = defaultdict[int, list[Tables]](list)
        for note in filter(_counts_rows, attempt.events):
            number, (_, rows) = note.number("round"), _joined(note, attempt, terms)
            wanted[number] += count_checks(_counted_rows(rows, terms, number).plan, rows)
        rounds = {key.round for key in tallies(attempt) if key.step == COUNT_VERIFY.name}
        for number in sorted(wanted.keys() | rounds):
            key = StepInRound(COUNT_VERIFY.name, number)
            if is_step_complete(key, session):
                problem = counted_problem(attempt, number, wanted[number])
                require(problem is None, f"server {attempt.pid}, {key}: {problem}")


def _gates(
    session: MeshSession, attempt: TranscriptAttempt, wanted: Mapping[StepInRound, Cost]
) -> None:
    """Verifies, in a run with a verifier, that the proofs of each round can cover the ANDs of its steps."""
    if not is_verified():
        return
    rounds = defaultdict[int, dict[str, int]](dict)
    for key, cost in wanted.items():
        if is_step_complete(key, session):
            rounds[key.round][key.step] = cost.gates
    for number, gates in sorted(rounds.items()):
        problem = gates_problem(attempt, number, gates)
        require(problem is None, f"server {attempt.pid}, round {number}: {problem}")


def _counts_rows(entry: TranscriptEntry) -> bool:
    return entry.is_note(COUNTING.what) or entry.is_note(RECOUNTING.what)


def _joined(
    note: TranscriptEntry, attempt: TranscriptAttempt, terms: RunTerms
) -> tuple[Linked | Aligned | None, int]:
    """Returns the facts of joining a batch, None for a single source, and the number of counted rows."""
    if is_linked(note):
        return linked_facts(note, attempt, terms.config)
    return None, sum(capacities_of(note).values())


def _exactly(
    where: str, cost: Cost, tally: MessageTally, done: list[TranscriptEntry], pid: int
) -> None:
    require(
        tally.sent == cost.sent[pid],
        f"{where}: {tally.sent} bytes were sent; the protocol sends {cost.sent[pid]}",
    )
    rounds = sum(entry.number("rounds") for entry in done)
    require(rounds == cost.rounds, f"{where}: {rounds} rounds; the protocol has {cost.rounds}")


def expected(
    attempt: TranscriptAttempt, evidence: Evidence, terms: RunTerms
) -> dict[StepInRound, Cost]:
    """Returns the formulas' costs of an attempt's finished steps."""
    wanted: dict[StepInRound, Cost] = defaultdict(Cost)
    for key, cost in _released(attempt, evidence, terms):
        wanted[key] += cost
    wanted.update(_counted_in(attempt, terms))
    return dict(wanted)


def _released(
    attempt: TranscriptAttempt, evidence: Evidence, terms: RunTerms
) -> Iterator[tuple[StepInRound, Cost]]:
    """Yields the costs of an attempt's choices and measurements, and of the noise made ahead of time."""
    plans = {number: plan for number, _, plan in rounds_of(attempt, terms)}
    chosen_from = _SelectionTracker(terms)
    for entry in attempt.events:
        number = entry.number("round") if "round" in entry.record else -1
        chosen_from.see(entry)
        if _counts_rows(entry):
            facts, rows = _joined(entry, attempt, terms)
            if isinstance(facts, Aligned):
                yield from _priced([LINK_ALIGN], facts, number)
            elif facts is not None and rows:
                yield from _priced(OF_LINKING, facts, number)
            counting = _counted_rows(rows, terms, number)
            if counting.recoding is not None:
                yield from _priced(OF_RECODING, counting, number)
            yield from _priced(OF_COUNTING, counting, number)
        elif entry.kind == "opened" and entry.record["what"] == PASSED.what:
            # Before a round that has no plan, too: the operators may end the run with the rounds done.
            yield from _priced(OF_CHECKS, _checked(entry.number("count"), terms), number)
        elif entry.kind != "opened" or number not in plans:
            continue
        elif entry.record["what"] == CHOICE.what:
            selection = chosen_from.selection(plans[number])
            yield from _priced(OF_SELECTION, selection, number)
        elif entry.record["what"] == COUNTS.what:
            measurement = _measurement(entry.number("count"), plans[number], terms, number)
            # One batch makes all noise of round 0.
            steps = [step for step in OF_MEASUREMENT if number > 0 or step is not MEASURE_NOISE]
            yield from _priced(steps, measurement, number)
    if (pending := _pending_cells(attempt, terms)) and 0 in plans:
        yield from _priced([MEASURE_NOISE], _measurement(pending, plans[0], terms, 0), 0)


class _SelectionTracker:
    """Candidates and kept values of the next selection, from the notes of one attempt in their order.

    Bits of counts are kept while the total is the same, and noise until it is used. A selection raises CheckFailure if
    it uses bits that were never made or are of another total, or noise that was never made.
    """

    def __init__(self, terms: RunTerms) -> None:
        self._terms = terms
        self._candidates: list[int] = []
        self._made: list[int] = []
        self._with_bits: set[int] = set()
        self._kept = False
        self._samples = self._unused = 0

    def see(self, entry: TranscriptEntry) -> None:
        """Updates the state by an entry."""
        if entry.kind == "client" or any(entry.is_note(note.what) for note in _OTHER_TOTAL):
            self._with_bits.clear()
        elif entry.is_note(SELECTING.what):
            count = len(self._terms.workload.candidates)
            self._candidates = candidates_of(entry.text("candidates"), count)
            self._made = candidates_of(entry.text("made"), count)
            self._kept = bool(entry.record["kept"])
            self._with_bits |= set(self._made)
            missing = set(self._candidates) - self._with_bits if self._kept else set(self._made)
            require(
                not missing,
                f"the selection noted in line {entry.line} goes by bits of counts that were not made, or needs none",
            )
            self._samples = entry.number("samples")
            if entry.number("skip"):
                # A restart made the samples again, including those that were used before.
                self._unused = 0
            self._unused += self._samples - entry.number("skip") - len(self._candidates)
            require(
                self._unused >= 0,
                f"the selection noted in line {entry.line} uses noise that was not made, or was used before",
            )

    def selection(self, plan: Schedule) -> Selection:
        """Returns the facts of the selection."""
        direct = _selection(self._candidates, plan, self._terms, self._samples)
        made = [self._terms.size(i) for i in self._made]
        return replace(direct, kept=self._kept, made=made)


# Notes after which the total differs from that of the previous selection.
_OTHER_TOTAL = (AGREED, WITHDRAWN, REPLACED, RECOUNTING)


def _priced(
    steps: Sequence[Step[Facts]], facts: Facts, number: int
) -> Iterator[tuple[StepInRound, Cost]]:
    return (
        (StepInRound(step.name, number), step.cost(facts))
        for step in steps
        if step.cost is not None
    )


def _pending_cells(attempt: TranscriptAttempt, terms: RunTerms) -> int:
    """Returns the cells of all one-way marginals, whose noise is made at once; 0 if none is left to measure."""
    agreed = attempt.notes(AGREED.what)
    first = agreed[0].number("initial") if agreed else 0
    if first == len(terms.workload.one_way):
        return 0
    return sum(terms.first_size(i) for i in terms.workload.one_way)


def _selection(candidates: list[int], plan: Schedule, terms: RunTerms, samples: int) -> Selection:
    spec = build_spec(
        terms.workload,
        candidates,
        np.zeros(terms.workload.cells, np.uint32),
        total=1,
        sigma=plan.noise_sigma,
        epsilon=plan.epsilon,
        max_rows=terms.config.max_rows,
        # Without rows noise leaves no error.
        left=None if rule_of(terms.config) == AIM else dict.fromkeys(candidates, 0),
    )
    return Selection([int(size) for size in spec.sizes], *bounds(spec), samples)


def _checked(owners: int, terms: RunTerms) -> CheckFacts:
    workload = terms.workload
    cells = workload.maximal_cells if terms.config.run.check == CELLS else 0
    return CheckFacts(owners, len(workload.maximal), cells)


def _counted_rows(rows: int, terms: RunTerms, number: int) -> Counting:
    """Returns a batch of owners that sent rows; ``participants.limits`` verifies the capacities."""
    if number == 0:
        return Counting(counting_plan(terms.first or terms.workload), rows)
    recoding = row_recoding(terms.workload, terms.config.domain)
    return Counting(counting_plan(terms.workload), rows, recoding)


def _measurement(cells: int, plan: Schedule, terms: RunTerms, number: int) -> Measurement:
    """Returns a measurement of ``cells`` cells in round ``number``."""
    sigma = plan.sigma if number > 0 else plan.initial_sigma
    noise = noise_of(plan.noise, security_bits(terms.study))
    return Measurement(cells, lambda count: noise.cost(count, sigma))


def _counted_in(attempt: TranscriptAttempt, terms: RunTerms) -> Iterator[tuple[StepInRound, Cost]]:
    """Yields the costs of passing on the digests of components, for comparisons without accusations."""
    steps = {step.name: step for step in OF_BATCHES}
    capacity = terms.config.clients.rows_per_client
    for (name, number), done in steps_of(attempt).items():
        if name not in steps:
            continue
        entries = [e for e in attempt.of("client") if e.number("round") == number]
        # The size of accusations is not known beforehand.
        if name == CLIENTS_COMPARE.name and not all(entry.record["accepted"] for entry in entries):
            continue
        capacities = [capacity] * len(entries)
        yield from _priced([steps[name]], BatchFacts(capacities, len(done)), number)


def _public(
    where: str,
    key: StepInRound,
    tally: MessageTally,
    done: list[TranscriptEntry],
    attempt: TranscriptAttempt,
    terms: RunTerms,
) -> None:
    """Verifies steps without a formula for their bytes: the number of messages, and equal amounts to both peers."""
    if key.step == CLIENTS_COMPARE.name:
        return
    sizes = [sorted(tally.sizes.get(peer, [])) for peer in {0, 1, 2} - {attempt.pid}]
    if is_proof(key.step):
        for each in sizes:
            problem = problem_of(key.step, each, len(done))
            require(problem is None, f"{where}: {problem}")
        return
    require(sizes[0] == sizes[1], f"{where}: the two peers were not told the same amount")
    step = _BY_MESSAGES.get(key.step)
    if step is not None and step.problem is not None:
        rounds = sum(entry.number("rounds") for entry in done)
        is_lead, model = attempt.pid == LEAD, estimate_bytes(terms.workload)
        problem = step.problem(MessageFacts(sizes[0], len(done), rounds, is_lead, model))
        require(problem is None, f"{where}: {problem}")


def _at_most(
    where: str,
    key: StepInRound,
    tally: MessageTally,
    attempt: TranscriptAttempt,
    terms: RunTerms,
    wanted: Cost | None,
) -> None:
    """Verifies that a server sent no more in an interrupted step than the whole step may send."""
    limit = _limit(key, attempt, terms)
    if key.step in [step.name for step in (*_OF_LINKING_BEFORE, *OF_RECODING, *OF_COUNTING)]:
        # A batch is announced before it begins, so its cost is known.
        limit = 0 if wanted is None else wanted.sent[attempt.pid]
    require(
        limit is None or tally.sent <= limit,
        f"{where}: {tally.sent} bytes were sent before the interruption; the whole step has {limit}",
    )


# The length of a sort follows from its own openings, of which the last may be missing.
_OF_LINKING_BEFORE = tuple(step for step in (*OF_LINKING, LINK_ALIGN) if step is not LINK_SORT)


def _limit(key: StepInRound, attempt: TranscriptAttempt, terms: RunTerms) -> int | None:
    """Returns the maximum of bytes sent by a server in a step of a selection or measurement; None for others."""
    workload, plan = terms.workload, terms.plan
    sizes = [terms.first_size(i) for i in workload.one_way]
    if key.step == MEASURE_NOISE.name:
        sizes = [sum(sizes)]
    if key.round > 0:
        sizes = [max(terms.size(i) for i in range(len(workload.candidates)))]
    measuring = [step for step in OF_MEASUREMENT if step.name == key.step]
    costs = [
        c
        for n in sizes
        for c in _priced(measuring, _measurement(n, plan, terms, key.round), key.round)
    ]

    def sent(costs: Sequence[tuple[StepInRound, Cost]]) -> int:
        return sum(cost.sent[attempt.pid] for _, cost in costs)

    if selecting := [step for step in OF_SELECTION if step.name == key.step]:
        every = [i for i, weight in enumerate(workload.weights) if weight > 0]
        direct = _selection(every, plan, terms, max(len(every), AT_ONCE))
        for count in dearest_counts(len(every)):
            facts = replace(direct, sizes=sorted(direct.sizes)[-count:])
            if key.step == SELECT_BITS.name:
                facts = replace(facts, made=facts.sizes)
            costs = max(costs, list(_priced(selecting, facts, key.round)), key=sent)
    return sent(costs) * _margin(plan) if costs else None


def _margin(plan: Schedule) -> int:
    """Returns the factor for finer scores and other samplers, which an annealed round may need."""
    return 4 if plan.adaptive else 1


def by_step(
    evidence: Evidence, terms: RunTerms | None
) -> Mapping[str, tuple[list[int], list[int] | None, int]]:
    """Returns the rows of the page's table, by step.

    A row has the bytes sent by each server, the bytes by formula (None without one), and the rounds at server 0.
    """
    sent: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    wanted: dict[str, list[int]] = {}
    rounds: Counter[str] = Counter()
    for session in evidence.sessions:
        for attempt in session.present:
            for (step, _), tally in tallies(attempt).items():
                sent[step][attempt.pid] += tally.sent
            if attempt.pid == 0:
                for (step, _), done in steps_of(attempt).items():
                    rounds[step] += sum(entry.number("rounds") for entry in done)
            if terms is not None and session.clean:
                with with_verifier(terms.config.run.security == MALICIOUS):
                    formulas = expected(attempt, evidence, terms)
                for (step, _), cost in formulas.items():
                    wanted.setdefault(step, [0, 0, 0])[attempt.pid] += cost.sent[attempt.pid]
    return {step: (sent[step], wanted.get(step), rounds[step]) for step in sorted(sent)}
