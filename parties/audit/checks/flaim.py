"""The audit of a FLAIM server's transcript: openings, charges, and participating clients.

The rules are named like those of a run of three servers. The budget, its division over the rounds, every charge and the
length of every sum are computed anew from the configuration and the choices in the transcript. Known limit: one server
writes the only transcript, and clients keep none, so no other transcript shows an omission. With server noise the
server sees every sum before the noise (README of `mechanisms`, FLAIM).
"""

import copy
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mechanisms.accounting import LOCAL, MEASURE, SELECT, Schedule
from mechanisms.events import DiscreteGaussianEvent, Event
from mechanisms.flaim import last_round, next_round
from mechanisms.flaim_messages import Layout
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.workload import Workload
from parties.audit.checks import identity, publication
from parties.audit.checks.one_server import (
    SIGNED,
    costs_of,
    finished_note,
    messages,
    require_within,
    same_certificate,
)
from parties.audit.checks.quality import check_claims, check_columns, check_verdict, written_table
from parties.audit.checks.report import (
    FIGURES,
    UNCHECKED_COMMUNICATION,
    charges_of,
    check_header,
    compare_figures,
    openings_of,
    read_report,
    require_same,
)
from parties.audit.checks.report_parts import ReportParts, edition_of, ended, header_of
from parties.audit.evidence import (
    Evidence,
    TranscriptAttempt,
    TranscriptEntry,
    event_of,
)
from parties.audit.findings import CheckFailure, require
from parties.audit.rules import AuditCase, Prerequisite, Rule, ServerAudit
from parties.config import Config
from parties.federation import secagg_steps as secagg
from parties.federation.sum_parameters import is_malicious
from parties.federation.transcript_schema import FINISHED, JOINED, LEFT
from parties.foundation.errors import ConfigError
from parties.foundation.version import TEXT_EDITION
from parties.methods.flaim.report import attacker_on, guarantee_of, parameters_of, trust_of
from parties.methods.flaim.settings import PAIRS, flaim_section, neighbours_text, settings_of
from parties.methods.flaim.transcript_schema import (
    CHOICES,
    FLAIM_OPENED,
    FLAIM_PROTOCOL,
    FLAIM_STEPS,
    ROUND,
    SELECTED,
    SUMS,
)
from parties.report.document import optional
from parties.report.from_result import workload_size
from parties.report.model import Privacy, RunReport
from parties.report.privacy_text import report_header
from parties.session.study import Study
from protocols.transcript import round_ended

_STEPS = {*FLAIM_STEPS.values(), *secagg.SECAGG_STEPS.values(), secagg.UNKNOWN_STEP}
_CHOICE = struct.Struct(">IH")


@dataclass(frozen=True, slots=True, eq=False)
class FlaimTerms:
    """Terms of the configuration, computed by the auditor."""

    config: Config
    workload: Workload
    settings: FlaimSettings

    @property
    def study(self) -> Study:
        """The study of the terms."""
        return Study(self.config, self.workload)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the clients."""
        return flaim_section(self.config).clients

    @property
    def schedule(self) -> Schedule:
        """Division of the budget in an attempt that has not begun."""
        return self.settings.schedule(len(self.common))

    @property
    def common(self) -> tuple[int, ...]:
        """Candidates that a sum over all participants measures."""
        return self.settings.common(self.workload)


def terms_of(evidence: Evidence) -> FlaimTerms:
    """Returns the terms of the configuration in the transcript. Raises CheckFailure."""
    transcript = evidence.transcripts[0]
    require(transcript.protocol == FLAIM_PROTOCOL, "the transcript is not of a FLAIM server")
    config = identity.rebuild_config(transcript)
    try:
        return FlaimTerms(config, config.build_workload(), settings_of(config))
    except ConfigError as error:
        raise CheckFailure(
            f"the configuration in the transcript cannot be used: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class FlaimRound:
    """One round of an attempt: its number, the note that begins it, the entries that follow, and its schedule."""

    number: int
    note: TranscriptEntry
    entries: Sequence[TranscriptEntry]
    plan: Schedule


def completeness(evidence: Evidence) -> str:
    """Verifies that the transcript reaches from the header to the closing seal, with a seal after every begun round."""
    transcript, finished = evidence.transcripts[0], finished_note(evidence)
    for attempt in transcript.attempts:
        sealed = [entry.text("reason") for entry in attempt.of("seal")]
        begun = [entry.number("round") for entry in attempt.notes(ROUND)]
        require(begun == sorted(set(begun)), "the transcript has rounds that repeat or go back")
        for number in begun if attempt.clean else begun[:-1]:
            require(
                sealed.count(round_ended(number)) == 1, f"there is not one seal for round {number}"
            )
    # A server that was killed after its last round makes the table in an attempt without a round.
    begun = [number for attempt in transcript.attempts for number in _rounds_begun(attempt)]
    done = begun[-1] if begun else 0
    said = finished.number("rounds")
    require(said == done, f"{said} rounds are said to be done; the last one is {done}")
    return "The transcript reaches from its header to the closing seal of a finished run."


def _rounds_begun(attempt: TranscriptAttempt) -> list[int]:
    """Returns the numbers of the begun rounds, without an interrupted last one that was not paid for."""
    begun = [entry.number("round") for entry in attempt.notes(ROUND)]
    paid = {entry.number("round") for entry in attempt.of("ledger")}
    interrupted = not attempt.clean and begun and begun[-1] not in paid
    return begun[:-1] if interrupted else begun


def rounds_of(attempt: TranscriptAttempt, terms: FlaimTerms) -> Iterator[FlaimRound]:
    """Yields the rounds of an attempt; the charges determine an annealed schedule. Raises CheckFailure."""
    plan = terms.schedule
    starts = [n for n, entry in enumerate(attempt.entries) if entry.is_note(ROUND)]
    for start, end in pairwise([*starts, len(attempt.entries)]):
        note, entries = attempt.entries[start], attempt.entries[start + 1 : end]
        number = note.number("round")
        if plan.adaptive and number > 0:
            plan = _advanced(plan, number, entries, terms)
        yield FlaimRound(number, note, entries, plan)


def _advanced(
    plan: Schedule, number: int, entries: Sequence[TranscriptEntry], terms: FlaimTerms
) -> Schedule:
    """Returns the schedule in round ``number``: the charges show if an annealed one became finer."""
    charged = next((event_of(entry) for entry in entries if entry.kind == "ledger"), None)
    choices = []
    for settled in (False, True):
        then = copy.deepcopy(plan)
        try:
            then.advance(number, settled=settled)
        except ValueError as error:
            raise CheckFailure(f"round {number} is not in the plan: {error}") from error
        choices.append(then)
    for choice in choices:
        if charged in [event for _, event in due_charges(number, choice, terms)]:
            return choice
    return choices[0]


def due_charges(number: int, plan: Schedule, terms: FlaimTerms) -> list[tuple[str, Event]]:
    """Returns the charges of round ``number`` in their order, each as its step and event."""
    settings = terms.settings
    charges: list[tuple[str, Event]] = []
    if number > 0 and settings.selects:
        charges += [(SELECT, plan.selection)] * settings.local_rounds
        charges += [(LOCAL, DiscreteGaussianEvent(plan.sigma))] * settings.local_measurements
    if settings.is_paid(number):
        return []
    marginals = settings.chosen * (number > 0) + len(terms.common) * _one_way(number, terms)
    return charges + [(MEASURE, settings.sum_noise(plan.sigma).event)] * marginals


def _one_way(number: int, terms: FlaimTerms) -> bool:
    return number == 0 or (terms.settings.one_way_each_round and number > 1)


def chosen_in(entry: TranscriptEntry, terms: FlaimTerms) -> dict[int, tuple[int, ...]]:
    """Returns the candidates that each client chose, from an opening of choices. Raises CheckFailure."""
    data, offset, chosen = entry.bytes("value"), 0, {}
    where = f"line {entry.line}"
    while offset < len(data):
        require(offset + _CHOICE.size <= len(data), f"{where}: the choices break off")
        client, count = _CHOICE.unpack_from(data, offset)
        offset += _CHOICE.size
        require(offset + 2 * count <= len(data), f"{where}: the choices break off")
        candidates = struct.unpack_from(f">{count}H", data, offset)
        offset += 2 * count
        known = client < len(terms.names) and client not in chosen
        require(known, f"{where}: client {client} chose twice, or is none")
        fits = count == terms.settings.chosen and len(set(candidates)) == count
        require(
            fits, f"{where}: client {client} chose {count} queries, not {terms.settings.chosen}"
        )
        require(
            all(c < len(terms.workload.candidates) for c in candidates), f"{where}: no such query"
        )
        chosen[client] = candidates
    total = sum(map(len, chosen.values()))
    require(
        total == entry.number("count"), f"{where}: {total} choices, not {entry.number('count')}"
    )
    return chosen


def openings(evidence: Evidence, terms: FlaimTerms) -> str:
    """Verifies that only choices and noisy sums were opened, once a round, of the lengths that the choices imply.

    Rounds that the configuration does not have fail, and repeated ones: where clients take turns, no charge bounds
    their number.
    """
    choices = sums = 0
    before: set[int] = set()
    for attempt in evidence.transcripts[0].attempts:
        early = any(entry.kind == "opened" for entry in attempt.before(ROUND))
        require(not early, "something was opened before the first round")
        for round_ in rounds_of(attempt, terms):
            chosen: set[int] = set()
            opened = [entry for entry in round_.entries if entry.kind == "opened"]
            _require_planned(round_, terms, before)
            before |= {round_.number} if opened else set()
            for entry in opened:
                what, where = entry.text("what"), f"line {entry.line}"
                require(what in FLAIM_OPENED, f"{where}: {what[:40]!r} may not be opened")
                fits = (entry.text("step"), entry.number("round")) == (
                    FLAIM_OPENED[what],
                    round_.number,
                )
                require(fits, f"{where}: {what} was opened in another step or round")
                if what == CHOICES:
                    choices += 1
                    chosen = {c for picks in chosen_in(entry, terms).values() for c in picks}
            lists = [entry for entry in opened if entry.record["what"] == CHOICES]
            require(
                len(lists) <= (round_.number > 0 and terms.settings.chosen > 0),
                f"round {round_.number} opened choices {len(lists)} times",
            )
            sums += _sums(round_, [e for e in opened if e.record["what"] == SUMS], chosen, terms)
    require(sums > 0, "no sum was opened")
    if terms.settings.chosen == 0:
        return f"Nothing was opened but {sums} noisy sums, each of the length of its round."
    return f"Nothing was opened but {choices} lists of choices and {sums} noisy sums of the lengths that these make."


def _require_planned(round_: FlaimRound, terms: FlaimTerms, before: set[int]) -> None:
    """Verifies that a round is one of the configuration's, and opened in no attempt ``before``.

    An annealed run's rounds are bounded by their charges, and each attempt begins it anew. So may the first sums of
    any run, if it was stopped before they were stored.
    """
    number, where = round_.number, f"line {round_.note.line}: round {round_.number}"
    if number == 0 or round_.plan.adaptive:
        return
    first, last = next_round(terms.settings, ()), last_round(terms.settings, round_.plan)
    require(
        first <= number <= last,
        f"{where} is none of the configuration's, which are 0 and {first} to {last}",
    )
    require(number not in before, f"{where} was opened in an earlier attempt")


def _sums(
    round_: FlaimRound, opened: Sequence[TranscriptEntry], chosen: set[int], terms: FlaimTerms
) -> int:
    """Verifies a round's sums and returns their number: one sum over all, or one per query, some of which may lack."""
    one_way, number = _one_way(round_.number, terms), max(round_.number, 0)
    candidates = tuple(sorted(chosen)) or terms.common[len(terms.workload.one_way) :]
    queries = [(one_way, candidates)] if one_way or candidates else []
    if terms.settings.grouping == "query":
        queries = [(True, ())] * one_way + [(False, (c,)) for c in candidates]
    layouts = [Layout(number, 0, 1, 1.0, flag, some) for flag, some in queries]
    left = iter([layout.cells(terms.workload) for layout in layouts])
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
    """Verifies that all charges due for an opening were entered before it.

    Where clients take turns, the rounds after those that everybody pays for need the charges of all of these.
    """
    count = entered = 0
    for attempt in evidence.transcripts[0].attempts:
        for round_ in rounds_of(attempt, terms):
            wanted = [step for step, _ in due_charges(round_.number, round_.plan, terms)]
            needed = {CHOICES: len([s for s in wanted if s != MEASURE]), SUMS: len(wanted)}
            made = 0
            turns = terms.settings.turns * len(terms.common)
            before = turns if terms.settings.is_paid(round_.number) else 0
            for entry in round_.entries:
                made += entry.kind == "ledger"
                entered += entry.kind == "ledger"
                if entry.kind == "opened":
                    require(
                        entered >= before,
                        f"line {entry.line}: an opening after {entered} charges of the run; {before} pay for it",
                    )
                    require(
                        made >= needed.get(entry.text("what"), 0),
                        f"line {entry.line}: an opening after {made} charges of its round, before the rest",
                    )
                    count += 1
    return f"Each of the {count} openings follows the charges that pay for it."


def ledger(evidence: Evidence, terms: FlaimTerms) -> str:
    """Verifies that every charge is one of the plan and has its event's cost, and that the sum is within the budget."""
    costs = costs_of(evidence)
    for attempt in evidence.transcripts[0].attempts:
        planned = 0
        for round_ in rounds_of(attempt, terms):
            made = [entry for entry in round_.entries if entry.kind == "ledger"]
            for entry, (step, event) in zip(
                made, due_charges(round_.number, round_.plan, terms), strict=False
            ):
                fits = entry.number("round") == round_.number and entry.text("step") == step
                require(
                    fits and event_of(entry) == event,
                    f"line {entry.line} charges {event_of(entry)} as {entry.text('step')}, where the plan has {event} "
                    f"as {step} of round {round_.number}",
                )
            most = len(due_charges(round_.number, round_.plan, terms))
            require(
                len(made) <= most,
                f"round {round_.number} has {len(made)} charges; the plan has {most}",
            )
            planned += len(made)
        entered = len(list(attempt.of("ledger")))
        require(planned == entered, f"{entered - planned} charges belong to no round")
    require_within(evidence, costs, terms.settings.rho)
    total = f"rho = {math.fsum(costs):.6g} of {terms.settings.rho:.6g}"
    return f"{len(costs)} charges, recomputed from the plan, add up to {total}."


def clients(evidence: Evidence, terms: FlaimTerms) -> str:
    """Verifies the clients: all are the run's, each has one certificate, and each opened sum has enough of them.

    In a sum over all clients each sent a masked vector, and in malicious mode its signature of the list of survivors.
    """
    certificates: dict[str, str] = {}
    seen: set[str] = set()
    turns: Counter[str] = Counter()
    for attempt in evidence.transcripts[0].attempts:
        for note in (JOINED, LEFT):
            for entry in attempt.notes(note):
                same_certificate(entry, "certificate", certificates, terms.names)
                seen.add(entry.text("client"))
        for round_ in rounds_of(attempt, terms):
            here: set[str] = set()
            masked: set[int] = set()
            signed: set[int] = set()
            for entry in round_.entries:
                if entry.kind == "client":
                    same_certificate(entry, "digest", certificates, terms.names)
                    name, number = entry.text("client"), entry.number("round")
                    require(
                        number == round_.number,
                        f"line {entry.line} is of another round than {round_.number}",
                    )
                    if entry.record["accepted"]:
                        require(name not in here, f"line {entry.line} counts {name!r} twice")
                        here.add(name)
                    else:
                        here.discard(name)
                elif entry.kind == "received" and entry.text("step") == secagg.MASKED:
                    masked.add(entry.number("peer"))
                elif entry.kind == "received" and entry.text("step") == secagg.SIGNATURE:
                    signed.add(entry.number("peer"))
                elif entry.kind == "opened" and entry.record["what"] == SUMS:
                    union = terms.settings.grouping == "union"
                    # With grouping by query a client may have dropped out of one sum before another.
                    silent = here - {n for i, n in enumerate(terms.names) if i in masked}
                    require(
                        not (union and silent),
                        f"line {entry.line}: {min(silent, default='')!r} is counted without a masked vector",
                    )
                    unsigned = here - {n for i, n in enumerate(terms.names) if i in signed}
                    require(
                        not (is_malicious(terms.config) and unsigned),
                        f"line {entry.line}: {min(unsigned, default='')!r} is counted and has not signed the list of "
                        "survivors",
                    )
                    least = terms.settings.min_participants if union else 1
                    require(
                        len(here) >= least,
                        f"line {entry.line}: a sum over {len(here)} clients was opened; {least} is the least",
                    )
            if any(entry.kind == "opened" for entry in round_.entries):
                # One that left after its masked vector is in the sum.
                turns.update(here | {n for i, n in enumerate(terms.names) if i in masked})
            said = round_.note.number("clients")
            started = sum(
                e.kind == "client" and e.record["accepted"] is True for e in round_.entries
            )
            require(
                started <= said <= round_.note.number("present") <= len(terms.names),
                f"round {round_.number} is said to have {said} clients; {started} are listed",
            )
    require(seen <= set(terms.names), "a client joined that the run does not have")
    if terms.settings.variant == PAIRS:
        often = max(turns, key=lambda name: turns[name], default="")
        require(
            turns[often] <= terms.settings.turns,
            f"{often!r} is in the sums of {turns[often]} rounds; each client pays for {terms.settings.turns}",
        )
    return (
        f"{len(seen)} of the run's {len(terms.names)} clients took part, each with one certificate."
    )


def traffic(evidence: Evidence) -> str:
    """Verifies that the accounts of the steps claim no more bytes than were sent and received in the rounds."""
    count = 0
    for attempt in evidence.transcripts[0].attempts:
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


def _report(evidence: Evidence, terms: FlaimTerms) -> str:
    """Verifies the parameters, budget, charges, openings, rows and choices in report.json."""
    document, transcript = read_report(evidence), evidence.transcripts[0]
    config, settings, ledger = terms.config, terms.settings, charges_of(transcript)
    rows = publication.sealed_digests(evidence).rows
    figures = RunReport(
        method=f"flaim-{settings.variant}",
        dataset="",
        parameters=parameters_of(config),
        privacy=Privacy(settings.rho, ledger),
        workload=workload_size(terms.workload),
        communication=UNCHECKED_COMMUNICATION,
        time_s={"total": 0.0},
        opened=openings_of(transcript),
        seed=config.run.seed,
        synthetic_rows=rows,
        rounds_done=transcript.attempts[-1].notes(FINISHED)[-1].number("rounds"),
    )
    compare_figures(document, figures, FIGURES)
    check_header(document, config, evidence.directory / "transcripts" / "server.jsonl")
    if isinstance(said := document.get("quality"), dict):
        check_verdict(said, config.domain)
    if (table := written_table(config, evidence.directory)) is not None:
        check_columns(document, config.domain, table.values)
        if isinstance(said, dict):
            check_claims(said, config.domain, table)
    noted = {
        (note.number("round"), candidate)
        for attempt in transcript.attempts
        for note in attempt.notes(SELECTED)
        for candidate in note.items("candidates")
    }
    queries = [list(query) for query in terms.workload.candidates]
    selected = document.get("selected")
    for choice in selected if isinstance(selected, list) else []:
        require(
            (choice["round"], queries.index(choice["query"])) in noted,
            f"report.json says that round {str(choice['round'])[:20]} measured what the transcript does not have",
        )
    return (
        f"report.json has the figures that the transcript makes: {_guarantee(config)}, {len(ledger)} charges, the "
        f"openings and {rows} rows; its verdict follows from "
        "its intervals, and its columns' figures are the table's. Intervals, seconds, bytes and errors are "
        "its writer's word alone. Its sentences, and report.html, are for contents."
    )


def _guarantee(config: Config) -> str:
    if flaim_section(config).variant == "oracle":
        return "no privacy (variant oracle)"
    return f"epsilon = {config.run.epsilon:g}, delta = {config.run.delta:g}"


def report_parts(
    evidence: Evidence, terms: FlaimTerms, document: Mapping[str, object]
) -> ReportParts:
    """Returns the parts of a FLAIM report. Its trust and guarantee follow from sums and choosers, which it claims."""
    config, ledger = terms.config, charges_of(evidence.transcripts[0])
    facts = optional(document, "flaim")
    sums, choosers = optional(facts, "sums"), optional(facts, "choosers")
    result = {
        "sums": {
            "least_survivors": sums.get("least_clients_behind_one"),
            "plain": sums.get("without_secagg_from_one_or_two_clients"),
        },
        "single_choosers": choosers.get("with_a_single_chooser"),
        "chosen_queries": choosers.get("chosen_queries"),
        "ledger": [entry.to_dict() for entry in ledger],
        "rho_total": terms.settings.rho,
    }
    guarantee = guarantee_of(config, result)
    if edition_of(document) == TEXT_EDITION and isinstance(document.get("flaim"), dict):
        require_same(facts.get("guarantee"), guarantee, "flaim.guarantee")
    attacker = attacker_on(config)
    header = report_header(config, ended=ended(evidence), unit=neighbours_text(config))
    return ReportParts(
        held=FIGURES,
        derived={"attacker": None if attacker is None else attacker.to_dict()},
        sentences={"trust": [trust_of(config, result, trial=trial) for trial in (False, True)]},
        header=header_of(evidence, header.to_dict()),
        usual={"dataset": config.run.id, "notes": []},
        claimed=("selected", "flaim", "quality", "communication", "time"),
    )


def _configuration(case: AuditCase[FlaimTerms]) -> str:
    return identity.configuration(case.evidence, case.terms.study, None)


RULES: tuple[Rule[FlaimTerms], ...] = (
    *SIGNED,
    Rule("completeness", lambda case: completeness(case.evidence), Prerequisite.FORM),
    Rule("configuration", _configuration, Prerequisite.FORM),
    Rule(
        "messages",
        lambda case: messages(case.evidence, _STEPS, len(case.terms.names)),
        Prerequisite.CONFIGURATION,
    ),
    Rule("clients", lambda case: clients(case.evidence, case.terms), Prerequisite.CONFIGURATION),
    Rule("openings", lambda case: openings(case.evidence, case.terms), Prerequisite.CONFIGURATION),
    Rule("charges", lambda case: charges(case.evidence, case.terms), Prerequisite.CONFIGURATION),
    Rule("ledger", lambda case: ledger(case.evidence, case.terms), Prerequisite.CONFIGURATION),
    Rule("traffic", lambda case: traffic(case.evidence), Prerequisite.CONFIGURATION),
    Rule("published", lambda case: publication.published(case.evidence), Prerequisite.FORM),
    Rule(
        "table",
        lambda case: publication.table(case.evidence, case.terms.study),
        Prerequisite.CONFIGURATION,
    ),
    Rule("report", lambda case: _report(case.evidence, case.terms), Prerequisite.CONFIGURATION),
)
AUDIT = ServerAudit(terms_of, RULES)
