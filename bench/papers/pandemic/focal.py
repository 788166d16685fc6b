"""Logistic regression's losses: the focal one, and cross-entropy.

A ``Loss`` maps margins (b,) and labels (b,) to the derivatives of each example's loss by the margin. A gradient is the
derivative times the example.

Source: Lin et al. (ICCV 2017): -alpha_t (1 - p_t)^gamma ln p_t, with p_t the probability of the true label, alpha_t =
alpha for label 1 and 1 - alpha for 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

ALPHA, GAMMA = 0.75, 2.0

Loss: TypeAlias = Callable[[NDArray[np.float64], NDArray[np.bool_]], NDArray[np.float64]]


def focal(margin: NDArray[np.float64], label: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The focal loss' derivative: alpha_t (1 - p_t)^gamma (gamma p_t ln p_t + p_t - 1), with the label's sign."""
    sign = np.where(label, 1.0, -1.0)
    # ln p_t and ln (1 - p_t) without overflow.
    log_p = -np.logaddexp(0.0, -sign * margin)
    log_rest = -np.logaddexp(0.0, sign * margin)
    weight = np.where(label, ALPHA, 1 - ALPHA)
    p = np.exp(log_p)
    return np.asarray(
        sign * weight * np.exp(GAMMA * log_rest) * (GAMMA * p * log_p - np.exp(log_rest))
    )


def cross_entropy(margin: NDArray[np.float64], label: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns cross-entropy's derivative, p - y."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -margin)) - label)
