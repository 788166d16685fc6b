"""The report's sections that compare our runs with the FLAIM paper's Tables 1 to 7, cell by cell.

Each cell has the paper's figure, ours with its deviation between runs and their number, and a verdict
(`bench.experiment.verdicts`); a cell without comparison has a reason. Likelihoods are without smoothing
(`nll_raw`), as in the paper, where runs recorded that.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, stdev
from typing import NamedTuple

from bench.experiment.documents import Row
from bench.experiment.markdown import filled, markdown_table, spread
from bench.experiment.means import known, values_of
from bench.experiment.verdicts import (
    Compared,
    Kind,
    Verdict,
    compared,
    counted,
    judged,
    smoothed,
)
from bench.methods.settings import Settings
from bench.overhead.client import PAPER_ROUNDS
from bench.overhead.client_tables import (
    PAPER_DISTAIM_MB,
    PAPER_RATIOS,
    is_papers_population,
    results_of,
    table_name,
)
from bench.overhead.jobs import CLIENT, Record, Records
from bench.papers.gan.outcomes import CENTRAL, FEDERATED, REFERENCES, Outcome
from bench.papers.utility import grid
from bench.papers.utility.paper import (
    TABLE1,
    TABLE1_GANS,
    TABLE2,
    TABLE3,
    TABLE4,
    TABLE5,
    TABLE6,
    TABLE6_EPSILONS,
)
from bench.papers.utility.sizes import TableSize
from bench.papers.utility.smoothing import Gaps
from bench.papers.utility.splits import ALL
from bench.papers.utility.store import Entry, Store

OURS, THEIRS = "ours", "as theirs"
_KERNELS = """
A GAN has no likelihood: as the authors do, DP-CTGAN's is the density of a Gaussian kernel estimate over its rows of
codes, which is not on one scale with the others'. The kernel has the covariance of the synthetic rows: a column that
hardly varies among them has a kernel hardly as wide. A held-out row with the common code there gains by that (a
density may be above 1, and its negative logarithm below 0); one with another code is tens of deviations away and pays
half their square. A column that does not vary at all is left out and costs nothing. So a GAN some of whose columns are
less than half as wide as the real ones (below) cannot be compared by it.
""".strip()
_LEGEND = """
A cell has our mean, its deviation between runs and, in brackets, their number; after the verdict is by how much ours is
above (+) or below the paper's. `ours`: our estimator and our methods. `as theirs`: as in the authors' public code, that
has another fit (`--estimator authors`: 50 iterations a round and 500 at the end, their line search, and the likelihood
of DistAIM and AIM before the last fit); random has one query for all clients of a round, and naivebayes measures once.
FLAIM draws clients anew for each first one-way marginal, DistAIM once for all of them: the authors' configurations
leave `init_method` empty. Fit, noise and a client's scores are pinned by numbers that their code printed. Two settings
of private are not theirs: its reference for tau is a mean by weight of all one-way sums, theirs a plain one without the
first; and later sums are taken in rounds 2 to T, theirs in rounds 1 to T - 1
([record 323](../../docs/decisions/0323-the-authors-line-search.md)). Counts have 64 bits, theirs 16. Both columns of
random have models of 8 MB at most. NLL is raw, without a mixture with the uniform distribution, as the paper's, where
it does not say `smoothed`: older records did not keep it.
"""
_RANKS_NEAR = 0.25
"""Largest distance of two mean ranks of five methods that agree."""
_RANKS_SCATTER = 0.5
"""Smallest deviation of a rank, that of one that is either of two."""
_GAINS_NEAR = 0.05
_ROUNDS_NEAR = 2.0
_RATIOS_NEAR = 0.1
_ANNEALED_RUNS = "Ranked in each table and repeat that all five methods were run on"


class Beside(NamedTuple):
    """The sections' text, and every cell that they compare."""

    text: str
    cells: list[Compared]


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of the sections, beside the runs."""

    splits: Sequence[Row] = ()
    gans: Sequence[Outcome] = ()
    sizes: Sequence[TableSize] = ()
    overhead: Records | None = None


def beside_paper(store: Store, sources: Sources) -> Beside:
    """Returns Tables 1 to 7 of the paper with ours beside them."""
    gaps = Gaps.of(store)
    clients = sources.overhead.of(CLIENT) if sources.overhead else []
    parts = [
        _table1(store, sources.gans, gaps),
        _table2(store, gaps),
        _table3(store, clients),
        _table4(sources.sizes),
        _table5(sources.splits),
        _table6(store),
        _table7(clients),
    ]
    text = "\n".join(("## Beside the paper\n" + _LEGEND, *(part.text for part in parts)))
    return Beside(text, [cell for part in parts for cell in part.cells])


def _table1(store: Store, gans: Sequence[Outcome], gaps: Gaps) -> Beside:
    rows: list[Sequence[str]] = []
    cells: list[Compared] = []
    for (dataset, method), printed in TABLE1.items():
        shown, found = _likelihoods(store, "1", dataset, method, 5.0, printed, gaps)
        rows.append((dataset, method, f"{printed:g}", *shown))
        cells += found
    for (dataset, method), printed in TABLE1_GANS.items():
        runs = [o for o in gans if _is(o, dataset, method) and o.nll is not None]
        densities = known(runs, "nll")
        verdict = judged(printed, densities)
        if not densities:
            verdict = _not_run(dataset)
        elif any(run.narrow != 0 for run in runs):
            verdict = Verdict(Kind.NARROW)
        rows.append((dataset, method, f"{printed:g}", _mean(densities, 2), verdict.text(), "", ""))
        cells.append(Compared("1", dataset, method, "NLL", OURS, verdict))
    heads = "table | method | paper | ours | verdict | as theirs | verdict"
    return Beside(
        f"### Table 1: NLL at epsilon = 5\n\n{markdown_table(heads, rows)}\n\n"
        f"{_KERNELS}"
        f"{_densities(gans)}",
        cells,
    )


def _densities(gans: Sequence[Outcome]) -> str:
    """Returns the kernel densities of known rows, and of the GANs' rows with and without their narrow columns."""
    names = {**REFERENCES, **{name: f"{name} DP-CTGAN" for name in (CENTRAL, FEDERATED)}}
    rows = []
    for dataset, (method, said) in product(dict.fromkeys(o.dataset for o in gans), names.items()):
        runs = [o for o in gans if (o.dataset, o.method, o.epsilon) == (dataset, method, 5.0)]
        if runs:
            measures = (
                ("workload_error", 3),
                ("nll", 2),
                ("narrow", 1),
                ("nll_wide", 2),
                ("real_wide", 2),
            )
            rows.append(
                (dataset, said, *(_mean(known(runs, name), digits) for name, digits in measures))
            )
    if not rows:
        return ""
    heads = (
        "table | rows | error | kernel density: NLL | columns less than half as wide as real ones | NLL without them"
        " | the training rows' without them"
    )
    return f"\n{markdown_table(heads, rows)}\n"


def _is(outcome: Outcome, dataset: str, method: str) -> bool:
    name = f"{outcome.method} DP-CTGAN"
    return (outcome.dataset, name, outcome.epsilon) == (dataset, method, 5.0)


def _table2(store: Store, gaps: Gaps) -> Beside:
    rows, cells = [], []
    for (dataset, method), printed in TABLE2.items():
        shown: list[str] = []
        for column, runs in _runs(store, dataset, method, 1.0):
            errors = values_of(runs, "workload_error")
            verdict = judged(printed.error, errors) if errors else _not_run(dataset)
            shown += (_mean(errors, 3), verdict.text())
            cells.append(Compared("2", dataset, method, "error", column, verdict))
        likelihoods, found = _likelihoods(store, "2", dataset, method, 1.0, printed.nll, gaps)
        cells += found
        names = dataset, method
        rows.append((*names, f"{printed.error:g}", *shown, f"{printed.nll:g}", *likelihoods))
    heads = (
        "table | method | paper: error | ours | verdict | as theirs | verdict"
        " | paper: NLL | ours | verdict | as theirs | verdict"
    )
    return Beside(
        f"### Table 2: error and NLL at epsilon = 1, T = 10\n\n{markdown_table(heads, rows)}\n",
        cells,
    )


def _table3(store: Store, clients: Sequence[Record]) -> Beside:
    """Returns each method at its best T of those that were run."""
    rows: list[Sequence[str]] = []
    cells: list[Compared] = []
    for dataset, printed in TABLE3.items():
        best = {method: _best(store, dataset, method) for method in grid.TABLE3_METHODS}
        distaim, private = best["distaim"], best["private"]
        if distaim is None or private is None:
            verdict = _not_run(dataset)
            cells += (Compared("3", dataset, "", m, OURS, verdict) for m in _BESTS)
            papers = f"{printed.rounds:g}", f"{printed.throughput:,g}"
            shares = f"{printed.error:.0%}", f"{printed.nll:.0%}"
            shown = [text for one in (*papers, *shares) for text in (one, "", "")]
            rows.append((dataset, *shown[:2], verdict.text(), *shown[3:], ""))
            continue
        ratio = distaim.rounds / private.rounds
        of_rounds = counted(printed.rounds, ratio, slack=_rounds_slack(printed.rounds, ratio))
        tried = f"{ratio:.3g} ({distaim.rounds}/{private.rounds})"
        shown = [f"{printed.rounds:g}", tried, of_rounds.word("lower", "higher")]
        moved = _throughput(clients, dataset, private.rounds)
        of_bytes = Verdict(Kind.MISSING)
        if moved is not None:
            slack = _RATIOS_NEAR * printed.throughput
            of_bytes = counted(printed.throughput, moved[1], slack=slack)
        formula_wire = (
            "not measured at this T" if moved is None else "{:,.0f}, {:,.0f}".format(*moved)
        )
        shown += (f"{printed.throughput:,g}", formula_wire, of_bytes.word("less", "more"))
        raw = all(run.result.nll_raw is not None for run in (*distaim.runs, *private.runs))
        names = "workload_error", "nll_raw" if raw else "nll"
        verdicts = [of_rounds, of_bytes]
        for name, of in zip(names, (printed.error, printed.nll), strict=True):
            gain, deviation = _gain(values_of(distaim.runs, name), values_of(private.runs, name))
            runs = min(len(distaim.runs), len(private.runs))
            verdict = compared(of, gain, deviation, runs, slack=_GAINS_NEAR)
            if name == "nll":
                verdict = Verdict(Kind.SMOOTHED)
            verdicts.append(verdict)
            around = "" if deviation is None else f" ± {deviation:.0%}"
            mark = " smoothed" if name == "nll" else ""
            shown += (f"{of:.0%}", f"{gain:.0%}{around}{mark}", verdict.word("less", "more"))
        cells += (
            Compared("3", dataset, "", measure, OURS, verdict)
            for measure, verdict in zip(_BESTS, verdicts, strict=True)
        )
        rows.append((dataset, *shown, f"{len(distaim.runs)}, {len(private.runs)}"))
    heads = (
        "table | paper: T, DistAIM over private | ours | verdict | paper: MB, DistAIM over private | ours: by the"
        " formula, on the wire | verdict | paper: error less by | ours | verdict | paper: NLL less by | ours | verdict"
        " | runs"
    )
    said = f"""
    Ours is the T of the least mean error among those of {", ".join(map(str, grid.ALL_ROUNDS))} that were run (*By the
    number of rounds T* below); the paper's T is any of 1 to 200, so that ratios of T agree within a factor of
    {_ROUNDS_NEAR:g}, about what is between two of ours. Shares agree
    within 5 points. Gains in NLL are of raw likelihoods, as the paper's, where all runs of both at these T have them;
    smoothed ones cannot be compared. Bytes are those of `overhead.md`, a plain upload over FLAIM's at private's T,
    and agree within 10 % on the wire; the paper's 1,300 for Adult takes 80 MB for what its appendix and its formula
    have as 140.
    """
    return Beside(
        f"### Table 3: each method at its best T\n\n{markdown_table(heads, rows)}\n\n"
        f"{filled(said)}\n",
        cells,
    )


_BESTS = "T", "throughput", "error gain", "NLL gain"


def _rounds_slack(printed: float, ratio: float) -> float:
    """Returns the largest distance of two ratios of T that agree: a factor either way."""
    return printed * (_ROUNDS_NEAR - 1 if ratio > printed else 1 - 1 / _ROUNDS_NEAR)


def _gain(left: Sequence[float], right: Sequence[float]) -> tuple[float, float | None]:
    """Returns the share by which the mean of `left` is below that of `right`, and its deviation for single runs."""
    ratio = fmean(left) / fmean(right)
    if min(len(left), len(right)) < 2:
        return 1 - ratio, None
    return 1 - ratio, ratio * math.hypot(stdev(left) / fmean(left), stdev(right) / fmean(right))


def _throughput(clients: Sequence[Record], dataset: str, rounds: int) -> tuple[float, float] | None:
    """Ratio of DistAIM's plain upload to FLAIM's bytes at T, by the formula and on the wire (overhead.json)."""
    of_table = (record for record in clients if record.document["dataset"] == dataset)
    return next((both for record in of_table if (both := _ratios_of(record, rounds))), None)


def _table4(sizes: Sequence[TableSize]) -> Beside:
    rows, cells = [], []
    ours = {size.dataset: size for size in sizes}
    for dataset, printed in TABLE4.items():
        shown = f"{printed.samples:,}", f"{printed.features}", f"{printed.classes or 'none'}"
        size = ours.get(dataset)
        if size is None:
            verdict = _not_run(dataset)
            rows.append((dataset, *shown, "", "", "", "", verdict.text()))
        else:
            # The paper counts all rows of some tables, and those of the split of others.
            left = abs(size.train - printed.samples) < abs(size.rows - printed.samples)
            nearest = size.train if left else size.rows
            verdict = counted(printed.samples, nearest)
            own = (
                f"{size.rows:,}",
                f"{size.train:,}",
                f"{size.columns}",
                f"{size.classes or 'none'}",
            )
            other = "" if size.classes == printed.classes else "; other classes"
            rows.append((dataset, *shown, *own, verdict.text("fewer", "more") + other))
        cells.append(Compared("4", dataset, "", "samples", OURS, verdict))
    heads = (
        "table | paper: training samples | features | classes | ours: rows | of them to work from | columns"
        " | classes | verdict"
    )
    return Beside(
        f"### Table 4: the tables\n\n{markdown_table(heads, rows)}\n\n"
        "The verdict is on samples: of Adult and Magic the paper counts the nine tenths to work from (Adult's 43,598\n"
        "has two digits of 43,958 exchanged), of others all rows. On some tables its features include the target. The\n"
        "Covtype at hand has fewer rows than a fifth of the published one.\n",
        cells,
    )


def _table5(splits: Sequence[Row]) -> Beside:
    """Returns heterogeneity over all marginals of one to three columns."""
    ours = {
        (row["dataset"], row["partition"].replace(", beta =", "")): row
        for row in splits
        if row["over"] == ALL
    }
    rows, cells = [], []
    for (dataset, partition), printed in TABLE5.items():
        row = ours.get((dataset, partition))
        if row is None:
            verdict = Verdict(Kind.MISSING)
            rows.append((dataset, partition, f"{printed:g}", "-", "", "", "not measured"))
        else:
            means = row.get("draws", [row["mean"]])
            verdict = judged(printed, means)
            sizes = f"{row['smallest_client']} to {row['largest_client']}"
            mean = f"{row['mean']:.3f} ± {row['deviation']:.3f}"
            drawn = _mean(means, 3) if len(means) > 1 else ""
            said = verdict.text("lower", "higher")
            rows.append((dataset, partition, f"{printed:g}", mean, drawn, sizes, said))
        cells.append(Compared("5", dataset, partition, "heterogeneity", OURS, verdict))
    heads = "table | partition | paper | ours: mean over clients | between draws | rows of a client | verdict"
    return Beside(
        f"### Table 5: heterogeneity of 100 clients\n\n{markdown_table(heads, rows)}\n\n"
        "Half the L1 distance between a client's normalised marginal and everybody's, averaged over all marginals of\n"
        "one to three columns, then over the clients ± their deviation. (The formula that the paper prints adds\n"
        "up and does not average, which cannot give figures below 1.) Label shares are drawn: `between draws` has the\n"
        "mean over several seeds of the partition, the first of which all runs of this page are with.\n",
        cells,
    )


def _table6(store: Store) -> Beside:
    rows, cells = [], []
    ranks = {epsilon: _ranks(store, epsilon) for epsilon in TABLE6_EPSILONS}
    for method, printed in TABLE6.items():
        row = []
        for epsilon, papers in zip(TABLE6_EPSILONS, printed, strict=True):
            ours = ranks[epsilon].get(method)
            row.append(f"{papers[0]:g}/{papers[1]:g}")
            verdicts = []
            for i, measure in enumerate(("error", "NLL")):
                values = [] if ours is None else ours[i]
                verdict = _of_ranks(papers[i], values)
                verdicts.append(verdict)
                name = f"{method}, epsilon = {epsilon:g}"
                cells.append(Compared("6", "all", name, f"rank by {measure}", OURS, verdict))
            if ours is None:
                row += ("not run", "")
                continue
            row.append("/".join(f"{fmean(values):.3g}" for values in ours))
            said = [verdict.text("lower", "higher") for verdict in verdicts]
            row.append(said[0] if said[0] == said[1] else " / ".join(said))
        rows.append((method, *row))
    heads = "method" + "".join(
        f" | epsilon = {e:g}: paper | ours | verdict" for e in TABLE6_EPSILONS
    )
    counts = "; ".join(
        f"epsilon = {epsilon:g}: {len(next(iter(found.values()))[0])}"
        for epsilon, found in ranks.items()
        if found
    )
    return Beside(
        "### Table 6: annealed T, mean rank of the five methods by error / NLL\n\n"
        f"{markdown_table(heads, rows)}\n\n"
        f"{_ANNEALED_RUNS}{f' ({counts})' if counts else ''};\n"
        "the paper's are of four tables and ten repeats. Mean ranks agree within 0.25, and are taken to be of ranks\n"
        "that scatter by half a place at least.\n",
        cells,
    )


def _of_ranks(printed: float, ranks: Sequence[float]) -> Verdict:
    """Returns the verdict on a mean rank; a minimum deviation covers ranks that are equal by chance."""
    if len(ranks) < 2:
        return judged(printed, ranks, slack=_RANKS_NEAR)
    deviation = max(stdev(ranks), _RANKS_SCATTER)
    return compared(printed, fmean(ranks), deviation, len(ranks), slack=_RANKS_NEAR)


def _table7(clients: Sequence[Record]) -> Beside:
    rows: list[Sequence[str]] = []
    cells: list[Compared] = []
    documents = {str(record.document["dataset"]): record.document for record in clients}
    for dataset, printed in PAPER_RATIOS.items():
        for rounds, ratio in zip(PAPER_ROUNDS, printed, strict=True):
            flaim = PAPER_DISTAIM_MB[dataset] / ratio
            shown = f"{rounds}", f"{ratio:,}", f"{flaim:.3f}"
            ratios = _throughput(clients, dataset, rounds)
            if ratios is None:
                verdict = Verdict(Kind.MISSING)
                rows.append((dataset, *shown, "", "", verdict.text()))
            else:
                verdict = counted(ratio, ratios[1], slack=_RATIOS_NEAR * ratio)
                shares = (f"{value:,.0f}" for value in ratios)
                said = verdict.text("less", "more")
                rows.append((table_name(documents[dataset]), *shown, *shares, said))
            cells.append(Compared("7", dataset, f"T = {rounds}", "throughput", OURS, verdict))
    heads = "table | T | paper: MB, DistAIM over private | its FLAIM, MB | ours by the formula | on the wire | verdict"
    return Beside(
        "### Table 7: what DistAIM's client moves over what FLAIM's does\n\n"
        f"{markdown_table(heads, rows)}\n\n"
        "The verdict is on bytes counted on the wire, a plain upload over FLAIM's (`overhead.md` has the rest, and\n"
        "what a seeded upload or rows take), and agrees within 10 %; sizes need no rows, which are random where it\n"
        "says generated. The paper's range of 15 to 3,990 is of this table, 10 to 1,643 is of Table 3.\n",
        cells,
    )


def _ratios_of(record: Record, rounds: int) -> tuple[float, float] | None:
    """Returns ratios by the formula and on the wire; None if this record has not measured both."""
    document = record.document
    if not is_papers_population(document):
        return None
    plain = results_of(document, "distaim", "plain", rounds)
    union = results_of(document, "flaim", "union", rounds)
    if not (plain and union and plain[0]["wire_mb"] and union[0]["wire_mb"]):
        return None
    ratios = [float(plain[0][name]) / float(union[0][name]) for name in ("formula_mb", "wire_mb")]
    return ratios[0], ratios[1]


def _runs(
    store: Store, dataset: str, method: str, epsilon: float
) -> tuple[tuple[str, list[Entry]], ...]:
    """Returns the runs by our own way, and those by the authors'."""
    ours = replace(grid.default(dataset, method), epsilon=epsilon)
    theirs = grid.as_theirs(dataset, method, epsilon)
    return (OURS, store.all_of(ours)), (THEIRS, store.all_of(theirs))


def _likelihoods(
    store: Store,
    where: str,
    dataset: str,
    method: str,
    epsilon: float,
    printed: float,
    gaps: Gaps,
) -> tuple[list[str], list[Compared]]:
    """Returns the cells of both columns, and the comparisons; runs without a raw likelihood are left out."""
    shown: list[str] = []
    cells = []
    for column, runs in _runs(store, dataset, method, epsilon):
        raw, all_runs = values_of(runs, "nll_raw"), values_of(runs, "nll")
        if not runs:
            verdict = _not_run(dataset)
        elif raw:
            verdict = judged(printed, raw)
        else:
            verdict = smoothed(printed, all_runs, gaps.of_method(dataset, method))
        mark = "" if raw or not runs else " smoothed"
        shown += (f"{_mean(raw or all_runs, 2)}{mark}", verdict.text())
        cells.append(Compared(where, dataset, method, "NLL", column, verdict))
    return shown, cells


def _mean(values: Sequence[float], digits: int) -> str:
    return f"{spread(values, digits)} ({len(values)})" if values else ""


def _not_run(dataset: str) -> Verdict:
    """Returns the verdict on a figure without runs."""
    return Verdict(Kind.NO_TABLE if dataset == grid.CREDIT else Kind.MISSING)


class _Best(NamedTuple):
    rounds: int
    runs: list[Entry]


def _best(store: Store, dataset: str, method: str) -> _Best | None:
    by_rounds = {
        rounds: runs
        for rounds in sorted({*grid.TABLE3_ROUNDS, *grid.ROUNDS})
        if (runs := store.all_of(Settings(dataset=dataset, method=method, rounds=rounds)))
    }
    if len(by_rounds) < 2:
        return None
    best = min(by_rounds.items(), key=lambda item: fmean(values_of(item[1], "workload_error")))
    return _Best(*best)


def _ranks(store: Store, epsilon: float) -> Mapping[str, tuple[list[float], list[float]]]:
    """Returns each method's ranks by error and by likelihood, in each table and repeat that all were run on.

    Likelihoods are raw where all five runs have raw ones.
    """
    found: dict[tuple[str, int], dict[str, Entry]] = {}
    for dataset in grid.ANNEALED_TABLES:
        for method in TABLE6:
            for entry in store.all_of(grid.with_annealing(dataset, method, epsilon)):
                found.setdefault((dataset, entry.repeat), {})[method] = entry
    whole = [runs for runs in found.values() if len(runs) == len(TABLE6)]
    if not whole:
        return {}
    by_error, by_nll = [], []
    for runs in whole:
        results = [runs[method].result for method in TABLE6]
        by_error.append(_rank([result.workload_error for result in results]))
        raw = known(results, "nll_raw")
        by_nll.append(_rank(raw if len(raw) == len(results) else [r.nll for r in results]))
    return {
        method: ([ranks[i] for ranks in by_error], [ranks[i] for ranks in by_nll])
        for i, method in enumerate(TABLE6)
    }


def _rank(values: Sequence[float]) -> list[float]:
    """Returns ranks from 1 for the least; equal values have the mean of their ranks."""
    return [sum(v < x for v in values) + (1 + sum(v == x for v in values)) / 2 for x in values]
