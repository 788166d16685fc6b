"""Acceptance of a submission: a server, known by its pinned key, says that it takes it before anything is charged.

Secret: nothing.
"""

import asyncio
import secrets
import time
from http import HTTPStatus

from parties.config import Config
from parties.foundation.errors import NotEnrolled, SubmissionRefused, SubmitError
from parties.mpc.submission.http_api import printable_answer, run_path
from parties.mpc.submission.status import ServerAnswer, ask_differences, ask_server
from parties.session.owner import DataOwner

_ACCEPTANCE_TIMEOUT_S = 5.0
"""Maximum time in seconds for one server's answer about acceptance, before another server is asked."""
_ACCEPTANCE_PAUSE_S = 1.0
UNCHARGED = "nothing was charged or sent"


async def await_acceptance(config: Config, owner: DataOwner) -> ServerAnswer:
    """Waits until a server, known by its pinned key, says that it takes the submission: nothing is charged before.

    Returns its answer. Servers that cannot be reached are asked again until timeouts.submit_s is over. Raises
    NotEnrolled, SubmissionRefused; SubmitError if none has answered by then.
    """
    deadline = time.monotonic() + config.timeouts.submit_s
    while True:
        problems: dict[str, str] = {}
        for party in sorted(config.require_parties(), key=lambda _: secrets.token_bytes(8)):
            try:
                async with asyncio.timeout(_ACCEPTANCE_TIMEOUT_S):
                    heard = await ask_server(
                        config, party, owner.files, path=run_path(config.run.id)
                    )
            except TimeoutError:
                problems[f"{party.name} at {party.ingest}"] = "no answer in time"
                continue
            if heard.says is None and heard.status != HTTPStatus.GONE:
                problems[f"{party.name} at {party.ingest}"] = heard.problem
                continue
            await _check_accepts(config, owner, heard)
            return heard
        if time.monotonic() + _ACCEPTANCE_PAUSE_S >= deadline:
            said = "; ".join(f"{name}: {why}" for name, why in sorted(problems.items()))
            raise SubmitError(f"no server says that it takes the submission: {said}; {UNCHARGED}")
        await asyncio.sleep(_ACCEPTANCE_PAUSE_S)


async def _check_accepts(config: Config, owner: DataOwner, heard: ServerAnswer) -> None:
    """Raises NotEnrolled or SubmissionRefused unless a server's answer says that it takes the submission."""
    party, says = heard.party, heard.says
    where = f"{party.name} at {party.ingest}"
    if says is None:
        raise NotEnrolled(party.name, heard.status, f"{where}: {heard.problem}; {UNCHARGED}")
    if says.get("config") != config.digest():
        differences = await ask_differences(config, party, owner.files)
        text = f"{where} runs another configuration: {differences}; {UNCHARGED}"
        raise SubmissionRefused(party.name, heard.status, text)
    if says.get("open") is not True and not says.get("upload"):
        why = printable_answer(says.get("turned_away") or "the run has ended", 200)
        raise NotEnrolled(party.name, heard.status, f"{where}: {why}; {UNCHARGED}")
