"""Knowledge of a run's errors for estimates from its model: the numbers of the report's section `quality`.

``run_knowledge`` reads it from a run's folder, server 0's or an unpacked bundle. All values here are public.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mechanisms.estimate import Estimate
from mechanisms.estimate_errors import Knowledge, MarginalError
from mechanisms.model import Model
from parties.foundation.errors import StoreError
from parties.report.dependencies import TAKEN_OVER
from parties.report.document import number, optional, read_document, tables
from parties.report.quality import QUALITY

_REPORT, _RESULT = "report.json", "result.json"
_EXPECTED = (
    "expected a run's folder, that of server 0 or of FLAIM's server, or a bundle, with its report"
)


def knowledge_of(quality: Mapping[str, object], rows: float) -> Knowledge:
    """Returns the knowledge in a section `quality`, of a run on about ``rows`` rows. Raises ValueError without rows."""
    errors = {}
    for marginal in tables(quality["marginals"]):
        columns = tuple(sorted(map(str, _listed(marginal["columns"]))))
        noise = marginal.get("noise")
        # FLAIM's reports have no likely errors; of what was not measured they bound nothing.
        likely = marginal.get("likely", marginal["expected"])
        errors[columns] = MarginalError(
            None if noise is None else number(noise), number(likely), int(number(marginal["cells"]))
        )
    pairs = _listed(optional(quality, "dependencies").get(TAKEN_OVER, []))
    earlier = frozenset(tuple(sorted(map(str, _listed(pair)))) for pair in pairs)
    return Knowledge(rows, errors, earlier)


def run_knowledge(folder: Path, *, named: Path | None = None) -> Knowledge:
    """Returns the knowledge of the run in ``folder``. Errors call it ``named``. Raises StoreError."""
    # Server 0's folder has the section in a file of its own; a run's folder in its report.
    report = read_document(folder / _REPORT)
    try:
        if report is not None:
            return knowledge_of(optional(report, "quality"), _rows(report))
        quality, result = read_document(folder / QUALITY), read_document(folder / _RESULT)
        if quality is not None and result is not None:
            return knowledge_of(quality, number(result["rows_estimated"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            named or folder, f"has no figures of its model's errors; {_EXPECTED}"
        ) from error
    raise StoreError(named or folder, f"has no {_REPORT}; {_EXPECTED}")


def condition_share(model: Model, folder: Path, where: str) -> Estimate | None:
    """Returns the estimated share of the rows that satisfy a condition; None if the run's errors are not known."""
    # Imported here: a data owner's installation does without the parser.
    from mechanisms.estimates import estimates
    from mechanisms.question import SHARE, Measure, Question, parse_where

    try:
        knowledge = run_knowledge(folder)
    except StoreError:
        return None
    question = Question(Measure(SHARE, of=parse_where(where)))
    return estimates(model, knowledge, question)[0]


def share_text(share: Estimate) -> str:
    """Returns the interval of a condition's share in words; "" for a refusal."""
    if not isinstance(share.low, float) or not isinstance(share.high, float):
        return ""
    return f" ({share.confidence:.0%} interval {share.low:.4g} to {share.high:.4g}, {share.basis})"


def _rows(report: Mapping[str, object]) -> float:
    """Returns the estimated number of rows: after the last round, else that of the synthetic table."""
    selected = tables(report.get("selected"))
    return number(selected[-1]["rows_estimated"] if selected else report["synthetic_rows"])


def _listed(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("columns are a list")
    return value
