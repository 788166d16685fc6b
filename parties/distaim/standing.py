"""What has become of a submission: its owner asks each of the three servers whether it is counted.

Provides ``ask_standings``, and ``Told``, what one server says. Each speaks for itself: one that lies is alone with it.
After a run's end no server listens; then result.json and the transcripts have the upload's digest among those that were
counted or not. Secret: nothing.
"""

import asyncio
from dataclasses import asdict, dataclass

import aiohttp

from parties.config import CertificateFiles, Config, PartySection
from parties.distaim.link import NoAnswer, read_answer, run_path
from parties.tls import client_context


@dataclass(frozen=True, slots=True)
class Told:
    """What server ``party`` says: it has the ``upload`` of this digest (None: none), and what became of it.

    ``counted`` in ``round``, or ``excluded`` there for a reason (`parties.distaim.exclusions`); neither while it waits.
    """

    party: str
    upload: str | None
    counted: bool
    round: int | None
    excluded: str | None

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)

    @property
    def text(self) -> str:
        """For people."""
        if self.counted:
            return f"counted in round {self.round}"
        if self.excluded is not None:
            return f"not counted, in round {self.round}: {self.excluded}"
        return "there and not counted yet" if self.upload else "not there"


async def ask_standings(config: Config, files: CertificateFiles) -> tuple[Told, ...]:
    """What the servers that answer say of the client of this certificate, in the configuration's order.

    Raises CertificateError where ``files`` cannot be used.
    """
    answers = [_ask(config, party, files) for party in config.require_parties()]
    return tuple(told for told in await asyncio.gather(*answers) if told is not None)


async def _ask(config: Config, party: PartySection, files: CertificateFiles) -> Told | None:
    timeouts = config.timeouts
    connector = aiohttp.TCPConnector(ssl=client_context(files, party.pinned))
    limits = aiohttp.ClientTimeout(total=timeouts.submit_s, sock_connect=timeouts.connect_s)
    url = f"https://{party.ingest}{run_path(config.run.id)}"
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=limits) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            answer, _ = await read_answer(response)
    except (aiohttp.ClientError, OSError, NoAnswer):
        return None
    return _told(party.name, answer)


def _told(party: str, answer: dict[str, object]) -> Told | None:
    match answer:
        case {
            "upload": str() | None as upload,
            "counted": bool() as counted,
            "round": int() | None as number,
            "excluded": str() | None as excluded,
        }:
            shown = None if excluded is None else excluded[:80]
            return Told(party, upload, counted, number, shown)
    return None
