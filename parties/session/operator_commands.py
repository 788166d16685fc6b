"""What the operator of a server asks of a run that goes on: to close it to data owners, to finish early, to revoke one.

Provides ``CommandSet`` and ``OperatorCommands``, which keeps what was asked in the run's database: a server that is
started again still asks it. Nothing here takes effect by itself. DistAIM's three servers tell one another what their
operators ask, whenever they list their owners (`parties.mpc.participants.listing`), and do what all three ask; FLAIM
has one server, which does it before its next round. Public: all of it.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from parties.config.limits import NAME_PATTERN
from parties.storage.database import Database

_KEY = "orders"


@dataclass(frozen=True, slots=True)
class CommandSet:
    """``close``: take no further data owners; ``finish``: end with the rounds done; ``revoked``: whom to turn away."""

    close: bool = False
    finish: bool = False
    revoked: frozenset[str] = frozenset()

    def __or__(self, other: Self) -> Self:
        revoked = self.revoked | other.revoked
        return type(self)(self.close or other.close, self.finish or other.finish, revoked)

    def __and__(self, other: Self) -> Self:
        revoked = self.revoked & other.revoked
        return type(self)(self.close and other.close, self.finish and other.finish, revoked)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "revoked": sorted(self.revoked)}

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Self:
        """What ``to_dict`` said. Raises ValueError for anything else."""
        match value:
            case {"close": bool() as close, "finish": bool() as finish, "revoked": list() as names}:
                if all(isinstance(name, str) and NAME_PATTERN.fullmatch(name) for name in names):
                    return cls(close, finish, frozenset(names))
        raise ValueError("not what an operator can ask")


@dataclass(slots=True, eq=False)
class OperatorCommands:
    """One server's; any thread may ask.

    ``told`` is what each server's operator asks, by number, as far as it is known; ``agreed`` what all of them do.
    """

    asked: CommandSet = field(default_factory=CommandSet)
    told: Sequence[CommandSet] = ()
    agreed: CommandSet = field(default_factory=CommandSet)
    on_command: Callable[[], object] = lambda: None
    """Called when something is asked, in the thread that asks."""
    on_change: Callable[[], object] = lambda: None
    """Called when something is asked, or the servers have told one another."""
    _database: Database | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def keep_in(self, database: Database) -> None:
        """From now on what is asked is kept there, with what was asked before. Raises StoreError."""
        self._database = database
        kept = database.meta(_KEY)
        before = CommandSet() if kept is None else CommandSet.from_dict(json.loads(kept))
        self.ask(close=before.close, finish=before.finish, revoke=before.revoked)

    def ask(self, *, close: bool = False, finish: bool = False, revoke: Iterable[str] = ()) -> None:
        """Ask for more; durable on return once there is a database. Raises StoreError."""
        with self._lock:
            commands = self.asked | CommandSet(close, finish, frozenset(revoke))
            if self._database is not None and commands != CommandSet():
                self._database.set_meta(_KEY, json.dumps(commands.to_dict()))
            self.asked = commands
        self.on_command()
        self.on_change()

    def tell(self, by_server: Sequence[CommandSet]) -> CommandSet:
        """What every server's operator asks, this one's with them; returns what all do."""
        self.told = tuple(by_server)
        agreed = by_server[0]
        for one in by_server[1:]:
            agreed &= one
        self.agreed |= agreed
        self.on_change()
        return agreed

    def shown(self, names: Sequence[str]) -> dict[str, object]:
        """For whoever looks at the server: what it asks, what all ask by their ``names``, and what is agreed."""
        by_name = zip(names, self.told, strict=False)
        return {
            "here": self.asked.to_dict(),
            "told": [{"party": name, **one.to_dict()} for name, one in by_name],
            "agreed": self.agreed.to_dict(),
        }
