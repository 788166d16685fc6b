"""The model of a finished run: loading from a run's folder, the lead's folder or FLAIM's server's, and sampling.

A model is a released value, and rows drawn from it cost no privacy. Known limits: only an audit verifies that the model
is the run's own. All values here are public.
"""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mechanisms.errors import DataError
from mechanisms.model import Model
from mechanisms.text_format import PLAIN_FORMAT
from mechanisms.text_table import TextTable
from parties.config import load_config
from parties.foundation.errors import ConfigError, StoreError
from parties.session.result_digests import MODEL_FOLDER
from parties.storage.files import atomic_replacement

if TYPE_CHECKING:
    from mechanisms.conditional_rows import ConditionalRows

MAX_MODEL_BYTES = 1 << 32
"""Maximum unpacked size of a model's numbers, in bytes; models may come from anybody."""
_RUN_FILES = ("run.json", "config.toml", "transcript.jsonl", "transcripts", "result.json", "store")
_EXPECTED = (
    "expected a run's folder, that of server 0 or of FLAIM's server, or a bundle, with what `syncret run`, `flaim`, "
    "`syncret serve study` left there"
)


def load_model(run: Path, *, named: Path | None = None) -> Model:
    """Returns the model of the run in folder ``run``. Errors call it ``named``, for example the bundle that it came in.

    Raises StoreError if there is no model, EstimationError if it is damaged.
    """
    folder = run if (run / "model.json").is_file() else run / MODEL_FOLDER
    if _is_between_silos(run) or not folder.is_dir():
        raise StoreError(named or run, _missing_model_text(run))
    if unpacked_bytes(folder) > MAX_MODEL_BYTES:
        raise StoreError(named or folder, f"has a model of more than {MAX_MODEL_BYTES} bytes")
    return Model.load(folder)


def with_plain_format(model: Model) -> Model:
    """Returns the model with a plain format, UTF-8 with commas and points, in place of the real table's format."""
    return replace(model, domain=replace(model.domain, format=PLAIN_FORMAT))


def unpacked_bytes(folder: Path) -> int:
    """Unpacked size of a model's numbers in bytes; 0 if they cannot be read."""
    try:
        with zipfile.ZipFile(folder / "marginals.npz") as archive:
            return sum(item.file_size for item in archive.infolist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, IndexError, struct.error):
        return 0


MOST_ROWS = 100_000_000
"""Most rows that are drawn at a time, since their codes are all in memory."""


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """Rows to draw: ``rows`` of them, under a condition, balanced over a column, or like those of a table.

    ``where`` is a condition in the language of `mechanisms.question`. ``like`` has rows with some given columns, each
    of which is filled once; ``source`` is its name in errors. Raises ValueError unless either ``rows`` or ``like`` is
    given.
    """

    rows: int | None = None
    where: str | None = None
    balance: str | None = None
    like: TextTable | None = None
    source: str = "table"

    def __post_init__(self) -> None:
        if self.like is None and self.rows is None:
            raise ValueError("expected a number of rows, or a table of rows with given columns")
        if self.like is not None and self.rows is not None:
            raise ValueError(
                "a table of given rows says how many there are; expected no other number of rows"
            )

    @property
    def is_plain(self) -> bool:
        """True for rows without any condition."""
        return self.where is None and self.balance is None and self.like is None


def conditional_sample(model: Model, options: SampleOptions, *, seed: int) -> ConditionalRows:
    """Draws the rows that the ``options`` ask for. Raises ConditionError, DataError, ValueError."""
    # Imported here: pandas takes a fifth of a second.
    from mechanisms.conditional_rows import Wanted, conditional_rows, read_given
    from mechanisms.question import parse_where

    where = () if options.where is None else parse_where(options.where)
    given = None
    if options.like is not None:
        given = read_given(model.domain, options.like, options.source)
    rows = options.rows if given is None else len(given.codes)
    return conditional_rows(model, Wanted(rows or 0, where, options.balance, given), seed=seed)


def write_samples(
    model: Model, options: SampleOptions, out: Path, *, seed: int, overwrite: bool
) -> ConditionalRows | None:
    """Draws rows into the file ``out``, in the format of its ending; the file is written atomically.

    Returns what was drawn under a condition, None without one. Raises DataError for an unknown ending, or more rows
    than such a file holds; StoreError if the file exists (unless ``overwrite``) or the disk fails; and as
    ``conditional_sample``.
    """
    # Imported here: pandas takes a fifth of a second, and a wrong path should fail at once.
    from mechanisms.synthetic import synthetic_parts
    from mechanisms.writing import form_of, write_rows

    form = form_of(out)
    rows = len(options.like) if options.like is not None else options.rows or 0
    if form.most is not None and rows > form.most:
        raise DataError(
            f"{out}: a file of this kind holds {form.most} rows, not {rows}; expected .csv or .parquet"
        )
    if not overwrite and out.exists():
        raise StoreError(out, "is there already; expected a new name, or --overwrite")
    try:
        drawn = None if options.is_plain else conditional_sample(model, options, seed=seed)
        parts = synthetic_parts(model, rows, seed=seed) if drawn is None else drawn.parts
        with atomic_replacement(out) as beside:
            write_rows(beside, parts, model.domain, form)
    except MemoryError:
        raise DataError(f"{out}: {rows} rows do not fit into memory; expected fewer") from None
    return drawn


def _is_between_silos(run: Path) -> bool:
    try:
        return load_config(run / "config.toml").silos is not None
    except ConfigError:
        return False


def _missing_model_text(run: Path) -> str:
    if not run.exists():
        return f"is not there; {_EXPECTED}"
    if not run.is_dir():
        return f"is no folder; {_EXPECTED}"
    if _is_between_silos(run):
        return (
            "is of a run between silos, which leaves no model to draw rows from; expected one of DistAIM or FLAIM. "
            "Fed-TDA draws as many rows as run.rows says"
        )
    if (run / "parties").is_dir():
        return f"has no {MODEL_FOLDER}/: this run is not finished, and the command that began it goes on with it"
    if any((run / name).exists() for name in _RUN_FILES):
        return f"has no {MODEL_FOLDER}/, which server 0 or FLAIM's server writes at the end of a run; {_EXPECTED}"
    return f"is no run: it has no {MODEL_FOLDER}/; {_EXPECTED}"
