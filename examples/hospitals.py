"""Six hospitals add up a histogram by SecAgg, as seven processes over mutual TLS.

    python examples/hospitals.py                   all of it, in a temporary folder
    python examples/hospitals.py setup FOLDER      certificates, identities and the session alone
    python examples/hospitals.py server FOLDER     the server alone
    python examples/hospitals.py client FOLDER 3   one hospital alone; one of the six may stay away or be stopped
    syncret audit FOLDER/run                       what the server's transcript proves

The server learns the sum and who is in it. It is not trusted with more: keys and survivor lists are signed, and the
hospitals agree beforehand on the session, on everybody's keys and on what they insist on (`session.json`). It signs
what it received and opened in a transcript (FOLDER/run, nothing secret), which is audited at the end.
"""

import asyncio
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np

from parties.config import CertificateFiles
from parties.federation.secagg_client import run_secagg_client
from parties.federation.secagg_server import Deadlines, RoundServer
from parties.federation.transcript import SecaggTranscript
from parties.identity.tls import make_certificates, pinned_key_in
from secagg import (
    Adversary,
    ClientPolicy,
    Identity,
    Parameters,
    SecAggClient,
    SecAggServer,
    ThreatModel,
    choose,
    roster_digest,
)

SERVER, HOSPITALS = "aggregator", [f"hospital-{u}" for u in range(6)]
THREAT = ThreatModel(corrupt=1 / 6, dropouts=1 / 6, adversary=Adversary.MALICIOUS)
CELLS, LARGEST = 8, 1000


def setup(folder: Path) -> None:
    """Makes what the session needs: certificates, identities, session file. Each party keeps its own key only."""
    own = make_certificates(folder, [SERVER], HOSPITALS)[SERVER]
    run = folder / "run"
    for part in ("transcripts", "certificates"):
        (run / part).mkdir(parents=True)
    for public in (own.ca, own.cert):
        shutil.copyfile(public, run / "certificates" / public.name)
    identities = [secrets.token_bytes(32) for _ in HOSPITALS]
    for name, identity in zip(HOSPITALS, identities, strict=True):
        (folder / f"{name}.identity").write_bytes(identity)
    public = [Identity(identity).public.hex() for identity in identities]
    plan = {"session": secrets.token_hex(32), "graph": secrets.token_hex(32), "roster": public}
    (folder / "session.json").write_text(json.dumps(plan), encoding="utf-8")


def session(folder: Path) -> tuple[Parameters, list[bytes]]:
    """Returns the session's parameters and the hospitals' public identities."""
    plan = json.loads((folder / "session.json").read_text(encoding="utf-8"))
    roster = [bytes.fromhex(key) for key in plan["roster"]]
    neighbours, threshold = choose(len(HOSPITALS), THREAT)
    return Parameters(
        session=bytes.fromhex(plan["session"]),
        graph_seed=bytes.fromhex(plan["graph"]),
        clients=len(HOSPITALS),
        neighbours=neighbours,
        threshold=threshold,
        min_survivors=5,
        length=CELLS,
        low=0,
        high=LARGEST,
        roster_digest=roster_digest(roster),
    ), roster


def files(folder: Path, name: str) -> CertificateFiles:
    """Returns a process's certificate and key."""
    return CertificateFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


async def serve(folder: Path) -> None:
    """Runs the server's side of the round, records it, and prints the sum."""
    parameters, roster = session(folder)
    server, own = SecAggServer(parameters, roster=roster), files(folder, SERVER)
    record = SecaggTranscript(
        folder / "run" / "transcripts" / "server.jsonl", own, server, HOSPITALS
    )
    try:
        async with RoundServer(
            server, HOSPITALS, files=own, deadlines=Deadlines(join_s=20, stage_s=30), log=record
        ) as running:
            (folder / "port").write_text(str(running.port), encoding="utf-8")
            click.echo(f"listening on port {running.port}")
            await running.run()
    finally:
        record.close()
    names = ", ".join(HOSPITALS[u] for u in sorted(server.survivors))
    click.echo(f"the sum over {names}: {server.exact_result.tolist()}")


async def contribute(folder: Path, number: int) -> None:
    """Runs one hospital's side. Its policy is its own: here it requires exactly the agreed values."""
    parameters, roster = session(folder)
    policy = ClientPolicy(
        length=CELLS,
        low=0,
        high=LARGEST,
        min_clients=parameters.clients,
        min_survivors=parameters.min_survivors,
        min_neighbours=parameters.neighbours,
        min_threshold=parameters.threshold,
        threat=THREAT,
        session=parameters.session,
        graph_seed=parameters.graph_seed,
    )
    identity = Identity((folder / f"{HOSPITALS[number]}.identity").read_bytes())
    patients = np.arange(CELLS) + 100 * number
    client = SecAggClient(number, patients, policy, identity=identity, roster=roster)
    port = int((folder / "port").read_text(encoding="utf-8"))
    own = files(folder, HOSPITALS[number])
    await run_secagg_client(
        client, "127.0.0.1", port, server=pinned_key_in(folder / f"{SERVER}.crt"), files=own
    )


def everything(folder: Path) -> None:
    """Runs the server and all hospitals, as processes."""
    setup(folder)
    me = [sys.executable, __file__]
    with subprocess.Popen(
        [*me, "server", str(folder)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            click.echo(server.stdout.readline().strip() if server.stdout else "")
            clients = [
                subprocess.Popen([*me, "client", str(folder), str(number)])
                for number in range(len(HOSPITALS))
            ]
            failed = [process.args for process in (*clients, server) if process.wait(60)]
            click.echo(server.stdout.read().strip() if server.stdout else "")
            if failed:
                raise SystemExit(f"failed: {failed}")
            audited(folder)
        finally:
            server.kill()


def audited(folder: Path) -> None:
    """Checks the server's transcript; everyone with the folder FOLDER/run can."""
    # Imported here: the seven processes do not need it.
    from parties.audit.findings import FAIL, PASS
    from parties.audit.runner import audit_folder

    audit = audit_folder(folder / "run")
    if not audit.ok:
        wrong = [check.name for check in audit.checks if check.status == FAIL]
        raise SystemExit(f"the transcript does not hold: {', '.join(wrong)}")
    holding = sum(check.status == PASS for check in audit.checks)
    click.echo(f"the server's transcript was audited: {holding} checks, all of them hold")


def main(arguments: list[str]) -> None:
    """Runs the command line; the module's docstring has its use."""
    match arguments:
        case []:
            with tempfile.TemporaryDirectory() as folder:
                everything(Path(folder))
        case ["setup", folder]:
            setup(Path(folder))
        case ["server", folder]:
            asyncio.run(serve(Path(folder)))
        case ["client", folder, number]:
            asyncio.run(contribute(Path(folder), int(number)))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
