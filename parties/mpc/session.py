"""One attempt of a compute server at a run: all that it has open, and how it closes.

``open_session`` opens store, ledger, release registry, transcript and run status, and closes them with a reason. When
all three servers are done, it deletes the run's secrets (`parties.mpc.outputs`). A replay
(`parties.audit.replay`) makes its own ``MpcSession``. Secret: the store's shares and the certificate's key.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mechanisms.accounting import Schedule
from mechanisms.errors import MechanismError
from parties.config import CertificateFiles, Config
from parties.config.diff import agreed_bytes
from parties.foundation.exit_codes import TooFewClients
from parties.identity.tls import authority_bytes, check_pinned_identity, check_seal
from parties.mpc.agreement import run_identity
from parties.mpc.outputs import STORE_FOLDER, check_open, discard_secrets, has_store
from parties.mpc.participants.control import AdmissionControl
from parties.mpc.planning.resources import server_memory
from parties.mpc.planning.validation import check_memory, validate_run
from parties.mpc.progress_text import observe_store
from parties.mpc.replay.effects import Effects
from parties.mpc.replay.log import REPLAY_FOLDER, WARNING, ReplayLog
from parties.mpc.replay.recorder import RecordedEffects
from parties.mpc.server_folder import ServerFolder, open_transcript
from parties.mpc.storage.run_state import RHO
from parties.mpc.submission.sealed_upload import signer_key
from parties.observability.events import Progress
from parties.observability.status import RunStatus
from parties.session.study import Study
from parties.storage.files import disk_errors
from parties.storage.release_registry import RegisteredFolder, SignedInputs, StudyRegistration
from protocols.errors import ProtocolError


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MpcSession:
    """One attempt of server ``pid`` at a run of ``study``.

    Attributes:
        study: The study as the three servers have agreed on it, before private bins are measured.
        plan: Division of the budget, with the state of this attempt.
        effects: All that decides messages besides keys and received messages.
        control: Decisions from outside on participants.
        authority: Certificate (DER) of the authority that admits participants. In a replay: the recorded one.
        registration: The study in the release registry; may refuse a charge. A replay has none.
    """

    study: Study
    pid: int
    plan: Schedule
    folder: ServerFolder
    effects: Effects
    progress: Progress
    status: RunStatus
    control: AdmissionControl
    authority: bytes = b""
    registration: StudyRegistration | None = None

    @property
    def names(self) -> list[str]:
        """Names of the three servers."""
        return [party.name for party in self.study.config.require_parties()]

    def record_resume(self) -> None:
        """Registers the charges that any of the three servers has, before any other. Raises StudyReleased."""
        if self.registration is not None:
            self.registration.resume(len(self.folder.charges))

    def record_release(self, clients: Collection[str]) -> None:
        """Registers the ``clients`` of a release, and the charges so far, before its opening. Raises StudyReleased."""
        if self.registration is not None:
            inputs = partial(self._signed_inputs, clients)
            self.registration.release(clients, len(self.folder.charges), inputs=inputs)

    def _signed_inputs(self, clients: Collection[str]) -> SignedInputs:
        """Returns the uploads that the ``clients`` of a release have signed, for their questions in later studies."""
        uploads = self.folder.store.submissions.signed(clients)
        return SignedInputs(
            agreed_bytes(self.study.config).decode(), [(signer_key(text), text) for text in uploads]
        )


def server_files(config: Config, pid: int, directory: Path | None = None) -> CertificateFiles:
    """Certificate files of server ``pid``, verified. Raises ConfigError, CertificateError.

    The sealing key may be missing if ``directory`` holds a store: that of a run that has ended.
    """
    party, role = config.require_parties()[pid], f"party {pid}"
    files = check_pinned_identity(config.require_tls(pid), party.pinned, role)
    if files.seal.exists() or directory is None or not has_store(directory):
        check_seal(files, party.seal_to, role)
    return files


@contextlib.contextmanager
def open_session(
    config: Config,
    pid: int,
    directory: Path,
    files: CertificateFiles,
    *,
    register: Path,
    control: AdmissionControl,
    progress: Progress,
    status: RunStatus,
) -> Iterator[MpcSession]:
    """Opens the attempt of server ``pid`` in ``directory``, and closes it with the reason for which the block ends.

    ``files`` are those of ``server_files``, ``register`` is the file of the release registry. Raises ConfigError,
    CertificateError, StoreError (with StudyReleased if another folder has released this configuration).
    """
    study = Study.of(config)
    plan = validate_run(study)
    check_memory(config, server_memory(study, pid), "this server")
    with (
        _make_effects(config, pid, directory, progress) as effects,
        effects.store(directory / STORE_FOLDER, config.digest(), rounds=plan.rounds) as store,
    ):
        check_open(store)
        control.commands.keep_in(store)
        registered = RegisteredFolder.of_server(config, pid, store.identity, directory)
        registration = StudyRegistration.begin(register, registered)
        store.submissions.admit = registration.check_client
        store.set_meta(RHO, repr(plan.rho))
        before = store.state.ended
        if before:
            # A kill may have interrupted the deletion.
            discard_secrets(store, files, registration, progress=progress)
        else:
            server_files(config, pid)
        transcript = open_transcript(
            directory, files, run_identity(study), config=config, pid=pid, effects=effects
        )
        session = MpcSession(
            study=study,
            pid=pid,
            plan=plan,
            folder=ServerFolder(directory, store, transcript),
            effects=effects,
            progress=progress,
            status=status,
            control=control,
            authority=authority_bytes(files),
            registration=registration,
        )
        observe_store(status, store, session.names, rho=plan.rho, enrolled=config.owners)
        control.observe(status, session.names)
        try:
            with disk_errors(directory):
                yield session
                transcript.close()
        except BaseException as error:
            with contextlib.suppress(OSError, ValueError):
                transcript.close(f"failed: {goodbye_reason(error)}")
            raise
        finally:
            # The run has ended, even if a connection failed after that.
            if store.state.ended and not before:
                discard_secrets(store, files, registration, progress=progress)
            status.freeze()


@contextlib.contextmanager
def _make_effects(
    config: Config, pid: int, directory: Path, progress: Progress
) -> Iterator[Effects]:
    """The server's effects; with ``record_replay`` they are recorded in a replay log. Raises StoreError."""
    if not config.run.record_replay:
        yield Effects()
        return
    progress.event("recording", "WARNING: " + WARNING.format(folder=directory / REPLAY_FOLDER))
    with disk_errors(directory):
        log = ReplayLog(directory, pid)
    try:
        yield RecordedEffects(log)
    finally:
        with disk_errors(directory):
            log.close()


def goodbye_reason(error: BaseException) -> str:
    """Reason for peers: the full message of errors made for them, only the class of any other error."""
    for_peers = (ProtocolError, MechanismError, TooFewClients)
    if isinstance(error, asyncio.CancelledError):
        return "it was stopped"
    return str(error) if isinstance(error, for_peers) else f"it failed ({type(error).__name__})"
