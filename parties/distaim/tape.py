"""What a server's messages depend on, kept for a replay: its keys, what it received, and what it took from elsewhere.

Provides ``Tape`` (an ``Inputs`` that writes what it is asked for to a file), ``TapedTransport`` and ``KeptStore``,
through which the rest gets there, ``TapedTranscript`` and ``read_tape``. SECRET: a tape holds the server's keys, its
shares of every client's counts and all that it received; together with another server's tape it gives away the data.
It is made for an auditor who may see one server's share, and only where ``record_replay`` asks for it.

Representation: a magic line, then items: kind (1 byte), length of the name (2), length of the value (8), both. Names of
received messages are "peer/label". Every item is in the file before it is used, and on the disk before the transcript's
records of what came of it are: of a server that was killed, the tape tells at least as much as the transcript.
"""

import json
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parties.distaim.agreement import apply_state, state_of
from parties.distaim.circumstances import Inputs
from parties.distaim.store import Store
from parties.distaim.stored import StoredSubmission, Total
from parties.distaim.submission import Submission
from protocols.context import Opening, Payload, StepCost, Transport
from protocols.errors import CheckFailed
from protocols.transcript import Transcript, Value

FOLDER, SERVER = "replay", "server.txt"
WARNING = (
    "record_replay is on: this server keeps its keys, its shares of every client's counts and everything it receives "
    "in {folder}. Two servers' recordings together are the data. Give it to nobody but an auditor who may see this "
    "server's share, and delete it afterwards."
)
_MAGIC = b"syncret tape 1\n"
_ITEM = struct.Struct("<cHQ")
_INPUT, _KEY, _RECEIVED = b"i", b"k", b"r"


class Tape(Inputs):
    """An ``Inputs`` that writes a file in ``directory`` / replay, for the owner's eyes only. Raises OSError."""

    def __init__(self, directory: Path, pid: int) -> None:
        self.folder = directory / FOLDER
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / "WARNING.txt").write_text(WARNING.format(folder="this folder") + "\n")
        (self.folder / SERVER).write_text(f"{pid}\n")
        path = self.folder / f"attempt-{time.time_ns():020d}.tape"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._file.write(_MAGIC)
        self._file.flush()

    def __repr__(self) -> str:
        return "Tape(...)"

    def keep(self, name: str, take: Callable[[], bytes]) -> bytes:
        """See ``Inputs.keep``."""
        value = take()
        self._write(_INPUT, name, value)
        return value

    def key(self, name: str, value: bytes) -> None:
        """A key of this server's."""
        self._write(_KEY, name, value)

    def received(self, peer: int, label: int, payload: Payload) -> None:
        """A message that this server received."""
        self._write(_RECEIVED, f"{peer}/{label}", payload.tobytes())

    def sync(self) -> None:
        """Put everything so far on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close."""
        self._file.close()

    def _write(self, kind: bytes, name: str, value: bytes) -> None:
        encoded = name.encode()
        self._file.write(_ITEM.pack(kind, len(encoded), len(value)) + encoded)
        self._file.write(value)
        self._file.flush()


class TapedTranscript(Transcript):
    """A ``Transcript`` that is on the disk no sooner than what ``tape`` holds by then."""

    def __init__(
        self,
        path: Path,
        *,
        sign: Callable[[bytes], bytes],
        header: Mapping[str, Value],
        tape: Tape,
    ) -> None:
        self._tape = tape
        super().__init__(path, sign=sign, header=header)

    def flush(self) -> None:
        """See ``Transcript.flush``."""
        self._tape.sync()
        super().flush()


class TapedTransport:
    """A ``Transport`` that is ``inner`` and notes on a tape which keys it gives out and what arrives."""

    def __init__(self, inner: Transport, tape: Tape) -> None:
        self._inner = inner
        self._tape = tape
        self.pid = inner.pid
        self.costs = inner.costs

    def keep_keys(self) -> None:
        """Note the keys, once the mesh is there."""
        for component in (self.pid, (self.pid + 1) % 3):
            self._tape.key(str(component), self._inner.component_key(component))
        self._tape.key("private", self._inner.private_key())

    def component_key(self, component: int) -> bytes:
        """See ``Transport``."""
        return self._inner.component_key(component)

    def private_key(self) -> bytes:
        """See ``Transport``."""
        return self._inner.private_key()

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        """See ``Transport``."""
        self._inner.post(peer, label, payload, cost)

    async def fetch(self, peer: int, label: int, cost: StepCost) -> Payload:
        """See ``Transport``."""
        payload = await self._inner.fetch(peer, label, cost)
        self._tape.received(peer, label, payload)
        return payload

    def opened(self, opening: Opening, value: bytes) -> None:
        """See ``Transport``."""
        self._inner.opened(opening, value)


class KeptStore(Store):
    """A store whose answers that depend on time, and on what was there before, go through ``Inputs``."""

    def __init__(self, directory: Path, config_digest: str, inputs: Inputs, rounds: int) -> None:
        super().__init__(directory, config_digest)
        self._inputs = inputs
        state = inputs.keep_json("state", lambda: state_of(self, rounds))
        apply_state(self, state, pid=-1, rounds=rounds)

    def submissions(self, up_to_round: int | None = None) -> list[StoredSubmission]:
        """See ``Store.submissions``."""
        rows = self._inputs.keep_json(
            "submissions",
            lambda: [
                [s.submission.canonical(), s.body_digest, s.own_digest, s.next_digest, s.size, s.received_at]
                for s in super(KeptStore, self).submissions(up_to_round)
            ],
        )  # fmt: skip
        return [StoredSubmission(Submission.from_canonical(row[0]), *row[1:]) for row in rows]

    def read_submission(self, client: str) -> bytes:
        """See ``Store.read_submission``."""
        return self._inputs.keep(
            f"body of {client}", lambda: super(KeptStore, self).read_submission(client)
        )

    def total_rounds(self) -> list[int]:
        """See ``Store.total_rounds``."""
        rounds: list[int] = self._inputs.keep_json(
            "rounds of totals", lambda: super(KeptStore, self).total_rounds()
        )
        return rounds

    def load_total(self, round: int) -> Total:
        """See ``Store.load_total``."""
        name = f"total of round {round}"
        data = self._inputs.keep(
            name, lambda: _total_bytes(super(KeptStore, self).load_total(round))
        )
        return _total_from(data, round)


def _total_bytes(total: Total) -> bytes:
    clients = json.dumps(total.clients).encode()
    parts = (total.own.astype("<u4").tobytes(), total.next.astype("<u4").tobytes())
    return struct.pack("<Q", len(clients)) + clients + b"".join(parts)


def _total_from(data: bytes, round: int) -> Total:
    (size,) = struct.unpack_from("<Q", data)
    clients = json.loads(data[8 : 8 + size])
    own, next_ = np.frombuffer(data[8 + size :], "<u4").astype(np.uint32).reshape(2, -1)
    return Total(round, tuple(clients), own, next_)


@dataclass(frozen=True, slots=True, repr=False)
class Recording:
    """A tape as read: inputs in order, keys by name, received payloads by peer and label. Secret."""

    inputs: Sequence[tuple[str, bytes]]
    keys: Mapping[str, bytes]
    received: Mapping[tuple[int, int], bytes]


def read_tape(path: Path) -> Recording:
    """What a tape holds up to where it breaks off. Raises CheckFailed where it is no tape, OSError."""
    data = memoryview(path.read_bytes())
    first = bytes(data[: len(_MAGIC)])
    if not _MAGIC.startswith(first):
        raise CheckFailed(f"{path} is not a recording for a replay")
    inputs: list[tuple[str, bytes]] = []
    keys: dict[str, bytes] = {}
    received: dict[tuple[int, int], bytes] = {}
    place = len(_MAGIC)
    while place + _ITEM.size <= len(data):
        kind, name_size, size = _ITEM.unpack_from(data, place)
        place += _ITEM.size
        if place + name_size + size > len(data):
            break
        name = bytes(data[place : place + name_size]).decode()
        value = bytes(data[place + name_size : place + name_size + size])
        place += name_size + size
        if kind == _RECEIVED:
            peer, _, label = name.partition("/")
            received[int(peer), int(label)] = value
        elif kind == _KEY:
            keys[name] = value
        else:
            inputs.append((name, value))
    return Recording(inputs, keys, received)
