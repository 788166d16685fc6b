"""The perceptron: its gradients, what is clipped of them, where it starts, and MR-MTL with it."""

import asyncio
import dataclasses
import math
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.dpsgd import noisy_sum
from mechanisms.errors import DataError
from mechanisms.mr_mtl import MtlSettings, run_mtl
from mechanisms.mtl_silo import MtlSilo, SiloRows
from mechanisms.perceptron import (
    BLOCK,
    PERCEPTRONS,
    Perceptron,
    _compiled,
    size,
    start,
    weight_names,
)
from mechanisms.silos import InProcess
from tests.mechanisms.tables import random_stream

P, HIDDEN = 3, 4
START_2_3 = [
    *(-0.630676890188286, 0.44713957796138354),
    *(0.6774086017472144, -0.4169727170812338),
    *(0.08345474049708883, 0.06798915328530437),
    *(0.4894848930653504, 0.2680794825025557, -0.3729351732374505),
    0.0,
]
"""Weights that silos of this version agree on."""
SETTINGS = MtlSettings(
    200, 2, (0.1,), objective="perceptron", hidden=6, rounds=100, batch=30, rate=0.5, clip=2.0
)


def rows(count: int, seed: int = 3) -> tuple[NDArray[np.float64], ...]:
    draw = np.random.default_rng(seed)
    y = (draw.random(count) > 0.5).astype(float)
    return draw.standard_normal(size(P, HIDDEN)), draw.standard_normal((count, P)), y


def by_hand(name: str, w: NDArray[np.float64], x: NDArray[np.float64], y: float) -> np.ndarray:
    """One example's gradient, written out."""
    inner, v, c = w[: P * HIDDEN].reshape(HIDDEN, P), w[P * HIDDEN : -1], w[-1]
    units = np.tanh(inner @ x)
    f = v @ units + c
    slope = (1 / (1 + np.exp(-f)) if name == "logistic-perceptron" else f) - y
    into = np.outer(slope * v * (1 - units**2), x)
    return np.concatenate([into.ravel(), slope * units, [slope]])


@pytest.mark.parametrize("count", [0, 1, BLOCK, BLOCK + 1])
@pytest.mark.parametrize("name", PERCEPTRONS)
def test_gradients_are_those_of_a_loop_whatever_the_batch(name: str, count: int) -> None:
    w, x, y = rows(count)
    found = Perceptron(name, HIDDEN).gradients(w, x, y)
    assert found.shape == (count, size(P, HIDDEN))
    assert found.dtype == np.float64
    for row, features, label in zip(found, x, y, strict=True):
        assert row == pytest.approx(by_hand(name, w, features, label), abs=1e-12)
    # They belong to the caller, who adds the pull to them.
    found += 1.0


@pytest.mark.parametrize("name", PERCEPTRONS)
def test_gradients_are_the_slopes_of_the_losses(name: str) -> None:
    w, x, y = rows(7)
    model = Perceptron(name, HIDDEN)
    found = model.gradients(w, x, y)
    for column, step in enumerate(1e-6 * np.eye(len(w))):
        slope = (model.losses(w + step, x, y) - model.losses(w - step, x, y)) / 2e-6
        assert found[:, column] == pytest.approx(slope, abs=1e-6)


def test_error_is_the_mean_square_or_the_share_of_wrong_bets() -> None:
    w, x, y = rows(70)
    f = np.tanh(x @ w[: P * HIDDEN].reshape(HIDDEN, P).T) @ w[P * HIDDEN : -1] + w[-1]
    assert Perceptron("perceptron", HIDDEN).error(w, x, y) == pytest.approx(np.mean((f - y) ** 2))
    wrong = Perceptron("logistic-perceptron", HIDDEN).error(w, x, y)
    assert wrong == np.mean((f > 0) != (y > 0.5))


def test_it_is_compiled_once_for_batches_of_all_sizes() -> None:
    model = Perceptron("perceptron", HIDDEN)
    for count in (1, 5, BLOCK, 3 * BLOCK + 1):
        model.gradients(*rows(count))
    _, gradients = _compiled("perceptron", HIDDEN)
    assert gradients._cache_size() == 1  # type: ignore[attr-defined]


def test_one_example_moves_the_sum_by_the_clip_at_most() -> None:
    """However far off its label is; without clipping it would be 30 times as much."""
    w, x, y = rows(20)
    y[4] = 1e3
    gradients = Perceptron("perceptron", HIDDEN).gradients(w, x, y)
    assert np.linalg.norm(gradients[4]) > 15

    def total(kept: NDArray[np.float64]) -> NDArray[np.float64]:
        return noisy_sum(kept, lambda count: np.zeros(count, np.int64), clip=0.5, scale_bits=20)

    moved = np.linalg.norm(total(gradients) - total(np.delete(gradients, 4, axis=0)))
    assert 0.49 < moved <= 0.5


def test_start_is_the_same_everywhere_and_tells_units_apart() -> None:
    w = start(2, 3)
    assert w == pytest.approx(START_2_3, abs=1e-15)
    assert w[-1] == 0
    large = start(100, 25)
    assert len(large) == size(100, 25) == len(weight_names([str(i) for i in range(100)], 25))
    assert np.abs(large[:2500]).max() <= 0.1
    assert np.abs(large[2500:]).max() <= 0.2
    assert np.linalg.matrix_rank(large[:2500].reshape(25, 100)) == 25
    # A uniform variable's deviation; the numbers are fixed.
    assert large[:2500].std() == pytest.approx(0.1 / np.sqrt(3), rel=0.05)


def silo_rows(count: int, seed: int, turn: float) -> SiloRows:
    """A bowl in one feature (and an intercept), which no line fits; ``turn`` is the silo's own part."""
    draw = np.random.default_rng(seed)
    parts = []
    for many in (count, 0, 100):
        x = np.column_stack([draw.uniform(-1, 1, many), np.ones(many)])
        parts.append((x, (x[:, 0] + turn) ** 2))
    return SiloRows(*parts)


def errors(settings: MtlSettings) -> list[float]:
    silos = [
        MtlSilo(
            settings,
            silo_rows(150, seed, turn),
            epsilon=1e6,
            delta=1e-3,
            random_bytes=random_stream(seed),
        )
        for seed, turn in enumerate((-0.1, 0.0, 0.1))
    ]
    result = asyncio.run(run_mtl(settings, InProcess(silos)))
    assert result.mean.shape == (settings.size,)
    return [silo.error_of(silo.model) for silo in silos]


@pytest.mark.parametrize("lambda_", [0.1, math.inf], ids=["own", "fedavg"])
def test_mr_mtl_fits_a_bowl_that_no_line_fits(lambda_: float) -> None:
    """Next to no noise. The line's error is that of the bowl's curvature, 4/45."""
    settings = dataclasses.replace(SETTINGS, lambdas=(lambda_,))
    line = dataclasses.replace(settings, objective="linear", hidden=0)
    straight, bent = errors(line), errors(settings)
    assert min(straight) > 0.05
    assert max(bent) < 0.25 * min(straight)


def test_silos_without_jax_are_told_what_to_install_and_servers_need_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    assert SETTINGS.models_request(1, (0,), SETTINGS.start[None]).length == SETTINGS.size + 1
    with pytest.raises(DataError, match=r"perceptron.*needs jax.*syncret\[bench\]"):
        MtlSilo(
            SETTINGS, silo_rows(5, 0, 0), epsilon=1.0, delta=1e-3, random_bytes=random_stream(0)
        )


@pytest.mark.parametrize(
    "change", [{"hidden": 0}, {"hidden": -1}, {"hidden": 5000}, {"objective": "linear"}]
)
def test_settings_reject_hidden_units_that_do_not_fit_the_objective(
    change: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match="hidden"):
        dataclasses.replace(SETTINGS, **change)  # type: ignore[arg-type]
