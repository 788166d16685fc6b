"""Forms of bodies and answers of the admin APIs, which their OpenAPI documents are made from.

A body's form is a `msgspec.Struct`, by which it is checked: unknown fields are refused. An answer's form is a
`TypedDict`; tests hold the answers of real services against it, with no field besides. Times are ISO 8601, in UTC.
"""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta, Struct

from parties.service.study_record import StudyState

# Bodies.


class Nothing(Struct, forbid_unknown_fields=True):
    """No body, or an empty object."""


class StudyProposal(Struct, forbid_unknown_fields=True):
    """A study: what `syncret certs merge` or `syncret study propose` made of a configuration."""

    config: Annotated[str, Meta(description="The configuration, in TOML.")]
    certificates: Annotated[
        dict[str, str], Meta(description="PEM texts: ca.crt, and NAME.crt of each server.")
    ]
    start: Annotated[
        dict[str, str] | None,
        Meta(description="Of a refresh: the earlier model's files, in base64."),
    ] = None


class Approval(Struct, forbid_unknown_fields=True):
    """The word of an operator that it has compared with the two others."""

    digest: Annotated[str, Meta(description="All 64 digits of the digest, or its twelve words.")]
    heard: Annotated[
        list[str], Meta(description="Servers whose operators read out the same words.")
    ] = []


class Cancellation(Struct, forbid_unknown_fields=True):
    """The end of a study, for good."""

    reason: Annotated[str, Meta(description="Told to the others; 200 characters at most.")] = ""


class OwnerName(Struct, forbid_unknown_fields=True):
    """A data owner."""

    owner: Annotated[str, Meta(description="Its name, as in its certificate.")]


class OwnerCertificate(Struct, forbid_unknown_fields=True):
    """A certificate that the study's authority has issued to an owner that has asked for it."""

    certificate: Annotated[str, Meta(description="PEM.")]


class ApplicantKey(Struct, forbid_unknown_fields=True):
    """The key of a data owner that asks to be admitted."""

    key: Annotated[str, Meta(description="SHA-256, 64 hexadecimal digits.")]


class KeyConfirmation(Struct, forbid_unknown_fields=True):
    """The words of another server's next key, as its operator reads them out."""

    words: str
    file: Annotated[
        str | None,
        Meta(description="Its new public file, where the former key is refused at once."),
    ] = None


class CardRequest(Struct, forbid_unknown_fields=True):
    """The kind of study that new cards are for; ``own``: of this server alone."""

    kind: Literal["distaim", "flaim", "silos"] = "distaim"
    own: bool = False


# Answers, of both APIs.


class ErrorDetail(TypedDict):
    """Problem of a request, and what was expected."""

    what: str
    expected: str


class Error(TypedDict):
    """Answer to a request that was refused, or has failed."""

    error: ErrorDetail


class CommandTaken(TypedDict):
    """Command that the server has taken, which takes effect once all operators of the study have given it."""

    order: Literal["close", "finish", "cancel", "revoke"]
    owner: NotRequired[str]


class ProcessFacts(TypedDict):
    """Process of a server."""

    pid: int
    memory_bytes: int | None
    peak_bytes: int
    cpu_s: float


class CertificateFacts(TypedDict):
    """End of a certificate; ``text`` is a sentence once it ends within 30 days."""

    kind: Literal["server", "peer", "admin", "operator", "authority"]
    name: str
    expires: str
    left_s: int
    state: Literal["valid", "soon", "ended"]
    renew: str
    text: str


# Answers of one study's server.


class Health(TypedDict):
    """Health of the computation's event loop; a service has no ``silent_s``."""

    healthy: bool
    silent_s: NotRequired[float]


class Readiness(TypedDict):
    """Readiness to answer data owners: the ``phase`` of a run, or the problems of a service's ``peers``."""

    ready: bool
    phase: NotRequired[str]
    peers: NotRequired[list[str]]


class RunParty(TypedDict):
    """Server of the run; ``pid`` is null in a federation."""

    name: str
    pid: int | None


class RunStudy(TypedDict):
    """Study of the run: its name, and the digest of its configuration."""

    id: str
    config: str


class ProgramVersions(TypedDict):
    """Versions of the program, of its messages and stores, and of Python."""

    syncret: str
    wire: int
    ingest: int
    store: int
    python: str


class RunRounds(TypedDict):
    """Rounds: the last finished one, the one under way, and how many there are, or are at most."""

    done: int | None
    now: int | None
    of: int
    at_most: bool


class RunOwner(TypedDict):
    """Data owner of the run."""

    name: str
    state: str
    missing: list[str]
    reason: str
    round: int | None
    since: str | None


class RunOwners(TypedDict):
    """Data owners of the run; ``list`` is not in events."""

    expected: int
    minimum: int
    here: int
    short: int
    counted: int
    states: dict[str, int]
    list: NotRequired[list[RunOwner]]


class RunBudget(TypedDict):
    """Privacy budget, in rho (zCDP), and what is spent of it."""

    epsilon: float
    delta: float
    rho: float | None
    spent: float | None
    charges: int | None


class RunTime(TypedDict):
    """Times of the run."""

    started: str
    elapsed_s: float
    left_s: float | None
    closing_s: float | None


class RunPeer(TypedDict):
    """Another server of the run."""

    pid: int
    name: str
    connected: bool
    problem: str
    round_trip_s: float | None


class StepFacts(TypedDict):
    """Costs of a kind of step in this process."""

    count: int
    seconds: float
    sent_bytes: int
    received_bytes: int
    messages: int


class CommandsGiven(TypedDict):
    """Commands that an operator has given; ``party`` is there where they are of one server of all."""

    close: bool
    finish: bool
    revoked: list[str]
    party: NotRequired[str]


# Words of the wire that the code has given up.
_ToldField = TypedDict("_ToldField", {"told": list[CommandsGiven]})  # noqa: UP013
_DoingField = TypedDict("_DoingField", {"doing": str | None})  # noqa: UP013


class RunCommands(_ToldField):
    """Operators' commands: of this server, of each server, and those that all have given."""

    here: CommandsGiven
    agreed: CommandsGiven


class RunEvent(TypedDict):
    """Event of a run."""

    time: str
    event: str
    text: str


class RunStatusDocument(_DoingField):
    """Status of the server of one study (parties/README.md, Status)."""

    format: int
    running: bool
    kind: Literal["party", "flaim-server", "silos-server"]
    party: RunParty
    study: RunStudy
    versions: ProgramVersions
    phase: str
    since: str
    rounds: RunRounds
    owners: RunOwners
    budget: RunBudget
    time: RunTime
    peers: list[RunPeer]
    steps: dict[str, StepFacts]
    asked: RunCommands | None
    certificates: list[CertificateFacts]
    rejections: dict[str, int]
    errors: list[RunEvent]
    rejected: list[RunEvent]
    events: list[RunEvent]
    process: ProcessFacts
    orders: list[Literal["close", "finish", "revoke", "cancel"]]


# Answers of a service.


class FolderFacts(TypedDict):
    """Disk of the service's folder, and the age of its last backup; null if unknown, or none."""

    free_bytes: int | None
    total_bytes: int | None
    backup_age_s: float | None


class ClockOffset(TypedDict):
    """Seconds by which a peer's clock is ahead, right within ``within_s``."""

    offset_s: float
    within_s: float


class ServicePeer(TypedDict):
    """Another server; ``refused`` has the reasons of proposals that it refuses, by digest."""

    name: str
    pid: int
    mesh: str
    there: bool
    problem: str
    round_trip_s: float | None
    clock: ClockOffset | None
    refused: dict[str, str]


class ServiceClock(TypedDict):
    """Seconds by which this clock is off by the two others'."""

    off_s: float | None
    known: bool


class AnnouncedKeyFacts(TypedDict):
    """Next key of a server; ``key`` and ``words`` are there of this server's own."""

    name: str
    renews: bool
    waits_for: list[str]
    key: NotRequired[str]
    words: NotRequired[str]


class Keys(TypedDict):
    """Announced keys of the servers."""

    keys: list[AnnouncedKeyFacts]


class WaitFacts(TypedDict):
    """Obstacle of a server that a study waits for."""

    name: str
    cause: str
    detail: int | None
    text: str


class StudyOwners(TypedDict):
    """Data owners that a study's configuration expects or names."""

    expected: int | None
    minimum: int | None
    rows_per_client: int | None
    named: list[str]


class StudyServerFacts(TypedDict):
    """Server of a study: its approval, and the study's state there."""

    name: str
    approved: bool
    state: StudyState | None
    problem: str


class StudyProcess(TypedDict):
    """Process of a study."""

    id: int | None
    text: str
    restarts: int
    next_try_s: float | None


class PendingDecision(TypedDict):
    """Decision on a study that waits for this server's operators."""

    decision: Literal["approve", "retry", "admit"]
    text: str


class StudyFacts(TypedDict):
    """Study in short; figures of a configuration that this version cannot read are null.

    ``orders`` are the service's own commands that it takes in its state.
    """

    digest: str
    words: str
    run: str
    kind: Literal["distaim", "flaim", "silos"]
    state: StudyState
    reason: str
    why: str
    waits: list[WaitFacts]
    turn: int | None
    proposer: str
    proposed_at: str
    changed_at: str
    started_at: str | None
    ended_at: str | None
    ended_s: float | None
    epsilon: float | None
    delta: float | None
    rounds: int | None
    columns: int | None
    owners: StudyOwners
    servers: list[StudyServerFacts]
    folder: str
    process: StudyProcess | None
    orders: list[Literal["approve", "cancel", "collect"]]
    pending: list[PendingDecision]
    approved_first: str | None


class ApplicantFacts(TypedDict):
    """Data owner that asks to be admitted to a study; ``request`` is its signed request."""

    name: str
    key: str
    public: str
    study: str
    words: str
    request: str
    remote: str
    state: Literal["pending", "admitted", "refused"]
    first: str
    seen: str


class ApplicantList(TypedDict):
    """Requests for admission."""

    requests: list[ApplicantFacts]


class KeyDifference(TypedDict):
    """Key of two configurations with different values, as JSON; null where a configuration lacks the key."""

    key: str
    here: str | None
    there: str | None


class AlikeStudy(TypedDict):
    """Another open study of the same name, and its differences."""

    digest: str
    proposer: str
    state: StudyState
    differences: list[KeyDifference]


class HistoryEntry(TypedDict):
    """Event in a study's history: its name, which those of an earlier version lack, and the same in words."""

    at: str
    digest: str | None
    actor: str
    event: NotRequired[str]
    what: str
    text: str


class StudyDetails(StudyFacts):
    """Study with its configuration (TOML), pending requests for admission, look-alikes and history."""

    config: str
    requests: list[ApplicantFacts]
    alike: list[AlikeStudy]
    history: list[HistoryEntry]


class Studies(TypedDict):
    """Studies of a page, and the number of those on all pages."""

    studies: list[StudyFacts]
    total: int


class PreviousStudy(TypedDict):
    """Study that this server has approved before, and its differences from another one."""

    digest: str
    run: str
    state: StudyState
    proposed_at: str
    differences: list[KeyDifference]


class StudySentences(TypedDict):
    """Study in sentences; none where this version cannot read its configuration."""

    sentences: list[str]
    previous: PreviousStudy | None


class CollectionState(TypedDict):
    """Collection of a study's whole result: the path of the bundle, once it is there."""

    running: bool
    bundle: str | None
    problem: str


class LogLines(TypedDict):
    """Lines of the operators' log, and the seal of all with the last of them (`parties.service.operators_log`)."""

    lines: list[str]
    seal: str | None


class Cards(TypedDict):
    """New cards of servers, for one study, in the servers' order."""

    cards: list[str]


class NoticeTarget(TypedDict):
    """Deliveries of notifications to one target; ``problem`` is the last error while it takes none."""

    target: str
    pending: int
    delivered: int
    failed: int
    problem: str


class ServiceStatus(TypedDict):
    """Status of a service (parties/README.md, The service)."""

    service: str
    pid: int
    program: str
    started_s: float
    process: ProcessFacts
    folder: FolderFacts
    limit: int
    four_eyes: bool
    refused_connections: dict[str, int]
    running: int
    peers: list[ServicePeer]
    clock: ServiceClock
    troubles: list[str]
    certificates: list[CertificateFacts]
    keys: list[AnnouncedKeyFacts]
    refused: dict[str, str]
    notify: list[NoticeTarget]
    event_counts: dict[str, int]
    states: dict[StudyState, int]
    studies: list[StudyFacts]
