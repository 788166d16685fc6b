"""A server whose folder comes back from a backup of any moment: the study ends, and its audit passes."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import parties.mpc.server
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from tests.parties.audit_runs import collect
from tests.parties.mesh import EVERYONE, Cluster, make_uniform
from tests.parties.support import make_config
from tests.parties.test_orders import Operated

Certificates = dict[str, CertificateFiles]
LOST = "cannot be counted anew"
IN_CI = (3, 8, 37)


@dataclass(frozen=True, slots=True)
class Restore:
    """A restore of ``victim``'s folder of when ``owners`` had sent, or ``round`` was done (-1: none).

    It comes after a kill in ``kill``; ``minimum`` owners are enough.
    """

    victim: int
    owners: int
    round: int
    kill: tuple[int, str, int]
    minimum: int

    @classmethod
    def drawn(cls, seed: int) -> "Restore":
        rng = np.random.default_rng([seed, 42])
        round = int(rng.integers(-1, 2))
        killed = int(rng.integers(max(1, round + 2), 5))
        owners = int(rng.integers(1, 4)) if round < 0 else 3
        event = str(rng.choice(["round", "selected"]))
        kill = int(rng.integers(3)), event, killed
        return cls(int(rng.integers(3)), owners, round, kill, int(rng.integers(2, 4)))


async def play(drawn: Restore, cluster: Cluster) -> None:
    """Plays it to the end of the study; where shares are lost, the three operators end it with the rounds done."""
    if drawn.round < 0:
        first = Operated(cluster)
        await cluster.submit(EVERYONE[: drawn.owners])
        await first.said(f"{drawn.owners} of 3", drawn.victim)
        await first.end()
    else:
        await cluster.run(owners=EVERYONE, kill=(0, "round", drawn.round + 1))
    folder, backup = cluster.directory(drawn.victim), cluster.folder / "backup"
    shutil.copytree(folder, backup)
    assert None not in await cluster.run(owners=EVERYONE, kill=drawn.kill)
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    again = Operated(cluster)
    try:
        texts = again.events[drawn.victim].texts
        await again.until(lambda: again.task.done() or any(LOST in text for text in texts))
        for orders in again.orders:
            orders.ask(finish=not again.task.done())
        async with asyncio.timeout(60):
            assert await again.task == [None] * 3
    finally:
        await again.end()


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n in IN_CI else pytest.mark.slow) for n in range(48)]
)
async def test_a_study_ends_after_a_restore(
    seed: int, tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    drawn = Restore.drawn(seed)
    changes = {"run.rounds": 4, "clients.minimum": drawn.minimum, "timeouts.connect_s": 9.0}
    cluster = Cluster(make_config(changes), tmp_path, certificates)
    await play(drawn, cluster)
    audit = audit_folder(collect(cluster, tmp_path / "run"))
    assert audit.ok, (drawn, [check for check in audit.checks if check.status == "fail"])
