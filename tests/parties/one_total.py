"""A compute server's backend of AIM over one total of counts, without admission of owners."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

from mechanisms.accounting import Schedule
from mechanisms.workload import Workload
from parties.mpc.aim_backend import MpcBackend, server_ledger
from parties.mpc.openings import Openings
from parties.mpc.participants.admission import Admission
from parties.mpc.records import RunningTotal
from parties.mpc.storage.store import Store
from parties.observability.events import Progress
from protocols.context import Context
from protocols.measure import noise_of
from protocols.noise_kinds import DISCRETE
from protocols.transcript import Transcript


class OneTotal(NamedTuple):
    """In place of ``Admission``: the same ``total`` in each round."""

    total: RunningTotal

    async def admit(self, round: int) -> RunningTotal:
        """See ``Admission.admit``."""
        return self.total


@contextmanager
def backend_of(
    ctx: Context,
    workload: Workload,
    plan: Schedule,
    *,
    total: RunningTotal,
    folder: Path,
    max_rows: int,
) -> Iterator[tuple[MpcBackend, Store]]:
    """Opens a store in ``folder`` and the backend of a party, whose noise is discrete."""
    with Store(folder, "0" * 64) as store:
        transcript = Transcript(folder / "t.jsonl", sign=lambda head: head, header={})
        backend = MpcBackend(
            ctx,
            workload,
            plan,
            admission=cast("Admission", OneTotal(total)),
            ledger=server_ledger(store, transcript, plan.rho),
            store=store,
            transcript=transcript,
            progress=Progress(),
            max_rows=max_rows,
            selections={},
            noise=noise_of(DISCRETE),
            openings=Openings(ctx.fresh_noise_keys(), "", ""),
        )
        yield backend, store
        transcript.close()
