"""A compute server's side of the mesh: its runtime, its recorder of messages, and the refusal of keyless peers.

Secret: the sealing key. Public: messages' digests and openings.
"""

import asyncio
from pathlib import Path

from parties.config import CertificateFiles, Config
from parties.crypto.hpke import SealKey
from parties.foundation.errors import StoreError
from parties.foundation.version import version_line
from parties.mpc.server_folder import ServerFolder
from parties.network.port_sharing import SharedPorts, study_sni_name
from parties.observability.events import OnRejection, Rejection
from parties.storage.files import disk_errors
from protocols.context import Transport
from protocols.errors import ProtocolViolation
from protocols.mesh import TlsFiles
from protocols.pairing import Seals
from protocols.runtime import PartyRuntime
from protocols.sealing import BoxKey
from protocols.transcript import Transcript


class _MeshTranscript:
    """Transcript for the mesh's threads: a full disk ends the run instead of one thread."""

    def __init__(self, directory: Path, transcript: Transcript) -> None:
        self._transcript = transcript
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self.runtime: PartyRuntime | None = None

    def message(
        self,
        *,
        step: str,
        round: int | None,
        direction: str,
        peer: int,
        label: int,
        size: int,
        digest: bytes,
    ) -> None:
        """See ``protocols.runtime.Recorder``."""
        try:
            with disk_errors(self._directory):
                self._transcript.message(
                    step=step,
                    round=round,
                    direction=direction,
                    peer=peer,
                    label=label,
                    size=size,
                    digest=digest,
                )
        except StoreError as error:
            if self.runtime is not None:
                self._loop.call_soon_threadsafe(self.runtime.fail, error)

    def opened(self, *, step: str, round: int | None, what: str, count: int, value: bytes) -> None:
        """See ``protocols.runtime.Recorder``."""
        self._transcript.opened(step=step, round=round, what=what, count=count, value=value)


class KeylessPeers:
    """Peers whose sealing key is not the pinned one: a finished run has deleted its key, and may still be met."""

    def __init__(self) -> None:
        self._found: dict[int, ProtocolViolation] = {}

    def add(self, violation: ProtocolViolation) -> None:
        """Registers a keyless peer."""
        self._found[violation.pid] = violation

    def check(self) -> None:
        """Raises ProtocolViolation if there is a keyless peer."""
        for violation in self._found.values():
            raise violation


class KeyGuardedTransport:
    """``Transport`` that wraps ``inner`` and refuses keys if a peer is keyless, so that no shares are computed on."""

    def __init__(self, inner: Transport, keyless: KeylessPeers) -> None:
        self._inner, self._keyless = inner, keyless
        self.pid, self.costs = inner.pid, inner.costs
        self.private_key, self.opened = inner.private_key, inner.opened
        self.post, self.fetch = inner.post, inner.fetch

    def component_key(self, component: int) -> bytes:
        """See ``Transport``. Raises ProtocolViolation."""
        self._keyless.check()
        return self._inner.component_key(component)


def sealing_keys(config: Config, files: CertificateFiles, *, ended: bool) -> Seals:
    """Keys for the mesh; a server whose run is over gets a fresh key, enough to report the end of the run."""
    first, second, third = (party.seal_to for party in config.require_parties())
    kept = files.seal.exists() or not ended
    return Seals((first, second, third), SealKey.load(files.seal) if kept else BoxKey.generate())


def make_runtime(
    config: Config,
    pid: int,
    files: CertificateFiles,
    *,
    folder: ServerFolder,
    ports: SharedPorts | None,
    rejected: OnRejection,
    keyless: KeylessPeers,
) -> PartyRuntime:
    """Runtime of server ``pid``, not connected yet; its messages go into the transcript in ``folder``."""
    parties = config.require_parties()
    first, second, third = (party.pinned for party in parties)
    recorder = _MeshTranscript(folder.directory, folder.transcript)
    recorder.runtime = PartyRuntime(
        pid,
        [(party.mesh.host, party.mesh.port) for party in parties],
        tls=TlsFiles(
            files.ca,
            files.cert,
            files.key,
            (first.name, second.name, third.name),
            (first.key, second.key, third.key),
        ),
        seals=sealing_keys(config, files, ended=folder.store.state.ended),
        session=config.run.id,
        timeout_s=config.timeouts.receive_s,
        connect_timeout_s=config.timeouts.connect_s,
        binding=config.digest(),
        version=version_line(),
        recorder=recorder,
        inlet=None if ports is None else ports.mesh,
        on_other_seal=keyless.add,
        on_stranger=lambda text: rejected(Rejection.UNKNOWN_PEER, f"mesh: {text}"),
        server_name=study_sni_name(config.digest()),
    )
    return recorder.runtime
