"""Conclusions about an interrupted run from the states of the three servers, as a pure function.

One rule holds throughout: all servers adopt the values that two of them hold alike; the word of one server alone
changes nothing that another holds. Nothing here reads a disk, a clock or a socket, so that a test can search it. The
servers carry out the conclusions in `parties.mpc.agreement`. All values here are public.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import TypeVar

from mechanisms.accounting import ZCDP, Accountant, LedgerEntry
from parties.foundation.untrusted_text import parse_json
from parties.mpc.estimation import LEAD
from parties.mpc.openings import choice_name, measurement_name
from parties.mpc.records import Checkpoint, RoundInputs
from protocols.errors import CheckFailed, ProtocolViolation
from protocols.steps import MEASURE, SELECT

Key = TypeVar("Key", int, tuple[int, int])
Kept = TypeVar("Kept", int, str, Checkpoint, RoundInputs)


@dataclass(frozen=True, slots=True, eq=False)
class ReportedState:
    """Openings, charges and recorded inputs of one server, by its own account."""

    checkpoints: Mapping[tuple[int, int], Checkpoint]
    selections: Mapping[int, int]
    entries: tuple[LedgerEntry, ...]
    inputs: Mapping[int, RoundInputs] = field(default_factory=dict)
    models: Mapping[int, str] = field(default_factory=dict)


def parse_reply(reply: bytes, pid: int) -> Mapping[str, object]:
    """Parses the reply of server ``pid`` as a table. Raises ProtocolViolation if it is none."""
    try:
        document = parse_json(reply)
    except ValueError as error:
        raise ProtocolViolation(f"party {pid} sent a state that is not JSON", pid) from error
    if not isinstance(document, dict):
        raise ProtocolViolation(f"party {pid} sent a state that is not a table", pid)
    return document


def parse_reported_state(
    document: Mapping[str, object],
    pid: int,
    *,
    rounds: int,
    budget: float | None = None,
    accountant: Accountant = ZCDP,
) -> ReportedState:
    """Parses the state that server ``pid`` reports. Raises ProtocolViolation if it is malformed or impossible.

    Without a ``budget``, charges are taken unchecked: those of a server's own store.
    """
    try:
        checkpoints = [Checkpoint.from_dict(item) for item in _list(document, "checkpoints")]
        entries = [LedgerEntry.from_dict(item) for item in _list(document, "ledger")]
        chosen = {int(k): int(v) for k, v in _table(document, "selections").items()}  # type: ignore[call-overload]
        charges = document.get("inputs")
        inputs = [
            RoundInputs.from_list(item) for item in (charges if isinstance(charges, list) else [])
        ]
        models = {int(k): str(v) for k, v in _table(document, "models").items()}
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ProtocolViolation(f"party {pid} sent a malformed state: {error}", pid) from error
    held = ReportedState(
        {(checkpoint.round, checkpoint.candidate): checkpoint for checkpoint in checkpoints},
        {number: candidate for number, candidate in chosen.items() if 1 <= number <= rounds},
        tuple(entries),
        {one.round: one for one in inputs if one.round <= rounds},
        {number: digest for number, digest in models.items() if 1 <= number <= rounds},
    )
    return held if budget is None else _permitted(held, pid, rounds, budget, accountant)


def _permitted(
    state: ReportedState, pid: int, rounds: int, budget: float, accountant: Accountant
) -> ReportedState:
    """Returns ``state`` with its charges verified against plan and budget, since a peer's word may be adopted.

    Raises ProtocolViolation for charges that no server can have made.
    """
    names = [entry.opening for entry in state.entries]
    if "" in names or len(set(names)) < len(names):
        raise ProtocolViolation(
            f"party {pid} claims a charge for no opening, or two for one; each pays for one opening",
            pid,
        )
    total = sum((Fraction(entry.rho) for entry in state.entries), Fraction(0))
    if total > Fraction(budget):
        raise ProtocolViolation(
            f"party {pid} claims charges of {float(total):.6g} in all; the plan has {budget:.6g}",
            pid,
        )
    for entry in state.entries:
        known = entry.round <= rounds and entry.step in (SELECT.name, MEASURE.name)
        if not known or entry.rho != accountant.cost(entry.event) or entry.rho > budget:
            raise ProtocolViolation(f"party {pid} claims a charge that no plan has", pid)
    return state


@dataclass(frozen=True, slots=True, eq=False)
class RestartConclusion:
    """Point at which a run goes on, for one server.

    ``history`` are the released measurements and ``selections`` the choices, candidate by round, that two servers hold
    alike. ``lost`` are the rounds of releases that only this server held; ``contradicted`` are the rounds of which two
    servers hold different releases. ``charged`` are the charges that two servers hold; ``wasted`` are the costs of
    charges for which nothing will be released; ``claimed`` are, by server, the charges that it alone reports.

    ``recorded`` are the inputs that two servers have recorded alike, by round; ``claims`` are the other reports about
    rounds that no two servers have recorded alike. ``models`` are the digests of the models that two servers have
    alike, by round; ``everywhere`` are the rounds whose model all three have, ``untaught`` those whose model the lead
    lacks.
    """

    history: tuple[Checkpoint, ...]
    selections: Mapping[int, int]
    lost: tuple[int, ...]
    contradicted: tuple[int, ...]
    charged: tuple[LedgerEntry, ...]
    wasted: tuple[float, ...]
    claimed: tuple[tuple[LedgerEntry, ...], ...]
    recorded: Mapping[int, RoundInputs]
    claims: Mapping[int, tuple[str, ...]]
    models: Mapping[int, str]
    everywhere: frozenset[int]
    untaught: frozenset[int]


def conclude_restart(
    states: Sequence[ReportedState], pid: int, initial: Sequence[int]
) -> RestartConclusion:
    """Concludes for server ``pid`` from the states of the three; ``initial`` are round 0's candidates in order.

    Raises CheckFailed if two pairs of servers hold different releases of one round.
    """
    history, selections = _held_by_two(states, initial)
    common = _charged_by_two(states)
    recorded, claims = _inputs_of_two(states)
    due = 1 + max((checkpoint.round for checkpoint in history), default=-1)
    kept = _common([state.models for state in states], _identity)
    models = {number: digest for number, digest in kept.items() if number <= due}
    return RestartConclusion(
        history=tuple(history),
        selections=selections,
        lost=_lost_rounds(states[pid], history, selections),
        contradicted=_contradicted(states),
        charged=tuple(common),
        wasted=tuple(entry.rho for entry in _wasted_charges(common, history, recorded)),
        claimed=tuple(_charged_alone(state, common) for state in states),
        recorded=recorded,
        claims=claims,
        models=models,
        everywhere=frozenset(
            number
            for number, digest in models.items()
            if all(state.models.get(number) == digest for state in states)
        ),
        untaught=frozenset(
            number for number, digest in models.items() if states[LEAD].models.get(number) != digest
        ),
    )


def _lost_rounds(
    mine: ReportedState, history: Sequence[Checkpoint], selections: Mapping[int, int]
) -> tuple[int, ...]:
    """Rounds of releases that this server holds and that are not common."""
    kept = {(c.round, c.candidate): release_content(c) for c in history}
    measured = {
        key[0] for key, held in mine.checkpoints.items() if kept.get(key) != release_content(held)
    }
    chosen = {n for n, candidate in mine.selections.items() if selections.get(n) != candidate}
    return tuple(sorted(measured | chosen))


def _charged_by_two(states: Sequence[ReportedState]) -> list[LedgerEntry]:
    """Charges that two or three servers hold alike, in one order: choices before the counts that they reserve for."""
    held = Counter(entry for state in states for entry in set(state.entries))
    common = [entry for entry, holders in held.items() if holders > 1]
    return sorted(common, key=lambda e: (e.round, e.step != SELECT.name, e.step, e.opening))


def _charged_alone(state: ReportedState, common: Sequence[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    return tuple(entry for entry in state.entries if entry not in common)


def _inputs_of_two(
    states: Sequence[ReportedState],
) -> tuple[dict[int, RoundInputs], dict[int, tuple[str, ...]]]:
    """Inputs of rounds that two or three servers have recorded alike; and by round, reports about the other rounds."""
    tables = [state.inputs for state in states]
    recorded = _common(tables, _identity)
    claimed: dict[int, set[str]] = {}
    for number, inputs in (item for table in tables for item in table.items()):
        if number not in recorded:
            claimed.setdefault(number, set()).add(json.dumps(inputs.to_list()))
    return recorded, {number: tuple(sorted(said)) for number, said in claimed.items()}


def _wasted_charges(
    common: Sequence[LedgerEntry],
    history: Sequence[Checkpoint],
    recorded: Mapping[int, RoundInputs],
) -> list[LedgerEntry]:
    """Charges for openings that are not released and will not be, since no round goes by their inputs any more."""
    released = {c.round for c in history}
    due = {choice_name(inputs) for inputs in recorded.values()}
    due |= {
        measurement_name(recorded[c.round], c.candidate, c.sigma)
        for c in history
        if c.round in recorded
    }
    # The measurement of a round that is done again is known only once its choice is.
    again = {number for number in recorded if number not in released or number == 0}
    return [
        e
        for e in common
        if e.opening not in due and not (e.round in again and e.step == MEASURE.name)
    ]


def _held_by_two(
    states: Sequence[ReportedState], initial: Sequence[int]
) -> tuple[list[Checkpoint], dict[int, int]]:
    """Measurements and selections that two or three servers hold alike, up to the first gap.

    Two honest servers never hold different values at one position: if one server is told a lie in an opening, the other
    alone keeps the value. Raises CheckFailed if two pairs hold different values of one round.
    """
    measured = _common([s.checkpoints for s in states], release_content)
    chosen = _common([s.selections for s in states], _identity)
    history = _in_sequence(measured, initial)
    next_round = 0 if len(history) < len(initial) else history[-1].round + 1
    return history, {n: candidate for n, candidate in chosen.items() if n <= next_round}


def _in_sequence(
    measured: Mapping[tuple[int, int], Checkpoint], initial: Sequence[int]
) -> list[Checkpoint]:
    """Measurements up to the first missing one: all of round 0 in order, then one for each round.

    The values that two honest servers hold have no gap; a lying server beside one that has forgotten can make some.
    Raises CheckFailed if a round has two.
    """
    keys = [(0, candidate) for candidate in initial]
    keys += sorted(key for key in measured if key[0] > 0)
    history: list[Checkpoint] = []
    for key in keys:
        due = history[-1].round + 1 if len(history) >= len(initial) else 0
        if key[0] < due:
            raise CheckFailed(f"two pairs of parties hold different releases of round {key[0]}")
        if key not in measured or key[0] > due:
            break
        history.append(measured[key])
    return history


def release_content(checkpoint: Checkpoint) -> object:
    """Full content of a release, for comparison between servers."""
    return checkpoint.to_dict()


def _identity(held: object) -> object:
    return held


def _common(
    tables: Sequence[Mapping[Key, Kept]], content: Callable[[Kept], object]
) -> dict[Key, Kept]:
    """Entries that two or three of three ``tables`` hold with the same ``content``."""
    common = dict[Key, Kept]()
    for first, second in combinations(tables, 2):
        both = (key for key in first if key in second and key not in common)
        common |= {key: first[key] for key in both if content(first[key]) == content(second[key])}
    return common


def _contradicted(states: Sequence[ReportedState]) -> tuple[int, ...]:
    """Rounds of which two servers hold different releases: one of the two misreports the opened value."""
    found = set[int]()
    for one, other in combinations(states, 2):
        measured, others = one.checkpoints, other.checkpoints
        both = measured.keys() & others.keys()
        found |= {
            key[0] for key in both if release_content(measured[key]) != release_content(others[key])
        }
        chosen = one.selections.keys() & other.selections.keys()
        found |= {n for n in chosen if one.selections[n] != other.selections[n]}
    return tuple(sorted(found))


def _table(document: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _list(document: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    value = document.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{key} is no list of tables")
    return value
