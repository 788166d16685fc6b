"""The audit of a SecAgg server's transcript: one session, of which one sum is opened or none.

The session's parameters, which every client has verified and signed, are compared with the server's records. Known
limits: as for a FLAIM server, one server writes the only transcript; a session whose parameters have no noise opens an
exact sum.
"""

from collections import Counter

from parties.audit.checks.one_server import SIGNED
from parties.audit.evidence import Evidence, TranscriptAttempt, require_complete
from parties.audit.findings import CheckFailure, require
from parties.audit.rules import Prerequisite, Rule, ServerAudit
from parties.federation.secagg_steps import (
    MASKED,
    SECAGG_SESSION,
    SECAGG_STEPS,
    SECAGG_SUM,
    UNKNOWN_STEP,
)
from parties.federation.transcript import ABORTED
from secagg import wire
from secagg.errors import ParameterError
from secagg.masks import packed_bytes
from secagg.noise import NoiseKind
from secagg.parameters import Parameters

_STEPS = {*SECAGG_STEPS.values(), UNKNOWN_STEP}


def _attempt(evidence: Evidence) -> TranscriptAttempt:
    return evidence.transcripts[0].attempts[-1]


def parameters_of(evidence: Evidence) -> Parameters:
    """Returns the session's parameters. Raises CheckFailure if the header has none."""
    try:
        return Parameters.from_bytes(
            bytes.fromhex(evidence.transcripts[0].header.text("parameters"))
        )
    except (ParameterError, ValueError) as error:
        raise CheckFailure(f"the header has no parameters of a session: {error}") from error


def completeness(evidence: Evidence) -> str:
    """Verifies that the transcript reaches uninterrupted from header to closing seal, and has a sum or an abort."""
    transcript = evidence.transcripts[0]
    require_complete(transcript)
    require(
        len(transcript.attempts) == 1, "a session is not resumed; the transcript goes on after one"
    )
    attempt = transcript.attempts[0]
    require(attempt.clean, "the transcript does not end with its closing seal")
    ends = len(list(attempt.of("opened"))) + len(attempt.notes(ABORTED))
    require(ends == 1, f"the session ended {ends} times")
    return (
        "The transcript reaches from its header to its closing seal and says how the session ended."
    )


def configuration(evidence: Evidence) -> str:
    """Verifies that the session's parameters have the digest that its clients signed, and that clients are named."""
    parameters, header = parameters_of(evidence), evidence.transcripts[0].header
    if evidence.agreed is not None:
        raise CheckFailure(
            f"this is a session of SecAgg, which has no configuration: it is none of {evidence.agreed.name}"
        )
    require(
        parameters.digest.hex() == header.text("parameters_sha256"),
        "the parameters do not have the digest that the clients signed",
    )
    require(
        parameters.session.hex() == header.text("session"), "the parameters are of another session"
    )
    names = header.items("clients")
    named = len(names) == len(set(map(str, names))) == parameters.clients
    require(named, f"{len(names)} clients are named; the session has {parameters.clients}")
    noise = "without noise" if parameters.noise.kind is NoiseKind.NONE else "with noise"
    return f"The session of {parameters.clients} clients, {parameters.length} numbers each, {noise}, has its digest."


def messages(evidence: Evidence) -> str:
    """Verifies that messages are of the protocol's kinds, with clients of the session, and numbered without a gap."""
    count, total = parameters_of(evidence).clients, 0
    for number, entry in enumerate(_attempt(evidence).of("sent", "received"), start=1):
        where = f"line {entry.line}"
        require(
            entry.text("step") in _STEPS,
            f"{where}: the protocol has no message {entry.text('step')[:40]!r}",
        )
        require(entry.number("peer") < count, f"{where}: the session has no such client")
        require(
            entry.text("label") == f"{number:016x}", f"{where}: message number {number} is missing"
        )
        total += entry.number("bytes")
    return f"All messages, {total} bytes, are of the protocol's kinds and numbered without a gap."


def clients(evidence: Evidence) -> str:
    """Verifies that each client survived or dropped out, and that enough survivors sent their vectors."""
    parameters, attempt = parameters_of(evidence), _attempt(evidence)
    listed = [entry.text("client") for entry in attempt.of("client")]
    survivors = sum(entry.record["accepted"] is True for entry in attempt.of("client"))
    if not any(attempt.of("opened")):
        require(not listed, "there are survivors of a session without a sum")
        return "The session ended without a sum."
    named = [str(name) for name in evidence.transcripts[0].header.items("clients")]
    require(listed == named, "the clients that are listed are not those of the session")
    size = wire.OVERHEAD_BYTES + packed_bytes(parameters.length, parameters.bits)
    sent = Counter(
        (entry.number("peer"), entry.number("bytes"))
        for entry in attempt.of("received")
        if entry.text("step") == MASKED
    )
    for client, entry in enumerate(attempt.of("client")):
        there = not entry.record["accepted"] or sent[client, size] == 1
        require(there, f"{named[client]!r} is counted without one masked vector of {size} bytes")
    require(
        survivors >= parameters.min_survivors,
        f"a sum over {survivors} clients was opened; {parameters.min_survivors} are the least",
    )
    return f"The sum is over {survivors} of {len(named)} clients, of whom {parameters.min_survivors} have to be there."


def openings(evidence: Evidence) -> str:
    """Verifies that at most one sum, of the session's length, was opened, and nothing else."""
    parameters = parameters_of(evidence)
    opened = list(_attempt(evidence).of("opened"))
    for entry in opened:
        require(
            (entry.text("what"), entry.text("step")) == (SECAGG_SUM, SECAGG_SESSION),
            f"line {entry.line}: {entry.text('what')[:40]!r} may not be opened",
        )
        length = entry.number("count")
        require(
            length == parameters.length,
            f"line {entry.line}: a sum of {length} numbers, not {parameters.length}",
        )
        exact = parameters.noise.kind is NoiseKind.NONE
        size = 0 if exact else 8 * length
        require(
            len(entry.bytes("value")) == size,
            f"line {entry.line}: the sum has another length than its count",
        )
    require(len(opened) <= 1, "more than one sum was opened")
    return f"{'One sum' if opened else 'Nothing'} was opened."


RULES: tuple[Rule[Parameters], ...] = (
    *SIGNED,
    Rule("completeness", lambda case: completeness(case.evidence), Prerequisite.FORM),
    Rule("configuration", lambda case: configuration(case.evidence), Prerequisite.FORM),
    Rule("messages", lambda case: messages(case.evidence), Prerequisite.FORM),
    Rule("clients", lambda case: clients(case.evidence), Prerequisite.FORM),
    Rule("openings", lambda case: openings(case.evidence), Prerequisite.FORM),
)
AUDIT = ServerAudit(parameters_of, RULES)
