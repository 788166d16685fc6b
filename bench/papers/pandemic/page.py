"""The page of the pandemic task, and the rows that `syncret bench mtl --task pandemic --json` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from bench.experiment.documents import Document
from bench.experiment.markdown import filled, markdown_table
from bench.experiment.means import grouped, known
from bench.papers.pandemic.task import FITTED, RANDOM, Result, Trial

DATA, PAGE = "pandemic.json", "pandemic.md"

_HEADS = (
    "persons, silos | K | method | model | loss | lambda | epsilon a person | by the published bound | noise"
    " | AUPRC % | times chance | recall % | of the 1 % called % | MB | s"
)
_INTRODUCTION = """# The pandemic task

A made-up state (`bench/papers/pandemic/`): who, well for three weeks, is infected in the next one? Each silo has a
region, its persons and the contacts within it, and trains a model on them: logistic regression from zero, or a
perceptron with two hidden layers of 32 units; clipping at 15, batches of 512. K is the number of neighbours in an
example. AUPRC is average precision; that of random scores is the share of those infected, and "times chance" is the
ratio. Recall is at probability 1/2, and of the 1 % with the highest scores. Epsilon is each silo's for a person's
data (delta = 1 / persons of the silo; infinite: no noise), by the account that counts the secrecy of batches; beside
it what the published bound, its gaps closed, says of the same noise. MB: peak of neighbourhoods and training. Fitted:
one ridge logistic regression, all silos' examples in one place and nothing protected. Figures are of the epidemic of
[record 325](../../docs/decisions/0325-an-epidemic-that-a-linear-model-sees.md), made so that a linear model finds
something; means over states ± standard deviation where there are several. States of a million persons were not run
with it; longer trainings, and more silos than three, have one state and only the trials shown. The published figures,
of another state with 2.6 million persons in a silo: random 0.266 %; own features alone, perceptron 0.329 %, logistic
regression 2.049 %; with neighbours 3.0 to 3.3 %. What it shows is in
[bench/notes/models.md](../notes/models.md#the-pandemic-task).

"""


def rows_of(results: Sequence[Result]) -> list[dict[str, object]]:
    """Returns a row for each trial and size, for JSON: means over states, deviation of AUPRC (0 for one state)."""
    rows: list[dict[str, object]] = []
    groups = grouped(results, lambda result: (result.persons, result.silos, result.trial))
    for (persons, silos, trial), part in groups.items():
        values = known(part, "auprc")
        rows.append(
            {
                "method": trial.method,
                "lambda": number(trial.lam),
                "epsilon": number(trial.epsilon),
                "neighbours": trial.neighbours,
                "loss": trial.loss,
                "hidden": trial.hidden,
                "rate": trial.rate,
                "rounds": trial.rounds,
                "persons": persons,
                "silos": silos,
                "states": len(part),
                "infected": fmean(known(part, "infected")),
                "auprc": fmean(values),
                "std": stdev(values) if len(values) > 1 else 0.0,
                "recall": fmean(known(part, "recall")),
                "recall_called": fmean(known(part, "recall_called")),
                "noise": fmean(known(part, "noise")),
                "epsilon_published": number(max(result.published for result in part)),
                "memory_mb": fmean(known(part, "memory_mb")),
                "seconds": fmean(known(part, "seconds")),
            }
        )
    return rows


def number(value: float) -> float | str:
    """Returns a number as JSON has it: one without bound is "inf"."""
    return "inf" if math.isinf(value) else value


def markdown(results: Sequence[Result]) -> str:
    """Returns the page."""
    rows = rows_of(results)
    return _INTRODUCTION + _short(rows) + _tables(rows)


def _short(rows: Sequence[dict[str, object]]) -> str:
    """Returns how often better than chance the best of each kind of trial is."""
    kinds = {
        "fitted to everything in one place, without protection": [
            row for row in rows if row["method"] == FITTED
        ],
        "trained by silos without noise": [
            row for row in rows if row["method"] not in (FITTED, RANDOM) and row["epsilon"] == "inf"
        ],
        "trained by silos with noise": [
            row for row in rows if row["method"] not in (FITTED, RANDOM) and row["epsilon"] != "inf"
        ],
    }
    points = []
    for said, some in kinds.items():
        if found := [(_over_chance(row), row) for row in some if row["infected"]]:
            times, best = max(found, key=lambda pair: pair[0])
            budget = "" if best["epsilon"] == "inf" else f", ε = {best['epsilon']:g}"
            how = f"K = {best['neighbours']}, {best['persons']:,} persons, {best['silos']} silos"
            rounds = "" if best["method"] == FITTED else f", {best['rounds']} rounds"
            points.append(
                f"- The best model {said}: {times:.1f} times chance ({how}{rounds}{budget})."
            )
    return "\n".join(["## In short", "", *(filled(point, "  ") for point in points), "", ""])


def _over_chance(row: dict[str, object]) -> float:
    return float(str(row["auprc"])) / float(str(row["infected"]))


def _of_row(row: Any) -> Result:
    trial = {**row["trial"]}
    trial |= {"lam": float(trial["lam"]), "epsilon": float(trial["epsilon"])}
    rest = {name: value for name, value in row.items() if name != "trial"}
    return Result(trial=Trial(**trial), **{**rest, "published": float(row["published"])})


def _key(result: Result) -> tuple[object, ...]:
    return result.persons, result.silos, result.seed, result.trial


def _order(result: Result) -> tuple[object, ...]:
    trial = result.trial
    order = (trial.rate, trial.rounds, result.persons, result.silos)
    fit = trial.loss != RANDOM, -trial.epsilon, trial.neighbours
    kind = (*fit, trial.loss, trial.lam, trial.hidden)
    return (*order, *kind, result.seed)


def _to_dict(result: Result) -> dict[str, object]:
    document = asdict(result) | {"published": number(result.published)}
    document["trial"] |= {
        "lam": number(result.trial.lam),
        "epsilon": number(result.trial.epsilon),
    }
    return document


def _tables(rows: Sequence[dict[str, object]]) -> str:
    """Returns one table for each rate and number of rounds."""
    parts = []
    for rate, rounds in dict.fromkeys((row["rate"], row["rounds"]) for row in rows):
        lines = [_line(row) for row in rows if (row["rate"], row["rounds"]) == (rate, rounds)]
        table = markdown_table(_HEADS, lines, right=range(5, 15))
        parts.append(f"## Rate {rate}, {rounds} rounds of one epoch\n\n{table}\n")
    return "\n".join(parts)


def _line(row: dict[str, object]) -> list[str]:
    """Returns a row of the table."""

    def shown(name: str, form: str, factor: float = 1.0) -> str:
        value = float(str(row[name]))
        return "∞" if math.isinf(value) else format(value * factor, form)

    around = f" ± {shown('std', '.3f', 100)}" if row["states"] != 1 else ""
    trained = [
        str(row["neighbours"]),
        str(row["method"]),
        "perceptron" if row["hidden"] else "linear",
        str(row["loss"]),
        shown("lambda", "g"),
        shown("epsilon", "g"),
        shown("epsilon_published", ".3g"),
        shown("noise", ".3g"),
    ]
    method = row["method"]
    if method == FITTED:
        trained = [str(row["neighbours"]), FITTED, "linear", *[""] * 5]
    if method == RANDOM:
        trained = ["", RANDOM, *[""] * 6]
    resources = [shown("memory_mb", ",.0f"), shown("seconds", ".0f")]
    return [
        f"{row['persons']:,}, {row['silos']}",
        *trained,
        shown("auprc", ".3f", 100) + around,
        f"{_over_chance(row):.1f}" if row["infected"] else "",
        shown("recall", ".2f", 100),
        shown("recall_called", ".2f", 100),
        *(["", ""] if method == RANDOM else resources),
    ]


RUNS = Document(
    DATA,
    "syncret bench mtl --task pandemic",
    parse=_of_row,
    to_row=_to_dict,
    key=_key,
    order=_order,
    page=(PAGE, markdown),
    field="runs",
)
"""The runs of the task and their page."""
