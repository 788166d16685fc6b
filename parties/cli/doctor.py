"""Command `doctor`: steps from a data owner's machine to the servers of a study, before anything is sent."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from parties.cli.invitations import open_study
from parties.cli.numbers import NumberRange
from parties.cli.runtime import common_options, run_supervised
from parties.config import CertificateFiles, Config, StudyServer
from parties.foundation.errors import PartyError
from parties.foundation.exit_codes import Status
from parties.foundation.version import INGEST_VERSION, version
from parties.local.processes import Supervision
from parties.mpc.submission.admission import ask_greeting
from parties.mpc.submission.http_api import run_path
from parties.mpc.submission.preview import ServerAvailability
from parties.mpc.submission.status import ServerAnswer, ask_differences, ask_server
from parties.observability.clocks import OFF_S, ClockReading, offset_text
from parties.session.connection_check import (
    LIMIT_S,
    Finding,
    check_connection,
    check_disk,
    check_files,
)
from parties.session.owner import owner_files

_PATH = click.Path(path_type=Path)
HERE = "this machine"
_ASK = (
    "`syncret join INVITATION` asks for one. Without an invitation: `syncret certs request NAME`, and send the request "
    "to the coordinator."
)


@click.command(epilog="Example: syncret doctor study/stays.toml")
@click.argument("config")
@click.option("--ca", type=_PATH, default=None, help="The run's authority, if not [tls] ca.")
@click.option("--cert", type=_PATH, default=None, help="Your certificate, if not [tls] cert.")
@click.option("--key", type=_PATH, default=None, help="Its private key, if not [tls] key.")
@click.option(
    "--wait", "limit_s", type=NumberRange(0.1, 600), default=LIMIT_S, show_default=True,
    help="Seconds for each step.",
)  # fmt: skip
@common_options
@click.pass_context
def doctor(
    ctx: click.Context,
    *,
    config: str,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    limit_s: float,
    as_json: bool,
) -> None:
    """Find out what keeps this machine from the servers of a study.

    For each server: its name, the way to it (HTTPS_PROXY, or network.proxy in the config), the key that answers there,
    its version, whether it takes submissions of yours, and its clock. For this machine: certificate and disk. Nothing
    of a table is read, sent or charged; it works before you have a certificate, too. What is wrong comes with a
    sentence for the people who run your network. Exit status 0 if all is well, 5 where the certificate is missing or
    not good, 6 for everything else.
    """
    study = open_study(config)
    find_files = partial(owner_files, study, ca=ca, cert=cert, key=key)

    async def look(supervision: Supervision) -> dict[str, list[Finding]]:
        return await examine(study, find_files, limit_s=limit_s)

    found = run_supervised(look, watch_stdin=False, events=None)
    click.echo(json.dumps(document(found), indent=2) if as_json else text(found))
    wrong = [finding for findings in found.values() for finding in findings if not finding.ok]
    if wrong:
        alone = all(finding.step == "certificate" for finding in wrong)
        ctx.exit(int(Status.CERTIFICATE if alone else Status.NETWORK))


def document(found: Mapping[str, Sequence[Finding]]) -> dict[str, object]:
    """Returns the findings as JSON has them."""
    return {
        "ok": all(finding.ok for findings in found.values() for finding in findings),
        "findings": [
            {"where": where, **finding.to_dict()}
            for where, findings in found.items()
            for finding in findings
        ],
    }


def text(found: Mapping[str, Sequence[Finding]]) -> str:
    """Returns the findings for people, with the advice below what is wrong."""
    lines = []
    for where, findings in found.items():
        lines.append(where)
        for finding in findings:
            mark = "ok   " if finding.ok else "WRONG"
            lines.append(f"  {mark}  {finding.step:<11}  {finding.text}")
            lines += (
                [f"         {'':<11}  {finding.advice}"]
                if finding.advice and not finding.ok
                else []
            )
    return "\n".join(lines)


async def examine(
    config: Config, find_files: Callable[[], CertificateFiles], *, limit_s: float = LIMIT_S
) -> dict[str, list[Finding]]:
    """Returns the findings of this machine and of each server, by place. ``find_files`` raises PartyError."""
    files: CertificateFiles | None = None
    try:
        files = find_files()
        here = check_files(files)
    except PartyError as error:
        files, here = None, Finding("certificate", False, str(error), _ASK)
    servers = config.require_servers()
    found = await asyncio.gather(
        *(_of_server(config, each, files=files, limit_s=limit_s) for each in servers)
    )
    by_place: dict[str, list[Finding]] = {HERE: [here, check_disk(Path.cwd())]}
    for server, findings in zip(servers, found, strict=True):
        by_place[f"{server.name} at {server.ingest}"] = findings
    return by_place


async def _of_server(
    config: Config, server: StudyServer, *, files: CertificateFiles | None, limit_s: float
) -> list[Finding]:
    findings = await check_connection(
        config, server.ingest, server.pinned, files=files, limit_s=limit_s
    )
    if not all(finding.ok for finding in findings):
        return findings
    greeting = await ask_greeting(config, server, limit_s=limit_s)
    clock = None
    if greeting is not None:
        findings.append(_version(greeting.messages))
        clock = greeting.clock
    if config.parties and files is not None:
        heard, said = await _of_study(config, server, files, limit_s=limit_s)
        findings.append(said)
        clock = heard.clock or clock
    return findings if clock is None else [*findings, _clock(clock)]


def _version(messages: str) -> Finding:
    ok = messages == str(INGEST_VERSION)
    text = f"messages of version {messages}" + (", as here" if ok else f", here {INGEST_VERSION}")
    advice = f"Install the version of Syncret that the server has; here is {version()}."
    return Finding("version", ok, text, advice)


async def _of_study(
    config: Config, party: StudyServer, files: CertificateFiles, *, limit_s: float
) -> tuple[ServerAnswer, Finding]:
    """Returns a server's answer, and what it says of the study."""
    timeouts = replace(config.timeouts, submit_s=limit_s, connect_s=limit_s)
    asking = replace(config, timeouts=timeouts)
    heard = await ask_server(asking, party, files, path=run_path(config.run.id))
    other = heard.says is not None and heard.says.get("config") != config.digest()
    differences = await ask_differences(asking, party, files) if other else ""
    state = ServerAvailability.of(heard, config, differences)
    advice = "Ask an operator of this server, or the coordinator."
    return heard, Finding("study", state.takes, state.says, advice)


def _clock(reading: ClockReading) -> Finding:
    ok = abs(reading.offset_s) < OFF_S
    said = f"the server's is {offset_text(reading.offset_s, reading.within_s)}"
    return Finding("clock", ok, said, "Set this machine's clock, or tell the server's operator.")
