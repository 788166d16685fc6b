"""Earlier releases of an owner's key, as servers tell them: for a budget that was put back from an older copy.

``ask_earlier_releases`` asks the pinned servers of a study what of this key they have released, over all studies that
they know. A release is believed on the owner's own evidence alone: its signature on a submission, which names the
digest of a configuration, and that configuration, whose cost this program computes. So a lying server can invent no
study and no cost; it can say that a submission was released which was not, and withhold what it knows. Secret: nothing.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from mechanisms.errors import MechanismError
from parties.config import CertificateFiles, Config, agreed_digest, config_from_dict
from parties.config.diff import MAX_BYTES
from parties.foundation.errors import CertificateError, ConfigError, SubmitError
from parties.identity.signing import Signatory, signatory_of
from parties.identity.tls import certificate_bytes
from parties.mpc.planning.budget import distaim_release
from parties.mpc.submission.http_api import releases_path
from parties.mpc.submission.sealed_upload import SignedUpload
from parties.mpc.submission.status import ServerAnswer, ask_server
from parties.session.study import Study
from parties.storage.owner_budget import OwnerBudget
from parties.storage.population_budget import APPROXIMATE, Release
from parties.storage.told_releases import EarlierRelease, ToldReleases

_MAX_ANSWER = 1 << 24
_TIMEOUT_S = 10.0
"""Maximum time in seconds for the answers of all servers to one question."""
_SURE = 2
"""Servers whose word enters a charge again that two have signed back: one of two follows the protocol."""
_NO_ADDRESSES = "unknown.invalid"
"""Host of the servers in a configuration whose agreed part has none."""


async def ask_earlier_releases(
    config: Config, files: CertificateFiles, budget: Path
) -> ToldReleases:
    """Returns the releases of the certificate's key that the servers of ``config`` tell and the ``budget`` lacks.

    Servers that do not answer in time tell nothing. Raises CertificateError, ConfigError, StoreError; SubmitError if
    none shows a configuration of theirs.
    """
    answers = await _ask_all(config, files)
    owner = signatory_of(certificate_bytes(files))
    found = dict[tuple[str, str], list[ServerAnswer]]()
    marks = dict[tuple[str, str], str]()
    for answer in answers:
        for signed in _uploads(answer, owner):
            key = (signed.submission.config, signed.submission.digest())
            marks[key] = signed.submission.nonce
            if answer not in (servers := found.setdefault(key, [])):
                servers.append(answer)
    missing = [
        EarlierRelease(
            await _release_of(config, files, digest, heard=found[digest, submission]),
            submission,
            tuple(answer.party.name for answer in found[digest, submission]),
            marks[digest, submission],
        )
        for digest, submission in await asyncio.to_thread(_missing, budget, found)
    ]
    answered = tuple(answer.party.name for answer in answers if answer.says is not None)
    problems = {answer.party.name: answer.problem for answer in answers if answer.says is None}
    return ToldReleases(tuple(missing), answered, problems)


def _missing(
    budget: Path, found: Mapping[tuple[str, str], Sequence[ServerAnswer]]
) -> list[tuple[str, str]]:
    """Returns configuration and submission of the releases that the budget lacks. Blocks."""
    if not found or not budget.exists():
        return list(found)
    known = OwnerBudget(budget)
    return [key for key, said in found.items() if known.lacks(*key, sure=len(said) >= _SURE)]


async def _ask_all(config: Config, files: CertificateFiles) -> list[ServerAnswer]:
    """Returns the answers of all servers; those that do not answer in time have that problem."""
    path = releases_path(config.run.id)
    asked = [
        asyncio.ensure_future(ask_server(config, party, files, path=path, most=_MAX_ANSWER))
        for party in config.require_parties()
    ]
    done, late = await asyncio.wait(asked, timeout=_TIMEOUT_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    return [
        task.result() if task in done else ServerAnswer(party, problem="no answer in time")
        for task, party in zip(asked, config.require_parties(), strict=True)
    ]


def _uploads(answer: ServerAnswer, owner: Signatory) -> list[SignedUpload]:
    """Returns the uploads in a server's answer that the owner has signed; all else is ignored."""
    listed = (answer.says or {}).get("releases")
    found = []
    for item in listed if isinstance(listed, list) else ():
        try:
            signed = SignedUpload.from_json(json.dumps(item))
            owner.verify(signed.signature, signed.upload.message())
        except (ValueError, TypeError, LookupError, RecursionError, CertificateError):
            continue
        found.append(signed)
    return found


async def _release_of(
    config: Config, files: CertificateFiles, digest: str, *, heard: Sequence[ServerAnswer]
) -> Release:
    """Returns the cost of an earlier study, by its configuration. Raises SubmitError if no server shows it."""
    path = f"{releases_path(config.run.id)}?config={digest}"
    for answer in heard:
        shown = await ask_server(config, answer.party, files, path=path, most=MAX_BYTES)
        if shown.says is not None and agreed_digest(shown.says) == digest:
            return release_of_agreed(shown.says)
    names = ", ".join(answer.party.name for answer in heard)
    raise SubmitError(
        f"{names} have released a submission of this key for configuration {digest[:12]}, which this budget does not "
        "have, and do not show that configuration: nothing was sent or charged"
    )


def release_of_agreed(agreed: Mapping[str, object]) -> Release:
    """Returns the release that an agreed configuration permits.

    One that this version cannot read has the epsilon and delta in it, and nothing finer. Raises SubmitError without.
    """
    servers, digest = agreed.get("party"), agreed_digest(agreed)
    placed = [
        {**server, "mesh": f"{_NO_ADDRESSES}:{2 * n + 1}", "ingest": f"{_NO_ADDRESSES}:{2 * n + 2}"}
        for n, server in enumerate(servers if isinstance(servers, list) else ())
        if isinstance(server, dict)
    ]
    document = {**agreed, "party": placed}
    try:
        config = config_from_dict(document, source="an earlier study", base=Path())
        if config.digest() == digest:
            return distaim_release(Study.of(config))
    except (ConfigError, MechanismError):
        # Of another version, or of files that are not here.
        pass
    match agreed:
        case {
            "run": {
                "id": str() as run,
                "epsilon": float() | int() as epsilon,
                "delta": float() as delta,
            }
        }:
            rho = epsilon * epsilon / 2
            return Release(digest, run, "distaim", rho, epsilon, delta, accountant=APPROXIMATE)
    raise SubmitError(f"configuration {digest[:12]} of an earlier study has no epsilon and delta")
