"""The audit of a run folder: every check in its order.

A folder has transcripts/ with party-{0,1,2}.jsonl, or with server.jsonl of a server of FLAIM, SecAgg or silos, and
certificates/ with ca.crt and the servers' certificates; config.toml and report.json are compared if they are there. No
value here is secret. Known limits: `parties.audit.findings.LIMITS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from mechanisms.model import MARGINALS_FILE, TREE_FILE
from parties.audit.bundle import CERTIFICATES, TRANSCRIPTS
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
from parties.audit.checks.columns_alone import check_columns_alone
from parties.audit.checks.contents import (
    MADE_ANEW,
    SEALED,
    TABLE_AND_MODEL,
    Contents,
    FileFinding,
    MethodFiles,
    file_names,
    headline,
    is_work,
    missing_files,
    unknown_file,
    verdict,
)
from parties.audit.checks.independent import accountants, estimator, require_packages
from parties.audit.checks.model_fit import refresh_of
from parties.audit.checks.privacy import RunTerms
from parties.audit.checks.quality import quality
from parties.audit.checks.report import report
from parties.audit.checks.report_parts import (
    ReportParts,
    edition_of,
    three_servers_parts,
    with_columns,
    with_quality,
)
from parties.audit.evidence import Evidence
from parties.audit.findings import (
    FAIL,
    LIMITS,
    PASS,
    PROVED_LIMITS,
    SERVER_LIMITS,
    Check,
    CheckFailure,
    NotApplicable,
    make_check,
    require,
    skipped_check,
)
from parties.audit.questions import (
    Answer,
    RunFacts,
    answers,
    facts_of_flaim,
    facts_of_silos,
    facts_of_three,
)
from parties.audit.replay import recording_server, replay_folder
from parties.audit.rules import READABLE, AuditCase, Prerequisite, Rule, ServerAudit, run_rules
from parties.config import MALICIOUS, START_FOLDER, Config
from parties.federation import sums_schema, transcript
from parties.foundation.errors import StoreError
from parties.foundation.version import TEXT_EDITION
from parties.methods.federated_report import render as render_silos
from parties.methods.flaim.transcript_schema import FLAIM_PROTOCOL
from parties.mpc.agreement import run_identity
from parties.report.public import public_page, real_figures
from parties.session.result_digests import MODEL_FOLDER, TABLE_FILE
from parties.session.study import Study

FILES = tuple(f"party-{pid}.jsonl" for pid in range(3))
SERVER_FILE = "server.jsonl"
Terms = TypeVar("Terms")
PAIRS = ((0, 1), (0, 2), (1, 2))


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """All checks of an audit; ``evidence`` and ``terms`` are None if the transcripts were not readable enough for them.

    ``servers`` is the number of servers that wrote transcripts: three, or one for FLAIM, SecAgg and silos.
    ``server_limits`` are the limits of the audit of one server. ``files`` are the findings of the check `contents`,
    ``missing`` the usual files that are not there. ``facts`` are those of the run, None if they could not be read.
    ``config`` is the configuration in readable transcripts of DistAIM or FLAIM.
    ``recordings_alone``: no run was given.
    """

    checks: tuple[Check, ...]
    evidence: Evidence | None
    terms: RunTerms | None
    servers: int = 3
    server_limits: tuple[str, ...] = SERVER_LIMITS
    files: tuple[FileFinding, ...] = ()
    missing: tuple[str, ...] = ()
    facts: RunFacts | None = None
    recordings_alone: bool = False
    config: Config | None = None

    @property
    def ok(self) -> bool:
        """True if no check failed, and some passed."""
        statuses = {check.status for check in self.checks}
        return FAIL not in statuses and PASS in statuses

    @property
    def headline(self) -> str:
        """First sentences of an audit: whether all holds, and all that was not checked."""
        return f"{verdict(self.files, ok=self.ok)} {headline(self.files, self.missing)}".rstrip()

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Answers to the five questions of an officer, each with the names of its checks; none without a run."""
        if self.recordings_alone:
            return ()
        unchecked = headline(self.files, self.missing)
        return answers(
            self.checks, self.evidence, self.facts, unchecked=unchecked, limits=self.limits
        )

    @property
    def limits(self) -> tuple[str, ...]:
        """Limits of the audit, in sentences."""
        if self.servers != len(FILES):
            return self.server_limits
        proved = self.terms is not None and self.terms.config.run.security == MALICIOUS
        return PROVED_LIMITS if proved else LIMITS

    def to_dict(self) -> dict[str, object]:
        """Returns the document that ``syncret audit --json`` prints."""
        return {
            "ok": self.ok,
            "headline": self.headline,
            "questions": [answer.to_dict() for answer in self.answers],
            "checks": [asdict(check) for check in self.checks],
            "files": [asdict(file) for file in self.files],
            "missing": list(self.missing),
        }


def audit_folder(
    directory: Path | None,
    *,
    certificates: Path | None = None,
    replays: Sequence[Path] = (),
    agreed: Path | None = None,
    left_out: Sequence[str] = (),
    independent: bool = False,
) -> Audit:
    """Makes every check on the run in ``directory``, and verifies the recordings in the servers' folders ``replays``.

    Args:
        directory: the run's folder. Without it, recordings are compared with the transcripts in their own folders.
        certificates: folder of the certificates, by default in the run's folder.
        replays: the servers' folders with recordings.
        agreed: the configuration that the auditor knows to be the right one.
        left_out: names of an archive's files that were not unpacked into ``directory``.
        independent: with epsilon and misfit by packages of others, of a run of three servers.

    Raises StoreError if ``directory`` holds no transcripts, or one server's transcript while ``replays`` are given or
    ``independent`` checks are asked for, ExtraMissing without the packages of others.
    """
    if independent:
        require_packages()
    if directory is None:
        return Audit(_replays(None, replays), None, None, recordings_alone=True)
    transcripts = directory / "transcripts"
    if not transcripts.is_dir():
        raise StoreError(
            transcripts,
            "is not a folder; expected a run's transcripts. A run that was interrupted has them once the same command "
            "has ended it; central AIM makes none, and there is nothing to audit",
        )
    public = certificates or directory / "certificates"
    if (transcripts / SERVER_FILE).exists():
        if others := sorted(p.name for p in transcripts.iterdir() if p.name != SERVER_FILE):
            raise StoreError(
                transcripts,
                f"has {SERVER_FILE} and {others[0][:60]}; expected the transcripts of one run",
            )
        if replays:
            raise StoreError(
                transcripts / SERVER_FILE, "is one server's, which records nothing; expected three"
            )
        if independent:
            raise StoreError(
                transcripts / SERVER_FILE,
                "is one server's, which no package of others checks; expected three, or no --independent",
            )
        return _one_server(directory, public, agreed, left_out)
    case = AuditCase(directory, FILES, public, privacy.terms_of, agreed=agreed)
    checks = run_rules(case, (*THREE_SERVERS, *(INDEPENDENT if independent else ())))
    readable = _is_readable(checks)
    contents, files = _contents(case, checks, left_out, _files_of_three)
    known = readable and case.has_terms()
    return Audit(
        (*checks, contents, *_replays(transcripts, replays)),
        case.evidence if readable else None,
        case.terms if known else None,
        files=files,
        missing=missing_files(directory),
        facts=facts_of_three(case.evidence, case.terms) if known else None,
        config=case.terms.config if known else None,
    )


def _one_server(
    directory: Path, certificates: Path, agreed: Path | None, left_out: Sequence[str]
) -> Audit:
    names = (SERVER_FILE,)
    case = AuditCase(directory, names, certificates, lambda evidence: None, agreed=agreed)
    served = ONE_SERVER.get(_protocol(case), ONE_SERVER[FLAIM_PROTOCOL])
    return served.audit_of(directory, certificates, agreed, left_out)


@dataclass(frozen=True, slots=True)
class OneServerRun(Generic[Terms]):
    """A run of one server: the rules of its transcript, its files, and its facts for an officer.

    ``results`` are the files that such a run usually has. Without ``files_of`` it makes none. ``config_of`` returns the
    configuration of the terms.
    """

    audit: ServerAudit[Terms]
    files_of: Callable[[AuditCase[Terms], Sequence[Check]], MethodFiles] | None = None
    facts_of: Callable[[Evidence, Terms], RunFacts] | None = None
    results: tuple[str, ...] = ()
    config_of: Callable[[Terms], Config] | None = None

    def audit_of(
        self, directory: Path, certificates: Path, agreed: Path | None, left_out: Sequence[str]
    ) -> Audit:
        """Returns the audit of the folder ``directory``."""
        case = AuditCase(
            directory, (SERVER_FILE,), certificates, self.audit.terms_of, agreed=agreed
        )
        checks = run_rules(case, self.audit.rules)
        contents, files = _contents(case, checks, left_out, self.files_of)
        readable, known = _is_readable(checks), case.has_terms()
        return Audit(
            (*checks, contents),
            case.evidence if readable else None,
            None,
            1,
            self.audit.limits_of(case.terms) if known else SERVER_LIMITS,
            files,
            () if self.files_of is None else missing_files(directory, self.results),
            self.facts_of(case.evidence, case.terms)
            if self.facts_of and readable and known
            else None,
            config=self.config_of(case.terms) if self.config_of and readable and known else None,
        )


def _contents(
    case: AuditCase[Terms],
    checks: Sequence[Check],
    left_out: Sequence[str],
    files_of: Callable[[AuditCase[Terms], Sequence[Check]], MethodFiles] | None,
) -> tuple[Check, tuple[FileFinding, ...]]:
    """Returns the check of all files, and what it found of each."""
    name, found = "contents", list[FileFinding]()
    if files_of is None:
        return make_check(name, lambda: _no_results(case.evidence.directory, left_out)), ()
    if not (_is_readable(checks) and case.has_terms()):
        return skipped_check(name, Prerequisite.CONFIGURATION.value), ()

    def judge() -> str:
        found.extend(Contents(case.evidence, files_of(case, checks), left_out).findings())
        return _summary(found)

    return make_check(name, judge), tuple(found)


def _no_results(directory: Path, left_out: Sequence[str]) -> str:
    """Verifies that a folder has the transcript and certificates of a session alone, besides work files."""
    own = f"{TRANSCRIPTS}/{SERVER_FILE}"
    for name in (*file_names(directory), *left_out):
        folder = name.partition("/")[0]
        require(name == own or folder == CERTIFICATES or is_work(name), unknown_file(name))
    raise NotApplicable("A session of secure aggregation makes no files, and none is here.")


def _summary(found: Sequence[FileFinding]) -> str:
    counts = {status: sum(f.status == status for f in found) for status in (SEALED, MADE_ANEW)}
    rest = len(found) - sum(counts.values())
    return (
        f"Of {len(found)} files {counts[SEALED]} are sealed by the servers, {counts[MADE_ANEW]} follow from what is "
        f"sealed, and {rest} {'is' if rest == 1 else 'are'} not checked; the headline names these, and parts of others."
    )


def _has(checks: Sequence[Check], status: str, *names: str) -> bool:
    return any(check.name in names and check.status == status for check in checks)


def _files_of_three(case: AuditCase[RunTerms], checks: Sequence[Check]) -> MethodFiles:
    evidence, terms = case.evidence, case.terms

    def parts(document: Mapping[str, object]) -> ReportParts | None:
        if _has(checks, FAIL, "report", "quality"):
            return None
        found = with_quality(
            three_servers_parts(evidence, terms),
            held=_has(checks, PASS, "quality") and edition_of(document) == TEXT_EDITION,
        )
        return with_columns(found, terms.released, evidence.directory, document)

    return MethodFiles(
        terms.config,
        terms.released,
        [f"{TRANSCRIPTS}/{name}" for name in FILES],
        (TABLE_FILE, f"{MODEL_FOLDER}/", *_started_from(evidence, terms.config)),
        parts,
        lambda report: _page(terms.released, evidence, report),
    )


def _started_from(evidence: Evidence, config: Config) -> tuple[str, ...]:
    """Returns the files of an earlier model, whose digest the agreed configuration has. Raises CheckFailure."""
    if config.refresh is None or not (evidence.directory / START_FOLDER).exists():
        return ()
    refresh_of(evidence, config)
    return tuple(f"{START_FOLDER}/{name}" for name in (TREE_FILE, MARGINALS_FILE))


def _files_of_flaim(case: AuditCase[flaim.FlaimTerms], checks: Sequence[Check]) -> MethodFiles:
    evidence, terms = case.evidence, case.terms

    def parts(document: Mapping[str, object]) -> ReportParts | None:
        if _has(checks, FAIL, "report", "quality"):
            return None
        found = flaim.report_parts(evidence, terms, document)
        return with_columns(found, terms.config, evidence.directory, document)

    return MethodFiles(
        terms.config,
        terms.config,
        (f"{TRANSCRIPTS}/{SERVER_FILE}",),
        (TABLE_FILE, f"{MODEL_FOLDER}/"),
        parts,
        lambda report: _page(terms.config, evidence, report),
    )


def _page(released: Config, evidence: Evidence, report: Mapping[str, object]) -> str | None:
    """Returns report.html of a report; None if it shows a real table, or there is none to draw."""
    return None if real_figures(report) else public_page(released, evidence.directory, report)


def _files_of_silos(case: AuditCase[federation.SilosTerms], checks: Sequence[Check]) -> MethodFiles:
    evidence, terms = case.evidence, case.terms
    return MethodFiles(
        terms.config,
        terms.config,
        (f"{TRANSCRIPTS}/{SERVER_FILE}",),
        tuple(federation.file_digests(evidence)),
        lambda _: (
            None if _has(checks, FAIL, "report") else federation.report_parts(evidence, terms)
        ),
        render_silos,
    )


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


ONE_SERVER: Mapping[str, OneServerRun[Any]] = {
    FLAIM_PROTOCOL: OneServerRun(
        flaim.AUDIT,
        _files_of_flaim,
        facts_of_flaim,
        TABLE_AND_MODEL,
        lambda terms: terms.config,
    ),
    sums_schema.SILOS_PROTOCOL: OneServerRun(federation.AUDIT, _files_of_silos, facts_of_silos),
    transcript.SECAGG_PROTOCOL: OneServerRun(secure_sum.AUDIT),
}
"""Runs of one server, by the protocol in the header of its transcript."""


def _configuration(case: AuditCase[RunTerms]) -> str:
    # The servers agreed on the configuration before round 0 chose any bins.
    study = Study.of(case.terms.config)
    return identity.configuration(case.evidence, study, run_identity(study).plan)


def _openings(case: AuditCase[RunTerms]) -> str:
    said = privacy.openings(case.evidence, case.terms)
    check_columns_alone(case.evidence, case.terms)
    return said


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
        _openings,
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

INDEPENDENT: tuple[Rule[RunTerms], ...] = (
    Rule(
        "accountants",
        lambda case: accountants(case.evidence, case.terms),
        Prerequisite.CONFIGURATION,
    ),
    Rule(
        "estimator", lambda case: estimator(case.evidence, case.terms), Prerequisite.CONFIGURATION
    ),
)
"""Checks by packages of others."""
