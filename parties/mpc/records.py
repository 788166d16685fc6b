"""Records that a `parties.mpc.storage.store.Store` keeps of a run: submissions, running totals, checkpoints.

Plain values, checked when made. Secret: the share in a ``RunningTotal`` (its repr shows sizes only). Public:
checkpoints, which servers send one another when they resume; ``to_dict`` and ``from_dict`` are exact over JSON.
"""

import base64
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from parties.mpc.exclusion import Exclusion
from parties.mpc.submission.messages import Submission
from protocols.digests import DIGEST_BYTES, message_digest
from protocols.ring import R32
from protocols.shares import Share

_DIGEST = re.compile("[0-9a-f]{64}")


def _is_natural(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True)
class StoredSubmission:
    """A stored ``submission`` of ``size`` bytes; its three digests are packed, in the order of the properties below.

    ``upload`` is the hex digest that the participant signed, the same at all three servers. ``own_digest`` and
    ``next_digest`` are the digests of the two components; the neighbours that hold the same component compare them
    pairwise (``protocols.upload``). ``received_at`` is in seconds since the epoch. Packing keeps a batch of submissions
    small in memory.
    """

    submission: Submission
    upload: str
    packed: bytes = field(repr=False)
    size: int
    received_at: float

    @classmethod
    def of(
        cls,
        submission: Submission,
        upload: str,
        body_digest: str,
        own_digest: str,
        next_digest: str,
        size: int,
        received_at: float,
    ) -> "StoredSubmission":
        """Builds a submission from a row of the store or of a replay log, with digests in hex."""
        packed = bytes.fromhex(body_digest + own_digest + next_digest)
        return cls(submission, upload, packed, size, received_at)

    @property
    def body_digest(self) -> str:
        """Digest of the body in hex; empty once the body has been deleted."""
        return self.packed[: -2 * DIGEST_BYTES].hex()

    @property
    def own_digest(self) -> str:
        """Digest of this server's own component in hex; empty once the body has been deleted."""
        return self.packed[-2 * DIGEST_BYTES : -DIGEST_BYTES].hex()

    @property
    def next_digest(self) -> str:
        """Digest of the next server's component in hex; empty once the body has been deleted."""
        return self.packed[-DIGEST_BYTES:].hex()


@dataclass(frozen=True, slots=True)
class ParticipantRecord:
    """Outcome of a client's submission ``digest`` in ``round``: counted, or ``excluded`` for a reason.

    ``by`` are the servers that give the reason, or that lack the submission.
    """

    client: str
    digest: str
    round: int
    excluded: Exclusion | None = None
    by: tuple[int, ...] = ()

    @classmethod
    def from_row(
        cls, client: str, digest: str, round: int, excluded: str | None, servers: str
    ) -> "ParticipantRecord":
        """Builds a record from a row of the store's table ``participant_record``."""
        reason = None if excluded is None else Exclusion(excluded)
        return cls(client, digest, round, reason, tuple(json.loads(servers)))

    def to_dict(self) -> dict[str, object]:
        """JSON form; ``excluded`` and ``by`` are present only if the client is excluded."""
        document: dict[str, object] = {
            "client": self.client,
            "digest": self.digest,
            "round": self.round,
        }
        if self.excluded is not None:
            document |= {"excluded": self.excluded.value, "by": list(self.by)}
        return document


def status_answer(record: ParticipantRecord | None, *, closed: bool) -> dict[str, object]:
    """A server's answer to a client's status request: ``counted``, in which ``round``, or ``excluded`` with the reason.

    The answer is neither while the servers wait for the client, which ends when the run is ``closed`` to clients.
    """
    if record is None or (record.excluded is Exclusion.INCOMPLETE and not closed):
        return {"counted": False, "round": None, "excluded": None}
    reason = record.excluded
    return {
        "counted": reason is None,
        "round": record.round,
        "excluded": None if reason is None else reason.value,
    }


CountedMember: TypeAlias = tuple[str, str]
"""A client in a total, and the digest of its upload there."""


def members_digest(members: Iterable[CountedMember]) -> str:
    """Hex SHA-256 of a total's members, in the total's order."""
    digest = hashlib.sha256()
    for member in members:
        digest.update(json.dumps(member).encode() + b"\n")
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class RunningTotal:
    """Running total after ``round``: this server's share of the counts of ``members``, R32 (maximal cells,).

    ``members`` need not be in memory: a collection that can be counted and iterated in the order of admission is
    enough.
    """

    round: int
    share: Share
    members: Collection[CountedMember] = ()

    def __post_init__(self) -> None:
        if self.share.ring is not R32 or len(self.share.shape) != 1:
            raise ValueError("a total is a vector of counts mod 2^32")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(round={self.round}, clients={len(self.members)}, cells={self.share.size})"

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(client for client, _ in self.members)

    def commitment(self, key: bytes) -> bytes:
        """Commitment (32 bytes) to round, members and share; reveals nothing without the ``key`` (32 bytes).

        Without a key, a server that holds the third component could test guesses of the counts.
        """
        components = (self.share.own, self.share.next)
        digests = b"".join(message_digest(key, R32.to_wire(component)) for component in components)
        members = json.dumps([self.round, members_digest(self.members)]).encode()
        return message_digest(key, np.frombuffer(members + digests, np.uint8))

    @classmethod
    def empty(cls, round: int, pid: int, cells: int) -> "RunningTotal":
        """Builds the total of no members: every component is zero."""
        return cls(round, Share(R32, pid, R32.zeros((cells,)), R32.zeros((cells,))))


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """Inputs of a round, as the servers record them before the round's first charge.

    ``digest`` (hex) stands for the inputs. ``noise`` (hex) names the noise that was made before the inputs were known:
    that of round 0, or that of a selection. A selection takes its samples from ``made`` in all, after skipping ``skip``
    others.
    """

    round: int
    digest: str
    noise: str
    made: int = 0
    skip: int = 0

    def __post_init__(self) -> None:
        if not (_is_natural(self.round) and _is_natural(self.made) and _is_natural(self.skip)):
            raise ValueError("not a round's inputs: round, made and skip are whole numbers")
        for text in (self.digest, self.noise):
            if not _DIGEST.fullmatch(str(text)):
                raise ValueError("not a round's inputs: digest and noise are SHA-256 in hex")

    def to_list(self) -> list[object]:
        """JSON form for a peer."""
        return [self.round, self.digest, self.noise, self.made, self.skip]

    @classmethod
    def from_list(cls, value: object) -> "RoundInputs":
        """Parses a peer's ``to_list``. Raises ValueError on anything else."""
        if not (isinstance(value, list) and len(value) == 5):
            raise ValueError("not a round's inputs: a list of five")
        return cls(*value)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A released measurement: ``noisy`` float64 (cells of ``candidate``,) with deviation ``sigma``, of ``clients``."""

    round: int
    candidate: int
    sigma: float
    clients: int
    noisy: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.noisy.dtype != np.float64 or self.noisy.ndim != 1:
            raise ValueError("noisy counts are a float64 vector")

    def to_dict(self) -> dict[str, object]:
        """JSON form for a peer; exact."""
        noisy = base64.b64encode(self.noisy.astype("<f8").tobytes()).decode("ascii")
        return {
            "round": self.round,
            "candidate": self.candidate,
            "sigma": self.sigma,
            "clients": self.clients,
            "noisy": noisy,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> "Checkpoint":
        """Parses a peer's ``to_dict``. Raises ValueError on anything else."""
        number, candidate, clients = (value.get(k) for k in ("round", "candidate", "clients"))
        sigma, noisy = value.get("sigma"), value.get("noisy")
        if not (_is_natural(number) and _is_natural(candidate) and _is_natural(clients)):
            raise ValueError("not a checkpoint: round, candidate and clients are whole numbers")
        if not (isinstance(sigma, float) and isinstance(noisy, str) and len(value) == 5):
            raise ValueError("not a checkpoint: sigma is a number and noisy is text")
        data = np.frombuffer(base64.b64decode(noisy, validate=True), dtype="<f8")
        return cls(number, candidate, sigma, clients, data.astype(np.float64))
