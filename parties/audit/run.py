"""The audit of a run folder: every check in its order.

Provides ``audit_folder`` and what it returns. A folder has transcripts/ with party-{0,1,2}.jsonl, or server.jsonl of a
FLAIM or SecAgg server, and certificates/ with ca.crt and the servers' certificates; config.toml and report.json are
compared where they are there. Nothing is secret. Known limits: `parties.audit.findings.LIMITS`.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from parties.audit import channel, costs, flaim, identity, privacy, secagg
from parties.audit.evidence import Evidence, load_books
from parties.audit.findings import (
    LIMITS,
    PASS,
    SERVER_LIMITS,
    Check,
    Failed,
    Findings,
    NotApplicable,
    require,
)
from parties.audit.privacy import Terms
from parties.audit.replay import replay_folder, whose
from parties.config import Config
from parties.distaim.agreement import identity_of
from parties.distaim.notes import SELECTED
from parties.distaim.planning import make_plan, security_bits
from parties.errors import ConfigError, StoreError
from parties.flaim import notes as flaim_notes
from parties.secagg import record

FILES = tuple(f"party-{pid}.jsonl" for pid in range(3))
PAIRS = ((0, 1), (0, 2), (1, 2))


SERVER_FILE = "server.jsonl"


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """All checks; ``evidence`` and ``terms`` are None where the transcripts did not even bear them.

    ``servers`` is how many wrote transcripts: three, or the one of FLAIM.
    """

    checks: tuple[Check, ...]
    ok: bool
    evidence: Evidence | None
    terms: Terms | None
    servers: int = 3

    @property
    def limits(self) -> tuple[str, ...]:
        """What it cannot show, in sentences."""
        return LIMITS if self.servers == len(FILES) else SERVER_LIMITS

    def to_dict(self) -> dict[str, object]:
        """The document that ``syncret audit --json`` prints."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks]}


def audit_folder(
    directory: Path | None, *, certificates: Path | None = None, replays: Sequence[Path] = ()
) -> Audit:
    """Make every check on the run in ``directory``, and judge the recordings in the servers' folders ``replays``.

    ``certificates`` are in the run's own folder unless given. Without ``directory``, recordings are judged against the
    transcripts in their own folders. Raises StoreError where ``directory`` holds no transcripts.
    """
    findings = Findings()
    if directory is None:
        _replays(findings, None, replays)
        return Audit(tuple(findings.checks), findings.ok, None, None)
    if not (directory / "transcripts").is_dir():
        raise StoreError(directory / "transcripts", "is not a folder; expected a run's transcripts")
    public = certificates or directory / "certificates"
    if (directory / "transcripts" / SERVER_FILE).exists():
        evidence = _one_server(findings, directory, public)
        return Audit(tuple(findings.checks), findings.ok, evidence, None, 1)
    found, terms = _three_servers(findings, directory, public)
    _replays(findings, directory, replays)
    return Audit(tuple(findings.checks), findings.ok, found, terms)


def _replays(findings: Findings, directory: Path | None, replays: Sequence[Path]) -> None:
    for folder in replays:

        def replay(folder: Path = folder) -> str:
            return replay_folder(folder, directory and directory / "transcripts")

        pid = whose(folder)
        findings.run(f"replay {folder.name if pid is None else pid}", replay)


def _three_servers(
    findings: Findings, directory: Path, certificates: Path
) -> tuple[Evidence | None, Terms | None]:
    found: list[Evidence] = []
    terms: list[Terms] = []

    def configuration() -> str:
        terms.append(_terms(found[0]))
        config, workload = terms[0].config, terms[0].workload
        plan = identity_of(
            config, workload.digest(), terms[0].plan, security_bits(config, workload)
        ).plan
        return identity.configuration(found[0], config, workload, plan)

    readable = _read(findings, found, directory, FILES, certificates)
    _run_all(findings, _identity_checks(found), after="form", holds=readable)
    _run_all(findings, [("configuration", configuration)], after="form", holds=readable)
    _run_all(findings, _message_checks(found), after="form", holds=readable)
    judged = bool(terms)
    _run_all(findings, _content_checks(found, terms), after="configuration", holds=judged)
    return found[0] if readable else None, terms[0] if terms else None


def _one_server(findings: Findings, directory: Path, certificates: Path) -> Evidence | None:
    found: list[Evidence] = []
    terms: list[flaim.FlaimTerms] = []

    def configuration() -> str:
        require(
            found[0].books[0].protocol == flaim_notes.PROTOCOL,
            "the transcript is not of a FLAIM server",
        )
        config = identity.rebuild_config(found[0].books[0])
        terms.append(_flaim_terms(config))
        return identity.configuration(found[0], config, terms[0].workload, None)

    readable = _read(findings, found, directory, (SERVER_FILE,), certificates)
    first: list[_Named] = [
        ("certificates", lambda: identity.certificates(found[0])),
        ("signatures", lambda: identity.signatures(found[0])),
        ("clocks", lambda: flaim.clocks(found[0])),
    ]
    _run_all(findings, first, after="form", holds=readable)
    if readable and found[0].books[0].protocol == record.PROTOCOL:
        _run_all(findings, secagg.checks(found[0]), after="form", holds=True)
        return found[0]
    second: list[_Named] = [
        ("completeness", lambda: flaim.completeness(found[0])),
        ("configuration", configuration),
    ]
    _run_all(findings, second, after="form", holds=readable)
    if terms:
        _run_all(findings, flaim.checks(found[0], terms[0]), after="", holds=True)
        findings.run("report", lambda: report(found[0]))
    else:
        findings.skip("openings", "configuration")
    return found[0] if readable else None


def _flaim_terms(config: Config) -> flaim.FlaimTerms:
    try:
        return flaim.terms_of(config)
    except ConfigError as error:
        raise Failed(f"the configuration in the transcript cannot be used: {error}") from error


def _read(
    findings: Findings,
    found: list[Evidence],
    directory: Path,
    names: Sequence[str],
    certificates: Path,
) -> bool:
    """Read the transcripts; returns whether their records are well-formed."""

    def files() -> str:
        books = load_books([directory / "transcripts" / name for name in names])
        found.append(Evidence(directory, books, certificates))
        return f"The folder has {', '.join(names)}."

    whole = findings.run("files", files)
    first: list[_Named] = [
        ("chains", lambda: identity.chains(found[0].books)),
        ("form", lambda: identity.form(found[0].books)),
    ]
    _run_all(findings, first, after="files", holds=whole)
    return whole and findings.checks[-1].status == PASS


_Named = tuple[str, Callable[[], str]]


def _run_all(findings: Findings, checks: list[_Named], *, after: str, holds: bool) -> None:
    for name, check in checks:
        if holds:
            findings.run(name, check)
        else:
            findings.skip(name, after)


def _identity_checks(found: list[Evidence]) -> list[_Named]:
    return [
        ("certificates", lambda: identity.certificates(found[0])),
        ("signatures", lambda: identity.signatures(found[0])),
        ("parties", lambda: identity.parties(found[0])),
        ("completeness", lambda: identity.completeness(found[0])),
        ("agreement", lambda: identity.agreement(found[0])),
    ]


def _message_checks(found: list[Evidence]) -> list[_Named]:
    pairs: list[_Named] = [
        (f"messages {a}-{b}", lambda a=a, b=b: channel.messages(found[0], a, b))  # type: ignore[misc]
        for a, b in PAIRS
    ]
    return [
        *pairs,
        ("order", lambda: channel.order(found[0])),
        ("clocks", lambda: channel.clocks(found[0])),
        ("traffic", lambda: costs.traffic(found[0])),
    ]


def _content_checks(found: list[Evidence], terms: list[Terms]) -> list[_Named]:
    return [
        ("steps", lambda: channel.steps(found[0], terms[0].plan.rounds)),
        ("clients", lambda: privacy.clients(found[0], terms[0])),
        ("openings", lambda: privacy.openings(found[0], terms[0])),
        ("values", lambda: privacy.values(found[0], terms[0])),
        ("charges", lambda: privacy.charges(found[0])),
        ("ledger", lambda: privacy.ledger(found[0], terms[0])),
        ("costs", lambda: costs.costs(found[0], terms[0])),
        ("report", lambda: report(found[0])),
    ]


def _terms(evidence: Evidence) -> Terms:
    config = identity.rebuild_config(evidence.books[0])
    try:
        workload = config.build_workload()
        return Terms(config, workload, make_plan(config, workload))
    except ConfigError as error:
        raise Failed(f"the configuration in the transcripts cannot be used: {error}") from error


def report(evidence: Evidence) -> str:
    """report.json says what the transcripts say: charges, openings, choices."""
    path = evidence.directory / "report.json"
    if not path.exists():
        raise NotApplicable("There is no report.json in the folder.")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        privacy_, opened, selected = document["privacy"], document["opened"], document["selected"]
        said_charges = sorted((e["round"], e["step"], e["rho"]) for e in privacy_["ledger"])
        said_opened = sorted((o["round"], o["step"], o["what"], o["count"]) for o in opened)
        said_chosen = [[s["round"], ", ".join(s["query"])] for s in selected]
        spent = float(privacy_["rho_spent"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"report.json is no report: {type(error).__name__}") from error
    book = evidence.books[0]
    ledger = [e for e in book.entries if e.kind == "ledger"]
    charges = sorted((e.record["round"], e.record["step"], e.record["rho"]) for e in ledger)
    require(charges == said_charges, "report.json has another ledger than the transcripts")
    require(
        math.isclose(spent, math.fsum(e.real("rho") for e in ledger), rel_tol=1e-12),
        "report.json says that another budget was spent",
    )
    fields = ("round", "step", "what", "count")
    opened_here = [tuple(e.record[f] for f in fields) for e in book.entries if e.kind == "opened"]
    require(
        sorted(opened_here) == said_opened, "report.json has other openings than the transcripts"
    )
    if book.protocol == flaim_notes.PROTOCOL:
        return "report.json has the ledger and the openings of the transcript."
    noted = {e.number("round"): e.text("query") for e in book.entries if e.is_note(SELECTED.what)}
    # The report has the choices of finished rounds; the last one's measurement may be lost.
    rounds = privacy.finished_rounds(evidence)
    chosen = {number: query for number, query in noted.items() if number <= rounds}
    require(
        [[number, query] for number, query in sorted(chosen.items())] == said_chosen,
        "report.json has other choices than the transcripts",
    )
    return "report.json has the ledger, the openings and the choices of the transcripts."
