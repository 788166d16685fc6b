"""The page of School's runs, and the rows that `syncret bench mtl --json` prints."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from bench.experiment.documents import Document, Row
from bench.experiment.markdown import markdown_table, spread
from bench.experiment.means import grouped
from bench.papers.mtl.school import (
    CHOSEN,
    DITTO,
    FEDAVG,
    FINETUNING,
    IFCA,
    IFCA_NEAR,
    LOCAL,
    MR_MTL,
    Result,
)

# Splits of a figure that the page says no number of.
SPLITS = 3
DATA, PAGE = "mtl-school.json", "mtl.md"
# Mean squared errors at epsilon = 6, delta = 1e-3 as the paper's authors publish them.
PUBLISHED = {FEDAVG: 0.02564, LOCAL: 0.02628, MR_MTL: 0.02394}
_ORDER = (LOCAL, MR_MTL, FEDAVG, FINETUNING, DITTO, IFCA, IFCA_NEAR, CHOSEN)
_WITHOUT_LAMBDA = (FINETUNING, IFCA, IFCA_NEAR)


def number(value: float) -> float | str:
    """Returns a lambda as JSON has it: that of FedAvg is "inf"."""
    return "inf" if math.isinf(value) else value


def rows_of(results: Sequence[Result]) -> list[dict[str, object]]:
    """Returns a row for each method, lambda and epsilon: mean and standard deviation over the splits (0 for one)."""
    rows: list[dict[str, object]] = []
    groups = grouped(results, lambda r: (r.scaling, r.method, r.epsilon))
    for (scaling, method, epsilon), part in groups.items():
        without = method in _WITHOUT_LAMBDA
        for lambda_ in [None] if method == CHOSEN else sorted({r.lambda_ for r in part}):
            errors = [r.mse for r in part if lambda_ in (None, r.lambda_)]
            rows.append(
                {
                    "method": method,
                    "lambda": None if lambda_ is None or without else number(lambda_),
                    "epsilon": epsilon,
                    "mse": fmean(errors),
                    "std": stdev(errors) if len(errors) > 1 else 0.0,
                    "splits": len(errors),
                    "scaling": scaling,
                }
            )
            if lambda_ is None:
                rows[-1]["chosen"] = [number(r.lambda_) for r in part]
    return rows


def _key(run: Result) -> tuple[str, str, float, float, int]:
    # The key has no voted lambda: a vote may come out otherwise the next time, in the same run.
    return (
        run.scaling,
        run.method,
        run.epsilon,
        run.lambda_ if run.method != CHOSEN else 0,
        run.split,
    )


def _of_row(row: Any) -> Result:
    return Result(**{**row, "lambda_": float(row["lambda_"])})


def _to_row(run: Result) -> Row:
    return asdict(run) | {"lambda_": number(run.lambda_)}


def markdown(results: Sequence[Result]) -> str:
    """Returns the page. Figures are means over splits ± their standard deviation."""
    parts = [_HEAD, _short(results)]
    for scaling, title in (
        ("public", "Features scaled by public bounds"),
        ("silo", "Features standardised in each silo, as the paper's code does"),
    ):
        part = [r for r in results if r.scaling == scaling]
        if part:
            parts += [f"## {title}", _table(part, paper=scaling == "silo")]
            if scaling == "silo":
                parts.append(_SILO)
    return "\n\n".join(parts) + "\n"


def _short(results: Sequence[Result]) -> str:
    """Returns the method with the least error at each epsilon, by scaling, beside local training and FedAvg."""
    points = []
    for scaling, epsilon in sorted({(r.scaling, r.epsilon) for r in results}):
        errors = {
            key: [r.mse * 1e4 for r in part]
            for key, part in grouped(
                [r for r in results if (r.scaling, r.epsilon) == (scaling, epsilon)],
                lambda r: (r.method, 0.0 if r.method == CHOSEN else r.lambda_),
            ).items()
        }
        (method, lambda_), least = min(errors.items(), key=lambda item: fmean(item[1]))
        named = f"{method}, λ = {lambda_:g}" if method in (MR_MTL, DITTO) else method
        beside = [
            f"{other} {fmean(values):.1f}"
            for (other, _), values in errors.items()
            if other in (LOCAL, FEDAVG) and other != method
        ]
        also = f"; {', '.join(beside)}" if beside else ""
        scaled = "public bounds" if scaling == "public" else "each silo's own scale"
        points.append(f"- ε = {epsilon:g}, {scaled}: {named} has the least, {_cell(least)}{also}.")
    return "\n".join(["## In short", "", *points])


def _table(results: Sequence[Result], *, paper: bool) -> str:
    epsilons = sorted({r.epsilon for r in results})
    lines: dict[tuple[str, float | None], str] = {}
    for r in sorted(results, key=lambda r: (_ORDER.index(r.method), r.lambda_)):
        shown = None if r.method == CHOSEN else r.lambda_
        label = "by votes" if shown is None else "∞" if math.isinf(shown) else f"{shown:g}"
        lines.setdefault((r.method, shown), "" if r.method in _WITHOUT_LAMBDA else label)
    rows = []
    for (method, lambda_), label in lines.items():
        cells = [
            _cell(
                [
                    r.mse * 1e4
                    for r in results
                    if (r.method, r.epsilon) == (method, epsilon) and lambda_ in (None, r.lambda_)
                ]
            )
            for epsilon in epsilons
        ]
        published = PUBLISHED.get(method) if paper and lambda_ in (0, 1, math.inf) else None
        rows.append(
            [
                method,
                label,
                *cells,
                *([f"{published * 1e4:.1f}" if published else ""] if paper else []),
            ]
        )
    heads = " | ".join(["method", "λ", *(f"ε = {e:g}" for e in epsilons)])
    heads += " | published, ε = 6" if paper else ""
    return markdown_table(heads, rows, right=range(1, len(epsilons) + 3))


def _cell(errors: Sequence[float]) -> str:
    """Returns mean and deviation, with the number of splits where it is not ``SPLITS``."""
    other = f" ({len(errors)})" if errors and len(errors) != SPLITS else ""
    return spread(errors, 1) + other


_HEAD = """# School: models of one's own

Generated by `syncret bench mtl --output`; every run is in `mtl-school.json`. 139 schools are silos, with 28 features
and a constant, and the score of an exam, from 0 to 1, to be predicted by a linear model; a fifth of the pupils of each
test it. Each silo keeps (ε, 10⁻³) for each of its own pupils by noise of its own; 201 rounds of one epoch, batches of
32 on average, rate 0.01, clipping norm 1. Sums are those of secure aggregation, with the silos in one process. Mean
squared test errors, weighted by test rows, times 10⁴: means over three splits ± standard deviation, over another number
where it stands in brackets. What is behind the words, and what was found:
[bench/notes/models.md](../notes/models.md) and
[mechanisms/README.md](../../mechanisms/README.md#personalised-models-mr-mtl).

All methods spend the same budget. Finetuning has 100 rounds of FedAvg, then 101 in which each silo trains on alone.
Ditto trains a global model by FedAvg and a personal one drawn to it by λ, so that it pays for twice as many steps. IFCA
has three clusters from random starts of norm 1, or of 0.1 for "near zero"; in the first 20 rounds each silo chooses one
by its losses, cut at 0.1, with an exponential mechanism of 0.03 ε a choice, which it pays beside its steps. Settings
are those of the authors' code where [record 324](../../docs/decisions/0324-neighbours-of-mr-mtl.md) names no other; no
printed figure of School is known for these three."""

_SILO = """The means and deviations are exact figures of a silo's pupils and used without any charge, so that ε covers
the training alone. Public bounds, above, have no such gap."""

RUNS = Document(
    DATA,
    "syncret bench mtl",
    parse=_of_row,
    to_row=_to_row,
    key=_key,
    order=_key,
    page=(PAGE, markdown),
    field="runs",
)
"""The runs of School and their page."""
