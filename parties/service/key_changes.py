"""Replacement of keys in a running service: own announcements, those of the others, and what follows from them.

``KeyChanges.step`` runs with each reconciliation. It confirms renewed certificates of pinned keys, puts this server's
next key to work once both others have confirmed it, and retires a peer's former key when the peer presents its next.
``confirm`` is the operator's: the typed words have to be those of the announced key. All values here are public.
"""

import asyncio
import datetime
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from mechanisms.text_table import and_list
from parties.foundation.errors import PartyError
from parties.identity.join_documents import fingerprint_words
from parties.identity.typed_words import read_words
from parties.service import rotation
from parties.service.events import EventName
from parties.service.identity import ServerFile, ServiceIdentity
from parties.service.known_studies import KnownStudies
from parties.service.peer_sync import Peer
from parties.service.studies import StudyEvent, utc_now

_RENEWAL_PAUSE_S = 600.0
"""Least time between two certificates of one server that are accepted without words."""


class KeyRefused(PartyError):
    """A key cannot be confirmed: no such announcement, or other words."""


@dataclass(frozen=True, slots=True)
class AnnouncedKey:
    """An announced key of the server ``name``; ``waits_for`` are the servers that have not confirmed it.

    ``renews``: the key is the one at work, with another certificate.
    """

    name: str
    key: str
    renews: bool
    waits_for: Sequence[str]

    @classmethod
    def of(cls, name: str, said: rotation.Announcement, waits_for: Sequence[str]) -> Self:
        """Returns the announced key of a server."""
        return cls(name, said.server.key, said.renews, waits_for)

    def sentence(self, *, own: bool) -> str:
        """Returns for people what is to be done about a new key, of this server's ``own`` or of another one."""
        if own:
            return (
                f"this server's new key waits for {and_list(self.waits_for)} to confirm its words"
            )
        return (
            f"{self.name} announces a new key: hear its words from {self.name}'s operator, then: syncret serve rotate "
            f"{self.name} 'TWELVE WORDS' (if that operator made none, the key of {self.name} was stolen)"
        )

    def to_dict(self, *, own: bool) -> dict[str, object]:
        """Returns the JSON form; the words are there of this server's ``own``: those of another have to be heard."""
        shown = {"key": self.key, "words": fingerprint_words(self.key)} if own else {}
        return {
            "name": self.name,
            **shown,
            "renews": self.renews,
            "waits_for": list(self.waits_for),
        }


class KeyChanges:
    """Key changes of ``identity`` and its ``peers``; ``reconnect`` renews connections after a change of identity."""

    def __init__(
        self,
        identity: ServiceIdentity,
        peers: Mapping[int, Peer],
        *,
        studies: KnownStudies,
        reconnect: Callable[[], Awaitable[None]],
    ) -> None:
        self.own: rotation.Announcement | None = None
        self._identity = identity
        self._peers = peers
        self._studies = studies
        self._reconnect = reconnect
        self._problem = ""
        self._renewed_at: dict[int, float] = {}
        self._lock = asyncio.Lock()
        """Held while files of the identity change."""

    # For the other servers.

    @property
    def heard(self) -> dict[str, str]:
        """Fingerprints of the certificates that the others announce, by name."""
        return {
            peer.server.name: peer.announced.server.fingerprint
            for peer in self._peers.values()
            if peer.announced is not None
        }

    @property
    def confirmed(self) -> dict[str, str]:
        """Fingerprints of the latest accepted certificates of the others, by name."""
        accepted = {pid: self._identity.accepted(pid)[-1] for pid in self._peers}
        return {server.name: server.fingerprint for server in accepted.values()}

    # For the operator.

    def to_list(self) -> list[dict[str, object]]:
        """Returns the JSON form of the announced keys."""
        own = self._identity.own.name
        return [key.to_dict(own=key.name == own) for key in self.announced()]

    def announced(self) -> list[AnnouncedKey]:
        """Returns the announced keys of all servers."""
        found = []
        if self.own is not None:
            waits = [self._identity.servers[pid].name for pid in self._unconfirmed(self.own)]
            found.append(AnnouncedKey.of(self._identity.own.name, self.own, waits))
        for pid, peer in self._peers.items():
            said = peer.announced
            if said is not None:
                known = self._identity.accepted(pid)[-1].fingerprint == said.server.fingerprint
                waits = [] if known else [self._identity.own.name]
                found.append(AnnouncedKey.of(peer.server.name, said, waits))
        return found

    def troubles(self) -> list[str]:
        """Returns what operators have to do or to hear about keys, a sentence each."""
        found = [self._problem] if self._problem else []
        if self._identity.held is not None and self._identity.held.problem:
            found.append(self._identity.held.problem)
        for key in self.announced():
            if not key.renews and key.waits_for:
                found.append(key.sentence(own=key.name == self._identity.own.name))
        return [*found, *self._unknown_keys(), *self._no_longer_announced()]

    def _no_longer_announced(self) -> Iterator[str]:
        """Yields a sentence for each confirmed key that its server does not announce any more."""
        for pid, peer in self._peers.items():
            confirmed, said = self._confirmed_key(pid), peer.announced
            if confirmed is None or peer.statement is None:
                continue
            if said is None or said.server.fingerprint != confirmed.fingerprint:
                name = peer.server.name
                yield (
                    f"{name} does not announce the key any more that was confirmed here: ask {name}'s operator, and "
                    f"if it was taken back: syncret serve rotate {name} --withdraw"
                )

    def _unknown_keys(self) -> Iterator[str]:
        """Yields a sentence for each server that has a key of this one that is not here."""
        own = self._identity.own
        ours = {own.fingerprint} | (
            {self.own.server.fingerprint} if self.own is not None else set()
        )
        for peer in self._peers.values():
            if (said := peer.statement) is None:
                continue
            for what, values in (("hears", said.heard), ("has confirmed", said.confirmed)):
                if values.get(own.name, own.fingerprint) not in ours:
                    yield (
                        f"{peer.server.name} {what} a key of this server that is not here: if nobody here has made "
                        "one, this server's key was stolen, and nobody may confirm it"
                    )

    async def confirm(
        self, name: str, words: str, actor: str, *, content: str | None = None
    ) -> None:
        """Accepts the next key of the server ``name`` if it has these words.

        That is the announced key, or, with the ``content`` of a server's file, that file's, at once. Raises KeyRefused,
        CertificateError, StoreError.
        """
        peer = self._peer(name)
        if content is not None:
            server = rotation.read_server_file(content, f"{name}'s new file")
            text = content
        elif peer.announced is not None:
            server, text = peer.announced.server, peer.announced.content
        else:
            raise KeyRefused(
                f"{name} announces no new key; expected `syncret serve rotate` there first"
            )
        if read_words(words) not in (fingerprint_words(server.key), server.key):
            raise KeyRefused(
                f"the words are not those of the key that {name} announces; expected the twelve that its operator "
                "reads out. Other words mean another key: confirm nothing, and ask there"
            )
        async with self._lock:
            await asyncio.to_thread(
                rotation.confirm, self._identity, peer.pid, text, at_once=content is not None
            )
            await self._changed(actor, EventName.KEY_CONFIRMED, server)

    async def forget(self, name: str, actor: str) -> None:
        """Forgets the confirmed key of the server ``name``. Raises KeyRefused, StoreError, CertificateError."""
        peer = self._peer(name)
        confirmed = self._confirmed_key(peer.pid)
        if confirmed is None:
            raise KeyRefused(f"no next key of {name} was confirmed here; nothing was changed")
        async with self._lock:
            await asyncio.to_thread(rotation.forget, self._identity, peer.pid)
            await self._changed(actor, EventName.KEY_WITHDRAWN, confirmed)

    def _peer(self, name: str) -> Peer:
        """Returns the other server with this name. Raises KeyRefused."""
        peer = next((p for p in self._peers.values() if p.server.name == name), None)
        if peer is None:
            names = " or ".join(p.server.name for p in self._peers.values())
            raise KeyRefused(
                f"{name[:64]!r} is no other server; expected {names or 'none: it is alone'}"
            )
        return peer

    # In the service.

    async def step(self) -> None:
        """Does what follows now. Raises StoreError, CertificateError, ConfigError."""
        async with self._lock:
            await self._step()

    async def _step(self) -> None:
        self._read_own()
        await self._look_outside()
        for pid, peer in self._peers.items():
            said = peer.announced
            if said is not None and self._is_renewal(pid, said):
                self._renewed_at[pid] = time.monotonic()
                content = said.content
                await asyncio.to_thread(rotation.confirm, self._identity, pid, content)
                await self._changed(peer.server.name, EventName.KEY_RENEWED, said.server)
            successor = self._identity.successors.get(pid)
            if successor is not None and peer.presented == successor.fingerprint:
                await asyncio.to_thread(rotation.promote, self._identity, pid)
                await self._changed(peer.server.name, EventName.KEY_AT_WORK, successor)
        if self.own is not None and not self._unconfirmed(self.own):
            server = self.own.server
            await asyncio.to_thread(rotation.activate, self._identity)
            self.own = None
            await self._changed(server.name, EventName.KEY_AT_WORK, server)

    def _is_renewal(self, pid: int, said: rotation.Announcement) -> bool:
        """Returns true if an announcement is of a certificate that is accepted without words.

        It displaces no key that an operator has confirmed, has not ended, and comes seldom: each ends the connections
        of this service.
        """
        last = self._identity.accepted(pid)[-1]
        if not said.renews or said.server.fingerprint == last.fingerprint:
            return False
        due = time.monotonic() - self._renewed_at.get(pid, -math.inf) >= _RENEWAL_PAUSE_S
        end = said.server.certificate.not_valid_after_utc
        valid = end > datetime.datetime.now(datetime.UTC)
        return valid and due and self._confirmed_key(pid) is None

    def _confirmed_key(self, pid: int) -> ServerFile | None:
        """Returns a server's next key that was confirmed here and is not at work yet."""
        successor = self._identity.successors.get(pid)
        known = self._identity.servers[pid].key
        return successor if successor is not None and successor.key != known else None

    def _read_own(self) -> None:
        try:
            self.own, self._problem = rotation.announced(self._identity), ""
        except PartyError as error:
            self.own, self._problem = None, str(error)

    async def _look_outside(self) -> None:
        """Reads this server's key again where another program keeps it."""
        held = self._identity.held
        if held is not None and await asyncio.to_thread(held.look):
            if held.problem:
                self._studies.events.event(EventName.KEY_AWAY, held.problem)
            else:
                self._studies.events.event(
                    EventName.KEY_THERE, f"{held.target} has this server's key again"
                )

    def _unconfirmed(self, own: rotation.Announcement) -> list[int]:
        name, wanted = self._identity.own.name, own.server.fingerprint
        return [
            pid
            for pid, peer in self._peers.items()
            if (said := peer.statement) is None or said.confirmed.get(name) != wanted
        ]

    async def _changed(self, actor: str, what: EventName, server: ServerFile) -> None:
        await self._reconnect()
        text = f"{server.name}, {server.key[:16]}"
        fields = {"peer": server.name}
        await self._studies.note(StudyEvent(utc_now(), None, actor, what, text, fields=fields))
