"""The public part of a report, and its page: a trial's report without the figures of its real table.

``without_real`` takes out what `parties.report.model.REAL_FIGURES` lists; ``public_report`` makes the columns' figures
anew from the synthetic table, since a real one decides which single values are listed beside it. The same report and
table make the same page, but for its pictures, which other versions of the drawing library draw in other words
(``without_pictures``). All values here are public.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mechanisms.model import Model
from mechanisms.resolving import unmeasured
from parties.config import Config
from parties.report.accuracy import report_figures
from parties.report.columns import column_summaries
from parties.report.from_result import SyntheticTable, read_table_of
from parties.report.model import REAL_FIGURES
from parties.session.result_digests import MODEL_FOLDER, TABLE_FILE
from parties.session.study import Study

LEFT_OUT = "left_out"
"""Key of a report with the places of the figures that were taken out of it."""
_PICTURE = re.compile(r'src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]*"')


def real_figures(report: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the places of REAL_FIGURES that have a value in a report."""
    return tuple(path for path in REAL_FIGURES if _found(report, _steps(path)))


def without_real(report: Mapping[str, object]) -> dict[str, object]:
    """Returns a report without all values of REAL_FIGURES; ``left_out`` says which these were."""
    left_out = real_figures(report)
    document: dict[str, object] = json.loads(json.dumps(report))
    for path in left_out:
        _remove(document, _steps(path))
    document.pop("not_private", None)
    if left_out:
        document[LEFT_OUT] = list(left_out)
    if "utility" in report:
        # Every report has this section.
        document["utility"] = {}
    return document


def public_report(
    released: Config, directory: Path, report: Mapping[str, object]
) -> dict[str, object]:
    """Returns the public part of the report of a run in ``directory``; ``released`` has the measured bins.

    Raises DataError.
    """
    document = without_real(report)
    if LEFT_OUT in document and "columns" in document and (directory / TABLE_FILE).exists():
        document["columns"] = json_columns(released, read_table_of(released, directory))
    return document


def json_columns(released: Config, table: SyntheticTable) -> list[object]:
    """Returns the section `columns` of a report without a real table, as JSON has it."""
    columns: list[object] = json.loads(json.dumps(column_summaries(released.domain, table.values)))
    return columns


def public_page(released: Config, directory: Path, report: Mapping[str, object]) -> str | None:
    """Returns report.html of a public report; None if there is no table to draw.

    Raises DataError, ValueError; ImportError without the library that draws.
    """
    # The import of the drawing takes a second.
    from parties.report.html import render_html

    if not (directory / TABLE_FILE).exists():
        return None
    codes = read_table_of(released, directory).codes
    return render_html(report, report_figures(report, Study.of(released).workload, codes))


def measured_config(config: Config, directory: Path) -> Config:
    """Returns the configuration with the bins that the run measured, as the model in ``directory`` has them."""
    if not unmeasured(config.domain):
        return config
    return config.resolved(Model.load(directory / MODEL_FOLDER).domain)


def without_pictures(page: str) -> str:
    """Returns a page whose pictures are taken out, captions and texts for screen readers left in."""
    return _PICTURE.sub('src=""', page)


def _steps(path: str) -> tuple[str, ...]:
    """Returns a path as its keys in order: ``*`` for any key, ``[]`` for each item of a list."""
    return tuple(path.replace("[]", ".[]").split("."))


def _found(value: object, steps: Sequence[str]) -> bool:
    if not steps:
        return value != {}
    return any(_found(inner, steps[1:]) for _, inner in _inner(value, steps[0]))


def _remove(value: object, steps: Sequence[str]) -> None:
    for key, inner in list(_inner(value, steps[0])):
        if len(steps) > 1:
            _remove(inner, steps[1:])
        elif isinstance(value, dict):
            del value[key]


def _inner(value: object, step: str) -> list[tuple[str, object]]:
    """Returns what a step leads to in a value, each with its key."""
    if step == "[]":
        return [("", item) for item in value] if isinstance(value, list) else []
    if not isinstance(value, dict):
        return []
    return [(key, item) for key, item in value.items() if step in ("*", key)]
