"""Privacy cost of training on Poisson-sampled, clipped and noised gradients: Renyi divergence of the sampled Gaussian.

Neighbouring tables differ by one row, which a step draws with probability `rate` independently of all others. All
values here are public. Representation: doubles, for a benchmark's noise.

Source: Mironov, Talwar, Zhang (2019), section 3.3, for whole orders; Canonne, Kamath, Steinke (2020), Proposition 12,
for the conversion.
"""

import math

import numpy as np
from scipy.special import gammaln, logsumexp  # type: ignore[import-untyped]

ORDERS = np.concatenate([np.arange(2, 64), np.arange(64, 513, 16)])


def epsilon_of(noise: float, rate: float, steps: int, delta: float, *, rho: float = 0.0) -> float:
    """Returns epsilon at `delta` of `steps` steps of noise multiplier `noise`: the least over the orders.

    `rho` is the zCDP cost of all other releases, whose divergence of order a is rho a.

    Raises ValueError for a number out of range.
    """
    if not (noise > 0 and 0 < rate <= 1 and steps >= 1 and 0 < delta < 1):
        raise ValueError(
            f"noise {noise}, rate {rate}, {steps} steps, delta {delta}; expected positive numbers, rates up to 1"
        )
    best = math.inf
    for order in ORDERS.tolist():
        divergence = steps * _divergence(noise, rate, order) + rho * order
        found = divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        best = min(best, found)
    return max(best, 0.0)


def _divergence(noise: float, rate: float, order: int) -> float:
    """Divergence of one step: log of sum_k binom(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) / 2 sigma^2), over a - 1."""
    if rate == 1:
        return order / (2 * noise**2)
    k = np.arange(order + 1)
    chosen = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    terms = chosen + (order - k) * math.log1p(-rate) + k * math.log(rate)
    return float(logsumexp(terms + k * (k - 1) / (2 * noise**2))) / (order - 1)


def least_noise(
    epsilon: float, rate: float, steps: int, delta: float, *, rho: float = 0.0
) -> float:
    """Returns the least noise multiplier, to one part in 1,000 upwards, whose epsilon with `rho` is at most `epsilon`.

    Raises ValueError if `rho` alone costs more.
    """
    if epsilon_of(1e6, rate, 1, delta, rho=rho) > epsilon:
        raise ValueError(
            f"rho = {rho:g} alone is more than epsilon = {epsilon:g}, delta = {delta:g}"
        )
    low, high = 0.05, 0.1
    while epsilon_of(high, rate, steps, delta, rho=rho) > epsilon:
        low, high = high, 2 * high
    while high > low * 1.001:
        middle = (low + high) / 2
        if epsilon_of(middle, rate, steps, delta, rho=rho) > epsilon:
            low = middle
        else:
            high = middle
    return high
