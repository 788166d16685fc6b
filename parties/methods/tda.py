"""Fed-TDA (`mechanisms.tda`) between silos: its section [tda] of the configuration, and the results of a run.

[run] has epsilon, delta, and in ``rounds`` the iterations of the mixtures; [[column]] the columns with their bounds;
[clients] the bound on a silo's rows; [silos] the source of the noise. Public: the model, and the table drawn from it.
With privacy = "none" sums are exact, as in the paper, and no result is private.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, rho_from_epsilon_delta
from mechanisms.errors import MechanismError
from mechanisms.metrics import table_answers, workload_error
from mechanisms.sampling import public_generator
from mechanisms.silos import Request, Silo, Silos
from mechanisms.table import encode
from mechanisms.table_keys import one_of, within
from mechanisms.tda.costs import paper_mib, sent_values
from mechanisms.tda.layout import Layout, rows_of
from mechanisms.tda.model import TdaModel
from mechanisms.tda.server import TdaResult, run
from mechanisms.tda.settings import (
    MOST_COMPONENTS,
    Assignment,
    CategoryOrder,
    Correlations,
    Privacy,
    TdaSettings,
)
from mechanisms.tda.silo import TdaSilo
from mechanisms.tda.steps import Steps
from mechanisms.text_table import TextTable
from mechanisms.units import row_budget
from parties.config import Config
from parties.config.parsing import section_of
from parties.federation.algorithm import FederatedMethod, Outcome, SiloContext
from parties.federation.sum_parameters import check_minimum, corrupt_silos, silos_section
from parties.foundation.errors import ConfigError
from parties.report.privacy_text import unit_text
from parties.storage.files import write_atomic

NAME = "tda"
TABLE, MODEL = "synthetic.csv", "model.json"
_LEAST_ROWS = 1


@dataclass(frozen=True, slots=True)
class TdaSection:
    """[tda]: mixtures and correlations of Fed-TDA. `mechanisms.tda.settings.TdaSettings` checks the values."""

    privacy: str = field(default="zcdp", metadata=one_of(get_args(Privacy)))
    """Noise of every sum (``zcdp``), or exact sums as published, which are not private at all (``none``)."""
    components: int = field(default=10, metadata=within(1, MOST_COMPONENTS))
    """Components of each continuous column's mixture; run.rounds are its iterations."""
    tolerance: float = field(default=1e-3, metadata=within(0, above=True))
    """Largest change of a parameter with which an exact run ends its iterations."""
    mixture_share: float = field(default=0.4, metadata=within(0, 1, above=True, below=True))
    """Share of the budget for the mixtures. With ``frequency_share`` it is below 1; second moments have the rest."""
    frequency_share: float = field(default=0.2, metadata=within(0, 1, above=True, below=True))
    """Share of the budget for the frequencies of categories."""
    row_norm: float = field(default=1.0, metadata=within(0, above=True))
    """Bound on the contribution of one continuous column to a row of the mixtures' sums."""
    moment_norm: float = field(default=1.0, metadata=within(0, above=True))
    """Bound on the contribution of one column to the square of a row of scores."""
    order: str = field(default="listed", metadata=one_of(get_args(CategoryOrder)))
    """Order of the categories' intervals: as listed, or by frequency (the paper)."""
    assignment: str = field(default="drawn", metadata=one_of(get_args(Assignment)))
    """Assignment of a value to its component: drawn by its responsibilities, or the largest (the paper)."""
    correlations: str = field(default="latent", metadata=one_of(get_args(Correlations)))
    """Correlations of the drawn rows: of the normal variables behind the silos' categories, or of scores that the silos
    draw (the paper).
    """
    discrete: tuple[str, ...] = ()
    """Columns of numbers that are treated as categories, such as a label 1 .. 7."""


@dataclass(frozen=True, slots=True)
class TdaPlan:
    """Fed-TDA as a `parties.federation.algorithm.AlgorithmPlan`."""

    config: Config
    settings: TdaSettings
    layout: Layout
    steps: Steps

    @property
    def document(self) -> Mapping[str, object]:
        """See ``AlgorithmPlan``."""
        return {**asdict(self.settings), "discrete": list(self.settings.discrete)}

    @property
    def sums(self) -> int:
        """See ``AlgorithmPlan``."""
        return self.steps.iterations + 2

    @property
    def kinds(self) -> Sequence[tuple[Request, int]]:
        """See ``AlgorithmPlan``."""
        steps = self.steps
        counts = [(steps.mixture, steps.iterations), (steps.frequencies, 1), (steps.moments, 1)]
        return [(step.request(b""), count) for step, count in counts if count]

    @property
    def rho(self) -> float:
        """See ``AlgorithmPlan``."""
        return self.settings.rho

    @property
    def private(self) -> bool:
        """See ``AlgorithmPlan``."""
        return self.settings.private_run

    @property
    def private_answers(self) -> bool:
        """See ``AlgorithmPlan``."""
        return False

    @property
    def guarantee(self) -> str:
        """See ``AlgorithmPlan``."""
        run = self.config.run
        if not self.private:
            return 'No privacy guarantee: privacy = "none" opens exact sums.'
        against = "everybody but the server, which saw sums before their noise"
        if self.settings.noise == "distributed":
            against = (
                f"everybody, the server and up to {self.settings.corrupt} of the silos included"
            )
        return (
            f"epsilon = {run.epsilon:g}, delta = {run.delta:g} for {unit_text(self.config)}, "
            f"against {against}"
        )

    def check_table(self, table: TextTable, name: str) -> None:
        """See ``AlgorithmPlan``."""
        rows_of(self.layout, table, source=name)

    def silo(self, table: TextTable, context: SiloContext, ledger: Ledger) -> "_TdaSilo":
        """See ``AlgorithmPlan``."""
        rows = rows_of(self.layout, table, source=context.name)
        silo = TdaSilo(
            rows, self.layout, self.settings, ledger=ledger, random_bytes=secrets.token_bytes
        )
        return _TdaSilo(silo, context)

    async def serve(self, silos: Silos, *, say: Callable[[str], None]) -> Outcome:
        """See ``AlgorithmPlan``."""
        # Imported here: silos draw no table and need no pandas.
        from mechanisms.writing import text_bytes

        result = await run(self.layout, self.settings, silos, progress=say)
        rows = self.config.run.rows or max(_LEAST_ROWS, round(result.model.rows))
        seed = self.config.run.seed or 0
        frame = result.model.sample(rows, public_generator(seed))
        files = {
            TABLE: text_bytes(frame, self.config.domain),
            MODEL: result.model.to_json().encode(),
        }
        return Outcome(
            self._facts(result, rows, silos.count),
            files,
            [("Columns", ("column", "kind"), self._columns())],
            [
                ("synthetic rows", str(rows)),
                ("mixtures", f"{result.iterations} iterations, {result.lost} lost"),
            ],
        )

    def _facts(self, result: TdaResult, rows: int, silos: int) -> dict[str, object]:
        layout = self.layout
        discrete = [layout.domain.columns[i].size for i in layout.discrete]
        return {
            "synthetic_rows": rows,
            "iterations": result.iterations,
            "iterations_lost": result.lost,
            "values_of_a_silo": sent_values(layout, self.steps, iterations=result.iterations),
            "paper_mib_of_all_silos": paper_mib(
                len(layout.continuous),
                discrete,
                silos=silos,
                components=self.settings.components,
                iterations=result.iterations,
            ),
        }

    def _columns(self) -> list[tuple[str, str]]:
        layout = self.layout
        mixed = set(layout.continuous)
        return [
            (column.name, "continuous" if i in mixed else f"{column.size} categories")
            for i, column in enumerate(layout.domain.columns)
        ]

    def judge(self, folder: Path, table: TextTable) -> Mapping[str, float]:
        """See ``AlgorithmPlan``.

        Returns the error on the configuration's workload, as in reports of DistAIM and FLAIM.
        """
        model = TdaModel.from_json((folder / MODEL).read_text())
        domain, workload = self.config.domain, self.config.build_workload()
        rows = max(_LEAST_ROWS, round(model.rows))
        drawn = model.sample(rows, public_generator(1))
        real, synthetic = (
            table_answers(workload, encode(domain, frame, source=name))
            for name, frame in (("the table", table), (TABLE, drawn))
        )
        return {"workload_error": workload_error(workload, real, synthetic)}


@dataclass(frozen=True, slots=True)
class _TdaSilo(Silo):
    """A silo that keeps a copy of the final model."""

    inner: TdaSilo
    context: SiloContext

    def answer(self, request: Request) -> NDArray[np.int64]:
        """See ``Silo``."""
        return self.inner.answer(request)

    def finish(self, payload: bytes) -> None:
        """See ``Silo``. Writes the model to the silo's own folder."""
        self.inner.finish(payload)
        write_atomic(self.context.folder / MODEL, payload)


def plan(config: Config) -> TdaPlan:
    """Returns the run of Fed-TDA for ``config``. Raises ConfigError."""
    table = {} if config.algorithm is None else config.algorithm[1]
    section, run_section = section_of(TdaSection, NAME, table), config.run
    config.check_bins()
    if config.sources:
        raise ConfigError(
            config.source,
            "source",
            "is DistAIM's and central AIM's alone; expected none with [tda]",
        )
    check_minimum(config, silos_section(config))
    private = section.privacy != "none"
    least = silos_section(config).minimum
    try:
        settings = TdaSettings(
            **asdict(section),
            rho=_row_rho(config) if private else 0.0,
            iterations=run_section.rounds,
            noise="distributed" if silos_section(config).noise == "distributed" else "server",
            min_silos=least,
            corrupt=min(corrupt_silos(config, least), least - 1),
            max_silo_rows=config.clients.rows_per_client,
        )
        layout = Layout.of(config.domain, settings)
        return TdaPlan(config, settings, layout, Steps.of(layout, settings))
    except ConfigError:
        raise
    except ArithmeticError as problem:
        raise ConfigError(
            config.source,
            NAME,
            "has a norm or a share of the budget that is too small to compute with",
        ) from problem
    except (ValueError, MechanismError) as problem:
        raise ConfigError(config.source, NAME, f"cannot be carried out: {problem}") from problem


def _row_rho(config: Config) -> float:
    """Budget in what a row costs, with which the unit of privacy has the configured epsilon and delta."""
    return row_budget(
        rho_from_epsilon_delta(config.run.epsilon, config.run.delta), config.rows_of_unit
    )


METHOD = FederatedMethod(
    NAME,
    plan,
    "It cannot show that model and table were made of the sums; it shows which files the server made.",
    of_persons=True,
)
