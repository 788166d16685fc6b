"""A data owner's part from a program, as `syncret submit` plays it.

Provides ``submit`` and ``preview``. Secret: the table, the private key, what a preview shows of the table's columns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from parties.api.config import ConfigLike, TableLike, config_of, table_of
from parties.api.run import progress_to, run_anywhere
from parties.config.provenance import check_confirmed
from parties.mpc.submission.participation import participate, preview_table
from parties.mpc.submission.preview import Preview
from parties.mpc.submission.submit import Submitted
from parties.session.owner import DataOwner

PathLike = str | Path
"""Where a file is."""


def submit(
    config: ConfigLike,
    table: TableLike,
    *,
    dataset: str | None = None,
    capacity: int | None = None,
    ignore_extra: bool = False,
    state: PathLike | None = None,
    budget: PathLike | None = None,
    ca: PathLike | None = None,
    cert: PathLike | None = None,
    key: PathLike | None = None,
    progress: Callable[[str], object] | None = None,
) -> Submitted:
    """Check, count, share, seal and send a table once, as `syncret submit` does, and return the receipts.

    The whole run is charged to the table's budget first, under the name ``dataset``, which a DataFrame has to have:
    unlike a file it has no place to be recognised by. What is not given is where the config's [tls] and the command
    have it. Called again after a failure it sends the same submission, which counts once. Nothing is asked:
    ``preview`` shows before what would be sent.

    Raises ConfigError, CertificateError, DataError, StoreError, BudgetExceeded, SubmitError; ValueError for a DataFrame
    without a ``dataset``.
    """
    owner = _owner(
        config,
        table,
        dataset=dataset,
        ignore_extra=ignore_extra,
        budget=budget,
        identity=(ca, cert, key),
    )
    at, hear = _path(state), progress_to(progress)
    return run_anywhere(lambda: participate(owner, capacity=capacity, state=at, progress=hear))


def preview(
    config: ConfigLike,
    table: TableLike,
    *,
    dataset: str | None = None,
    capacity: int | None = None,
    ignore_extra: bool = False,
    state: PathLike | None = None,
    budget: PathLike | None = None,
    ca: PathLike | None = None,
    cert: PathLike | None = None,
    key: PathLike | None = None,
) -> Preview:
    """What ``submit`` would do, as `syncret submit --check` shows it; nothing is sent, charged or written.

    Raises as ``submit``, but for BudgetExceeded and SubmitError: whether the budget covers it, and who is there, is in
    what it returns.
    """
    owner = _owner(
        config,
        table,
        dataset=dataset,
        ignore_extra=ignore_extra,
        budget=budget,
        identity=(ca, cert, key),
    )
    at = _path(state)
    return run_anywhere(lambda: preview_table(owner, capacity=capacity, state=at))


def _owner(
    config: ConfigLike,
    table: TableLike,
    *,
    dataset: str | None,
    ignore_extra: bool,
    budget: PathLike | None,
    identity: tuple[PathLike | None, PathLike | None, PathLike | None],
) -> DataOwner:
    given = table_of(table, name=dataset or "table", ignore_extra=ignore_extra)
    if given.read is not None and dataset is None:
        raise ValueError(
            "a DataFrame has no place to be recognised by; expected dataset, the name that its budget has"
        )
    ca, cert, key = map(_path, identity)
    loaded = config_of(config, {})
    check_confirmed(loaded)
    return DataOwner.of(
        loaded,
        given,
        dataset=dataset,
        budget=_path(budget),
        ca=ca,
        cert=cert,
        key=key,
    )


def _path(given: PathLike | None) -> Path | None:
    return None if given is None else Path(given)
