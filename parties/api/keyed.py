"""Tables with keys from programs: ``synthesize_tables`` makes a run of them, ``KeyedRun`` has its tables.

Secret: the input tables. Public: the results, except the figures that a trial's report has of the real tables.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mechanisms.keyed.drafting import draft_tables as draft_of_tables
from mechanisms.linked_draft import TableRead
from mechanisms.reading import read_recognised
from parties.api.arguments import check_path, check_text, check_whole, seed_of, type_name
from parties.api.config import TableLike, table_of
from parties.api.errors import in_terms_of_python
from parties.api.run import (
    FLAIM,
    Pack,
    Run,
    load,
    logger,
    prepare,
    progress_to,
    run_anywhere,
    save_run,
)
from parties.audit.bundle import unpacked_run
from parties.foundation.process import require_server_packages
from parties.foundation.untrusted_text import parse_json
from parties.local.partition import PARTITIONS
from parties.local.publication import PublishersWord
from parties.local.request import METHODS
from parties.methods.keyed_draft import keyed_draft_text
from parties.methods.keyed_study import load_keyed_study
from parties.session.owner import Table
from parties.storage.files import disk_errors

if TYPE_CHECKING:
    import pandas as pd

    from parties.local.keyed import KeyedFolder


class KeyedRun:
    """A finished run of tables with keys in ``folder``.

    That is a temporary folder of a bundle, and of a run without a folder of its own: it is removed with the last
    reference to the run.
    """

    def __init__(self, folder: KeyedFolder) -> None:
        self._folder = folder
        self._account: str | None = None

    def __repr__(self) -> str:
        return f"KeyedRun({', '.join(self._folder.study.tables.names)})"

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self._folder.path

    @property
    def account(self) -> str | None:
        """Sentence on what the last ``save`` of a bundle has charged, to whom and with what limit; None before."""
        return self._account

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Synthetic tables by name, in the columns' types. Raises DataError for a table that is not there."""
        from mechanisms.keyed.drawing import keyed_domain
        from mechanisms.reading import read_drawn
        from mechanisms.typed import typed_table

        tables, found = self._folder.study.tables, {}
        for name in tables.names:
            domain = keyed_domain(tables.domain_of(name), tables.by_name[name].key)
            text = read_drawn(self.folder / f"{name}.csv", domain).frame()
            found[name] = typed_table(domain, text.reset_index(drop=True))
        return found

    @property
    def report(self) -> Mapping[str, object]:
        """Report: privacy, numbers of rows, order, and what rows of a person have in common. Raises StoreError."""
        with disk_errors(self.folder, "read"):
            found = parse_json((self.folder / "report.json").read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}

    @property
    def views(self) -> dict[str, Run]:
        """Runs of the views, by name, with their own tables, reports and answers. Raises StoreError."""
        return {name: load(self._folder.view(name)) for name in self._folder.study.configs}

    @in_terms_of_python
    def save(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        tables: Mapping[str, TableLike] | None = None,
        population: str | None = None,
        new_population: str | None = None,
        uncharged: str | None = None,
        not_private: bool = False,
        budget: str | Path | None = None,
    ) -> Path:
        """Saves the run, to be loaded again by ``load_tables``; returns the path.

        A name that ends in .zip is a bundle, as of `syncret bundle`: public files alone. All of its views are charged
        to the budget of the people in the run's tables, or none: to those in ``tables``, by name, or by a word as
        ``Run.save`` has it. Any other name is a copy of the run's folder, as it is, for this machine. Raises as
        ``Run.save``.
        """
        return save_run(
            self.folder,
            path,
            self._pack(tables),
            overwrite=overwrite,
            population=population,
            new_population=new_population,
            uncharged=uncharged,
            not_private=not_private,
            budget=budget,
        )

    def _pack(self, tables: Mapping[str, TableLike] | None) -> Pack:
        given = {} if tables is None else _given(tables)
        read = {name: table_of(each, name=name, ignore_extra=True) for name, each in given.items()}

        def pack(out: Path, said: PublishersWord, *, overwrite: bool) -> None:
            require_server_packages("a bundle of tables with keys")
            from parties.audit.keyed_bundle import KeyedWord, pack_keyed

            word = KeyedWord(read, said)
            self._account = pack_keyed(self.folder, out, word=word, overwrite=overwrite).entered
            logger.info("%s: %s", out, self._account)

        return pack

    @in_terms_of_python
    def sample(
        self, persons: int, *, where: str | None = None, seed: int | None = None
    ) -> dict[str, pd.DataFrame]:
        """Draws whole persons from the models, which costs no privacy; the same ``seed`` draws the same ones.

        ``where`` is a condition that each person satisfies, such as "patients.age >= 65 and stays.ward = surgery": the
        columns of other tables than that of persons hold for one row. Raises ConditionError, ValueError, TypeError.
        """
        from mechanisms.keyed.conditions import PersonsWanted
        from mechanisms.keyed.drawing import keyed_frames
        from mechanisms.typed import typed_table

        check_whole("persons", persons, least=1)
        if where is not None:
            check_text("where", where, what="a condition")
        wanted = PersonsWanted(persons, where, seed_of(seed, None))
        drawn = keyed_frames(self._folder.study.tables, self._folder.draw(wanted))
        return {name: typed_table(domain, frame) for name, domain, frame in drawn}


@in_terms_of_python
def load_tables(run: str | Path) -> KeyedRun:
    """Loads a finished run of tables with keys: its folder, or its bundle.

    Raises StoreError if there is no such run, ConfigError for a configuration of other tables, TypeError for no path.
    """
    require_server_packages("load_tables")
    from parties.local.keyed import KeyedFolder

    location = check_path("run", run)
    opened = contextlib.ExitStack()
    folder = opened.enter_context(unpacked_run(location)).folder
    with contextlib.ExitStack() as failing:
        failing.push(opened)
        found = KeyedRun(KeyedFolder.of(folder, named=location))
        failing.pop_all()
    # Unpacked files stay as long as the run is referenced.
    weakref.finalize(found, opened.close)
    return found


@in_terms_of_python
def draft_tables(
    tables: Mapping[str, TableLike], *, key: str | Mapping[str, str] | None = None
) -> str:
    """Drafts a configuration of tables with keys, by name, as text in TOML.

    ``key`` is the column by which rows belong to persons, of all tables or by table; by default it is found. It repeats
    in all tables but one. Values that were read from the tables are marked: replace or confirm them. Raises DataError,
    TypeError.
    """
    read = {name: _as_read(table_of(table, name=name)) for name, table in _given(tables).items()}
    if key is not None and not isinstance(key, str | Mapping):
        raise TypeError(f"key is {type_name(key)}; expected a column, or columns by table")
    keys = dict.fromkeys(read, key) if isinstance(key, str) else key
    return keyed_draft_text(draft_of_tables(read, keys=keys))


@in_terms_of_python
def synthesize_tables(
    tables: Mapping[str, TableLike],
    config: str | Path,
    clients: int | None = None,
    *,
    method: str = METHODS[0],
    epsilon: float | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    progress: Callable[[str], object] | None = None,
) -> KeyedRun:
    """Runs a method on tables with keys on this machine, as `syncret run --table` does.

    Args:
        tables: Tables by name: that of persons, and those with their rows.
        config: Configuration with [[table]] tables.
        clients: Number of data owners.
        method: "distaim" (three servers and the owners as processes), "aim" (central, in this process) or "flaim" (a
            server and the owners as its clients, as processes).
        epsilon: Privacy of a person over all tables, in place of the configuration's.
        seed: Seed of the split among the owners; by default 1.
        out: Run folder, in which the same call continues an interrupted run; by default a temporary one.
        progress: Called with sentences, in another thread.

    Raises ConfigError, DataError, StoreError, ChildFailed, ExtraMissing; ValueError for an unknown method; TypeError.
    """
    require_server_packages("synthesize_tables")
    from parties.local.assemble import finish_trial
    from parties.local.keyed import KeyedFolder, run_views

    if method not in (methods := (*METHODS, FLAIM)):
        raise ValueError(f"method = {method!r}; expected one of {', '.join(methods)}")
    if clients is not None:
        check_whole("clients", clients, least=1)
    changes = {} if epsilon is None else {"run.epsilon": epsilon}
    study = load_keyed_study(check_path("config", config), changes, method=method)
    given = {name: table_of(table, name=name) for name, table in _given(tables).items()}

    def run(name: str, rows: Table | Mapping[str, Table], path: Path) -> None:
        trial, opened, work = prepare(
            rows,
            study.configs[name],
            method,
            out=path,
            clients=clients,
            partition=PARTITIONS[0],
            label=None,
            seed=seed_of(seed, None, default=1),
        )

        async def whole() -> None:
            finish_trial(trial, opened, await work(progress_to(progress)))

        run_anywhere(whole)

    with contextlib.ExitStack() as undone:
        # The temporary folder of a run that fails or is stopped is removed as well.
        temporary = tempfile.mkdtemp(prefix="syncret-run-") if out is None else None
        if temporary is not None:
            undone.callback(shutil.rmtree, temporary, ignore_errors=True)
        folder = Path(temporary) / "run" if temporary is not None else check_path("out", out)
        run_views(study, given, folder, method=method, run=run)
        found = KeyedRun(KeyedFolder(folder, study))
        undone.pop_all()
    if temporary is not None:
        weakref.finalize(found, shutil.rmtree, temporary, ignore_errors=True)
    return found


def _given(tables: object) -> Mapping[str, TableLike]:
    if not isinstance(tables, Mapping) or not tables:
        raise TypeError(
            f"tables is {type_name(tables)}; expected tables by name, such as "
            '{"patients": patients, "stays": stays}'
        )
    return tables


def _as_read(table: Table) -> TableRead:
    if table.read is not None:
        return TableRead(table.read, table.source.shown, "rows")
    text, read_as = read_recognised(table.source)
    return TableRead(text, table.source.shown, read_as)
