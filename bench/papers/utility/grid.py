"""The runs behind the published tables and figures of the utility benchmark.

Source: FLAIM paper, section 5: K = 100, p = 0.1, T = 10, epsilon = 1 unless that varies. Runs are done in this order,
so that an interrupted sweep has the most important ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from bench.datasets import SYNTHFS
from bench.methods.settings import (
    ANY,
    AUTHORS,
    FLAIM_METHODS,
    FRESH,
    KEPT,
    METHODS,
    ONCE,
    SERVER,
    STOPPING,
    SUM,
    Settings,
)
from bench.methods.splits import NATURAL
from bench.papers.utility.paper import TABLE1, TABLE2, TABLE6, TABLE6_EPSILONS

TABLES = ("adult", "marketing", "covtype", "census")
CREDIT = "credit"
"""A table of the paper's that few have: sweeps skip it if it is not available, pages if it was not run."""
ROWS_TABLES = (*TABLES, "magic", "adult-uci", "intrusion", CREDIT)
PAPERS_TABLES = tuple(dict.fromkeys(name for name, _ in TABLE2))
MAIN = ("aim", "distaim", "naive", "oracle", "private")
SKEWS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 16.0, 64.0)
ROUNDS = (2, 5, 10, 20, 50, 100)
"""T of Figure 3b."""
ANNEALED_TABLES = ("adult", "magic", "marketing", "intrusion")
TABLE3_TABLES = (*TABLES, "intrusion", "magic", CREDIT)
TABLE3_ROUNDS = (4, 10, 32, 96)
ALL_ROUNDS = tuple(sorted({*ROUNDS, *TABLE3_ROUNDS}))
TABLE3_METHODS = ("distaim", "private")
RATES = (0.05, 0.1, 0.2, 0.5, 1.0)
BETAS = (0.05, 0.1, 0.5, 1.0, 10.0)
FIGURE_TABLES = ("magic", "marketing")
"""Tables of Figures 6 to 11, beside Adult: the quick ones."""
FIGURE2_TABLES = ("adult", "covtype", CREDIT)
FIGURE2_ROUNDS = (2, 4, 10, 32)
STOPPING_TABLES = ("adult", "magic", "marketing")
STOPPING_METHODS = ("aim", "distaim", "naive", "private")
LOCAL = (1, 2, 4)
LOCAL_T = (1, 5, 10, 20, 30)
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "naive": {"method": "naive"},
    "tau (oracle)": {"method": "oracle"},
    "tau, filter-and-combine": {"method": "oracle", "combine": True},
    "proxy": {"method": "private", "combine": False},
    "filter-and-combine": {"method": "private", "tau": "none"},
    "proxy, filter-and-combine (private)": {"method": "private"},
}
"""Figure 2: contribution of each part of the private variant; filter-and-combine without tau is not in the paper. The
proxy alone measures the one-way marginals that it needs but leaves them out of candidates and model.
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """The axis of a part of Figure 3: ``setting`` over ``values``, the rest as usual but for ``fixed``."""

    label: str
    setting: str
    values: Sequence[float]
    fixed: Mapping[str, Any] = field(default_factory=dict)


PANELS: Mapping[str, Panel] = {
    "epsilon": Panel("epsilon", "epsilon", EPSILONS),
    "rounds": Panel("T", "rounds", ROUNDS),
    "participation": Panel("p", "participation", RATES),
    "beta": Panel("beta", "beta", BETAS, {"partition": "label-skew"}),
}
"""Figures 3a to 3d, on other tables 6 to 9."""
THINNED: Mapping[str, Sequence[float]] = {
    "epsilon": (1.0, 5.0, 16.0, 64.0),
    "rounds": (5, 10, 20, 50, 100),
    "participation": (0.1, 0.5, 1.0),
    "beta": (0.05, 0.1, 0.5),
}
"""The values of ``PANELS`` on tables other than Adult."""


def of_panel(dataset: str, name: str, value: float, method: str) -> Settings:
    """Returns a method at a value of a panel."""
    panel = PANELS[name]
    return Settings(dataset=dataset, method=method, **{panel.setting: value}, **panel.fixed)  # type: ignore[arg-type]


def of_parts(dataset: str, rounds: int, part: str) -> Settings:
    """Returns one of ``ABLATIONS`` as in Figure 2."""
    return Settings(dataset=dataset, epsilon=5.0, rounds=rounds, **ABLATIONS[part])


def of_local(dataset: str, rounds: int, local_rounds: int) -> Settings:
    """Returns private FLAIM with this number of local rounds."""
    return Settings(dataset=dataset, method="private", rounds=rounds, local_rounds=local_rounds)


def default(dataset: str, method: str) -> Settings:
    """Returns a method on a table, clustering.

    Random choices of large queries fill a model up to its limit, and 1,000 iterations of 80 MB are minutes: 8 MB.
    """
    if method == "random":
        return Settings(dataset=dataset, method=method, max_model_mb=8.0)
    return Settings(dataset=dataset, method=method)


def as_theirs(dataset: str, method: str, epsilon: float) -> Settings:
    """Returns a method as in the authors' code, clustering: their estimator, their first marginals, random, naivebayes.

    Their configurations leave `init_method` empty: FLAIM then draws clients for each first marginal, DistAIM once.
    """
    first = FRESH if method in FLAIM_METHODS else ONCE if method == "distaim" else KEPT
    base = Settings(dataset=dataset, method=method, epsilon=epsilon, first=first, estimator=AUTHORS)
    if method == "random":
        return replace(base, drawn=SERVER, max_model_mb=8.0)
    return replace(base, rounds=1 if method == "naivebayes" else base.rounds)


def with_annealing(dataset: str, method: str, epsilon: float) -> Settings:
    """Returns a method with an annealed T, FLAIM's as the authors' code decides."""
    settles = ANY if method in FLAIM_METHODS else SUM
    return Settings(dataset=dataset, method=method, epsilon=epsilon, annealed=True, settles=settles)


def table1() -> Iterator[Settings]:
    """Yields every method on every table, clustering."""
    for dataset, method in product(TABLES, METHODS):
        yield default(dataset, method)


def table2() -> Iterator[Settings]:
    """Yields the main methods under each partition."""
    for dataset, partition, method in product(TABLES, ("clustering", "label-skew", "iid"), MAIN):
        yield Settings(dataset=dataset, method=method, partition=partition)


def paper1() -> Iterator[Settings]:
    """Yields the paper's Table 1: likelihoods at epsilon = 5, fitted as in the authors' code and as here."""
    datasets = dict.fromkeys(name for name, _ in TABLE1)
    for name, method in product(datasets, ("aim", "private", "naive", "naivebayes", "random")):
        yield as_theirs(name, method, 5.0)
        yield replace(default(name, method), epsilon=5.0)


def paper2() -> Iterator[Settings]:
    """Yields the paper's Table 2: error and likelihood at epsilon = 1, fitted as in the authors' code and as here."""
    for dataset, method in TABLE2:
        yield as_theirs(dataset, method, 1.0)
        yield default(dataset, method)


def paper6() -> Iterator[Settings]:
    """Yields the paper's Table 6: an annealed T on four tables."""
    for epsilon, dataset, method in product(TABLE6_EPSILONS, ANNEALED_TABLES, TABLE6):
        yield with_annealing(dataset, method, epsilon)


def figure1() -> Iterator[Settings]:
    """Yields SynthFS by its skew."""
    for skew, method in product(SKEWS, MAIN):
        yield Settings(dataset=SYNTHFS, method=method, partition=NATURAL, skew=skew)


def figure2() -> Iterator[Settings]:
    """Yields ablations over T at epsilon = 5, and at epsilon = 1 on every table."""
    for dataset, rounds, part in product(FIGURE2_TABLES, FIGURE2_ROUNDS, ABLATIONS):
        yield of_parts(dataset, rounds, part)
    for dataset, changes in product(TABLES, ABLATIONS.values()):
        yield Settings(dataset=dataset, **changes)


def figure3() -> Iterator[Settings]:
    """Yields Adult by epsilon, rounds, participation and label skew."""
    for name, panel in PANELS.items():
        for value, method in product(panel.values, MAIN):
            yield of_panel("adult", name, value, method)


def _of_tables(name: str) -> Iterator[Settings]:
    for dataset, value, method in product(FIGURE_TABLES, THINNED[name], MAIN):
        yield of_panel(dataset, name, value, method)


def figure10() -> Iterator[Settings]:
    """Yields private FLAIM by T and local rounds: Figures 3e, 3f, 10 and 11."""
    tables = ("adult", *FIGURE_TABLES)
    for dataset, rounds, local_rounds in product(tables, LOCAL_T, LOCAL):
        yield of_local(dataset, rounds, local_rounds)
    for local_rounds in LOCAL:
        yield Settings(dataset="adult", method="naive", local_rounds=local_rounds)


def table3() -> Iterator[Settings]:
    """Yields DistAIM and private FLAIM by T, of which the overhead tables take the best; a few rounds first."""
    for rounds, dataset, method in product(TABLE3_ROUNDS, TABLE3_TABLES, TABLE3_METHODS):
        yield Settings(dataset=dataset, method=method, rounds=rounds)


def everybody(dataset: str, partition: str = "iid") -> Settings:
    """Returns DistAIM with all owners from the start, as they can afford by rows; any partition has the same sums."""
    return Settings(dataset=dataset, method="distaim", participation=1.0, partition=partition)


def rows() -> Iterator[Settings]:
    """Yields DistAIM with all owners and private FLAIM with a tenth; first the quick ones, without an embedding."""
    yield from map(everybody, ROWS_TABLES)
    for partition, dataset in product(("iid", "clustering"), ROWS_TABLES):
        yield Settings(dataset=dataset, method="private", partition=partition)


def stopping() -> Iterator[Settings]:
    """Yields fitting that ends at the noise level, which is not in the paper, beside fitting to the end."""
    for dataset, method in product(STOPPING_TABLES, STOPPING_METHODS):
        yield default(dataset, method)
        yield replace(default(dataset, method), estimator=STOPPING)


def no_runs() -> Iterator[Settings]:
    """Yields no runs: Tables 4 and 5 measure tables and partitions (modules `sizes`, `splits`), with pictures."""
    yield from ()


SWEEPS = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": no_runs,
    "table5": no_runs,
    "fig1": figure1,
    "fig2": figure2,
    "fig3": figure3,
    "fig4": no_runs,
    "fig5": no_runs,
    "fig6": lambda: _of_tables("epsilon"),
    "fig7": lambda: _of_tables("rounds"),
    "fig8": lambda: _of_tables("participation"),
    "fig9": lambda: _of_tables("beta"),
    "fig10": figure10,
    "rows": rows,
    "paper1": paper1,
    "paper2": paper2,
    "paper6": paper6,
    "stopping": stopping,
}
"""The runs by name."""
