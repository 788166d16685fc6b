"""Secure aggregation by pairwise masks: the sum of many clients' integer vectors, and nothing else.

``SecAggClient`` and ``SecAggServer`` are state machines that take a message and return messages; ``run_round`` plays a
whole round in one process. README.md has the proof and the wire format, docs/decisions the choices.

Notation, after Bonawitz et al.: clients are u, v in 0 to n - 1; x_u is a client's vector, b_u the seed of its own mask,
s_u its mask key, s_uv the key of the mask it has in common with v, F the keystream; k neighbours, t shares recover a
secret. U1 to U5 are the clients that advertised, shared, sent a masked vector (the survivors), signed, revealed.
"""

from secagg.client import SecAggClient
from secagg.errors import SecAggError
from secagg.graph import Adversary, ThreatModel, choose
from secagg.keys import Identity
from secagg.noise import NoiseKind, SessionNoise, distributed_noise, server_noise
from secagg.parameters import ClientPolicy, Parameters, roster_digest
from secagg.server import SecAggServer, Stage
from secagg.simulation import run_round

__all__ = [
    "Adversary",
    "ClientPolicy",
    "Identity",
    "NoiseKind",
    "Parameters",
    "SecAggClient",
    "SecAggError",
    "SecAggServer",
    "SessionNoise",
    "Stage",
    "ThreatModel",
    "choose",
    "distributed_noise",
    "roster_digest",
    "run_round",
    "server_noise",
]
