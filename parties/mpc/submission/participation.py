"""Participation in a run: preview of the upload, submission and replacement, with the whole run charged before.

Secret: the participant's table, and a preview's summaries of its columns.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.summary import ColumnSummary
from mechanisms.text_table import and_list
from parties.foundation.errors import NotEnrolled, StoreError, SubmissionRefused, SubmitError
from parties.mpc.planning.budget import distaim_release
from parties.mpc.planning.validation import validate_owner
from parties.mpc.submission.acceptance import UNCHARGED, await_acceptance
from parties.mpc.submission.earlier_releases import ask_earlier_releases
from parties.mpc.submission.http_api import printable_answer
from parties.mpc.submission.messages import MAX_VERSION
from parties.mpc.submission.preview import Preview, preview
from parties.mpc.submission.resubmit import (
    RefundSubmissions,
    Replacement,
    RestoreCharge,
    fetch_return,
    refund_withdrawn,
    replace_submission,
    saved_submission,
    study_over,
)
from parties.mpc.submission.state import load_withdrawn
from parties.mpc.submission.status import ServerAnswer
from parties.mpc.submission.submit import NonceOf, Submitted, previous_submission, submit
from parties.mpc.submission.withdrawal_client import known_versions
from parties.observability.events import Progress
from parties.session.enrollment import check_enrolled
from parties.session.owner import DataOwner
from parties.storage.charge_state import ChargeState
from parties.storage.files import disk_errors
from parties.storage.owner_budget import BudgetAccount, OwnerBudget

_RETURN_TIMEOUT_S = 5.0
"""Maximum time in seconds for the servers' answers about a submission that all three have."""


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


async def submit_rows(
    owner: DataOwner,
    codes: NDArray[np.int32],
    *,
    capacity: int | None,
    state: Path | None,
    progress: Progress,
) -> Submitted:
    """Submits coded rows (rows, columns), charged to the participant's budget just before a share of them is sent.

    A server says first that it takes a submission that is not charged yet; until then the release is intended, and
    dropped if the call ends. Raises as `parties.mpc.submission.submit.submit`, BudgetExceeded. A refusal for good says
    so where the servers have signed that nothing was counted, and the charge is given back.
    """
    config, path = owner.config, state_path(owner, state)
    config.check_rows(len(codes), capacity)
    await asyncio.to_thread(refund_withdrawn, config, owner.name, path, give_back=refunds_of(owner))
    before = previous_submission(config, codes, owner.name, path, capacity=capacity)
    intended, least = None, 1

    def spend(submission: str) -> None:
        owner.account(distaim_release(owner.study)).spend(submission)

    try:
        if before is not None and before[1]:
            await _require_not_returned(owner, path)
        if not _is_under_way(owner, before):
            if not path.exists():
                # An earlier submission may be at a server already, so enrollment times do not apply to it.
                check_enrolled(config, owner.name)
            intended = await _intend(owner, path)
            heard = await await_acceptance(config, owner)
            _require_no_other(owner, path, heard)
            least = await _least_version(owner, heard)
            await adopt_earlier_releases(owner, progress)
        return await submit(
            config,
            codes,
            owner.files,
            capacity=capacity,
            state=path,
            spend=spend,
            nonce_of=_marking(owner),
            least_version=least,
            on_retry=lambda text: progress.event("retry", text),
        )
    except NotEnrolled as error:
        raise await _refused_for_good(owner, path, error) from error
    finally:
        if intended is not None:
            intended.drop()


async def replace_rows(
    owner: DataOwner,
    codes: NDArray[np.int32],
    *,
    capacity: int | None,
    state: Path,
    progress: Progress,
) -> Replacement:
    """Sends coded rows in place of the former submission, with a charge as ``submit_rows``.

    Raises as `parties.mpc.submission.resubmit.replace_submission`, BudgetExceeded.
    """

    def spend(submission: str, replaced: Sequence[str]) -> None:
        owner.account(distaim_release(owner.study)).spend(submission, replaced)

    heard = await await_acceptance(owner.config, owner)
    missing = not await asyncio.to_thread(state.exists)
    if missing and (others := _states_of(owner, state, _upload_in(heard))):
        raise SubmitError(
            f"{state} is not there, and {others[0]} is of the submission that the servers have; {UNCHARGED}. Expected "
            f"--state {others[0]}, so that its charge comes back once it is replaced"
        )
    await adopt_earlier_releases(owner, progress)
    return await replace_submission(
        owner.config,
        codes,
        owner.files,
        state=state,
        spend=spend,
        nonce_of=_marking(owner),
        give_back=refunds_of(owner),
        restore=restoration_of(owner),
        capacity=capacity,
        on_retry=lambda text: progress.event("retry", text),
    )


async def adopt_earlier_releases(owner: DataOwner, progress: Progress) -> None:
    """Charges what the servers have released of this owner's key in earlier studies, and the budget does not have.

    A budget that was put back from an older copy so decides about the new study by all that its servers know. Raises
    BudgetExceeded if the new study does not fit any more; StoreError if nobody can tell which population pays.
    """
    known = await ask_earlier_releases(owner.config, owner.files, owner.budget)
    if not known.missing:
        return
    account = owner.account(distaim_release(owner.study))
    for item in known.missing:
        names = await asyncio.to_thread(
            account.budget.adopt_earlier,
            item.release,
            item.submission,
            account.source,
            sure=len(item.servers) > 1,
            of_source=False,
            mark=item.mark,
        )
        marked = account.budget.reads_mark(item.release.config, item.mark)
        progress.event("adopted", item.entered_text(owner.budget, names, known=marked))
    await asyncio.to_thread(account.require)


def other_states(owner: DataOwner, path: Path) -> list[Path]:
    """State files beside ``path`` of this owner in runs of this name, made from tables of other names."""
    name = f"*.{owner.config.run.id}.{owner.name}.submission"
    return [other for other in sorted(path.parent.glob(name)) if other != path]


def _states_of(owner: DataOwner, path: Path, upload: str) -> list[Path]:
    """Those of them with this upload; a file of another study or a withdrawn one has none."""
    found = []
    for other in other_states(owner, path):
        with contextlib.suppress(StoreError):
            made = saved_submission(owner.config, owner.name, other)
            if made is not None and made.upload == upload:
                found.append(other)
    return found


def _upload_in(heard: ServerAnswer) -> str:
    """Digest of the owner's upload that a server has; "" for none."""
    upload = None if heard.says is None else heard.says.get("upload")
    return upload if isinstance(upload, str) else ""


def _require_no_other(owner: DataOwner, path: Path, heard: ServerAnswer) -> None:
    """Raises SubmissionRefused where a server has another submission of this owner, which it would keep."""
    if not (upload := _upload_in(heard)) or load_withdrawn(path, owner.config.digest(), owner.name):
        return
    made = saved_submission(owner.config, owner.name, path)
    if made is not None and made.upload == upload:
        return
    others = _states_of(owner, path, upload)
    state = f"--state {others[0]}" if others else "--state with the file of that submission"
    where, shown = f"{heard.party.name} at {heard.party.ingest}", printable_answer(upload[:16], 20)
    text = (
        f"{where} has another submission of {owner.name} (digest {shown}...); {UNCHARGED}. Expected --replace and "
        f"{state}, to send this table in its place"
    )
    raise SubmissionRefused(heard.party.name, HTTPStatus.CONFLICT, text)


async def _least_version(owner: DataOwner, heard: ServerAnswer) -> int:
    """Version of a new submission: above those that the servers have settled, which they take no more.

    The second highest of their answers counts, so that no server alone decides. A submission that a server has goes on
    as it is.
    """
    settled = None if heard.says is None else heard.says.get("settled")
    if not settled or _upload_in(heard):
        return 1
    known = sorted((await known_versions(owner.config, owner.files)).values())
    return min(known[-2:][0] + 1, MAX_VERSION) if known else 1


def _marking(owner: DataOwner) -> NonceOf:
    """Returns a function that marks submissions that are not charged yet with the population that pays.

    A charged submission keeps its nonce, since a share of it may have left.
    """

    def nonce_of(submission: str, nonce: str) -> str:
        account = owner.account(distaim_release(owner.study))
        if account.budget.state(owner.config.digest(), submission) is not None:
            return nonce
        return nonce if account.is_marked(nonce) else account.mark()

    return nonce_of


def refunds_of(owner: DataOwner, datasets: list[str] | None = None) -> RefundSubmissions:
    """Returns a function that gives charges back to an existing budget; ``datasets`` collects their populations."""

    def give_back(submissions: Sequence[str], proof: str) -> None:
        if owner.budget.exists():
            found = OwnerBudget(owner.budget).give_back(owner.config.digest(), submissions, proof)
            if datasets is not None:
                datasets.extend(found)

    return give_back


def restoration_of(owner: DataOwner) -> RestoreCharge:
    """Returns a function that moves a charge back to a submission that could not be replaced any more."""

    def restore(submission: str, replaced_by: Sequence[str]) -> None:
        if owner.budget.exists():
            OwnerBudget(owner.budget).restore(owner.config.digest(), submission, replaced_by)

    return restore


def _is_under_way(owner: DataOwner, before: tuple[str | None, bool] | None) -> bool:
    """True if a saved submission was charged, so that a share of it may have left, or is not sent any more."""
    if before is None:
        return False
    submission, complete = before
    if submission is None or complete:
        return True
    if not owner.budget.exists():
        return False
    state = OwnerBudget(owner.budget).state(owner.config.digest(), submission)
    return state in (ChargeState.CHARGED, ChargeState.RELEASED)


@dataclass(frozen=True, slots=True)
class _Intended:
    """An intended release, which ends as a charge or is dropped."""

    account: BudgetAccount
    dataset: str

    def drop(self) -> None:
        self.account.budget.drop(self.dataset, self.account.release.config)


async def _intend(owner: DataOwner, path: Path) -> _Intended:
    """Records that the release is about to be charged. Raises BudgetExceeded, StoreError."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    release = distaim_release(owner.study)
    if not owner.quote(release, None).covered:
        owner.account(release).require()
    account = owner.account(release)
    return _Intended(account, await asyncio.to_thread(account.intend))


async def _require_not_returned(owner: DataOwner, path: Path) -> None:
    """Raises NotEnrolled if servers have signed that a complete submission is not counted, or the study is over.

    The charge is given back with the signatures alone. Servers that do not answer in time say nothing.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_RETURN_TIMEOUT_S):
            refunds = refunds_of(owner)
            found = await fetch_return(owner.config, owner.files, state=path, give_back=refunds)
            if found is not None and found.hopeless:
                raise NotEnrolled(*study_over(found))
            if found is not None and found.complete:
                names = and_list(sorted(found.confirmed))
                text = (
                    f"{names} have signed that nothing of the submission of {owner.name} is counted: what was charged "
                    "is given back"
                )
                raise NotEnrolled(min(found.confirmed), HTTPStatus.GONE, text)


async def _refused_for_good(owner: DataOwner, path: Path, error: NotEnrolled) -> NotEnrolled:
    """Gives the charge back if servers have signed that nothing was counted; returns the error, which says so then."""
    found = await fetch_return(owner.config, owner.files, state=path, give_back=refunds_of(owner))
    if found is None or not found.complete:
        return error
    names = and_list(sorted(found.confirmed))
    text = f"{error}; {names} have signed that nothing of it was counted: what was charged is given back"
    return NotEnrolled(error.party, error.status, text)
