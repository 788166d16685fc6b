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
from parties.config import Address, CertificateFiles, Config, PartySection
from parties.crypto.pinned_key import PinnedKey
from parties.foundation.errors import PartyError
from parties.foundation.exit_codes import Status
from parties.local.processes import Supervision
from parties.mpc.submission.http_api import run_path
from parties.mpc.submission.preview import ServerAvailability
from parties.mpc.submission.status import ServerAnswer, ask_differences, ask_server
from parties.observability.clocks import OFF_S, offset_text
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
_ASK = "Make a key with `syncret certs request NAME`, and send the request to the coordinator, who sends a certificate."


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
    whether it takes submissions of yours, and its clock. For this machine: certificate and disk. Nothing of a table is
    read, sent or charged; it works before you have a certificate, too. What is wrong comes with a sentence for the
    people who run your network. Exit status 0 if all is well, 5 where the certificate is missing or not good, 6 for
    everything else.
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
    ends = _ends(config)
    found = await asyncio.gather(
        *(
            check_connection(config, address, pinned, files=files, limit_s=limit_s)
            for address, pinned, _ in ends
        )
    )
    by_place: dict[str, list[Finding]] = {HERE: [here, check_disk(Path.cwd())]}
    for (address, pinned, party), findings in zip(ends, found, strict=True):
        if party is not None and files is not None and all(finding.ok for finding in findings):
            findings += await _of_study(config, party, files, limit_s=limit_s)
        by_place[f"{pinned.name} at {address}"] = findings
    return by_place


def _ends(config: Config) -> list[tuple[Address, PinnedKey, PartySection | None]]:
    if config.parties:
        return [(party.ingest, party.pinned, party) for party in config.parties]
    section = config.require_federation()
    return [] if section.address is None else [(section.address, section.pinned, None)]


async def _of_study(
    config: Config, party: PartySection, files: CertificateFiles, *, limit_s: float
) -> list[Finding]:
    """Returns what a server says of the study, and of the time."""
    timeouts = replace(config.timeouts, submit_s=limit_s, connect_s=limit_s)
    asking = replace(config, timeouts=timeouts)
    heard = await ask_server(asking, party, files, path=run_path(config.run.id))
    other = heard.says is not None and heard.says.get("config") != config.digest()
    differences = await ask_differences(asking, party, files) if other else ""
    state = ServerAvailability.of(heard, config, differences)
    advice = "Ask an operator of this server, or the coordinator."
    return [Finding("study", state.takes, state.says, advice), *_clock(heard)]


def _clock(heard: ServerAnswer) -> list[Finding]:
    reading = heard.clock
    if reading is None:
        return []
    ok = abs(reading.offset_s) < OFF_S
    said = f"the server's is {offset_text(reading.offset_s, reading.within_s)}"
    return [Finding("clock", ok, said, "Set this machine's clock, or tell the server's operator.")]
