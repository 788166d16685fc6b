"""DistAIM's client on the wire: real uploads to three real ingest servers, each through a relay that counts.

Provides ``measure_uploads``. Three server processes (`ingest`) and one for each upload (`owner`)
run the code of `syncret party` and `syncret submit` over mutual TLS on loopback; between them a relay in this process
counts what TCP carries. What is uploaded does not depend on the number of rounds but for the digits of a header, and
sizes do not depend on the rows: where no table is at hand, random rows of the domain give the same bytes. Public.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.networks import ROOT
from bench.overhead.ingest import store_folder
from bench.overhead.owner import Done, Job
from bench.overhead.relay import Counted, Relay
from mechanisms.workload import Workload
from parties.config import CertificateFiles, Config, config_from_dict
from parties.tls import make_certificates
from parties.trial.ports import free_ports
from protocols.upload import FORMS

PARTIES = ("party-0", "party-1", "party-2")
_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Upload:
    """One client's upload in ``form`` to a run of ``rounds`` rounds; bytes over all three servers.

    ``sent_bytes`` and ``received_bytes`` are HTTP bodies, ``wire_*`` what the relays counted on ``connections``
    connections, with HTTP and TLS. ``stored_bytes`` is what servers 0, 1, 2 keep for it on disk.
    """

    form: str
    rounds: int
    sent_bytes: int
    received_bytes: int
    wire_sent_bytes: int
    wire_received_bytes: int
    connections: int
    stored_bytes: tuple[int, int, int]
    owner: Done

    @property
    def wire_bytes(self) -> int:
        """Both directions."""
        return self.wire_sent_bytes + self.wire_received_bytes


async def measure_uploads(
    workload: Workload,
    codes: NDArray[np.int32],
    folder: Path,
    *,
    rounds: Sequence[int],
    forms: Sequence[str] = FORMS,
) -> list[Upload]:
    """One upload of ``codes`` (rows, columns) for each form and number of rounds, in the empty ``folder``.

    Raises RuntimeError where a process fails.
    """
    names = [f"owner-{number}" for number in range(len(forms) * len(rounds))]
    certificates = make_certificates(folder / "certificates", PARTIES, names)
    np.save(folder / "codes.npy", codes, allow_pickle=False)
    jobs = [(form, number) for form in forms for number in rounds]
    configs = [
        _config(workload, len(codes), form, number, folder / f"{form}-{number}")
        for form, number in jobs
    ]
    paths = [config.base / "config.toml" for config in configs]
    async with _servers(configs, paths):
        return [
            await _one(config, path, certificates[name], folder / "codes.npy")
            for config, path, name in zip(configs, paths, names, strict=True)
        ]


def _config(workload: Workload, rows: int, form: str, rounds: int, folder: Path) -> Config:
    """One run's config, written to ``folder``/config.toml. Raises ConfigError."""
    folder.mkdir(parents=True)
    certificates = folder.parent / "certificates"
    ports = free_ports(6)
    document: dict[str, object] = {
        "run": {
            "id": f"overhead-{form}-{rounds}",
            "epsilon": 1.0,
            "delta": 1e-5,
            "rounds": rounds,
            "upload": form,
        },
        "workload": {"queries": [list(query) for query in workload.queries]},
        "clients": {"expected": 1, "rows_per_client": max(1, rows)},
        "timeouts": {"submit_s": _DEADLINE_S},
        "tls": {
            "ca": str(certificates / "ca.crt"),
            "cert": str(certificates / "party-{pid}.crt"),
            "key": str(certificates / "party-{pid}.key"),
        },
        "party": [
            {
                "name": name,
                "mesh": f"127.0.0.1:{ports[2 * pid]}",
                "ingest": f"127.0.0.1:{ports[2 * pid + 1]}",
            }
            for pid, name in enumerate(PARTIES)
        ],
        **workload.domain.to_dict(),
    }
    config = config_from_dict(document, source="overhead", base=folder)
    (folder / "config.toml").write_text(config.resolved_toml(), encoding="utf-8")
    return config


@contextlib.asynccontextmanager
async def _servers(configs: Sequence[Config], paths: Sequence[Path]) -> AsyncIterator[None]:
    """Three ingest processes, listening for every config while the block lasts. Raises RuntimeError."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.overhead.ingest", str(pid), *map(str, paths),
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for pid in range(3)
    ]  # fmt: skip
    try:
        for pid, process in enumerate(processes):
            if process.stdout is None or await process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"ingest server {pid}: {await _last_word(process)}")
        yield
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.communicate() for process in processes))


async def _last_word(process: asyncio.subprocess.Process) -> str:
    _, errors = await process.communicate()
    return (errors.decode(errors="replace").strip().splitlines() or ["it ended without a word"])[-1]


async def _one(config: Config, path: Path, files: CertificateFiles, codes: Path) -> Upload:
    async with contextlib.AsyncExitStack() as exits:
        parties = config.require_parties()
        relays = [await exits.enter_async_context(Relay(party.ingest.port)) for party in parties]
        dialled = config.override(
            {
                "party": [
                    {
                        "name": party.name,
                        "mesh": str(party.mesh),
                        "ingest": f"127.0.0.1:{relay.port}",
                    }
                    for party, relay in zip(parties, relays, strict=True)
                ]
            }
        )
        dialled_path = path.with_name("dialled.toml")
        dialled_path.write_text(dialled.resolved_toml(), encoding="utf-8")
        done = await run_owner(
            Job(str(dialled_path), str(codes), str(files.ca), str(files.cert), str(files.key))
        )
        for relay in relays:
            await relay.settled()
        counted = [relay.counted for relay in relays]
    stored = [_folder_bytes(store_folder(path, pid) / "submissions") for pid in range(3)]
    return _upload(config, done, counted, (stored[0], stored[1], stored[2]))


def _upload(
    config: Config, done: Done, counted: Sequence[Counted], stored: tuple[int, int, int]
) -> Upload:
    return Upload(
        config.run.upload,
        config.run.rounds,
        done.sent_bytes,
        done.received_bytes,
        sum(one.sent for one in counted),
        sum(one.received for one in counted),
        sum(one.connections for one in counted),
        stored,
        done,
    )


async def run_owner(job: Job) -> Done:
    """Run one owner's process. Raises RuntimeError with its last word where it fails."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.overhead.owner",
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate(json.dumps(asdict(job)).encode())
    if process.returncode != 0:
        words = errors.decode(errors="replace").strip().splitlines() or ["no word"]
        raise RuntimeError(f"a data owner's upload failed: {words[-1]}")
    return Done(**json.loads(output))


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
