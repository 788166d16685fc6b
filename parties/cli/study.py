"""Command `study`: an operator's actions on the studies of a running service."""

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from mechanisms.text_table import and_list
from parties.cli.apply import apply
from parties.cli.options import (
    DEFAULT,
    authority_option,
    days_option,
    folder_option,
    service_answer,
)
from parties.cli.proposals import propose_study
from parties.cli.runtime import common_options, print_json, print_lines, say
from parties.cli.study_log import check_log_command, log_command
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import ServiceRefused, Status
from parties.identity.admission_certificate import admission_certificate
from parties.identity.invitation import SUFFIX, make_invitation
from parties.identity.join_documents import (
    fingerprint_lines,
    fingerprint_words,
)
from parties.identity.typed_words import WrongWords, read_words
from parties.service.status_client import download
from parties.storage.files import atomic_replacement, disk_errors, write_new

_PATH = click.Path(path_type=Path)
_STUDY = click.argument("study", metavar="STUDY")
_SHORT = 12
_POLL_S = 0.5


@click.group(epilog="Example: syncret study list --dir /var/lib/syncret")
def study() -> None:
    """Propose, look at, approve, close and end studies of the service that runs on this host (`syncret serve`).

    STUDY is a digest, 8 of its digits or more, or the name of a run. All of them have --json.
    """


study.add_command(log_command)
study.add_command(check_log_command)


study.add_command(apply)


@study.command(epilog="Example: syncret study propose stays.toml --authority authority")
@click.argument("config", type=_PATH)
@folder_option
@authority_option
@click.option(
    "--out",
    type=_PATH,
    default=Path("study"),
    show_default=True,
    help="A new folder, for owners and auditors.",
)
@days_option(365)
@common_options
def propose(
    config: Path, folder: Path, authority: Path, out: Path, days: float, as_json: bool
) -> None:
    """Propose a study to the three operators, or one of FLAIM or between silos to this server's.

    A CONFIG without servers gets these three, with new cards, and certificates of the authority; the result is in OUT,
    to be handed to the data owners. One that `syncret certs merge` made is proposed as it is. The other two servers
    fetch it from this one; nothing runs before all three operators have approved it. With [flaim] or [silos] this
    server is the only one, and its operator alone approves.
    """
    answer, path = propose_study(config, folder, authority=authority, out=out, days=days)
    if as_json:
        print_json(answer | {"file": str(path)})
        return
    print_lines(_header(answer))
    # The other operators have folders of their own.
    here = "" if folder == DEFAULT else f" --dir {shlex.quote(str(folder))}"
    say(
        f"{path}: proposed. Each operator compares the words and approves; here: syncret study approve "
        f"{answer['digest']}{here}"
    )


@study.command(
    short_help="Write the invitation that data owners are handed.",
    epilog="Example: syncret study invite study/stays.toml",
)
@click.argument("config", type=_PATH)
@click.option("--owner", default="", metavar="NAME", help="For this owner, by a name you propose.")
@click.option(
    "--out", type=_PATH, default=None, help="A new file; by default RUN.invitation, or NAME.RUN."
)
@common_options
def invite(config: Path, owner: str, out: Path | None, *, as_json: bool) -> None:
    """Write an invitation to the study of CONFIG, the file in the folder of `syncret study propose`.

    It is all that a data owner needs: syncret join INVITATION --data TABLE. Nothing in it is secret. It has the
    configuration, and with it the servers' addresses and keys. Put at a URL, it is fetched from there, and the URL has
    to end in # and the study's digest: that is shown.
    """
    made = make_invitation(config, owner)
    run, digest = made.config.run.id, made.config.digest()
    path = out or Path(f"{owner}.{run}{SUFFIX}" if owner else f"{run}{SUFFIX}")
    if path.suffix != SUFFIX:
        raise click.BadParameter(f"{path} is no name of an invitation; expected one in {SUFFIX}")
    write_new(path, made.text().encode())
    if as_json:
        print_json({"invitation": str(path), "run": run, "digest": digest, "owner": owner})
        return
    print_lines([f"{path}: invites {owner or 'data owners'} to {run}", *fingerprint_lines(digest)])
    say(
        f"An owner types: syncret join {path.name} --data TABLE. At a URL: https://.../{path.name}#{digest}"
    )


@study.command(
    short_help="Make a card of this server, to be merged by hand.",
    epilog="Example: syncret study card --dir /var/lib/syncret",
)
@folder_option
@click.option("--flaim", is_flag=True, help="Of the one server of FLAIM or of silos.")
@common_options
def card(folder: Path, flaim: bool, as_json: bool) -> None:
    """Make a new card of this server for one study, NAME.card, for a coordinator who merges cards by hand."""
    status = service_answer(folder, "GET", "/status")
    kind = "flaim" if flaim else "distaim"
    text = service_answer(folder, "POST", "/cards", {"kind": kind, "own": True})["cards"][0]
    path = Path(f"{status['service']}.card")
    write_new(path, text.encode())
    if as_json:
        print_json({"card": str(path)})
        return
    say(f"{path}: for one study; send it to the coordinator (`syncret certs merge`)")


@study.command("list", epilog="Example: syncret study list --json")
@folder_option
@click.option("--state", default=None, help="Only those in this state.")
@common_options
def list_command(folder: Path, state: str | None, as_json: bool) -> None:
    """List the studies, and whether the other two servers are there."""
    target = "/studies" if state is None else f"/studies?state={quote(state)}"
    studies, status = (
        service_answer(folder, "GET", target)["studies"],
        service_answer(folder, "GET", "/status"),
    )
    if as_json:
        print_json(
            {
                "studies": studies,
                "peers": status["peers"],
                "troubles": status["troubles"],
                "service": status["service"],
            }
        )
        return
    if studies:
        heads = ("digest", "run", "state", "epsilon", "approved by", "")
        _table([heads, *(_row(item) for item in studies)])
    else:
        print_lines(["no studies" if state is None else f"no studies are {state}"])
    for text in _troubles(status):
        print_lines([text])


@study.command(
    short_help="Show one study, its history and what differs.",
    epilog="Example: syncret study show 3f1c9a55e0b7",
)
@_STUDY
@folder_option
@common_options
def show(study: str, folder: Path, as_json: bool) -> None:
    """Show one study: what it is, who has approved it, what happened, and what differs from others of its name."""
    document = service_answer(folder, "GET", _target(study))
    if as_json:
        print_json(document)
        return
    print_lines(
        [*_header(document), *_details(document), *_differences(document), *_history(document)]
    )


@study.command(
    short_help="Approve a study, by its digest or its twelve words.",
    epilog="Example: syncret study approve 3f1c9a55e0b7... (all 64 digits)",
)
@click.argument("digest")
@folder_option
@common_options
def approve(digest: str, folder: Path, as_json: bool) -> None:
    """Approve a study by its DIGEST, all of it, or its twelve words in quotes. It starts once all three have.

    A study that has failed is tried again when all three approve it once more. To approve a study a second time changes
    nothing.
    """
    name = digest
    if " " in digest.strip():
        wanted = _read_words(digest)
        studies = service_answer(folder, "GET", "/studies")["studies"]
        found = [each for each in studies if each["words"] == wanted]
        if not found:
            raise ServiceRefused(
                f"NO STUDY HERE HAS THESE WORDS, and nothing was approved: they are a study's words, and that study is "
                f"none of the {len(studies)} known here. Other words mean another budget, other columns or other "
                "servers. Expected the words that all three operators read out: compare them again (`syncret study "
                "show`), and ask whether it was the other operator who read them to you",
                Status.USAGE,
            )
        name = found[0]["digest"]
    _print_command_answer(
        service_answer(folder, "POST", f"{_target(name)}/approve", {"digest": digest}), as_json
    )


@study.command(
    short_help="End a study for all three servers, for good.",
    epilog="Example: syncret study cancel 3f1c9a55e0b7 --reason 'wrong columns'",
)
@_STUDY
@click.option("--reason", default="", help="What the others are told.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@folder_option
@common_options
def cancel(study: str, reason: str, yes: bool, folder: Path, as_json: bool) -> None:
    """End a study for all three servers, for good. Shares and sealing key are deleted; what was released stays so."""
    document = service_answer(folder, "GET", _target(study))
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask in; give --yes")
    if not yes:
        click.confirm(
            f"End {document['run']} ({document['digest'][:_SHORT]}) for good?", abort=True
        )
    target = f"/studies/{document['digest']}/cancel"
    _print_command_answer(service_answer(folder, "POST", target, {"reason": reason}), as_json)


@study.command(
    short_help="Take no more owners of a study that runs.",
    epilog="Example: syncret study close 3f1c9a55e0b7",
)
@_STUDY
@folder_option
@common_options
def close(study: str, folder: Path, as_json: bool) -> None:
    """Take no more owners of a study that runs: it begins with those who are there, clients.minimum at least.

    Done where the operators of all servers of the study ask it.
    """
    _send_command(study, "close", folder, as_json)


@study.command(
    short_help="End a study that runs with the rounds that are done.",
    epilog="Example: syncret study finish 3f1c9a55e0b7",
)
@_STUDY
@folder_option
@common_options
def finish(study: str, folder: Path, as_json: bool) -> None:
    """End a study that runs with the rounds that are done, where the operators of all its servers ask it."""
    _send_command(study, "finish", folder, as_json)


@study.command(
    "requests",
    short_help="List data owners that ask to be admitted.",
    epilog="Example: syncret study requests stays-2026",
)
@_STUDY
@folder_option
@common_options
def requests_command(study: str, folder: Path, as_json: bool) -> None:
    """List the data owners that ask this server to be admitted to a study, by their invitation.

    Anybody may ask, by any name. Each owner reads its twelve words to the study's coordinator.
    """
    found = service_answer(folder, "GET", f"{_target(study)}/requests")["requests"]
    if as_json:
        print_json({"requests": found})
        return
    print_lines([line for item in found for line in _request_lines(item)] or ["nobody asks"])


def _request_lines(item: Mapping[str, Any]) -> list[str]:
    at = str(item["first"])[:16].replace("T", " ")
    return [
        f"{item['name']}: {item['state']}, since {at} UTC, from {item['remote'] or 'unknown'}",
        *fingerprint_lines(item["key"]),
    ]


@study.command(
    short_help="Admit a data owner that asks, by its twelve words.",
    epilog="Example: syncret study admit stays-2026 'legal winner thank ...' (all twelve words)",
)
@_STUDY
@click.argument("words")
@authority_option
@days_option(365)
@folder_option
@common_options
def admit(
    study: str, words: str, authority: Path, *, days: float, folder: Path, as_json: bool
) -> None:
    """At the coordinator: admit the data owner whose WORDS you have heard, or whose key's 64 digits these are.

    The certificate is made here, with the study's authority, and waits at this server until the owner asks again. The
    name that goes into it is the request's, and is shown: admit nobody whose name and words you have not heard from a
    person that you know.
    """
    text = str(_request_of(study, words, folder)["request"])
    try:
        request, pem = admission_certificate(text, words, authority=authority, valid_days=days)
    except WrongWords as error:
        raise ServiceRefused(str(error), Status.PROTOCOL) from error
    answer = service_answer(
        folder, "POST", f"{_target(study)}/admit", {"certificate": pem.decode()}
    )
    if as_json:
        print_json(answer)
    else:
        say(f"{request.name} is admitted; its certificate waits here until it asks again")


@study.command(
    short_help="Refuse a data owner that asks to be admitted.",
    epilog="Example: syncret study refuse stays-2026 'legal winner thank ...' (all twelve words)",
)
@_STUDY
@click.argument("words")
@folder_option
@common_options
def refuse(study: str, words: str, folder: Path, *, as_json: bool) -> None:
    """Refuse the request with these WORDS, or whose key's 64 digits these are; the owner is told when it asks again."""
    item = _request_of(study, words, folder)
    answer = service_answer(folder, "POST", f"{_target(study)}/refuse", {"key": item["key"]})
    if as_json:
        print_json(answer)
    else:
        say(f"the request of {answer['name']} is refused")


def _read_words(text: str) -> str:
    """Returns typed words, or digits, as they are compared. Raises ServiceRefused, which names a wrong word."""
    try:
        return read_words(text)
    except WrongWords as error:
        raise ServiceRefused(str(error), Status.USAGE) from error


def _request_of(study: str, words: str, folder: Path) -> Mapping[str, Any]:
    """Returns the request with these words, or this key. Raises ServiceRefused."""
    wanted = _read_words(words)
    found = service_answer(folder, "GET", f"{_target(study)}/requests")["requests"]
    for item in found:
        if wanted in (fingerprint_words(item["key"]), item["key"]):
            return dict(item)
    raise ServiceRefused(
        f"no request for admission to {study} has these words; expected all twelve of one that "
        "`syncret study requests` lists",
        Status.USAGE,
    )


@study.command(
    "result",
    short_help="Put a finished study's whole result into one file.",
    epilog="Example: syncret study result stays-2026",
)
@_STUDY
@click.option("--out", type=_PATH, default=None, help="A new file; by default RUN.zip.")
@folder_option
@common_options
def result_command(study: str, out: Path | None, folder: Path, *, as_json: bool) -> None:
    """Put the whole result of a finished study into one file, with the other two servers' transcripts; audit it here.

    This server fetches the transcripts from the two others; of FLAIM and between silos it has all itself. The file is
    what `syncret bundle` makes, and what owners get by `syncret result`.
    """
    document = service_answer(folder, "GET", _target(study))
    target, path = f"/studies/{document['digest']}/collect", out or Path(f"{document['run']}.zip")
    if path.exists():
        raise StoreError(path, "is there already; expected a new name (--out)")
    found = service_answer(folder, "GET", target)
    if found["bundle"] is None:
        found = service_answer(folder, "POST", target)
    while found["running"]:
        time.sleep(_POLL_S)
        found = service_answer(folder, "GET", target)
    if found["bundle"] is None:
        raise ServiceRefused(
            f"{document['run']}: the result could not be collected: {found['problem']}",
            Status.NETWORK,
        )
    with disk_errors(path), atomic_replacement(path) as beside:
        download(folder, f"/studies/{document['digest']}/bundle", beside)
    if as_json:
        print_json({"run": document["run"], "bundle": str(path)})
    else:
        say(f"{path}: the whole result of {document['run']}; check it with: syncret audit {path}")


@study.command(
    short_help="Turn a data owner away from a study that runs.",
    epilog="Example: syncret study revoke 3f1c9a55e0b7 north",
)
@_STUDY
@click.argument("owner")
@folder_option
@common_options
def revoke(study: str, owner: str, folder: Path, as_json: bool) -> None:
    """Turn the data owner called OWNER in its certificate away from a study that runs, for good.

    This server takes nothing of it any more; what it has sent is taken out where the operators of all servers ask it.
    """
    _send_command(study, "revoke", folder, as_json, {"owner": owner})


def _send_command(
    study: str, order: str, folder: Path, as_json: bool, body: Mapping[str, Any] | None = None
) -> None:
    answer = service_answer(folder, "POST", f"{_target(study)}/{order}", body or {})
    if as_json:
        print_json(answer)
    else:
        say(f"{study}: asked to {order}; it takes effect when all its operators have asked it")


def _target(name: str) -> str:
    return f"/studies/{quote(name.strip(), safe='')}"


# Texts for people.


def _print_command_answer(document: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        print_lines([_sentence(document)])


def _sentence(document: Mapping[str, Any]) -> str:
    missing = [server["name"] for server in document["servers"] if not server["approved"]]
    waits = document["state"] in ("proposed", "approved") and missing
    after = f"; not approved yet by {and_list(missing)}" if waits else ""
    if first := document.get("approved_first"):
        after += f"; {first} has approved, and a second approver is needed here"
    reason = f": {document['reason']}" if document["reason"] else ""
    return (
        f"{document['run']} ({document['digest'][:_SHORT]}) is {document['state']}{reason}{after}"
    )


def _row(item: Mapping[str, Any]) -> tuple[str, ...]:
    approved = [server["name"] for server in item["servers"] if server["approved"]]
    return (
        item["digest"][:_SHORT],
        item["run"],
        item["state"],
        "?" if item["epsilon"] is None else f"{item['epsilon']:g}",
        ", ".join(approved) or "nobody",
        item["why"],
    )


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    """Prints columns by their widest entry; the last one is cut to the rest of 100 characters."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    room = max(20, 100 - sum(widths) - 2 * len(widths))
    for row in rows:
        fixed = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False))
        last = row[-1] if len(row[-1]) <= room else f"{row[-1][: room - 3]}..."
        click.echo(f"{fixed}  {last}".rstrip())


def _header(document: Mapping[str, Any]) -> list[str]:
    return [
        f"{document['run']}, proposed by {document['proposer']}",
        *fingerprint_lines(document["digest"]),
    ]


def _details(document: Mapping[str, Any]) -> list[str]:
    owners = document["owners"]
    reason = f": {document['reason']}" if document["reason"] else ""
    lines = [
        f"state     {document['state']}{reason}",
        *(f"waits     {wait['name']}: {wait['text']}" for wait in document["waits"]),
        f"method    {document['kind']}, {document['columns']} columns, {document['rounds']} rounds",
        f"privacy   epsilon = {document['epsilon']:g}, delta = {document['delta']:g}",
        f"owners    {owners['expected']} expected, {owners['minimum']} at least, "
        f"{owners['rows_per_client']} rows each at most",
    ]
    for server in document["servers"]:
        approved = "approved" if server["approved"] else "not approved"
        problem = f" ({server['problem']})" if server["problem"] else ""
        lines.append(f"server    {server['name']}: {approved}{problem}")
    process = document["process"]
    if process:
        again = f", started again {process['restarts']} times" if process["restarts"] else ""
        lines.append(f"process   {process['text']}{again}")
    return [*lines, f"folder    {document['folder']}"]


def _differences(document: Mapping[str, Any]) -> list[str]:
    lines = []
    for other in document["alike"]:
        lines.append(
            f"another study of this name is {other['state']}, proposed by {other['proposer']}: "
            f"{other['digest'][:_SHORT]}"
        )
        for item in other["differences"]:
            here, there = (item[key] or "nothing" for key in ("here", "there"))
            lines.append(f"  {item['key']}: {here[:40]} in this one, {there[:40]} in that")
    return lines


def _history(document: Mapping[str, Any]) -> list[str]:
    return [
        f"{entry['at'][:19].replace('T', ' ')}  {entry['actor']}: {entry['what']}"
        + (f", {entry['text']}" if entry["text"] else "")
        for entry in document["history"]
    ]


def _troubles(status: Mapping[str, Any]) -> list[str]:
    lines = [peer["problem"] for peer in status["peers"] if peer["problem"]]
    lines += status["troubles"]
    for peer in status["peers"]:
        for digest, reason in peer["refused"].items():
            lines.append(f"{peer['name']} does not take {digest[:_SHORT]}: {reason}")
    for digest, reason in status["refused"].items():
        lines.append(f"{digest[:_SHORT]} is not taken here: {reason}")
    return lines
