"""The SecAgg server's transcript: every message and the end of the session, and no sum without noise."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from parties.config import CertificateFiles
from parties.federation.secagg_client import run_secagg_client
from parties.federation.secagg_server import Deadlines, RoundServer
from parties.federation.transcript import SecaggTranscript
from parties.identity.tls import make_certificates, pinned_key_in
from protocols.fields import decode
from protocols.transcript import Record
from secagg import SecAggClient, SecAggServer
from secagg.errors import RoundAborted
from secagg.noise import server_noise
from secagg.parameters import Parameters
from secagg.simulation import policy_for
from tests.protocols.transcripts import verified_records
from tests.secagg.support import session, vectors

NAMES = [f"owner-{u}" for u in range(5)]
SERVER = "aggregator"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CertificateFiles]:
    return make_certificates(tmp_path_factory.mktemp("secagg"), [SERVER], NAMES)


async def play(
    files: dict[str, CertificateFiles], path: Path, parameters: Parameters, absent: tuple[int, ...]
) -> tuple[RoundServer, list[Record]]:
    server = SecAggServer(parameters)
    record = SecaggTranscript(path, files[SERVER], server, NAMES)
    deadlines = Deadlines(join_s=1.5, stage_s=10)
    values = vectors(parameters)
    async with RoundServer(
        server, NAMES, files=files[SERVER], deadlines=deadlines, log=record
    ) as running:
        clients = [
            run_secagg_client(
                SecAggClient(u, values[u], policy_for(parameters)),
                "127.0.0.1",
                running.port,
                server=pinned_key_in(files[SERVER].cert),
                files=files[NAMES[u]],
            )
            for u in range(5)
            if u not in absent
        ]
        ended, *_ = await asyncio.gather(running.run(), *clients, return_exceptions=True)
    record.close()
    assert not isinstance(ended, BaseException) or isinstance(ended, RoundAborted)
    return running, verified_records(path, verify=lambda *_: None)


@pytest.mark.parametrize("noisy", [False, True])
async def test_transcript_has_every_message_and_the_sum_if_it_has_noise(
    files: dict[str, CertificateFiles], tmp_path: Path, noisy: bool
) -> None:
    noise = {"noise": server_noise(3.0)} if noisy else {}
    parameters = session(5, False, threshold=2, min_survivors=4, length=50, **noise)
    running, records = await play(files, tmp_path / "t.jsonl", parameters, (2,))
    for kind, counted in (("sent", running.sent_bytes), ("received", running.received_bytes)):
        for client in range(5):
            mine = [r for r in records if r["kind"] == kind and r["peer"] == client]
            assert sum(int(r["bytes"]) + 4 for r in mine) == counted[client]  # type: ignore[arg-type]
    (opened,) = (r for r in records if r["kind"] == "opened")
    assert opened["count"] == 50
    value = np.frombuffer(decode(opened["value"]), "<i8")
    assert value.tolist() == (running.server.scaled_result.tolist() if noisy else [])
    there = [r["client"] for r in records if r["kind"] == "client" and r["accepted"]]
    assert there == [name for name in NAMES if name != "owner-2"]
    assert records[0]["protocol"] == "secagg"
    assert records[-1]["kind"] == "seal"


async def test_transcript_says_why_there_is_no_sum(
    files: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    parameters = session(5, False, threshold=2, min_survivors=4, length=50)
    _, records = await play(files, tmp_path / "t.jsonl", parameters, (2, 3))
    assert not [r for r in records if r["kind"] == "opened"]
    (aborted,) = (r for r in records if r.get("what") == "aborted")
    assert "expected at least 4" in str(aborted["reason"])
