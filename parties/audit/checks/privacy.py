"""Checks ``openings``, ``values`` and ``ledger``; `parties.audit.checks.charges` has the check ``charges``.

The budget, its division, the cost of every charge and the sizes of all permitted openings are computed anew from the
configuration. Source: FLAIM paper, Algorithm 3.
"""

import copy
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Schedule
from mechanisms.columns import Categorical
from mechanisms.domain import Domain
from mechanisms.events import Event, ExponentialEvent, event_to_dict
from mechanisms.workload import Workload
from parties.audit.checks import identity
from parties.audit.checks.charges import opened_names, openings_by_name
from parties.audit.checks.linkage import Sorting, is_linked
from parties.audit.evidence import (
    Evidence,
    MeshSession,
    TranscriptAttempt,
    TranscriptEntry,
    event_of,
)
from parties.audit.findings import CheckFailure, require
from parties.config import Config
from parties.foundation.errors import ConfigError
from parties.mpc.planning.budget import make_plan, released_costs
from parties.mpc.private_bins import first_workload, released_config, resolved_workload
from parties.mpc.records import Checkpoint
from parties.mpc.steps import OPENED_IN, PASSED
from parties.mpc.transcript_schema import (
    AGREED,
    COUNTED,
    FINISHED,
    INCOMPLETE,
    REPEATED,
    ROUND,
    SELECTED,
    SELECTING,
)
from parties.session.study import Study
from protocols.measure import noise_of
from protocols.ring import R32
from protocols.select_spec import chosen_index
from protocols.steps import CHOICE, COMPARISONS, COUNTS, MEASURE, SELECT

_BINS_SINCE, _VALUES_SINCE = 18, 19
"""Versions of messages since which noisy counts choose the cells that they choose now: between bounds, and without."""

_Charge: TypeAlias = tuple[int, str, str, float, str]
"""A charge as it is compared: round, step, event, cost, and the name of the opening."""


@dataclass(frozen=True, slots=True, eq=False)
class RunTerms:
    """Terms of the configuration, computed by the auditor."""

    config: Config
    workload: Workload
    plan: Schedule
    first: Workload | None = None
    """Workload of round 0 if that round chooses bins, from which ``workload`` follows; else None."""

    @property
    def study(self) -> Study:
        """The study of the terms."""
        return Study(self.config, self.workload)

    @property
    def released(self) -> Config:
        """Configuration with the bins that round 0 chose."""
        return released_config(self.study)

    def size(self, candidate: int) -> int:
        """Returns the number of cells of a candidate."""
        return self.workload.offsets[candidate + 1] - self.workload.offsets[candidate]

    def first_size(self, column: int) -> int:
        """Returns the number of cells of a column in round 0."""
        return (self.first or self.workload).domain.columns[column].size

    def counts(self, entry: TranscriptEntry) -> NDArray[np.float64]:
        """Returns opened numbers as noisy counts (`protocols.measure`)."""
        words = np.frombuffer(entry.bytes("value"), "<u4").astype(np.uint32)
        counts = R32.decode(words).astype(np.float64)
        return np.ldexp(counts, -noise_of(self.config.run.noise).fraction_bits)


def terms_of(evidence: Evidence) -> RunTerms:
    """Returns the terms of the configuration in the transcripts. Raises CheckFailure."""
    config = identity.rebuild_config(evidence.transcripts[0])
    try:
        study = Study.of(config)
        terms = RunTerms(config, study.workload, make_plan(study), first_workload(config))
        if terms.first is None:
            return terms
        _require_same_cells(evidence, config.domain)
        return _resolved(evidence, terms)
    except ConfigError as error:
        raise CheckFailure(
            f"the configuration in the transcripts cannot be used: {error}"
        ) from error


def _require_same_cells(evidence: Evidence, domain: Domain) -> None:
    """Raises CheckFailure for a run whose program made a column's cells of noisy counts by another rule."""
    private = [c.private for c in domain.columns if not isinstance(c, Categorical) and c.private]
    since = _VALUES_SINCE if any(each.free for each in private) else _BINS_SINCE
    attempts = [attempt for one in evidence.transcripts for attempt in one.attempts]
    for attempt in [attempt for attempt in attempts if attempt.releases] or attempts:
        found = attempt.opening.number("wire")
        if found < since:
            raise CheckFailure(
                f"server {attempt.pid}'s transcript has messages of version {found}, in which noisy counts chose"
                " other cells of a column: audit it with the version that wrote it"
            )


def _resolved(evidence: Evidence, terms: RunTerms) -> RunTerms:
    """Returns the terms with the workload after round 0's openings; without these, the largest possible one."""
    found: dict[int, Checkpoint] = {}
    for session in evidence.sessions:
        attempt = max(session.present, key=lambda a: len(list(a.of("opened"))))
        agreed = attempt.notes(AGREED.what)
        left = iter(terms.workload.one_way[agreed[0].number("initial") if agreed else 0 :])
        sigma = next((plan.initial_sigma for n, _, plan in rounds_of(attempt, terms) if n == 0), 0)
        for entry in attempt.of("opened"):
            if entry.record["what"] == COUNTS.what and entry.number("round") == 0:
                column = next(left, -1)
                where = f"line {entry.line} of server {attempt.pid}'s transcript"
                require(column >= 0 and sigma > 0, f"{where}: one marginal too many")
                _of_size(entry, terms.first_size(column), where)
                found[column] = Checkpoint(0, column, sigma, 1, terms.counts(entry))
    if not found.keys() >= {*terms.workload.one_way}:
        return terms
    workload = resolved_workload(terms.config, list(found.values()))
    return replace(terms, workload=workload)


def candidates_of(mask: str, count: int) -> list[int]:
    """Returns the candidates in a note's mask. Raises CheckFailure if the mask is not one of ``count`` bits."""
    packed = np.frombuffer(bytes.fromhex(mask), np.uint8)
    require(len(packed) == (count + 7) // 8, "a mask of candidates has another length")
    bits = np.unpackbits(packed)
    require(not bits[count:].any(), "a mask of candidates has bits beyond the workload")
    return [int(index) for index in np.flatnonzero(bits[:count])]


def openings(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that only choices and noisy counts were opened, as many and as large as the configuration allows."""
    totals: Counter[str] = Counter()
    # A mesh opens nothing twice; an opening repeated after a restart counts once in the run.
    most: Counter[str] = Counter()
    for session in evidence.sessions:
        # A server that was killed may lack the last opening.
        by_server = [_openings_of(attempt, terms) for attempt in session.present]
        longest = max(by_server, key=len)
        totals.update(longest)
        most |= Counter(longest)
        for attempt, opened in zip(session.present, by_server, strict=True):
            if sum(len(other) >= len(opened) for other in by_server) < 2 and opened:
                _really_opened(attempt)
    for transcript in evidence.transcripts:
        for attempt in transcript.attempts:
            stray = list(attempt.of("opened")) if attempt.session is None else []
            require(not stray, f"server {transcript.pid} opened something outside a mesh of three")
    lost = len(evidence.sessions) - 1
    rounds = finished_rounds(evidence)
    chosen, measured = rounds_opened(evidence, CHOICE.what), rounds_opened(evidence, COUNTS.what)
    due = set(range(1, rounds + 1))
    require(due <= chosen, f"round {min(due - chosen, default=0)} opened no choice")
    require(due <= measured, f"round {min(due - measured, default=0)} opened no noisy counts")
    later = (chosen | measured) - {0} - due
    require(not later or lost > 0, f"round {max(later, default=0)} comes after the last one")
    planned = {CHOICE.what: rounds, COUNTS.what: rounds + len(terms.workload.one_way)}
    # An opening repeated after a restart is the same opening.
    different = Counter(entries[0].text("what") for entries in openings_by_name(evidence).values())
    for what, number in planned.items():
        require(
            most[what] <= number + min(lost, 1),
            f"{what} was opened {most[what]} times by one mesh; {rounds} rounds allow {number}",
        )
        require(
            number <= different[what] <= number + lost,
            f"{what} was opened with {different[what]} different inputs; {rounds} rounds and {lost} interruptions "
            f"allow {number} to {number + lost}",
        )
    bits = f", and {totals[PASSED.what]} times a bit an owner" if totals[PASSED.what] else ""
    if totals[COMPARISONS.what]:
        bits += f", and {totals[COMPARISONS.what]} times comparisons of shuffled rows"
    return (
        f"Nothing was opened but {totals[CHOICE.what]} choices and {totals[COUNTS.what]} noisy marginals, each of "
        f"the size of what was to be released in its round{bits}."
    )


def _held_by_one(session: MeshSession) -> int:
    """Returns the number of openings that one server alone recorded; they are lost with the mesh."""
    counts = sorted(sum(1 for _ in attempt.of("opened")) for attempt in session.present)
    return counts[-1] - counts[-2] if len(counts) > 1 else 0


def _really_opened(attempt: TranscriptAttempt) -> None:
    """Raises CheckFailure unless both others sent the messages for the last opening, which one server alone recorded.

    Their transcripts have these messages too (``messages``): a server cannot have opened a value without them.
    """
    last = [*attempt.of("opened")][-1]
    step, number = last.text("step"), last.number("round")
    senders = {
        entry.number("peer")
        for entry in attempt.of("received")
        if entry.text("step") == step and entry.number("round") == number
    }
    missing = {0, 1, 2} - {attempt.pid} - senders
    require(
        not missing,
        f"line {last.line} of server {attempt.pid}'s transcript: nobody else has this opening, and server "
        f"{min(missing, default=0)} sent nothing for it",
    )


def rounds_opened(evidence: Evidence, what: str) -> set[int]:
    """Returns the rounds in which any server of any mesh opened a value of kind ``what``."""
    entries = [e for s in evidence.sessions for a in s.present for e in a.of("opened")]
    return {e.number("round") for e in entries if e.record["what"] == what}


def finished_rounds(evidence: Evidence) -> int:
    """Returns the run's number of rounds, as server 0 states at the end; -1 if it does not."""
    notes = evidence.transcripts[0].last.notes(FINISHED.what)
    return notes[-1].number("rounds") if notes else -1


def _openings_of(attempt: TranscriptAttempt, terms: RunTerms) -> list[str]:
    """Returns the kinds of an attempt's openings, with the step and size of each verified."""
    where = f"of server {attempt.pid}'s transcript"
    candidates: list[int] = []
    chosen = first = -1
    agreed = attempt.notes(AGREED.what)
    pending = list(terms.workload.one_way)[agreed[0].number("initial") if agreed else 0 :]
    opened, sorting = [], Sorting(terms.config)
    for entry in attempt.events:
        if is_linked(entry):
            sorting.begin(entry)
        elif entry.is_note(SELECTING.what):
            candidates = candidates_of(entry.text("candidates"), len(terms.workload.candidates))
            require(bool(candidates), f"line {entry.line} {where}: a choice among no candidates")
        elif entry.is_note(SELECTED.what):
            chosen = entry.number("candidate")
            require(
                chosen < len(terms.workload.candidates), f"line {entry.line} {where}: no such query"
            )
            query = ", ".join(terms.workload.candidates[chosen])
            require(
                entry.text("query") == query, f"line {entry.line} {where}: the query is {query!r}"
            )
        elif entry.kind == "opened":
            what = _permitted(entry, f"line {entry.line} {where}")
            if what in (PASSED.what, COMPARISONS.what):
                # The check of owners verifies the number of bits and their owners.
                size = entry.number("count")
                if what == COMPARISONS.what:
                    size = sorting.size(entry, f"line {entry.line} {where}")
                _of_size(entry, size, f"line {entry.line} {where}")
                opened.append(what)
                continue
            if what == CHOICE.what:
                size = len(candidates)
            elif entry.number("round") == 0:
                first += 1
                require(first < len(pending), f"line {entry.line} {where}: one marginal too many")
                size = terms.first_size(pending[first])
            else:
                require(chosen >= 0, f"line {entry.line} {where}: counts without a choice")
                size = terms.size(chosen)
            _of_size(entry, size, f"line {entry.line} {where}")
            opened.append(what)
    return opened


def _permitted(entry: TranscriptEntry, where: str) -> str:
    """Returns the kind of an opening. Raises CheckFailure unless it may be opened in its step."""
    what = entry.text("what")
    require(what in OPENED_IN, f"{where}: {what[:40]!r} may not be opened")
    step, _ = OPENED_IN[what]
    require(entry.text("step") == step.name, f"{where}: {what} belongs to step {step.name}")
    return what


def _of_size(entry: TranscriptEntry, size: int, where: str) -> None:
    """Raises CheckFailure unless an opening is of ``size`` numbers and has the bytes for them."""
    _, opening = OPENED_IN[entry.text("what")]
    count = entry.number("count")
    require(count == size, f"{where}: {count} numbers were opened where {size} were due")
    require(
        len(entry.bytes("value")) == opening.itemsize * size,
        f"{where}: the opened value has another length than its count",
    )


def values(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that the three servers opened the same values and drew the same conclusions from them."""
    count = 0
    lost: Counter[int] = Counter()
    for session in evidence.sessions:
        names = [note.what for note in (AGREED, SELECTING, SELECTED, ROUND, COUNTED, INCOMPLETE)]
        opened = [_opened_values(attempt) for attempt in session.present]
        lost.update(lost_records(opened, session))
        for name in names:
            notes = [_notes(attempt, name) for attempt in session.present]
            lost_records(notes, session)
        count += max((len(values) for values in opened), default=0)
        for attempt in session.present:
            _choices_hold(attempt, terms)
    held = (
        f"All {count} opened values are the same at all three, and the choices are what was opened."
    )
    return " ".join([held, *(_lost_words(pid, number) for pid, number in sorted(lost.items()))])


def _lost_words(pid: int, number: int) -> str:
    said = (
        f"Of {number} of them only the two others have a record: server {pid} has an earlier copy of its folder, "
        "or gave a shortened transcript."
    )
    return f"{said} The report is made from it and does not list them." if pid == 0 else said


def _opened_values(attempt: TranscriptAttempt) -> list[tuple[object, ...]]:
    fields = ("round", "step", "what", "count", "value")
    entries = (entry for entry in attempt.of("opened") if entry.record["what"] != PASSED.what)
    return [entry.values(*fields) for entry in entries]


def _notes(attempt: TranscriptAttempt, what: str) -> list[tuple[object, ...]]:
    return [
        tuple(str(value) for name, value in e.record.items() if name != "t")
        for e in attempt.notes(what)
    ]


def lost_records(
    lists: Sequence[Sequence[tuple[object, ...]]], session: MeshSession
) -> Counter[int]:
    """Verifies that servers have the same records, and returns how many a server lost, by its number.

    Where a mesh broke down, a server may lack the last record. If all three met again, one server may lack more, as it
    does when its folder came back from a backup, where two others have all that was opened but for the last: no server
    opens anything alone.
    """
    longest = max(lists, key=len, default=[])
    lost: Counter[int] = Counter()
    for attempt, own in zip(session.present, lists, strict=True):
        for mine, theirs in zip(own, longest, strict=False):
            require(
                mine == theirs,
                f"server {attempt.pid} and another one differ in {str(theirs[2])[:40]} of round {str(theirs[0])[:20]}",
            )
        missing = len(longest) - len(own)
        if missing > (not session.clean):
            require(
                session.over and not session.clean and len(lists) == 3 and not lost,
                f"server {attempt.pid} lacks {missing} of what another one opened or noted",
            )
            lost[attempt.pid] = missing
    return lost


def _choices_hold(attempt: TranscriptAttempt, terms: RunTerms) -> None:
    """Verifies that an opened choice is one of the candidates, and that the noted query is that one."""
    candidates: list[int] = []
    opened: int | None = None
    for entry in attempt.events:
        if entry.is_note(SELECTING.what):
            candidates = candidates_of(entry.text("candidates"), len(terms.workload.candidates))
        elif entry.kind == "opened" and entry.record["what"] == CHOICE.what:
            words = np.frombuffer(entry.bytes("value"), "<u8")
            known = len(words) == len(candidates) and np.count_nonzero(words == 0) == 1
            require(
                known,
                f"the choice opened in line {entry.line} of server {attempt.pid}'s is not one of its candidates",
            )
            opened = candidates[chosen_index(words)]
        elif entry.is_note(SELECTED.what):
            require(
                opened in (None, entry.number("candidate")),
                f"server {attempt.pid} noted another query in line {entry.line} than the one that was opened",
            )
            opened = None


def ledger(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that every charge is in the plan, with its event's cost, and that the sum is within the budget."""
    budget, accountant = Fraction(terms.plan.rho), terms.plan.accountant
    ledgers: list[Counter[_Charge]] = []
    for transcript in evidence.transcripts:
        costs: list[float] = []
        entries: Counter[_Charge] = Counter()
        for attempt in transcript.attempts:
            for entry in attempt.of("ledger"):
                where = f"line {entry.line} of server {transcript.pid}'s transcript"
                event, cost = event_of(entry), entry.real("rho")
                require(
                    cost == accountant.cost(event),
                    f"{where}: the charge is {cost}, its event costs {accountant.cost(event)}",
                )
                costs.append(cost)
                spent = math.fsum(costs)
                require(
                    entry.real("spent") == spent,
                    f"{where}: {entry.real('spent')} is said to be spent; the charges add up to {spent}",
                )
                left = budget - sum(map(Fraction, costs), Fraction(0))
                require(
                    left < 0 or Fraction(accountant.reserve(event)) <= left,
                    f"{where}: too little was left after this charge for it to cost so little",
                )
                opening = entry.text("opening")
                key = entry.number("round"), entry.text("step"), str(event_to_dict(event)), cost
                entries[*key, opening] += 1
                require(
                    entries[*key, opening] == 1,
                    f"{where}: the same opening is charged a second time",
                )
        total = sum(map(Fraction, costs), Fraction(0))
        require(
            total <= budget,
            f"server {transcript.pid} spent {float(total)} of a budget of {float(budget)}",
        )
        ledgers.append(entries)
    opened = opened_names(evidence)
    for pid in (1, 2):
        # The other servers do not enter a charge of one server alone without an opening.
        alone = ledgers[pid].keys() ^ ledgers[0].keys()
        require(
            not any(key[4] in opened for key in alone), f"the ledgers of servers 0 and {pid} differ"
        )
    for session in evidence.sessions:
        for attempt in session.present:
            _as_planned(attempt, evidence, terms)
    _numbers_of_charges(evidence, ledgers[0], terms)
    spent = math.fsum(key[3] * number for key, number in ledgers[0].items())
    sum_ = f"rho = {spent:.6g} of {terms.plan.rho:.6g}"
    return f"{ledgers[0].total()} charges, recomputed from the plan, add up to {sum_}."


def _numbers_of_charges(evidence: Evidence, entries: Counter[_Charge], terms: RunTerms) -> None:
    """Verifies that each release of the finished rounds has one charge, with at most two more per interruption.

    A choice whose measurement was lost, and not repeated, was a release after the last finished round.
    """
    rounds = finished_rounds(evidence)
    planned = Counter({(0, MEASURE.name): len(terms.workload.one_way)})
    for number in range(1, rounds + 1):
        planned.update([(number, SELECT.name), (number, MEASURE.name)])
    if rounds + 1 in rounds_opened(evidence, CHOICE.what):
        planned[rounds + 1, SELECT.name] += 1
    made: Counter[tuple[int, str]] = Counter()
    for (number, step, _, _, _), times in entries.items():
        made[number, step] += times
    missing, extra = planned - made, made - planned
    for number, step in missing:
        raise CheckFailure(f"round {number} has no charge for {step}")
    # Per interruption: one charge without an opening, and the one before it if one server alone recorded the opening.
    lost = len(evidence.sessions) - 1
    explained = lost + sum(_held_by_one(session) for session in evidence.sessions)
    require(
        extra.total() <= explained,
        f"there are {extra.total()} charges beyond the plan, such as {step_text(extra)}; {lost} interruptions explain "
        f"{explained} at most",
    )


def step_text(charges: Counter[tuple[int, str]]) -> str:
    """Returns the first of some charges, for people."""
    number, step = min(charges, default=(0, "none"))
    return f"{step} of round {number}"


def _as_planned(attempt: TranscriptAttempt, evidence: Evidence, terms: RunTerms) -> None:
    """Verifies that the events charged in an attempt are those of the schedule, round by round."""
    for number, entries, plan in rounds_of(attempt, terms):
        for entry in entries:
            event = event_of(entry)
            step = SELECT.name if isinstance(event, ExponentialEvent) else MEASURE.name
            measured = plan.measurement if number > 0 else plan.initial
            planned = plan.selection if step == SELECT.name else measured
            allowed = number > 0 or step == MEASURE.name
            require(
                allowed and event == planned and entry.text("step") == step,
                f"line {entry.line} of server {attempt.pid}'s transcript charges {event} as {entry.text('step')} in "
                f"round {number}, where the plan has {planned}",
            )


def rounds_of(
    attempt: TranscriptAttempt, terms: RunTerms
) -> Iterator[tuple[int, list[TranscriptEntry], Schedule]]:
    """Yields each round of an attempt with its charges and its schedule."""
    plan = schedule_at(attempt, terms)
    begun = False
    entries: list[TranscriptEntry] = []
    number = -1
    for at, entry in enumerate(attempt.events):
        if entry.is_note(ROUND.what):
            if begun:
                yield number, entries, plan
            number, entries, begun = entry.number("round"), [], True
            charged = _next_charge(attempt.events[at + 1 :])
            plan = _advanced(plan, number, charged, f"round {number} of server {attempt.pid}")
        elif entry.kind == "ledger" and begun:
            require(
                entry.number("round") == number,
                f"line {entry.line} of server {attempt.pid}'s transcript charges another round than {number}",
            )
            entries.append(entry)
    if begun:
        yield number, entries, plan


def schedule_at(attempt: TranscriptAttempt, terms: RunTerms) -> Schedule:
    """Returns the schedule at the start of an attempt, after the earlier releases and losses."""
    plan = make_plan(terms.study)
    agreed = attempt.notes(AGREED.what)
    if not agreed:
        return plan
    initial = agreed[0].number("initial")
    sigmas, wasted = (
        [float(n) for n in agreed[0].items(name) if isinstance(n, int | float)]
        for name in ("sigmas", "wasted")
    )
    try:
        plan.write_off(
            [*released_costs(plan, initial, sigmas), *wasted], initial=initial, sigmas=sigmas
        )
        plan.resume(sigmas)
    except ValueError as error:
        raise CheckFailure(
            f"server {attempt.pid} went on after rounds that no plan comes to: {error}"
        ) from error
    return plan


def _next_charge(entries: Sequence[TranscriptEntry]) -> Event | None:
    """Returns what is charged first in the round that these entries begin with."""
    for entry in entries:
        if entry.is_note(ROUND.what):
            return None
        if entry.kind == "ledger" or entry.is_note(REPEATED.what):
            return event_of(entry)
    return None


def _advanced(plan: Schedule, number: int, charged: Event | None, where: str) -> Schedule:
    """Returns the schedule in round ``number``: the charges show if an annealed one became finer."""
    if not plan.adaptive or number == 0:
        return plan
    choices = []
    for settled in (False, True):
        plan_then = copy.deepcopy(plan)
        try:
            plan_then.advance(number, settled=settled)
        except ValueError as error:
            raise CheckFailure(f"{where} is not in the plan: {error}") from error
        require(plan_then.rounds >= number, f"{where} is not in the plan: nothing is left for it")
        choices.append(plan_then)
    for choice in choices:
        if charged is None or charged in (choice.selection, choice.measurement):
            return choice
    return choices[0]
