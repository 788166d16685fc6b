"""MR-MTL (`mechanisms.mr_mtl`) between silos: its section [mtl] of the configuration, and the results of a run.

[run] has delta, the epsilon of silos without their own choice, and the rounds; [[column]] the features with their
bounds, and the label; [clients] the bound on a silo's rows. Public: the mean of the models. A silo's own model, its
spent epsilon and its errors are in the silo's folder, `personal.json`. The epsilon covers the silo's messages; it does
not cover its errors, which stay with the silo. A trial, which has all silos on one machine, collects them in
`silos.json`.

The state for a silo's restart (rounds, charges, models, test rows) is in `mtl-state.json` before an answer leaves, so
that no row changes its part and nothing is released twice with different noise. Its noise is that of one epsilon: the
state has it, and a silo does not go on with another one.
"""

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger
from mechanisms.errors import DataError, MechanismError
from mechanisms.fixed_point import MAX_SCALE_BITS
from mechanisms.linear_models import OBJECTIVES
from mechanisms.mr_mtl import MAX_HIDDEN, MtlResult, MtlSettings, run_mtl
from mechanisms.mtl_features import Features
from mechanisms.mtl_silo import MtlSilo, SiloRows
from mechanisms.perceptron import PERCEPTRONS, weight_names
from mechanisms.silos import Request, Silo, Silos
from mechanisms.table_keys import one_of, within
from mechanisms.text_table import TextTable
from mechanisms.units import row_guarantee
from parties.config import PERSON, Config
from parties.config.parsing import section_of
from parties.federation.algorithm import FederatedMethod, Outcome, SiloContext
from parties.foundation.errors import ConfigError, StoreError
from parties.storage.files import write_atomic

NAME = "mtl"
MEAN, PERSONAL, STATE = "mean.json", "personal.json", "mtl-state.json"
SILO_RESULTS_FILE = "silos.json"
FEDAVG = "fedavg"
# Models with an error: the silo's own, the silo's without the others at the same budget, the mean of all models.
OWN, ALONE, MEAN_MODEL = "own", "alone", "mean"
# Objectives whose label is one of two categories; the others predict a number.
TWO_CLASSES = {"logistic", "logistic-perceptron"}
_STATE_INTERVAL = 10


@dataclass(frozen=True, slots=True)
class MtlSection:
    """[mtl]: training of a model between silos. `mechanisms.mr_mtl.MtlSettings` checks the values."""

    label: str
    """Column to predict."""
    lambdas: tuple[str, ...] = ("1",)
    """Numbers from "0" (training alone), or "fedavg" (one model for all). Of several the silos choose one by votes."""
    objective: str = field(default="linear", metadata=one_of((*OBJECTIVES, *PERCEPTRONS)))
    """Loss: of a number, or of a label of two categories (``logistic``); the perceptrons have one hidden layer."""
    hidden: int = field(default=0, metadata=within(0, MAX_HIDDEN))
    """Hidden units of a perceptron, at least 1; linear models have none."""
    tuning_rounds: int = field(default=0, metadata=within(0))
    """Rounds that train all of several lambdas, fewer than run.rounds; 0 with one lambda."""
    held_out: float = field(default=0.1, metadata=within(0, 0.9))
    """Share of a silo's rows that votes, with several lambdas."""
    test: float = field(default=0.2, metadata=within(0, 0.9))
    """Share of a silo's rows that measures its model, for the silo alone."""
    epochs: float = field(default=1.0, metadata=within(0, above=True))
    """Passes through the rows in a round."""
    batch: int = field(default=32, metadata=within(1))
    """Mean size of a batch."""
    rate: float = field(default=0.01, metadata=within(0, above=True))
    """Size of a step."""
    clip: float = field(default=1.0, metadata=within(0, above=True))
    """Bound on the norm of an example's gradient, including the pull towards the mean."""
    bound: float = field(default=4.0, metadata=within(0, above=True))
    """Bound on a weight."""
    model_bits: int = field(default=16, metadata=within(0, MAX_SCALE_BITS))
    """Fractional bits of a model's weights. A silo's sum of weights has 40 bits in all."""
    gradient_bits: int = field(default=10, metadata=within(0, MAX_SCALE_BITS))
    """Fractional bits of a gradient."""
    vote_norm: float = field(default=0.02, metadata=within(0, above=True))
    """Bound on the difference of one held-out row's losses."""


@dataclass(frozen=True, slots=True)
class MtlPlan:
    """MR-MTL as a `parties.federation.algorithm.AlgorithmPlan`."""

    config: Config
    section: MtlSection
    settings: MtlSettings
    features: Features

    @property
    def document(self) -> Mapping[str, object]:
        """See ``AlgorithmPlan``."""
        return {**asdict(self.section), "rounds": self.settings.rounds}

    @property
    def sums(self) -> int:
        """See ``AlgorithmPlan``."""
        return self.settings.rounds + (1 if self.settings.tuning_rounds else 0)

    @property
    def kinds(self) -> Sequence[tuple[Request, int]]:
        """See ``AlgorithmPlan``.

        With several candidates: their models, and votes on them; then models of the chosen one.
        """
        settings, everything = self.settings, len(self.settings.lambdas)
        start = np.zeros((everything, settings.size))

        def models(count: int) -> Request:
            return replace(settings.models_request(0, (), start[:count]), payload=b"")

        later = settings.rounds - settings.tuning_rounds
        if not settings.tuning_rounds:
            return [(models(1), later)]
        votes = replace(settings.votes_request(start), payload=b"")
        return [(models(everything), settings.tuning_rounds), (votes, 1), (models(1), later)]

    @property
    def rho(self) -> float:
        """See ``AlgorithmPlan``. Silos charge ledgers of their own, in Renyi divergence."""
        return 0.0

    @property
    def private(self) -> bool:
        """See ``AlgorithmPlan``."""
        return True

    @property
    def private_answers(self) -> bool:
        """See ``AlgorithmPlan``. Each silo's own noise makes its answers private."""
        return True

    @property
    def guarantee(self) -> str:
        """See ``AlgorithmPlan``."""
        run, rows = self.config.run, self.config.rows_of_unit
        unit = "one example of a silo being there or not"
        if run.unit == PERSON:
            unit = f"one person with all of its rows, which are at most {rows} at a silo, being there or not"
        said = (
            f"epsilon = {run.epsilon:g} (or the silo's own), delta = {run.delta:g} for {unit}, with its number of rows "
            "declared, of everything that the silo emits, against everybody else"
        )
        return said if rows == 1 else f"{said}; each row by itself has 1/{rows} of the epsilon"

    @property
    def weight_names(self) -> list[str]:
        """Names of a model's d weights."""
        names, hidden = self.features.names, self.settings.hidden
        return weight_names(names, hidden) if hidden else names

    def check_table(self, table: TextTable, name: str) -> None:
        """See ``AlgorithmPlan``. Also checks that the objective's library is installed."""
        self.settings.make_objective()
        self.features.rows_of(table, source=name, ignore_extra=True)

    def silo(self, table: TextTable, context: SiloContext, ledger: Ledger) -> "PersonalSilo":
        """See ``AlgorithmPlan``. ``ledger`` is unused: nothing is charged in zCDP."""
        x, y = self.features.rows_of(table, source=context.name, ignore_extra=True)
        return PersonalSilo(self, x, y, context)

    async def serve(self, silos: Silos, *, say: Callable[[str], None]) -> Outcome:
        """See ``AlgorithmPlan``."""

        def progress(number: int, survivors: int) -> None:
            if number % _STATE_INTERVAL == 0 or number == self.settings.rounds:
                say(f"round {number} of {self.settings.rounds}: the mean of {survivors} models")

        result = await run_mtl(self.settings, silos, progress)
        chosen = _named(result.lambda_)
        names = self.weight_names
        weights = [(name, f"{weight:.4f}") for name, weight in zip(names, result.mean, strict=True)]
        facts: dict[str, object] = {
            "lambda": chosen,
            "votes": dict(zip(self.section.lambdas, result.votes, strict=False)),
            "least_models_in_a_mean": min(result.survivors),
            "features": self.settings.features,
        }
        return Outcome(
            facts,
            {MEAN: _json({"lambda": chosen, "weights": _weights(names, result.mean)}).encode()},
            [("The mean of the models", ("weight", "value"), weights)],
            [("lambda", chosen), ("mean", _means(result))],
        )

    def judge(self, folder: Path, table: TextTable) -> Mapping[str, float]:
        """See ``AlgorithmPlan``.

        Averages the silos' test errors, weighted by test rows, and writes all silos' results to a file.
        """
        found = {
            path.parent.name: json.loads(path.read_text())
            for path in sorted(folder.rglob(PERSONAL))
        }
        write_atomic(folder / SILO_RESULTS_FILE, _json(found), secret=True)
        tested = [one for one in found.values() if one["rows"]["test"]]
        if not tested:
            return {}
        weights = [one["rows"]["test"] for one in tested]
        figures = {
            f"error, {kind}": float(
                np.average([one["errors"][kind] for one in tested], weights=weights)
            )
            for kind in (OWN, ALONE, MEAN_MODEL)
        }
        gained = [one["errors"][OWN] < one["errors"][ALONE] for one in tested]
        return {**figures, "gained": sum(gained) / len(gained)}


class PersonalSilo(Silo):
    """A `mechanisms.silos.Silo` with a durable state, saved before each answer leaves, and its model at the end.

    Raises DataError if too few rows are left for training, StoreError; ConfigError if the silo began with another
    epsilon.
    """

    def __init__(
        self, plan: MtlPlan, x: NDArray[np.float64], y: NDArray[np.float64], context: SiloContext
    ) -> None:
        self._plan, self._context = plan, context
        self._path = context.folder / STATE
        kept = _read_state(self._path)
        self._salt = kept["salt"] if kept else secrets.token_hex(32)
        self._rows = _split(x, y, plan.section, plan.settings, self._salt, context.name)
        self._epsilon = plan.config.run.epsilon if context.epsilon is None else context.epsilon
        if kept:
            self._check_budget(kept)
        self._inner = self._make(plan.settings)
        if kept:
            self._inner.resume(kept["silo"])
        else:
            self._keep()

    def __repr__(self) -> str:
        return f"PersonalSilo({self._inner!r})"

    @property
    def own_charges(self) -> int:
        """See ``Silo``."""
        return self._inner.own_charges

    def answer(self, request: Request) -> NDArray[np.int64]:
        """See ``Silo``."""
        answer = self._inner.answer(request)
        self._keep()
        return answer

    def finish(self, payload: bytes) -> None:
        """See ``Silo``. Writes the silo's own model, its spent epsilon and its errors, for the silo alone."""
        self._inner.finish(payload)
        settings, names = self._plan.settings, self._plan.weight_names
        local = self._trained_alone()
        model, mean = self._inner.model, self._inner.mean
        errors = {OWN: model, ALONE: local, MEAN_MODEL: mean}
        document = {
            "lambda": _named(self._inner.lambda_),
            "epsilon": self._epsilon,
            "epsilon_spent": self._inner.epsilon * self._plan.config.rows_of_unit,
            "delta": self._plan.config.run.delta,
            "rows": {
                "train": len(self._rows.train[1]),
                "held_out": len(self._rows.held_out[1]),
                "test": len(self._rows.test[1]),
            },
            "rounds": settings.rounds,
            "steps": self._inner.steps,
            "weights": _weights(names, model),
            "errors": {kind: self._error(w) for kind, w in errors.items()},
            "not_private": ["errors", "rows"],
        }
        write_atomic(self._context.folder / PERSONAL, _json(document), durable=True, secret=True)

    def _trained_alone(self) -> NDArray[np.float64]:
        """Returns this silo's model without the others at the same budget. It is not sent, and so not charged."""
        settings = replace(self._plan.settings, lambdas=(0.0,), tuning_rounds=0)
        alone = self._make(settings)
        start = settings.start[None]
        for number in range(1, settings.rounds + 1):
            alone.answer(settings.models_request(number, (0,), start))
        return alone.model

    def _error(self, w: NDArray[np.float64]) -> float | None:
        error = self._inner.error_of(w)
        return None if math.isnan(error) else error

    def _make(self, settings: MtlSettings) -> MtlSilo:
        config = self._plan.config
        epsilon, delta = row_guarantee(self._epsilon, config.run.delta, config.rows_of_unit)
        return MtlSilo(
            settings,
            self._rows,
            epsilon=epsilon,
            delta=delta,
            random_bytes=secrets.token_bytes,
        )

    def _check_budget(self, kept: Mapping[str, Any]) -> None:
        """Raises ConfigError for an epsilon or a delta that earlier answers' noise was not for."""
        delta = self._plan.config.run.delta
        # A state of an older version has neither; there the owner's budget knows the epsilon that was charged.
        began = kept.get("epsilon", self._epsilon), kept.get("delta", delta)
        if began != (self._epsilon, delta):
            raise ConfigError(
                str(self._path),
                "epsilon",
                f"is {began[0]:g}, and delta {began[1]:g}, of a silo that has begun so; this time they are "
                f"{self._epsilon:g} and {delta:g}. Expected --epsilon {began[0]:g}, or another --dir, which is charged "
                "anew",
            )

    def _keep(self) -> None:
        kept = {
            "salt": self._salt,
            "epsilon": self._epsilon,
            "delta": self._plan.config.run.delta,
            "silo": self._inner.state(),
        }
        write_atomic(self._path, json.dumps(kept), durable=True, secret=True)


def plan(config: Config) -> MtlPlan:
    """Returns the run of MR-MTL for ``config``. Raises ConfigError."""
    table = {} if config.algorithm is None else config.algorithm[1]
    section, run_section = section_of(MtlSection, NAME, table), config.run
    config.check_bounds()
    for name in ("held_out", "test"):
        if not 0 <= getattr(section, name) <= 0.9:
            raise ConfigError(
                config.source, f"{NAME}.{name}", "is a share of the rows; expected 0 to 0.9"
            )
    if config.sources:
        raise ConfigError(config.source, "source", "is not for [mtl]; expected one table a silo")
    try:
        features = Features(config.domain, section.label, section.objective in TWO_CLASSES)
        values = asdict(section)
        for name in ("label", "lambdas", "held_out", "test"):
            del values[name]
        settings = MtlSettings(
            **values,
            max_rows=config.clients.rows_per_client,
            features=len(features.names),
            lambdas=tuple(map(_number, section.lambdas)),
            rounds=run_section.rounds,
        )
        return MtlPlan(config, section, settings, features)
    except (ValueError, MechanismError) as problem:
        raise ConfigError(config.source, NAME, f"cannot be carried out: {problem}") from problem


METHOD = FederatedMethod(
    NAME,
    plan,
    "It cannot show that the mean of the models is that of the sums; it shows which file the server made. The silos' "
    "own models are with the silos, and are not judged.",
    of_persons=True,
)


def _number(lambda_: str) -> float:
    return math.inf if lambda_ == FEDAVG else float(lambda_)


def _named(lambda_: float) -> str:
    return FEDAVG if math.isinf(lambda_) else f"{lambda_:g}"


def _weights(names: list[str], model: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(names, model.tolist(), strict=True))


def _means(result: MtlResult) -> str:
    return f"of {min(result.survivors)} models or more in each of {len(result.survivors)} rounds"


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _read_state(path: Path) -> dict[str, Any] | None:
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if set(kept) - {"epsilon", "delta"} != {"salt", "silo"}:
            raise ValueError("keys")
        return kept
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(path, f"is not this silo's state: {error}") from error


def _split(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    section: MtlSection,
    settings: MtlSettings,
    salt: str,
    name: str,
) -> SiloRows:
    """Splits the rows in an order from the silo's secret ``salt``: test rows, then voting rows, then training rows."""
    words = hashlib.shake_256(f"syncret mtl 1 rows\n{salt}".encode()).digest(8 * len(y))
    order = np.argsort(np.frombuffer(words, "<u8"), kind="stable")
    tests = round(section.test * len(y))
    votes = tests + (round(section.held_out * (len(y) - tests)) if settings.tuning_rounds else 0)
    if votes >= len(y):
        raise DataError(f"{name}: has no rows left to train with; expected more rows")
    parts = order[votes:], order[tests:votes], order[:tests]
    return SiloRows(*((x[part], y[part]) for part in parts))
