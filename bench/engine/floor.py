"""The floor of a measurement: the time that the same bytes take without a protocol, on this machine, in this run.

The three party processes call ``measure`` side by side after the task with its ``Load``, so that they share the
processors as the protocol's processes do. Each part is the median of a few repetitions at this party:

- ``keystream``: AES-128-CTR, two streams for each byte sent (a zero share), besides the task's own expansion;
- ``memory``: one pass (read and write) over the input, the keystream and the bytes sent and received;
- ``hash``: BLAKE3 of the bytes sent and received, which the transcript asks for;
- ``frames``: AES-128-CTR over the bytes sent and received, which keeps recorded links closed after TLS;
- ``socket``: the bytes through blocking TLS 1.3 sockets, each party sending to the one before while it receives;
- ``rounds``: as many rounds of a tiny message.

A protocol may overlap these parts, and with less traffic the floor is lower: it is a yardstick, not a bound.
Benchmark data is public.
"""

import socket
import ssl
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from protocols.mesh import TlsFiles

PARTS = ("keystream", "memory", "hash", "frames", "socket", "rounds")
_REPEAT = 7
_BLOCK = 1 << 20
_ROUNDS_TIMED = 20
_TINY = 64
_RETRY_S = 0.05
_CONNECT_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a task at the mean party: bytes of keystream, bytes of memory, bytes sent, and rounds."""

    keystream: int
    memory: int
    sent: int
    rounds: int


def load(*, sent: int, rounds: int, held: int, drawn: int) -> Load:
    """Returns the load of ``sent`` bytes in ``rounds`` rounds, ``held`` bytes of input, ``drawn`` more of keystream."""
    keystream = drawn + 2 * sent
    return Load(keystream, held + keystream + 2 * sent, sent, rounds)


class Ring:
    """Blocking TLS sockets around the three parties: to the party before, from the party after."""

    def __init__(self, pid: int, view: list[tuple[str, int]], tls: TlsFiles) -> None:
        listener = socket.create_server(view[pid])
        listener.settimeout(_CONNECT_S)
        accepted: list[ssl.SSLSocket] = []

        def accept() -> None:
            raw, _ = listener.accept()
            raw.settimeout(None)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.append(tls.context(server=True).wrap_socket(raw, server_side=True))

        thread = threading.Thread(target=accept)
        thread.start()
        self._before = _dial(view[(pid - 1) % 3], tls)
        thread.join()
        listener.close()
        self._after = accepted[0]

    def close(self) -> None:
        """Closes both connections."""
        self._before.close()
        self._after.close()

    def step(self, size: int) -> None:
        """Sends ``size`` bytes while receiving as many."""
        if size <= _TINY:
            self._before.sendall(bytes(size))
            self._fill(bytearray(size))
            return
        sender = threading.Thread(target=self._send, args=(size,))
        sender.start()
        block = bytearray(_BLOCK)
        for start in range(0, size, _BLOCK):
            self._fill(memoryview(block)[: min(_BLOCK, size - start)])
        sender.join()

    def _send(self, size: int) -> None:
        block = memoryview(bytes(_BLOCK))
        for start in range(0, size, _BLOCK):
            self._before.sendall(block[: min(_BLOCK, size - start)])

    def _fill(self, buffer: bytearray | memoryview) -> None:
        view, done = memoryview(buffer), 0
        while done < len(view):
            step = self._after.recv_into(view[done:])
            if step == 0:
                raise ConnectionError("the party after this one has left the ring")
            done += step


def _dial(address: tuple[str, int], tls: TlsFiles) -> ssl.SSLSocket:
    deadline = time.monotonic() + _CONNECT_S
    while True:
        try:
            raw = socket.create_connection(address, timeout=_CONNECT_S)
            raw.settimeout(None)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return tls.context(server=False).wrap_socket(raw)
        except OSError:
            # The peer does not listen yet.
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def _keystream(size: int) -> None:
    encryptor = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor()
    zeros, out = bytes(_BLOCK), bytearray(_BLOCK + 15)
    for start in range(0, size, _BLOCK):
        encryptor.update_into(memoryview(zeros)[: min(_BLOCK, size - start)], out)


def _hash(size: int) -> None:
    block, digest = memoryview(bytes(_BLOCK)), blake3()
    for start in range(0, size, _BLOCK):
        digest.update(block[: min(_BLOCK, size - start)])


def measure(pid: int, view: list[tuple[str, int]], tls: TlsFiles, work: Load) -> dict[str, float]:
    """Measures seconds of each of ``PARTS`` at this party. Blocks; the other two parties have to call it too.

    Raises OSError if the ring breaks.
    """
    ring = Ring(pid, view, tls)
    # One pass over memory; large sizes exceed every cache.
    source = np.ones(max(1, min(work.memory, 1 << 27)) // 8 + 1, np.uint64)
    target = np.empty_like(source)

    def memory() -> None:
        for start in range(0, work.memory, source.nbytes):
            count = min(source.nbytes, work.memory - start) // 8
            np.copyto(target[:count], source[:count])

    def rounds() -> None:
        for _ in range(_ROUNDS_TIMED):
            ring.step(_TINY)

    try:
        round_s = _timed(ring, rounds) / _ROUNDS_TIMED if work.rounds else 0.0
        # The bytes travel in rounds, whose delay belongs to the part ``rounds``.
        sent_s = _timed(ring, lambda: ring.step(work.sent)) - round_s if work.sent else 0.0
        return {
            "keystream": _timed(ring, lambda: _keystream(work.keystream)),
            "memory": _timed(ring, memory),
            "hash": _timed(ring, lambda: _hash(2 * work.sent)),
            # Each byte is encrypted at its sender and decrypted at its receiver.
            "frames": _timed(ring, lambda: _keystream(2 * work.sent)),
            "socket": max(0.0, sent_s),
            "rounds": round_s * work.rounds,
        }
    finally:
        ring.close()


def _timed(ring: Ring, part: Callable[[], None]) -> float:
    seconds = []
    for _ in range(_REPEAT):
        # Twice around the ring: then everyone has arrived.
        ring.step(1)
        ring.step(1)
        started = time.perf_counter()
        part()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
