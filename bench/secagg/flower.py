"""Flower's SecAgg+ on the same vectors, for comparison; needs the extra ``flower``.

``measure`` runs Flower's own server workflow (`SecAggPlusWorkflow`) and client mod (`secaggplus_mod`) in this process
over a grid that hands messages over, serialised and parsed as Flower's transport would. Times leave out, in its favour,
work outside its protocol: serialisation, transport, model parameters sent down. Its quantisation is set to keep counts
exact (one step per count, clipping beyond the range), the modulus is its default, 2^32.
"""

import importlib
import logging
import statistics
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.secagg.rounds import MAX_COUNT, Result, counts, dropped, total
from bench.secagg.security import FLOWER

_HALF = (MAX_COUNT + 1) // 2


def _flwr(module: str) -> Any:
    """Imports a module of Flower. Raises ImportError without the extra."""
    return importlib.import_module(f"flwr.{module}")


def measure(clients: int, neighbours: int, length: int, dropout: float) -> Result:
    """Runs a round with about as many ``neighbours``: Flower counts the client itself and wants an odd number."""
    identity = _flwr("supercore.task_identity").TaskIdentity
    identity.task_id, identity.run_id, identity.node_id = 1, 1, 0
    shares = clients if neighbours >= clients - 1 else neighbours | 1
    threshold = max(2, shares // 2 + 1)
    workflow = _flwr("server.workflow").SecAggPlusWorkflow(
        num_shares=shares,
        reconstruction_threshold=threshold,
        max_weight=1.0,
        clipping_range=float(_HALF),
        quantization_range=MAX_COUNT + 1,
    )
    context = _context(clients)
    grid = _Grid(clients, length, dropped(clients, dropout))
    started = time.perf_counter()
    # Its progress messages are not part of the work.
    logging.disable(logging.WARNING)
    try:
        workflow(grid, context)
    finally:
        logging.disable(logging.NOTSET)
    server_seconds = time.perf_counter() - started - grid.seconds
    staying = [u for u in range(clients) if u not in grid.drops]
    return Result(
        FLOWER,
        clients,
        shares - 1,
        threshold,
        length,
        dropout,
        statistics.fmean(grid.client_seconds),
        server_seconds,
        server_seconds + sum(grid.client_seconds),
        statistics.fmean(grid.sent[u] for u in staying),
        statistics.fmean(grid.received[u] for u in staying),
        _exact(context, set(staying), length),
    )


def _context(clients: int) -> Any:
    """Returns the server's state before the round: a model of one parameter, everybody sampled."""
    app, constant = _flwr("app"), _flwr("server.workflow.constant")
    model = _flwr("common").ndarrays_to_parameters([np.zeros(1)])
    records = _flwr("compat.common.recorddict_compat")
    state = app.RecordDict(
        {
            constant.MAIN_CONFIGS_RECORD: app.ConfigRecord({constant.Key.CURRENT_ROUND: 1}),
            constant.MAIN_PARAMS_RECORD: records.parameters_to_arrayrecord(model, keep_input=True),
        }
    )
    manager = _flwr("server.client_manager").SimpleClientManager()
    for node_id in range(1, clients + 1):
        # Flower reads only these attributes of a client's proxy.
        manager.register(SimpleNamespace(cid=str(node_id), node_id=node_id))
    return _flwr("server.compat.legacy_context").LegacyContext(
        app.Context(1, 0, {}, state, {}),
        strategy=_flwr("server.strategy").FedAvg(
            min_fit_clients=clients, min_available_clients=clients
        ),
        client_manager=manager,
    )


def _exact(context: Any, staying: set[int], length: int) -> bool:
    """Returns True if the weighted mean that Flower computes is the mean of the survivors' counts."""
    record = context.state.array_records[_flwr("server.workflow.constant").MAIN_PARAMS_RECORD]
    parameters = _flwr("compat.common.recorddict_compat").arrayrecord_to_parameters(record, True)
    (mean,) = _flwr("common").parameters_to_ndarrays(parameters)
    if mean.size != length:
        return False
    computed = np.rint((mean + _HALF) * len(staying)).astype(np.int64)
    return bool(np.array_equal(computed, total(staying, length)))


class _Grid:
    """Hands the workflow's messages to the client mod and back; client u is node u + 1."""

    def __init__(self, clients: int, length: int, drops: set[int]) -> None:
        app = _flwr("app")
        self.drops = drops
        self.length = length
        self.contexts = [app.Context(1, u + 1, {}, app.RecordDict(), {}) for u in range(clients)]
        self.client_seconds = [0.0] * clients
        self.sent = [0] * clients
        self.received = [0] * clients
        self.seconds = 0.0

    def send_and_receive(
        self, messages: Iterable[Any], *, timeout: float | None = None
    ) -> list[Any]:
        """Returns answers of all clients, errors for those that have dropped out."""
        started = time.perf_counter()
        replies = [self._answer(message) for message in messages]
        self.seconds += time.perf_counter() - started
        return replies

    def _answer(self, message: Any) -> Any:
        app, serde = _flwr("app"), _flwr("common.serde")
        constants = _flwr("common.secure_aggregation.secaggplus_constants")
        client = message.metadata.dst_node_id - 1
        proto = serde.message_to_proto(message)
        self.received[client] += proto.ByteSize()
        arrived = serde.message_from_proto(proto)
        stage = arrived.content.config_records[constants.RECORD_KEY_CONFIGS][constants.Key.STAGE]
        if stage == constants.Stage.COLLECT_MASKED_VECTORS and client in self.drops:
            return app.Message(app.Error(0, "dropped out"), reply_to=arrived)
        started = time.perf_counter()
        reply = _flwr("client.mod").secaggplus_mod(arrived, self.contexts[client], self._fit)
        self.client_seconds[client] += time.perf_counter() - started
        proto = serde.message_to_proto(reply)
        self.sent[client] += proto.ByteSize()
        return serde.message_from_proto(proto)

    def _fit(self, message: Any, context: Any) -> Any:
        """Does the client's own work: its vector, shifted to Flower's symmetric range."""
        common = _flwr("common")
        vector = (counts(context.node_id - 1, self.length) - _HALF).astype(np.float64)
        result = common.FitRes(
            common.Status(common.Code.OK, ""), common.ndarrays_to_parameters([vector]), 1, {}
        )
        content = _flwr("compat.common.recorddict_compat").fitres_to_recorddict(result, False)
        return _flwr("app").Message(content, reply_to=message)
