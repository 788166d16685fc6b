"""Noise keys of the three servers: those that they have, or the mesh's own if there are none yet.

Two servers hold the key of a component. A key lives as long as the study: with other keys, openings that were charged
would have other noise, and one server could draw again by claiming that it lost its keys. So a server that has recorded
a round's inputs goes on with the keys that it has, or not at all. Keys come from the coin flip of the mesh that they
were made in (`protocols.pairing`), apart from its masks.

Secret: keys. Public: commitments, which are SHA-256 of 128 random bits and more.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from protocols.context import Context, NoiseKeys
from protocols.errors import CheckFailed, ProtocolViolation
from protocols.keystream import KEY_BYTES

_COMMITMENT = b"syncret noise commitment 1\n"
_NO_KEYS = NoiseKeys(bytes(KEY_BYTES), bytes(KEY_BYTES), bytes(KEY_BYTES))
"""Placeholder for missing keys; nothing is opened then."""


def _commitment(key: bytes) -> str:
    return hashlib.sha256(_COMMITMENT + key).hexdigest()


@dataclass(frozen=True, slots=True)
class KeysClaim:
    """Commitments to a server's keys of its two components: those that it has, if any, and the mesh's own.

    A mesh has no keys of its own if the run is over at a server, which then has no sealing key any more.
    """

    kept: tuple[str, str] | None
    fresh: tuple[str, str] | None

    @classmethod
    def of(cls, kept: NoiseKeys | None, fresh: NoiseKeys | None) -> "KeysClaim":
        """Builds the claim of a server with these keys."""
        claims = (None if keys is None else _commitments(keys) for keys in (kept, fresh))
        return cls(*claims)

    def to_dict(self) -> dict[str, object]:
        """JSON form for a peer."""
        parts = {"kept": self.kept, "fresh": self.fresh}
        return {
            name: None if commitments is None else list(commitments)
            for name, commitments in parts.items()
        }

    @classmethod
    def from_dict(cls, value: object, pid: int) -> "KeysClaim":
        """Parses server ``pid``'s ``to_dict``. Raises ProtocolViolation on anything else."""
        table = value if isinstance(value, dict) else {"kept": "", "fresh": ""}
        kept, fresh = (_pair(table.get(name)) for name in ("kept", "fresh"))
        if [kept, fresh].count(None) > [table.get("kept"), table.get("fresh")].count(None):
            raise ProtocolViolation(f"party {pid} told nothing that commits to noise keys", pid)
        return cls(kept, fresh)


def _commitments(keys: NoiseKeys) -> tuple[str, str]:
    return _commitment(keys.own), _commitment(keys.next)


def _pair(value: object) -> tuple[str, str] | None:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value):
        return value[0], value[1]
    return None


@dataclass(frozen=True, slots=True)
class AgreedKeys:
    """This server's keys, and ``keyset``, a digest that stands for the keys of all three.

    ``problem`` is the reason why nothing may be opened with the keys; empty if openings are permitted.
    """

    keys: NoiseKeys
    keyset: str
    problem: str = ""


def agree_on_keys(
    ctx: Context,
    claims: Sequence[KeysClaim],
    kept: NoiseKeys | None,
    fresh: NoiseKeys | None,
    *,
    bound: bool,
) -> AgreedKeys:
    """Keys of a run: for each component the key that both its holders have, else the mesh's own.

    This server is ``bound`` to its keys once it has recorded a round's inputs, whose names depend on them, or charged
    something. If a bound server meets another that no longer has the same keys, or if there are no keys, the result has
    a ``problem``; a run that has everything opened can still end. Raises CheckFailed if the holders of a component
    commit to different keys of the mesh.
    """
    commitments = [_common(claims[c], claims[(c - 1) % 3], c) for c in range(3)]
    problem = "" if all(commitments) else "the run is over at a server, which has no keys any more"
    mine = {ctx.pid: ctx.prev_pid, ctx.next_pid: ctx.next_pid}
    have = [""] * 2 if kept is None else _commitments(kept)
    for (component, peer), commitment in zip(mine.items(), have, strict=True):
        if bound and commitment != commitments[component]:
            problem = problem or (
                f"party {peer} does not have the noise keys that this server has recorded inputs with: with others, "
                "openings would be drawn again; expected its folder as it was left"
            )
    old, new = kept or _NO_KEYS, fresh or _NO_KEYS
    same = [mine_ == commitments[c] for c, mine_ in zip(mine, have, strict=True)]
    keys = NoiseKeys(
        old.own if same[0] else new.own,
        old.next if same[1] else new.next,
        new.private if kept is None else old.private,
    )
    keyset = hashlib.sha256("\n".join(commitments).encode()).hexdigest()
    return AgreedKeys(keys, keyset, problem)


def _common(first: KeysClaim, second: KeysClaim, component: int) -> str:
    """Commitment to a component's key on which both its holders agree: server ``component`` and the one before it."""
    if first.kept is not None and second.kept is not None and first.kept[0] == second.kept[1]:
        return first.kept[0]
    if first.fresh is None or second.fresh is None:
        return ""
    if first.fresh[0] != second.fresh[1]:
        raise CheckFailed(
            f"parties {component} and {(component - 1) % 3} tell different commitments of their noise key: one of "
            "these two deviates"
        )
    return first.fresh[0]


def pack_keys(keys: NoiseKeys | None) -> bytes:
    """Keys as bytes; empty without keys. Secret."""
    return b"" if keys is None else keys.own + keys.next + keys.private


def unpack_keys(data: bytes) -> NoiseKeys | None:
    """Inverse of ``pack_keys``. Raises ValueError."""
    if not data:
        return None
    return NoiseKeys(*(data[i : i + KEY_BYTES] for i in range(0, len(data), KEY_BYTES)))
