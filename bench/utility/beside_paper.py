"""The report's sections that hold our runs against the FLAIM paper's Tables 1, 2, 3, 5 and 6, cell by cell.

Provides ``beside_paper``. Public: everything. Each cell has the paper's figure, ours with its deviation between runs,
and a verdict (`bench.utility.paper.verdict`); what cannot be compared says why. Likelihoods are without smoothing
(`nll_raw`), as the paper has them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from bench.gan.outcomes import Outcome
from bench.markdown import markdown_table, spread
from bench.utility import grid
from bench.utility.paper import (
    TABLE1,
    TABLE1_GANS,
    TABLE2,
    TABLE3,
    TABLE5,
    TABLE6,
    TABLE6_EPSILONS,
    verdict,
)
from bench.utility.settings import Settings
from bench.utility.splits import ALL, Row
from bench.utility.store import Entry, Store

_ABSENT = "credit"
_RULE = """
Verdicts: ours agrees with the paper's figure if the two differ by less than 5 % of it, two deviations between our
runs, or what its two digits leave open; the paper prints no deviations. NLL is raw, without a mixture with the uniform
distribution, where it does not say `smoothed`: runs of before did not record it. `ours`: our estimator; `as theirs`:
fitted as in the authors' code (`--estimator paper`), which stops long before it converges; random with one query for
all clients of a round, naivebayes measured once.
"""


def beside_paper(store: Store, splits: Sequence[Row], gans: Sequence[Outcome] = ()) -> str:
    """Tables 1, 2, 3, 5 and 6 of the paper with ours beside them.

    `splits`: see `bench.utility.splits`; `gans`: see `bench.gan`.
    """
    return "\n".join(
        (
            "## Beside the paper\n\n" + _RULE + "\n",
            _table1(store, gans),
            _table2(store),
            _table3(store),
            _table5(splits),
            _table6(store),
        )
    )


def _table1(store: Store, gans: Sequence[Outcome]) -> str:
    rows: list[Sequence[str]] = []
    for (dataset, method), printed in TABLE1.items():
        rows.append(
            (dataset, method, f"{printed:g}", *_likelihoods(store, dataset, method, 5.0, printed))
        )
    for (dataset, method), printed in TABLE1_GANS.items():
        runs = [
            o
            for o in gans
            if (o.dataset, f"{o.method} DP-CTGAN", o.epsilon) == (dataset, method, 5.0)
        ]
        found = [outcome.nll for outcome in runs if outcome.nll is not None]
        cells = _cell(dataset, printed, found, 2)
        rows.append((dataset, method, f"{printed:g}", *cells, "", ""))
    heads = "table | method | paper | ours | verdict | as theirs | verdict"
    return (
        f"### Table 1: NLL at epsilon = 5\n\n{markdown_table(heads, rows)}\n\n"
        "A GAN has no likelihood: as the authors do, DP-CTGAN's is the density of a Gaussian kernel estimate over its\n"
        "rows of codes, which is not on one scale with the others'. Ours has the paper's settings (`bench gan`).\n"
    )


def _table2(store: Store) -> str:
    rows = []
    for (dataset, method), printed in TABLE2.items():
        cells: list[str] = []
        for runs in _runs(store, dataset, method, 1.0):
            cells += _cell(dataset, printed.error, _values(runs, "workload_error"), 3)
        cells += _likelihoods(store, dataset, method, 1.0, printed.nll)
        rows.append(
            (dataset, method, f"{printed.error:g}", *cells[:4], f"{printed.nll:g}", *cells[4:])
        )
    heads = (
        "table | method | paper: error | ours | verdict | as theirs | verdict"
        " | paper: NLL | ours | verdict | as theirs | verdict"
    )
    return f"### Table 2: error and NLL at epsilon = 1, T = 10\n\n{markdown_table(heads, rows)}\n"


def _table3(store: Store) -> str:
    """Each method at its best T of those that were run."""
    rows: list[Sequence[str]] = []
    for dataset, printed in TABLE3.items():
        best = {method: _best(store, dataset, method) for method in grid.TABLE3_METHODS}
        distaim, private = best["distaim"], best["private"]
        if distaim is None or private is None:
            why = "cannot be compared: no table" if dataset == _ABSENT else "not run"
            rows.append((dataset, f"{printed.rounds:g}", why, "", "", "", "", ""))
            continue
        gains = [
            1 - fmean(_values(distaim[1], m)) / fmean(_values(private[1], m))
            for m in ("workload_error", "nll")
        ]
        rows.append(
            (
                dataset,
                f"{printed.rounds:g}",
                f"{distaim[0] / private[0]:.3g} ({distaim[0]}/{private[0]})",
                f"{printed.error:.0%}",
                f"{gains[0]:.0%}",
                f"{printed.nll:.0%}",
                f"{gains[1]:.0%}",
                f"{len(distaim[1])}, {len(private[1])}",
            )
        )
    heads = (
        "table | paper: T, DistAIM over private | ours | paper: error less by | ours"
        " | paper: NLL less by | ours | runs"
    )
    return (
        f"### Table 3: each method at its best T\n\n{markdown_table(heads, rows)}\n\n"
        "Ours is the T of the least mean error among those that were run (the section by T below); NLL is\n"
        "smoothed. Bytes: `overhead.md`.\n"
    )


def _table5(splits: Sequence[Row]) -> str:
    """Heterogeneity over all marginals of one to three columns."""
    ours = {
        (row["dataset"], row["partition"].replace(", beta =", "")): row
        for row in splits
        if row["over"] == ALL
    }
    rows = []
    for (dataset, partition), printed in TABLE5.items():
        row = ours.get((dataset, partition))
        if row is None:
            rows.append((dataset, partition, f"{printed:g}", "-", "", "not measured"))
            continue
        # No figure is better than another here.
        said = {"better": "lower", "worse": "higher"}
        found = verdict(printed, [row["mean"]])
        sizes = f"{row['smallest_client']} to {row['largest_client']}"
        mean = f"{row['mean']:.3f} ± {row['deviation']:.3f}"
        rows.append((dataset, partition, f"{printed:g}", mean, sizes, said.get(found, found)))
    heads = "table | partition | paper | ours | rows of a client | verdict"
    return (
        f"### Table 5: heterogeneity of 100 clients\n\n{markdown_table(heads, rows)}\n\n"
        "Half the L1 distance between a client's normalised marginal and everybody's, averaged over all marginals of\n"
        "one to three columns, then over the clients ± their deviation. (The formula that the paper prints adds\n"
        "up and does not average, which cannot give figures below 1.) Clusters and label shares\n"
        "are drawn, by one seed here.\n"
    )


def _table6(store: Store) -> str:
    rows = []
    for method, printed in TABLE6.items():
        cells = []
        for epsilon, ranks in zip(TABLE6_EPSILONS, printed, strict=True):
            ours = _ranks(store, epsilon).get(method)
            cells.append(
                f"{ranks[0]:g}/{ranks[1]:g} | "
                + ("not run" if ours is None else f"{ours[0]:.3g}/{ours[1]:.3g}")
            )
        rows.append((method, *cells))
    heads = "method" + "".join(f" | epsilon = {e:g}: paper | ours" for e in TABLE6_EPSILONS)
    return (
        f"### Table 6: annealed T, mean rank of the five methods by error / NLL\n\n{_table(heads, rows)}\n\n"
        "Ranked in each table and repeat that all five methods were run on.\n"
    )


def _table(heads: str, rows: Sequence[Sequence[str]]) -> str:
    return markdown_table(heads, [" | ".join(row).split(" | ") for row in rows])


def _runs(store: Store, dataset: str, method: str, epsilon: float) -> tuple[list[Entry], ...]:
    """Those by our own way, and those by the authors'."""
    if dataset == _ABSENT:
        return [], []
    ours = replace(grid.default(dataset, method), epsilon=epsilon)
    return store.all_of(ours), store.all_of(grid.as_theirs(dataset, method, epsilon))


def _likelihoods(
    store: Store, dataset: str, method: str, epsilon: float, printed: float
) -> list[str]:
    cells: list[str] = []
    for runs in _runs(store, dataset, method, epsilon):
        raw = _values(runs, "nll_raw")
        shown, said = _cell(dataset, printed, raw or _values(runs, "nll"), 2)
        cells += (shown if raw or not runs else f"{shown} smoothed", said)
    return cells


def _cell(dataset: str, printed: float, values: Sequence[float], digits: int) -> tuple[str, str]:
    if dataset == _ABSENT:
        return "", "cannot be compared: no table"
    return spread(values, digits), verdict(printed, values)


def _best(store: Store, dataset: str, method: str) -> tuple[int, list[Entry]] | None:
    if dataset == _ABSENT:
        return None
    by_rounds = {
        rounds: runs
        for rounds in sorted({*grid.TABLE3_ROUNDS, *grid.ROUNDS})
        if (runs := store.all_of(Settings(dataset=dataset, method=method, rounds=rounds)))
    }
    if len(by_rounds) < 2:
        return None
    return min(by_rounds.items(), key=lambda item: fmean(_values(item[1], "workload_error")))


def _ranks(store: Store, epsilon: float) -> Mapping[str, tuple[float, float]]:
    """Mean rank of each method by error and by likelihood, over the tables and repeats that all were run on."""
    found: dict[tuple[str, int], dict[str, Entry]] = {}
    for dataset in grid.ANNEALED_TABLES:
        for method in TABLE6:
            for entry in store.all_of(grid.with_annealing(dataset, method, epsilon)):
                found.setdefault((dataset, entry.repeat), {})[method] = entry
    whole = [runs for runs in found.values() if len(runs) == len(TABLE6)]
    if not whole:
        return {}
    ranks = {
        name: [_rank([getattr(runs[m].result, name) for m in TABLE6]) for runs in whole]
        for name in ("workload_error", "nll")
    }
    return {
        method: tuple(fmean(r[i] for r in ranks[name]) for name in ("workload_error", "nll"))  # type: ignore[misc]
        for i, method in enumerate(TABLE6)
    }


def _rank(values: Sequence[float]) -> list[float]:
    """1 for the least; equal values have the mean of their places."""
    return [sum(v < x for v in values) + (1 + sum(v == x for v in values)) / 2 for x in values]


def _values(entries: Sequence[Entry], name: str) -> list[float]:
    figures = (getattr(entry.result, name) for entry in entries)
    return [float(value) for value in figures if value is not None]
