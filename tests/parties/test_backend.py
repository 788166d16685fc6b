"""The backend on shares where a run goes on after a restart; whole runs are in test_server and test_same_choices."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from mechanisms.accounting import fixed_rounds_plan
from parties.foundation.errors import StoreError
from parties.mpc.aim_backend import MpcBackend, server_ledger
from parties.mpc.openings import Openings
from parties.mpc.storage.store import Store
from parties.observability.events import Progress
from parties.storage.privacy_ledger import DurableLedger
from protocols.context import NoiseKeys
from protocols.measure import noise_of
from protocols.noise_kinds import DISCRETE
from protocols.transcript import Transcript
from tests.parties.support import make_config

KEYS = NoiseKeys(bytes(16), bytes(16), bytes(16))


async def test_select_refuses_a_selection_from_before_a_restart_that_is_no_candidate(
    tmp_path: Path,
) -> None:
    workload, plan = make_config().build_workload(), fixed_rounds_plan(0.1, 4, 3)
    with Store(tmp_path / "party-0", "0" * 64) as store:
        transcript = Transcript(tmp_path / "t.jsonl", sign=lambda head: head, header={})
        backend = MpcBackend(
            SimpleNamespace(pid=0, verifier=None),  # type: ignore[arg-type]
            workload,
            plan,
            admission=SimpleNamespace(),  # type: ignore[arg-type]
            ledger=server_ledger(store, transcript, plan.rho),
            store=store,
            transcript=transcript,
            progress=Progress(),
            max_rows=100,
            selections={0: 2},
            noise=noise_of(DISCRETE),
            openings=Openings(KEYS, "", ""),
        )
        with pytest.raises(StoreError, match="no candidate any more") as caught:
            await backend.select(SimpleNamespace(candidates=(0, 1, 3)), plan.epsilon)  # type: ignore[arg-type]
        transcript.close()
        assert ", ".join(workload.candidates[2]) in str(caught.value)
        # Nothing was charged, and nothing will be opened in its place.
        assert DurableLedger(store).entries == []
