"""One owner's tables under several names: what servers have already, what was withdrawn, and what each costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.source import TableSource
from parties.cli.submit import returned_text
from parties.config import CertificateFiles, Config
from parties.foundation.errors import SubmissionRefused, SubmitError
from parties.mpc.storage.store import Store
from parties.mpc.submission.participation import (
    other_states,
    refunds_of,
    replace_rows,
    state_path,
    submit_rows,
)
from parties.mpc.submission.resubmit import Replacement, withdraw
from parties.mpc.submission.submit import Submitted
from parties.mpc.submission.withdrawal_client import WithdrawalProgress
from parties.observability.events import Progress
from parties.session.owner import DataOwner, Table
from parties.storage.owner_budget import OwnerBudget
from tests.parties.support import OWNERS, make_codes, make_config, running_servers

Certificates = dict[str, CertificateFiles]
A = OWNERS[0]
FIRST, LATER = make_codes(20, 1), make_codes(19, 2)


@dataclass
class Host:
    """The owner's machine: one budget, and tables by the names of their files."""

    folder: Path
    config: Config
    files: CertificateFiles

    def owner(self, name: str) -> DataOwner:
        path = self.folder / name
        path.write_text("sex,ward,age\n")
        table = Table(TableSource(str(path)), ignore_extra=False)
        named = {"ca": self.files.ca, "cert": self.files.cert, "key": self.files.key}
        return DataOwner.of(self.config, table, budget=self.budget, dataset="stays", **named)

    async def join(self, name: str, codes: NDArray[np.int32]) -> Submitted:
        progress = Progress()
        return await submit_rows(
            self.owner(name), codes, capacity=None, state=None, progress=progress
        )

    async def replace(self, name: str, codes: NDArray[np.int32]) -> Replacement:
        owner = self.owner(name)
        state = state_path(owner, None)
        return await replace_rows(owner, codes, capacity=None, state=state, progress=Progress())

    async def withdraw(self, name: str) -> WithdrawalProgress:
        owner = self.owner(name)
        path = state_path(owner, None)
        return await withdraw(
            self.config,
            self.files,
            state=path,
            give_back=refunds_of(owner),
            others=other_states(owner, path),
        )

    def state(self, name: str) -> Path:
        return state_path(self.owner(name), None)

    @property
    def budget(self) -> Path:
        return self.folder / "budget"

    @property
    def spending(self) -> int:
        (dataset,) = OwnerBudget(self.budget).datasets()
        return len(dataset.spending)


@pytest.fixture
def host(tmp_path: Path, certificates: Certificates) -> Host:
    folder = tmp_path / "owner"
    folder.mkdir()
    return Host(folder, make_config({"timeouts.submit_s": 2.0}), certificates[A])


def ends(submissions: Sequence[str], proof: str) -> None:
    """The program is ended before a charge comes back."""
    raise KeyboardInterrupt


def settle(stores: Mapping[int, Store], version: int) -> None:
    for store in stores.values():
        store.submissions.settle(A, version)


async def test_another_table_is_refused_before_it_is_charged(
    host: Host, tmp_path: Path, certificates: Certificates
) -> None:
    async with running_servers(host.config, tmp_path, certificates):
        await host.join("stays.csv", FIRST)
        # More may be spent: only what is checked before a charge holds.
        OwnerBudget(host.budget).set_limit("stays", 9.0, 1e-5, why="a test")
        with pytest.raises(SubmissionRefused, match="has another submission") as refused:
            await host.join("april.csv", LATER)
        assert f"--replace and --state {host.state('stays.csv')}," in str(refused.value)
        assert "nothing was charged or sent" in str(refused.value)
        assert (host.spending, OwnerBudget(host.budget).intended()) == (1, [])
        assert not host.state("april.csv").exists()
        # The same table goes on, though.
        assert (await host.join("stays.csv", FIRST)).earlier


async def test_another_table_is_taken_where_the_first_one_was_withdrawn(
    host: Host, tmp_path: Path, certificates: Certificates
) -> None:
    async with running_servers(host.config, tmp_path, certificates) as stores:
        for version, (name, codes) in enumerate(
            [("stays.csv", FIRST), ("corrected.csv", LATER), ("third.csv", FIRST)], start=1
        ):
            sent = await host.join(name, codes)
            assert (sent.complete, sent.version, host.spending) == (True, version, 1)
            settle(stores, version)
            assert (await host.withdraw(name)).complete
            assert host.spending == 0


async def test_a_withdrawal_by_another_table_gives_the_charge_back(
    host: Host, tmp_path: Path, certificates: Certificates
) -> None:
    digest = host.config.digest()
    async with running_servers(host.config, tmp_path, certificates) as stores:
        await host.join("stays.csv", FIRST)
        assert "still charged for this study" in returned_text([], host.budget, digest)
        settle(stores, 1)
        assert (await host.withdraw("renamed.csv")).complete
        assert host.spending == 0
        assert "nothing of it is charged" in returned_text([], host.budget, digest)
        assert (await host.join("stays.csv", FIRST)).version == 2


async def test_a_submission_that_servers_have_goes_on_after_an_earlier_withdrawal(
    host: Host, tmp_path: Path, certificates: Certificates
) -> None:
    """A budget from before the charge: the same version is sent on, and is charged once."""
    async with running_servers(host.config, tmp_path, certificates) as stores:
        await host.join("stays.csv", FIRST)
        settle(stores, 1)
        await host.withdraw("stays.csv")
        with pytest.MonkeyPatch.context() as patch:
            # The program ends before it writes down the receipts.
            patch.setattr("parties.mpc.submission.submit._save_receipts", lambda *_: None)
            first = await host.join("stays.csv", FIRST)
        host.budget.unlink()
        again = await host.join("stays.csv", FIRST)
        assert (first.version, again.version, again.upload) == (2, 2, first.upload)
        assert host.spending == 1


async def test_a_withdrawal_that_was_cut_off_is_finished_by_another_table(
    host: Host, tmp_path: Path, certificates: Certificates
) -> None:
    async with running_servers(host.config, tmp_path, certificates) as stores:
        await host.join("stays.csv", FIRST)
        settle(stores, 1)
        owner = host.owner("stays.csv")
        with pytest.raises(KeyboardInterrupt):
            await withdraw(host.config, host.files, state=state_path(owner, None), give_back=ends)
        assert host.spending == 1
        await host.withdraw("renamed.csv")
        assert host.spending == 0


async def test_a_replacement_by_another_table_names_the_state_of_the_first(
    host: Host, tmp_path: Path, certificates: Certificates
) -> None:
    async with running_servers(host.config, tmp_path, certificates):
        await host.join("one.csv", FIRST)
        with pytest.raises(SubmitError, match="is of the submission that the servers have") as said:
            await host.replace("stays.csv", LATER)
        assert f"Expected --state {host.state('one.csv')}" in str(said.value)
        assert host.spending == 1


async def test_a_replacement_by_the_same_rows_replaces_nothing(
    host: Host, tmp_path: Path, certificates: Certificates
) -> None:
    async with running_servers(host.config, tmp_path, certificates) as stores:
        await host.join("stays.csv", FIRST)
        settle(stores, 1)
        await host.withdraw("stays.csv")
        await host.join("stays.csv", LATER)
        again = await host.replace("stays.csv", LATER)
        assert (again.former, again.submitted.earlier, again.submitted.version) == (None, True, 2)
