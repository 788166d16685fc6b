"""What silos send: by the Fed-TDA paper's counting, and in sessions of SecAgg, every message the real one.

Provides `model_mb`, `values_mb`, `mixed_mb` and `sum_mb`. Public: everything. MB are 10^6 bytes, sums over all silos
and rounds, of what silos send; the paper counts 4 bytes a value. Limits: frames and TLS, a few dozen bytes a message,
are not in it.
"""

import secrets
from functools import lru_cache
from typing import Final

import numpy as np

from bench.tda.classifier import parameters
from secagg.graph import SEED_BYTES
from secagg.parameters import SESSION_BYTES, Parameters
from secagg.simulation import run_round

VALUE_BYTES: Final = 4
MIB: Final = 1 << 20
MODEL_BITS: Final = 32
"""Of one silo's value of a model in fixed point, as exact as the paper's floats."""


def model_mb(width: int, classes: int, *, clients: int, rounds: int) -> tuple[float, float]:
    """Models of a network of `width` inputs: what SecAgg sends of them, and the paper's counting."""
    return values_mb(parameters(width, classes), clients=clients, rounds=rounds)


def values_mb(values: int, *, clients: int, rounds: int) -> tuple[float, float]:
    """As many `values` of every silo, summed in each round: what SecAgg sends of them, and the paper's counting."""
    half = 1 << (MODEL_BITS - 1)
    sent = rounds * sum_mb(values, -half, half - 1, clients)
    return sent, clients * rounds * values * VALUE_BYTES / 1e6


def mixed_mb(width: int, classes: int, *, rows: int, size: int) -> float:
    """Fedmix's means of `size` rows each, once, beside the models."""
    return rows // size * (width + classes) * VALUE_BYTES / 1e6


@lru_cache(maxsize=256)
def sum_mb(length: int, low: int, high: int, clients: int) -> float:
    """What all silos together send in one session of SecAgg over `length` numbers in [`low`, `high`], nobody lost."""
    if clients < 2:
        return 0.0
    session = Parameters(
        session=secrets.token_bytes(SESSION_BYTES),
        graph_seed=secrets.token_bytes(SEED_BYTES),
        clients=clients,
        neighbours=clients - 1,
        threshold=clients // 2 + 1,
        min_survivors=clients,
        length=length,
        low=low,
        high=high,
    )
    vectors = [np.full(length, max(low, 0), np.int64)] * clients
    return sum(run_round(session, vectors).sent_bytes) / 1e6
