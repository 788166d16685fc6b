"""FLAIM with all clients in this process, leaving the same things behind as the processes of `parties.flaim.launcher`.

Provides ``run_simulation``. The messages are those of `parties.flaim.simulation`, through the real state machines of
SecAgg; bytes are what a deployed client's frames would have (``framing``). Secret: the table, which a trial has in one
place. Known limits: no connections, hence no dropouts and no transcript.
"""

import asyncio
from collections import Counter
from dataclasses import asdict

import numpy as np

from mechanisms.accounting import Ledger
from mechanisms.flaim import FlaimResult, FlaimRound
from mechanisms.flaim_settings import FlaimSettings
from parties.distaim.outputs import write_synthetic
from parties.files import write_json, write_whole
from parties.flaim.federation import SumTally
from parties.flaim.messages import HEADER_BYTES, PLACE_BYTES
from parties.flaim.quality import keep_quality
from parties.flaim.result import RESULT, ServerFacts, flaim_document
from parties.flaim.simulation import FlaimOutcome, simulate
from parties.flaim.steps import AGGREGATE, CHOICES, CHOOSE, SUMS
from parties.flaim.sums import is_malicious, section_of, settings_of, smallest_sum
from parties.progress import Progress
from parties.pulse import Pulse
from parties.report.content import Opened
from parties.secagg.frames import SIZE_BYTES
from parties.trial.folder import Folder
from parties.trial.request import Trial
from secagg.graph import ThreatModel

SECAGG_UP, SECAGG_DOWN = 4, 5
"""Messages of a client in a session that is not signed."""


async def run_simulation(trial: Trial, folder: Folder, *, progress: Progress) -> None:
    """Simulate ``trial`` and write result.json, model and table into ``folder``. Raises StoreError, MechanismError."""
    config, settings = trial.config, settings_of(trial.config)
    section = section_of(config)
    write_whole(folder.config, config.resolved_toml())
    owners = trial.partition.owners
    tables = [trial.codes[owners == index] for index in range(trial.partition.clients)]

    rounds = settings.schedule(len(config.domain.columns)).rounds
    pulse = Pulse(progress, rounds=rounds)

    def on_round(done: FlaimRound) -> None:
        pulse.event("rounds", f"round {done.round} done", done=done.round)

    async with pulse.beating():
        with pulse.during("estimating the model"):
            outcome = await simulate(
                tables,
                trial.workload,
                settings,
                secagg=True,
                signed=is_malicious(trial.config),
                threat=ThreatModel(section.corrupt, section.dropouts),
                on_round=on_round,
                on_iteration=pulse.iteration,
            )
    ledger = Ledger(settings.rho, list(outcome.ledger))
    written = await asyncio.to_thread(
        write_synthetic, folder.path, outcome.model, config, total=outcome.total
    )
    keep_quality(folder.party(0), trial.workload, settings, outcome.result, codes=written.codes)
    document = flaim_document(
        outcome.result,
        trial.workload,
        settings,
        ledger=ledger,
        rows=written.said.rows,
        facts=_facts(trial, outcome, settings),
    )
    write_json(folder.party(0) / RESULT, document)


def _facts(trial: Trial, outcome: FlaimOutcome, settings: FlaimSettings) -> ServerFacts:
    names, result = trial.names, outcome.result
    sent, received = Counter(dict.fromkeys(names, 0)), Counter(dict.fromkeys(names, 0))
    for item in outcome.traffic:
        sent[names[item.client]] += item.sent
        received[names[item.client]] += item.received
    least = smallest_sum(section_of(trial.config), one_way=False)
    for done in result.rounds:
        for client in done.participants:
            up, down = framing(done, client, settings, smallest=least)
            sent[names[client]] += up
            received[names[client]] += down
    secagg = sum(item.secagg for item in outcome.traffic)
    seconds = dict(outcome.seconds)
    steps = {
        name: {"sent": 0, "received": 0, "messages": 0, "seconds": seconds.pop(name, 0.0)}
        for name in (CHOOSE, AGGREGATE)
    }
    return ServerFacts(
        clients=len(names),
        clients_sent=dict(sent),
        clients_received=dict(received),
        by_kind={"received": {"secagg, both directions": secagg}, "sent": {}},
        steps=steps,
        sums=_tally(result, settings, least),
        seconds=seconds,
        opened=_opened(trial, result),
    )


def framing(
    done: FlaimRound, client: int, settings: FlaimSettings, *, smallest: int
) -> tuple[int, int]:
    """What frames and headers add to one participant's messages in a round without dropouts: (sent, received)."""
    header = SIZE_BYTES + HEADER_BYTES
    up = down = header if done.round > 0 and settings.chosen else 0
    sums = [len(members) for members in members_of(done, settings) if client in members]
    for members in sums:
        down += header + PLACE_BYTES
        if members < smallest:
            up += header
        else:
            up, down = up + SECAGG_UP * SIZE_BYTES, down + SECAGG_DOWN * SIZE_BYTES
    return up, down


def members_of(done: FlaimRound, settings: FlaimSettings) -> list[tuple[int, ...]]:
    """Who was asked for each sum of a round."""
    if settings.grouping == "union" or done.round == 0:
        return [done.participants]
    everybody = [done.participants] if any(m.one_way for m in done.measurements) else []
    return [*everybody, *done.choosers.values()]


def _tally(result: FlaimResult, settings: FlaimSettings, smallest: int) -> dict[str, object]:
    sizes = [
        len(members)
        for done in result.rounds
        if not done.lost
        for members in members_of(done, settings)
    ]
    masked = [size for size in sizes if size >= smallest]
    tally = SumTally(
        secagg=len(masked),
        plain=len(sizes) - len(masked),
        plain_contributors=sum(sizes) - sum(masked),
        given_up=len(result.lost_rounds),
        least_survivors=min(masked, default=None),
    )
    return asdict(tally)


def _opened(trial: Trial, result: FlaimResult) -> list[Opened]:
    opened = []
    for done in result.rounds:
        if done.choosers:
            chosen = sum(map(len, done.choosers.values()))
            opened.append(Opened(done.round, CHOOSE, CHOICES, chosen))
        cells = sum(int(np.size(m.noisy)) for m in done.measurements)
        opened.append(Opened(done.round, AGGREGATE, SUMS, cells))
    return opened
