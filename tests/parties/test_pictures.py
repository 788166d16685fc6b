"""Pictures show the numbers they are given, and take names as plain text."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import matplotlib as mpl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.report.figures import (
    MAX_COLUMNS_DRAWN,
    MAX_COLUMNS_NUMBERED,
    MAX_QUERIES_NAMED,
    draw_associations,
    draw_budget,
    draw_bytes,
    draw_columns,
    draw_expected_errors,
    draw_query_errors,
    format_bytes,
    plain_label,
    to_svg,
)
from parties.report.model import Associations, ColumnShares, ExpectedError, QueryError

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


def pairs(count: int, *, real: bool = True) -> Associations:
    names = tuple(f"c{i}" for i in range(count))
    made = tuple(tuple(1.0 if i == j else i * j / 100 for j in range(count)) for i in range(count))
    return Associations(names, made, made if real else None)


def test_draw_associations_puts_the_real_matrix_beside_the_synthetic_one() -> None:
    real, made, scale = draw_associations(pairs(3)).axes
    assert [axes.get_title(loc="left") for axes in (real, made)] == [
        "real (not private)",
        "synthetic",
    ]
    assert [label.get_text() for label in made.get_xticklabels()] == ["c0", "c1", "c2"]
    shades = made.collections[0].get_array()
    assert shades is not None
    assert shades[1].tolist() == [0.0, None, 0.02]
    assert [text.get_text() for text in real.texts] == [
        "0.00",
        "0.00",
        "0.00",
        "0.02",
        "0.00",
        "0.02",
    ]
    assert scale.get_ylabel() == "Cramér's V"


def test_draw_associations_has_no_real_matrix_where_there_is_none_and_few_numbers() -> None:
    made, _ = draw_associations(pairs(MAX_COLUMNS_NUMBERED + 1, real=False)).axes
    assert made.get_title(loc="left") == "synthetic"
    assert not made.texts


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


def test_draw_columns_draws_a_limited_number() -> None:
    figure = draw_columns([column(f"c{i}", ("a", "b")) for i in range(MAX_COLUMNS_DRAWN + 5)])
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [f"c{i}" for i in range(MAX_COLUMNS_DRAWN)]


def test_draw_columns_has_no_real_shares_when_there_are_none() -> None:
    axes = draw_columns([column("a", ("x", "y"), real=False)]).axes[0]
    assert axes.get_legend_handles_labels()[1] == ["synthetic"]
    assert not axes.lines


@settings(max_examples=3)
@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_to_svg_is_xml_for_any_names(name: str, label: str) -> None:
    together = Associations((name, label), ((1.0, 0.5), (0.5, 1.0)))
    for figure in (
        draw_columns([column(name, (label, "b"))]),
        draw_bytes({name: (1, 2, 3)}),
        draw_associations(together),
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
