"""Sentence on the likely error, an error that most marginals stay below, with calibrated coverage.

All values here are public. ``mechanisms.likely_errors`` computes the figures and documents their basis.
"""

import statistics
from collections.abc import Mapping

from mechanisms.intervals import LARGEST
from parties.report.document import number, optional, tables


def likely_error_text(quality: Mapping[str, object]) -> str:
    """Returns the sentence on likely errors beside the proven ones; "" if a report of an earlier version has none."""
    found = optional(quality, "likely")
    queries = [m for m in tables(quality.get("marginals")) if m["query"] and "likely" in m]
    if not found or not queries:
        return ""
    likely, proven = (
        statistics.median(number(m[key]) for m in queries) for key in ("likely", "high")
    )
    half = (
        f"half of the queries are likely off by at most {50 * likely:.3g} % of the rows (proven: {50 * proven:.3g} %)"
        if likely < LARGEST
        else "half of the queries have no likely error"
    )
    return (
        f"{10 * number(found['share']):.0f} of 10 marginals are expected to be within their likely error; "
        f"{half}. Likely errors are calibrated on {found['tables']} public tables, not proven."
    )
