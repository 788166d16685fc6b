"""`syncret bench intake`: seconds, bytes on the wire and connections per owner while three servers take submissions.

Three server processes run the code of `syncret serve study`, one process plays all owners as a trial does, each with a
certificate and an upload of its own; relays between them count what TCP carries (`bench.overhead.upload`). This module
is the owners' process as a command. Sizes and work do not depend on the counts, so rows are random. All values here are
public.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from bench.children import run_child
from bench.experiment.commands import json_object_option
from bench.overhead.upload import PARTIES, Relay, dialled_config, run_config, servers, store_folder
from mechanisms.domain import Domain, Integer
from mechanisms.workload import Workload, draw_workload
from parties.config import CertificateFiles, load_config
from parties.identity.tls import make_certificates
from parties.local.jobs import CONCURRENT_OWNERS
from parties.mpc.storage.bodies import stored_bytes
from parties.mpc.submission.submit import submit
from protocols.upload import FORMS, SEEDED

_MODULE = "bench.intake"
_CODES, _ROWS = 8, 100


@dataclass(frozen=True, slots=True)
class Intake:
    """The submissions of ``owners`` with ``cells`` counts each; bytes are means per owner, over all its connections.

    ``seconds`` are from the first owner's start until the last one has its receipts, ``at_once`` of them at a time.
    ``stored_bytes`` is the final size of the three servers' stores together.
    """

    owners: int
    form: str
    cells: int
    at_once: int
    seconds: float
    sent_bytes: float
    received_bytes: float
    connections: float
    stored_bytes: float


def intake_workload(columns: int) -> Workload:
    """Returns three-way queries over ``columns`` columns of 8 codes."""
    return draw_workload(
        Domain(tuple(Integer(f"c{i}", 0, _CODES - 1, _CODES) for i in range(columns)))
    )


async def measure_intake(workload: Workload, folder: Path, *, owners: int, form: str) -> Intake:
    """Measures ``owners`` submissions in the empty ``folder``. Raises RuntimeError if a process fails."""
    names = [f"owner-{number}" for number in range(owners)]
    make_certificates(folder / "certificates", PARTIES, names)
    config = run_config(workload, _ROWS, form, 1, folder / "run", owners=owners)
    path = config.base / "config.toml"
    async with servers([path]), AsyncExitStack() as exits:
        relays = [
            await exits.enter_async_context(Relay(party.ingest.port))
            for party in config.require_parties()
        ]
        dialled = dialled_config(config, [relay.port for relay in relays], path)
        printed = await run_child(_MODULE, str(dialled), *names, given="", what="owners")
        for relay in relays:
            await relay.settled()
    counted = [relay.counted for relay in relays]
    stored = sum(sum(stored_bytes(store_folder(path, pid)).values()) for pid in range(3))
    return Intake(
        owners,
        form,
        workload.maximal_cells,
        CONCURRENT_OWNERS,
        float(printed),
        sum(one.sent for one in counted) / owners,
        sum(one.received for one in counted) / owners,
        sum(one.connections for one in counted) / owners,
        stored / owners,
    )


async def _owners(path: Path, names: Sequence[str]) -> float:
    """Submits for all owners, and returns the seconds taken."""
    config, certificates = load_config(path), path.parent.parent / "certificates"
    workload, at_once = config.build_workload(), asyncio.Semaphore(CONCURRENT_OWNERS)
    codes = np.random.default_rng(1).integers(
        0, workload.domain.shape, (_ROWS, len(workload.domain.shape))
    )

    async def one(name: str) -> None:
        files = CertificateFiles(
            certificates / "ca.crt", certificates / f"{name}.crt", certificates / f"{name}.key"
        )
        state = path.with_name(f"{name}.state")
        async with at_once:
            await submit(
                config, codes.astype(np.int32), files, first_round=1, state=state, workload=workload
            )

    started = time.perf_counter()
    await asyncio.gather(*map(one, names))
    return time.perf_counter() - started


@click.command(epilog="Example: syncret bench intake --owners 100 --json")
@click.option(
    "--owners",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Owners that submit, one after the other.",
)
@click.option(
    "--columns",
    type=click.IntRange(3, 30),
    default=6,
    show_default=True,
    help="Columns of 8 codes; an owner's counts are of three-way queries of them.",
)
@click.option(
    "--form",
    type=click.Choice(FORMS),
    default=SEEDED,
    show_default=True,
    help="Form of the submissions.",
)
@json_object_option
def intake(owners: int, columns: int, form: str, as_json: bool) -> None:
    """Measure how servers take submissions in: seconds, bytes on the wire and connections of an owner."""
    with tempfile.TemporaryDirectory(prefix="syncret-intake-") as folder:
        workload = intake_workload(columns)
        found = asyncio.run(measure_intake(workload, Path(folder), owners=owners, form=form))
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    click.echo(
        f"{found.owners} owners of {found.cells} counts in {found.seconds:.1f} s, {found.at_once} at a time; each "
        f"{found.sent_bytes:,.0f} bytes sent and {found.received_bytes:,.0f} received on the wire over "
        f"{found.connections:.2g} connections; servers keep {found.stored_bytes:,.0f} bytes of it"
    )


def main() -> None:
    """Runs the owners' process: submits, and prints the seconds."""
    path, *names = sys.argv[1:]
    print(asyncio.run(_owners(Path(path), names)))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
