"""The app that Flower runs: ``server``, a ServerApp, and ``client``, a ClientApp, of flwr's Message API.

Needs the extra ``flower``. The server's run config has ``config`` and ``dir``, as `syncret serve study` does. A
client's node config (--node-config of its SuperNode) has ``config`` and ``data``, and optionally ``ca``, ``cert``,
``key``, ``dir``, ``budget``, ``dataset``, ``population`` and ``new_population``, as `syncret join` does. In a
simulation a node's config has only a ``partition-id``; ``nodes`` of the run config is then a JSON file with the list of
the nodes' configs. A deployed node never takes a path from the run config, which is the server's. Secret: contents of
the files. The cause of a client's failure stays in the client's own log: Flower sends the texts of exceptions to the
server, and they may quote a table.
"""

import asyncio
import functools
import json
import logging
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from mechanisms.source import TableSource
from parties.config import load_config
from parties.config.provenance import check_confirmed
from parties.federation.flower_envelope import RECORD, Envelope
from parties.federation.flower_members import FlowerClients
from parties.federation.server import run_federated_server
from parties.foundation.errors import ConfigError
from parties.foundation.exit_codes import describe
from parties.methods.flaim.client import BriefCache
from parties.methods.flaim.flower_node import FlowerNode
from parties.methods.flaim.report import write_server_report
from parties.methods.flaim.server import flaim_plan
from parties.methods.flaim.settings import flaim_release
from parties.observability.events import Progress, TextLines
from parties.observability.status import RunInfo, RunStatus
from parties.session.owner import DataOwner, Table
from parties.storage.populations import owners_word

server, client = ServerApp(), ClientApp()
_MESSAGE_TYPE = "query"
_PATHS = frozenset({"config", "data", "ca", "cert", "key", "dir", "budget"})


class ClientFailed(Exception):
    """A client's failure as Flower may report it to the server: its status alone."""


class _GridTransport:
    """Transport of `FlowerClients` over one of Flower's grids."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> Iterable[int]:
        return list(self._grid.get_node_ids())

    def push(
        self, letters: Sequence[tuple[int, Envelope]], *, ttl_s: float
    ) -> Sequence[str | None]:
        messages = [
            Message(_content(envelope), dst_node_id=node, message_type=_MESSAGE_TYPE, ttl=ttl_s)
            for node, envelope in letters
        ]
        return list(self._grid.push_messages(messages))

    def pull(self, ids: Sequence[str]) -> Mapping[str, Envelope | str]:
        found: dict[str, Envelope | str] = {}
        for reply in self._grid.pull_messages(ids):
            asked = reply.metadata.reply_to_message_id
            found[asked] = reply.error.reason if reply.has_error() else _envelope(reply)
        return found


def _content(envelope: Envelope) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord(envelope.to_record())})


def _envelope(message: Message) -> Envelope:
    records = message.content.config_records
    return Envelope.of_record(dict(records[RECORD]) if RECORD in records else {"": 0}, "Flower")


def serve(grid: Grid, context: Context) -> None:
    """The ServerApp: runs FLAIM once, to its end or its failure."""
    config = load_config(Path(str(context.run_config["config"])))
    folder = Path(str(context.run_config["dir"]))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    asyncio.run(
        run_federated_server(
            config,
            folder,
            plan=flaim_plan(config),
            progress=Progress(TextLines("server")),
            closed=asyncio.Event(),
            meet=functools.partial(FlowerClients, transport=_GridTransport(grid)),
            board=RunStatus(RunInfo.of_federation(config)),
        )
    )
    write_server_report(config, folder)


def take_part(message: Message, context: Context) -> Message:
    """The ClientApp: answers one message of the server."""
    try:
        answer = _node(_settings(context)).answer(_envelope(message))
    except Exception as error:  # noqa: BLE001  # The server learns the status of any error, and nothing more.
        logging.getLogger("syncret").error("%s", traceback.format_exc())
        failure = describe(error)
        raise ClientFailed(
            f"it ended with status {int(failure.status)}; its own log says why"
        ) from None
    return Message(_content(answer), reply_to=message)


def _settings(context: Context) -> Mapping[str, str]:
    """Returns the node's settings from its owner, or, in a simulation, from the run's file of nodes."""
    given = {name: str(value) for name, value in context.node_config.items()}
    if "config" not in given and "partition-id" in given:
        nodes: list[dict[str, str]] = json.loads(
            Path(str(context.run_config["nodes"])).read_bytes()
        )
        return nodes[int(given["partition-id"])]
    missing = [name for name in ("config", "data") if name not in given]
    if missing:
        raise ConfigError("--node-config", missing[0], "is missing; expected the path of a file")
    return given


def _node(settings: Mapping[str, str]) -> FlowerNode:
    data = Path(settings["data"])
    return _cached_node(tuple(sorted(settings.items())), data.stat().st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _cached_node(settings: tuple[tuple[str, str], ...], _: int) -> FlowerNode:
    """Returns the node of these settings. A process that serves several messages reads its table once."""
    given: dict[str, Any] = {
        name: Path(value) if name in _PATHS else value for name, value in settings
    }
    config, source = load_config(given["config"]), TableSource(str(given["data"]))
    check_confirmed(config)
    owner = DataOwner.of(
        config,
        Table(source, ignore_extra=False),
        dataset=given.get("dataset"),
        word=owners_word(given.get("population"), given.get("new_population")),
        budget=given.get("budget"),
        ca=given.get("ca"),
        cert=given.get("cert"),
        key=given.get("key"),
    )
    workload = config.build_workload()
    return FlowerNode(
        config,
        workload,
        owner.table.codes(config),
        owner.files,
        given.get("dir") or owner.beside("flaim"),
        owner.account(flaim_release(config)),
        _brief_cache(workload.digest(), workload),
    )


_BRIEF_CACHES: dict[str, BriefCache] = {}


def _brief_cache(digest: str, workload: Any) -> BriefCache:
    return _BRIEF_CACHES.setdefault(digest, BriefCache(workload))


server.main()(serve)
client.query()(take_part)
