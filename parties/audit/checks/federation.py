"""The audit of the transcript of a silos' server: requests, charges, openings, and the silos in each sum.

The rules are named like those of FLAIM. The plan is computed anew from the configuration. Each sum has to be of a kind
in the plan, with its length, bounds, noise and cost. It has to be paid for before any silo was asked, and opened once,
of as many silos as its session needs, each of which sent one masked vector of the right size. Known limit: one server
writes the only transcript, and silos keep none. With noise by the server it sees every sum before the noise.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mechanisms.silos import Request
from parties.audit.checks import identity
from parties.audit.checks.one_server import (
    SIGNED,
    costs_of,
    finished_note,
    messages,
    require_within,
    same_certificate,
)
from parties.audit.checks.report import charges_of, openings_of, read_report
from parties.audit.checks.report_parts import ReportParts, ended, header_of
from parties.audit.evidence import (
    Evidence,
    TranscriptAttempt,
    TranscriptEntry,
    event_of,
)
from parties.audit.findings import SERVER_LIMITS, CheckFailure, NotApplicable, require
from parties.audit.rules import Prerequisite, Rule, ServerAudit
from parties.config import Config
from parties.federation import secagg_steps as secagg
from parties.federation.algorithm import AlgorithmPlan, plan_digest
from parties.federation.journal import request_from_head, request_head
from parties.federation.silos import check_silos
from parties.federation.sum_parameters import is_malicious, silo_sum, silos_section
from parties.federation.sums_schema import (
    ASKED,
    FILES,
    SILO_OPENED_SUM,
    SILO_STEPS,
    SILOS_PROTOCOL,
    SUM,
)
from parties.federation.transcript_schema import JOINED, LEFT
from parties.foundation.errors import ConfigError
from parties.methods.federated_report import SILOS_HEADER, trust_of
from parties.methods.registry import method_named, plan_of
from parties.report.privacy_text import report_header
from protocols.transcript import round_ended
from secagg import Parameters, wire
from secagg.errors import ParameterError
from secagg.masks import packed_bytes

_EXACT = "The sums had no noise: whatever is made of them has no privacy guarantee."
_OWN_NOISE = (
    "It cannot show that silos noised what they sent: each makes its answers private by its own noise and epsilon "
    "before they leave, and the sums get no other."
)
_NOISE_SHARES = (
    "It cannot show that silos added their parts of the noise: all but the share that the configuration assumes to be "
    "corrupt are taken to have done so."
)
_BY_SERVER = (
    "It cannot show what the server did besides: it adds the noise, and saw every sum before it."
)
_OWN_LEDGERS = (
    "Each silo keeps what it spent to itself: no charge is in the transcript to be compared."
)

_STEPS = {*SILO_STEPS.values(), *secagg.SECAGG_STEPS.values(), secagg.UNKNOWN_STEP}


@dataclass(frozen=True, slots=True, eq=False)
class SilosTerms:
    """Terms of the configuration, computed by the auditor."""

    config: Config
    plan: AlgorithmPlan

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the silos."""
        return silos_section(self.config).clients


@dataclass(frozen=True, slots=True)
class RequestedSum:
    """One requested sum: its ``number``, the number of ``silos``, the ``request``, and the entries that follow."""

    number: int
    silos: int
    request: Request
    line: int
    entries: Sequence[TranscriptEntry]

    @property
    def opened(self) -> list[TranscriptEntry]:
        """Openings of the sum."""
        return [entry for entry in self.entries if entry.kind == "opened"]


def limits_of(terms: SilosTerms) -> tuple[str, ...]:
    """Returns the limits of such an audit: on the run's noise, on its results, and on the silos' ledgers."""
    plan = terms.plan
    if not plan.private:
        noise = _EXACT
    elif plan.private_answers:
        noise = _OWN_NOISE
    else:
        noise = _NOISE_SHARES if silos_section(terms.config).noise == "distributed" else _BY_SERVER
    wrote, ledger_text, _, _, ledgers, truth = SERVER_LIMITS
    name = "" if terms.config.algorithm is None else terms.config.algorithm[0]
    charged = _OWN_LEDGERS if plan.private_answers else ledgers
    return (wrote, ledger_text, noise, method_named(name).not_shown, charged, truth)


def terms_of(evidence: Evidence) -> SilosTerms:
    """Returns the terms of the configuration in the transcript. Raises CheckFailure."""
    transcript = evidence.transcripts[0]
    require(transcript.protocol == SILOS_PROTOCOL, "the transcript is not of a silos' server")
    config = identity.rebuild_config(transcript)
    try:
        plan = plan_of(config)
        check_silos(config, plan)
    except ConfigError as error:
        raise CheckFailure(
            f"the configuration in the transcript cannot be used: {error}"
        ) from error
    return SilosTerms(config, plan)


def sums_of(attempt: TranscriptAttempt) -> Iterator[RequestedSum]:
    """Yields the sums of an attempt. Raises CheckFailure."""
    starts = [n for n, entry in enumerate(attempt.entries) if entry.is_note(ASKED)]
    for start, end in pairwise([*starts, len(attempt.entries)]):
        note = attempt.entries[start]
        try:
            request = request_from_head(note.text("head").encode(), b"")
        except ValueError as error:
            raise CheckFailure(f"line {note.line} asks for nothing: {error}") from error
        yield RequestedSum(
            note.number("round"),
            note.number("clients"),
            request,
            note.line,
            attempt.entries[start + 1 : end],
        )


def _all_sums(evidence: Evidence) -> list[RequestedSum]:
    return [asked for attempt in evidence.transcripts[0].attempts for asked in sums_of(attempt)]


def completeness(evidence: Evidence) -> str:
    """Verifies that the transcript reaches from the header to the closing seal, with a seal after every opened sum."""
    transcript, finished = evidence.transcripts[0], finished_note(evidence)
    numbers = [asked.number for asked in _all_sums(evidence)]
    require(numbers == sorted(set(numbers)), "sums repeat, or go back")
    opened = 0
    for attempt in transcript.attempts:
        sealed = [entry.text("reason") for entry in attempt.of("seal")]
        for asked in sums_of(attempt):
            opened += len(asked.opened)
            whole = not asked.opened or sealed.count(round_ended(asked.number)) == 1
            require(whole, f"there is not one seal for sum {asked.number}")
    said = finished.number("sums")
    # A server that was killed after a sum's opening and before the sum was saved goes on without the sum.
    interrupted = len(transcript.attempts) - 1
    require(
        said <= opened <= said + interrupted,
        f"{said} sums are said to be done; {opened} were opened",
    )
    return "The transcript reaches from its header to the closing seal of a finished run."


def configuration(evidence: Evidence, terms: SilosTerms) -> str:
    """Verifies the digests of the configuration, of its plan, and of the auditor's own configuration."""
    identity.configured(evidence, terms.config)
    header = evidence.transcripts[0].header
    require(
        plan_digest(terms.plan) == header.text("plan_sha256"),
        "the configuration describes another plan than server and silos agreed on",
    )
    named = "" if terms.config.algorithm is None else terms.config.algorithm[0]
    require(named == header.text("algorithm"), "the header names another algorithm")
    private = "" if terms.plan.private else " The run has no privacy guarantee."
    return f"The configuration in the transcript has the digest and the plan that were agreed on.{private}"


def requests(evidence: Evidence, terms: SilosTerms) -> str:
    """Verifies that every requested sum is of one of the plan's kinds, and that no kind has more sums than the plan."""
    kinds = {request_head(request): most for request, most in terms.plan.kinds}
    found = Counter(request_head(asked.request) for asked in _all_sums(evidence))
    for head, count in found.items():
        step = request_from_head(head, b"").step
        require(head in kinds, f"the plan has no sum {step[:40]!r} of this length, noise and cost")
        require(
            count <= kinds[head],
            f"{count} sums {step!r} were asked for; the plan has {kinds[head]}",
        )
    return f"{found.total()} sums were asked for, each of a kind that the plan has."


def clients(evidence: Evidence, terms: SilosTerms) -> str:
    """Verifies the silos: all are the run's, each has one certificate, and each sum has enough of them.

    Each silo in a sum sent one masked vector; in malicious mode each signed the list of survivors.
    """
    certificates: dict[str, str] = {}
    for attempt in evidence.transcripts[0].attempts:
        for note in (JOINED, LEFT):
            for entry in attempt.notes(note):
                same_certificate(entry, "certificate", certificates, terms.names)
        for asked in sums_of(attempt):
            for entry in (entry for entry in asked.entries if entry.kind == "client"):
                same_certificate(entry, "digest", certificates, terms.names)
            if asked.opened:
                _check_survivors(asked, terms)
    return f"{len(certificates)} of the run's {len(terms.names)} silos took part, each with one certificate."


def _check_survivors(asked: RequestedSum, terms: SilosTerms) -> None:
    where = f"line {asked.line}, sum {asked.number}"
    parameters = _session(asked, terms)
    here: set[str] = set()
    for entry in (entry for entry in asked.entries if entry.kind == "client"):
        name = entry.text("client")
        require(entry.number("round") == asked.number, f"line {entry.line} is of another sum")
        if entry.record["accepted"]:
            require(name not in here, f"line {entry.line} counts {name!r} twice")
            here.add(name)
        else:
            here.discard(name)
    size = wire.OVERHEAD_BYTES + packed_bytes(parameters.length, parameters.bits)
    sent = Counter(
        terms.names[entry.number("peer")]
        for entry in asked.entries
        if entry.kind == "received"
        and entry.text("step") == secagg.MASKED
        and entry.number("bytes") == size
    )
    silent = [name for name in here if sent[name] != 1]
    require(
        not silent,
        f"{where}: {min(silent, default='')!r} is counted without one masked vector of {size} bytes",
    )
    signed = {
        terms.names[entry.number("peer")]
        for entry in asked.entries
        if entry.kind == "received" and entry.text("step") == secagg.SIGNATURE
    }
    require(
        not is_malicious(terms.config) or here <= signed,
        f"{where}: a client is counted that has not signed the list of survivors",
    )
    require(
        len(here) >= parameters.min_survivors,
        f"{where}: a sum over {len(here)} silos was opened; {parameters.min_survivors} are the least",
    )


def _session(asked: RequestedSum, terms: SilosTerms) -> Parameters:
    try:
        return silo_sum(terms.config, asked.request, asked.silos).parameters(random_bytes=bytes)
    except ParameterError as error:
        raise CheckFailure(f"no session takes sum {asked.number}: {error}") from error


def openings(evidence: Evidence) -> str:
    """Verifies that only sums were opened, each once and of the requested length.

    The transcript does not record the values of sums without noise.
    """
    count = 0
    for attempt in evidence.transcripts[0].attempts:
        early = any(entry.kind == "opened" for entry in attempt.before(ASKED))
        require(not early, "something was opened before the first sum was asked for")
        for asked in sums_of(attempt):
            require(len(asked.opened) <= 1, f"sum {asked.number} was opened twice")
            for entry in asked.opened:
                where = f"line {entry.line}"
                fits = (entry.text("what"), entry.text("step"), entry.number("round")) == (
                    SILO_OPENED_SUM,
                    SUM,
                    asked.number,
                )
                require(fits, f"{where}: {entry.text('what')[:40]!r} may not be opened here")
                length, size = entry.number("count"), len(entry.bytes("value"))
                require(
                    length == asked.request.length,
                    f"{where}: a sum of {length} numbers, not {asked.request.length}",
                )
                sizes = (0,) if asked.request.noise is None else (4 * length, 8 * length)
                require(size in sizes, f"{where}: the opened sum has another length than its count")
                count += 1
    require(count > 0, "no sum was opened")
    return f"Nothing was opened but {count} sums, each of the length that was asked for."


def ledger(evidence: Evidence, terms: SilosTerms) -> str:
    """Verifies that each sum was paid for before its request, at the cost of its noise, and within the budget."""
    costs = costs_of(evidence)
    for attempt in evidence.transcripts[0].attempts:
        paid: dict[int, TranscriptEntry] = {}
        wanted = {asked.number: asked for asked in sums_of(attempt)}
        for entry in attempt.of("ledger"):
            number = entry.number("round")
            require(number not in paid, f"line {entry.line}: sum {number} is charged twice")
            paid[number] = entry
        for number, asked in wanted.items():
            due, charge = asked.request.event, paid.get(number)
            if due is None:
                require(charge is None, f"sum {number} is charged, and costs nothing")
                continue
            fits = (
                charge is not None
                and charge.line < asked.line
                and (charge.text("step"), event_of(charge)) == (asked.request.step, due)
            )
            require(fits, f"line {asked.line}: sum {number} was asked for before it was paid for")
    require_within(evidence, costs, terms.plan.rho)
    if not costs:
        raise NotApplicable("The run charges nothing to a budget in zCDP.")
    return f"{len(costs)} charges, recomputed, add up to rho = {math.fsum(costs):.6g} of {terms.plan.rho:.6g}."


def files(evidence: Evidence) -> str:
    """Verifies that the files in the folder have the digests that the server recorded."""
    digests = file_digests(evidence)
    for name, digest in digests.items():
        path = evidence.directory / name
        require(path.parent == evidence.directory, f"a file {name[:60]!r} in another folder")
        require(path.exists(), f"{path.name} is missing")
        same = hashlib.sha256(path.read_bytes()).hexdigest() == digest
        require(same, f"{path.name} is not the file that the server made")
    return f"{', '.join(digests) or 'No file'} has the digest in the transcript."


def report(evidence: Evidence, terms: SilosTerms) -> str:
    """Verifies that report.json has the parameters, charges, openings and the guarantee of the run."""
    document, transcript = read_report(evidence), evidence.transcripts[0]
    run, section = terms.config.run, silos_section(terms.config)
    charged = charges_of(transcript)
    made: dict[str, object] = {
        "private": terms.plan.private,
        "guarantee": terms.plan.guarantee,
        "opened": [
            {"round": o.round, "step": o.step, "what": o.what, "count": o.count}
            for o in openings_of(transcript)
        ],
    }
    for name, value in made.items():
        require(document.get(name) == value, f"report.json has another {name!r} than the run")
    parameters, privacy = _table(document, "parameters"), _table(document, "privacy")
    for name, value in (
        ("epsilon", run.epsilon),
        ("delta", run.delta),
        ("clients", terms.config.clients.expected),
        ("minimum", section.minimum),
        ("noise", section.noise),
        ("security", run.security),
    ):
        require(parameters.get(name) == value, f"report.json has another {name!r} than the run")
    same = privacy.get("ledger") == [entry.to_dict() for entry in charged]
    require(same, "report.json has other charges than the transcript")
    require(privacy.get("rho_total") == terms.plan.rho, "report.json has another budget")
    return (
        f"report.json has the parameters, {len(charged)} charges, the openings and the guarantee of the run; its "
        "seconds, bytes, errors and results are its writer's word alone. Its sentences, and report.html, are for "
        "contents."
    )


def report_parts(evidence: Evidence, terms: SilosTerms) -> ReportParts:
    """Returns the parts of the report of a run between silos."""
    config, section = terms.config, silos_section(terms.config)
    method, settings = config.algorithm or ("", {})
    charged = charges_of(evidence.transcripts[0])
    facts = report_header(config, ended=ended(evidence)).to_dict()
    header = header_of(evidence, facts)
    return ReportParts(
        held=("private", "guarantee", "opened"),
        exact={
            "method": method,
            "files": list(file_digests(evidence)),
            "parameters": {
                "epsilon": config.run.epsilon,
                "delta": config.run.delta,
                "rounds": config.run.rounds,
                "clients": config.clients.expected,
                "minimum": section.minimum,
                "noise": section.noise,
                "security": config.run.security,
                **({} if config.algorithm is None else {"settings": dict(settings)}),
            },
            "privacy": {
                "rho_total": terms.plan.rho,
                "rho_spent": math.fsum(entry.rho for entry in charged),
                "ledger": [entry.to_dict() for entry in charged],
            },
        },
        sentences={
            "trust": [
                trust_of(
                    config,
                    private=terms.plan.private,
                    charged=terms.plan.rho > 0,
                    trial=trial,
                )
                for trial in (False, True)
            ]
        },
        header={key: header[key] for key in SILOS_HEADER},
        usual={"dataset": config.run.id, "seed": None, "lost": []},
        claimed=("result", "tables", "lines", "sums", "communication", "time", "not_private"),
    )


def file_digests(evidence: Evidence) -> dict[str, str]:
    """Returns the digests of the files that the server made, by name. Raises CheckFailure."""
    notes = evidence.transcripts[0].attempts[-1].notes(FILES)
    require(len(notes) == 1, "the transcript does not say once which files were made")
    said = notes[0].record["sha256"]
    return {str(k): str(v) for k, v in said.items()} if isinstance(said, dict) else {}


def _table(document: object, name: str) -> dict[str, object]:
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


RULES: tuple[Rule[SilosTerms], ...] = (
    *SIGNED,
    Rule("completeness", lambda case: completeness(case.evidence), Prerequisite.FORM),
    Rule("configuration", lambda case: configuration(case.evidence, case.terms), Prerequisite.FORM),
    Rule(
        "messages",
        lambda case: messages(case.evidence, _STEPS, len(case.terms.names)),
        Prerequisite.CONFIGURATION,
    ),
    Rule("requests", lambda case: requests(case.evidence, case.terms), Prerequisite.CONFIGURATION),
    Rule("clients", lambda case: clients(case.evidence, case.terms), Prerequisite.CONFIGURATION),
    Rule("openings", lambda case: openings(case.evidence), Prerequisite.FORM),
    Rule("ledger", lambda case: ledger(case.evidence, case.terms), Prerequisite.CONFIGURATION),
    Rule("files made", lambda case: files(case.evidence), Prerequisite.FORM),
    Rule("report", lambda case: report(case.evidence, case.terms), Prerequisite.CONFIGURATION),
)
AUDIT = ServerAudit(terms_of, RULES, limits_of)
