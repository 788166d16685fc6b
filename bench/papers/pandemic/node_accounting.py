"""Privacy cost of noisy sums of clipped gradients for a node of a graph, whose data are in several examples.

``NodeSampling`` describes the batches; ``published_rdp`` and ``amplified_rdp`` bound the Renyi divergence of one step;
on top of either, ``node_cost`` gives the epsilon of a training and ``least_noise`` is its inverse.

Neighbouring graphs: all of one node's own data is replaced: features, states, label, and the data on its edges. Its set
of neighbours stays. The node is in its own example and, after pruning, in at most K others: ``occurrences`` is K + 1. A
step draws ``batch`` of the examples, all such sets equally likely and independently of earlier ones
(``bench.papers.pandemic.batches``), sums their gradients clipped to C, and adds N(0, (noise C)^2) to each coordinate.
So the number of the node's examples in a batch is rho ~ Hypergeometric(nodes, occurrences, batch), independent of the
graph's data, and the sum moves by 2 C rho at most.

All values here are public. Representation: doubles; a divergence is raised by ``_SLACK`` for errors of quadrature and
rounding. Source: Daigavane et al., Node-level differentially private graph neural networks (2021), with two
corrections; Balle, Barthe, Gaboardi (NeurIPS 2018), Theorem 2. README.md has the derivation. Limits: a node's set of
neighbours is not protected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.events import check_positive
from mechanisms.rdp import epsilon_of

Rdp: TypeAlias = Callable[["Occurrences", float, NDArray[np.float64]], NDArray[np.float64]]
"""Function of occurrences, noise and orders (a,), all above 1, to bounds (a,) on one step's divergences."""

ORDERS = np.concatenate(
    [[1.1], np.arange(1.25, 10, 0.25), np.arange(10, 64, 2), np.arange(64, 257, 16)]
)
_SLACK = 1e-6
_PANELS, _DEGREE = 48, 16
# Beyond this many deviations past its peak an integrand is below 1e-31 of it.
_REACH = 12.0


@dataclass(frozen=True, slots=True)
class NodeSampling:
    """Sampling of ``batch`` of the examples of ``nodes`` nodes per step.

    A node's data are in at most ``occurrences`` examples. Raises ``ValueError`` unless 1 <= batch <= nodes and 1 <=
    occurrences <= nodes.
    """

    nodes: int
    batch: int
    occurrences: int

    def __post_init__(self) -> None:
        for name in ("batch", "occurrences"):
            if not 1 <= getattr(self, name) <= self.nodes:
                raise ValueError(
                    f"{name} = {getattr(self, name)}; expected 1 to {self.nodes}, the number of nodes"
                )

    def counts(self) -> Occurrences:
        """Returns the distribution of the number of a node's examples in a batch."""
        spare = self.nodes - self.occurrences
        least, most = max(0, self.batch - spare), min(self.occurrences, self.batch)
        rho = np.arange(least, most + 1)
        # Whole numbers of thousands of bits: gamma functions would lose half the digits of the chance of none.
        # P(rho) = C(occurrences, rho) C(nodes - occurrences, batch - rho) / C(nodes, batch).
        ways = [
            math.comb(self.occurrences, count) * math.comb(spare, self.batch - count)
            for count in rho.tolist()
        ]
        total = math.log(math.comb(self.nodes, self.batch))
        return Occurrences(rho, np.array([math.log(way) - total for way in ways]))


@dataclass(frozen=True, slots=True)
class Occurrences:
    """Distribution of the number of a node's examples in a batch: ``rho`` with log-probability ``log_p``, both (r,)."""

    rho: NDArray[np.int64]
    log_p: NDArray[np.float64]

    def at_most(self, most: int) -> tuple[Occurrences, float]:
        """Returns the distribution given at most ``most`` examples, and the chance of more."""
        kept = self.rho <= most
        # Summed from the smallest: the part left out is far below the last digit of one.
        beyond = float(np.exp(self.log_p[~kept]).sum())
        log_p = self.log_p[kept]
        return Occurrences(self.rho[kept], log_p - np.logaddexp.reduce(log_p)), beyond


@dataclass(frozen=True, slots=True)
class NodeCost:
    """(``epsilon``, delta) of a training.

    Batches with more than ``most`` of a node's examples are paid from delta, ``delta_beyond`` of it.
    """

    epsilon: float
    most: int
    delta_beyond: float


def published_rdp(
    counts: Occurrences, noise: float, orders: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Daigavane et al.: 1/(a-1) ln E exp(a (a-1) (2 rho)^2 / (2 noise^2)).

    The exponential of a divergence is jointly convex, so that batches drawn alike from both graphs may be averaged.
    Shapes: (a,) of orders (a,). Raises ``ValueError`` unless noise is positive.
    """
    check_positive("noise", noise)
    order = orders[:, None]
    exponents = counts.log_p + order * (order - 1) * (2 * counts.rho / noise) ** 2 / 2
    bound = np.logaddexp.reduce(exponents, axis=1) / (orders - 1)
    return np.asarray(bound * (1 + _SLACK))


def amplified_rdp(
    counts: Occurrences, noise: float, orders: NDArray[np.float64]
) -> NDArray[np.float64]:
    """1/(a-1) ln(1 + sum over rho of P(rho | rho >= 1) E[phi(1 + p (L - 1)); L > 1]), with p = P(rho >= 1).

    L is the likelihood ratio of N(2 rho, noise^2) over N(0, noise^2), the expectation is over the latter, and phi(x) =
    x^a + x^(1-a) - 1 - x. Unlike ``published_rdp`` it uses that batches without the node reveal nothing. Shapes: (a,)
    of orders (a,). Raises ``ValueError`` unless noise is positive.
    """
    check_positive("noise", noise)
    log_none = float(counts.log_p[counts.rho == 0].sum()) if (counts.rho == 0).any() else -math.inf
    hit = counts.rho > 0
    p = -math.expm1(log_none)
    log_p_given = counts.log_p[hit] - math.log(p)
    shift = (2 * counts.rho[hit] / noise)[:, None]
    bounds = [
        np.logaddexp(0.0, _log_moment(order, p, shift, log_p_given[:, None])) / (order - 1)
        for order in orders.tolist()
    ]
    return np.array(bounds) * (1 + _SLACK)


def _log_moment(
    order: float, p: float, shift: NDArray[np.float64], log_p: NDArray[np.float64]
) -> float:
    """Returns the logarithm of the sum over rho in ``amplified_rdp``; ``shift`` is 2 rho / noise; both (r, 1)."""
    # With y standard normal, L = exp(s y - s^2 / 2) exceeds 1 from y = s / 2 on, and L^a has its peak at y = a s.
    length = (max(order, 2.0) - 0.5) * shift + _REACH
    y = shift / 2 + _NODES * length
    log_ratio = shift * y - shift**2 / 2
    # x = 1 + p (L - 1) = (1 - p) + p L.
    log_x = np.logaddexp(math.log1p(-p) if p < 1 else -math.inf, math.log(p) + log_ratio)
    # Quadrature weights times the standard normal density at y.
    weights = np.log(_WEIGHTS) + np.log(length) - y**2 / 2 - math.log(2 * math.pi) / 2
    excess = p * np.expm1(np.minimum(log_ratio, 700.0))
    return float(np.logaddexp.reduce((_log_phi(order, log_x, excess) + weights + log_p).ravel()))


def _log_phi(
    order: float, log_x: NDArray[np.float64], excess: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns ln phi(x), or a little more, at x = exp(``log_x``) = 1 + ``excess`` > 1."""
    # Near 1 phi is a difference of nearly equal numbers: there it is Taylor's bound with the largest second derivative.
    near, small = np.minimum(excess, 1e-6), np.minimum(log_x, 1.0)
    curvature = order * (order - 1) * ((1 + near) ** max(order - 2, 0.0) + 1)
    # phi(x) = (x^a - 1) + (x^(1-a) - 1) - (x - 1).
    moderate = np.expm1(order * small) + np.expm1((1 - order) * small) - np.expm1(small)
    large = np.maximum(log_x, 1.0)
    # phi(x) = x^a (1 + x^(1-2a) - x^-a - x^(1-a)).
    rest = np.exp((1 - 2 * order) * large) - np.exp(-order * large) - np.exp((1 - order) * large)
    return np.where(
        log_x > 1.0,
        order * large + np.log1p(rest),
        np.log(np.where(excess < 1e-6, curvature * near**2 / 2, moderate)),
    )


def _panels() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns nodes and weights on [0, 1]: Gauss and Legendre's rule on equal panels."""
    nodes, weights = np.polynomial.legendre.leggauss(_DEGREE)
    starts = np.arange(_PANELS)[:, None]
    return ((starts + (nodes + 1) / 2) / _PANELS).ravel(), np.tile(weights / 2 / _PANELS, _PANELS)


_NODES, _WEIGHTS = _panels()


def node_cost(
    sampling: NodeSampling,
    noise: float,
    *,
    steps: int,
    delta: float,
    rdp: Rdp = amplified_rdp,
    orders: NDArray[np.float64] = ORDERS,
) -> NodeCost:
    """Returns the least epsilon at ``delta`` of ``steps`` steps that the bound ``rdp`` gives.

    The number of a node's examples in a batch does not depend on the graph's data. So if with probability 1 - beta no
    batch has more than some number, a guarantee (epsilon, delta - beta) for such batches is (epsilon, delta) for all.

    Raises ``ValueError`` unless steps is positive and 0 < delta < 1.
    """
    check_positive("steps", steps)
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}; expected above 0 and below 1")
    counts = sampling.counts()
    costs = []
    for most in counts.rho[counts.rho > 0].tolist():
        given, beyond = counts.at_most(most)
        left = delta - steps * beyond
        if left <= 0:
            continue
        epsilon = epsilon_of(steps * rdp(given, noise, orders), left, orders.tolist())
        costs.append(NodeCost(epsilon, most, steps * beyond))
        # Each further example is rarer by orders of magnitude; soon all of delta is left.
        if steps * beyond < delta * 1e-3:
            break
    return min(costs, key=lambda cost: cost.epsilon)


def least_noise(
    sampling: NodeSampling, *, steps: int, epsilon: float, delta: float, rdp: Rdp = amplified_rdp
) -> float:
    """Returns the least noise multiplier, up to two in a thousand above it, that costs at most (epsilon, delta).

    Raises ``ValueError`` as ``node_cost``, or for an epsilon that is not positive or needs more noise than 10,000.
    """
    check_positive("epsilon", epsilon)
    low, high = 0.05, 0.1
    while node_cost(sampling, high, steps=steps, delta=delta, rdp=rdp).epsilon > epsilon:
        low, high = high, 2 * high
        if high > 1e4:
            raise ValueError(
                f"epsilon = {epsilon} takes noise above 10,000: fewer steps, smaller batches or more nodes are needed"
            )
    while high > low * 1.002:
        middle = math.sqrt(low * high)
        if node_cost(sampling, middle, steps=steps, delta=delta, rdp=rdp).epsilon > epsilon:
            low = middle
        else:
            high = middle
    return high
