"""Sections of report.html that are tables of the report's own figures: columns as they are written.

Provides ``columns_section``. Every text is escaped. Secret: nothing; figures of a real table are marked.
"""

from collections.abc import Iterator, Mapping, Sequence

from parties.report import page
from parties.report.content import NOT_PRIVATE

_SHOWN_QUANTILES = ("0.05", "0.5", "0.95")


def columns_section(report: Mapping[str, object]) -> str:
    """Columns at the resolution of the input, synthetic and, in trials, real ones; nothing where there are none."""
    columns = _tables(report.get("columns"))
    if not columns:
        return ""
    with_real = any("distance" in column for column in columns)
    told = "Values as the table has them, not bins."
    if with_real:
        told += (
            " Behind each figure that of the real table, in brackets. Distance: of numbers the largest difference of "
            f"the distribution functions, of categories the share of rows in another one. Figures in brackets and "
            f"distances: {NOT_PRIVATE}"
        )
    heads = ["column", "mean", "5 %", "median", "95 %", "zeros", "atoms", "missing"]
    rows = [_column_row(column, with_real=with_real) for column in columns]
    values = [row for column in columns for row in _value_rows(column)]
    of_values = ["column", "value", "synthetic"] + ["real (not private)"] * with_real
    return (
        f'<h2>Columns as they are written</h2>\n<p class="quiet">{page.text(told)}</p>\n'
        + page.table(heads + ["distance"] * with_real, rows)
        + "<details><summary>Single values: atoms and frequent ones</summary>"
        + page.table(of_values, values)
        + "</details>"
    )


def _column_row(column: Mapping[str, object], *, with_real: bool) -> list[object]:
    quantiles = column.get("quantiles")
    by = quantiles if isinstance(quantiles, Mapping) else {}
    cells: list[object] = [
        column["column"],
        _pair(column.get("mean")),
        *(_pair(by.get(q)) for q in _SHOWN_QUANTILES),
        *(_pair(column.get(key), percent=True) for key in ("zeros", "atoms", "missing")),
    ]
    distance = column.get("distance")
    return cells + [distance if isinstance(distance, float) else ""] * with_real


def _value_rows(column: Mapping[str, object]) -> Iterator[list[object]]:
    for item in _tables(column.get("values")):
        shares = [_percent(item[name]) for name in ("synthetic", "real") if name in item]
        name = f"{item['value']} (atom)" if item.get("atom") else item["value"]
        yield [column["column"], name, *shares]


def _pair(value: object, *, percent: bool = False) -> str:
    """A figure of the synthetic table, and the real one's in brackets if there is one; "" for nothing."""
    if not isinstance(value, Mapping):
        return ""
    shown = [_percent(v) if percent else _plain(v) for v in value.values()]
    return shown[0] + (f" ({shown[1]})" if len(shown) > 1 else "")


def _plain(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _percent(value: object) -> str:
    return f"{100 * value:.3g} %" if isinstance(value, int | float) else str(value)


def _tables(value: object) -> Sequence[Mapping[str, object]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
