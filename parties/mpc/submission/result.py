"""A finished study's result, as an owner or a server fetches it from the study's servers, three or one.

Each server has its own transcript, and the lead, or the one server, has table, model and report; all are public.
``fetch_result`` writes them as a run's folder, which an audit reads: it trusts no server for what it says, since the
audit recomputes the result from transcripts that are signed with pinned keys. A file that is there whole is not fetched
again. Sizes are bounded. Secret: nothing.
"""

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path

import aiohttp

from parties.config import CertificateFiles, Config, StudyServer
from parties.foundation.errors import ResultMissing
from parties.foundation.exit_codes import NotYet
from parties.identity.tls import client_context
from parties.mpc.submission.http_api import (
    MAX_RESULT_FILES,
    REPORT_FILE,
    RESULT_FILES,
    TRANSCRIPT_FILE,
    is_result_name,
    possible_names,
    printable_answer,
    result_names,
    result_path,
    run_path,
)
from parties.mpc.submission.repetition import Repetition
from parties.mpc.submission.route import Route
from parties.mpc.submission.status import ServerAnswer, ask_server, http_sni_name
from parties.observability.events import Progress
from parties.storage.files import atomic_replacement, disk_errors

MAX_FILE_BYTES = 1 << 32
"""Maximum size of a server's public files together."""
_MAX_REPORT_BYTES = 1 << 26
_CHUNK = 1 << 18
_SILENCE_S = 60.0
"""Maximum time in seconds without a byte of a file, and for a chunk of it, as at a server."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_ASK_S = 20.0
"""Maximum time in seconds for a server's answer to a question."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """Files of a result at server ``party``: sizes by name, and the times at which kinds of them were removed."""

    party: StudyServer
    sizes: Mapping[str, int]
    removed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server that fetches the result: its number, and its run's folder, whose files it does not ask itself for."""

    pid: int
    folder: Path


async def obtain_result(
    config: Config,
    files: CertificateFiles,
    out: Path,
    *,
    own: OwnServer | None,
    wait_s: float,
    progress: Progress,
) -> None:
    """Waits for the result, and fetches it into the folder ``out``; a server that is busy or away is tried again.

    Raises as ``await_result`` and ``fetch_result``, NotYet after ``wait_s`` seconds.
    """
    waits = _waits(wait_s, progress)
    while True:
        try:
            await await_result(config, files, own=own, wait_s=waits.left_s, progress=progress)
            await fetch_result(config, files, out, own=own)
        except NotYet:
            if not await waits.again():
                raise
        else:
            return


async def await_result(
    config: Config,
    files: CertificateFiles,
    *,
    own: OwnServer | None,
    wait_s: float,
    progress: Progress,
) -> None:
    """Waits until the servers have the result, for ``wait_s`` seconds at most; a server does not ask itself.

    Raises ResultMissing for a study that ended otherwise, NotYet, CertificateError, ConfigError.
    """
    waits = _waits(wait_s, progress)
    while problem := await _problem(config, files, own):
        if not await waits.again(f"not yet: {problem}"):
            raise NotYet(
                f"the result of {config.run.id} is not there yet: {problem}; the same command goes on later"
            )


def _waits(wait_s: float, progress: Progress) -> Repetition:
    return Repetition(
        wait_s,
        first_s=_FIRST_PAUSE_S,
        longest_s=_LONGEST_PAUSE_S,
        event="waiting-for-result",
        progress=progress,
    )


async def fetch_result(
    config: Config, files: CertificateFiles, out: Path, *, own: OwnServer | None = None
) -> list[str]:
    """Writes transcripts, table, model and report to the folder ``out``, and returns their names there.

    Raises ResultMissing, NotYet, StoreError, CertificateError, ConfigError.
    """
    servers, silos = config.require_servers(), config.silos is not None
    asked = [pid for pid in range(len(servers)) if own is None or pid != own.pid]
    heard = await asyncio.gather(*(_ask(config, servers[pid], files) for pid in asked))
    listings = {pid: _require(config, each) for pid, each in zip(asked, heard, strict=True)}
    transcripts = {pid: f"transcripts/party-{pid}.jsonl" for pid in range(len(servers))}
    if not config.parties:
        transcripts = {0: "transcripts/server.jsonl"}
    for pid, listing in listings.items():
        await _fetch(config, files, listing, name=TRANSCRIPT_FILE, target=out / transcripts[pid])
    if own is not None:
        _copy(own.folder / TRANSCRIPT_FILE, out / transcripts[own.pid])
    done, main = list(transcripts.values()), REPORT_FILE if silos else RESULT_FILES[0]
    if own is not None and (own.folder / main).is_file():
        with disk_errors(own.folder, "read"):
            there = await asyncio.to_thread(result_names, own.folder, silos=silos)
        for name in there:
            _copy(own.folder / name, out / name)
        return done + there
    lead = next((each for each in listings.values() if main in each.sizes), None)
    if lead is None:
        what = "report" if silos else "table"
        raise ResultMissing(f"no server has the {what} of {config.run.id}{_removed(listings)}")
    names = lead.sizes.keys() - {TRANSCRIPT_FILE}
    if silos:
        names &= await _reported(config, files, lead, out=out)
    for name in sorted(names):
        await _fetch(config, files, lead, name=name, target=out / name)
        done.append(name)
    return done


async def _reported(
    config: Config, files: CertificateFiles, lead: _Listing, *, out: Path
) -> frozenset[str]:
    """Fetches the report of a run between silos, and returns the names that results may have by it."""
    if (size := lead.sizes[REPORT_FILE]) > _MAX_REPORT_BYTES:
        raise ResultMissing(
            f"{lead.party.name}: {REPORT_FILE} has {size} bytes; expected at most {_MAX_REPORT_BYTES}"
        )
    await _fetch(config, files, lead, name=REPORT_FILE, target=out / REPORT_FILE)
    with disk_errors(out / REPORT_FILE, "read"):
        try:
            return frozenset(await asyncio.to_thread(possible_names, out, silos=True))
        except ValueError as error:
            raise ResultMissing(
                f"{lead.party.name}: {REPORT_FILE} is no JSON; expected the run's report"
            ) from error


async def is_over(config: Config, files: CertificateFiles) -> bool:
    """Returns true if the study has ended, with a result or without, as its servers say.

    Raises CertificateError, ConfigError.
    """
    try:
        return not await _problem(config, files, None)
    except ResultMissing:
        return True


async def _problem(config: Config, files: CertificateFiles, own: OwnServer | None) -> str:
    """Returns why the result cannot be fetched now; empty if it can. Raises ResultMissing."""
    servers = config.require_servers()
    asked = [each for pid, each in enumerate(servers) if own is None or pid != own.pid]
    heard = await asyncio.gather(*(_run_state(config, each, files) for each in asked))
    over = [each for each in heard if each.status == HTTPStatus.GONE]
    finished = [each for each in heard if each.status == HTTPStatus.OK]
    # One of three servers does not end a study that another still answers for.
    if over and len(over) >= min(2, len(servers)):
        raise ResultMissing(
            f"{config.run.id} has no result: {over[0].party.name} {over[0].problem}"
        )
    away = [f"{each.party.name}: {each.problem}" for each in heard if each not in finished]
    return "; ".join(away)


async def _run_state(config: Config, party: StudyServer, files: CertificateFiles) -> ServerAnswer:
    """Returns the answer of a server that lists a result: 200; or else what it says of the study.

    A running study is asked for its run alone, since it has no result to refuse. That a study is over does not say that
    it has no result: a list that comes late, or not now, is asked for again.
    """
    heard = await ask_server(_impatient(config), party, files, path=run_path(config.run.id))
    if heard.says is not None:
        return ServerAnswer(party, None, "the study is under way there", HTTPStatus.ACCEPTED)
    if heard.status != HTTPStatus.GONE:
        return heard
    return await _ask(config, party, files)


async def _ask(config: Config, party: StudyServer, files: CertificateFiles) -> ServerAnswer:
    return await ask_server(_impatient(config), party, files, path=result_path(config.run.id))


def _impatient(config: Config) -> Config:
    timeouts = replace(config.timeouts, submit_s=min(_ASK_S, config.timeouts.submit_s))
    return replace(config, timeouts=timeouts)


def _require(config: Config, heard: ServerAnswer) -> _Listing:
    """Returns the list in an answer. Raises NotYet, ResultMissing."""
    match heard.says:
        case {"config": str() as digest, "files": dict() as sizes, "removed": dict() as removed}:
            pass
        case None:
            # That a study ended without a result is believed of two servers (``_problem``), and not of one.
            raise NotYet(f"{heard.party.name} {heard.problem}")
        case _:
            raise ResultMissing(f"{heard.party.name} lists no files; expected its result")
    if digest != config.digest():
        raise ResultMissing(f"{heard.party.name} has the result of another configuration")
    silos = config.silos is not None
    known = {
        name: size
        for name, size in list(sizes.items())[: MAX_RESULT_FILES + 1]
        if name == TRANSCRIPT_FILE or is_result_name(name, silos=silos)
        if isinstance(size, int) and size >= 0
    }
    times = {str(what)[:20]: printable_answer(at, 40) for what, at in removed.items()}
    listing = _Listing(heard.party, known, times)
    if (size := sum(known.values())) > MAX_FILE_BYTES:
        raise ResultMissing(
            f"{heard.party.name} lists files of {size} bytes; expected at most {MAX_FILE_BYTES} together"
        )
    if TRANSCRIPT_FILE not in known:
        raise ResultMissing(
            f"{heard.party.name} has no transcript of {config.run.id}{_removed({0: listing})}"
        )
    return listing


def _removed(listings: Mapping[int, _Listing]) -> str:
    said = [
        f"{each.party.name} deleted its {what} at {at}"
        for each in listings.values()
        for what, at in each.removed.items()
    ]
    return f": {'; '.join(said)}" if said else ""


async def _fetch(
    config: Config, files: CertificateFiles, listing: _Listing, *, name: str, target: Path
) -> None:
    """Fetches a file, unless it is there whole. Raises NotYet, StoreError."""
    size, party = listing.sizes[name], listing.party
    if await asyncio.to_thread(_has_size, target, size):
        return
    with disk_errors(target, "made"):
        target.parent.mkdir(parents=True, exist_ok=True)
    limits = aiohttp.ClientTimeout(
        total=_SILENCE_S * (2 + size // _CHUNK),
        sock_connect=config.timeouts.connect_s,
        sock_read=_SILENCE_S,
    )
    url = f"https://{party.ingest}{result_path(config.run.id)}/{name}"
    context, route = client_context(files, party.pinned), Route.to(config, party)
    try:
        async with route.exchange(
            "GET", url, context=context, name=http_sni_name(config), limits=limits
        ) as response:
            if response.status != HTTPStatus.OK:
                raise NotYet(f"{party.name} answered {response.status} for {name}")
            await _write(response, target, size, what=f"{party.name}: {name}")
    except (TimeoutError, aiohttp.ClientError) as error:
        reason = route.reason(error, party.name)
        raise NotYet(f"{party.name}: {name} did not come whole: {reason}") from error


async def _write(response: aiohttp.ClientResponse, target: Path, size: int, *, what: str) -> None:
    left = size
    with atomic_replacement(target) as beside, beside.open("wb") as file:
        async for chunk in response.content.iter_chunked(_CHUNK):
            left -= len(chunk)
            if left < 0:
                break
            await asyncio.to_thread(file.write, chunk)
        if left:
            raise NotYet(
                f"{what} has not the {size} bytes that were announced; expected the whole file"
            )


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _copy(source: Path, target: Path) -> None:
    with disk_errors(target, "made"):
        target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_replacement(target) as beside:
        shutil.copyfile(source, beside)
