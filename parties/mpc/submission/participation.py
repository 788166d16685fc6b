"""Participation in a run: preview of the upload, and submission, with the whole run charged before.

Secret: the participant's table, and a preview's summaries of its columns.
"""

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.summary import ColumnSummary
from parties.config import Config
from parties.foundation.errors import NotEnrolled, SubmissionRefused
from parties.mpc.planning.budget import distaim_release
from parties.mpc.planning.validation import validate_owner
from parties.mpc.submission.http_api import printable_answer, run_path
from parties.mpc.submission.preview import Preview, preview
from parties.mpc.submission.status import ask_differences, ask_server
from parties.mpc.submission.submit import Submitted, previous_submission, submit
from parties.observability.events import Progress
from parties.session.enrollment import check_enrolled
from parties.session.owner import DataOwner

_ACCEPTANCE_TIMEOUT_S = 5.0
"""Maximum time in seconds for one server's answer about acceptance, before another server is asked."""


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


async def _check_would_accept(config: Config, owner: DataOwner) -> None:
    """Asks a server for acceptance, before the budget is charged for an upload that no server takes.

    If no server answers in time, sending the upload finds out. Raises NotEnrolled, SubmissionRefused.
    """
    for party in sorted(config.require_parties(), key=lambda _: secrets.token_bytes(8)):
        try:
            async with asyncio.timeout(_ACCEPTANCE_TIMEOUT_S):
                heard = await ask_server(config, party, owner.files, path=run_path(config.run.id))
        except TimeoutError:
            continue
        if heard.says is None:
            continue
        where, says = f"{party.name} at {party.ingest}", heard.says
        charged = "nothing was charged or sent"
        if says.get("config") != config.digest():
            differences = await ask_differences(config, party, owner.files)
            text = f"{where} runs another configuration: {differences}; {charged}"
            raise SubmissionRefused(party.name, heard.status, text)
        if says.get("open") is not True and not says.get("upload"):
            why = printable_answer(says.get("turned_away") or "the run has ended", 200)
            raise NotEnrolled(party.name, heard.status, f"{where}: {why}; {charged}")
        return


async def submit_rows(
    owner: DataOwner,
    codes: NDArray[np.int32],
    *,
    capacity: int | None,
    state: Path | None,
    progress: Progress,
) -> Submitted:
    """Submits coded rows (rows, columns), charged to the participant's budget before anything is sent.

    A server is asked for acceptance first. Raises as `parties.mpc.submission.submit.submit`, BudgetExceeded.
    """
    config = owner.config
    config.check_rows(len(codes), capacity)
    if not state_path(owner, state).exists():
        # An earlier submission may be at a server already, so enrollment times do not apply to it.
        check_enrolled(config, owner.name)
        await _check_would_accept(config, owner)

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
