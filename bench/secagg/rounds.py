"""SecAgg's cost: whole rounds in one process, every message packed and parsed.

Vectors are generated counts and public. Dropouts happen at the most expensive moment, after the keys are shared and
before the masked vector. Seconds per client are a mean over all clients, dropped ones included; bytes are whole
messages and a mean over the clients that stay.
"""

import importlib.util
import secrets
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from bench.secagg.security import MODEL, OURS, SIGNED, bits_of
from secagg.keys import Identity
from secagg.parameters import Parameters, roster_digest
from secagg.server import Stage
from secagg.simulation import run_round

DEFAULT_CLIENTS = (10, 50, 100)
DEFAULT_LENGTH = 32_768
DEFAULT_NEIGHBOURS = 21
MAX_COUNT = 65_535


@dataclass(frozen=True, slots=True)
class Result:
    """One round; ``neighbours`` are others than the client itself, ``exact`` compares the sum cell by cell.

    ``threshold``: number of shares that recover a secret.
    """

    implementation: str
    clients: int
    neighbours: int
    threshold: int
    length: int
    dropout: float
    client_seconds_mean: float
    server_seconds: float
    wall_seconds: float
    client_sent_bytes_mean: float
    client_received_bytes_mean: float
    exact: bool

    def to_json(self) -> dict[str, object]:
        """Returns the fields by name, and the security of the parameters (`bench.secagg.security`)."""
        worth = bits_of(self.implementation, self.clients, self.neighbours, self.threshold)
        return {**asdict(self), **worth}


def counts(client: int, length: int) -> NDArray[np.int64]:
    """Returns the vector of a client: (length,) integers in [0, MAX_COUNT]."""
    return (np.arange(length, dtype=np.int64) * 7919 + client * 104_729) % (MAX_COUNT + 1)


def total(clients: frozenset[int] | set[int], length: int) -> NDArray[np.int64]:
    """Returns the sum of the vectors of ``clients``."""
    summed = np.zeros(length, np.int64)
    for client in clients:
        summed += counts(client, length)
    return summed


def dropped(clients: int, dropout: float) -> set[int]:
    """Returns the ids of the clients that drop out, spread over the range."""
    count = round(clients * dropout)
    return {client * clients // count for client in range(count)} if count else set()


def measure(
    clients: int,
    neighbours: int,
    length: int,
    dropout: float,
    *,
    threshold: int | None = None,
    signed: bool = False,
) -> Result:
    """Runs one round of Syncret's SecAgg; ``neighbours`` of ``clients`` - 1 or more is the complete graph.

    ``threshold`` None: a majority of the neighbours. Raises ParameterError if no such round is possible: an odd
    number of neighbours among an odd number of clients, or a threshold that does not fit.
    """
    k = min(neighbours, clients - 1)
    threshold, least = _thresholds(clients, k, threshold, dropout, signed=signed)
    identities = [Identity(secrets.token_bytes(32)) for _ in range(clients)] if signed else None
    roster = None if identities is None else [identity.public for identity in identities]
    parameters = Parameters(
        secrets.token_bytes(32),
        clients,
        k,
        threshold,
        least,
        length,
        0,
        MAX_COUNT,
        graph_seed=secrets.token_bytes(32),
        roster_digest=bytes(32) if roster is None else roster_digest(roster),
    )
    drops = dict.fromkeys(dropped(clients, dropout), Stage.MASKED)

    def supply(client: int) -> Callable[[], NDArray[np.int64]]:
        return lambda: counts(client, length)

    report = run_round(
        parameters, [supply(u) for u in range(clients)], drops=drops, identities=identities
    )
    staying = sorted(report.server.survivors)
    expected = total(report.server.survivors, length)
    return Result(
        SIGNED if signed else OURS,
        clients,
        k,
        threshold,
        length,
        dropout,
        statistics.fmean(report.client_seconds),
        report.server_seconds,
        report.wall_seconds,
        statistics.fmean(report.sent_bytes[u] for u in staying),
        statistics.fmean(report.received_bytes[u] for u in staying),
        bool(np.array_equal(report.server.exact_result, expected)),
    )


def _thresholds(
    clients: int, neighbours: int, asked: int | None, dropout: float, *, signed: bool
) -> tuple[int, int]:
    """Returns the threshold, and the fewest survivors: with ``asked``, all but the threat model's dropouts."""
    if asked is not None:
        gone = max(MODEL.dropped_clients(clients), len(dropped(clients, dropout)))
        return asked, max(asked + 1, clients - gone)
    sparse = signed and neighbours < clients - 1
    majority = (neighbours + 1) // 2 + 1 if sparse else max(2, neighbours // 2 + 1)
    return majority, majority + 1


def flower_available() -> bool:
    """Returns True if the extra ``flower`` is installed."""
    return importlib.util.find_spec("flwr") is not None
