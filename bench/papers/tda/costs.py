"""Traffic of silos: by the Fed-TDA paper's counting, and in sessions of SecAgg, every message the real one.

MB are 10^6 bytes sent, sums over all silos and rounds; the paper counts 4 bytes a value. All values here are public.
Limits: frames and TLS, a few dozen bytes a message, are not included.
"""

import secrets
from functools import lru_cache
from typing import Final

import numpy as np

from bench.papers.tda.classifier import parameters
from secagg.graph import SEED_BYTES
from secagg.parameters import SESSION_BYTES, Parameters
from secagg.simulation import run_round

VALUE_BYTES: Final = 4
MIB: Final = 1 << 20
MODEL_BITS: Final = 32
"""Bits of one silo's value of a model in fixed point, as exact as the paper's floats."""


def model_mb(width: int, classes: int, *, clients: int, rounds: int) -> tuple[float, float]:
    """Returns the MB of models of a network of `width` inputs: by SecAgg, and by the paper's counting."""
    return values_mb(parameters(width, classes), clients=clients, rounds=rounds)


def values_mb(values: int, *, clients: int, rounds: int) -> tuple[float, float]:
    """Returns the MB of `values` of every silo, summed in each round: by SecAgg, and by the paper's counting."""
    half = 1 << (MODEL_BITS - 1)
    sent = rounds * sum_mb(values, -half, half - 1, clients)
    return sent, clients * rounds * values * VALUE_BYTES / 1e6


def mixed_mb(width: int, classes: int, *, rows: int, size: int) -> float:
    """Returns the MB of Fedmix's means of `size` rows each, sent once, beside the models."""
    return rows // size * (width + classes) * VALUE_BYTES / 1e6


@lru_cache(maxsize=256)
def sum_mb(length: int, low: int, high: int, clients: int) -> float:
    """MB of all silos in one session of SecAgg over `length` numbers in [`low`, `high`], without dropouts."""
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
