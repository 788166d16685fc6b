"""Generated tables: the hospital stays of `syncret demo` with their config, and invented rows for any other domain.

`DEMO_CONFIG` is TOML without [[party]] and [tls], which a run on one machine makes for itself. Eight columns:
categories, whole and real numbers; two have missing values. The columns depend on one another as in real data: blood
pressure rises with age, wards treat their own diagnoses, long stays lead to readmissions.

Secret: nothing, the people do not exist. The domain came first and the table was drawn inside it. Source: invented; no
clinical claim is made. Known limits: the numbers are of no other use.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mechanisms.domain import Domain
from mechanisms.sampling import PublicGenerator, public_generator
from mechanisms.table import decode

DEMO_ROWS = 6000
DEMO_CLIENTS = 24

DEMO_CONFIG = """\
# The domain is public knowledge about the columns; nothing in it was read from a table.

[run]
id = "demo"
epsilon = 1.0
delta = 1e-5
rounds = 8

[workload]
degree = 3
count = "all"

[clients]
expected = 24
rows_per_client = 500

[missing]
values = [""]

[[column]]
name = "age"
kind = "integer"
from = "public: invented with the table"
low = 0
high = 99
bins = 20

[[column]]
name = "sex"
kind = "categorical"
from = "public: invented with the table"
categories = ["female", "male"]

[[column]]
name = "smoker"
kind = "categorical"
from = "public: invented with the table"
categories = ["never", "former", "current"]
missing = true

[[column]]
name = "ward"
kind = "categorical"
from = "public: invented with the table"
categories = ["cardiology", "surgery", "pulmonology", "general", "paediatrics"]

[[column]]
name = "diagnosis"
kind = "categorical"
from = "public: invented with the table"
categories = ["heart failure", "arrhythmia", "fracture", "appendicitis", "pneumonia", "copd", "infection", "other"]

[[column]]
name = "systolic_mmhg"
kind = "real"
from = "public: invented with the table"
low = 80.0
high = 220.0
bins = 14
missing = true

[[column]]
name = "stay_days"
kind = "integer"
from = "public: invented with the table"
low = 0
high = 29
bins = 15

[[column]]
name = "readmitted"
kind = "categorical"
from = "public: invented with the table"
categories = ["no", "yes"]
"""

_DIAGNOSES = (
    "heart failure",
    "arrhythmia",
    "fracture",
    "appendicitis",
    "pneumonia",
    "copd",
    "infection",
    "other",
)
_WARDS = ("cardiology", "surgery", "pulmonology", "general", "paediatrics")
# Chance of each ward (columns) given the diagnosis (rows) of an adult.
_WARD_CHANCES = np.array(
    [
        [0.80, 0.02, 0.06, 0.12, 0.00],
        [0.85, 0.02, 0.03, 0.10, 0.00],
        [0.01, 0.89, 0.01, 0.09, 0.00],
        [0.00, 0.94, 0.00, 0.06, 0.00],
        [0.03, 0.01, 0.74, 0.22, 0.00],
        [0.06, 0.01, 0.83, 0.10, 0.00],
        [0.03, 0.10, 0.12, 0.75, 0.00],
        [0.08, 0.14, 0.08, 0.70, 0.00],
    ]
)
_MEAN_STAY_DAYS = np.array([8.0, 3.5, 6.0, 3.0, 6.5, 7.0, 4.5, 2.5])


def demo_table(rows: int = DEMO_ROWS, *, seed: int = 1) -> pd.DataFrame:
    """Returns `rows` generated stays as text, one column per column of `DEMO_CONFIG`; "" for a missing value.

    The same seed gives the same table. Raises ValueError for a negative number of rows.
    """
    if rows < 0:
        raise ValueError(f"{rows} rows; expected none or more")
    rng = public_generator(seed)
    age = _ages(rows, rng)
    male = rng.random(rows) < 0.48
    smoker = _smokers(age, male, rng)
    diagnosis = _diagnoses(age, smoker, rng)
    ward = np.where(age < 16, 4, _draw(_WARD_CHANCES[diagnosis], rng))
    systolic = _pressures(age, male, diagnosis, rng)
    stay = _stays(age, diagnosis, rng)
    readmitted = rng.random(rows) < _logistic(-2.6 + 0.12 * stay + 0.012 * age)
    text = {
        "age": age.astype(str),
        "sex": np.where(male, "male", "female"),
        "smoker": np.array(["never", "former", "current"])[smoker],
        "ward": np.array(_WARDS)[ward],
        "diagnosis": np.array(_DIAGNOSES)[diagnosis],
        "systolic_mmhg": np.array([f"{value:.1f}" for value in systolic], dtype=str),
        "stay_days": stay.astype(str),
        "readmitted": np.where(readmitted, "yes", "no"),
    }
    frame = pd.DataFrame({name: values.astype(object) for name, values in text.items()}, dtype=str)
    # The young are asked less often; short stays are measured less often.
    frame.loc[rng.random(rows) < np.where(age < 16, 0.5, 0.06), "smoker"] = ""
    frame.loc[rng.random(rows) < np.where(stay < 2, 0.2, 0.03), "systolic_mmhg"] = ""
    return frame


def invented_table(domain: Domain, rows: int, *, seed: int = 1) -> pd.DataFrame:
    """Returns `rows` rows within `domain`, as text: independent columns, with lower cells more frequent.

    The same seed gives the same table. Use: trying a configuration before real data is available.
    """
    rng = public_generator(seed)
    columns = [_falling(size, rows, rng) for size in domain.shape]
    codes = np.stack(columns, axis=1) if columns else np.zeros((rows, 0), np.int64)
    return decode(domain, codes.astype(np.int32), rng)


def _falling(size: int, rows: int, rng: PublicGenerator) -> NDArray[np.int64]:
    """Codes below `size` with evenly falling chances, the first about `size` times the last. Shapes: (rows,)."""
    weights = np.arange(size, 0, -1, dtype=np.float64)
    return rng.choice(size, size=rows, p=weights / weights.sum())


def _ages(rows: int, rng: PublicGenerator) -> NDArray[np.int64]:
    """Ages of children, adults and, mostly, the old."""
    group = rng.choice(3, size=rows, p=[0.12, 0.33, 0.55])
    centre, spread = np.array([7.0, 38.0, 71.0])[group], np.array([4.5, 11.0, 11.0])[group]
    return np.clip(np.rint(rng.normal(centre, spread)), 0, 99).astype(np.int64)


def _smokers(
    age: NDArray[np.int64], male: NDArray[np.bool_], rng: PublicGenerator
) -> NDArray[np.int64]:
    """Codes: 0 never, 1 former, 2 current."""
    adult = age >= 16
    current = adult * (0.16 + 0.08 * male) * np.where(age > 70, 0.5, 1.0)
    former = adult * np.clip((age - 20) / 120, 0, 0.5)
    return _draw(np.stack([1 - current - former, former, current], axis=1), rng)


def _diagnoses(
    age: NDArray[np.int64], smoker: NDArray[np.int64], rng: PublicGenerator
) -> NDArray[np.int64]:
    """Index into `_DIAGNOSES`: heart with age, lung with smoking, appendicitis with youth."""
    old, young, lung = age / 99, np.clip(1 - age / 40, 0, 1), smoker / 2
    weights = np.stack(
        [
            4.0 * old**3,
            2.2 * old**2,
            0.6 + 1.2 * young,
            0.2 + 1.6 * young,
            0.5 + 0.8 * old + 0.6 * lung,
            2.6 * lung * old,
            0.8 + 0.4 * young,
            np.full(len(age), 0.9),
        ],
        axis=1,
    )
    return _draw(weights, rng)


def _pressures(
    age: NDArray[np.int64],
    male: NDArray[np.bool_],
    diagnosis: NDArray[np.int64],
    rng: PublicGenerator,
) -> NDArray[np.float64]:
    """Systolic pressure in mmHg, within the domain's bounds."""
    mean = 98 + 0.55 * age + 4 * male + np.array([12, 4, 0, 0, -4, 2, -8, 0])[diagnosis]
    return np.asarray(np.clip(rng.normal(mean, 13.0), 80.0, 220.0))


def _stays(
    age: NDArray[np.int64], diagnosis: NDArray[np.int64], rng: PublicGenerator
) -> NDArray[np.int64]:
    """Length of stay in whole days, 0 to 29."""
    mean = _MEAN_STAY_DAYS[diagnosis] * (0.5 + age / 80)
    return np.clip(np.floor(rng.gamma(2.0, mean / 2.0)), 0, 29).astype(np.int64)


def _logistic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _draw(weights: NDArray[np.float64], rng: PublicGenerator) -> NDArray[np.int64]:
    """Draws one index per row of `weights` (rows, choices), with probability proportional to the weight."""
    sums = np.cumsum(weights, axis=1)
    point = rng.random(len(weights)) * sums[:, -1]
    return np.asarray((sums <= point[:, None]).sum(axis=1))
