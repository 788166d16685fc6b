"""Fetching of studies that other servers' operators proposed, each checked before it is known here.

Nothing here is secret.
"""

import asyncio
import datetime
import time
from collections.abc import Mapping

from parties.foundation.errors import PartyError, StoreError
from parties.service.events import EventName
from parties.service.identity import ServiceIdentity
from parties.service.known_studies import KnownStudies
from parties.service.peer_sync import Peer
from parties.service.reconcile import FetchStudy
from parties.service.studies import utc_now
from parties.service.study_intake import ProposalRefused, check_proposal
from parties.service.study_record import StudyState

_FETCH_AGAIN_S = 10.0
_FETCH_LATER_S = 600.0
_DAY, _MAX_CANCELLED = datetime.timedelta(days=1), 50
"""Number of studies of a server that may be cancelled within a day without an approval here."""
_MAX_REFUSED = 500
"""Maximum number of refused studies that are kept, the latest ones."""
_MAX_PROPOSED = 200
"""Maximum number of studies that wait for this operator; beyond it, none are accepted from other servers."""


class StudyFetcher:
    """Fetches studies from ``peers``; ``refused`` are those that are not accepted, with the reasons, by digest."""

    def __init__(
        self, identity: ServiceIdentity, studies: KnownStudies, peers: Mapping[int, Peer]
    ) -> None:
        self.refused: dict[str, str] = {}
        self._identity = identity
        self._studies = studies
        self._peers = peers
        self._fetch_after: dict[str, float] = {}
        self._taken: dict[str, int] = {}
        """Server that each study of this process came from, by digest."""

    def not_now(self) -> dict[str, str]:
        """Returns the studies that are not to be fetched now: the refused ones, and those just tried."""
        self._fetch_after = {d: at for d, at in self._fetch_after.items() if time.monotonic() < at}
        return self.refused | dict.fromkeys(self._fetch_after, "")

    async def fetch(self, act: FetchStudy) -> None:
        """Fetches and checks a study of another server. Raises StoreError."""
        peer = self._peers[act.pid]
        self._fetch_after[act.digest] = time.monotonic() + _FETCH_AGAIN_S
        try:
            self._check_room(peer)
            document = await peer.study(act.digest)
            proposal = await asyncio.to_thread(check_proposal, document, self._identity)
            if proposal.config.digest() != act.digest:
                raise ProposalRefused("what came is another configuration than was announced")
            async with self._studies.lock:
                if act.digest not in self._studies:
                    proposer = self._proposer(document, peer)
                    self._check_cancelled(act, proposer)
                    await self._studies.add(proposal, proposer, peer.server.name)
                    self._taken[act.digest] = act.pid
        except ProposalRefused as error:
            self.refused[act.digest] = str(error)
            if len(self.refused) > _MAX_REFUSED:
                del self.refused[next(iter(self.refused))]
            self._say(act.digest, peer, error)
        except StoreError:
            raise
        except PartyError as error:
            self._say(act.digest, peer, error)

    def _say(self, digest: str, peer: Peer, error: PartyError) -> None:
        name = peer.server.name
        text = f"a study that {name} proposed is not taken: {error}"
        self._studies.events.event(
            EventName.STUDY_NOT_TAKEN, text, digest=digest, peer=name, reason=str(error)
        )

    def _check_room(self, peer: Peer) -> None:
        """Raises PartyError if too many studies wait for this operator: a server could propose without end."""
        waiting = sum(study.state is StudyState.PROPOSED for study in self._studies.values())
        if waiting >= _MAX_PROPOSED:
            raise PartyError(
                f"a study that {peer.server.name} proposed is not looked at: {waiting} wait for approval here; "
                "expected that some of them are approved or cancelled first"
            )

    def _check_cancelled(self, act: FetchStudy, proposer: str) -> None:
        """Raises PartyError if too many studies from there were cancelled today before they were approved here.

        Each is a folder here, and a message to the operator. Counted are those of the same ``proposer`` by the word of
        the same server: neither one counts for what another says of it.
        """
        own, since = self._identity.own.name, utc_now() - _DAY
        cancelled = sum(
            pid == act.pid
            and (study := self._studies[digest]).proposer == proposer
            and study.state is StudyState.CANCELLED
            and own not in study.approvals
            and study.changed_at > since
            for digest, pid in self._taken.items()
        )
        if cancelled >= _MAX_CANCELLED:
            self._fetch_after[act.digest] = time.monotonic() + _FETCH_LATER_S
            raise PartyError(
                f"{cancelled} studies of {proposer} were cancelled within a day before they were approved here; "
                f"expected fewer than {_MAX_CANCELLED}: further ones are taken later"
            )

    def _proposer(self, document: Mapping[str, object], peer: Peer) -> str:
        """Returns the proposer by the word of ``peer``; the history records it. Always one of the three servers."""
        said = document.get("proposer")
        names = [server.name for server in self._identity.servers]
        return said if isinstance(said, str) and said in names else peer.server.name
