"""The page of `syncret bench tables`: ``tables.md``."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from bench.experiment.documents import Document, record_a_line
from bench.experiment.markdown import markdown_table
from bench.tables.data import NAMES, SHAPES, Shape
from bench.tables.methods import METHODS, OURS
from bench.tables.runs import Run

POINTS, TIMES = 3.0, 3.0
"""Goals: difference of the shares of persons with so many rows, and how much nearer than flat associations are."""
_HEAD = ""
_MEASURES: Sequence[tuple[str, str, str]] = (
    ("broken", "persons with two values of a constant", ".1%"),
    ("disorder", "steps back in time, before sorting", ".1%"),
    ("ties", "steps without time between, after sorting", ".1%"),
    ("gaps", "times between rows, TV", ".3f"),
    ("points", "number of rows, largest difference in points", ".1f"),
    ("number", "number of rows, TV", ".3f"),
    ("number_by_own", "(person's column, number of rows), TV", ".3f"),
    ("own_pairs", "(person's column, row's column), TV", ".3f"),
    ("step_pairs", "(row's column, next row's column), TV", ".3f"),
    ("own_v", "association of person's and row's columns, off by", ".3f"),
    ("step_v", "association of row's and next row's columns, off by", ".3f"),
)
_WITHIN: Mapping[str, tuple[str, str]] = {
    "spread": ("{}: spread within a person, times the real {:.3g}", ".2f"),
    "lag": ("{}: correlation with the next row, real {:.2f}", ".2f"),
    "stay": ("{}: the same in the next row, real {:.0%}", ".0%"),
}


def markdown(runs: Sequence[Run]) -> str:
    """Returns the page of all runs: a section for each number of persons and budget of ours."""
    conditions = sorted({_conditions(run) for run in runs if run.job.method in OURS})
    sections = []
    for persons, epsilon, delta in conditions:
        beside = [
            run
            for run in runs
            if _conditions(run) == (persons, epsilon, delta)
            or (run.job.method not in OURS and run.job.persons == persons)
        ]
        sections.append(_section(f"ε = {epsilon:g}, δ = {delta:g}, {persons:,} persons", beside))
    return "\n".join([_HEAD, *sections])


def _conditions(run: Run) -> tuple[int, float, float]:
    return run.job.persons, run.job.budget.epsilon, run.job.budget.delta


def _section(title: str, runs: Sequence[Run]) -> str:
    parts = [f"## {title}\n", _short(runs)]
    parts += [_table(SHAPES[name], of) for name in NAMES if (of := _of(runs, name))]
    failed = [f"- `{run.job.command}`: {run.failed}" for run in runs if run.figures is None]
    return "\n".join([*parts, *(["### Without tables\n", *failed, ""] if failed else [])])


def _of(runs: Sequence[Run], dataset: str, method: str | None = None) -> list[Run]:
    return [
        run
        for run in runs
        if run.job.dataset == dataset and run.figures and method in (None, run.job.method)
    ]


def _short(runs: Sequence[Run]) -> str:
    return ""


def _table(shape: Shape, runs: Sequence[Run]) -> str:
    """Returns the figures of one data set: a row for each measure, a column for each method."""
    shown = [method for method in METHODS if _of(runs, shape.name, method)]
    rows = [
        (said, *(_figure(_of(runs, shape.name, method), (name,), form) for method in shown))
        for name, said, form in _MEASURES
    ]
    for name, (said, form) in _WITHIN.items():
        for column, real in ((runs[0].real or {}).get(name) or {}).items():
            by = real if name == "spread" else 1.0
            cells = [_figure(_of(runs, shape.name, m), (name, column), form, by) for m in shown]
            rows.append((said.format(column, real), *cells))
    counted = [_counted(_of(runs, shape.name, method)) for method in shown]
    rows += [("rows of a person that count", *counted)] if any(counted) else []
    rows.append(("seconds", *(_seconds(_of(runs, shape.name, method)) for method in shown)))
    heads = " | ".join([shape.name, *shown])
    return f"{markdown_table(heads, rows, right=range(1, len(shown) + 1))}\n"


def _values(runs: Sequence[Run], path: Sequence[str]) -> list[float]:
    found = []
    for run in runs:
        value: Any = run.figures
        for name in path:
            value = value[name]
        found.append(float(value))
    return found


def _figure(runs: Sequence[Run], path: Sequence[str], form: str, by: float = 1.0) -> str:
    """Returns the mean of the repeats, and their deviation."""
    values = [value / by if by else 0.0 for value in _values(runs, path)]
    around = f" ± {stdev(values):{form}}" if len(values) > 1 and stdev(values) else ""
    return f"{fmean(values):{form}}{around}"


def _counted(runs: Sequence[Run]) -> str:
    return ", ".join(sorted({str(run.counted) for run in runs if run.counted}))


def _seconds(runs: Sequence[Run]) -> str:
    known = [run.seconds for run in runs if run.seconds]
    return f"{fmean(known):.0f}" if known else ""


RUNS = Document(
    "tables.json",
    "syncret bench tables",
    parse=Run.of_line,
    to_row=Run.to_dict,
    key=lambda run: run.job.key,
    order=lambda run: run.job.key,
    page=("tables.md", markdown),
    field="runs",
    form=record_a_line,
)
"""The runs and their page: the files are replaced whole after every run, so that a stopped command continues."""
