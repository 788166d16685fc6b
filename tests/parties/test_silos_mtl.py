"""MR-MTL between silos over mutual TLS, with the server and all silos in one event loop."""

import asyncio
import json
import shutil
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechanisms.accounting import Ledger
from mechanisms.errors import BudgetExceeded, DataError
from mechanisms.fixed_point import pack_arrays
from mechanisms.text_table import TextTable
from parties.config import CertificateFiles, Config
from parties.federation.algorithm import SiloContext
from parties.federation.client import ParticipantReport, silo_participation
from parties.federation.result import RESULT
from parties.federation.server import run_federated_server
from parties.federation.silos import silos_plan
from parties.foundation.errors import ConfigError, StoreError
from parties.identity.tls import make_certificates
from parties.methods.mtl import MEAN, PERSONAL, STATE, MtlPlan
from parties.methods.registry import plan_of
from parties.observability.status import SILOS_SERVER, RunInfo, RunStatus
from parties.service.offline_status import offline_status
from parties.storage.owner_budget import BudgetAccount, OwnerBudget
from parties.storage.populations import TableIdentity
from tests.parties.flaim_support import Events
from tests.parties.silos_support import NAMES, SERVER, run_silo, silos_config

MTL = {
    "label": "score",
    "lambdas": ["0", "1", "fedavg"],
    "tuning_rounds": 2,
    "rate": 0.2,
    "test": 0.25,
    "held_out": 0.1,
}
COLUMNS = [
    {"name": "age", "kind": "integer", "low": 20, "high": 80, "bins": 6},
    {"name": "sex", "kind": "categorical", "categories": ["f", "m"]},
    {"name": "score", "kind": "integer", "low": 0, "high": 100, "bins": 5},
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CertificateFiles]:
    return make_certificates(tmp_path_factory.mktemp("mtl"), [SERVER], NAMES)


def mtl_config(
    certificates: Mapping[str, CertificateFiles], overrides: Mapping[str, object] | None = None
) -> Config:
    values = {"tda": None, "mtl": MTL, "column": COLUMNS, "workload": None, "run.rounds": 4}
    return silos_config(certificates, {**values, "run.delta": 1e-3, **(overrides or {})})


def table_of(number: int, rows: int = 60) -> TextTable:
    draw = np.random.default_rng(number)
    age, sex = draw.integers(20, 81, rows), draw.integers(0, 2, rows)
    score = np.clip(np.rint(0.8 * age + 10 * sex * number / 5 + draw.normal(0, 4, rows)), 0, 100)
    columns = {
        "age": [str(value) for value in age],
        "sex": ["fm"[value] for value in sex],
        "score": [str(int(value)) for value in score],
    }
    return TextTable(columns, range(2, 2 + rows))


async def play(
    config: Config,
    certificates: Mapping[str, CertificateFiles],
    folder: Path,
    *,
    dies: int | None = None,
    board: RunStatus | None = None,
) -> None:
    """A run with the server and the silos in this loop; silo ``dies`` is ended after a round, and started again.

    Raises what the server or a silo raises.
    """
    (folder / "server").mkdir()

    def one(index: int) -> Coroutine[Any, Any, ParticipantReport]:
        return run_silo(
            config,
            table_of(index),
            certificates[NAMES[index]],
            folder / NAMES[index],
            plan=plan_of(config),
            progress=Events(),
            epsilon=2.0 if index == 0 else None,
        )

    async def twice(index: int) -> ParticipantReport:
        first, path = asyncio.create_task(one(index)), folder / NAMES[index] / STATE
        while not path.exists() or json.loads(path.read_text())["silo"]["round"] < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        first.cancel()
        await asyncio.wait([first])
        return await one(index)

    server = run_federated_server(
        config,
        folder / "server",
        plan=silos_plan(config, plan_of(config)),
        progress=Events(),
        closed=asyncio.Event(),
        board=board,
    )
    silos = (twice(i) if i == dies else one(i) for i in range(len(NAMES)))
    for ended in await asyncio.gather(server, *silos, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended


def test_silo_that_dies_goes_on_with_its_model_and_its_charges(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path
) -> None:
    """A silo that missed rounds is never charged for one twice, and ends with a model like all others."""
    config = mtl_config(certificates, {"run.rounds": 12})
    board = RunStatus(RunInfo.of_federation(config))
    asyncio.run(play(config, certificates, tmp_path, dies=5, board=board))
    # What a board, and later its folder, count are sums.
    last, kept = board.status(), offline_status(tmp_path / "server")
    assert last["rounds"] == kept["rounds"] == {"done": 13, "now": None, "of": 13, "at_most": True}
    assert (kept["kind"], kept["phase"]) == (SILOS_SERVER, "finished")
    result = json.loads((tmp_path / "server" / RESULT).read_text())
    assert result["facts"]["least_models_in_a_mean"] >= 5
    steps = [json.loads((tmp_path / name / PERSONAL).read_text())["steps"] for name in NAMES]
    assert steps[:5] == [16] * 5
    assert 3 <= steps[5] <= 16


@pytest.mark.parametrize("security", ["semi-honest", "malicious"])
def test_run_leaves_every_silo_its_model_and_what_it_spent(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path, security: str
) -> None:
    config = mtl_config(certificates, {"run.security": security})
    asyncio.run(play(config, certificates, tmp_path))
    result = json.loads((tmp_path / "server" / RESULT).read_text())
    assert result["facts"]["lambda"] in MTL["lambdas"]
    assert set(result["facts"]["votes"]) == set(MTL["lambdas"])
    assert result["facts"]["least_models_in_a_mean"] == 6
    mean = json.loads((tmp_path / "server" / MEAN).read_text())["weights"]
    for index, name in enumerate(NAMES):
        personal = json.loads((tmp_path / name / PERSONAL).read_text())
        budget = 2.0 if index == 0 else config.run.epsilon
        assert 0.9 * budget < personal["epsilon_spent"] <= budget == personal["epsilon"]
        assert personal["rows"] == {"train": 41, "held_out": 4, "test": 15}
        assert set(personal["errors"]) == {"own", "alone", "mean"}
        assert personal["weights"].keys() == mean.keys()
        # One step of 32 of 40 rows a round: 2 rounds of three candidates, 2 of the one chosen.
        assert personal["steps"] == 8
    # The server has sums of models, and nothing of what silos keep.
    kept = "".join(
        path.read_text(errors="ignore") for path in (tmp_path / "server").rglob("*.json*")
    )
    assert "errors" not in kept
    assert "epsilon_spent" not in kept


def plan_in(certificates: Mapping[str, CertificateFiles], **overrides: object) -> MtlPlan:
    plan = plan_of(mtl_config(certificates, overrides))
    assert isinstance(plan, MtlPlan)
    return plan


@pytest.mark.parametrize("change", [{}, {"lambdas": ["1"], "tuning_rounds": 0}])
def test_kinds_are_those_of_the_sums_that_are_asked_for(
    certificates: Mapping[str, CertificateFiles], change: Mapping[str, object]
) -> None:
    plan = plan_in(certificates, **{"mtl": {**MTL, **change}})
    assert sum(count for _, count in plan.kinds) == plan.sums
    means, candidates = np.zeros((3, plan.settings.features)), tuple(range(3))
    asked = [plan.settings.models_request(9, (0,), means[:1])]
    if not change:
        asked = [
            plan.settings.models_request(1, candidates, means),
            plan.settings.votes_request(means),
            *asked,
        ]
    for (kind, _), request in zip(plan.kinds, asked, strict=True):
        request.check(kind)


def test_perceptron_is_kept_with_a_name_for_each_weight(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path
) -> None:
    """Its silo begins where everybody does, and ends with d numbers of which two or more units differ."""
    section = {"label": "score", "objective": "perceptron", "hidden": 3, "rate": 0.2}
    plan = plan_in(certificates, mtl=section)
    settings = plan.settings
    assert settings.size == 3 * (settings.features + 1) + 1
    assert [kind.length for kind, _ in plan.kinds] == [settings.size + 1]
    silo = plan.silo(table_of(0), SiloContext("clinic-a", 0, tmp_path), Ledger(0.0))
    means = settings.start[None]
    for number in range(1, settings.rounds + 1):
        silo.answer(settings.models_request(number, (0,), means))
    silo.finish(pack_arrays(np.zeros(1), settings.start))
    personal = json.loads((tmp_path / PERSONAL).read_text())
    weights = personal["weights"]
    assert len(weights) == settings.size
    assert {"age to unit 1", "unit 3 to output", "1 to output"} <= weights.keys()
    assert list(weights.values()) != settings.start.tolist()
    assert set(personal["errors"]) == {"own", "alone", "mean"}


def test_silo_started_anew_answers_as_before_with_the_same_rows_in_each_part(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path
) -> None:
    plan = plan_in(certificates)
    place, ledger = SiloContext("clinic-a", 0, tmp_path), Ledger(0.0)
    request = plan.settings.models_request(1, (0, 1, 2), np.zeros((3, plan.settings.features)))
    first = plan.silo(table_of(0), place, ledger)
    answer = first.answer(request)
    again = plan.silo(table_of(0), place, ledger)
    assert np.array_equal(again.answer(request), answer)
    assert np.array_equal(again._rows.test[0], first._rows.test[0])
    assert again._inner.steps == first._inner.steps == 3
    # The control: another silo with the same rows has other noise and other parts.
    other = SiloContext("clinic-b", 1, tmp_path / "b")
    other.folder.mkdir()
    fresh = plan.silo(table_of(0), other, ledger)
    assert not np.array_equal(fresh.answer(request), answer)
    assert not np.array_equal(fresh._rows.test[0], first._rows.test[0])
    (tmp_path / STATE).write_text("{}")
    with pytest.raises(StoreError, match="state"):
        plan.silo(table_of(0), place, ledger)


def test_answer_is_kept_before_it_is_given(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes nothing ends the silo's part: an answer that it would forget is not given."""
    plan = plan_in(certificates)
    silo = plan.silo(table_of(0), SiloContext("clinic-a", 0, tmp_path), Ledger(0.0))
    request = plan.settings.models_request(1, (0, 1, 2), np.zeros((3, plan.settings.features)))

    def full(*_: object, **__: object) -> None:
        raise StoreError(tmp_path, "is full")

    monkeypatch.setattr("parties.methods.mtl.write_atomic", full)
    with pytest.raises(StoreError, match="full"):
        silo.answer(request)


def test_silo_does_not_go_on_with_another_epsilon(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path
) -> None:
    """A larger one would release more than was charged, a smaller one enter old answers at a noise they do not have."""
    plan = plan_in(certificates)
    request = plan.settings.models_request(1, (0, 1, 2), np.zeros((3, plan.settings.features)))
    plan.silo(table_of(0), SiloContext("clinic-a", 0, tmp_path, 0.5), Ledger(0.0)).answer(request)
    for other in (50.0, 0.25, None):
        with pytest.raises(ConfigError, match=r"Expected --epsilon 0\.5, or another --dir"):
            plan.silo(table_of(0), SiloContext("clinic-a", 0, tmp_path, other), Ledger(0.0))
    same = plan.silo(table_of(0), SiloContext("clinic-a", 0, tmp_path, 0.5), Ledger(0.0))
    assert same.own_charges == 1
    # A state of an older version has no epsilon; it goes on, and has one from its next answer on.
    path = tmp_path / STATE
    kept = json.loads(path.read_text())
    assert (kept.pop("epsilon"), kept.pop("delta")) == (0.5, 1e-3)
    path.write_text(json.dumps(kept))
    older = plan.silo(table_of(0), SiloContext("clinic-a", 0, tmp_path, 0.5), Ledger(0.0))
    older.answer(request)
    assert json.loads(path.read_text())["epsilon"] == 0.5


def test_own_charges_grow_with_each_round_and_the_votes(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path
) -> None:
    plan = plan_in(certificates)
    settings, place = plan.settings, SiloContext("clinic-a", 0, tmp_path)
    silo = plan.silo(table_of(0), place, Ledger(0.0))
    means = np.zeros((3, settings.features))
    asked = [settings.models_request(number, (0, 1, 2), means) for number in (1, 2)]
    asked += [settings.votes_request(means), settings.models_request(3, (1,), means[:1])]
    counted = [silo.own_charges]
    for request in asked:
        silo.answer(request)
        counted.append(silo.own_charges)
        # What is asked for again, here or after a start, is not charged again.
        assert plan.silo(table_of(0), place, Ledger(0.0)).own_charges == counted[-1]
    assert counted == [0, 1, 2, 3, 4]


def test_old_copy_of_a_silos_folder_does_not_train_again_for_what_is_charged(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path
) -> None:
    """The server has a new folder and a new register; the silo's budget knows of the answers."""
    config = mtl_config(certificates)
    plan, folder = plan_of(config), tmp_path / NAMES[0]
    release = silo_participation(config, plan, table_of(0)).release
    account = BudgetAccount(
        OwnerBudget(tmp_path / "budget.sqlite"), TableIdentity("stays"), release
    )

    async def join(index: int) -> ParticipantReport:
        return await run_silo(
            config,
            table_of(index),
            certificates[NAMES[index]],
            tmp_path / NAMES[index],
            plan=plan,
            progress=Events(),
            account=account if index == 0 else None,
        )

    async def first() -> ParticipantReport:
        joining = asyncio.create_task(join(0))
        while not (folder / STATE).exists():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        shutil.copytree(folder, tmp_path / "copy")
        return await joining

    async def run() -> None:
        (tmp_path / "server").mkdir()
        server = run_federated_server(
            config,
            tmp_path / "server",
            plan=silos_plan(config, plan),
            progress=Events(),
            closed=asyncio.Event(),
        )
        await asyncio.gather(server, first(), *(join(i) for i in range(1, len(NAMES))))

    asyncio.run(run())
    folder.rename(tmp_path / "now")
    shutil.copytree(tmp_path / "copy", folder)
    with pytest.raises(StoreError, match=r"knows of 5 charges.* has 0: its folder is an old copy"):
        asyncio.run(join(0))
    # The control: another folder, which is charged anew, here beyond the limit.
    shutil.rmtree(folder)
    with pytest.raises(BudgetExceeded):
        asyncio.run(join(0))


def test_silo_needs_rows_to_train_with(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path
) -> None:
    plan = plan_in(certificates, **{"mtl": {**MTL, "test": 0.9}})
    with pytest.raises(DataError, match="no rows left"):
        plan.silo(table_of(0, rows=1), SiloContext("clinic-a", 0, tmp_path), Ledger(0.0))


@pytest.mark.parametrize(
    "change",
    [
        {"label": "age of reason"},
        {"label": "sex"},
        {"lambdas": ["much"]},
        {"lambdas": ["-1"]},
        {"tuning_rounds": 0},
        {"tuning_rounds": 9},
        {"held_out": 1.5},
        {"objective": "logistic"},
        {"objective": "logistic-perceptron", "hidden": 3},
        {"objective": "perceptron"},
        {"hidden": 3},
        {"unknown": 1},
    ],
)
def test_plan_rejects_what_cannot_be_carried_out(
    certificates: Mapping[str, CertificateFiles], change: Mapping[str, object]
) -> None:
    with pytest.raises(ConfigError, match="mtl"):
        plan_in(certificates, **{"mtl": {**MTL, **change}})


def test_plan_rejects_values_without_bounds(certificates: Mapping[str, CertificateFiles]) -> None:
    free = {"name": "age", "kind": "integer", "values": "private"}
    with pytest.raises(ConfigError, match=r"column.values.*'age'.*expected low and high"):
        plan_in(certificates, column=[free, *COLUMNS[1:]])


def test_every_key_of_its_table_is_the_runs(
    certificates: Mapping[str, CertificateFiles],
) -> None:
    changes = {
        "epochs": 2.0,
        "batch": 16,
        "rate": 0.05,
        "clip": 0.5,
        "bound": 2.0,
        "model_bits": 12,
        "gradient_bits": 9,
        "vote_norm": 0.04,
    }
    usual = plan_in(certificates, mtl=MTL).settings
    changed = plan_in(certificates, mtl={**MTL, **changes}).settings
    assert {name: getattr(changed, name) for name in changes} == changes
    assert all(getattr(usual, name) != value for name, value in changes.items())
