"""A server that lets one of the two others go on alone, and opens values with it: the third has registered the release.

One honest server's share and the deviating one's open a value. The deviating server therefore tells the last comparison
of a round's inputs to one of the others alone, and keeps the third waiting: it has opened nothing. Were a release
registered only then, the third would sign that nothing was opened, and with the deviating one's word an owner's charge
would come back.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import parties.mpc.aim_backend
import protocols.measure
from parties.config import CertificateFiles
from parties.mpc import openings
from parties.mpc.openings import Openings
from parties.mpc.records import RoundInputs
from parties.mpc.steps import COMMIT
from parties.mpc.storage.releases import ReleaseStore
from parties.storage.release_registry import ReleaseRegistry
from protocols.context import Context
from protocols.shares import Share
from tests.parties.mesh import Cluster
from tests.parties.support import make_codes, make_config
from tests.parties.test_withdrawal import A, B, Going

LIAR, ALONE, WAITING = 2, 1, 0
Open = Callable[[Context, Share, str], object]


class Liar:
    """Server 2; ``opened`` are the values that it has opened, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: dict[str, list[int]] = {}
        self.has_opened = asyncio.Event()
        self._commit = openings.commit_inputs
        self._open = protocols.measure.open_value
        monkeypatch.setattr(parties.mpc.aim_backend, "commit_inputs", self.commit)
        monkeypatch.setattr(protocols.measure, "open_value", self.open)

    async def commit(
        self,
        ctx: Context,
        releases: ReleaseStore,
        known: Openings,
        *,
        inputs: RoundInputs,
        register: Callable[[], None],
    ) -> RoundInputs:
        if ctx.pid != LIAR:
            return await self._commit(ctx, releases, known, inputs=inputs, register=register)
        with ctx.step(COMMIT.name, round=inputs.round) as c:
            mine = hashlib.sha256(json.dumps(inputs.to_list()).encode()).digest()
            await c.exchange(mine, max_bytes=len(mine))
            label = c._next_label()
            c._post_public(ALONE, label, mine)
            for pid in (ALONE, WAITING):
                await c._fetch_public(pid, label, len(mine))
        return inputs

    async def open(self, ctx: Context, x_sh: Share, what: str) -> object:
        if ctx.pid != LIAR:
            return await self._open(ctx, x_sh, what)
        ring = x_sh.ring
        replies = await ctx.round({}, {ctx.prev_pid: ring.to_wire(x_sh.own).size})
        third = ring.from_wire(replies[ctx.prev_pid], x_sh.shape)
        value = ring.add(ring.add(x_sh.own, x_sh.next), third)
        self.opened[what] = ring.decode(value).tolist()
        self.has_opened.set()
        return await asyncio.Event().wait()


@pytest.mark.parametrize("security", ["semi-honest", "malicious"])
async def test_the_server_that_waits_has_registered_what_another_opened(
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    monkeypatch: pytest.MonkeyPatch,
    security: str,
) -> None:
    config = make_config(
        {
            "run.security": security,
            "run.rounds": 1,
            "clients.minimum": 1,
            "timeouts.connect_s": 20.0,
            "timeouts.receive_s": 60.0,
        }
    )
    liar = Liar(monkeypatch)
    going = Going(Cluster(config, tmp_path, certificates))
    try:
        for name, seed in ((A, 1), (B, 2)):
            await going.who(name).submit(make_codes(20, seed))
        going.closed.set()
        async with asyncio.timeout(60):
            await liar.has_opened.wait()
        released = [
            ReleaseRegistry(going.cluster.register(pid)).has_released_client(
                config.digest(), party.name, A
            )
            for pid, party in enumerate(config.require_parties())
        ]
    finally:
        going.task.cancel()
        await asyncio.gather(going.task, return_exceptions=True)
    # It is a real deviation: noisy counts were opened with one of the others alone.
    assert list(liar.opened) == ["measure.counts"]
    assert (released[ALONE], released[WAITING]) == (True, True)
