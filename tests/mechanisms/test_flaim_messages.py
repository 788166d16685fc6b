"""FLAIM's messages: there and back, and no bytes that do anything but fit or be refused."""

import itertools
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.descent import Target
from mechanisms.errors import FlaimError
from mechanisms.flaim_messages import (
    Brief,
    Layout,
    decode_choices,
    encode_choices,
    one_way_cells,
)
from mechanisms.model import Model
from mechanisms.pgm import fit_targets
from mechanisms.workload import draw_workload
from tests.mechanisms.tables import domain_of

DOMAIN = domain_of(3, 4, 2, 5)
WORKLOAD = draw_workload(DOMAIN, 3, None)
COUNT = len(WORKLOAD.candidates)
TWO_WAY = list(itertools.combinations(DOMAIN.names, 2))


def model_of(cliques: list[tuple[str, ...]], seed: int) -> Model:
    rng = np.random.default_rng(seed)
    targets = {
        q: Target(rng.dirichlet(np.ones(DOMAIN.size(q))).reshape(DOMAIN.sizes(q)), 1.0)
        for q in cliques
    }
    return fit_targets(DOMAIN, targets, iterations=3)[0]


MODELS = [
    model_of([(n,) for n in DOMAIN.names], 0),
    model_of([("c0", "c1"), ("c1", "c2"), ("c3",)], 1),
    model_of([("c0", "c1", "c2"), ("c1", "c2", "c3")], 2),
]


@st.composite
def briefs(draw: st.DrawFn) -> Brief:
    allowed = np.array(draw(st.lists(st.booleans(), min_size=COUNT, max_size=COUNT)))
    allowed[draw(st.integers(0, COUNT - 1))] = True
    number = st.floats(0, 1e9)
    one_way = None
    if draw(st.booleans()):
        rng = np.random.default_rng(draw(st.integers(0, 100)))
        one_way = np.concatenate([rng.dirichlet(np.ones(n)) for n in DOMAIN.shape])
    return Brief(
        WORKLOAD,
        draw(st.integers(1, 2**31 - 1)),
        draw(number),
        draw(number),
        draw(number),
        draw(st.integers(0, 2**29 - 1)),
        allowed,
        draw(st.sampled_from([None, *MODELS])),
        one_way,
    )


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    chosen = tuple(sorted(draw(st.sets(st.integers(0, COUNT - 1)))))
    return Layout(
        draw(st.integers(0, 2**31 - 1)),
        draw(st.integers(0, 2**31 - 1)),
        draw(st.integers(1, 2**31 - 1)),
        draw(st.floats(1e-9, 1e9)),
        draw(st.booleans()) or not chosen,
        chosen,
    )


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """``whole`` with some bytes changed, cut off or added."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    end = draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))
    return bytes(data[:end]) + draw(st.one_of(st.just(b""), st.binary(max_size=8)))


@settings(max_examples=60, deadline=None)
@given(briefs())
def test_brief_comes_back_as_it_went(brief: Brief) -> None:
    back = Brief.decode(brief.encode(), WORKLOAD)
    for name in ("round", "epsilon", "sigma", "penalty", "rows"):
        assert getattr(back, name) == getattr(brief, name)
    assert (back.allowed == brief.allowed).all()
    assert (back.model is None, back.one_way is None) == (
        brief.model is None,
        brief.one_way is None,
    )
    if brief.one_way is not None:
        assert np.allclose(back.one_way, brief.one_way, atol=1e-7)
    if brief.model is not None:
        assert (back.model.cliques, back.model.parents) == (
            brief.model.cliques,
            brief.model.parents,
        )
        # 32-bit floats: an answer is off by less than 1e-6, and so are all of a candidate's together.
        difference = back.answers.astype(np.int64) - brief.answers
        assert np.abs(difference).max() < 2**32 * 1e-6
    # What went over the wire once goes over it unchanged.
    again = Brief.decode(back.encode(), WORKLOAD)
    if back.model is not None:
        assert np.abs(again.answers.astype(np.int64) - back.answers).max() < 2**32 * 1e-6


@settings(max_examples=200, deadline=None)
@given(briefs(), st.data())
def test_brief_of_any_bytes_fits_or_is_refused(brief: Brief, data: st.DataObject) -> None:
    try:
        back = Brief.decode(data.draw(damaged(brief.encode())), WORKLOAD)
        if back.model is not None:
            # Whatever arrives, the sums that scores are made of stay within 63 bits.
            assert back.totals.max() <= 2**33
        if back.one_way is not None:
            assert back.one_way_q32.shape == (WORKLOAD.cells,)
    except FlaimError:
        pass


@given(briefs().filter(lambda brief: brief.model is not None))
@settings(max_examples=10, deadline=None)
def test_brief_with_a_signalling_nan_is_refused(brief: Brief) -> None:
    """As any other number that is none: without a warning, which would end a client."""
    encoded, signalling = brief.encode(), struct.pack("<I", 0x7F800001)
    assert brief.model is not None
    first = brief.model.marginals[0].astype("<f4").tobytes()[:4]
    with pytest.raises(FlaimError):
        Brief.decode(encoded.replace(first, signalling, 1), WORKLOAD)


@settings(max_examples=200, deadline=None)
@given(layouts(), st.data())
def test_layout_comes_back_and_other_bytes_fit_or_are_refused(
    layout: Layout, data: st.DataObject
) -> None:
    whole = layout.encode()
    assert Layout.decode(whole, WORKLOAD) == layout
    try:
        back = Layout.decode(data.draw(damaged(whole)), WORKLOAD)
    except FlaimError:
        return
    assert back.cells(WORKLOAD) == sum(
        DOMAIN.size(WORKLOAD.candidates[i]) for i in back.marginals(WORKLOAD)
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=4, unique=True), st.data())
def test_choices_come_back_and_other_bytes_fit_or_are_refused(
    chosen: list[int], data: st.DataObject
) -> None:
    whole = encode_choices(7, tuple(chosen))
    assert decode_choices(whole, WORKLOAD, round=7, count=4) == tuple(chosen)
    try:
        back = decode_choices(data.draw(damaged(whole)), WORKLOAD, round=7, count=4)
    except FlaimError:
        return
    assert 1 <= len(set(back)) == len(back) <= 4
    assert all(0 <= i < COUNT for i in back)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (encode_choices(8, (1,)), "round 7"),
        (encode_choices(7, (1, 2, 3)), "3 choices"),
        (encode_choices(7, ()), "0 choices"),
        (encode_choices(7, (2, 2)), "twice"),
        (encode_choices(7, (COUNT,)), "does not exist"),
        (encode_choices(7, (1,)) + b"\0", "follow"),
        (encode_choices(7, (1,))[:-1], "too early"),
        (b"", "too early"),
    ],
)
def test_decode_choices_says_what_is_wrong(data: bytes, named: str) -> None:
    with pytest.raises(FlaimError, match=named):
        decode_choices(data, WORKLOAD, round=7, count=2)


def test_brief_refuses_a_model_that_gives_no_probabilities() -> None:
    # Two cliques that say something else of the column they share: answers may then be anything.
    first, second = np.zeros((3, 4)), np.zeros((4, 2))
    first[:, 0], second[1, :] = 1 / 3, 1 / 2
    allowed = np.ones(COUNT, np.bool_)
    odd = Model(
        DOMAIN, (("c0", "c1"), ("c1", "c2"), ("c3",)), (-1, 0, -1), (first, second, np.full(5, 0.2))
    )
    brief = Brief(WORKLOAD, 1, 0.1, 1.0, 1.0, 0, allowed, odd, None)
    back = Brief.decode(brief.encode(), WORKLOAD)
    assert back.totals.max() <= 2**33
    ones = np.ones(one_way_cells(WORKLOAD))
    with pytest.raises(FlaimError, match="one-way"):
        _ = Brief(WORKLOAD, 1, 0.1, 1.0, 1.0, 0, allowed, None, ones).one_way_q32


@pytest.mark.parametrize("number", [-1.0, 2.0**31, math.inf, math.nan])
def test_deviations_are_bounded_before_any_noise_is_made_from_them(number: float) -> None:
    allowed = np.ones(COUNT, np.bool_)
    with pytest.raises(FlaimError, match="below 2"):
        Layout(1, 0, 3, number, True, ())
    for place in range(3):
        numbers = [1.0, 1.0, 1.0]
        numbers[place] = number
        with pytest.raises(FlaimError, match="below 2"):
            Brief(WORKLOAD, 1, *numbers, 0, allowed, None, None)


def test_layout_has_a_marginal() -> None:
    with pytest.raises(FlaimError, match="at least one marginal"):
        Layout(1, 0, 3, 2.0, False, ())


def test_layout_names_its_marginals_one_way_first() -> None:
    layout = Layout(3, 0, 5, 2.0, True, (1, 6))
    assert layout.marginals(WORKLOAD) == (0, 1, 2, 3, 1, 6)
    assert layout.cells(WORKLOAD) == 14 + 4 + DOMAIN.size(WORKLOAD.candidates[6])
