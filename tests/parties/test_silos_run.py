"""Sums between silos over mutual TLS, with the server and all silos in one event loop."""

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechanisms.errors import RoundLost
from parties.config import CertificateFiles, Config
from parties.federation.client import ParticipantReport
from parties.federation.journal import SUM_TABLE_SQL as SUM_TABLE
from parties.federation.journal import SumJournal
from parties.federation.result import RESULT
from parties.federation.server import run_federated_server
from parties.federation.silos import check_silos, silos_plan
from parties.federation.sum_parameters import SumSpec, honest_survivors, silos_section
from parties.foundation.errors import ConfigError, StudyReleased
from parties.identity.tls import make_certificates
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from parties.storage.requested_rounds import RequestedRounds
from secagg.noise import SessionNoise
from tests.parties.flaim_support import Events
from tests.parties.silos_support import (
    MALICIOUS,
    NAMES,
    SERVER,
    SUMS,
    TABLE,
    Tails,
    leaving,
    numbers_of,
    play,
    run_silo,
    silos_config,
)

Certificates = Mapping[str, CertificateFiles]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("silos"), [SERVER], NAMES)


def result_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "server" / RESULT).read_text())


def exact(number: int, silos: set[int]) -> np.ndarray:
    return sum(numbers_of(silo, number) for silo in silos)


@pytest.mark.parametrize("security", ["semi-honest", "malicious"])
async def test_run_has_noisy_sums_and_sends_what_the_formula_says(
    certificates: Certificates, tmp_path: Path, security: str
) -> None:
    config = silos_config(certificates, MALICIOUS if security == "malicious" else None)
    _, silos = await play(config, certificates, tmp_path, Tails(config))
    result = result_in(tmp_path)
    for number, total in enumerate(result["facts"]["totals"]):
        off = np.array(total) - exact(number, set(range(6)))
        # Twelve deviations, of six silos' noise where each of them adds enough for the fewest.
        assert 0 < np.abs(off).max() < 150
    assert result["facts"]["survivors"] == [6] * SUMS
    # Besides: what it says first and what it is told first, the result, goodbye; cards and members in malicious mode.
    sent, received = result["sums"]["formula_sent"], result["sums"]["formula_received"]
    greeting = 118 if security == "semi-honest" else 559
    # Each has five neighbours, and makes two or three pair secrets in a sum: half of one from the mean.
    off_sent = [own - sent - greeting for own in result["silos_sent"].values()]
    assert abs(np.mean(off_sent)) < 8
    assert max(map(abs, off_sent)) < 8 + SUMS * 570
    others = [own - received for own in result["silos_received"].values()]
    assert max(others) < 3000 + SUMS * 570
    if security == "semi-honest":
        assert np.mean(others) == 107
    assert all(isinstance(silo, ParticipantReport) and silo.finished for silo in silos)
    assert {(tmp_path / name / "result").read_bytes() for name in NAMES} == {b"result"}
    assert silos[0].rho_spent == pytest.approx(result["rho_total"], rel=1e-9)
    lines = (tmp_path / "server" / "transcript.jsonl").read_text().splitlines()
    steps = [record for line in lines if (record := json.loads(line))["kind"] == "step"]
    for name, cost in result["steps"].items():
        for item in ("sent", "received", "messages"):
            assert cost[item] == sum(step[item] for step in steps if step["step"] == name)
    assert sum(cost["messages"] for cost in result["steps"].values()) > 0


async def test_run_without_noise_has_exact_sums_which_are_written_nowhere_but_in_its_result(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = silos_config(certificates)
    await play(config, certificates, tmp_path, Tails(config, noisy=False))
    result = result_in(tmp_path)
    for number, total in enumerate(result["facts"]["totals"]):
        assert total == exact(number, set(range(6))).tolist()
    assert (result["private"], result["ledger"]) == (False, [])


@pytest.mark.parametrize("at", ["silos.request", "secagg.keys", "secagg.inbox", "secagg.survivors"])
async def test_run_goes_on_without_a_silo_that_leaves_in_the_middle_of_a_sum(
    certificates: Certificates, tmp_path: Path, at: str
) -> None:
    config = silos_config(certificates)
    plan = Tails(config, noisy=False)
    gone = leaving(config, certificates, tmp_path, plan, 4, at=at)
    await play(config, certificates, tmp_path, plan, {4: gone})
    facts = result_in(tmp_path)["facts"]
    # Whose masked vector was there when it left is in the sum.
    counted = {*range(6)} if at == "secagg.survivors" else {0, 1, 2, 3, 5}
    assert facts["survivors"] == [6, len(counted), 5]
    assert facts["totals"][1] == exact(1, counted).tolist()
    assert facts["totals"][2] == exact(2, {0, 1, 2, 3, 5}).tolist()


async def test_run_that_charges_nothing_is_released_once_all_the_same(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = silos_config(certificates)
    plan = Tails(config, noisy=False)
    await play(config, certificates, tmp_path, plan)
    with pytest.raises(StudyReleased):
        await run_federated_server(
            config,
            tmp_path / "again",
            progress=Events(),
            closed=asyncio.Event(),
            plan=silos_plan(config, plan),
        )


async def test_old_copy_of_a_run_that_charges_nothing_is_refused(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = silos_config(certificates)
    plan, old = Tails(config, noisy=False), tmp_path / "old"
    enter = RequestedRounds.enter

    def copied_before(self: RequestedRounds, number: int, participants: Sequence[int]) -> None:
        if number == SUMS:
            shutil.copytree(tmp_path / "server", old)
        enter(self, number, participants)

    monkeypatch.setattr(RequestedRounds, "enter", copied_before)
    await play(config, certificates, tmp_path, plan)
    with pytest.raises(StudyReleased, match="is an old copy"):
        await run_federated_server(
            config,
            old,
            progress=Events(),
            closed=asyncio.Event(),
            plan=silos_plan(config, plan),
        )


async def test_malicious_run_goes_on_without_a_silo_that_leaves(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = silos_config(certificates, {**MALICIOUS, "silos.minimum": 4})
    plan = Tails(config)
    gone = leaving(config, certificates, tmp_path, plan, 2, at="secagg.inbox")
    await play(config, certificates, tmp_path, plan, {2: gone})
    assert result_in(tmp_path)["facts"]["survivors"] == [6, 5, 5]


async def test_sum_of_too_few_is_lost_and_opens_nothing(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = silos_config(certificates, {"silos.minimum": 5})
    plan = Tails(config)
    faults = {
        index: leaving(config, certificates, tmp_path, plan, index, at="secagg.inbox")
        for index in (1, 4)
    }
    with pytest.raises(RoundLost, match="sum 2"):
        await play(config, certificates, tmp_path, plan, faults)
    records = (tmp_path / "server" / "transcript.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["kind"] == "opened" for line in records) == 1


async def until_done(
    config: Config, certificates: Certificates, folder: Path, plan: Tails, done: int
) -> None:
    """A run whose server is stopped after so many sums."""
    events, reached = Events(), asyncio.Event()
    events.on_event = lambda name, fields: (
        reached.set() if name == "round-done" and fields["done"] == done else None
    )
    (folder / "server").mkdir()
    server = asyncio.create_task(
        run_federated_server(
            config,
            folder / "server",
            progress=events,
            closed=asyncio.Event(),
            plan=silos_plan(config, plan),
        )
    )
    silos = [
        asyncio.create_task(
            run_silo(config, TABLE, certificates[name], folder / name, progress=Events(), plan=plan)
        )
        for name in NAMES
    ]
    await reached.wait()
    server.cancel()
    await asyncio.gather(server, *silos, return_exceptions=True)


async def test_server_that_is_started_again_goes_on_after_its_last_sum(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Sum 2 was being taken when it ended: lost. It is charged, and not taken again."""
    config = silos_config(certificates)
    plan = Tails(config, gives_up=False)
    await until_done(config, certificates, tmp_path, plan, 1)
    store = tmp_path / "server" / "store"
    with Database(store, config.digest(), [*LEDGER, SUM_TABLE]) as database:
        history = SumJournal(database)
        first = history.taken(1, plan.request(0))
        assert first is not None
        if history.asked == 1:
            asked = plan.request(1)
            DurableLedger(database, plan.rho).charge(2, asked.step, asked.event)
            history.begin(2, asked)
        spent = DurableLedger(database).spent
    for name in NAMES:
        # A silo's ledger is its own: begun anew here, as after the loss of a folder.
        (tmp_path / name).rename(tmp_path / f"{name}-before")
    await play(config, certificates, tmp_path, plan)
    result = result_in(tmp_path)
    assert result["facts"]["survivors"] == [6, 0, 6]
    assert result["facts"]["totals"][0] == first.values.tolist()
    assert (result["sums"]["before"], result["sums"]["taken"]) == (1, 1)
    assert sum(entry["rho"] for entry in result["ledger"]) == pytest.approx(1.5 * spent)


async def test_silo_with_another_plan_is_not_let_in(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = silos_config(certificates, {"clients.wait_s": 1.0})

    async def other() -> object:
        name = NAMES[3]
        return await run_silo(
            config,
            TABLE,
            certificates[name],
            tmp_path / name,
            progress=Events(),
            plan=Tails(config, noisy=False),
        )

    _, silos = await play(config, certificates, tmp_path, Tails(config), {3: other})
    assert "another workload" in str(silos[3])
    assert result_in(tmp_path)["facts"]["survivors"] == [5] * SUMS


def test_check_silos_wants_two_honest_silos_and_noise_that_a_lying_server_cannot_leave_out(
    certificates: Certificates,
) -> None:
    config = silos_config(certificates)
    check_silos(config, Tails(config))
    assert honest_survivors(config) == 2
    for changes, key in (
        ({"silos.corrupt": 0.6}, "silos.corrupt"),
        ({"run.security": "malicious"}, "silos.noise"),
        ({"silos.minimum": 7}, "silos.minimum"),
    ):
        changed = silos_config(certificates, changes)
        with pytest.raises(ConfigError) as caught:
            check_silos(changed, Tails(changed))
        assert caught.value.key == key


def test_silos_say_how_many_may_drop_out_of_a_sum_and_how_long_a_silo_waits_for_one(
    certificates: Certificates,
) -> None:
    def least_survivors(dropouts: float) -> int:
        section = silos_section(silos_config(certificates, {"silos.dropouts": dropouts}))
        spec = SumSpec(section, 1000, 3, length=1, low=0, high=1, noise=SessionNoise())
        return spec.least_survivors()

    assert (least_survivors(0.1), least_survivors(0.2)) == (900, 800)
    config = silos_config(certificates, {"silos.idle_s": 7.0})
    assert config.require_federation().idle_s == 7.0


def test_config_of_silos_comes_back_from_toml_and_refuses_two_algorithms(
    certificates: Certificates,
) -> None:
    config = silos_config(certificates)
    again = config.override({})
    assert (again, again.digest()) == (config, config.digest())
    assert config.override({"silos.address": "127.0.0.1:9"}).digest() == config.digest()
    assert config.override({"tda.any": 2}).digest() != config.digest()
    with pytest.raises(ConfigError, match="expected \\[tda\\] or \\[mtl\\]"):
        config.override({"mtl": {}})
    with pytest.raises(ConfigError, match="without an algorithm"):
        config.override({"tda": None})
