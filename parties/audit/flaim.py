"""The audit of a FLAIM server's transcript: what was opened, what was charged for it, and who took part.

Provides ``checks``, named like those of a run of three servers. The budget, its division over the rounds, every charge
and the length of every sum are computed anew from the configuration and the choices in the transcript. Known limit: one
server writes the only transcript, and clients keep none: what it leaves out, nobody else shows. With server noise it
sees every sum before the noise (README of `mechanisms`, FLAIM).
"""

import copy
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from mechanisms.accounting import LOCAL, MEASURE, SELECT, Schedule, rho
from mechanisms.events import DiscreteGaussianEvent, Event
from mechanisms.flaim_messages import Layout
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.workload import Workload
from parties.audit.evidence import Attempt, Entry, Evidence, event_of, require_whole
from parties.audit.findings import Failed, require
from parties.config import Config
from parties.flaim.notes import FINISHED, JOINED, LEFT, ROUND
from parties.flaim.steps import CHOICES, OPENED, STEPS, SUMS
from parties.flaim.sums import section_of, settings_of
from parties.secagg import steps as secagg
from protocols.transcript import round_ended

_STEPS = {*STEPS.values(), *secagg.STEPS.values(), secagg.UNKNOWN}
_CHOICE = struct.Struct(">IH")


@dataclass(frozen=True, slots=True, eq=False)
class FlaimTerms:
    """What the configuration says, computed by the auditor."""

    config: Config
    workload: Workload
    settings: FlaimSettings

    @property
    def names(self) -> tuple[str, ...]:
        """The clients."""
        return section_of(self.config).clients

    @property
    def schedule(self) -> Schedule:
        """The division of the budget, of an attempt that has not begun."""
        return self.settings.schedule(len(self.workload.domain.columns))


def terms_of(config: Config) -> FlaimTerms:
    """The terms of a configuration. Raises ConfigError."""
    return FlaimTerms(config, config.build_workload(), settings_of(config))


@dataclass(frozen=True, slots=True)
class Round:
    """One round of an attempt: its number, the note that begins it, what follows, and the schedule as it was then."""

    number: int
    note: Entry
    entries: Sequence[Entry]
    plan: Schedule


def checks(evidence: Evidence, terms: FlaimTerms) -> list[tuple[str, Callable[[], str]]]:
    """The checks on what happened, by name."""
    return [
        ("messages", lambda: messages(evidence, terms)),
        ("clients", lambda: clients(evidence, terms)),
        ("openings", lambda: openings(evidence, terms)),
        ("charges", lambda: charges(evidence, terms)),
        ("ledger", lambda: ledger(evidence, terms)),
        ("traffic", lambda: traffic(evidence)),
    ]


def completeness(evidence: Evidence) -> str:
    """From the header to the closing seal of a finished run, with a seal after every round that was begun."""
    book = evidence.books[0]
    require_whole(book)
    last = book.attempts[-1]
    require(last.clean, "the transcript does not end with the closing seal of a finished run")
    finished = last.notes(FINISHED)
    require(len(finished) == 1, "the transcript does not say once that the run was finished")
    for attempt in book.attempts:
        sealed = [entry.text("reason") for entry in attempt.of("seal")]
        begun = [entry.number("round") for entry in attempt.notes(ROUND)]
        require(begun == sorted(set(begun)), "the transcript has rounds that repeat or go back")
        for number in begun if attempt.clean else begun[:-1]:
            require(
                sealed.count(round_ended(number)) == 1, f"there is not one seal for round {number}"
            )
    # A server that was killed after its last round makes the table in an attempt without one.
    begun = [number for attempt in book.attempts for number in _rounds_begun(attempt)]
    done = begun[-1] if begun else 0
    said = finished[0].number("rounds")
    require(said == done, f"{said} rounds are said to be done; the last one is {done}")
    return "The transcript reaches from its header to the closing seal of a finished run."


def _rounds_begun(attempt: Attempt) -> list[int]:
    """Their numbers, but for one that an interrupted attempt had not paid for: it is taken again, or never."""
    begun = [entry.number("round") for entry in attempt.notes(ROUND)]
    paid = {entry.number("round") for entry in attempt.of("ledger")}
    interrupted = not attempt.clean and begun and begun[-1] not in paid
    return begun[:-1] if interrupted else begun


def clocks(evidence: Evidence) -> str:
    """The server's time never goes back."""
    before = 0.0
    for entry in evidence.books[0].entries:
        require(
            entry.time >= before - 0.002,
            f"time goes back by {before - entry.time:.3f} s in line {entry.line}",
        )
        before = entry.time
    return "The server's time never goes back."


def messages(evidence: Evidence, terms: FlaimTerms) -> str:
    """Messages are of the protocol's kinds, with clients of the run, and numbered without a gap."""
    total = size = 0
    for attempt in evidence.books[0].attempts:
        for number, entry in enumerate(attempt.of("sent", "received"), start=1):
            where = f"line {entry.line}"
            require(
                entry.text("step") in _STEPS,
                f"{where}: the protocol has no message {entry.text('step')[:40]!r}",
            )
            require(entry.number("peer") < len(terms.names), f"{where}: the run has no such client")
            require(
                entry.text("label") == f"{number:016x}",
                f"{where}: message number {number} of the attempt is missing or out of its place",
            )
            total, size = total + 1, size + entry.number("bytes")
    require(total > 0, "there is no message")
    return (
        f"{total} messages, {size} bytes, are of the protocol's kinds and numbered without a gap."
    )


def rounds_of(attempt: Attempt, terms: FlaimTerms) -> Iterator[Round]:
    """The rounds of an attempt; an annealed schedule is followed by what was charged. Raises Failed."""
    plan = terms.schedule
    starts = [n for n, entry in enumerate(attempt.entries) if entry.is_note(ROUND)]
    for start, end in pairwise([*starts, len(attempt.entries)]):
        note, entries = attempt.entries[start], attempt.entries[start + 1 : end]
        number = note.number("round")
        if plan.adaptive and number > 0:
            plan = _advanced(plan, number, entries, terms)
        yield Round(number, note, entries, plan)


def _advanced(plan: Schedule, number: int, entries: Sequence[Entry], terms: FlaimTerms) -> Schedule:
    """The schedule in round ``number``: finer or not, as the charges say."""
    charged = next((event_of(entry) for entry in entries if entry.kind == "ledger"), None)
    choices = []
    for settled in (False, True):
        then = copy.deepcopy(plan)
        try:
            then.advance(number, settled=settled)
        except ValueError as error:
            raise Failed(f"round {number} is not in the plan: {error}") from error
        choices.append(then)
    for choice in choices:
        if charged in [event for _, event in due(number, choice, terms)]:
            return choice
    return choices[0]


def due(number: int, plan: Schedule, terms: FlaimTerms) -> list[tuple[str, Event]]:
    """What round ``number`` is charged, in its order, with the step of each charge."""
    settings = terms.settings
    found: list[tuple[str, Event]] = []
    if number > 0 and settings.selects:
        found += [(SELECT, plan.selection)] * settings.local_rounds
        found += [(LOCAL, DiscreteGaussianEvent(plan.sigma))] * settings.local_measurements
    marginals = settings.chosen * (number > 0) + len(terms.workload.one_way) * _one_way(
        number, terms
    )
    return found + [(MEASURE, settings.sum_noise(plan.sigma).event)] * marginals


def _one_way(number: int, terms: FlaimTerms) -> bool:
    return number == 0 or (terms.settings.one_way_each_round and number > 1)


def chosen_in(entry: Entry, terms: FlaimTerms) -> dict[int, tuple[int, ...]]:
    """The candidates that each client chose, from an opening of choices. Raises Failed."""
    data, place, found = entry.bytes("value"), 0, {}
    where = f"line {entry.line}"
    while place < len(data):
        require(place + _CHOICE.size <= len(data), f"{where}: the choices break off")
        client, count = _CHOICE.unpack_from(data, place)
        place += _CHOICE.size
        require(place + 2 * count <= len(data), f"{where}: the choices break off")
        candidates = struct.unpack_from(f">{count}H", data, place)
        place += 2 * count
        known = client < len(terms.names) and client not in found
        require(known, f"{where}: client {client} chose twice, or is none")
        fits = count == terms.settings.chosen and len(set(candidates)) == count
        require(
            fits, f"{where}: client {client} chose {count} queries, not {terms.settings.chosen}"
        )
        require(
            all(c < len(terms.workload.candidates) for c in candidates), f"{where}: no such query"
        )
        found[client] = candidates
    total = sum(map(len, found.values()))
    require(
        total == entry.number("count"), f"{where}: {total} choices, not {entry.number('count')}"
    )
    return found


def openings(evidence: Evidence, terms: FlaimTerms) -> str:
    """Only choices and noisy sums were opened, once a round, of the lengths that the choices make."""
    choices = sums = 0
    for attempt in evidence.books[0].attempts:
        before = next(
            (n for n, e in enumerate(attempt.entries) if e.is_note(ROUND)), len(attempt.entries)
        )
        early = any(entry.kind == "opened" for entry in attempt.entries[:before])
        require(not early, "something was opened before the first round")
        for found in rounds_of(attempt, terms):
            chosen: set[int] = set()
            opened = [entry for entry in found.entries if entry.kind == "opened"]
            for entry in opened:
                what, where = entry.text("what"), f"line {entry.line}"
                require(what in OPENED, f"{where}: {what[:40]!r} may not be opened")
                fits = (entry.text("step"), entry.number("round")) == (
                    OPENED[what],
                    found.number,
                )
                require(fits, f"{where}: {what} was opened in another step or round")
                if what == CHOICES:
                    choices += 1
                    chosen = {c for picks in chosen_in(entry, terms).values() for c in picks}
            lists = [entry for entry in opened if entry.record["what"] == CHOICES]
            require(
                len(lists) <= (found.number > 0 and terms.settings.chosen > 0),
                f"round {found.number} opened choices {len(lists)} times",
            )
            sums += _sums(found, [e for e in opened if e.record["what"] == SUMS], chosen, terms)
    require(sums > 0, "no sum was opened")
    return f"Nothing was opened but {choices} lists of choices and {sums} noisy sums of the lengths that these make."


def _sums(found: Round, opened: Sequence[Entry], chosen: set[int], terms: FlaimTerms) -> int:
    """The sums of a round: one over everything, or one for each query, some of which may have been given up."""
    one_way, number = _one_way(found.number, terms), max(found.number, 0)
    candidates = tuple(sorted(chosen))
    parts = [(one_way, candidates)]
    if terms.settings.grouping == "query":
        parts = [(True, ())] * one_way + [(False, (c,)) for c in candidates]
    lengths = [
        Layout(number, 0, 1, 1.0, flag, some).cells(terms.workload) for flag, some in parts if flag or some
    ]  # fmt: skip
    left = iter(lengths)
    for entry in opened:
        count = entry.number("count")
        require(
            any(length == count for length in left),
            f"line {entry.line}: a sum of {count} numbers, which the round's choices do not make",
        )
        require(
            len(entry.bytes("value")) in (4 * count, 8 * count),
            f"line {entry.line}: the opened sum has another length than its count",
        )
    return len(opened)


def charges(evidence: Evidence, terms: FlaimTerms) -> str:
    """Before anything of a round was opened, all that it is charged for it was entered."""
    count = 0
    for attempt in evidence.books[0].attempts:
        for found in rounds_of(attempt, terms):
            wanted = [step for step, _ in due(found.number, found.plan, terms)]
            needed = {CHOICES: len([s for s in wanted if s != MEASURE]), SUMS: len(wanted)}
            made = 0
            for entry in found.entries:
                made += entry.kind == "ledger"
                if entry.kind == "opened":
                    require(
                        made >= needed.get(entry.text("what"), 0),
                        f"line {entry.line}: an opening after {made} charges of its round, before the rest",
                    )
                    count += 1
    return f"Each of the {count} openings follows the charges that pay for it."


def ledger(evidence: Evidence, terms: FlaimTerms) -> str:
    """Every charge is one of the plan, costs what its event costs, and the sum is within the budget."""
    costs: list[float] = []
    for attempt in evidence.books[0].attempts:
        for entry in attempt.of("ledger"):
            cost = rho(event_of(entry))
            require(
                entry.real("rho") == cost,
                f"line {entry.line}: the charge is {entry.real('rho')}, its event costs {cost}",
            )
            costs.append(cost)
            spent = math.fsum(costs)
            require(
                math.isclose(entry.real("spent"), spent, rel_tol=1e-12),
                f"line {entry.line}: {entry.real('spent')} is said to be spent; the charges add up to {spent}",
            )
        planned = 0
        for found in rounds_of(attempt, terms):
            made = [entry for entry in found.entries if entry.kind == "ledger"]
            for entry, (step, event) in zip(
                made, due(found.number, found.plan, terms), strict=False
            ):
                fits = entry.number("round") == found.number and entry.text("step") == step
                require(
                    fits and event_of(entry) == event,
                    f"line {entry.line} charges {event_of(entry)} as {entry.text('step')}, where the plan has {event} "
                    f"as {step} of round {found.number}",
                )
            most = len(due(found.number, found.plan, terms))
            require(
                len(made) <= most,
                f"round {found.number} has {len(made)} charges; the plan has {most}",
            )
            planned += len(made)
        entered = len(list(attempt.of("ledger")))
        require(planned == entered, f"{entered - planned} charges belong to no round")
    require(
        terms.settings.rho == evidence.books[0].header.real("rho_total"),
        "the header has another budget",
    )
    within = sum(map(Fraction, costs), Fraction(0)) <= Fraction(terms.settings.rho)
    require(within, f"{math.fsum(costs)} was spent of a budget of {terms.settings.rho}")
    total = f"rho = {math.fsum(costs):.6g} of {terms.settings.rho:.6g}"
    return f"{len(costs)} charges, recomputed from the plan, add up to {total}."


def clients(evidence: Evidence, terms: FlaimTerms) -> str:
    """Those who take part are clients of the run with one certificate each, enough of them where a sum was opened.

    Where it was taken over everybody, each of them sent a masked vector.
    """
    certificates: dict[str, str] = {}
    seen: set[str] = set()
    for attempt in evidence.books[0].attempts:
        for note in (JOINED, LEFT):
            for entry in attempt.notes(note):
                _same_certificate(entry, "certificate", certificates, terms)
                seen.add(entry.text("client"))
        for found in rounds_of(attempt, terms):
            here: set[str] = set()
            masked: set[int] = set()
            for entry in found.entries:
                if entry.kind == "client":
                    _same_certificate(entry, "digest", certificates, terms)
                    name, number = entry.text("client"), entry.number("round")
                    require(
                        number == found.number,
                        f"line {entry.line} is of another round than {found.number}",
                    )
                    if entry.record["accepted"]:
                        require(name not in here, f"line {entry.line} counts {name!r} twice")
                        here.add(name)
                    else:
                        here.discard(name)
                elif entry.kind == "received" and entry.text("step") == secagg.MASKED:
                    masked.add(entry.number("peer"))
                elif entry.kind == "opened" and entry.record["what"] == SUMS:
                    union = terms.settings.grouping == "union"
                    # By query a client may have dropped out of one sum before another.
                    silent = here - {n for i, n in enumerate(terms.names) if i in masked}
                    require(
                        not (union and silent),
                        f"line {entry.line}: {min(silent, default='')!r} is counted without a masked vector",
                    )
                    least = terms.settings.min_participants if union else 1
                    require(
                        len(here) >= least,
                        f"line {entry.line}: a sum over {len(here)} clients was opened; {least} is the least",
                    )
            said = found.note.number("clients")
            started = sum(
                e.kind == "client" and e.record["accepted"] is True for e in found.entries
            )
            require(
                started <= said <= found.note.number("present") <= len(terms.names),
                f"round {found.number} is said to have {said} clients; {started} are listed",
            )
    require(seen <= set(terms.names), "somebody who is no client of the run joined")
    return (
        f"{len(seen)} of the run's {len(terms.names)} clients took part, each with one certificate."
    )


def _same_certificate(
    entry: Entry, field: str, certificates: dict[str, str], terms: FlaimTerms
) -> None:
    name = entry.text("client")
    require(name in terms.names, f"line {entry.line}: {name[:60]!r} is no client of the run")
    known = certificates.setdefault(name, entry.text(field))
    require(known == entry.text(field), f"line {entry.line}: {name!r} has another certificate")


def traffic(evidence: Evidence) -> str:
    """The accounts of the steps do not claim more than was sent and received meanwhile."""
    count = 0
    for attempt in evidence.books[0].attempts:
        steps = list(attempt.of("step"))
        first = next((e.line for e in attempt.notes(ROUND)), math.inf)
        last = next((e.line for e in attempt.notes(FINISHED)), math.inf)
        for name in ("sent", "received"):
            said = sum(entry.number(name) for entry in steps)
            total = sum(e.number("bytes") for e in attempt.of(name) if first < e.line < last)
            require(
                said <= total,
                f"{said} bytes are said to be {name}; the messages of all rounds have {total}",
            )
        count += len(steps)
    return f"The accounts of {count} steps are within what the messages add up to."
