"""Commands `close`, `finish` and `revoke`: requests of an operator to the run of its server."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mechanisms.text_table import and_list
from parties.cli.maintain import server_folders
from parties.cli.runtime import common_options
from parties.foundation.errors import StoreError
from parties.service.status_client import get_document, send_command

_AGREE_S = 3.0
"""Time to wait for the other servers' agreement, in seconds."""
_DIRECTORY = click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path), default=Path()
)


@click.command(epilog="Example: syncret close /var/lib/syncret/stays-2026")
@_DIRECTORY
@common_options
def close(directory: Path, as_json: bool) -> None:
    """Take no further data owners in the run of the server in DIR, and begin with those that are complete.

    It takes effect when the operators of all three servers have asked it, and clients.minimum owners are complete; an
    owner that comes later is told. FLAIM has one server, whose operator's word is enough. Of a service of studies it is
    `syncret study close`.
    """
    _ask(directory, "close", as_json=as_json)


@click.command(epilog="Example: syncret finish /var/lib/syncret/stays-2026")
@_DIRECTORY
@common_options
def finish(directory: Path, as_json: bool) -> None:
    """End the run of the server in DIR with the rounds that are done: no further one begins.

    It takes effect when the operators of all three servers have asked it, after the round that is under way; what
    further rounds would have cost is not charged. The synthetic table is made of what was measured. Of a service of
    studies it is `syncret study finish`.
    """
    _ask(directory, "finish", as_json=as_json)


@click.command(epilog="Example: syncret revoke /var/lib/syncret/stays-2026 north")
@_DIRECTORY
@click.argument("owner")
@common_options
def revoke(directory: Path, owner: str, as_json: bool) -> None:
    """Turn the data owner called OWNER in its certificate away from the run of the server in DIR, for good.

    This server takes nothing of it from now on. When the operators of all three servers have asked it, what it has sent
    is taken out of the count and deleted, unless a round has used it. Of a service of studies it is `syncret study
    revoke`.
    """
    _ask(directory, "revoke", {"owner": owner}, as_json=as_json)


def _ask(
    directory: Path, name: str, body: Mapping[str, object] | None = None, *, as_json: bool
) -> None:
    folder, *more = server_folders(directory)
    if more:
        raise click.UsageError(f"one server at a time: give {folder}, or another one's folder")
    if "service" in get_document(folder):
        text = f"{folder} is a service's, of several studies: syncret study {name} STUDY --dir {folder}"
        raise click.UsageError(text)
    taken, answer = send_command(folder, name, body)
    if not taken:
        error = answer.get("error", {})
        raise StoreError(folder, f"{error.get('what')}; expected {error.get('expected')}")
    status = _agreed(folder, name, body)
    click.echo(_json(status) if as_json else _text(status, name, body))


def _agreed(folder: Path, name: str, body: Mapping[str, object] | None) -> dict[str, Any]:
    """Returns the server's status, as soon as all servers agree on the command, or after ``_AGREE_S``."""
    ends = time.monotonic() + _AGREE_S
    while True:
        status = get_document(folder)
        if time.monotonic() >= ends or _is_requested(status["asked"]["agreed"], name, body):
            return status
        time.sleep(0.2)


def _is_requested(asked: Mapping[str, Any], name: str, body: Mapping[str, object] | None) -> bool:
    if body is None:
        return bool(asked[name])
    return body["owner"] in asked["revoked"]


def _json(status: Mapping[str, Any]) -> str:
    return json.dumps(status["asked"])


def _text(status: Mapping[str, Any], name: str, body: Mapping[str, object] | None) -> str:
    orders, study = status["asked"], status["study"]["id"]
    what = f"{name} {study}" if body is None else f"revoke {body['owner']} in {study}"
    if _is_requested(orders["agreed"], name, body):
        return f"{what}: agreed; {_EFFECTS[name]}"
    silent = [one["party"] for one in orders["told"] if not _is_requested(one, name, body)]
    silent = [party for party in silent if party != status["party"]["name"]]
    others: Sequence[str] = silent or [peer["name"] for peer in status["peers"]]
    return (
        f"{what}: asked by {status['party']['name']}; it takes effect when {and_list(others)} ask it, too "
        f"(syncret {name}, at each)"
    )


_EFFECTS = {
    "close": "no further data owners are taken",
    "finish": "the run ends after the round that is under way",
    "revoke": "what it has sent is taken out, unless a round has used it",
}
