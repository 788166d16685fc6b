"""Runs from programs: runs on this machine, and finished runs read from their folders.

``synthesize`` makes a run, ``load`` reads one. ``prepare`` sets a run up by method, and ``run_anywhere`` runs a
coroutine from any program, such as a notebook with a running event loop.

Secret: the input table, which is in the run folder until the run is finished, as in every trial. Public: the results of
a run, except the figures that a trial's report marks as computed from the real table.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mechanisms.errors import DataError
from mechanisms.model import Model
from mechanisms.reading import read_text
from mechanisms.sdv_metadata import sdv_metadata
from parties.api.arguments import (
    check_changes,
    check_flag,
    check_path,
    check_text,
    check_whole,
    names_of,
    seed_of,
    type_name,
)
from parties.api.config import ConfigLike, TableLike, config_of, table_of, tables_of, types_of
from parties.api.errors import in_terms_of_python
from parties.api.estimates import Estimates
from parties.api.notebook import embedded_page
from parties.audit.bundle import unpacked_run
from parties.audit.packing import pack_run
from parties.config import Config, overrides_from_options
from parties.foundation.errors import ConfigError, StoreError
from parties.foundation.process import require_server_packages
from parties.foundation.untrusted_text import parse_json
from parties.local.flaim import FLAIM_TRIAL_OVERRIDES, flaim_request, open_flaim_folder, run_flaim
from parties.local.folder import RunFolder
from parties.local.keyed_run import is_keyed_run
from parties.local.methods import open_method_folder, run_method, trial_from_tables
from parties.local.partition import PARTITIONS
from parties.local.publication import PublishersWord
from parties.local.recorded_tables import record_tables
from parties.local.request import METHODS, Trial, TrialRequest
from parties.observability.events import Event, Progress
from parties.report.document import items, optional, tables
from parties.report.evaluation import Evaluation, evaluate_run
from parties.report.knowledge import condition_share, run_knowledge
from parties.report.model import RunReport
from parties.session.model_files import MOST_ROWS, SampleOptions, conditional_sample, load_model
from parties.session.owner import Table, held, table_name
from parties.session.result_digests import TABLE_FILE
from parties.storage.files import disk_errors
from parties.storage.populations import owners_word

if TYPE_CHECKING:
    import pandas as pd


FLAIM = "flaim"
_WORDS = {
    "method": f"one of {', '.join((*METHODS, FLAIM))}",
    "label": "the name of a column",
    "population": "the name of a population, as `syncret budget` shows it",
    "new_population": "a name for a population",
    "uncharged": "the reason, in words",
}
logger = logging.getLogger("syncret.api")


def prepare(
    table: Table | Mapping[str, Table],
    config: Config,
    method: str,
    *,
    out: Path,
    clients: int | None,
    partition: str,
    label: str | None,
    seed: int,
) -> tuple[Trial, RunFolder, Callable[[Progress], Awaitable[RunReport]]]:
    """Returns the trial, its folder ``out``, and a function that runs it there.

    Raises ConfigError, DataError, StoreError, WorkloadError; ValueError for an unknown method or partition.
    """
    if method not in (*METHODS, FLAIM):
        raise ValueError(f"method = {method!r}; expected one of {', '.join((*METHODS, FLAIM))}")
    if partition not in PARTITIONS:
        raise ValueError(f"partition = {partition!r}; expected one of {', '.join(PARTITIONS)}")
    dataset, table = table_name(table), held(table)
    if method == FLAIM:
        config = config.override(FLAIM_TRIAL_OVERRIDES)
        request = flaim_request(
            config, dataset, clients, partition=partition, label=label, seed=seed
        )
        trial = trial_from_tables(table, config, request)
        folder = open_flaim_folder(trial, out)
        record_tables(folder.path, trial.config, table)
        return trial, folder, partial(run_flaim, trial, folder)
    trial = trial_from_tables(
        table, config, TrialRequest(method, dataset, clients, partition, label, seed)
    )
    folder = open_method_folder(trial, out)
    record_tables(folder.path, trial.config, table)
    return trial, folder, partial(run_method, trial, folder)


Result = TypeVar("Result")
_START_S = 5.0
"""Maximum time for a thread's start, in seconds."""


@dataclass(frozen=True, slots=True)
class ProgressCallback:
    """Sink that passes each event's sentence to ``hear``, in another thread than the waiting one."""

    hear: Callable[[str], object]

    def take(self, event: Event) -> None:
        """Passes on the sentence."""
        self.hear(event.text)


def progress_to(on_text: Callable[[str], object] | None) -> Progress:
    """Returns a progress for a function that takes sentences, such as ``print``; a silent one for None."""
    return Progress() if on_text is None else Progress(ProgressCallback(on_text))


def run_anywhere(main: Callable[[], Awaitable[Result]]) -> Result:
    """Returns the result of ``main``, run on its own event loop in its own thread.

    Raises the errors of ``main``. Ctrl-C (KeyboardInterrupt) cancels ``main``, and is raised after its cleanup.
    """
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[object] | None]] = Future()
    ended: Future[Result] = Future()

    async def whole() -> None:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        try:
            ended.set_result(await main())
        except BaseException as error:  # noqa: BLE001  # Raised again by the waiting thread.
            ended.set_exception(error)

    thread = threading.Thread(target=lambda: asyncio.run(whole()), name="syncret", daemon=True)
    try:
        thread.start()
        result = ended.result()
    except KeyboardInterrupt:
        # Without a loop there is nothing to clean up: the thread was not even started.
        with contextlib.suppress(TimeoutError):
            loop, task = started.result(_START_S)
            if task is not None and not ended.done():
                loop.call_soon_threadsafe(task.cancel)
            # Processes and folders are gone afterwards; a thread that still computes is not waited for.
            ended.exception()
        raise
    thread.join()
    return result


class Report(Mapping[str, Any]):
    """Report of a run: the content of report.json, and the page ``html``, which notebooks show."""

    def __init__(self, document: Mapping[str, Any], html: str) -> None:
        self._document = document
        self.html = html

    def __getitem__(self, key: str) -> Any:
        return self._document[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)

    def __repr__(self) -> str:
        return f"Report({', '.join(self)})"

    def _repr_html_(self) -> str:
        return embedded_page(self.html)


class Run:
    """A finished run in ``folder``: its table, its report, and a model to draw more rows from.

    A run without a folder of its own has a temporary one, which is removed with the last reference to the run.
    """

    def __init__(
        self, folder: Path, model: Model, *, types: Mapping[str, object] | None = None
    ) -> None:
        self.folder = folder
        self._model = model
        self._types = types or {}
        self._account: str | None = None

    @property
    def account(self) -> str | None:
        """Sentence on what the last ``save`` of a bundle has charged, to whom and with what limit; None before."""
        return self._account

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    @cached_property
    def table(self) -> pd.DataFrame:
        """Synthetic table, in the columns' types. Raises DataError, StoreError, ExtraMissing."""
        require_server_packages("a DataFrame")
        from mechanisms.reading import read_drawn

        if not (self.folder / TABLE_FILE).exists():
            raise StoreError(self.folder, f"has no {TABLE_FILE}; expected a finished run")
        return self._typed(read_drawn(self.folder / TABLE_FILE, self._model.domain).frame())

    @property
    def quality(self) -> pd.DataFrame:
        """Errors of the released marginals, as the report has them: a row for each set of columns.

        Columns: columns (names with commas between them), cells, query (true if it was asked for), expected (error, L1
        distance, 0 to 2), likely (nine of ten are below; not of FLAIM), low and high (a proven interval), basis, and
        noise (deviation of each count in rows, if it was measured). No value is computed from a real table.
        Raises StoreError, ExtraMissing.
        """
        require_server_packages("a DataFrame")
        import pandas as pd

        marginals = tables(optional(self.report, "quality").get("marginals"))
        kept = ("cells", "query", "expected", "likely", "low", "high", "basis", "noise")
        return pd.DataFrame(
            [
                {"columns": ", ".join(map(str, items(of["columns"])))}
                | {name: of.get(name) for name in kept}
                for of in marginals
            ]
        )

    @in_terms_of_python
    def evaluate(self, real: TableLike, *, ignore_extra: bool = False) -> Evaluation:
        """Compares the synthetic table with a real one at hand, for its owner: the figures are not private.

        Returns the error of each query of the workload (L1 distance, 0 to 2; beside it that of shuffled columns), and
        each column's distance (0 to 1). Raises ConfigError, DataError, StoreError, TypeError, ExtraMissing.
        """
        require_server_packages("an evaluation")
        check_flag("ignore_extra", ignore_extra)
        return evaluate_run(self.folder, table_of(real, name="real", ignore_extra=ignore_extra))

    @in_terms_of_python
    def save(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        data: TableLike | None = None,
        population: str | None = None,
        new_population: str | None = None,
        uncharged: str | None = None,
        not_private: bool = False,
        budget: str | Path | None = None,
    ) -> Path:
        """Saves the run, to be loaded again by ``load``; returns the path.

        A name that ends in .zip is a bundle, as of `syncret bundle`: public files alone. It is charged to the budget of
        the people in the run's table, who are recognised by the rows of ``data``, or are ``population`` or a
        ``new_population``; or it is ``uncharged``, for the reason given, which the bundle has. ``account`` says what
        was charged, and so does the log "syncret.api", at level INFO. Any other name is a copy of the run's folder, as
        it is, for this machine. Raises StoreError, ConfigError (for a bundle of a local run
        without any of these), TypeError, BudgetExceeded.
        """
        table = None if data is None else table_of(data, name="data", ignore_extra=True)

        def pack(out: Path, said: PublishersWord, *, overwrite: bool) -> None:
            word = replace(said, table=table)
            self._account = pack_run(self.folder, out, overwrite=overwrite, said=word).entered
            logger.info("%s: %s", out, self._account)

        return save_run(
            self.folder,
            path,
            pack,
            overwrite=overwrite,
            population=population,
            new_population=new_population,
            uncharged=uncharged,
            not_private=not_private,
            budget=budget,
        )

    @property
    def metadata(self) -> dict[str, object]:
        """Metadata of the synthetic table as SDV has it (SINGLE_TABLE_V1): the kind of each column."""
        return sdv_metadata(self._model.domain)

    @cached_property
    def report(self) -> Report:
        """Report with openings, costs and quality. Raises StoreError."""
        with disk_errors(self.folder, "read"):
            text, html = (
                (self.folder / name).read_text(encoding="utf-8")
                for name in ("report.json", "report.html")
            )
        try:
            return Report(parse_json(text), html)
        except ValueError as error:
            raise StoreError(self.folder / "report.json", f"is no report: {error}") from error

    @in_terms_of_python
    def sample(
        self,
        rows: int | None = None,
        *,
        where: str | None = None,
        balance: str | None = None,
        like: TableLike | None = None,
        seed: int | None = None,
        random_state: int | None = None,
        all_columns: bool = False,
    ) -> pd.DataFrame:
        """Draws more rows from the model, which costs no privacy; the same ``seed`` draws the same rows.

        Args:
            rows: Number of rows.
            where: A condition that all rows satisfy, such as "age >= 65 and ward in (A, B)"; docs/questions.md has the
                language. The share of the people that satisfy it is in ``attrs["probability"]`` of the result, and its
                interval, if the run has a report, in ``attrs["probability_interval"]``.
            balance: A column of whose values there are equally many rows; their shares are in ``attrs["shares"]``.
            like: A table of which some columns are given. The others, and empty cells, are drawn for each of its rows,
                in its order; ``rows`` is not given then.
            seed: A whole number from 0; by default another one each time.
            random_state: The same as ``seed``.
            all_columns: True for left-out columns as well, without a value: in the order of the configuration's
                ``format.columns``, or behind the others.

        Rows are drawn from the model given the condition, exactly, and none is thrown away.

        Raises ConditionError for a condition that cannot be read, does not fit the columns or has probability 0;
        DataError for a table that does not fit them; ValueError unless ``rows`` is positive; TypeError; ExtraMissing.
        """
        require_server_packages("a DataFrame")

        from mechanisms.synthetic import synthetic_parts

        check_flag("all_columns", all_columns)
        chosen = seed_of(seed, random_state)
        if rows is not None and check_whole("rows", rows, least=1) > MOST_ROWS:
            raise ValueError(f"rows = {rows!r}; expected at most {MOST_ROWS:,} at a time")
        given, source = None, "like"
        if like is not None:
            read = table_of(like, name="like")
            given = read_text(read.source) if read.read is None else read.read
            source = read.source.shown
            if not len(given):
                raise ValueError(
                    "like has no rows; expected a row for each one that is to be drawn"
                )
        if balance is not None:
            check_text("balance", balance, what="the name of a column")
        options = SampleOptions(rows, where, balance, given, source)
        if options.is_plain:
            parts = synthetic_parts(self._model, rows or 0, seed=chosen)
            return self._drawn(parts, all_columns=all_columns)
        drawn = conditional_sample(self._model, options, seed=chosen)
        table = self._drawn(drawn.parts, all_columns=all_columns)
        if where is not None:
            share = condition_share(self._model, self.folder, where)
            table.attrs["probability"] = drawn.probability
            table.attrs["probability_interval"] = None if share is None else (share.low, share.high)
        if balance is not None:
            table.attrs["shares"] = dict(drawn.shares)
        return table

    @in_terms_of_python
    def estimate(self, question: str) -> Estimates:
        """Answers a question from the model, with intervals; this costs no privacy.

        Args:
            question: A figure, such as "mean(income) by sex where age >= 65"; docs/questions.md has the language.

        Each answer has the value, an interval that is meant to hold in 95 of 100 cases, and its basis: "measured", if
        all columns are in one measured marginal; "earlier", if a refresh has them from its earlier model; "joined", if
        the model joins them through others; "guess", if it holds them independent. Where the model knows nothing there
        is a refusal in words instead.

        Raises ConditionError for a question that cannot be read or does not fit the columns; StoreError if the run has
        no report; TypeError; ExtraMissing.
        """
        require_server_packages("an estimate")
        from mechanisms.estimates import estimates
        from mechanisms.question import parse_question

        asked = parse_question(question)
        return Estimates(question, estimates(self._model, run_knowledge(self.folder), asked))

    def _drawn(self, parts: Iterable[pd.DataFrame], *, all_columns: bool) -> pd.DataFrame:
        import pandas as pd

        from mechanisms.typed import with_left_out

        table = self._typed(pd.concat(parts, ignore_index=True))
        return with_left_out(self._model.domain.with_all_columns(), table) if all_columns else table

    def _typed(self, text: pd.DataFrame) -> pd.DataFrame:
        from mechanisms.typed import as_types, typed_table

        try:
            return as_types(
                typed_table(self._model.domain, text.reset_index(drop=True)), self._types
            )
        except (KeyError, ValueError) as error:
            raise DataError(
                f"{self.folder}: {TABLE_FILE} is no table of the model's columns"
            ) from error


class Pack(Protocol):
    """Function that makes a bundle at ``out``, charged by what its maker has ``said``."""

    def __call__(self, out: Path, said: PublishersWord, *, overwrite: bool) -> None:
        """Makes it."""


def save_run(
    folder: Path,
    path: str | Path,
    pack: Pack,
    *,
    overwrite: bool,
    population: str | None,
    new_population: str | None,
    uncharged: str | None,
    not_private: bool,
    budget: str | Path | None,
) -> Path:
    """Saves the run in ``folder``: a bundle by ``pack`` if the name ends in .zip, else a copy. Returns the path."""
    out = check_path("path", path)
    check_flag("overwrite", overwrite)
    check_flag("not_private", not_private)
    if out.suffix == ".zip":
        for name, word in (
            ("population", population),
            ("new_population", new_population),
            ("uncharged", uncharged),
        ):
            if word is not None:
                check_text(name, word, what=_WORDS[name])
        said = PublishersWord(
            None,
            owners_word(population, new_population),
            uncharged,
            not_private,
            None,
            None if budget is None else check_path("budget", budget),
        )
        pack(out, said, overwrite=overwrite)
        return out
    if out.exists():
        raise StoreError(out, "is there already; expected a new name")
    with disk_errors(out, "written"):
        shutil.copytree(folder, out)
    return out


@in_terms_of_python
def load(run: str | Path) -> Run:
    """Loads a finished run of any method: its folder, the folder of server 0 or of FLAIM's server, or a bundle.

    Raises StoreError if there is no run or no model, EstimationError for a damaged model, TypeError for no path.
    """
    location = check_path("run", run)
    opened = contextlib.ExitStack()
    folder = opened.enter_context(unpacked_run(location)).folder
    with contextlib.ExitStack() as failing:
        failing.push(opened)
        if is_keyed_run(folder):
            raise StoreError(
                location,
                "is a run of tables with keys; expected syncret.load_tables, or the run of a view, in views/",
            )
        found = Run(folder, load_model(folder, named=location))
        failing.pop_all()
    # Unpacked files stay as long as the run is referenced.
    weakref.finalize(found, opened.close)
    return found


@in_terms_of_python
def synthesize(
    table: TableLike | Mapping[str, TableLike],
    config: ConfigLike,
    clients: int | None = None,
    *,
    method: str | None = None,
    epsilon: float | None = None,
    rounds: int | None = None,
    partition: str = "iid",
    label: str | None = None,
    target: str | Sequence[str] | None = None,
    seed: int | None = None,
    random_state: int | None = None,
    changes: Mapping[str, object] | None = None,
    ignore_extra: bool = False,
    out: str | Path | None = None,
    progress: Callable[[str], object] | None = None,
) -> Run:
    """Splits a table among ``clients`` data owners and runs on this machine, as `syncret run` does.

    Args:
        table: Table to synthesize; with [[source]] tables in the config, one for each source, by name.
        config: Configuration.
        clients: Number of data owners, of each source.
        method: "distaim" (three servers and the owners as processes, over mutual TLS), "flaim" (a server and clients,
            likewise) or "aim" (central, in this process); by default "distaim".
        target: Column that the table is made to predict, or several: queries with it count more.
        seed: Seed of the split among the owners; by default 1. ``random_state`` is another name of it.
        changes: Other values of the config by dotted key, such as {"run.noise": "distributed"}.
        out: Run folder, in which the same call continues an interrupted run; by default a temporary one.
        progress: Called with sentences, in another thread.

    Ctrl-C ends all processes.

    Raises ExtraMissing, ConfigError (also for a configuration of a method between silos, which `syncret run` runs),
    DataError, StoreError, ChildFailed, MechanismError; ValueError for an unknown method or partition; TypeError.
    """
    require_server_packages("synthesize")
    from parties.local.assemble import finish_trial

    if clients is not None:
        check_whole("clients", clients, least=1)
    for name, text in (("method", method), ("label", label)):
        if text is not None:
            check_text(name, text, what=_WORDS[name])
    check_text("partition", partition, what=f"one of {', '.join(PARTITIONS)}")
    check_flag("ignore_extra", ignore_extra)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is {type_name(progress)}; expected a function of a sentence")
    own = check_changes(changes)
    if target is not None:
        names = [target] if isinstance(target, str) else names_of("target", target)
        own["workload.target"] = names
    given = {"run.epsilon": epsilon, "run.rounds": rounds, **own}
    loaded = config_of(config, overrides_from_options(given))
    if method is None and loaded.algorithm is not None:
        raise ConfigError(
            loaded.source,
            loaded.algorithm[0],
            "is of a method between silos, which has no model to draw from here; expected `syncret run`, or a method "
            f"by name: {', '.join((*METHODS, FLAIM))}",
        )
    method = METHODS[0] if method is None else method
    with contextlib.ExitStack() as undone:
        # The temporary folder of a run that fails or is stopped is removed as well.
        own_folder = None if out is None else check_path("out", out)
        temporary = None if own_folder else tempfile.mkdtemp(prefix="syncret-run-")
        if temporary is not None:
            undone.callback(shutil.rmtree, temporary, ignore_errors=True)
        started, read = time.perf_counter(), tables_of(table, ignore_extra=ignore_extra)
        trial, folder, work = prepare(
            read,
            loaded,
            method,
            out=own_folder or Path(temporary or ""),
            clients=clients,
            partition=partition,
            label=label,
            seed=seed_of(seed, random_state, default=1),
        )
        read_s = time.perf_counter() - started

        async def run() -> None:
            finish_trial(trial, folder, await work(progress_to(progress)), read_s=read_s)

        run_anywhere(run)
        found = Run(folder.path, load_model(folder.path), types=types_of(table))
        undone.pop_all()
    if temporary is not None:
        weakref.finalize(found, shutil.rmtree, temporary, ignore_errors=True)
    return found
