"""Status of a submission: its participant asks each of the three servers for its outcome.

``ask_submission_status`` returns one ``SubmissionStatus`` a server; ``ask_servers`` asks for their run. Each server
answers for itself: a lying one is contradicted by the others. After a run's end no server listens; then result.json and
the transcripts have the upload's digest, among the counted or the excluded. Secret: nothing.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import aiohttp

from parties.config import CertificateFiles, Config, StudyServer
from parties.config.diff import MAX_BYTES, differences_text
from parties.foundation.exit_codes import NotYet
from parties.identity.tls import client_context
from parties.mpc.submission.http_api import (
    InvalidAnswer,
    config_path,
    printable_answer,
    read_answer,
    refusal_text,
    run_path,
)
from parties.mpc.submission.repetition import Repetition
from parties.mpc.submission.route import Route
from parties.network.port_sharing import result_sni_name, study_sni_name
from parties.observability.clocks import ClockReading
from parties.observability.events import Progress

_ASK_S = 20.0
"""Maximum time in seconds for an answer while nothing is sent."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_FINAL = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""Answers of a running study that a submission explains better."""


@dataclass(frozen=True, slots=True)
class SubmissionStatus:
    """Status by server ``party``: the digest of the ``upload`` that it has (None: none), and its outcome.

    The submission is ``counted`` in ``round``, or ``excluded`` there for a reason (`parties.mpc.exclusion`). A waiting
    one is neither, and will be ``counted_from`` a round (None: no round is left). Nothing up to version ``settled``
    ever counts: it was withdrawn or replaced.
    """

    party: str
    upload: str | None
    counted: bool
    round: int | None
    excluded: str | None
    counted_from: int | None = None
    settled: int = 0

    def to_dict(self) -> dict[str, object]:
        """JSON form."""
        return asdict(self)

    @property
    def text(self) -> str:
        """Text for people."""
        if self.counted:
            return counted_text(self.round)
        if self.excluded is not None:
            return f"not counted, in round {self.round}: {self.excluded}"
        if not self.upload:
            return "withdrawn, deleted and not counted" if self.settled else "not there"
        if self.counted_from is None:
            return "there and not counted: no round is left"
        return f"there, {due_round_text(self.counted_from)}"


def due_round_text(round: int) -> str:
    """Text about an upload that is not counted yet."""
    since = "the start (round 0)" if round == 0 else f"round {round}"
    return f"to be counted from {since} on"


def counted_text(round: int | None) -> str:
    """Text about a counted upload; the measurements before the first round are round 0."""
    return "counted from the start on (round 0)" if round == 0 else f"counted from round {round} on"


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """Answer of server ``party``, or else the ``problem``; ``status`` is HTTP's, 0 without an answer.

    ``clock`` is the reading of the server's clock from the answer's date, None without one.
    """

    party: StudyServer
    says: Mapping[str, object] | None = None
    problem: str = ""
    status: int = 0
    clock: ClockReading | None = None


async def ask_submission_status(
    config: Config, files: CertificateFiles
) -> tuple[SubmissionStatus, ...]:
    """Statuses of the certificate's client at the servers that answer, in the configuration's order.

    Raises CertificateError if ``files`` cannot be used.
    """
    return submission_statuses(await ask_servers(config, files))


def submission_statuses(heard: Sequence[ServerAnswer]) -> tuple[SubmissionStatus, ...]:
    """Statuses in the servers' answers, in their order; answers of another form are left out."""
    statuses = [
        _parse_status(each.party.name, each.says) for each in heard if each.says is not None
    ]
    return tuple(each for each in statuses if each is not None)


async def ask_servers(config: Config, files: CertificateFiles) -> tuple[ServerAnswer, ...]:
    """Answers of all servers over TLS with the pinned keys, in the configuration's order.

    Raises CertificateError if ``files`` cannot be used.
    """
    path = run_path(config.run.id)
    answers = [ask_server(config, each, files, path=path) for each in config.require_servers()]
    return tuple(await asyncio.gather(*answers))


async def await_begin(
    config: Config, files: CertificateFiles, *, wait_s: float, progress: Progress
) -> bool:
    """Waits until a server runs the study; returns False if the study is over, as two servers say, or the only one.

    The one server of a federation that does not answer over HTTPS is asked by the participant's own connection.

    Raises NotYet after ``wait_s`` seconds, CertificateError, ConfigError.
    """
    waits = Repetition(
        wait_s,
        first_s=_FIRST_PAUSE_S,
        longest_s=_LONGEST_PAUSE_S,
        event="waiting-for-begin",
        progress=progress,
    )
    timeouts = replace(config.timeouts, submit_s=min(_ASK_S, config.timeouts.submit_s))
    while True:
        heard = await ask_servers(replace(config, timeouts=timeouts), files)
        if any(each.says is not None or each.status in _FINAL for each in heard):
            return True
        if not config.parties and not heard[0].status:
            return True
        if sum(each.status == HTTPStatus.GONE for each in heard) >= min(2, len(heard)):
            return False
        state = "; ".join(f"{each.party.name}: {each.problem}" for each in heard)
        if not await waits.again(f"the study has not begun: {state}"):
            raise NotYet(
                f"the study {config.run.id} has not begun yet: {state}; the same command goes on"
            )


async def ask_differences(config: Config, party: StudyServer, files: CertificateFiles) -> str:
    """Differences between a server's configuration and ``config``, key by key; empty if the server does not answer.

    Raises CertificateError if ``files`` cannot be used.
    """
    heard = await ask_server(config, party, files, path=config_path(config.run.id), most=MAX_BYTES)
    if heard.says is None:
        return ""
    return differences_text(config, json.dumps(heard.says).encode(), party.name)


def http_sni_name(config: Config) -> str:
    """Returns the SNI name at which a study's servers answer over HTTPS."""
    return (study_sni_name if config.parties else result_sni_name)(config.digest())


async def ask_server(
    config: Config,
    party: StudyServer,
    files: CertificateFiles,
    *,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    most: int = 1 << 16,
) -> ServerAnswer:
    """Answer of one server to a request without a body, of at most ``most`` bytes.

    Raises CertificateError if ``files`` cannot be used, and ConfigError if a proxy cannot.
    """
    timeouts = config.timeouts
    context = client_context(files, party.pinned)
    limits = aiohttp.ClientTimeout(total=timeouts.submit_s, sock_connect=timeouts.connect_s)
    url, route = f"https://{party.ingest}{path}", Route.to(config, party)
    name, asked_at = http_sni_name(config), time.time()
    try:
        async with route.exchange(
            method, url, context=context, name=name, limits=limits, headers=headers
        ) as response:
            answer, _ = await read_answer(response, most)
    except TimeoutError:
        return ServerAnswer(party, problem="no answer in time")
    except (aiohttp.ClientError, OSError) as error:
        return ServerAnswer(party, problem=route.reason(error, party.name))
    except InvalidAnswer as error:
        return ServerAnswer(party, problem=str(error))
    clock = clock_reading(response.headers.get("Date"), asked_at)
    if response.status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
        problem = refusal_text(response.status, answer)
        return ServerAnswer(party, None, problem, response.status, clock)
    return ServerAnswer(party, answer, "", response.status, clock)


def clock_reading(date: str | None, asked_at: float) -> ClockReading | None:
    """Returns the reading of a server's clock from a date in whole seconds; None if it is none."""
    try:
        said = parsedate_to_datetime(date or "").timestamp()
    except (ValueError, OverflowError):
        return None
    return ClockReading.of(said + 0.5, asked_at=asked_at, round_trip_s=time.time() - asked_at + 1)


def _parse_status(party: str, answer: Mapping[str, object]) -> SubmissionStatus | None:
    match answer:
        case {
            "upload": str() | None as upload,
            "counted": bool() as counted,
            "round": int() | None as number,
            "excluded": str() | None as excluded,
        }:
            shown = None if excluded is None else printable_answer(excluded, 80)
            due, settled = answer.get("counted_from"), answer.get("settled")
            return SubmissionStatus(
                party,
                upload,
                counted,
                number,
                shown,
                due if isinstance(due, int) else None,
                settled if isinstance(settled, int) else 0,
            )
    return None
