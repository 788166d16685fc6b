"""Checks ``form`` to ``configuration``, before all others: writers and integrity of the transcripts, and one run.

The checks need no secret: signatures are verified with the public keys that the configuration pins. Known limit: the
auditor has to know the agreed configuration; the sentence of ``certificates`` has its digest for comparison.
"""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from parties.audit.evidence import (
    Evidence,
    ServerTranscript,
    TranscriptAttempt,
    form_problem,
    require_complete,
)
from parties.audit.findings import CheckFailure, require
from parties.config import Config, agreed_config, agreed_digest, load_config
from parties.config.diff import differences_text
from parties.federation import transcript as secagg
from parties.foundation.errors import CertificateError, ConfigError
from parties.foundation.version import AUDITED_WIRES
from parties.identity.join_documents import fingerprint_words
from parties.identity.tls import common_name, load_certificate
from parties.mpc.transcript_schema import FINISHED, ROUND, TOTAL
from parties.session.study import Study
from protocols.mesh import key_hash
from protocols.transcript import FORMAT, round_ended

_SKEW = datetime.timedelta(hours=1)
"""Tolerance for a host's clock in checks of a certificate's validity."""
AUTHORITY = "ca.crt"
_SAME_FIELDS = {
    "run": "run",
    "config_sha256": "configuration",
    "workload_sha256": "workload",
    "plan": "division of the budget",
    "protocol": "protocol",
}
_VERSIONS = {"version": "version of syncret", "wire": "version of the messages"}
"""Fields that the attempts of one mesh have in common, and all that charged or opened something."""


def form(transcripts: Sequence[ServerTranscript]) -> str:
    """Verifies that every line is a record with exactly the fields of its kind, in the writer's only form."""
    for transcript in transcripts:
        _require_format(transcript)
        for line, record in enumerate(transcript.reading.records, start=1):
            where = f"line {line} of server {transcript.pid}'s transcript"
            if record is None:
                raise CheckFailure(f"{where} is not a record in the writer's form")
            problem = form_problem(record, transcript.protocol)
            if problem is not None:
                raise CheckFailure(f"{where}: {problem}")
        kinds = [record["kind"] for record in transcript.reading.records if record is not None]
        require(
            kinds.count("header") == 1 and kinds[0] == "header",
            f"server {transcript.pid}'s transcript does not begin with its one header",
        )
    total = sum(len(transcript.reading.records) for transcript in transcripts)
    return f"All {total} lines are records in the writer's form."


def _require_format(transcript: ServerTranscript) -> None:
    """Raises CheckFailure for a transcript of another format or of other messages than this program's.

    This check precedes that of the fields, which differ in another format and which reports fields that are no numbers.
    Messages of another version have other sizes, which other checks would hold against the server.
    """
    known = {"format": (FORMAT,), "wire": AUDITED_WIRES}
    for record in transcript.reading.records:
        if record is not None and record["kind"] in ("header", "resumed"):
            for field, ours in known.items():
                found = record.get(field)
                if isinstance(found, int) and found not in ours:
                    what = "format" if field == "format" else "messages of version"
                    raise CheckFailure(
                        f"server {transcript.pid}'s transcript has {what} {found}, and this program reads"
                        f" {' and '.join(map(str, ours))}: audit it with the version that wrote it"
                    )


def chains(transcripts: Sequence[ServerTranscript]) -> str:
    """Verifies that every seal states the hash chain of all lines before it."""
    for transcript in transcripts:
        for seal in transcript.reading.seals:
            if not seal.fits:
                raise CheckFailure(
                    f"the seal in line {seal.line} of server {transcript.pid}'s transcript does not fit the lines "
                    "before it: a line was changed, added, removed or moved"
                )
        require(bool(transcript.reading.seals), f"server {transcript.pid}'s transcript has no seal")
    count = sum(len(transcript.reading.seals) for transcript in transcripts)
    return f"All {count} seals state the hash chain of the lines before them."


def _certificate(evidence: Evidence, transcript: ServerTranscript) -> x509.Certificate:
    """Returns the certificate of a transcript's server, with the key that the configuration pins.

    An issued certificate alone is not enough: the holder of the authority can issue another one. A SecAgg session has
    no configuration.
    """
    name, pin, others = transcript.header.text("name"), _pin(transcript), []
    folder = evidence.certificates
    for path in sorted([*folder.glob("*.crt"), *folder.glob("*.pem")]):
        if path.name != AUTHORITY:
            certificate = _read(path)
            if common_name(certificate, path) == name:
                others.append(key_hash(certificate))
                if pin in (None, others[-1]):
                    return certificate
    if not others:
        raise CheckFailure(f"there is no certificate for {name!r} in the folder {folder.name}")
    raise CheckFailure(
        f"the certificate for {name!r} has the key {others[0]}; the configuration that the servers agreed on pins {pin}"
    )


def _pin(transcript: ServerTranscript) -> str | None:
    """Returns the key of a transcript's server by the configuration in its own header; None if there is none."""
    if transcript.protocol == secagg.SECAGG_PROTOCOL:
        return None
    name, config = transcript.header.text("name"), rebuild_config(transcript)
    servers = [party.pinned for party in config.parties]
    if config.federation is not None and config.federation.key is not None:
        servers.append(config.federation.pinned)
    for pinned in servers:
        if pinned.name == name:
            return pinned.key
    raise CheckFailure(f"the configuration has no server {name!r}, whose transcript this is")


def _read(path: Path) -> x509.Certificate:
    try:
        return load_certificate(path, "certificate")
    except CertificateError as error:
        raise CheckFailure(
            f"{path.name} cannot be used: expected an X.509 certificate, PEM"
        ) from error


def certificates(evidence: Evidence) -> str:
    """Verifies that each server's certificate has the pinned key, is issued by ca.crt, and was valid during the run."""
    authority = _read(evidence.certificates / AUTHORITY)
    for transcript in evidence.transcripts:
        name = transcript.header.text("name")
        certificate = _certificate(evidence, transcript)
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise CheckFailure(f"the certificate of {name} is not issued by ca.crt") from error
        times = [entry.time for entry in (transcript.entries[0], transcript.entries[-1])]
        for item, owner in ((certificate, f"the certificate of {name}"), (authority, "ca.crt")):
            for time in times:
                moment = datetime.datetime.fromtimestamp(time, datetime.UTC)
                first, last = item.not_valid_before_utc - _SKEW, item.not_valid_after_utc + _SKEW
                valid = first <= moment <= last
                require(valid, f"{owner} was not valid at {moment:%Y-%m-%d %H:%M} UTC")
    sha256 = authority.fingerprint(hashes.SHA256()).hex()
    fingerprint = f"ca.crt has the SHA-256 fingerprint {sha256}"
    if all(_pin(transcript) is None for transcript in evidence.transcripts):
        return (
            "The server's certificate is issued by ca.crt and was valid; compare with what you were told: "
            f"{fingerprint}."
        )
    document = evidence.transcripts[0].header.record["config"]
    digest = agreed_digest(document if isinstance(document, dict) else {})
    return (
        "Every server's certificate has the key that the configuration pins, is issued by ca.crt and was valid during "
        f"the run; compare with what you agreed on: the configuration has the digest {digest}, in words "
        f'"{fingerprint_words(digest)}"; {fingerprint}.'
    )


def signatures(evidence: Evidence) -> str:
    """Verifies that every seal is signed with the key of the certificate of the transcript's server."""
    count = 0
    for transcript in evidence.transcripts:
        name = transcript.header.text("name")
        key = _certificate(evidence, transcript).public_key()
        for seal in transcript.reading.seals:
            try:
                if isinstance(key, ed25519.Ed25519PublicKey):
                    key.verify(seal.signature, seal.signed)
                elif isinstance(key, ec.EllipticCurvePublicKey):
                    key.verify(seal.signature, seal.signed, ec.ECDSA(hashes.SHA256()))
                else:
                    raise CheckFailure(f"the certificate of {name} has a key of another kind")
            except InvalidSignature as error:
                where = f"line {seal.line} of server {transcript.pid}'s transcript"
                raise CheckFailure(
                    f"the seal in {where} is not signed with the key of {name}"
                ) from error
            count += 1
    return f"All {count} seals are signed with the keys of the servers' certificates."


def completeness(evidence: Evidence) -> str:
    """Verifies that each transcript reaches from header to closing seal, and that each round has a total and a seal."""
    for transcript in evidence.transcripts:
        who = f"server {transcript.pid}'s transcript"
        require_complete(transcript)
        last = transcript.last
        require(last.clean, f"{who} does not end with the closing seal of a finished run")
        require(
            len(last.notes(FINISHED.what)) == 1,
            f"{who} does not say once that the run was finished",
        )
        for attempt in transcript.attempts:
            _rounds_sealed(attempt, who)
    sessions = evidence.sessions
    last_ones = all(
        sessions[-1].attempts[transcript.pid] is transcript.last
        for transcript in evidence.transcripts
    )
    require(bool(sessions) and last_ones, "the three transcripts do not end in the same mesh")
    first = next((n for n, session in enumerate(sessions) if session.clean), len(sessions))
    for session in sessions[first + 1 :]:
        idle = not any(attempt.notes(ROUND.what) for attempt in session.present)
        require(idle, "a round was run after all three had finished the run")
    restarts = sum(len(transcript.attempts) - 1 for transcript in evidence.transcripts)
    again = f", {restarts} restarts of servers among it" if restarts else ""
    return f"All three transcripts reach from their header to the closing seal of a finished run{again}."


def _rounds_sealed(attempt: TranscriptAttempt, who: str) -> None:
    """Verifies a commitment to the total before each round and a seal after it, except in an interrupted round."""
    sealed = [entry.text("reason") for entry in attempt.of("seal")]
    begun = [entry.number("round") for entry in attempt.notes(ROUND.what)]
    require(begun == sorted(set(begun)), f"{who} has rounds that repeat or go back")
    totals = [entry.number("round") for entry in attempt.notes(TOTAL.what)]
    more = len(totals) - len(begun)
    committed = begun == totals[: len(begun)] and 0 <= more <= (not attempt.clean)
    require(committed, f"{who} does not commit once to the total of each round")
    for number in begun if attempt.clean else begun[:-1]:
        require(
            sealed.count(round_ended(number)) == 1, f"{who} has not one seal for round {number}"
        )


def parties(evidence: Evidence) -> str:
    """Verifies that each file is throughout the transcript of the server with its number and name."""
    for transcript in evidence.transcripts:
        for attempt in transcript.attempts:
            said = attempt.opening.number("party")
            require(
                said == transcript.pid, f"party-{transcript.pid} is the transcript of server {said}"
            )
            named = _party_names(transcript)[transcript.pid : transcript.pid + 1]
            name = attempt.opening.text("name")
            require(
                named == [name],
                f"server {transcript.pid} is {named} in the configuration and {name!r} here",
            )
            for entry in attempt.of("sent", "received"):
                peer = entry.number("peer")
                require(
                    peer in {0, 1, 2} - {transcript.pid},
                    f"line {entry.line} of server {transcript.pid}'s transcript has a message with server {peer}",
                )
    names = [transcript.header.text("name") for transcript in evidence.transcripts]
    require(len(set(names)) == 3, f"the servers' names are {names}, not three different ones")
    return f"The transcripts are those of {', '.join(names)}, in this order."


def _party_names(transcript: ServerTranscript) -> list[str]:
    config = transcript.header.record["config"]
    names = config.get("party") if isinstance(config, dict) else None
    tables = names if isinstance(names, list) else []
    return [str(table.get("name")) for table in tables if isinstance(table, dict)]


def agreement(evidence: Evidence) -> str:
    """Verifies that all attempts have the same run, configuration, workload and division of the budget.

    Their version is the same within a mesh, and among all that charged or opened something: servers may be upgraded
    while a study waits for its owners.
    """
    first = evidence.transcripts[0].header
    for transcript in evidence.transcripts:
        for attempt in transcript.attempts:
            for name, what in _SAME_FIELDS.items():
                mine, theirs = attempt.opening.record[name], first.record[name]
                require(
                    mine == theirs,
                    f"server {transcript.pid} has another {what}: {str(mine)[:60]}, server 0 {str(theirs)[:60]}",
                )
            same = attempt.opening.record["config"] == first.record["config"]
            require(same, f"server {transcript.pid} writes down another configuration")
    attempts = [attempt for one in evidence.transcripts for attempt in one.attempts]
    _require_one_version(evidence.counted)
    for session in {attempt.session for attempt in attempts} - {None}:
        _require_one_version([attempt for attempt in attempts if attempt.session == session])
    return (
        f"All three ran {first.text('run')!r} with the same configuration, workload, division of the budget and "
        f"version {evidence.version} of syncret."
    )


def _require_one_version(attempts: Sequence[TranscriptAttempt]) -> None:
    """Raises CheckFailure unless these attempts have the same versions of program and messages."""
    for attempt in attempts:
        for name, what in _VERSIONS.items():
            mine, theirs = attempt.opening.record[name], attempts[0].opening.record[name]
            require(
                mine == theirs,
                f"server {attempt.pid} has another {what}: {str(mine)[:60]}, server {attempts[0].pid} "
                f"{str(theirs)[:60]}",
            )


def configuration(evidence: Evidence, study: Study, plan: str | None) -> str:
    """Verifies the digests in the transcripts against their configuration, and against the auditor's own.

    ``plan`` is the division of the budget as three servers write it, None if headers have none.
    """
    configured(evidence, study.config)
    header, given = evidence.transcripts[0].header, evidence.agreed
    require(
        study.workload.digest() == header.text("workload_sha256"),
        "the configuration describes another workload than the servers agreed on",
    )
    if plan is not None:
        said = header.text("plan")
        require(plan == said, f"the budget is divided into {said}, not {plan}")
    if given is not None:
        return f"The configuration of the transcripts is {given.name}, which you gave, with its workload and budget."
    return "The configuration in the transcripts has the digest, workload and budget that the servers agreed on."


def configured(evidence: Evidence, config: Config) -> None:
    """Raises CheckFailure unless ``config``, rebuilt from the header, has the header's digest and run.

    The auditor's own configuration, if given, must have the same digest, and so must config.toml in the folder, which
    comes from the folder's maker.
    """
    header = evidence.transcripts[0].header
    document = header.record["config"]
    digest = agreed_digest(document if isinstance(document, dict) else {})
    require(
        digest == header.text("config_sha256"),
        "the configuration in the transcripts does not have the digest that the servers agreed on",
    )
    require(config.run.id == header.text("run"), "the configuration is of another run")
    given, there = evidence.agreed, evidence.directory / "config.toml"
    for path in (given, there):
        if path is not None and (path is given or path.exists()):
            try:
                other = load_config(path)
            except ConfigError as error:
                raise CheckFailure(f"{path.name} cannot be used: {error}") from error
            if other.digest() != digest:
                name, theirs = "the transcripts", json.dumps(document).encode()
                found = differences_text(other, theirs, name, where=f"in {name}")
                raise CheckFailure(f"{path.name} is not the configuration of {name}: {found}")


def rebuild_config(transcript: ServerTranscript) -> Config:
    """Returns the configuration in a transcript's header. Raises CheckFailure if there is none."""
    document = transcript.header.record["config"]
    try:
        return agreed_config(document if isinstance(document, dict) else {})
    except ConfigError as error:
        raise CheckFailure(
            f"the configuration in the transcripts cannot be used: {error}"
        ) from error
