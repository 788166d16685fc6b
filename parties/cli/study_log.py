"""Commands `study log` and `study check-log`: the signed log of a service's operators, and its check elsewhere."""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from parties.cli.options import folder_option, service_answer
from parties.cli.runtime import common_options, print_json, print_lines, say
from parties.identity.join_documents import fingerprint_lines
from parties.storage.files import atomic_replacement

_PATH = click.Path(path_type=Path)
_LINES, _BEYOND = 50, 10**12


@click.command(
    "log",
    short_help="Show the operators' log, or export it.",
    epilog="Example: syncret study log --export alpha.log",
)
@click.option("--export", type=_PATH, default=None, help="A file for all of it, signed.")
@folder_option
@common_options
def log_command(export: Path | None, folder: Path, *, as_json: bool) -> None:
    """Show the latest entries of the operators' log: who approved, admitted, ended or replaced what, and when.

    Each entry is signed by this server and has the hash of the one before. With --export, all of it goes into a file
    that `syncret study check-log` verifies anywhere.
    """
    if export is None:
        seal = json.loads(service_answer(folder, "GET", f"/log?after={_BEYOND}")["seal"])
        lines = list(_lines(folder, max(0, seal["entries"] - _LINES)))
        shown = [json.loads(line) for line in lines[:-1]]
        if as_json:
            print_json({"entries": shown})
        else:
            print_lines([_entry_text(entry) for entry in shown] or ["no entries"])
        return
    count = -1
    with atomic_replacement(export) as path, path.open("w", encoding="utf-8") as file:
        for line in _lines(folder):
            file.write(line + "\n")
            count += 1
    if as_json:
        print_json({"log": str(export), "entries": count})
    else:
        say(f"{export}: {count} entries and their seal; verify it with: syncret study check-log")


def _lines(folder: Path, after: int = 0) -> Iterator[str]:
    """Yields the lines of the log that follow entry ``after``, and the seal. Raises ServiceRefused."""
    while True:
        page = service_answer(folder, "GET", f"/log?after={after}")
        yield from page["lines"]
        after += len(page["lines"])
        if page["seal"] is not None:
            yield page["seal"]
            return


def _entry_text(entry: dict[str, Any]) -> str:
    at = str(entry["at"])[:19].replace("T", " ")
    subject = f" ({entry['subject']})" if entry.get("subject") else ""
    actor = f"  {entry['actor']}{subject}:" if entry.get("actor") else ""
    said = [str(entry[key]) for key in ("study", "reason") if entry.get(key)]
    return f"{entry['number']}  {at}{actor}  {entry['event']}" + "".join(f", {s}" for s in said)


def _time(_: click.Context, __: click.Parameter, value: str | None) -> datetime.datetime | None:
    """Returns the time in a text. Raises BadParameter."""
    if value is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(value)
    except ValueError as error:
        text = f"is {value!r}; expected a time such as 2026-11-28 or 2026-11-28T09:30Z"
        raise click.BadParameter(text) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)


@click.command(
    "check-log",
    short_help="Verify an exported operators' log.",
    epilog="Example: syncret study check-log alpha.log --server alpha.server",
)
@click.argument("file", type=_PATH)
@click.option(
    "--server",
    type=_PATH,
    default=None,
    help="The public file of the server, as its operator has handed it over.",
)
@click.option("--earlier", type=_PATH, default=None, help="An earlier export, to be continued.")
@click.option(
    "--begun-by",
    metavar="TIME",
    callback=_time,
    default=None,
    help="A time by which the log has to have begun, such as 2026-11-28 or 2026-11-28T09:30Z; without a zone in UTC.",
)
@common_options
def check_log_command(
    file: Path,
    server: Path | None,
    earlier: Path | None,
    *,
    begun_by: datetime.datetime | None,
    as_json: bool,
) -> None:
    """Verify the FILE that `study log --export` has made, without the service: order, hashes, signatures and the seal.

    Found are entries that were changed, left out, swapped or cut off. Give --server, or compare the words of the key
    with the server's operator: anybody can make a log with a key of their own. Entries that were deleted
    in the service before the export are found with --earlier, and a log that was begun anew with --begun-by.
    """
    from parties.service.identity import ServerFile
    from parties.service.operators_log import check_log, read_lines

    found = check_log(
        read_lines(file),
        server=None if server is None else ServerFile.load(server),
        earlier=None if earlier is None else read_lines(earlier),
        begun_by=begun_by,
    )
    if as_json:
        print_json(
            {
                "server": found.server.name,
                "entries": len(found.entries),
                "keys": list(found.keys),
                "head": found.head,
                "begun": found.begun,
                "sealed": found.sealed,
                "pinned": server is not None,
            }
        )
        return
    print_lines(
        [
            f"{file}: {len(found.entries)} entries of {found.server.name}, whole and in order, begun "
            f"{found.begun}, sealed {found.sealed}",
            *([] if server is not None else fingerprint_lines(found.keys[-1])),
        ]
    )
    if server is None:
        say(f"compare these words with the operator of {found.server.name}")
