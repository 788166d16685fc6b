"""Rounds and bytes of every step against what the protocol costs, computed from the configuration and public choices.

Provides the checks ``traffic`` (each server's own account of its steps against the messages in its transcript) and
``costs`` (the messages against the formulas of ``protocols.costs`` and of this module), and ``expected``, the formulas'
result by step and round. Steps that carry lists of names or states have no formula for their size; there the number of
messages is checked, and that both peers were told the same amount. Public: everything.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mechanisms.accounting import Schedule
from mechanisms.scores import build_spec
from parties.audit.channel import CONTAINERS
from parties.audit.evidence import Attempt, Entry, Evidence, Session
from parties.audit.findings import require
from parties.audit.privacy import CHOICE, COUNTS, Terms, candidates_of, rounds_of
from parties.distaim.estimation import LEAD, estimate_bytes
from parties.distaim.planning import security_bits
from protocols import costs as formulas
from protocols.costs import Cost
from protocols.discrete import Sampler
from protocols.measure import BOX_MULLER, DISCRETE
from protocols.select_spec import bounds
from protocols.upload import SEEDED

Place = tuple[str, int]
"""A step and its round, -1 where it has none."""

_LISTS = ("agree", "clients.resume", "clients.agree")
"""Steps of one exchange each, of lists that have no size known beforehand."""
_DIGEST_BYTES, _NO_PROBLEM_BYTES = 32, 2
_DONE_BYTES = 4


@dataclass(slots=True)
class Tally:
    """What one server's messages of one step and round add up to."""

    sent: int = 0
    received: int = 0
    messages: int = 0
    sizes: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


def tallies(attempt: Attempt) -> dict[Place, Tally]:
    """The messages of an attempt, by step and round."""
    found: dict[Place, Tally] = defaultdict(Tally)
    for entry in attempt.of("sent", "received"):
        tally, size = found[entry.text("step"), entry.number("round")], entry.number("bytes")
        if entry.kind == "sent":
            tally.sent += size
            tally.messages += 1
            tally.sizes[entry.number("peer")].append(size)
        else:
            tally.received += size
    return dict(found)


def steps_of(attempt: Attempt) -> dict[Place, list[Entry]]:
    """A server's own account of its finished steps, by step and round."""
    found: dict[Place, list[Entry]] = defaultdict(list)
    for entry in attempt.of("step"):
        found[entry.text("step"), entry.number("round")].append(entry)
    return dict(found)


def settled(place: Place, session: Session) -> bool:
    """Whether all three have written down everything of a step: the mesh did not break down in its round."""
    step, number = place
    if session.clean:
        return True
    return step not in ("agree", "finish") and number < session.sealed_round


def traffic(evidence: Evidence) -> str:
    """Every server's account of what its steps cost is what its messages add up to."""
    count = 0
    for session in evidence.sessions:
        for attempt in session.present:
            steps, sums = steps_of(attempt), tallies(attempt)
            for place in sorted(steps.keys() | sums.keys()):
                if settled(place, session):
                    _account(place, steps.get(place, []), sums.get(place, Tally()), attempt)
                    count += 1
    return f"The accounts of {count} steps are what the messages add up to."


def _account(place: Place, steps: list[Entry], tally: Tally, attempt: Attempt) -> None:
    step, number = place
    where = f"server {attempt.pid}, step {step}" + (f" of round {number}" if number >= 0 else "")
    require(bool(steps), f"{where}: there are messages and no account of the step")
    for name, total in (
        ("sent", tally.sent), ("received", tally.received), ("messages", tally.messages),
    ):  # fmt: skip
        said = sum(entry.number(name) for entry in steps)
        require(
            said == total, f"{where}: {name} is said to be {said}; the messages add up to {total}"
        )


def costs(evidence: Evidence, terms: Terms) -> str:
    """Every step took the rounds and the bytes that its formula says."""
    exact = 0
    for session in evidence.sessions:
        for attempt in session.present:
            wanted, sums = expected(attempt, evidence, terms), tallies(attempt)
            steps = steps_of(attempt)
            for place in sorted(wanted.keys() | sums.keys()):
                if place[0] in CONTAINERS:
                    continue
                tally, done = sums.get(place, Tally()), steps.get(place, [])
                where = f"server {attempt.pid}, step {place[0]}" + (
                    f" of round {place[1]}" if place[1] >= 0 else ""
                )
                if not settled(place, session):
                    _at_most(where, place, tally, attempt, terms)
                elif place in wanted:
                    _exactly(where, wanted[place], tally, done, attempt.pid)
                    exact += 1
                else:
                    _public(where, place, tally, done, attempt, terms)
    return f"Rounds and bytes of {exact} steps are what the formulas say; the others have the messages they should."


def _exactly(where: str, cost: Cost, tally: Tally, done: list[Entry], pid: int) -> None:
    require(
        tally.sent == cost.sent[pid],
        f"{where}: {tally.sent} bytes were sent; the protocol sends {cost.sent[pid]}",
    )
    rounds = sum(entry.number("rounds") for entry in done)
    require(rounds == cost.rounds, f"{where}: {rounds} rounds; the protocol has {cost.rounds}")


def expected(attempt: Attempt, evidence: Evidence, terms: Terms) -> dict[Place, Cost]:
    """What the formulas say of an attempt's steps that were finished."""
    wanted: dict[Place, Cost] = defaultdict(Cost)
    plans = {number: plan for number, _, plan in rounds_of(attempt, evidence, terms)}
    candidates: list[int] = []
    for entry in attempt.entries:
        number = entry.number("round") if "round" in entry.record else -1
        if entry.is_note("selecting"):
            candidates = candidates_of(entry.text("candidates"), len(terms.workload.candidates))
        elif entry.kind == "opened" and entry.record["what"] == CHOICE and number in plans:
            error, choose = _select(candidates, plans[number], terms)
            wanted["select.abs_error", number] += error
            wanted["select.choose", number] += choose
        elif entry.kind == "opened" and entry.record["what"] == COUNTS and number in plans:
            noise, opening = _measure(entry.number("count"), plans[number], terms)
            wanted["measure.open", number] += opening
            if number > 0:
                wanted["measure.noise", number] += noise
    if (pending := _pending_cells(attempt, terms)) and 0 in plans:
        wanted["measure.noise", 0] = _measure(pending, plans[0], terms)[0]
    _clients(attempt, wanted, terms)
    return dict(wanted)


def _pending_cells(attempt: Attempt, terms: Terms) -> int:
    """Cells of the one-way marginals that an attempt has still to measure: their noise is made at once."""
    agreed = attempt.notes("agreed")
    first = agreed[0].number("initial") if agreed else 0
    return sum(terms.size(i) for i in terms.workload.one_way[first:])


def _select(candidates: list[int], plan: Schedule, terms: Terms) -> tuple[Cost, Cost]:
    spec = build_spec(
        terms.workload,
        candidates,
        np.zeros(terms.workload.cells, np.uint32),
        total=1,
        sigma=plan.noise_sigma,
        epsilon=plan.epsilon,
        max_rows=terms.config.max_rows,
    )
    error_bits, score_bits = bounds(spec)
    sizes = [int(size) for size in spec.sizes]
    return (
        formulas.grouped_absolute_error(sum(sizes), len(sizes), error_bits),
        formulas.select_choose(len(sizes), error_bits, score_bits),
    )


def _measure(cells: int, plan: Schedule, terms: Terms) -> tuple[Cost, Cost]:
    opening = formulas.open_value(cells, 4)
    bits = security_bits(terms.config, terms.workload)
    if plan.noise == BOX_MULLER:
        whole = formulas.measure_box_muller(cells)
    elif plan.noise == DISCRETE:
        whole = formulas.measure_discrete(cells, Sampler.of(plan.sigma, bits))
    else:
        whole = formulas.measure_distributed(cells)
    a, b, c = (all_ - last for all_, last in zip(whole.sent, opening.sent, strict=True))
    return Cost(whole.rounds - opening.rounds, (a, b, c)), opening


def _clients(attempt: Attempt, wanted: dict[Place, Cost], terms: Terms) -> None:
    """Counting in: components forwarded, digests of components passed on, and no problem told of."""
    cells = terms.workload.maximal_cells
    for (step, number), done in steps_of(attempt).items():
        entries = [e for e in attempt.of("client") if e.number("round") == number]
        if step == "clients.forward":
            seeded = terms.config.run.upload == SEEDED
            size = 4 * cells * len(entries) if seeded else 0
            wanted[step, number] = Cost(len(done) if seeded else 0, (0, size, 0))
        elif step == "clients.compare" and all(entry.record["accepted"] for entry in entries):
            each = _DIGEST_BYTES * len(entries) + 2 * _NO_PROBLEM_BYTES * len(done)
            wanted[step, number] = Cost(4 * len(done), (each, each, each))


def _public(
    where: str, place: Place, tally: Tally, done: list[Entry], attempt: Attempt, terms: Terms
) -> None:
    """Steps without a formula for their bytes: the number of messages, and the same to both peers."""
    step = place[0]
    sizes = [sorted(tally.sizes.get(peer, [])) for peer in {0, 1, 2} - {attempt.pid}]
    rounds = sum(entry.number("rounds") for entry in done)
    if step != "clients.compare":
        require(sizes[0] == sizes[1], f"{where}: the two peers were not told the same amount")
    if step in _LISTS:
        require(
            len(sizes[0]) == len(done) == rounds,
            f"{where}: {len(sizes[0])} messages to each peer in {rounds} rounds; one in each is right",
        )
    elif step == "estimate":
        _estimates(where, sizes[0], done, attempt, terms)
    elif step == "finish":
        least = 3 if attempt.pid == LEAD else 2
        many = len(sizes[0]) - least if attempt.pid == LEAD else 0
        right = len(sizes[0]) >= least and many == sizes[0].count(1) and _DONE_BYTES in sizes[0]
        if attempt.pid != LEAD:
            right = len(sizes[0]) == least and _DONE_BYTES in sizes[0]
        require(right, f"{where}: other messages than the end of a run has")


def _estimates(
    where: str, sizes: list[int], done: list[Entry], attempt: Attempt, terms: Terms
) -> None:
    """The lead says that it works in one byte, and then its model's answers; the others say nothing."""
    if attempt.pid != LEAD:
        require(not sizes, f"{where}: only the lead sends something here")
        return
    size = estimate_bytes(terms.workload)
    counts = Counter(sizes)
    require(
        set(counts) <= {1, size} and counts[size] == len(done),
        f"{where}: expected {len(done)} models of {size} bytes and ticks of 1 byte",
    )


def _at_most(where: str, place: Place, tally: Tally, attempt: Attempt, terms: Terms) -> None:
    """In the round in which a mesh broke down no more was sent than its steps may send in all."""
    limit = _limit(place, attempt, terms)
    require(
        limit is None or tally.sent <= limit,
        f"{where}: {tally.sent} bytes were sent before the interruption; the whole step has {limit}",
    )


def _limit(place: Place, attempt: Attempt, terms: Terms) -> int | None:
    step, number = place
    if step not in ("select.abs_error", "select.choose", "measure.noise", "measure.open"):
        return None
    workload, plan = terms.workload, terms.plan
    if step.startswith("select"):
        every = [i for i, weight in enumerate(workload.weights) if weight > 0]
        pair = _select(every, plan, terms)
        return pair[step == "select.choose"].sent[attempt.pid] * _margin(plan)
    sizes = [terms.size(i) for i in workload.one_way]
    if step == "measure.noise":
        sizes = [sum(sizes)]
    if number > 0:
        sizes = [max(terms.size(i) for i in range(len(workload.candidates)))]
    total = sum(_measure(size, plan, terms)[step == "measure.open"].sent[attempt.pid] for size in sizes)  # fmt: skip
    return total * _margin(plan)


def _margin(plan: Schedule) -> int:
    """An annealed round may need finer scores and other samplers than the first."""
    return 4 if plan.adaptive else 1


def by_step(
    evidence: Evidence, terms: Terms | None
) -> Mapping[str, tuple[list[int], list[int] | None, int]]:
    """For the page: bytes sent by each server, by formula (None without one), and rounds at server 0, by step."""
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
                for (step, _), cost in expected(attempt, evidence, terms).items():
                    wanted.setdefault(step, [0, 0, 0])[attempt.pid] += cost.sent[attempt.pid]
    return {step: (sent[step], wanted.get(step), rounds[step]) for step in sorted(sent)}
