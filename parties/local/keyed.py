"""Runs of tables with keys on one machine, and folders of keyed tables drawn from finished runs of their views.

    study.toml          the configuration
    views/NAME/         the run of each view, as `syncret run` leaves it
    TABLE.csv           the synthetic tables
    report.json, .html  over all views

The folder of an interrupted run goes on with the view that was not finished. Secret: the tables that were given.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from mechanisms.errors import DataError
from mechanisms.keyed.conditions import PersonsWanted, persons_where
from mechanisms.keyed.declared import KeyedTables
from mechanisms.keyed.drawing import Persons, keyed_frames
from mechanisms.keyed.figures import keyed_figures
from mechanisms.keyed.views import KEY, source_tables, view_tables
from mechanisms.linking import linking_keys
from mechanisms.model import Model
from mechanisms.person_rows import sampled_rows
from mechanisms.source import TableSource
from mechanisms.text_table import TextTable
from mechanisms.writing import form_of, write_rows
from parties.config import Config
from parties.foundation.errors import ConfigError, StoreError
from parties.foundation.untrusted_text import parse_json
from parties.local.folder import SERVER_FOLDERS, RunFolder
from parties.local.keyed_run import REPORT, STUDY_FILE, VIEWS
from parties.methods.keyed_study import (
    FLAIM,
    KeyedStudy,
    load_keyed_study,
    person_epsilon,
    study_text,
)
from parties.report.document import optional
from parties.report.keyed import Draw, KeyedFigures, keyed_document, write_keyed_report
from parties.report.keyed_estimates import keyed_estimates
from parties.session.model_files import load_model
from parties.session.owner import Table, linking_salt
from parties.storage.files import atomic_replacement, disk_errors, write_atomic

MARK = "run.sha256"
"""Digest of the study and of all that a run was made of, to which the same command is held when it goes on."""
Rows: TypeAlias = Table | Mapping[str, Table]
"""Owners' rows of a view; by source where servers link them."""
RunView: TypeAlias = Callable[[str, Rows, Path], object]
"""Runs a view by name, on the owners' rows of it, in a folder."""


@dataclass(frozen=True)
class KeyedFolder:
    """Folder of a study of tables with keys."""

    path: Path
    study: KeyedStudy = field(repr=False)
    named: Path | None = None
    """Name in errors, as of the bundle that the folder came in."""

    @classmethod
    def of(cls, path: Path, *, named: Path | None = None) -> "KeyedFolder":
        """Opens a folder that a run has made. Raises StoreError, ConfigError."""
        if not (path / STUDY_FILE).exists():
            raise StoreError(
                path, f"has no {STUDY_FILE}; expected the folder of a run of tables with keys"
            )
        return cls(path, load_keyed_study(path / STUDY_FILE), named)

    @classmethod
    def made(cls, path: Path, study: KeyedStudy, given: "hashlib._Hash") -> "KeyedFolder":
        """Makes the folder, or opens that of an interrupted run of the same study on what is ``given``.

        Raises StoreError.
        """
        text = study_text(study)
        given.update(text.encode())
        mark, digest = path / MARK, given.hexdigest()
        if (path / REPORT).exists():
            raise StoreError(path, "holds a finished run; expected a new folder for --out")
        begun = mark.read_text(encoding="utf-8") if mark.exists() else None
        if path.exists() and any(path.iterdir()) and begun != digest:
            raise StoreError(
                path,
                "is not empty, and no unfinished run of this study, these tables and this method; expected a new "
                "folder for --out",
            )
        with disk_errors(path, "made"):
            path.mkdir(parents=True, exist_ok=True)
        write_atomic(mark, digest)
        write_atomic(path / STUDY_FILE, text)
        return cls(path, study)

    @property
    def of_persons(self) -> Path:
        """Path of the run of the view of persons."""
        return self.view(self.study.tables.parent.name)

    def view(self, name: str) -> Path:
        """Path of the run of a view."""
        return self.path / VIEWS / name

    def models(self) -> dict[str, Model]:
        """Returns the models of all views. Raises StoreError, ConfigError for a model of other columns."""
        found = {}
        for name, config in self.study.configs.items():
            shown = (self.named or self.path) / VIEWS / name
            model = load_model(self.view(name), named=shown)
            if model.domain.names != config.domain.names:
                raise ConfigError(
                    str(shown),
                    "column",
                    f"are not those of the view {name}; expected a run of its configuration",
                )
            found[name] = model
        return found

    def draw(self, wanted: PersonsWanted) -> Persons:
        """Draws persons from the models. Raises StoreError, ConfigError, ConditionError."""
        return persons_where(self.study.tables, self.models(), wanted)


def keyed_rows(
    study: KeyedStudy, given: Mapping[str, Table]
) -> tuple[dict[str, Rows], dict[str, TextTable]]:
    """Returns the owner's rows of each view, and the tables as they were read.

    Where servers link rows, a person has at most as many as the view's source allows, by a fixed rule. Raises
    DataError.
    """
    tables = study.tables
    if unknown := [name for name in given if name not in tables.names]:
        raise DataError(
            f"--table {unknown[0]}: there is no such [[table]]; expected {', '.join(tables.names)}"
        )
    read = {name: _read(tables, name, table) for name, table in given.items()}
    where = {name: table.source.shown for name, table in given.items()}
    if not tables.parent.linked:
        flat = view_tables(tables, read, where=where)
        return {name: _made_of(name, given, rows) for name, rows in flat.items()}, read
    found: dict[str, Rows] = {}
    for name, parts in source_tables(tables, read, where=where).items():
        most = {source.name: source.rows for source in study.views[name].sources}
        found[name] = {
            source: _made_of(name, given, _bounded(study.configs[name], rows, most[source]))
            for source, rows in parts.items()
        }
    return found, read


def _read(tables: KeyedTables, name: str, table: Table) -> TextTable:
    """Returns a table as it is written; columns that its description does not know are left out if they may be."""
    text = table.as_written()
    if not table.ignore_extra:
        return text
    domain = tables.domain_of(name)
    known = {
        *domain.written_names,
        *domain.described_names,
        *domain.ignore,
        tables.by_name[name].key,
    }
    return replace(text, columns={c: cells for c, cells in text.columns.items() if c in known})


def _made_of(view: str, given: Mapping[str, Table], rows: TextTable) -> Table:
    return Table(TableSource(f"{view}, made of {', '.join(given)}"), False, rows)


def _bounded(config: Config, rows: TextTable, most: int) -> TextTable:
    keys = linking_keys(rows, [KEY], source=config.run.id, at_most=None)
    columns = [name for name in rows.columns if name != KEY]
    return sampled_rows(rows, keys, at_most=most, columns=columns, salt=linking_salt(config))


def run_views(
    study: KeyedStudy, given: Mapping[str, Table], path: Path, *, method: str, run: RunView
) -> dict[str, object]:
    """Runs every view by ``run``, draws the tables, and writes the report, which it returns.

    Raises DataError, StoreError, ConfigError, and what ``run`` does.
    """
    started = time.monotonic()
    rows, read = keyed_rows(study, given)
    folder = KeyedFolder.made(path, study, _digest(method, read))
    for name in study.configs:
        if not RunFolder(folder.view(name), SERVER_FOLDERS).finished:
            run(name, rows[name], folder.view(name))
    return assemble(folder, method=method, real=read, started=started)


def _digest(method: str, read: Mapping[str, TextTable]) -> "hashlib._Hash":
    digest = hashlib.sha256(method.encode())
    for name, table in sorted(read.items()):
        columns = {column: list(cells) for column, cells in table.columns.items()}
        digest.update(json.dumps([name, columns], sort_keys=True).encode())
    return digest


def assemble(
    folder: KeyedFolder,
    *,
    method: str,
    real: Mapping[str, TextTable] | None,
    started: float,
    persons: int | None = None,
) -> dict[str, object]:
    """Draws the tables from the finished runs of the views and writes them with the report, which it returns.

    ``persons`` is their number, by default that which the run of persons found. Raises StoreError, ConfigError.
    """
    study = folder.study
    seed = study.seed if study.seed is not None else secrets.randbits(64)
    count = persons or _rows_of(folder.of_persons, read_report(folder.of_persons))
    wanted = PersonsWanted(count, seed=seed)
    texts = write_tables(folder.path, study.tables, folder.draw(wanted))
    document = report_of(folder, texts, method=method, drawn=Draw(count, seed), real=real)
    document["time"] = {"total_s": time.monotonic() - started}
    write_keyed_report(folder.path, document)
    # Whoever has the folder of a finished run could hold guesses of the tables against it.
    (folder.path / MARK).unlink(missing_ok=True)
    return document


def report_of(
    folder: KeyedFolder,
    texts: Mapping[str, TextTable],
    *,
    method: str,
    drawn: Draw,
    real: Mapping[str, TextTable] | None = None,
) -> dict[str, object]:
    """Returns the report of the tables ``texts`` that were drawn from the runs of the views, but for its time.

    Raises StoreError, ConfigError.
    """
    study = folder.study
    figures = KeyedFigures(
        keyed_figures(study.tables, texts),
        None if real is None else keyed_figures(study.tables, real),
        keyed_estimates(
            study.tables, folder.models(), {name: folder.view(name) for name in study.configs}
        ),
    )
    return keyed_document(
        run=study.id,
        method=method,
        privacy={
            "epsilon": study.epsilon,
            "delta": study.delta,
            "spent at most": person_epsilon(study.configs.values(), study.delta),
            "unit": study.unit_text,
            **_against_the_server(folder),
        },
        views=[
            {
                "name": name,
                "holds": study.views[name].holds,
                "rows": study.views[name].rows,
                "epsilon": config.run.epsilon,
                "report": f"{VIEWS}/{name}/report.html",
            }
            for name, config in study.configs.items()
        ],
        tables={name: len(text) for name, text in texts.items()},
        drawn=drawn,
        figures=figures,
    )


def _against_the_server(folder: KeyedFolder) -> dict[str, str]:
    """Returns what holds against FLAIM's server, which sees sums; nothing for other methods. Raises StoreError."""
    study, said = folder.study, list[str]()
    for name, config in study.configs.items() if study.method == FLAIM else ():
        guarantee = optional(optional(read_report(folder.view(name)), "flaim"), "guarantee")
        text = str(guarantee["against_the_server"])
        alone = f"epsilon = {config.run.epsilon:g}, delta = {config.run.delta:g}"
        said.append(text.replace(alone, "the same"))
    # Where views differ, what holds against the server is the weaker one, in words that begin with "none".
    weaker = sorted(said, key=lambda text: (not text.startswith("none"), -len(text)))
    return {"against the server": weaker[0]} if said else {}


def write_tables(
    folder: Path, tables: KeyedTables, persons: Persons, *, overwrite: bool = False
) -> dict[str, TextTable]:
    """Writes drawn tables into ``folder``, each as a text file called by its name, and returns them as text.

    Raises StoreError for a file that is there already.
    """
    found = {}
    with disk_errors(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, domain, frame in keyed_frames(tables, persons):
        path = folder / f"{name}.csv"
        if path.exists() and not overwrite:
            raise StoreError(path, "is there already; expected a new folder, or --overwrite")
        with atomic_replacement(path) as beside:
            write_rows(beside, (frame,), domain, form_of(path))
        columns = {str(column): frame[column].tolist() for column in frame.columns}
        found[name] = TextTable(columns, range(1, len(frame) + 1), "row")
    return found


def read_report(folder: Path) -> dict[str, object]:
    """Returns the report of a run in ``folder``, with keys or without. Raises StoreError."""
    path = folder / REPORT
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(path, f"cannot be read: {error}; expected a finished run") from error
    if not isinstance(found, dict):
        raise StoreError(path, "is no report; expected that of a finished run")
    return found


def _rows_of(folder: Path, report: Mapping[str, object]) -> int:
    rows = report.get("synthetic_rows")
    if not isinstance(rows, int) or rows < 1:
        raise StoreError(
            folder / REPORT,
            "says no number of persons; expected it, or a number of persons to draw",
        )
    return rows
