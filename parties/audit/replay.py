"""Replay: a server's own code runs again on its recording, and every message is compared with its transcript.

``replay_folder`` verifies the recordings that ``record_replay`` left in a server's folder. The same
``computation.compute`` runs on the recorded keys, inputs and received messages. The messages that it would send, and
those that it received, must have the digests in the transcript. The inputs are bound: the shares of an owner's counts
have the component digests that were compared with the other holders of the components, and a total from before a
restart is the one that the transcript commits to. A server whose replay holds followed the protocol: its messages
follow by the protocol from the owners' uploads and from the messages that it received.

SECRET: recordings hold a server's keys and its shares; see `parties.mpc.replay.log`. Known limits: the lead's models
are taken from the recording (they are public, and affect the quality of a choice, never its privacy); a server's own
random bits are taken from the recording; a component is bound by its other holder, if that is honest; the replay has to
run with the version of the program that made the recording.
"""

import asyncio
import contextlib
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from mechanisms.aim import Estimate, Measurement
from parties.audit.checks import identity
from parties.audit.evidence import (
    ServerTranscript,
    TranscriptAttempt,
    TranscriptEntry,
    load_transcripts,
)
from parties.audit.findings import CheckFailure, require
from parties.audit.replay_loop import ReplayEnded, ReplayLoop, running_loop
from parties.foundation.errors import PartyError
from parties.foundation.version import version
from parties.mpc.computation import compute
from parties.mpc.estimation import LEAD
from parties.mpc.finishing import LeadDuties
from parties.mpc.inputs import InputForm, input_forms
from parties.mpc.outputs import CostsFile
from parties.mpc.participants.control import AdmissionControl
from parties.mpc.participants.listing import Page
from parties.mpc.planning.budget import make_plan
from parties.mpc.records import RunningTotal, StoredSubmission
from parties.mpc.replay.effects import Effects, ParticipantView, SubmissionView, TotalView
from parties.mpc.replay.log import REPLAY_FOLDER, SERVER_FILE, Recording, read_replay_log
from parties.mpc.replay.recorder import (
    RecordedFinalized,
    RecordedSubmissions,
    RecordedTotals,
    with_recorded_state,
)
from parties.mpc.server_folder import ServerFolder
from parties.mpc.session import MpcSession
from parties.mpc.storage.store import Store
from parties.mpc.transcript_schema import TOTAL
from parties.observability.events import Progress
from parties.observability.status import RunInfo, RunStatus
from parties.session.result_digests import ResultDigests
from parties.session.study import Study
from protocols.context import Context, Costs, Opening, Payload, StepCost, root_path
from protocols.digests import digest_key, message_digest
from protocols.errors import CheckFailed, ProtocolError, ProtocolViolation
from protocols.fields import encode
from protocols.transcript import Record, read

_WRITTEN = "transcript.jsonl"
_NOTHING = ResultDigests("00" * 32, "00" * 32, 0)
_CONCLUSIONS = ("client", "note")
"""Kinds of records that a server's inputs and messages determine, besides those of messages and openings."""


class ReplayedEffects(Effects):
    """``Effects`` that return the recorded values, in their order."""

    def __init__(
        self,
        inputs: Sequence[tuple[str, bytes]],
        pid: int,
        forms: Mapping[str, InputForm],
    ) -> None:
        self.loop: ReplayLoop | None = None
        """The loop of the replay, once it runs."""
        self._remaining = deque(inputs)
        self._pid = pid
        self._forms = forms
        self.resumed: list[tuple[int, str]] = []
        """Round and commitment of each total from before a restart."""

    def once(self, name: str, fn: Callable[[], bytes]) -> bytes:
        """See ``Effects.once``. Raises ReplayEnded at the end, CheckFailed if the next value has another name."""
        if not self._remaining:
            self._end()
        kept, value = self._remaining.popleft()
        if kept != name:
            raise CheckFailed(f"the recording has {kept!r} where the protocol asks for {name!r}")
        return value

    def _end(self) -> NoReturn:
        """Raises ReplayEnded; in a thread of the loop only once nothing else goes on."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self.loop is not None:
                self.loop.end_thread()
        raise ReplayEnded

    def store(self, directory: Path, config_digest: str, *, rounds: int) -> Store:
        """See ``Effects.store``: returns an empty store, brought to the recorded state."""
        return with_recorded_state(
            super().store(directory, config_digest, rounds=rounds), self, rounds
        )

    def participants(self, store: Store) -> ParticipantView:
        """See ``Effects.participants``: answers are the recorded ones."""
        return replace(
            super().participants(store),
            submissions=ReplayedSubmissions(store.submissions, self, self._pid, self._forms),
            finalized=RecordedFinalized(store.finalized, self),
            totals=ReplayedTotals(store.totals, self, self.resumed),
        )


class ReplayedSubmissions(RecordedSubmissions):
    """``RecordedSubmissions`` of a replay, which verify the digests of shares."""

    def __init__(
        self,
        inner: SubmissionView,
        effects: Effects,
        pid: int,
        forms: Mapping[str, InputForm],
    ) -> None:
        super().__init__(inner, effects)
        self._pid = pid
        self._forms = forms
        self._listed: dict[tuple[str, int], StoredSubmission] = {}

    def page(self, up_to_round: int, after: str, revoked: Collection[str]) -> Page:
        """See ``SubmissionView.page``."""
        page = super().page(up_to_round, after, revoked)
        self._listed |= {(s.submission.client, s.submission.version): s for s in page.submissions}
        return page

    def stored(self, client: str, upload: str) -> StoredSubmission:
        """See ``SubmissionView.stored``. Raises CheckFailed if the submission differs from the listed one."""
        stored = super().stored(client, upload)
        version = stored.submission.version
        if stored != self._listed.setdefault((client, version), stored):
            raise CheckFailed(f"the recording has two submissions of {client!r} in one")
        return stored

    def read(self, client: str, version: int) -> bytes:
        """See ``SubmissionView.read``. Raises CheckFailed for shares with other digests than compared."""
        body = super().read(client, version)
        stored = self._listed[client, version]
        digests = self._forms[stored.submission.form].component_digests(
            self._pid, body, stored.submission.capacity
        )
        if [digest.hex() for digest in digests] != [stored.own_digest, stored.next_digest]:
            raise CheckFailed(
                f"the shares of {client!r} in the recording are not those whose digests were compared"
            )
        return body


class ReplayedTotals(RecordedTotals):
    """``RecordedTotals`` of a replay; ``resumed`` collects the totals that are loaded."""

    def __init__(self, inner: TotalView, effects: Effects, resumed: list[tuple[int, str]]) -> None:
        super().__init__(inner, effects)
        self._resumed = resumed

    def load(self, round: int, pid: int) -> RunningTotal:
        """See ``TotalView.load``."""
        total = super().load(round, pid)
        self._resumed.append((round, encode(total.commitment(self.commitment_key()))))
        return total


class ReplayedMessage(NamedTuple):
    """A message, by the fields of its record in a transcript."""

    peer: int
    label: str
    step: str
    round: int
    size: int
    digest: str


@dataclass(slots=True, repr=False)
class ReplayTransport:
    """A ``Transport`` on a recording: returns the received messages, and collects the sent ones and the openings."""

    pid: int
    recording: Recording
    costs: Costs = field(default_factory=Costs)
    sent: list[ReplayedMessage] = field(default_factory=list)
    received: list[ReplayedMessage] = field(default_factory=list)
    openings: list[tuple[str, int, str, int, str]] = field(default_factory=list)

    def component_key(self, component: int) -> bytes:
        """See ``Transport``. Raises CheckFailed if the recording lacks the key."""
        return self._key(str(component))

    def private_key(self) -> bytes:
        """See ``Transport``. Raises CheckFailed if the recording lacks the key."""
        return self._key("private")

    def _key(self, name: str) -> bytes:
        if name not in self.recording.keys:
            raise CheckFailed(f"the recording lacks key {name!r}")
        return self.recording.keys[name]

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        """See ``Transport``."""
        cost.sent_bytes += payload.size
        cost.messages += 1
        self.sent.append(self._message(peer, label, payload, cost))

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        """See ``Transport``. Raises ReplayEnded if the recording has no such message."""
        # Other tasks go on during a wait, as in a run; none is stopped before its own end because another one's came.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        if (peer, label) not in self.recording.received:
            await running_loop().end()
        payload = np.frombuffer(self.recording.received[peer, label], np.uint8)
        cost.received_bytes += payload.size
        self.received.append(self._message(peer, label, payload, cost))
        return payload

    def opened(self, opening: Opening, value: bytes) -> None:
        """See ``Transport``."""
        number = -1 if opening.round is None else opening.round
        self.openings.append((opening.step, number, opening.what, opening.count, encode(value)))

    def _message(self, peer: int, label: int, payload: Payload, cost: StepCost) -> ReplayedMessage:
        component = self.pid if peer == (self.pid - 1) % 3 else peer
        digest = message_digest(digest_key(self.component_key(component)), payload)
        number = -1 if cost.round is None else cost.round
        text = f"{label & (1 << 64) - 1:016x}"
        return ReplayedMessage(peer, text, cost.step, number, payload.size, encode(digest))


@dataclass(frozen=True, slots=True, repr=False)
class ReplayResult:
    """Result of a replay: messages and openings, ``records`` of inputs and conclusions, and resumed totals.

    ``problem`` is the reason why the protocol did not continue, "" if it did.
    """

    transport: ReplayTransport
    records: Sequence[Record] = ()
    resumed: Sequence[tuple[int, str]] = ()
    problem: str = ""


class _NoEstimator:
    """The estimator of a replay; the recording has the lead's estimates."""

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        return Estimate(np.zeros(0, np.bool_), np.zeros(0, np.uint32))


def replay_folder(folder: Path, transcripts: Path | None = None) -> str:
    """Verifies the recordings in replay/ of a server's folder.

    They are compared with the server's transcript among ``transcripts``, or with the one in ``folder``. Returns the
    sentence of a pass. Raises CheckFailure.
    """
    pid = recording_server(folder)
    if pid is None:
        raise CheckFailure(
            f"{folder / REPLAY_FOLDER} holds no recording; record_replay has to be on in a run"
        )
    transcript = _transcript(_transcript_of(folder, pid, transcripts))
    tapes = sorted((folder / REPLAY_FOLDER).glob("attempt-*.tape"))
    require(
        bool(tapes),
        f"{folder / REPLAY_FOLDER} holds no recording; record_replay has to be on in a run",
    )
    require(
        transcript.pid == pid,
        f"the recording is server {pid}'s, the transcript server {transcript.pid}'s",
    )
    # An attempt without messages may be of before an upgrade: nothing of it is recomputed.
    for each in transcript.attempts:
        made = each.opening.text("version")
        require(
            made == version() or not any(each.of("sent", "received")),
            f"the recording was made by version {made} of syncret; this is {version()}, which may send other messages",
        )
    messages, judged = 0, 0
    left = list(transcript.attempts)
    for path in tapes:
        try:
            recording = read_replay_log(path)
            playing = _run(transcript, pid, recording)
        except (CheckFailed, PartyError, OSError, ValueError) as error:
            raise CheckFailure(f"{path.name} cannot be played: {error}") from error
        attempt = _attempt_of(playing.transport, left)
        if attempt is None and playing.transport.received:
            attempt = _without_messages(left)
            require(attempt is not None, f"{path.name} belongs to no attempt of the transcript")
        if attempt is None:
            continue
        left.remove(attempt)
        _compare(playing.transport, attempt)
        _compare_records(playing.records, attempt)
        _compare_totals(playing.resumed, transcript, attempt)
        require(not playing.problem, f"{path.name} cannot be played: {playing.problem}")
        messages, judged = messages + len(playing.transport.sent), judged + 1
    unplayed = [attempt for attempt in left if any(attempt.of("sent"))]
    require(
        not unplayed, f"{len(unplayed)} attempts of server {pid} have messages and no recording"
    )
    alone = (
        ", by its own transcript, which was compared with nobody's" if transcripts is None else ""
    )
    return (
        f"Server {pid} sent what the protocol makes of its keys, its inputs and what it received: all {messages} "
        f"messages of {judged} {'mesh' if judged == 1 else 'meshes'} were recomputed{alone}."
    )


def _transcript_of(folder: Path, pid: int, transcripts: Path | None) -> Path:
    """Returns the path of the server's own transcript, or of the copy that a trial moved to the run's folder."""
    own, moved = folder / "transcript.jsonl", folder.resolve().parent.parent / "transcripts"
    if transcripts is None and not own.exists() and moved.is_dir():
        transcripts = moved
    return own if transcripts is None else transcripts / f"party-{pid}.jsonl"


def recording_server(folder: Path) -> int | None:
    """Returns the number of the server whose recording is in a folder, None if there is none."""
    try:
        return int((folder / REPLAY_FOLDER / SERVER_FILE).read_text().strip())
    except (OSError, ValueError):
        return None


def _transcript(path: Path) -> ServerTranscript:
    """Returns the well-formed transcript of any server. Raises CheckFailure."""
    (unnamed,) = load_transcripts([path])
    first = unnamed.reading.records[0] if unnamed.reading.records else None
    party = first.get("party") if first else None
    require(party in (0, 1, 2), f"{path.name} does not say whose transcript it is")
    transcript = ServerTranscript(int(str(party)), unnamed.reading)
    identity.form((transcript,))
    identity.chains((transcript,))
    return transcript


def _run(transcript: ServerTranscript, pid: int, recording: Recording) -> ReplayResult:
    """Runs the server's code on a recording to its end."""
    transport = ReplayTransport(pid, recording)
    if not recording.keys:
        return ReplayResult(transport)
    config = identity.rebuild_config(transcript)
    study = Study.of(config)
    plan = make_plan(study)
    played = ReplayedEffects(recording.inputs, pid, input_forms(study))
    lead = (
        LeadDuties(lambda study: _NoEstimator(), lambda result, study: _NOTHING)
        if pid == LEAD
        else None
    )

    async def play(directory: Path) -> None:
        played.loop = running_loop()
        closed = asyncio.Event()
        closed.set()
        with played.store(directory / "store", config.digest(), rounds=plan.rounds) as store:
            writer = played.transcript(directory / _WRITTEN, sign=bytes, header={})
            session = MpcSession(
                study=study,
                pid=pid,
                plan=plan,
                folder=ServerFolder(directory, store, writer),
                effects=played,
                progress=Progress(),
                status=RunStatus(RunInfo.of_server(config, pid)),
                control=AdmissionControl(closed),
            )
            context = Context(transport, root_path(config.run.id))
            costs = CostsFile(directory / "costs.json", transport.costs)
            try:
                await compute(session, context, costs=costs, lead=lead)
            finally:
                writer.close()

    problem = ""
    with tempfile.TemporaryDirectory() as name:
        try:
            with asyncio.Runner(loop_factory=ReplayLoop) as runner:
                runner.run(play(Path(name)))
        except ReplayEnded:
            pass
        except ProtocolViolation as error:
            # The violation may follow from this server's own messages, which are compared first.
            problem = f"the protocol does not go on with it: {error}"
        except ProtocolError as error:
            raise CheckFailed(f"the protocol does not go on with it: {error}") from error
        return ReplayResult(
            transport, _transcript_conclusions(Path(name) / _WRITTEN), played.resumed, problem
        )


def _transcript_conclusions(path: Path) -> list[Record]:
    """Returns a transcript's records on counted owners and notes, without times; none if there is no file."""
    records = read(path).records if path.exists() else ()
    return [_timeless(r) for r in records if r is not None and r["kind"] in _CONCLUSIONS]


def _timeless(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "t"}


def _attempt_of(
    transport: ReplayTransport, attempts: Sequence[TranscriptAttempt]
) -> TranscriptAttempt | None:
    """Returns the attempt with a recording's messages; labels repeat in another mesh, digests never do."""
    digests = {message.digest for message in (*transport.received, *transport.sent)}
    for attempt in attempts:
        if any(entry.text("digest") in digests for entry in attempt.of("received", "sent")):
            return attempt
    return None


def _without_messages(attempts: Sequence[TranscriptAttempt]) -> TranscriptAttempt | None:
    """Returns an attempt that may have had messages which its transcript lost when the server was killed."""
    silent = (a for a in attempts if not a.clean and not any(a.of("sent", "received")))
    return next(silent, None)


def _transcript_message(entry: TranscriptEntry) -> ReplayedMessage:
    return ReplayedMessage(
        entry.number("peer"),
        entry.text("label"),
        entry.text("step"),
        entry.number("round"),
        entry.number("bytes"),
        entry.text("digest"),
    )


def _compare(transport: ReplayTransport, attempt: TranscriptAttempt) -> None:
    for kind, played in (("sent", transport.sent), ("received", transport.received)):
        written = [_transcript_message(entry) for entry in attempt.of(kind)]
        where, computed = f"server {attempt.pid}", set(played)
        for message in written:
            when = f" of round {message.round}" if message.round >= 0 else ""
            require(
                message in computed,
                f"{where} {kind} in step {message.step}{when} a message (label {message.label}) that is not what "
                "the protocol makes of its recording",
            )
        missing = computed.difference(written)
        require(
            not missing or not attempt.clean,
            f"{where}'s transcript lacks {len(missing)} messages that its recording has {kind}",
        )
    openings = [
        (e.text("step"), e.number("round"), e.text("what"), e.number("count"), e.text("value"))
        for e in attempt.of("opened")
    ]
    same = transport.openings[: len(openings)] == openings
    require(
        same, f"server {attempt.pid} opened something else than the protocol makes of its recording"
    )


def _compare_records(played: Sequence[Record], attempt: TranscriptAttempt) -> None:
    """Compares submissions, totals and choices with the transcript; in a broken attempt up to the break."""
    written = list(attempt.of(*_CONCLUSIONS))
    for entry, record in zip(written, played, strict=False):
        require(
            _timeless(entry.record) == record,
            f"the {entry.kind} in line {entry.line} of server {attempt.pid}'s transcript is not what the protocol "
            "makes of its recording",
        )
    lacking = len(played) - len(written)
    require(
        lacking == 0 or (lacking > 0 and not attempt.clean),
        f"server {attempt.pid} wrote down {len(written)} conclusions; its recording makes {len(played)}",
    )


def _compare_totals(
    resumed: Sequence[tuple[int, str]], transcript: ServerTranscript, attempt: TranscriptAttempt
) -> None:
    """Verifies, by its commitment, that a total from before a restart is one of an earlier attempt."""
    earlier = transcript.attempts[: transcript.attempts.index(attempt)]
    committed = {
        (note.number("round"), note.text("commitment"))
        for each in earlier
        for note in each.notes(TOTAL.what)
    }
    for number, commitment in resumed:
        require(
            (number, commitment) in committed,
            f"server {attempt.pid} went on with a total of round {number} that it had not committed to before",
        )
