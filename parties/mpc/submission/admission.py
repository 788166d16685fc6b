"""An owner's request for admission, at the servers that its invitation pins, and the certificate that comes of it.

The owner has no certificate yet: TLS proves the servers' keys, and the request is signed with the owner's. It goes to
all servers of the study, three or one, and any may have the answer, since the coordinator puts the certificate to one.
A certificate is taken from whoever has it, once it is verified: of the study's authority, for this name and this key.

Secret: nothing; the owner's key stays in its folder.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from parties.config import Config, StudyServer
from parties.foundation.errors import CertificateError
from parties.foundation.exit_codes import NotAdmitted, NotYet
from parties.foundation.untrusted_text import certificate_from_pem
from parties.foundation.version import INGEST_HEADER
from parties.identity.join_documents import AdmissionRequest
from parties.identity.signing import Issuer
from parties.identity.tls import anonymous_client_context, public_pem
from parties.mpc.submission.http_api import (
    InvalidAnswer,
    admission_path,
    printable_answer,
    read_answer,
    refusal_text,
)
from parties.mpc.submission.repetition import Repetition
from parties.mpc.submission.route import Route
from parties.mpc.submission.status import clock_reading
from parties.network.port_sharing import admission_sni_name
from parties.observability.clocks import ClockReading
from parties.observability.events import Progress
from protocols.mesh import key_hash

_ASK_S = 20.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 30.0


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """Answer of a server: HTTP ``status`` (0 without an answer), the owner's ``certificate`` or a ``problem``."""

    party: str
    status: int
    certificate: str = ""
    problem: str = ""


async def await_admission(
    config: Config,
    request: AdmissionRequest,
    text: bytes,
    *,
    wait_s: float,
    progress: Progress,
) -> str:
    """Sends the request, asks until an answer has the owner's certificate, and returns it (PEM).

    Raises NotYet after ``wait_s`` seconds, NotAdmitted if a server says that the request was refused, or two (or the
    only one) that the study is over, CertificateError, ConfigError.
    """
    issuer, servers = Issuer.load(config.require_tls().ca), config.require_servers()
    waits = Repetition(
        wait_s,
        first_s=_FIRST_PAUSE_S,
        longest_s=_LONGEST_PAUSE_S,
        event="waiting-for-admission",
        progress=progress,
    )
    while True:
        heard = await asyncio.gather(*(_ask(config, server, text) for server in servers))
        for answer in heard:
            certificate = _verified(answer.certificate, request, issuer)
            if certificate is not None:
                # That alone, and not what a server may have put behind it.
                return public_pem(certificate).decode("ascii")
        _check_refusals(heard)
        state = _state_text(heard)
        if not await waits.again(state):
            raise NotYet(f"{request.name} is not admitted yet: {state}; the same command goes on")


def _check_refusals(heard: Sequence[AdmissionAnswer]) -> None:
    """Raises NotAdmitted."""
    final = [each for each in heard if each.status in (HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT)]
    over = [each for each in heard if each.status == HTTPStatus.GONE]
    for each in final or (over if len(over) >= min(2, len(heard)) else []):
        raise NotAdmitted(f"{each.party} {each.problem}")


def _state_text(heard: Sequence[AdmissionAnswer]) -> str:
    waiting = [each.party for each in heard if each.status == HTTPStatus.ACCEPTED]
    problems = [f"{each.party} {each.problem}" for each in heard if each.problem]
    first = f"the request waits at {', '.join(waiting)}" if waiting else "no server has the request"
    return "; ".join([first, *problems])


def _verified(text: str, request: AdmissionRequest, issuer: Issuer) -> x509.Certificate | None:
    """Returns the certificate of the study's authority for the request's name and key; None for anything else."""
    try:
        found = certificate_from_pem(text.encode())
        holder = issuer.signatory(found.public_bytes(Encoding.DER))
    except (ValueError, CertificateError):
        return None
    same = holder.name == request.name and key_hash(found) == request.key
    return found if same else None


@dataclass(frozen=True, slots=True)
class Greeting:
    """Answer of a server to anybody: the version of its ``messages`` with owners, as a text, and its ``clock``."""

    messages: str
    clock: ClockReading | None


async def ask_greeting(config: Config, server: StudyServer, *, limit_s: float) -> Greeting | None:
    """Returns what a server that takes requests for admission says to anybody; None if it takes none, or is away.

    Raises ConfigError if a proxy cannot be used.
    """
    limits = aiohttp.ClientTimeout(total=limit_s, sock_connect=limit_s)
    url = f"https://{server.ingest}{admission_path(config.run.id)}"
    context, asked_at = anonymous_client_context(server.pinned), time.time()
    name = admission_sni_name(config.digest())
    try:
        async with Route.to(config, server).exchange(
            "GET", url, context=context, name=name, limits=limits
        ) as response:
            heard = response.headers
    except (TimeoutError, aiohttp.ClientError, OSError):
        return None
    messages = printable_answer(heard.get(INGEST_HEADER, "unknown"), 20)
    return Greeting(messages, clock_reading(heard.get("Date"), asked_at))


async def _ask(config: Config, party: StudyServer, text: bytes) -> AdmissionAnswer:
    context = anonymous_client_context(party.pinned)
    limits = aiohttp.ClientTimeout(total=_ASK_S, sock_connect=config.timeouts.connect_s)
    url, route = f"https://{party.ingest}{admission_path(config.run.id)}", Route.to(config, party)
    try:
        async with route.exchange(
            "PUT",
            url,
            context=context,
            name=admission_sni_name(config.digest()),
            limits=limits,
            content=text,
        ) as response:
            answer, _ = await read_answer(response)
    except TimeoutError:
        return AdmissionAnswer(party.name, 0, problem="does not answer in time")
    except (aiohttp.ClientError, OSError) as error:
        return AdmissionAnswer(party.name, 0, problem=route.reason(error, party.name))
    except InvalidAnswer as error:
        return AdmissionAnswer(party.name, 0, problem=str(error))
    if response.status == HTTPStatus.OK:
        found = answer.get("certificate")
        return AdmissionAnswer(party.name, 200, found if isinstance(found, str) else "")
    if response.status == HTTPStatus.ACCEPTED:
        return AdmissionAnswer(party.name, response.status)
    return AdmissionAnswer(
        party.name, response.status, problem=refusal_text(response.status, answer)
    )
