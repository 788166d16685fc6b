"""An owner changes its mind: another table in the place of the one it sent, or none, until its rows are counted.

Provides ``replace_submission``, ``withdraw`` and ``follow_up``, which does what an earlier call left to be done. A
replacement is a submission of the next version; the servers count the highest that all three have. The state files of
the versions before stay beside the new one (``.former-N``) until all three servers have signed that nothing of them is
counted: if it came too late, the one that is counted is put back. Charges are given back with those signatures and
without them never. Everything may be broken off and done again. Secret: the state files.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parties.config import CertificateFiles, Config
from parties.foundation.errors import StoreError, SubmissionRefused, SubmitError, TooLate
from parties.identity.tls import load_identity
from parties.mpc.inputs.own import OwnInput
from parties.mpc.submission.delivery import OnRetry
from parties.mpc.submission.http_api import COUNTED
from parties.mpc.submission.messages import MAX_VERSION
from parties.mpc.submission.state import (
    State,
    Withdrawn,
    completed_by,
    counts_in,
    mark_withdrawn,
    values_digest,
    withdrawn_by,
)
from parties.mpc.submission.status import Told, ask_standings
from parties.mpc.submission.submit import Submitted, submission_of, submit
from parties.mpc.submission.withdrawal_client import (
    TakenBack,
    sign_withdrawal,
    take_back,
    versions_there,
)
from parties.storage.files import disk_errors, replacing
from protocols.durable import sync

Spend = Callable[[str, Sequence[str]], object]
"""Charges a submission (its digest), in the place of the former ones."""
GiveBack = Callable[[Sequence[str], str], object]
"""Gives back what was charged for submissions, by their digests, with the proof that nothing of them is counted."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a state file has: a ``version``, drawn for ``first_round`` (None: no round); digests of all.

    ``submission`` and ``upload`` are None where there is none; ``counts`` is that of what was shared.
    """

    version: int
    first_round: int | None
    submission: str | None
    upload: str | None
    counts: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """The new submission, and how far it is that the former ones are gone (None: there was none)."""

    submitted: Submitted
    former: TakenBack | None


def made_in(config: Config, client: str, path: Path) -> Made | None:
    """What is in a state file; None where there is none. Raises StoreError where it is another run's or client's."""
    if not path.exists():
        return None
    if (known := completed_by(path, config.digest(), client)) is not None:
        found = Submitted.from_dict(known)
        return Made(found.version, found.first_round, found.digest, found.upload, counts_in(path))
    state = State.read(path)
    if (state.config, state.client) != (config.digest(), client):
        raise StoreError(path, "is of another run or client; expected another file")
    if state.first_round is None:
        return Made(state.version, None, None, None, state.counts)
    submission = submission_of(config, state, config.build_workload())
    upload = state.upload_of(submission).digest() if state.boxes else None
    return Made(state.version, state.first_round, submission.digest(), upload, state.counts)


async def replace_submission(
    config: Config,
    codes: NDArray[np.int32],
    files: CertificateFiles,
    *,
    state: Path,
    spend: Spend,
    give_back: GiveBack,
    capacity: int | None = None,
    on_retry: OnRetry = lambda _: None,
) -> Replaced:
    """Send these rows in the place of what ``state`` has, or of what servers have; the same table again goes on.

    Where all three servers had it and one has it no more, the same table is another version as well: what is left of
    the former one cannot be sent again.

    Raises TooLate where the former rows are counted (``state`` is then again what is counted), as ``submit`` else.
    """
    client = load_identity(files).name
    if withdrawn_by(state, config.digest(), client):
        raise SubmitError(
            "the submission was withdrawn: there is nothing to replace. Submit without --replace"
        )
    workload = config.build_workload()
    own = OwnInput.of(config, workload, codes, capacity, client)
    made = made_in(config, client, state)
    if made is None:
        made = await _unknown(config, files, client)
    same = made.counts == values_digest(own.values)
    if made.first_round is not None and (not same or await _is_lost(config, files, made, state)):
        drawn = State.draw(config, own, client, made.first_round, made.version + 1)
        await asyncio.to_thread(_put_aside, state, made.version)
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
            workload=workload,
            spend=lambda digest: spend(digest, replaced),
            on_retry=on_retry,
        )
    except SubmissionRefused as error:
        if error.status != COUNTED:
            raise
        await _put_back(config, files, state, formers)
        raise TooLate(
            f"{error}. The former submission is counted, and stays so: nothing was replaced, and what is released of "
            "it was charged once"
        ) from error
    if not submitted.complete or (not formers and submitted.version == 1):
        return Replaced(submitted, None)
    found = await take_back(config, files, submitted.version - 1)
    await _conclude(found, state, formers, give_back)
    return Replaced(submitted, found)


async def withdraw(
    config: Config, files: CertificateFiles, *, state: Path, give_back: GiveBack
) -> TakenBack:
    """Take back what ``state`` has, or what servers have of this owner. May be repeated.

    Raises TooLate where servers say that it is counted, SubmitError where there is nothing, StoreError,
    CertificateError.
    """
    client = load_identity(files).name
    if (before := withdrawn_by(state, config.digest(), client)) is not None:
        # A kill may have come before it was given back.
        await asyncio.to_thread(give_back, before.submissions, before.proof)
        return TakenBack.from_proof(before.proof, before.version)
    made = made_in(config, client, state)
    if made is not None and made.first_round is None:
        raise SubmitError(f"{client} was not drawn for any round: there is nothing to withdraw")
    version = (made or await _unknown(config, files, client)).version
    formers = _formers(config, client, state)
    signed = sign_withdrawal(config, files, version)
    found = await take_back(config, files, version, signed=signed)
    if not found.complete:
        if found.counted:
            raise TooLate(_too_late(found))
        return found
    digests = tuple(m.submission for m in (made, *formers.values()) if m and m.submission)
    gone = Withdrawn(config.digest(), client, version, digests, found.proof)
    await asyncio.to_thread(mark_withdrawn, state, gone)
    await asyncio.to_thread(give_back, digests, found.proof)
    await asyncio.to_thread(_forget, state, formers)
    return found


async def follow_up(
    config: Config,
    files: CertificateFiles,
    *,
    state: Path,
    told: Sequence[Told],
    give_back: GiveBack,
) -> TakenBack | None:
    """What is left to do of a replacement: give back what is settled, or put back what is counted; None for nothing.

    Raises StoreError, CertificateError.
    """
    client = load_identity(files).name
    if withdrawn_by(state, config.digest(), client):
        return None
    formers = _formers(config, client, state)
    if not formers:
        return None
    counted = {each.upload for each in told if each.counted}
    if any(former.upload in counted for former in formers.values()):
        await _put_back(config, files, state, formers)
        return None
    found = await take_back(config, files, max(formers), limit_s=0.0)
    await _conclude(found, state, formers, give_back)
    return found


async def _is_lost(config: Config, files: CertificateFiles, made: Made, state: Path) -> bool:
    """Whether a server that had signed for the submission of ``state`` lacks it now."""
    if completed_by(state, config.digest(), load_identity(files).name) is None:
        return False
    return any(version < made.version for version in (await versions_there(config, files)).values())


async def _unknown(config: Config, files: CertificateFiles, client: str) -> Made:
    """What servers have of an owner without a state file. Raises SubmitError where that is nothing."""
    there = await versions_there(config, files)
    version = max(there.values(), default=0)
    if not 0 < version <= MAX_VERSION:
        answers = ", ".join(there) or "no server"
        raise SubmitError(f"nothing of {client} is there: {answers} answered. Nothing was sent")
    return Made(version, 1, None, None, "")


async def _conclude(
    found: TakenBack, state: Path, formers: dict[int, Made], give_back: GiveBack
) -> None:
    """With three signatures former versions are over: their charges, where they were others, are given back."""
    if found.complete:
        digests = [former.submission for former in formers.values() if former.submission]
        await asyncio.to_thread(give_back, digests, found.proof)
        await asyncio.to_thread(_forget, state, formers)


async def _put_back(
    config: Config, files: CertificateFiles, state: Path, formers: dict[int, Made]
) -> None:
    """The former version that is counted is what the state file has again; the last one, if servers do not say."""
    told = await ask_standings(config, files)
    counted = {each.upload for each in told if each.counted}
    versions = [v for v, made in formers.items() if made.upload in counted] or list(formers)
    if versions:
        with disk_errors(state):
            _former_file(state, max(versions)).replace(state)
            sync(state.parent)
        _forget(state, formers)


def _former_file(state: Path, version: int) -> Path:
    return state.with_name(f"{state.name}.former-{version}")


def _put_aside(state: Path, version: int) -> None:
    """Keep a copy of the state file as that of a former version, durably."""
    if state.exists():
        aside = _former_file(state, version)
        with replacing(aside, durable=True, secret=True) as beside, disk_errors(beside):
            shutil.copyfile(state, beside)


def _formers(config: Config, client: str, state: Path) -> dict[int, Made]:
    """What is kept of former versions, by version."""
    found: dict[int, Made] = {}
    current = made_in(config, client, state) if state.exists() else None
    for path in sorted(state.parent.glob(f"{state.name}.former-*")):
        made = made_in(config, client, path)
        # A copy that was made before anything else happened is no former version.
        if made is not None and (current is None or made.version < current.version):
            found[made.version] = made
    return found


def _forget(state: Path, formers: dict[int, Made]) -> None:
    with disk_errors(state.parent):
        for version in formers:
            _former_file(state, version).unlink(missing_ok=True)


def _too_late(found: TakenBack) -> str:
    said = [f"{name} says that" for name in sorted(found.counted)]
    others = [f"{name} has not met the others" for name in sorted(found.waiting)]
    others += [f"{name} has signed that nothing is counted" for name in sorted(found.confirmed)]
    others += [f"{name}: {why}" for name, why in sorted(found.problems.items())]
    return (
        f"too late to withdraw the submission of {found.client}: its rows are counted from round "
        f"{min(found.counted.values())} on, and what is opened depends on them ({'; '.join(said + others)}). Nothing "
        "was given back"
    )
