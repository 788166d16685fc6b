"""Generated tables with a run of central AIM each, and questions with their true answers, for tests of estimates."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mechanisms.accounting import Ledger
from mechanisms.aim import run_aim
from mechanisms.domain import Categorical, Domain, Integer, Real
from mechanisms.estimate_errors import Knowledge
from mechanisms.model import Model
from mechanisms.pgm import PgmEstimator
from mechanisms.plaintext import PlaintextBackend
from mechanisms.sampling import public_generator
from mechanisms.table import encode
from mechanisms.workload import draw_workload
from parties.config import ANNEALED
from parties.mpc.planning.budget import make_plan, noise_kind
from parties.report.knowledge import knowledge_of
from parties.report.quality import aim_quality
from parties.session.study import Study
from tests.mechanisms.tables import random_stream
from tests.parties.support import make_config

DOMAIN = Domain(
    (
        Categorical("sex", ("F", "M")),
        Categorical("ward", ("A", "B", "C", "D", "E")),
        Categorical("fraud", ("0", "1")),
        Integer("age", 18, 89, 9),
        Integer("score", 0, 100, 8),
        Real("income", 0.0, 500.0, edges=(0, 5, 10, 20, 30, 50, 80, 150, 500), decimals=1),
    )
)


@dataclass(frozen=True)
class Finished:
    """A table, the model that central AIM made of it, and what is known of its errors."""

    table: pd.DataFrame
    model: Model
    knowledge: Knowledge


def generated(seed: int, rows: int) -> pd.DataFrame:
    """People of two to five latent classes, by which all columns go together, with values of skew distributions."""
    rng = np.random.default_rng([seed, 41])
    classes = int(rng.integers(2, 6))
    of_row = rng.choice(classes, rows, p=rng.dirichlet(np.full(classes, 2.0)))

    def category(values: str) -> np.ndarray:  # type: ignore[type-arg]
        shares = rng.dirichlet(np.full(len(values), 1.0), classes)
        places = (np.cumsum(shares, axis=1)[of_row, :-1] < rng.random((rows, 1))).sum(axis=1)
        return np.array(list(values))[places]

    age = rng.normal(rng.uniform(30, 75, classes)[of_row], rng.uniform(4, 15, classes)[of_row])
    score = 100 * rng.beta(*(rng.uniform(0.7, 5, classes)[of_row] for _ in range(2)))
    income = np.exp(
        rng.normal(rng.uniform(2, 4, classes)[of_row], 0.5) + rng.normal(0, 0.4) * (age - 50) / 30
    )
    chance = rng.uniform(0.02, 0.4, classes)[of_row] * np.clip(0.5 + age / 100, 0, 2)
    return pd.DataFrame(
        {
            "sex": category("FM"),
            "ward": category("ABCDE"),
            "fraud": (rng.random(rows) < chance).astype(int),
            "age": np.clip(np.rint(age), 18, 89).astype(int),
            "score": np.rint(score).astype(int),
            "income": np.round(np.clip(income, 0, 500), 1),
        }
    )


def finished(seed: int, *, rows: int = 5000, triples: bool = False) -> Finished:
    """A run on a generated table, at one of three epsilons, for all pairs, or for half of the triples."""
    table = generated(seed, rows)
    codes = encode(DOMAIN, table.astype(str))
    workload = draw_workload(DOMAIN, 3 if triples else 2, 10 if triples else None)
    of_study = make_config()
    run = replace(
        of_study.run,
        epsilon=(0.5, 1.0, 3.0)[seed % 3],
        schedule=ANNEALED,
        rounds=96,
        fallback="columns",
    )
    config = replace(of_study, run=run, domain=DOMAIN)
    plan = make_plan(Study(config, workload))
    backend = PlaintextBackend.pooled(
        workload,
        plan,
        codes=codes,
        ledger=Ledger(plan.rho, accountant=plan.accountant),
        random_bytes=random_stream(seed),
    )
    estimator = PgmEstimator(workload, plan, iterations=50, final_iterations=200)
    result = asyncio.run(
        run_aim(workload, plan, backend, estimator, max_rows=8 * rows, rule="remaining-error")
    )
    assert estimator.model is not None
    made = estimator.model.sample(result.total, public_generator(seed))
    quality = aim_quality(
        config.run, workload, result, noise=noise_kind(config), model=estimator.model, codes=made
    )
    return Finished(
        table, estimator.model, knowledge_of(json.loads(json.dumps(quality)), result.total)
    )


def _odds(part: pd.DataFrame) -> float:
    share = (part.fraud == 1).mean()
    return float(share / (1 - share))


Truth = Callable[[pd.DataFrame], float]
QUESTIONS: dict[str, Truth] = {
    "count": len,
    "count where ward = B": lambda t: (t.ward == "B").sum(),
    "count where sex = F and fraud = 1": lambda t: ((t.sex == "F") & (t.fraud == 1)).sum(),
    "count where age >= 65": lambda t: (t.age >= 65).sum(),
    "share(fraud = 1)": lambda t: (t.fraud == 1).mean(),
    "share(fraud = 1) where ward = A": lambda t: (t.fraud[t.ward == "A"] == 1).mean(),
    "share(ward in (A, B)) where age < 40": lambda t: t.ward[t.age < 40].isin(["A", "B"]).mean(),
    "mean(income)": lambda t: t.income.mean(),
    "mean(score) where sex = M": lambda t: t.score[t.sex == "M"].mean(),
    "mean(age) where ward = C": lambda t: t.age[t.ward == "C"].mean(),
    "mean(income) where sex = F and age >= 65": lambda t: t.income[
        (t.sex == "F") & (t.age >= 65)
    ].mean(),
    "median(score)": lambda t: t.score.quantile(0.5, interpolation="lower"),
    "quantile(income, 0.9) where sex = F": lambda t: t.income[t.sex == "F"].quantile(
        0.9, interpolation="lower"
    ),
    "difference(mean(age), sex = F, sex = M)": lambda t: (
        t.age[t.sex == "F"].mean() - t.age[t.sex == "M"].mean()
    ),
    "ratio(mean(income), ward = A, ward = B)": lambda t: (
        t.income[t.ward == "A"].mean() / t.income[t.ward == "B"].mean()
    ),
    "odds_ratio(fraud = 1, sex = F, sex = M)": lambda t: (
        _odds(t[t.sex == "F"]) / _odds(t[t.sex == "M"])
    ),
    "slope(score, age)": lambda t: np.polyfit(t.age, t.score, 1)[0],
    "slope(fraud, score)": lambda t: np.polyfit(t.score, t.fraud, 1)[0],
}
