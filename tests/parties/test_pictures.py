"""Pictures show the numbers they are given, and take names as plain text."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from parties.report import figures
from parties.report.figures import (
    MAX_COLUMNS_NUMBERED,
    MAX_QUERIES_NAMED,
    TRUE,
    draw_accuracy,
    draw_association,
    draw_attacker,
    draw_budget,
    draw_bytes,
    draw_column,
    draw_expected_errors,
    draw_query_errors,
    format_bytes,
    plain_label,
    to_svg,
)
from parties.report.model import (
    Accuracy,
    AxisTick,
    ColumnShares,
    ErrorBar,
    ExpectedError,
    PairErrors,
    QueryError,
)

HARMLESS_ELEMENTS = """
    svg metadata RDF Work type format creator title Agent
    defs style g path use text tspan clipPath rect line
"""


def column(name: str, labels: tuple[str, ...], *, real: bool = True) -> ColumnShares:
    shares = tuple((i + 1.0) for i in range(len(labels)))
    return ColumnShares(name, labels, shares, shares[::-1] if real else None)


def test_draw_query_errors_names_the_largest_and_shows_all_with_their_mean() -> None:
    errors = [QueryError((f"q{i}", "b"), i / 100) for i in range(MAX_QUERIES_NAMED + 5)]
    largest, every = draw_query_errors(errors).axes
    names = [label.get_text() for label in largest.get_yticklabels()]
    assert names == [f"q{i} × b" for i in range(14, 4, -1)]
    widths = [bar.get_width() for bar in largest.patches]  # type: ignore[attr-defined]
    assert widths == [i / 100 for i in range(14, 4, -1)]
    heights = [bar.get_height() for bar in every.patches]  # type: ignore[attr-defined]
    assert heights == [i / 100 for i in range(14, -1, -1)]
    assert [text.get_text() for text in every.texts] == ["mean 0.070"]


def test_draw_expected_errors_names_the_best_known_and_shows_how_far_all_may_be_off() -> None:
    errors = [ExpectedError((f"q{i}",), i / 100, 0.0, i / 50) for i in range(MAX_QUERIES_NAMED + 3)]
    best, every = draw_expected_errors(errors[::-1]).axes
    assert [t.get_text() for t in best.get_yticklabels()] == [f"q{i}" for i in range(10)]
    lines = [list(line.get_xdata()) for line in best.lines]  # type: ignore[arg-type]
    assert lines[2:4] == [[0.0, 0.02], [0.01]]
    heights = [bar.get_height() for bar in every.patches]  # type: ignore[attr-defined]
    assert heights == [i / 50 for i in range(13)]
    assert list(every.lines[0].get_ydata()) == [i / 100 for i in range(13)]  # type: ignore[arg-type]
    # What is likely is drawn over what is proven.
    both = [replace(e, likely=e.high / 2) for e in errors]
    best, every = draw_expected_errors(both).axes
    lines = [list(line.get_xdata()) for line in best.lines]  # type: ignore[arg-type]
    assert lines[3:6] == [[0.0, 0.02], [0.0, 0.01], [0.01]]
    heights = [bar.get_height() for bar in every.patches]  # type: ignore[attr-defined]
    assert heights == [i / 50 for i in range(13)] + [i / 100 for i in range(13)]


def pairs(count: int) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    names = tuple(f"c{i}" for i in range(count))
    made = tuple(tuple(1.0 if i == j else i * j / 100 for j in range(count)) for i in range(count))
    return names, made


def test_draw_association_numbers_each_pair_but_the_diagonal() -> None:
    made, scale = draw_association(*pairs(3), "synthetic").axes
    assert made.get_title(loc="left") == "synthetic"
    assert [label.get_text() for label in made.get_xticklabels()] == ["c0", "c1", "c2"]
    shades = made.collections[0].get_array()
    assert shades is not None
    assert shades[1].tolist() == [0.0, None, 0.02]
    said = [text.get_text() for text in made.texts]
    assert said == ["0.00", "0.00", "0.00", "0.02", "0.00", "0.02"]
    assert scale.get_xlabel() == "Cramér's V"


def test_draw_association_has_no_numbers_for_many_columns() -> None:
    made, _ = draw_association(*pairs(MAX_COLUMNS_NUMBERED + 1), "synthetic").axes
    assert not made.texts


def test_draw_accuracy_has_a_line_for_this_run_one_for_a_trusted_party_and_the_shuffled() -> None:
    every = tuple(PairErrors(e, 0.04 / e, 0.12, 0.01 / e) for e in (0.1, 1.0, 10.0))
    (axes,) = draw_accuracy(Accuracy(every[1], every)).axes
    shuffled, table, trusted, run = axes.lines
    assert list(shuffled.get_ydata()) == [0.12, 0.12]  # type: ignore[arg-type]
    assert list(table.get_ydata()) == pytest.approx([0.4, 0.04, 0.004])  # type: ignore[arg-type]
    assert list(trusted.get_ydata()) == pytest.approx([0.1, 0.01, 0.001])  # type: ignore[arg-type]
    assert (list(run.get_xdata()), list(run.get_ydata())) == ([1.0], [0.04])  # type: ignore[arg-type]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1", "1", "10"]


def test_draw_budget_stacks_each_rounds_charges_and_adds_them_up() -> None:
    ledger = [
        (0, "measure", 0.01),
        (0, "measure", 0.01),
        (2, "select", 0.001),
        (2, "measure", 0.01),
    ]
    per_round, so_far = draw_budget(ledger, rho_total=0.05).axes
    heights = [bar.get_height() for bar in per_round.patches]  # type: ignore[attr-defined]
    assert heights == pytest.approx([0.02, 0, 0.01, 0, 0, 0.001])
    assert so_far.lines[0].get_ydata() == pytest.approx([0.02, 0.02, 0.031])
    assert so_far.lines[1].get_ydata() == pytest.approx([0.05, 0.05])


def test_draw_bytes_orders_steps_by_size_and_labels_their_totals() -> None:
    axes = draw_bytes({"small": (1, 2, 3), "large": (10**6, 0, 5 * 10**5)}).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["large", "small"]
    assert [text.get_text() for text in axes.texts] == ["1.5 MB", "6 B"]


def test_draw_column_of_categories_has_an_interval_and_the_truth_at_its_bar() -> None:
    errors = (ErrorBar("b", 0.6, 0.8, 0.66), ErrorBar("a", 0.3, 0.4, 0.33))
    item = ColumnShares("c", ("a", "b"), (0.33, 0.67), (0.4, 0.6), errors=errors)
    (axes,) = draw_column(item).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "a"]
    widths = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
    assert widths == [0.67, 0.33]
    ends = [path.get_segments()[0][:, 0].tolist() for path in axes.collections]  # type: ignore[attr-defined]
    assert ends == [pytest.approx([0.6, 0.8]), pytest.approx([0.3, 0.4])]
    real = [line for line in axes.lines if line.get_label() == TRUE]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in real] == [(0.6, 0), (0.4, 1)]  # type: ignore[index]


def test_draw_column_of_numbers_has_its_ticks_and_intervals_below_the_bars() -> None:
    ticks = (AxisTick(-0.5, "2020"), AxisTick(1.2, "2021"))
    errors = (ErrorBar("median", 0.2, 1.4, 1.0, 0.9), ErrorBar("mean", 0.1, 1.5))
    item = ColumnShares("c", ("a", "b"), (0.25, 0.75), (0.5, 0.5), ticks, errors)
    bars, strip = draw_column(item).axes
    heights = [bar.get_height() for bar in bars.patches]  # type: ignore[attr-defined]
    assert heights == [0.25, 0.75]
    assert [label.get_text() for label in bars.get_xticklabels()] == ["2020", "2021"]
    assert bars.get_xticks().tolist() == strip.get_xticks().tolist() == [-0.5, 1.2]
    assert bars.get_xlim() == strip.get_xlim()
    assert [label.get_text() for label in strip.get_yticklabels()] == ["median", "mean"]
    marked = [line.get_xdata()[0] for line in strip.lines if line.get_label() == TRUE]  # type: ignore[index]
    assert marked == [0.9]


@pytest.mark.parametrize("ticks", [None, (AxisTick(0.0, "1"),)])
def test_draw_column_has_no_real_figure_when_there_is_none(
    ticks: tuple[AxisTick, ...] | None,
) -> None:
    item = replace(column("a", ("x", "y"), real=False), ticks=ticks)
    for axes in draw_column(item).axes:
        assert not [line for line in axes.lines if line.get_label() == TRUE]


def test_draw_column_counts_the_categories_that_it_leaves_out() -> None:
    (axes,) = draw_column(column("c", tuple(map(str, range(30))), real=False)).axes
    assert len(axes.patches) == 10
    assert axes.texts[-1].get_text().startswith("20 more: ")


@settings(max_examples=3)
@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_to_svg_is_xml_for_any_names(name: str, label: str) -> None:
    for figure in (
        draw_column(column(name, (label, "b"))),
        draw_bytes({name: (1, 2, 3)}),
        draw_association((name, label), ((1.0, 0.5), (0.5, 1.0)), "synthetic"),
        draw_query_errors([QueryError((name, label), 0.5)]),
    ):
        root = ElementTree.fromstring(to_svg(figure))
        assert {e.tag.rpartition("}")[2] for e in root.iter()} <= set(HARMLESS_ELEMENTS.split())


def test_to_svg_leaves_matplotlibs_settings_as_they_were() -> None:
    before = dict(mpl.rcParams)
    to_svg(draw_query_errors([QueryError(("a",), 0.5)]))
    assert dict(mpl.rcParams) == before


def test_plain_label_cuts_and_replaces() -> None:
    assert plain_label("a\nb\x00c") == "a�b�c"
    assert plain_label("abcdef", longest=4) == "abc…"
    assert plain_label("abcd", longest=4) == "abcd"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e6, "2.5 MB"), (3e9, "3 GB")],
)
def test_format_bytes_uses_decimal_units(size: float, text: str) -> None:
    assert format_bytes(size) == text


DRAWN: list[Callable[[], Figure]] = [
    lambda: draw_query_errors([QueryError(("a", "b"), 0.5), QueryError(("b",), 0.25)]),
    lambda: draw_expected_errors([ExpectedError(("a",), 0.1, 0.0, 0.2)]),
    lambda: draw_association(("a", "b"), np.array([[1.0, 0.3], [0.3, 1.0]]), TRUE),
    lambda: draw_budget([(0, "initial", 0.1), (1, "select", 0.2)], rho_total=1.0),
    lambda: draw_bytes({"measure": (10, 20, 30), "select": (1, 2, 3)}),
    lambda: draw_column(column("colour", ("red", "green"))),
    lambda: draw_attacker([(0.0, 0.1), (0.5, 0.6), (1.0, 1.0)]),
]


@pytest.mark.parametrize("draw", DRAWN)
def test_the_same_input_gives_the_same_picture(draw: Callable[[], Figure]) -> None:
    """Auditors make pages anew, and pages of tests draw each picture once."""
    once = to_svg(draw())
    assert to_svg(draw()) == once
    # The control: it is no picture of something else.
    assert to_svg(draw_column(column("another", ("red", "green", "blue")))) != once


def test_pages_of_tests_draw_a_picture_once_and_another_one_anew() -> None:
    drawn = [figures.to_svg(figures.draw_bytes({"select": (1, 2, last)})) for last in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn == [to_svg(draw_bytes({"select": (1, 2, last)})) for last in (3, 3, 4)]
