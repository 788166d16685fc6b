"""Synchronisation of participants: the three servers exchange their lists, page by page of clients' names.

A page ends at the earliest end of the three servers' pages, and the next begins there, so that no server has more than
one page of each in memory, however many participants there are. All values here are public.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from parties.mpc.participants.listing import (
    MAX_PAGE_UPLOADS,
    ListedUpload,
    Listing,
    WithdrawalScope,
)
from parties.mpc.records import StoredSubmission
from parties.mpc.replay.effects import SubmissionView
from parties.mpc.steps import CLIENTS_AGREE
from parties.session.operator_commands import CommandSet
from protocols.context import Context
from protocols.echo import echo
from protocols.errors import ProtocolViolation


@dataclass(frozen=True, slots=True)
class SyncPage:
    """The three ``listings`` of the clients behind ``after`` up to ``upto`` (None: the last page).

    ``mine`` are this server's own submissions, by their listed form.
    """

    listings: Sequence[Listing]
    mine: Mapping[ListedUpload, StoredSubmission]
    after: str
    upto: str | None


async def sync_participants(
    ctx: Context,
    submissions: SubmissionView,
    scope: WithdrawalScope,
    round: int,
    *,
    up_to_round: int,
    ready: bool,
    commands: CommandSet,
    expected: int,
) -> AsyncIterator[SyncPage]:
    """Exchanges all pages of clients whose first round is ``up_to_round`` or before, at most ``expected`` clients.

    Leaks: the participants' names, uploads' digests and versions. Rounds: 2 a page. Communication: some 100 bytes an
    upload, to both others. Raises ChannelError, ProtocolViolation.
    """
    after, last, n_listed = "", False, [0, 0, 0]
    while not last:
        page = await asyncio.to_thread(submissions.page, up_to_round, after, commands.revoked)
        mine = {_listed_upload(stored): stored for stored in page.submissions}
        listing = Listing(ready, frozenset(mine), page.withdrawn, commands, page.upto)
        with ctx.step(CLIENTS_AGREE.name, round=round) as c:
            replies = await c.exchange(listing.to_bytes())
            await echo(c, dict(enumerate(replies)))
        listings = [Listing.parse(r, pid, scope, after) for pid, r in enumerate(replies)]
        ends = [one.upto for one in listings if one.upto is not None]
        upto = min(ends, default=None)
        listings = [one.up_to(upto) for one in listings]
        for pid, one in enumerate(listings):
            n_listed[pid] += len({item.client for item in one.uploads})
            # The limit has room for participants that leave meanwhile and are followed by others.
            if n_listed[pid] > 2 * expected + MAX_PAGE_UPLOADS:
                raise ProtocolViolation(f"party {pid} lists more clients than there may be", pid)
        yield SyncPage(listings, mine, after, upto)
        after, last = upto or "", upto is None


def _listed_upload(stored: StoredSubmission) -> ListedUpload:
    said = stored.submission
    return ListedUpload(said.client, stored.upload, said.first_round, said.version)
