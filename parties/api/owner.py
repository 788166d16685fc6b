"""Participation of a data owner from a program, as by `syncret join`.

Secret: the table, the private key, and a preview's columns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from parties.api.config import ConfigLike, TableLike, config_of, table_of
from parties.api.errors import in_terms_of_python
from parties.api.run import progress_to, run_anywhere
from parties.config.provenance import check_confirmed
from parties.mpc.submission.participation import participate, preview_table
from parties.mpc.submission.preview import Preview
from parties.mpc.submission.submit import Submitted
from parties.session.owner import DataOwner
from parties.storage.populations import OwnersWord, owners_word

PathLike = str | Path
"""Path of a file."""


@in_terms_of_python
def submit(
    config: ConfigLike,
    table: TableLike,
    *,
    dataset: str | None = None,
    population: str | None = None,
    new_population: str | None = None,
    capacity: int | None = None,
    ignore_extra: bool = False,
    state: PathLike | None = None,
    budget: PathLike | None = None,
    ca: PathLike | None = None,
    cert: PathLike | None = None,
    key: PathLike | None = None,
    progress: Callable[[str], object] | None = None,
) -> Submitted:
    """Checks, counts, shares, seals and sends a table once, as `syncret join` does, and returns the receipts.

    The whole run is charged first to the budget of the people in the table, which is recognised by their rows and may
    have a name, ``dataset``. A DataFrame needs this name, since it has no path. ``population`` says explicitly whose
    budget pays, and ``new_population`` that nobody in the table is in one of those; both are recorded. Other arguments
    default to the config's [tls] and the command's defaults. A repetition after a failure sends the same submission,
    which counts once. There is no confirmation: ``preview`` shows the upload beforehand.

    Raises ConfigError, CertificateError, DataError, StoreError, BudgetExceeded, SubmitError; ValueError for a DataFrame
    without a ``dataset``.
    """
    owner = _owner(
        config,
        table,
        dataset=dataset,
        word=owners_word(population, new_population),
        ignore_extra=ignore_extra,
        budget=budget,
        identity=(ca, cert, key),
    )
    at, hear = _path(state), progress_to(progress)
    return run_anywhere(lambda: participate(owner, capacity=capacity, state=at, progress=hear))


@in_terms_of_python
def preview(
    config: ConfigLike,
    table: TableLike,
    *,
    dataset: str | None = None,
    population: str | None = None,
    new_population: str | None = None,
    capacity: int | None = None,
    ignore_extra: bool = False,
    state: PathLike | None = None,
    budget: PathLike | None = None,
    ca: PathLike | None = None,
    cert: PathLike | None = None,
    key: PathLike | None = None,
) -> Preview:
    """Returns the preview of ``submit``, as `syncret join --check` shows it; nothing is sent, charged or written.

    Raises as ``submit``, except BudgetExceeded and SubmitError: the result has the state of the budget and of the
    servers.
    """
    owner = _owner(
        config,
        table,
        dataset=dataset,
        word=owners_word(population, new_population),
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
    word: OwnersWord | None,
    ignore_extra: bool,
    budget: PathLike | None,
    identity: tuple[PathLike | None, PathLike | None, PathLike | None],
) -> DataOwner:
    given = table_of(table, name=dataset or "table", ignore_extra=ignore_extra)
    if given.read is not None and dataset is None and word is None:
        raise ValueError(
            "a DataFrame has no place to be recognised by; expected dataset, the name of its population"
        )
    ca, cert, key = map(_path, identity)
    loaded = config_of(config, {})
    check_confirmed(loaded)
    return DataOwner.of(
        loaded,
        given,
        dataset=dataset,
        word=word,
        budget=_path(budget),
        ca=ca,
        cert=cert,
        key=key,
    )


def _path(given: PathLike | None) -> Path | None:
    return None if given is None else Path(given)
