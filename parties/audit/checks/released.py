"""Releases of a run of three servers, read from its transcripts: the noisy marginals of its model.

A value that was opened and lost in a crash was charged and opened again: the last one of a round and query counts. All
values here are public.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from mechanisms.accounting import Schedule
from mechanisms.aim import Measurement
from parties.audit.checks.privacy import RunTerms, finished_rounds, rounds_of
from parties.audit.evidence import Evidence, MeshSession, TranscriptAttempt
from parties.audit.findings import require
from parties.mpc.private_bins import measurements_of
from parties.mpc.records import Checkpoint
from parties.mpc.transcript_schema import AGREED, ROUND, SELECTED
from protocols.steps import COUNTS


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedMeasurements:
    """``measurements`` of the finished rounds, in order; ``begun``: their number at the start of each mesh."""

    measurements: tuple[Measurement, ...]
    begun: tuple[int, ...]


def released_measurements(evidence: Evidence, terms: RunTerms) -> ReleasedMeasurements:
    """Returns the noisy marginals of the finished rounds. Raises CheckFailure if one is missing."""
    one_way, rounds = terms.workload.one_way, finished_rounds(evidence)
    found: dict[tuple[int, int], Measurement] = {}
    chosen: dict[int, int] = {}
    begun = []
    for session in evidence.sessions:
        begun.append(_n_agreed(session))
        attempt = max(session.present, key=lambda a: len(list(a.of("opened"))))
        for measurement in _measured_in(attempt, evidence, terms):
            found[measurement.round, measurement.candidate] = measurement
            chosen[measurement.round] = measurement.candidate
    keys = [(0, candidate) for candidate in one_way]
    keys += [(number, chosen.get(number, -1)) for number in range(1, rounds + 1)]
    for key in keys:
        require(key in found, f"round {key[0]} has no noisy counts for the model")
    return ReleasedMeasurements(tuple(found[key] for key in keys), tuple(begun))


def _n_agreed(session: MeshSession) -> int:
    """Returns the number of measurements that the servers of a mesh agreed on at its start."""
    (note,) = session.present[0].notes(AGREED.what)
    return note.number("initial") + len(note.items("sigmas"))


def _measured_in(
    attempt: TranscriptAttempt, evidence: Evidence, terms: RunTerms
) -> Iterator[Measurement]:
    """Yields the measurements of an attempt, from its openings and notes."""
    plans: dict[int, Schedule] = {n: plan for n, _, plan in rounds_of(attempt, terms)}
    left = iter(terms.workload.one_way[attempt.notes(AGREED.what)[0].number("initial") :])
    clients, candidate = 0, -1
    for entry in attempt.events:
        if entry.is_note(ROUND.what):
            clients = entry.number("clients")
        elif entry.is_note(SELECTED.what):
            candidate = entry.number("candidate")
        elif entry.kind == "opened" and entry.record["what"] == COUNTS.what:
            number = entry.number("round")
            candidate = candidate if number > 0 else next(left, -1)
            require(candidate >= 0, f"round {number} opened more marginals than there are columns")
            plan = plans[number]
            sigma = plan.sigma if number > 0 else plan.initial_sigma
            opened = Checkpoint(number, candidate, sigma, clients, terms.counts(entry))
            yield from measurements_of(terms.study, [opened])
