"""FLAIM on one machine: as real processes, or simulated in this process with the same outputs.

``run_simulation`` uses the messages of `parties.local.flaim_simulation` and SecAgg's real state machines; its bytes are
those of a deployed client's frames (``frame_overhead``). Secret: the table, which a trial has in one place. Known
limits of the simulation: no connections, hence no dropouts and no transcript.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from mechanisms.flaim import FlaimResult, FlaimRound, last_round
from mechanisms.flaim_settings import FlaimSettings
from parties.config import Config
from parties.config.algorithms import silo_algorithms
from parties.federation.messages import HEADER_BYTES, POSITION_BYTES
from parties.federation.result import RESULT
from parties.federation.secure_sum import SumTally
from parties.federation.sum_parameters import is_malicious
from parties.foundation.errors import ConfigError
from parties.local.assemble import collect, open_run_folder
from parties.local.federation_launcher import SERVER, launch_federation, with_server
from parties.local.flaim_simulation import FlaimOutcome, simulate
from parties.local.folder import RunFolder
from parties.local.launcher import prepare_trial
from parties.local.request import Trial, TrialRequest
from parties.methods.flaim.report import flaim_report, write_flaim_quality
from parties.methods.flaim.server import flaim_document
from parties.methods.flaim.settings import (
    ORACLE,
    check_flaim,
    check_whole_rows,
    flaim_section,
    settings_of,
    smallest_sum,
)
from parties.methods.flaim.transcript_schema import AGGREGATE, CHOICES, CHOOSE, SUMS
from parties.mpc.outputs import write_synthetic
from parties.network.frames import SIZE_BYTES
from parties.observability.events import Progress
from parties.observability.heartbeat import Heartbeat
from parties.report.from_result import read_result
from parties.report.model import ReportedOpening, RunReport
from parties.session.study import Study
from parties.storage.files import write_atomic, write_json
from secagg.graph import ThreatModel

SECAGG_UP, SECAGG_DOWN = 4, 5
"""Numbers of a client's messages, up and down, in an unsigned session."""


async def run_simulation(trial: Trial, folder: RunFolder, *, progress: Progress) -> None:
    """Simulates ``trial`` and writes result.json, model and table into ``folder``.

    Raises StoreError, MechanismError.
    """
    config, settings = trial.config, settings_of(trial.config)
    section = flaim_section(config)
    write_atomic(folder.config, config.resolved_toml())
    owners = trial.partition.owners
    tables = [trial.codes[owners == index] for index in range(trial.partition.clients)]

    rounds = last_round(settings, settings.schedule(len(settings.common(trial.workload))))
    heartbeat = Heartbeat(progress, rounds=rounds)

    def on_round(done: FlaimRound) -> None:
        number, text = settings.counted(done.round), settings.round_text(done.round)
        heartbeat.progress.event("rounds", f"{text} done", done=number)

    async with heartbeat.running():
        with heartbeat.activity("estimating the model"):
            outcome = await simulate(
                tables,
                trial.workload,
                settings,
                secagg=True,
                signed=is_malicious(trial.config),
                threat=ThreatModel(section.corrupt, section.dropouts),
                on_round=on_round,
                on_iteration=heartbeat.iteration,
            )
    written = await asyncio.to_thread(
        write_synthetic, folder.path, outcome.model, config, total=outcome.total
    )
    write_flaim_quality(
        folder.party(0), trial.workload, settings, outcome.result, codes=written.codes
    )
    least = smallest_sum(section, one_way=False)
    document = flaim_document(
        outcome.result,
        trial.workload,
        settings,
        clients=len(trial.names),
        rows=written.said.rows,
        tally=_tally(outcome.result, settings, least),
    )
    traffic = _traffic(trial, outcome, settings, smallest=least)
    write_json(folder.party(0) / RESULT, {**document, **traffic})


def _traffic(
    trial: Trial, outcome: FlaimOutcome, settings: FlaimSettings, *, smallest: int
) -> dict[str, object]:
    """Returns the part of result.json that a server makes by `parties.federation.result.server_document`."""
    names, result = trial.names, outcome.result
    sent, received = Counter(dict.fromkeys(names, 0)), Counter(dict.fromkeys(names, 0))
    for item in outcome.traffic:
        sent[names[item.client]] += item.sent
        received[names[item.client]] += item.received
    for done in result.rounds:
        for client in done.participants:
            up, down = frame_overhead(done, client, settings, smallest=smallest)
            sent[names[client]] += up
            received[names[client]] += down
    secagg = sum(item.secagg for item in outcome.traffic)
    seconds = dict(outcome.seconds)
    steps = {
        name: {"sent": 0, "received": 0, "messages": 0, "seconds": seconds.pop(name, 0.0)}
        for name in (CHOOSE, AGGREGATE)
    }
    return {
        "rho_total": settings.rho,
        "ledger": [entry.to_dict() for entry in outcome.ledger],
        "opened": [asdict(item) for item in _opened(trial, result)],
        "clients_sent": dict(sent),
        "clients_received": dict(received),
        "by_kind": {"received": {"secagg, both directions": secagg}, "sent": {}},
        "steps": steps,
        "lost": {},
        "seconds": seconds,
    }


def frame_overhead(
    done: FlaimRound, client: int, settings: FlaimSettings, *, smallest: int
) -> tuple[int, int]:
    """Bytes of frames and headers for one participant in a round without dropouts: (sent, received)."""
    header = SIZE_BYTES + HEADER_BYTES
    up = down = header if done.round > 0 and settings.chosen else 0
    sums = [len(members) for members in sum_clients(done, settings) if client in members]
    for members in sums:
        down += header + POSITION_BYTES
        if members < smallest:
            up += header
        else:
            up, down = up + SECAGG_UP * SIZE_BYTES, down + SECAGG_DOWN * SIZE_BYTES
    return up, down


def sum_clients(done: FlaimRound, settings: FlaimSettings) -> list[tuple[int, ...]]:
    """Returns the requested clients of each sum of a round."""
    if settings.grouping == "union" or done.round == 0:
        return [done.participants]
    everybody = [done.participants] if any(m.one_way for m in done.measurements) else []
    return [*everybody, *done.choosers.values()]


def _tally(result: FlaimResult, settings: FlaimSettings, smallest: int) -> SumTally:
    sizes = [
        len(members)
        for done in result.rounds
        if not done.lost
        for members in sum_clients(done, settings)
    ]
    masked = [size for size in sizes if size >= smallest]
    return SumTally(
        taken=len(masked),
        plain=len(sizes) - len(masked),
        plain_contributors=sum(sizes) - sum(masked),
        given_up=len(result.lost_rounds),
        least_survivors=min(masked, default=None),
    )


def _opened(trial: Trial, result: FlaimResult) -> list[ReportedOpening]:
    opened = []
    for done in result.rounds:
        if done.choosers:
            chosen = sum(map(len, done.choosers.values()))
            opened.append(ReportedOpening(done.round, CHOOSE, CHOICES, chosen))
        cells = sum(int(np.size(m.noisy)) for m in done.measurements)
        opened.append(ReportedOpening(done.round, AGGREGATE, SUMS, cells))
    return opened


FLAIM_TRIAL_OVERRIDES: Mapping[str, object] = {
    "flaim.clients": None,
    "flaim.address": None,
    **dict.fromkeys(("silos", *silo_algorithms())),
}
"""A trial's changes of a config: the trial makes its own names and address, and has no other algorithm."""


def flaim_request(
    config: Config,
    dataset: str,
    clients: int | None,
    *,
    partition: str,
    label: str | None,
    seed: int,
    simulate: bool = False,
) -> TrialRequest:
    """Returns the request for the config's variant. Raises ConfigError if its tables are not FLAIM's."""
    # This check comes before errors that ask for options FLAIM's commands do not have.
    check_whole_rows(config)
    method = f"flaim-{flaim_section(config).variant}{'-simulated' if simulate else ''}"
    return TrialRequest(method, dataset, clients, partition, label, seed)


def open_flaim_folder(trial: Trial, out: Path | None, *, simulate: bool = False) -> RunFolder:
    """Opens the run folder, as ``open_run_folder``. Raises ConfigError if processes cannot run it, StoreError."""
    if check_flaim(trial.study).variant == ORACLE and not simulate:
        raise ConfigError(
            trial.config.source,
            "flaim.variant",
            "is 'oracle', which needs the pooled table; expected another one, or --simulate",
        )
    return open_run_folder(trial.config.run.id, trial.fingerprint, out, servers=(SERVER,))


async def run_flaim(
    trial: Trial,
    folder: RunFolder,
    progress: Progress,
    *,
    simulate: bool = False,
    processes: int | None = None,
) -> RunReport:
    """Runs ``trial`` in ``folder``; returns the report without utility.

    Raises as `parties.local.federation_launcher.launch_federation` and `parties.local.flaim.run_simulation`.
    """
    started = time.perf_counter()
    if simulate:
        config, extra = trial.config, {}
        await run_simulation(trial, folder, progress=progress)
    else:
        section = flaim_section(trial.config)

        def prepare() -> Config:
            return prepare_trial(
                trial,
                folder,
                (section.server,),
                lambda trial, folder: with_server(trial.config, folder, section, trial.names),
            )

        launched = await launch_federation(
            section, trial.names, folder, prepare, processes=processes, progress=progress
        )
        collect(folder)
        config, extra = launched.config, {"setup": launched.setup_s}
    return flaim_report(
        Study(config, trial.workload),
        read_result(folder.party(0)),
        dataset=trial.request.dataset,
        wall_s={"total": time.perf_counter() - started, **extra},
        trial=True,
        transcript=None if simulate else folder.party(0) / "transcript.jsonl",
    )
