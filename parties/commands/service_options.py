"""What the commands of a service have in common: its folder, and what its operator asks it."""

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from parties.config import Address
from parties.operate.asking import NotRunning, call
from parties.statuses import ServiceRefused, Status

DEFAULT = Path("/var/lib/syncret")
VARIABLE = "SYNCRET_DIR"
_STATUSES: dict[int, Status] = {
    HTTPStatus.UNPROCESSABLE_ENTITY: Status.CONFIG,
    HTTPStatus.BAD_GATEWAY: Status.NETWORK,
    HTTPStatus.SERVICE_UNAVAILABLE: Status.NETWORK,
}

folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=DEFAULT,
    envvar=VARIABLE,
    show_default=True,
    show_envvar=True,
    help="The service's folder. Keys and shares are in it: keep it to yourself.",
)


def an_address(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Address | None:
    """HOST:PORT as an option's value."""
    try:
        return None if value is None else Address.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


def asked(
    folder: Path, method: str, target: str, document: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """What the service in ``folder`` answers. Raises ServiceRefused, StoreError."""
    try:
        status, answer = call(folder, method, target, document)
    except NotRunning as error:
        raise ServiceRefused(
            f"no service runs in {folder}; expected `syncret serve --dir {folder}`, or where it runs as --dir or "
            f"in {VARIABLE}",
            Status.NOT_RUNNING,
        ) from error
    if status >= HTTPStatus.BAD_REQUEST:
        said = answer.get("error")
        detail = said if isinstance(said, dict) else {}
        text = f"{detail.get('what', status)}; expected {detail.get('expected', 'another order')}"
        raise ServiceRefused(text, _STATUSES.get(status, Status.USAGE))
    return answer
