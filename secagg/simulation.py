"""Simulation of a round in one process: every message is packed and parsed as on a wire, and clients may drop out.

Clients can drop out at any stage. Vectors may be functions, called when their client needs them, so that a thousand
long vectors are never in memory at once. Known limits: one thread; times are of this process's clock and include
packing and parsing, but no network.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from secagg.client import SecAggClient, Values
from secagg.errors import SecAggError
from secagg.keys import Identity
from secagg.parameters import ClientPolicy, Parameters
from secagg.server import Outgoing, SecAggServer, Stage
from secagg.shamir import RandomBytes


@dataclass(slots=True)
class Report:
    """Costs of a simulated round; lists are by client id. ``failures`` has clients that ended in an error."""

    server: SecAggServer
    client_seconds: list[float]
    sent_bytes: list[int]
    received_bytes: list[int]
    server_seconds: float = 0.0
    wall_seconds: float = 0.0
    failures: dict[int, SecAggError] = field(default_factory=dict)


def policy_for(parameters: Parameters) -> ClientPolicy:
    """Returns a client policy that accepts exactly ``parameters``, for a simulation's clients."""
    return ClientPolicy(
        parameters.length,
        parameters.low,
        parameters.high,
        min_clients=parameters.clients,
        min_survivors=parameters.min_survivors,
        min_neighbours=parameters.neighbours,
        min_threshold=parameters.threshold,
        scale=parameters.scale,
        noise=parameters.noise,
        max_clients=parameters.clients,
        session=parameters.session,
        graph_seed=parameters.graph_seed,
    )


def run_round(
    parameters: Parameters,
    values: Sequence[Values | Callable[[], Values]],
    *,
    drops: Mapping[int, Stage] | None = None,
    identities: Sequence[Identity] | None = None,
    policy: ClientPolicy | None = None,
    random_bytes: RandomBytes = secrets.token_bytes,
    server_random_bytes: RandomBytes | None = None,
    tamper: Callable[[int, bytes], Sequence[bytes]] | None = None,
) -> Report:
    """Runs one session over ``values`` (one vector per client); client u of ``drops`` is silent from that stage on.

    ``server_random_bytes``: for the server's noise, where it is not to come from ``random_bytes``. ``tamper`` maps a
    client's message (with its id) to the messages that arrive. Violations by clients are kept in the report and count
    as dropping out. Raises RoundAborted where there is no sum.
    """
    drops = drops or {}
    roster = None if identities is None else [identity.public for identity in identities]
    policy = policy or policy_for(parameters)
    clients = [
        SecAggClient(
            u,
            values[u],
            policy,
            identity=None if identities is None else identities[u],
            roster=roster,
            random_bytes=random_bytes,
        )
        for u in range(parameters.clients)
    ]
    server = SecAggServer(
        parameters, roster=roster, random_bytes=server_random_bytes or random_bytes
    )
    count = parameters.clients
    report = Report(server, [0.0] * count, [0] * count, [0] * count)
    started = time.perf_counter()
    _play(report, clients, drops, tamper)
    report.wall_seconds = time.perf_counter() - started
    return report


def _play(
    report: Report,
    clients: Sequence[SecAggClient],
    drops: Mapping[int, Stage],
    tamper: Callable[[int, bytes], Sequence[bytes]] | None,
) -> None:
    server = report.server
    outgoing = _timed(report, server.start)
    while True:
        stage, following = server.stage, list[tuple[int, bytes]]()
        while outgoing:
            u, message = outgoing.pop()
            report.received_bytes[u] += len(message)
            answer = _client_step(report, clients[u], message)
            if answer is None or (u in drops and drops[u] <= stage):
                continue
            report.sent_bytes[u] += len(answer)
            for arriving in [answer] if tamper is None else tamper(u, answer):
                following += _server_step(report, u, arriving)
        if server.over and not following:
            return
        if not following and server.stage is stage:
            following = _timed(report, server.close_stage)
        outgoing = following


def _client_step(report: Report, client: SecAggClient, message: bytes) -> bytes | None:
    started = time.perf_counter()
    try:
        return client.receive(message)
    except SecAggError as error:
        report.failures.setdefault(client.client, error)
        return None
    finally:
        report.client_seconds[client.client] += time.perf_counter() - started


def _server_step(report: Report, client: int, message: bytes) -> Outgoing:
    try:
        return _timed(report, lambda: report.server.receive(client, message))
    except SecAggError as error:
        if report.server.stage is Stage.ABORTED:
            raise
        report.failures.setdefault(client, error)
        return []


def _timed(report: Report, step: Callable[[], Outgoing]) -> Outgoing:
    started = time.perf_counter()
    try:
        return step()
    finally:
        report.server_seconds += time.perf_counter() - started
