"""The audit of a run folder: every check in its order.

A folder has transcripts/ with party-{0,1,2}.jsonl, or with server.jsonl of a server of FLAIM, SecAgg or silos, and
certificates/ with ca.crt and the servers' certificates; config.toml and report.json are compared if they are there. No
value here is secret. Known limits: `parties.audit.findings.LIMITS`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from parties.audit.checks import (
    charges,
    costs,
    federation,
    flaim,
    identity,
    messages,
    participants,
    privacy,
    proofs,
    publication,
    secure_sum,
)
from parties.audit.checks import participants as owners
from parties.audit.checks.privacy import RunTerms
from parties.audit.checks.quality import quality
from parties.audit.checks.report import report
from parties.audit.evidence import Evidence
from parties.audit.findings import (
    FAIL,
    LIMITS,
    PASS,
    PROVED_LIMITS,
    SERVER_LIMITS,
    Check,
    CheckFailure,
    make_check,
)
from parties.audit.replay import recording_server, replay_folder
from parties.audit.rules import READABLE, AuditCase, Prerequisite, Rule, ServerAudit, run_rules
from parties.config import MALICIOUS
from parties.federation import sums_schema, transcript
from parties.foundation.errors import StoreError
from parties.methods.flaim.transcript_schema import FLAIM_PROTOCOL
from parties.mpc.agreement import run_identity
from parties.mpc.planning.budget import security_bits
from parties.session.study import Study

FILES = tuple(f"party-{pid}.jsonl" for pid in range(3))
SERVER_FILE = "server.jsonl"
PAIRS = ((0, 1), (0, 2), (1, 2))


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """All checks of an audit; ``evidence`` and ``terms`` are None if the transcripts were not readable enough for them.

    ``servers`` is the number of servers that wrote transcripts: three, or one for FLAIM, SecAgg and silos.
    ``server_limits`` are the limits of the audit of one server.
    """

    checks: tuple[Check, ...]
    evidence: Evidence | None
    terms: RunTerms | None
    servers: int = 3
    server_limits: tuple[str, ...] = SERVER_LIMITS

    @property
    def ok(self) -> bool:
        """True if no check failed, and some passed."""
        statuses = {check.status for check in self.checks}
        return FAIL not in statuses and PASS in statuses

    @property
    def limits(self) -> tuple[str, ...]:
        """Limits of the audit, in sentences."""
        if self.servers != len(FILES):
            return self.server_limits
        proved = self.terms is not None and self.terms.config.run.security == MALICIOUS
        return PROVED_LIMITS if proved else LIMITS

    def to_dict(self) -> dict[str, object]:
        """Returns the document that ``syncret audit --json`` prints."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks]}


def audit_folder(
    directory: Path | None,
    *,
    certificates: Path | None = None,
    replays: Sequence[Path] = (),
    agreed: Path | None = None,
) -> Audit:
    """Makes every check on the run in ``directory``, and verifies the recordings in the servers' folders ``replays``.

    Args:
        directory: the run's folder. Without it, recordings are compared with the transcripts in their own folders.
        certificates: folder of the certificates, by default in the run's folder.
        replays: the servers' folders with recordings.
        agreed: the configuration that the auditor knows to be the right one.

    Raises StoreError if ``directory`` holds no transcripts, or one server's transcript while ``replays`` are given.
    """
    if directory is None:
        return Audit(_replays(None, replays), None, None)
    transcripts = directory / "transcripts"
    if not transcripts.is_dir():
        raise StoreError(transcripts, "is not a folder; expected a run's transcripts")
    public = certificates or directory / "certificates"
    if (transcripts / SERVER_FILE).exists():
        if replays:
            raise StoreError(
                transcripts / SERVER_FILE, "is one server's, which records nothing; expected three"
            )
        return _one_server(directory, public, agreed)
    case = AuditCase(directory, FILES, public, privacy.terms_of, agreed=agreed)
    checks = run_rules(case, THREE_SERVERS)
    readable = _is_readable(checks)
    return Audit(
        (*checks, *_replays(transcripts, replays)),
        case.evidence if readable else None,
        case.terms if readable and case.has_terms() else None,
    )


def _one_server(directory: Path, certificates: Path, agreed: Path | None) -> Audit:
    names = (SERVER_FILE,)
    case = AuditCase(directory, names, certificates, lambda evidence: None, agreed=agreed)
    audit: ServerAudit[Any] = ONE_SERVER.get(_protocol(case), flaim.AUDIT)
    checks, limits = audit.run(directory, names, certificates, agreed=agreed)
    return Audit(checks, case.evidence if _is_readable(checks) else None, None, 1, limits)


def _protocol(case: AuditCase[object]) -> str:
    """Returns the protocol in the header; "" if the transcript cannot be read."""
    try:
        return case.evidence.transcripts[0].protocol
    except CheckFailure:
        return ""


def _is_readable(checks: Sequence[Check]) -> bool:
    return any(check.name == Prerequisite.FORM.value and check.status == PASS for check in checks)


def _replays(transcripts: Path | None, replays: Sequence[Path]) -> tuple[Check, ...]:
    owners = [(folder, recording_server(folder)) for folder in replays]
    return tuple(
        make_check(
            f"replay {folder.name if pid is None else pid}",
            partial(replay_folder, folder, transcripts),
        )
        for folder, pid in owners
    )


ONE_SERVER: Mapping[str, ServerAudit[Any]] = {
    FLAIM_PROTOCOL: flaim.AUDIT,
    sums_schema.SILOS_PROTOCOL: federation.AUDIT,
    transcript.SECAGG_PROTOCOL: secure_sum.AUDIT,
}
"""Audits of one server's transcript, by the protocol in its header."""


def _configuration(case: AuditCase[RunTerms]) -> str:
    # The servers agreed on the configuration before round 0 chose any bins.
    config, workload = case.terms.config, case.terms.config.build_workload()
    bits = security_bits(Study(config, workload))
    plan = run_identity(config, workload.digest(), case.terms.plan, bits).plan
    return identity.configuration(case.evidence, Study(config, workload), plan)


def _insert_between(first: int, second: int) -> Rule[object]:
    return Rule(
        f"messages {first}-{second}",
        lambda case: messages.messages(case.evidence, first, second),
        Prerequisite.FORM,
    )


THREE_SERVERS: tuple[Rule[RunTerms], ...] = (
    *READABLE,
    Rule("certificates", lambda case: identity.certificates(case.evidence), Prerequisite.FORM),
    Rule("signatures", lambda case: identity.signatures(case.evidence), Prerequisite.FORM),
    Rule("parties", lambda case: identity.parties(case.evidence), Prerequisite.FORM),
    Rule("completeness", lambda case: identity.completeness(case.evidence), Prerequisite.FORM),
    Rule("agreement", lambda case: identity.agreement(case.evidence), Prerequisite.FORM),
    Rule("configuration", _configuration, Prerequisite.FORM),
    *(_insert_between(first, second) for first, second in PAIRS),
    Rule("order", lambda case: messages.order(case.evidence), Prerequisite.FORM),
    Rule("clocks", lambda case: messages.clocks(case.evidence), Prerequisite.FORM),
    Rule("traffic", lambda case: costs.traffic(case.evidence), Prerequisite.FORM),
    Rule(
        "steps",
        lambda case: messages.steps(case.evidence, case.terms.plan.rounds),
        Prerequisite.CONFIGURATION,
    ),
    Rule(
        "clients",
        lambda case: participants.clients(case.evidence, case.terms),
        Prerequisite.CONFIGURATION,
    ),
    Rule(
        "limits", lambda case: owners.limits(case.evidence, case.terms), Prerequisite.CONFIGURATION
    ),
    Rule(
        "openings",
        lambda case: privacy.openings(case.evidence, case.terms),
        Prerequisite.CONFIGURATION,
    ),
    Rule(
        "proofs",
        lambda case: proofs.openings_proved(case.evidence, case.terms),
        Prerequisite.CONFIGURATION,
    ),
    Rule(
        "values", lambda case: privacy.values(case.evidence, case.terms), Prerequisite.CONFIGURATION
    ),
    Rule("charges", lambda case: charges.charges(case.evidence), Prerequisite.CONFIGURATION),
    Rule(
        "ledger", lambda case: privacy.ledger(case.evidence, case.terms), Prerequisite.CONFIGURATION
    ),
    Rule("costs", lambda case: costs.costs(case.evidence, case.terms), Prerequisite.CONFIGURATION),
    Rule("published", lambda case: publication.published(case.evidence), Prerequisite.FORM),
    Rule(
        "table",
        lambda case: publication.table(
            case.evidence, Study(case.terms.released, case.terms.workload)
        ),
        Prerequisite.CONFIGURATION,
    ),
    Rule(
        "model",
        lambda case: publication.model(case.evidence, case.terms),
        Prerequisite.CONFIGURATION,
    ),
    Rule("report", lambda case: report(case.evidence, case.terms), Prerequisite.CONFIGURATION),
    Rule("quality", lambda case: quality(case.evidence, case.terms), Prerequisite.CONFIGURATION),
)
