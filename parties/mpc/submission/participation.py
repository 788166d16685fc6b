"""Participation in a run: preview of the upload, and submission, with the whole run charged before.

Secret: the participant's table, and a preview's summaries of its columns.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.summary import ColumnSummary
from parties.config import Config
from parties.foundation.errors import NotEnrolled, SubmissionRefused, SubmitError
from parties.mpc.planning.budget import distaim_release
from parties.mpc.planning.validation import validate_owner
from parties.mpc.submission.http_api import printable_answer, run_path
from parties.mpc.submission.preview import Preview, preview
from parties.mpc.submission.status import ServerAnswer, ask_differences, ask_server
from parties.mpc.submission.submit import Submitted, previous_submission, submit
from parties.observability.events import Progress
from parties.session.enrollment import check_enrolled
from parties.session.owner import DataOwner
from parties.storage.files import disk_errors

_ACCEPTANCE_TIMEOUT_S = 5.0
"""Maximum time in seconds for one server's answer about acceptance, before another server is asked."""
_ACCEPTANCE_PAUSE_S = 1.0
_UNCHARGED = "nothing was charged or sent"


def state_path(owner: DataOwner, given: Path | None) -> Path:
    """State file of the participant's submission; by default beside the table."""
    return given or owner.beside("submission")


async def preview_table(owner: DataOwner, *, capacity: int | None, state: Path | None) -> Preview:
    """Preview of upload, cost and available servers; nothing is sent, charged or written.

    Raises ConfigError, DataError, StoreError, CertificateError.
    """
    validate_owner(owner.study)
    codes, columns = owner.codes_and_summaries()
    owner.config.check_rows(len(codes), capacity)
    path = state_path(owner, state)
    before = previous_submission(owner.config, codes, owner.name, path, capacity=capacity)
    paid = before[0] if before else None
    return await preview_rows(
        owner, len(codes), columns, capacity=capacity, paid=paid, earlier=before is not None
    )


async def preview_rows(
    owner: DataOwner,
    rows: int,
    columns: Sequence[ColumnSummary],
    *,
    capacity: int | None,
    paid: str | None,
    earlier: bool,
) -> Preview:
    """As ``preview_table``, for a table already read; ``paid`` is the submission whose charge covers this one, too.

    ``earlier``: this submission was made before, and is only sent on.
    """
    config = owner.config
    return await preview(
        config,
        owner.files,
        columns,
        owner.quote(distaim_release(owner.study), paid),
        client=owner.name,
        rows=rows,
        capacity=capacity,
        earlier=earlier,
    )


async def participate(
    owner: DataOwner, *, capacity: int | None, state: Path | None, progress: Progress
) -> Submitted:
    """Reads the table and sends it; see ``submit_rows``. Raises DataError as well."""
    validate_owner(owner.study)
    codes = owner.codes()
    return await submit_rows(owner, codes, capacity=capacity, state=state, progress=progress)


async def _await_acceptance(config: Config, owner: DataOwner) -> None:
    """Waits until a server, known by its pinned key, says that it takes the submission: nothing is charged before.

    Servers that cannot be reached are asked again until timeouts.submit_s is over. Raises NotEnrolled,
    SubmissionRefused; SubmitError if none has answered by then.
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
            return
        if time.monotonic() + _ACCEPTANCE_PAUSE_S >= deadline:
            said = "; ".join(f"{name}: {why}" for name, why in sorted(problems.items()))
            raise SubmitError(f"no server says that it takes the submission: {said}; {_UNCHARGED}")
        await asyncio.sleep(_ACCEPTANCE_PAUSE_S)


async def _check_accepts(config: Config, owner: DataOwner, heard: ServerAnswer) -> None:
    """Raises NotEnrolled or SubmissionRefused unless a server's answer says that it takes the submission."""
    party, says = heard.party, heard.says
    where = f"{party.name} at {party.ingest}"
    if says is None:
        raise NotEnrolled(party.name, heard.status, f"{where}: {heard.problem}; {_UNCHARGED}")
    if says.get("config") != config.digest():
        differences = await ask_differences(config, party, owner.files)
        text = f"{where} runs another configuration: {differences}; {_UNCHARGED}"
        raise SubmissionRefused(party.name, heard.status, text)
    if says.get("open") is not True and not says.get("upload"):
        why = printable_answer(says.get("turned_away") or "the run has ended", 200)
        raise NotEnrolled(party.name, heard.status, f"{where}: {why}; {_UNCHARGED}")


async def submit_rows(
    owner: DataOwner,
    codes: NDArray[np.int32],
    *,
    capacity: int | None,
    state: Path | None,
    progress: Progress,
) -> Submitted:
    """Submits coded rows (rows, columns), charged to the participant's budget before anything is sent.

    A server says first that it takes the submission. Raises as `parties.mpc.submission.submit.submit`, BudgetExceeded.
    """
    config = owner.config
    config.check_rows(len(codes), capacity)
    path = state_path(owner, state)
    if not path.exists():
        # An earlier submission may be at a server already, so enrollment times do not apply to it.
        check_enrolled(config, owner.name)
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        release = distaim_release(owner.study)
        if not owner.quote(release, None).covered:
            owner.account(release).require()
        await _await_acceptance(config, owner)

    def spend(submission: str) -> None:
        owner.account(distaim_release(owner.study)).spend(submission)

    return await submit(
        config,
        codes,
        owner.files,
        capacity=capacity,
        state=state_path(owner, state),
        spend=spend,
        on_retry=lambda text: progress.event("retry", text),
    )
