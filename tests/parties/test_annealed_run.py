"""Annealed runs of three servers: decisions alike everywhere, a restart that overspends nothing, what reports say."""

import json
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import parties.mpc.server
from mechanisms.accounting import ExponentialEvent, LedgerEntry, Schedule, rho
from mechanisms.aim import Estimate, Measurement
from mechanisms.workload import Workload
from parties.config import CertificateFiles
from parties.foundation.errors import ConfigError
from parties.methods.distaim import run_report
from parties.mpc.planning.budget import make_plan
from parties.mpc.storage.store import Store
from parties.session.study import Study
from parties.storage.privacy_ledger import DurableLedger
from tests.parties.mesh import EVERYONE, Cluster, Recording, uniform_model
from tests.parties.support import make_config

ANNEALED: dict[str, object] = {"run.schedule": "annealed", "run.rounds": None, "run.epsilon": 20.0}


class LastMeasured:
    """Answers with the latest measurement of each marginal: one measured before moves by twice the noise or less."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.model = uniform_model(workload)

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        answers = self.model.answers_q32(self.workload.candidates).copy()
        for m in measurements:
            positive = np.maximum(m.noisy, 0.01)
            answers[self.workload.slice(m.candidate)] = positive / positive.sum() * (2**32 - 1)
        return Estimate(np.ones(len(self.workload.candidates), np.bool_), answers)


def make_last_measured(study: Study, plan: Schedule) -> LastMeasured:
    """In place of `parties.mpc.server.make_estimator`."""
    return LastMeasured(study.workload)


@pytest.fixture(autouse=True)
def _estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_last_measured)


@pytest.fixture
def cluster(tmp_path: Path, certificates: dict[str, CertificateFiles]) -> Cluster:
    return Cluster(make_config(ANNEALED), tmp_path, certificates)


def ledger_of(cluster: Cluster, pid: int) -> list[LedgerEntry]:
    with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
        return DurableLedger(store).entries


def result_of(cluster: Cluster, pid: int) -> dict[str, list[dict[str, float]]]:
    document: dict[str, list[dict[str, float]]] = json.loads(
        (cluster.directory(pid) / "result.json").read_text()
    )
    return document


def measured_in(ledger: Sequence[LedgerEntry]) -> dict[int, float]:
    """Sigma by round, as the ledger says; the last charge of a round."""
    events = {e.round: e.event for e in ledger if e.step == "measure"}
    return {number: event.sigma for number, event in events.items() if number > 0}  # type: ignore[union-attr]


def assert_sound(cluster: Cluster) -> float:
    """All three have one ledger and one result, within the budget, each charge what its event costs; what is left."""
    ledgers = [sorted(ledger_of(cluster, pid), key=repr) for pid in range(3)]
    assert ledgers[0] == ledgers[1] == ledgers[2]
    results = [result_of(cluster, pid) for pid in range(3)]
    assert results[0]["selected"] == results[1]["selected"] == results[2]["selected"]
    for entry in ledgers[0]:
        assert entry.rho == rho(entry.event)
    budget = make_plan(Study.of(cluster.config)).rho
    left = Fraction(budget) - sum(Fraction(entry.rho) for entry in ledgers[0])
    assert left >= 0
    # Released with the noise that was charged.
    charged = measured_in(ledgers[0])
    assert {item["round"]: item["sigma"] for item in results[0]["selected"]} == charged
    return float(left / Fraction(budget))


async def test_annealed_run_spends_its_budget_in_rounds_that_become_finer(cluster: Cluster) -> None:
    records = {pid: Recording() for pid in range(3)}
    assert await cluster.run(owners=EVERYONE, records=records) == [None] * 3
    assert assert_sound(cluster) < 1e-9
    selected = result_of(cluster, 0)["selected"]
    sigmas = [item["sigma"] for item in selected]
    assert 4 < len(sigmas) < 48
    # Two rounds join three columns; what follows begins anew, and becomes finer.
    assert sigmas[0] == sigmas[1]
    assert {b / a for a, b in pairwise(sigmas[2:-1])} <= {1.0, 0.5}
    assert sigmas[-1] < sigmas[2] / 1.4
    assert any("round 1 of at most 48" in text for text in records[0].texts)
    done = f"round {len(sigmas)} of at most {len(sigmas)} done"
    assert all(done in record.texts for record in records.values())


@pytest.mark.parametrize(
    ("victim", "event", "number"),
    [(0, "round", 0), (1, "selected", 1), (0, "selected", 3)],
)
async def test_annealed_run_goes_on_after_a_kill(
    cluster: Cluster, victim: int, event: str, number: int
) -> None:
    ended = await cluster.run(owners=EVERYONE, kill=(victim, event, number))
    assert all(error is not None for error in ended)
    before = ledger_of(cluster, victim)
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    left = assert_sound(cluster)
    assert ledger_of(cluster, victim)[: len(before)] == before
    # Unspent is at most a choice that was not charged again; a round costs its choice a tenth.
    assert left < 0.1


@pytest.mark.parametrize("kill", [None, (1, "selected", 2)])
async def test_annealed_run_measures_columns_alone_where_noise_drowns_pairs(
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    kill: tuple[int, str, int] | None,
) -> None:
    """Each of three columns once more, with alike noise; also if a server is killed in between."""
    cluster = Cluster(
        make_config(
            ANNEALED | {"run.fallback": "columns", "run.epsilon": 0.5, "run.accountant": "zcdp"}
        ),
        tmp_path,
        certificates,
    )
    if kill is not None:
        assert all(await cluster.run(owners=EVERYONE, kill=kill))
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    left = assert_sound(cluster)
    selected = result_of(cluster, 0)["selected"]
    workload = cluster.config.build_workload()
    assert [item["query"] for item in selected] == [list(q) for q in workload.candidates[:3]]
    sigmas = [item["sigma"] for item in selected]
    assert sigmas[0] == sigmas[1]
    assert sigmas[2] == pytest.approx(sigmas[0], rel=1e-6) or kill is not None
    assert left < (1e-9 if kill is None else 0.1)


async def test_annealed_run_divides_what_a_lost_charge_leaves(cluster: Cluster) -> None:
    """Two servers charged a third of the budget for nothing: fewer or coarser rounds, and all the rest is spent."""
    assert all(await cluster.run(owners=EVERYONE, kill=(1, "round", 2)))
    plan = make_plan(Study.of(cluster.config))
    for pid in (1, 2):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            ledger = DurableLedger(store, plan.rho)
            template = next(entry for entry in ledger.entries if entry.step == "measure")
            lost = 0.0
            for number in range(1000):
                if lost < plan.rho / 3:
                    entry = ledger.charge(9, "measure", template.event, opening=f"{number:064x}")
                    lost += entry.rho
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    charged = ledger_of(cluster, 0)
    assert sum(Fraction(entry.rho) for entry in charged) <= Fraction(plan.rho)
    assert sum(entry.rho for entry in charged) == pytest.approx(plan.rho, rel=1e-9)


async def test_annealed_run_adopts_a_round_that_two_servers_finished(cluster: Cluster) -> None:
    assert None not in await cluster.run(owners=EVERYONE, kill=(0, "writing", None))
    with Store(cluster.directory(1) / "store", cluster.config.digest()) as store:
        before = [(c.round, c.noisy.tolist()) for c in store.releases.checkpoints()]
    for pid in (2,):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            store._db.execute("DELETE FROM checkpoint WHERE round > 2")
            store._db.execute("DELETE FROM meta WHERE key LIKE 'selected/%'")
            store._db.execute("DELETE FROM ledger WHERE round > 2")
            store._db.execute("DELETE FROM paid WHERE entry NOT IN (SELECT entry FROM ledger)")
    assert await cluster.run() == [None] * 3
    for pid in range(3):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            assert [(c.round, c.noisy.tolist()) for c in store.releases.checkpoints()] == before
    assert assert_sound(cluster) < 1e-9


async def test_run_report_says_rounds_and_sigmas_of_an_annealed_run(cluster: Cluster) -> None:
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    config = cluster.config
    report = run_report(
        Study.of(config), cluster.directory(0), dataset="x", wall_s={"total": 1.0}
    ).to_dict()
    selected = report["selected"]
    assert isinstance(selected, list)
    assert report["rounds_done"] == len(selected)
    assert report["parameters"]["schedule"] == "annealed"  # type: ignore[index]
    assert [item["sigma"] for item in selected] == list(measured_in(ledger_of(cluster, 0)).values())
    [note] = report["notes"]  # type: ignore[misc]
    assert f"Annealed: {len(selected)} rounds. The noise had a standard deviation of " in note
    assert f"{min(item['sigma'] for item in selected):.4g} in rounds" in note


@pytest.mark.parametrize("noise", ["discrete-gaussian", "distributed", "box-muller"])
def test_make_plan_of_an_annealed_run_costs_the_budget_of_a_fixed_one(noise: str) -> None:
    base: dict[str, object] = {"run.noise": noise}
    annealed, fixed = make_config({**base, **ANNEALED}), make_config({**base, "run.epsilon": 20.0})
    if noise == "box-muller":
        # Its tail does not shrink: at this epsilon delta does not cover it.
        with pytest.raises(ConfigError, match="does not cover a statistical distance"):
            make_plan(Study.of(annealed))
        return
    plan = make_plan(Study.of(annealed))
    assert plan.rho == pytest.approx(make_plan(Study.of(fixed)).rho, rel=1e-3)
    assert plan.rounds == 48
    assert isinstance(plan.selection, ExponentialEvent)
    assert plan.selection.epsilon > plan.epsilon


def test_make_plan_refuses_a_noise_that_annealing_may_come_to() -> None:
    """At the first sigma it could be sampled; a last round that takes what is left might be coarser."""
    small: dict[str, object] = {
        "run.epsilon": 0.0162,
        "run.schedule": "annealed",
        "run.rounds": None,
        "run.rule": "aim",
    }
    config = make_config(small)
    same = make_config({"run.epsilon": 0.0162, "run.rounds": 48, "run.rule": "aim"})
    assert make_plan(Study.of(same)).sigma < 1400
    with pytest.raises(ConfigError, match=r"sigma = 1\d\d\d\S*: exact noise within 2\^-64 is for"):
        make_plan(Study.of(config))
