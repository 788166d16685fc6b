"""Commands of a server's operator during a run: close it to data owners, finish early, revoke an owner.

``OperatorCommands`` stores the commands in the run's database: a restarted server still has them. A command has no
effect by itself. DistAIM's three servers exchange their operators' commands whenever they list their owners
(`parties.mpc.participants.listing`) and carry out those that all three operators gave; FLAIM's one server carries them
out before its next round. All values here are public.
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
    """``close``: admit no further data owners; ``finish``: end with the rounds done; ``revoked``: owners to refuse."""

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
        """Returns the commands as JSON."""
        return {**asdict(self), "revoked": sorted(self.revoked)}

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Self:
        """Inverse of ``to_dict``. Raises ValueError for any other input."""
        match value:
            case {"close": bool() as close, "finish": bool() as finish, "revoked": list() as names}:
                if all(isinstance(name, str) and NAME_PATTERN.fullmatch(name) for name in names):
                    return cls(close, finish, frozenset(names))
        raise ValueError("not what an operator can ask")


@dataclass(slots=True, eq=False)
class OperatorCommands:
    """Commands at one server; safe to use from any thread.

    ``by_server`` are the commands of each server's operator, by server number, as far as known. ``agreed`` are the
    commands of all operators.
    """

    asked: CommandSet = field(default_factory=CommandSet)
    by_server: Sequence[CommandSet] = ()
    agreed: CommandSet = field(default_factory=CommandSet)
    on_command: Callable[[], object] = lambda: None
    """Called after each new command, in the thread of ``ask``."""
    on_change: Callable[[], object] = lambda: None
    """Called after each new command, and after each exchange between the servers."""
    _database: Database | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def keep_in(self, database: Database) -> None:
        """Stores commands in ``database`` from now on, and adds its stored ones. Raises StoreError."""
        self._database = database
        kept = database.meta(_KEY)
        before = CommandSet() if kept is None else CommandSet.from_dict(json.loads(kept))
        self.ask(close=before.close, finish=before.finish, revoke=before.revoked)

    def ask(self, *, close: bool = False, finish: bool = False, revoke: Iterable[str] = ()) -> None:
        """Adds commands; durable on return once there is a database. Raises StoreError."""
        with self._lock:
            commands = self.asked | CommandSet(close, finish, frozenset(revoke))
            if self._database is not None and commands != CommandSet():
                self._database.set_meta(_KEY, json.dumps(commands.to_dict()))
            self.asked = commands
        self.on_command()
        self.on_change()

    def tell(self, by_server: Sequence[CommandSet]) -> CommandSet:
        """Stores the commands of all servers' operators, this one's included; returns those that all of them gave."""
        self.by_server = tuple(by_server)
        agreed = by_server[0]
        for one in by_server[1:]:
            agreed &= one
        self.agreed |= agreed
        self.on_change()
        return agreed

    def shown(self, names: Sequence[str]) -> dict[str, object]:
        """Returns for display this server's commands, all servers' commands by their ``names``, and the agreed ones."""
        by_name = zip(names, self.by_server, strict=False)
        return {
            "here": self.asked.to_dict(),
            "told": [{"party": name, **one.to_dict()} for name, one in by_name],
            "agreed": self.agreed.to_dict(),
        }
