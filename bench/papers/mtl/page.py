"""The page of School's runs, and the rows that `syncret bench mtl --json` prints."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev

from bench.experiment.markdown import markdown_table, spread
from bench.papers.mtl.school import CHOSEN, FEDAVG, LOCAL, MR_MTL, Result

DATA, PAGE = "mtl-school.json", "mtl.md"
# Mean squared errors at epsilon = 6, delta = 1e-3 as the paper's authors publish them.
PUBLISHED = {FEDAVG: 0.02564, LOCAL: 0.02628, MR_MTL: 0.02394}


def number(value: float) -> float | str:
    """Returns a lambda as JSON has it: that of FedAvg is "inf"."""
    return "inf" if math.isinf(value) else value


def rows_of(results: Sequence[Result]) -> list[dict[str, object]]:
    """Returns a row for each method, lambda and epsilon: mean and standard deviation over the splits (0 for one)."""
    rows: list[dict[str, object]] = []
    for (scaling, method, epsilon), part in _groups(results).items():
        for lambda_ in [None] if method == CHOSEN else sorted({r.lambda_ for r in part}):
            errors = [r.mse for r in part if lambda_ in (None, r.lambda_)]
            rows.append(
                {
                    "method": method,
                    "lambda": None if lambda_ is None else number(lambda_),
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


def _groups(results: Sequence[Result]) -> dict[tuple[str, str, float], list[Result]]:
    keys = dict.fromkeys((r.scaling, r.method, r.epsilon) for r in results)
    return {key: [r for r in results if (r.scaling, r.method, r.epsilon) == key] for key in keys}


def read_results(folder: Path) -> list[Result]:
    """Reads the results in a folder; none without the file."""
    path = folder / DATA
    if not path.exists():
        return []
    kept = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return [Result(**{**run, "lambda_": float(run["lambda_"])}) for run in kept]


def write_results(folder: Path, results: Sequence[Result]) -> None:
    """Writes ``results`` with the folder's results of other runs, and the page of all. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {_key(run): run for run in (*read_results(folder), *results)}
    runs = [kept[key] for key in sorted(kept)]
    document = {"runs": [asdict(run) | {"lambda_": number(run.lambda_)} for run in runs]}
    (folder / DATA).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / PAGE).write_text(markdown(runs), encoding="utf-8")


def _key(run: Result) -> tuple[str, str, float, float, int]:
    # The key has no voted lambda: a vote may come out otherwise the next time, in the same run.
    return (
        run.scaling,
        run.method,
        run.epsilon,
        run.lambda_ if run.method != CHOSEN else 0,
        run.split,
    )


def markdown(results: Sequence[Result]) -> str:
    """Returns the page. Figures are means over splits ± their standard deviation."""
    parts = [_HEAD]
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


def _table(results: Sequence[Result], *, paper: bool) -> str:
    epsilons = sorted({r.epsilon for r in results})
    lines: dict[tuple[str, float | None], str] = {}
    for r in sorted(results, key=lambda r: (r.method == CHOSEN, r.lambda_)):
        shown = None if r.method == CHOSEN else r.lambda_
        label = "by votes" if shown is None else "∞" if math.isinf(shown) else f"{shown:g}"
        lines.setdefault((r.method, shown), label)
    rows = []
    for (method, lambda_), label in lines.items():
        cells = [
            spread(
                [
                    r.mse * 1e4
                    for r in results
                    if (r.method, r.epsilon) == (method, epsilon) and lambda_ in (None, r.lambda_)
                ],
                1,
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


_HEAD = """# School: models of one's own

Generated by `syncret bench mtl --output`; every run is in `mtl-school.json`. 139 schools are silos, with 28 features
and a constant, and the score of an exam, from 0 to 1, to be predicted by a linear model; a fifth of the pupils of each
test it. Each silo keeps (ε, 10⁻³) for each of its own pupils by noise of its own; 201 rounds of one epoch, batches of
32 on average, rate 0.01, clipping norm 1. Sums are those of secure aggregation, with the silos in one process. Mean
squared test errors, weighted by test rows, times 10⁴: means over the splits ± standard deviation. What is behind the
words, and what was found: [bench/README.md](../README.md#personalised-models) and
[mechanisms/README.md](../../mechanisms/README.md#personalised-models-mr-mtl)."""

_SILO = """The means and deviations are exact figures of a silo's pupils and used without any charge, so that ε covers
the training alone. Public bounds, above, have no such gap."""
