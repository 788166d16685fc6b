"""Resubmission and withdrawal: a participant replaces or withdraws its table until its rows are counted.

A replacement is a submission of the next version; the servers count the highest that all three have. The state files of
former versions stay beside the new one (``.former-N``) until two servers have signed that nothing of them is counted;
if the replacement came too late, the counted one is restored. Charges are refunded with those signatures, and never
without. ``fetch_return`` asks for the signatures on what the participant has not withdrawn itself: the study is over,
or its operators have revoked the participant. ``complete_replacement`` finishes an interrupted call; every call may be
interrupted and repeated.
Secret: the state files.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parties.config import CertificateFiles, Config
from parties.foundation.errors import (
    CertificateError,
    NotEnrolled,
    StoreError,
    SubmissionRefused,
    SubmitError,
    WithdrawalTooLate,
)
from parties.identity.tls import load_identity
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.submission.delivery import OnRetry
from parties.mpc.submission.http_api import COUNTED_STATUS
from parties.mpc.submission.messages import MAX_VERSION
from parties.mpc.submission.state import (
    SubmissionState,
    WithdrawnSubmissions,
    completed_receipt_of,
    counts_digest_in,
    load_withdrawn,
    mark_withdrawn,
    values_digest,
)
from parties.mpc.submission.status import SubmissionStatus, ask_submission_status
from parties.mpc.submission.submit import NonceOf, Submitted, submission_of, submit
from parties.mpc.submission.withdrawal_client import (
    WithdrawalProgress,
    await_withdrawal,
    check_proof,
    known_versions,
    sign_withdrawal,
)
from parties.session.study import Study
from parties.storage.files import atomic_replacement, disk_errors
from protocols.durable import sync

ChargeSubmission = Callable[[str, Sequence[str]], object]
"""Charges a submission (its digest), in place of the former ones."""
RefundSubmissions = Callable[[Sequence[str], str], object]
"""Refunds the charges of submissions, by their digests, with the proof that nothing of them is counted."""
RestoreCharge = Callable[[str, Sequence[str]], object]
"""Moves a charge back to a submission, by its digest, from those that could not take its place."""


@dataclass(frozen=True, slots=True)
class SavedSubmission:
    """Content of a state file: its ``version``, drawn for ``first_round`` (None: no round), and digests.

    ``submission`` and ``upload`` are None without a submission or an upload; ``counts`` is the digest of the shared
    values.
    """

    version: int
    first_round: int | None
    submission: str | None
    upload: str | None
    counts: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new submission, and the progress of withdrawing the former ones (None: there was none)."""

    submitted: Submitted
    former: WithdrawalProgress | None


def saved_submission(config: Config, client: str, path: Path) -> SavedSubmission | None:
    """Content of a state file; None without a file. Raises StoreError if it is of another run or client."""
    if not path.exists():
        return None
    if (known := completed_receipt_of(path, config.digest(), client)) is not None:
        found = Submitted.from_dict(known)
        return SavedSubmission(
            found.version, found.first_round, found.digest, found.upload, counts_digest_in(path)
        )
    state = SubmissionState.read(path)
    if (state.config, state.client) != (config.digest(), client):
        raise StoreError(path, "is of another run or client; expected another file")
    if state.first_round is None:
        return SavedSubmission(state.version, None, None, None, state.counts)
    submission = submission_of(config, state, config.build_workload())
    upload = state.upload_of(submission).digest() if state.boxes else None
    return SavedSubmission(
        state.version, state.first_round, submission.digest(), upload, state.counts
    )


async def replace_submission(
    config: Config,
    codes: NDArray[np.int32],
    files: CertificateFiles,
    *,
    state: Path,
    spend: ChargeSubmission,
    give_back: RefundSubmissions,
    restore: RestoreCharge = lambda submission, replaced_by: None,
    nonce_of: NonceOf | None = None,
    capacity: int | None = None,
    on_retry: OnRetry = lambda _: None,
) -> Replacement:
    """Sends these rows in place of the submission in ``state``, or at the servers; the same table again resumes.

    If a server has lost a submission that all three had, the same table is sent as another version too, since the
    completed state cannot be sent again.

    Raises WithdrawalTooLate if the former rows are counted (``state`` is then again the counted one), otherwise as
    ``submit``.
    """
    client = load_identity(files).name
    if load_withdrawn(state, config.digest(), client):
        raise SubmitError(
            "the submission was withdrawn: there is nothing to replace. Submit without --replace"
        )
    study = Study.of(config)
    own = OwnerInput.of(study, codes, capacity, client)
    made = saved_submission(config, client, state)
    if made is None:
        made = await _versions_at_servers(config, files, client)
    same = made.counts == values_digest(own.values)
    if made.first_round is not None and (not same or await _is_lost(config, files, made, state)):
        drawn = SubmissionState.draw(config, own, client, made.first_round, made.version + 1)
        await asyncio.to_thread(_keep_former, state, made.version)
        await asyncio.to_thread(drawn.write, state)
    formers = _formers(config, client, state)
    replaced = [former.submission for former in formers.values() if former.submission]
    try:
        submitted = await submit(
            config,
            codes,
            files,
            capacity=capacity,
            state=state,
            workload=study.workload,
            spend=lambda digest: spend(digest, replaced),
            nonce_of=nonce_of,
            on_retry=on_retry,
        )
    except SubmissionRefused as error:
        if error.status != COUNTED_STATUS:
            raise
        await _restore_former(config, files, state, formers, restore=restore)
        raise WithdrawalTooLate(
            f"{error}. The former submission is counted, and stays so: nothing was replaced, and what is released of "
            "it was charged once"
        ) from error
    if not submitted.complete or (not formers and (submitted.version == 1 or submitted.earlier)):
        return Replacement(submitted, None)
    found = await await_withdrawal(config, files, submitted.version - 1)
    await _finish_withdrawal(found, state, formers, give_back)
    return Replacement(submitted, found)


async def withdraw(
    config: Config,
    files: CertificateFiles,
    *,
    state: Path,
    give_back: RefundSubmissions,
    others: Sequence[Path] = (),
) -> WithdrawalProgress:
    """Withdraws the submission in ``state``, or at the servers. May be repeated.

    ``others`` are state files of this owner's other submissions, which a withdrawal covers as well up to its version.

    Raises WithdrawalTooLate if servers report it as counted, NotEnrolled if the study is over without two signatures,
    SubmitError if there is nothing to withdraw or no server has taken the withdrawal, StoreError, CertificateError.
    """
    client = load_identity(files).name
    if (
        before := await asyncio.to_thread(
            refund_withdrawn, config, client, state, give_back=give_back
        )
    ) is not None:
        return WithdrawalProgress.from_proof(before.proof, before.version)
    made = saved_submission(config, client, state)
    if made is not None and made.first_round is None:
        raise SubmitError(f"{client} was not drawn for any round: there is nothing to withdraw")
    version = (made or await _versions_at_servers(config, files, client)).version
    formers = _formers(config, client, state)
    signed = sign_withdrawal(config, files, version)
    found = await await_withdrawal(config, files, version, signed=signed)
    if not found.complete:
        if found.counted:
            raise WithdrawalTooLate(_too_late(found))
        if found.closed:
            raise NotEnrolled(*study_over(found))
        if not found.confirmed and not found.waiting:
            said = "; ".join(f"{name}: {why}" for name, why in sorted(found.problems.items()))
            raise SubmitError(f"no server has taken the withdrawal: {said}. Nothing was given back")
        return found
    await _settle(config, state, found, made=made, formers=formers, give_back=give_back)
    for other in others:
        try:
            if refund_withdrawn(config, client, other, give_back=give_back) is not None:
                continue
            theirs = saved_submission(config, client, other)
        except StoreError:
            # Of another study with the same name.
            continue
        if theirs is not None and theirs.version <= found.version:
            beside = _formers(config, client, other)
            await _settle(config, other, found, made=theirs, formers=beside, give_back=give_back)
    return found


def refund_withdrawn(
    config: Config, client: str, state: Path, *, give_back: RefundSubmissions
) -> WithdrawnSubmissions | None:
    """Withdrawal in a state file, None without one; refunds what it covers, since a kill may have come before that.

    Blocks. Raises StoreError.
    """
    before = load_withdrawn(state, config.digest(), client)
    if before is not None:
        try:
            check_proof(config, client, before.proof, before.version)
        except (ValueError, CertificateError) as error:
            raise StoreError(
                state,
                f"has a withdrawal without proof ({error}); expected two servers' signatures, as they were received",
            ) from error
        give_back(before.submissions, before.proof)
    return before


async def fetch_return(
    config: Config, files: CertificateFiles, *, state: Path, give_back: RefundSubmissions
) -> WithdrawalProgress | None:
    """Asks the servers about the submission in ``state``, and refunds it if two have signed that it is settled.

    It withdraws nothing. Returns their answers; None where nothing was submitted, or it was refunded before. Raises
    StoreError, CertificateError.
    """
    client = load_identity(files).name
    if (
        await asyncio.to_thread(refund_withdrawn, config, client, state, give_back=give_back)
        is not None
    ):
        return None
    made = saved_submission(config, client, state)
    if made is None or made.submission is None:
        return None
    formers = _formers(config, client, state)
    found = await await_withdrawal(config, files, made.version, limit_s=0.0)
    if found.complete:
        await _settle(config, state, found, made=made, formers=formers, give_back=give_back)
    return found


async def _settle(
    config: Config,
    state: Path,
    found: WithdrawalProgress,
    *,
    made: SavedSubmission | None,
    formers: dict[int, SavedSubmission],
    give_back: RefundSubmissions,
) -> None:
    """Marks the state as withdrawn with the servers' signatures, then refunds its submissions."""
    digests = tuple(m.submission for m in (made, *formers.values()) if m and m.submission)
    gone = WithdrawnSubmissions(config.digest(), found.client, found.version, digests, found.proof)
    await asyncio.to_thread(mark_withdrawn, state, gone)
    await asyncio.to_thread(give_back, digests, found.proof)
    await asyncio.to_thread(_delete_formers, state, formers)


async def complete_replacement(
    config: Config,
    files: CertificateFiles,
    *,
    state: Path,
    statuses: Sequence[SubmissionStatus],
    give_back: RefundSubmissions,
    restore: RestoreCharge = lambda submission, replaced_by: None,
) -> WithdrawalProgress | None:
    """Completes a replacement: refunds settled versions, or restores a counted one; None if nothing is left to do.

    Raises StoreError, CertificateError.
    """
    client = load_identity(files).name
    if load_withdrawn(state, config.digest(), client):
        return None
    formers = _formers(config, client, state)
    if not formers:
        return None
    counted = {each.upload for each in statuses if each.counted}
    if any(former.upload in counted for former in formers.values()):
        await _restore_former(config, files, state, formers, restore=restore)
        return None
    found = await await_withdrawal(config, files, max(formers), limit_s=0.0)
    await _finish_withdrawal(found, state, formers, give_back)
    return found


async def _is_lost(
    config: Config, files: CertificateFiles, made: SavedSubmission, state: Path
) -> bool:
    """True if a server that had signed for the submission of ``state`` lacks it now."""
    if completed_receipt_of(state, config.digest(), load_identity(files).name) is None:
        return False
    return any(version < made.version for version in (await known_versions(config, files)).values())


async def _versions_at_servers(
    config: Config, files: CertificateFiles, client: str
) -> SavedSubmission:
    """Submission of a participant without a state file, by the servers' answers. Raises SubmitError without one."""
    there = await known_versions(config, files)
    version = max(there.values(), default=0)
    if not 0 < version <= MAX_VERSION:
        answers = ", ".join(there) or "no server"
        raise SubmitError(
            f"no submission of {client} is known, here or at a server: {answers} answered. Nothing was sent"
        )
    return SavedSubmission(version, 1, None, None, "")


async def _finish_withdrawal(
    found: WithdrawalProgress,
    state: Path,
    formers: dict[int, SavedSubmission],
    give_back: RefundSubmissions,
) -> None:
    """Refunds former versions and deletes their files, once two servers have signed."""
    if found.complete:
        digests = [former.submission for former in formers.values() if former.submission]
        await asyncio.to_thread(give_back, digests, found.proof)
        await asyncio.to_thread(_delete_formers, state, formers)


async def _restore_former(
    config: Config,
    files: CertificateFiles,
    state: Path,
    formers: dict[int, SavedSubmission],
    *,
    restore: RestoreCharge,
) -> None:
    """Restores charge and state file of the counted former version; of the last one, if no server reports any."""
    statuses = await ask_submission_status(config, files)
    counted = {each.upload for each in statuses if each.counted}
    versions = [v for v, made in formers.items() if made.upload in counted] or list(formers)
    if versions:
        last = saved_submission(config, load_identity(files).name, state)
        others = [last, *(made for version, made in formers.items() if version != max(versions))]
        replaced_by = [made.submission for made in others if made and made.submission]
        # The charge first: after a kill in between, the next command finds the former file, and does both again.
        if (submission := formers[max(versions)].submission) is not None:
            await asyncio.to_thread(restore, submission, replaced_by)
        with disk_errors(state):
            _former_file(state, max(versions)).replace(state)
            sync(state.parent)
        _delete_formers(state, formers)


def _former_file(state: Path, version: int) -> Path:
    return state.with_name(f"{state.name}.former-{version}")


def _keep_former(state: Path, version: int) -> None:
    """Copies the state file as that of a former version, durably."""
    if state.exists():
        aside = _former_file(state, version)
        with atomic_replacement(aside, durable=True, secret=True) as beside, disk_errors(beside):
            shutil.copyfile(state, beside)


def _formers(config: Config, client: str, state: Path) -> dict[int, SavedSubmission]:
    """Saved former versions, by version."""
    found: dict[int, SavedSubmission] = {}
    current = saved_submission(config, client, state) if state.exists() else None
    for path in sorted(state.parent.glob(f"{state.name}.former-*")):
        made = saved_submission(config, client, path)
        # A copy whose replacement was never written is no former version.
        if made is not None and (current is None or made.version < current.version):
            found[made.version] = made
    return found


def _delete_formers(state: Path, formers: dict[int, SavedSubmission]) -> None:
    with disk_errors(state.parent):
        for version in formers:
            _former_file(state, version).unlink(missing_ok=True)


def study_over(found: WithdrawalProgress) -> tuple[str, int, str]:
    """Server, HTTP status and text of a study that is over, and not signed to be void by two servers."""
    said = [f"{name}: {why}" for name, why in sorted(found.closed.items())]
    said += [f"{name} has signed that nothing is counted" for name in sorted(found.confirmed)]
    text = (
        f"the study is over, and no two servers have signed that nothing of it was opened ({'; '.join(said)}). Nothing "
        "was given back"
    )
    return min(found.closed), HTTPStatus.GONE, text


def _too_late(found: WithdrawalProgress) -> str:
    said = [f"{name} says that" for name in sorted(found.counted)]
    others = [f"{name} has not met the others" for name in sorted(found.waiting)]
    others += [f"{name} has signed that nothing is counted" for name in sorted(found.confirmed)]
    others += [f"{name}: {why}" for name, why in sorted(found.problems.items())]
    return (
        f"too late to withdraw the submission of {found.client}: its rows are counted from round "
        f"{min(found.counted.values())} on, and what is opened depends on them ({'; '.join(said + others)}). Nothing "
        "was given back"
    )
