"""Submission of a table: validate, count, share, seal, send to one server, verify three receipts.

``submit_table`` and ``submit`` do all of it; ``prepare`` and ``send_prepared`` are their two halves;
``refresh_receipts`` asks later for receipts. The client itself draws its first round (probability ``participation`` in
each), and may not take part at all. With a ``state`` file, the submission can be sent again after a failure or a crash:
the same upload, the same round, and the servers count it once; when all three have it, the file becomes a receipt.
Without one, a second call makes a second submission, which servers that have the first refuse.

Secret: the table, its shared values, seeds and bodies; they leave this process as sealed shares only, and in the state
file (`parties.mpc.submission.state`) beside the table. Public: the client's participation and its first round. Source:
`protocols` README section 2; FLAIM paper, Alg. 3.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.reading import read_text
from mechanisms.source import TableSource
from mechanisms.table import encode
from mechanisms.workload import Workload
from parties.config import CertificateFiles, Config
from parties.foundation.errors import StoreError
from parties.identity.tls import certificate_bytes, load_identity, signer
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.planning.validation import validate_owner
from parties.mpc.submission.delivery import (
    DeliveryResult,
    OnRetry,
    Sender,
    UploadTraffic,
    deliver,
    query_delivery,
)
from parties.mpc.submission.messages import RING_BITS, Submission
from parties.mpc.submission.sealed_upload import (
    SealedUpload,
    ServerReceipt,
    SignedUpload,
    Upload,
    seal_boxes,
    seal_common,
)
from parties.mpc.submission.state import (
    SubmissionKey,
    SubmissionState,
    completed_receipt,
    completed_receipt_of,
    load_withdrawn,
    mark_complete,
    values_digest,
)
from parties.session.study import Study

NonceOf = Callable[[str, str], str]
"""Returns the nonce for a submission that is about to be charged, from its digest and its nonce."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """Outcome of a submission: the ``receipts`` of servers that have their parts of its ``upload``.

    ``kept_for`` are servers that were away: the server ``via``, which took the upload, forwards their parts when they
    are back. ``first_round`` is the drawn round; None: no round was drawn, and nothing was sent. ``counted_from`` is
    the earliest round that counts the ``rows``, as a server reported when it had the upload: rounds that had begun by
    then are without it. None: no server has reported one. ``rows`` is never sent.
    """

    run: str
    client: str
    first_round: int | None
    form: str
    capacity: int
    cells: int
    rows: int | None = field(default=None, repr=False)
    counted_from: int | None = None
    version: int = 1
    digest: str | None = None
    upload: str | None = None
    receipts: tuple[ServerReceipt, ...] = ()
    kept_for: tuple[str, ...] = ()
    via: str | None = None
    traffic: UploadTraffic = field(default_factory=UploadTraffic)
    seconds: float = 0.0
    earlier: bool = False
    """True if an earlier call had this outcome: nothing was sent this time."""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], **changes: bool) -> Self:
        """Parses ``to_dict``'s value. Raises TypeError, KeyError or ValueError on anything else."""
        known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        receipts = tuple(ServerReceipt.from_dict(item) for item in value["receipts"])
        traffic = UploadTraffic(
            **{name: value[name] for name in UploadTraffic.__dataclass_fields__}
        )
        kept = tuple(value["kept_for"])
        return cls(
            **{**known, "receipts": receipts, "kept_for": kept, "traffic": traffic, **changes}
        )

    @property
    def complete(self) -> bool:
        """True if all three servers have confirmed the upload."""
        return len(self.receipts) == 3

    def to_dict(self) -> dict[str, object]:
        """JSON form."""
        values = asdict(self)
        traffic: dict[str, object] = values.pop("traffic")
        values["receipts"] = [receipt.to_dict() for receipt in self.receipts]
        return {
            **values,
            **traffic,
            "complete": self.complete,
            "participates": self.first_round is not None,
        }


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSubmission:
    """A submission ready to send, without secrets: the sealed parts, and the signed upload."""

    upload: SignedUpload
    sealed: SealedUpload
    receipts: tuple[ServerReceipt, ...] = ()
    rows: int | None = field(default=None, repr=False)


def draw_first_round(
    rounds: int, participation: float, random_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> int | None:
    """Draws the first of rounds 1..``rounds`` of a client that takes part in each with probability ``participation``.

    None: in no round. Exact up to 2^-64 in each round's probability, rounded down.
    """
    threshold = int(participation * 2**64)
    for number in range(1, rounds + 1):
        if int.from_bytes(random_bytes(8), "little") < threshold:
            return number
    return None


async def submit_table(
    config: Config,
    table: Path | TableSource,
    files: CertificateFiles,
    *,
    capacity: int | None = None,
    first_round: int | None = None,
    state: Path | None = None,
    spend: Callable[[str], object] | None = None,
    ignore_extra: bool = False,
    on_retry: OnRetry = lambda _: None,
) -> Submitted:
    """Submits a table, which may have unknown columns with ``ignore_extra``; as ``submit``.

    Raises DataError if the table does not fit the domain.
    """
    source = table if isinstance(table, TableSource) else TableSource(str(table))
    codes = encode(config.domain, read_text(source), source=source.shown, ignore_extra=ignore_extra)
    return await submit(
        config,
        codes,
        files,
        capacity=capacity,
        first_round=first_round,
        state=state,
        spend=spend,
        on_retry=on_retry,
    )


async def submit(
    config: Config,
    codes: NDArray[np.int32],
    files: CertificateFiles,
    *,
    capacity: int | None = None,
    first_round: int | None = None,
    state: Path | None = None,
    workload: Workload | None = None,
    spend: Callable[[str], object] | None = None,
    nonce_of: NonceOf | None = None,
    least_version: int = 1,
    on_retry: OnRetry = lambda _: None,
) -> Submitted:
    """Counts, shares, seals and sends one participant's coded rows; the client's name is its certificate's.

    Shapes: codes int32 (rows, columns of the domain), at most ``capacity`` of them, which is public (None: the run's
    maximum). If ``first_round`` is None, the round is drawn. ``workload`` saves building and validating it again, if
    many clients share a process. ``spend`` charges the submission (its digest) to the table's budget before anything is
    sent (`parties.storage.owner_budget`); without it the caller has to. ``nonce_of`` chooses the nonce of a submission
    that is not charged yet. A submission of a lower version than ``least_version`` is made anew with that one: servers
    have settled it, and count nothing of it. The deadline is timeouts.submit_s; ``on_retry`` is called with every
    server that has to be tried again, and the reason. The call returns once one server has the upload and every other
    one has confirmed its part, or is away (``kept_for``): the participant need not return. If ``state`` has the
    receipts of all three servers, nothing is sent again.

    Raises DataError (too many rows), StoreError (``state`` cannot be used), errors of ``spend``, SubmitError,
    SubmissionRefused, PartialSubmission (one server has it that another refuses), CertificateError, ConfigError.
    """
    client = load_identity(files).name
    if workload is None:
        workload = config.build_workload()
        validate_owner(Study(config, workload))
    own = OwnerInput.of(Study(config, workload), codes, capacity, client)
    key = SubmissionKey(config.digest(), client, values_digest(own.values))
    if state is not None and (known := completed_receipt(state, key)) is not None:
        return Submitted.from_dict(known, earlier=True)
    prepared = prepare(
        config,
        own,
        files,
        workload=workload,
        first_round=first_round,
        state=state,
        nonce_of=nonce_of,
        least_version=least_version,
    )
    if prepared is None:
        return _not_drawn(config, client, workload, own)
    if spend is not None:
        await asyncio.to_thread(spend, prepared.upload.submission.digest())
    submitted = await send_prepared(config, prepared, files, on_retry=on_retry)
    if state is not None:
        _save_receipts(submitted, SubmissionState.read(state), state)
    return submitted


def previous_submission(
    config: Config,
    codes: NDArray[np.int32],
    client: str,
    path: Path,
    *,
    capacity: int | None = None,
) -> tuple[str | None, bool] | None:
    """Digest of these rows' submission in a state file (None: no round), and True if it is complete.

    None without a file. Raises StoreError if the file is of another submission.
    """
    if not path.exists() or load_withdrawn(path, config.digest(), client):
        return None
    workload = config.build_workload()
    own = OwnerInput.of(Study(config, workload), codes, capacity, client)
    known = completed_receipt(
        path, SubmissionKey(config.digest(), client, values_digest(own.values))
    )
    if known is not None:
        return Submitted.from_dict(known).digest, True
    state = SubmissionState.read(path)
    if not state.fits(config, own, client, None):
        raise _is_of_another(path)
    if state.first_round is None:
        return None, False
    return submission_of(config, state, workload).digest(), False


def _is_of_another(path: Path) -> StoreError:
    return StoreError(
        path,
        "is of another submission; expected the client, config, round, capacity and table it was made with, or "
        "--replace, to send this table in its place; or, if no server has that submission, another file or none",
    )


def _not_drawn(
    config: Config, client: str, workload: Workload, own: OwnerInput | SubmissionState
) -> Submitted:
    form = own.form if isinstance(own, SubmissionState) else own.form.name
    cells = workload.maximal_cells
    return Submitted(config.run.id, client, None, form, own.capacity, cells, own.rows)


def _save_receipts(submitted: Submitted, known: SubmissionState, path: Path) -> None:
    """Writes the receipts into the state file: in place of all else once they are three. Raises StoreError."""
    if submitted.complete:
        key = SubmissionKey(known.config, known.client, known.counts)
        mark_complete(path, key, submitted.to_dict())
    else:
        known.with_receipts(submitted.receipts).write(path)


def prepare(
    config: Config,
    own: OwnerInput,
    files: CertificateFiles,
    *,
    workload: Workload,
    first_round: int | None = None,
    state: Path | None = None,
    nonce_of: NonceOf | None = None,
    least_version: int = 1,
) -> PreparedSubmission | None:
    """Draws round and seeds, shares ``own`` and seals it, or takes all from ``state``; None: no participation.

    ``nonce_of`` and ``least_version`` are as for ``submit``.

    Raises StoreError if ``state`` is unreadable, unwritable, or of another submission; ConfigError without servers,
    CertificateError.
    """
    client = load_identity(files).name
    withdrawn = None if state is None else load_withdrawn(state, config.digest(), client)
    version = max(least_version, 1 if withdrawn is None else withdrawn.version + 1)
    fresh = state is None or withdrawn is not None or not state.exists()
    found = known = None if fresh or state is None else SubmissionState.read(state)
    if known is not None and known.version < least_version:
        first_round, known = known.first_round, None
    if known is None:
        if first_round is None:
            first_round = draw_first_round(config.run.rounds, config.clients.participation)
        known = SubmissionState.draw(config, own, client, first_round, version)
    elif state is not None and not known.fits(config, own, client, first_round):
        raise _is_of_another(state)
    if nonce_of is not None and known.first_round is not None:
        digest = submission_of(config, known, workload).digest()
        if (nonce := nonce_of(digest, known.nonce)) != known.nonce:
            known = replace(known, nonce=nonce, boxes=(), common="")
    known, sealed = _seal(config, own, known, workload)
    if state is not None and known != found:
        known.write(state)
    if sealed is None:
        return None
    upload = sealed.describe(submission_of(config, known, workload))
    signed = SignedUpload(upload, signer(files)(upload.message()), certificate_bytes(files))
    return PreparedSubmission(signed, sealed, tuple(known.known_receipts), known.rows)


def _seal(
    config: Config, own: OwnerInput, state: SubmissionState, workload: Workload
) -> tuple[SubmissionState, SealedUpload | None]:
    """Sealed upload, and the state with its boxes; boxes in the state are used again."""
    if state.first_round is None:
        return state, None
    submission = submission_of(config, state, workload)
    bodies = own.form.share(own.values, state.seeds)
    key = bytes.fromhex(state.key)
    common = seal_common(bodies, submission, key)
    if not state.boxes:
        servers = [party.seal_to for party in config.require_parties()]
        boxes = seal_boxes(bodies, submission, servers, key=key, common=common)
        state = state.with_sealed(boxes, common)
    first, second, third = state.sealed_boxes
    return state, SealedUpload((first, second, third), common, bodies.holders)


def submission_of(config: Config, state: SubmissionState, workload: Workload) -> Submission:
    """Submission of ``state``. Raises ValueError if its client takes part in no round."""
    if state.first_round is None:
        raise ValueError("an owner that does not take part submits nothing")
    return Submission(
        run=config.run.id,
        client=state.client,
        config=config.digest(),
        workload=workload.digest(),
        cells=workload.maximal_cells,
        ring=RING_BITS,
        form=state.form,
        capacity=state.capacity,
        first_round=state.first_round,
        nonce=state.nonce,
        version=state.version,
    )


async def send_prepared(
    config: Config,
    prepared: PreparedSubmission,
    files: CertificateFiles,
    *,
    on_retry: OnRetry = lambda _: None,
) -> Submitted:
    """Sends a prepared submission to one server, trying others until the deadline, and verifies the receipts.

    Raises as `parties.mpc.submission.delivery.deliver`.
    """
    started = time.monotonic()
    owner = Sender(config, files, on_retry)
    delivered = await deliver(owner, prepared.upload, prepared.sealed, prepared.receipts)
    seconds = time.monotonic() - started
    return _submitted(prepared.upload.upload, delivered, prepared.rows, seconds)


async def refresh_receipts(config: Config, files: CertificateFiles, state: Path) -> Submitted:
    """Asks the servers, one after the other, for receipts of the submission in ``state``, and stores new ones there.

    Raises StoreError if ``state`` is not of this run and client, SubmitError if no answering server has it,
    CertificateError.
    """
    started, client = time.monotonic(), load_identity(files).name
    if (complete := completed_receipt_of(state, config.digest(), client)) is not None:
        return Submitted.from_dict(complete, earlier=True)
    if not await asyncio.to_thread(state.exists):
        raise StoreError(
            state,
            f"is not there; nothing of {client} was sent from here, or what was sent is in another file (--state)",
        )
    known, workload = SubmissionState.read(state), config.build_workload()
    if (known.config, known.client) != (config.digest(), client):
        raise StoreError(state, "is of another run or client; expected the one of this submission")
    if known.first_round is None:
        return _not_drawn(config, client, workload, known)
    upload = known.upload_of(submission_of(config, known, workload))
    delivered = await query_delivery(Sender(config, files), upload, known.known_receipts)
    submitted = _submitted(upload, delivered, known.rows, time.monotonic() - started)
    _save_receipts(submitted, known, state)
    return submitted


def _submitted(
    upload: Upload, delivered: DeliveryResult, rows: int | None, seconds: float
) -> Submitted:
    submission = upload.submission
    return Submitted(
        run=submission.run,
        client=submission.client,
        first_round=submission.first_round,
        form=submission.form,
        capacity=submission.capacity,
        cells=submission.cells,
        rows=rows,
        counted_from=delivered.counted_from,
        version=submission.version,
        digest=submission.digest(),
        upload=upload.digest(),
        receipts=delivered.receipts,
        kept_for=delivered.kept_for,
        via=delivered.via,
        traffic=delivered.traffic,
        seconds=seconds,
    )
