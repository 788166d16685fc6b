"""FLAIM over Flower's messages, on a grid in this process: the same run, and clients that vanish at any stage."""

import asyncio
import json
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles, Config
from parties.federation import flower_members as grid_module
from parties.federation.flower_envelope import Envelope, needs_answer
from parties.federation.messages import FederationMessage, MessageKind
from parties.federation.release_question import TOLD_FILE
from parties.foundation.errors import FederationProtocolError
from parties.foundation.exit_codes import Status, TooFewClients
from parties.identity.tls import make_certificates
from parties.methods.flaim.flower_node import STATE_FILE, FlowerNode
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import BudgetAccount, OwnerBudget
from parties.storage.population_budget import Release
from parties.storage.populations import TableIdentity
from secagg import wire
from secagg.errors import SecAggError
from secagg.wire import Kind
from tests.parties.flaim_support import EVERY_STAGE, MALICIOUS, NAMES, SERVER, flaim_config
from tests.parties.flower_support import (
    Answer,
    Grid,
    kinds_of,
    node_of,
    nodes_of,
    play_on,
    round_of,
)
from tests.parties.test_audit_flaim import assert_clean, collect
from tests.protocols.transcripts import verified_records

Certificates = dict[str, CertificateFiles]
STAGES = (*EVERY_STAGE[1:], "secagg.signatures")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("flaim-certs"), [SERVER], [*NAMES, "stranger"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_module, "PULL_S", 0.01)
    monkeypatch.setattr(grid_module, "NODE_POLL_S", 0.2)


@pytest.mark.parametrize("overrides", [{}, MALICIOUS, {"flaim.grouping": "query"}])
async def test_run_on_a_grid_finishes_and_audits_like_any(
    certificates: Certificates, tmp_path: Path, overrides: dict[str, object]
) -> None:
    config = flaim_config(certificates, overrides)
    grid = Grid(nodes_of(config, certificates, tmp_path))
    await play_on(grid, config, certificates, tmp_path)
    found = json.loads((tmp_path / "server" / "result.json").read_text())
    assert found["rounds_done"] == 2
    assert found["sums"]["dropouts"] == found["sums"]["given_up"] == 0
    assert_clean(collect(config, tmp_path, certificates))
    # Of keys and counts nothing is left.
    assert not any((tmp_path / name / STATE_FILE).exists() for name in NAMES)


async def test_run_on_a_grid_charges_each_table_once_a_choice_or_a_sum_is_sent(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = flaim_config(certificates)
    release = Release(config.digest(), "trial", "flaim", 0.1, 1.0, 1e-5)
    before: list[object] = []

    def state(name: str) -> ChargeState | None:
        found = OwnerBudget(tmp_path / f"{name}.sqlite").datasets()
        return found[0].runs[0].state if found else None

    def answer(number: int) -> Answer:
        name = NAMES[number]
        budget = OwnerBudget(tmp_path / f"{name}.sqlite")
        account = BudgetAccount(budget, TableIdentity(name), release)

        def take(envelope: Envelope) -> Envelope:
            node = node_of(config, certificates, tmp_path, number)
            found = replace(node, account=account).answer(envelope)
            if envelope.challenge:
                before.append((state(name), [item.run for item in budget.intended()]))
            return found

        return take

    grid = Grid({1000 + 7 * number: answer(number) for number in range(len(NAMES))})
    await play_on(grid, config, certificates, tmp_path)
    assert before == [(None, ["trial"])] * len(NAMES)
    assert {state(name) for name in NAMES} == {ChargeState.RELEASED}


async def test_run_on_a_grid_that_ends_before_a_sum_costs_nothing(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Its server signs that nothing was opened, and sends everybody away; no intention is left."""
    config = flaim_config(certificates, {"clients.wait_s": 3.0, "clients.minimum": 3})
    release = Release(config.digest(), "trial", "flaim", 0.1, 1.0, 1e-5)
    budgets = [OwnerBudget(tmp_path / f"{name}.sqlite") for name in NAMES[:2]]
    steps: list[str] = []

    def answer(number: int) -> Answer:
        account = BudgetAccount(budgets[number], TableIdentity(NAMES[number]), release)

        def take(envelope: Envelope) -> Envelope:
            steps.extend(kinds_of(envelope))
            node = node_of(config, certificates, tmp_path, number)
            return replace(node, account=account).answer(envelope)

        return take

    grid = Grid({1000 + 7 * number: answer(number) for number in range(2)})
    with pytest.raises(TooFewClients):
        await play_on(grid, config, certificates, tmp_path)
    assert steps.count("flaim.unopened") == steps.count("flaim.refused") == 2
    assert [(budget.datasets(), budget.intended()) for budget in budgets] == [([], [])] * 2


class Charged:
    """Runs on a grid whose nodes charge budgets, and one registry of their server."""

    def __init__(self, certificates: Certificates, place: Path) -> None:
        self.certificates, self.place = certificates, place
        self.failures: list[str] = []

    def budget(self, name: str) -> OwnerBudget:
        return OwnerBudget(self.place / f"{name}.sqlite")

    def config(self, run: str, **changes: object) -> Config:
        return flaim_config(self.certificates, {"run.id": run, **changes})

    def node(self, config: Config, number: int) -> FlowerNode:
        release = Release(config.digest(), config.run.id, "flaim", 0.1, 1.0, 1e-5)
        name = NAMES[number]
        account = BudgetAccount(self.budget(name), TableIdentity(name), release)
        found = node_of(config, self.certificates, self.place / config.run.id, number)
        return replace(found, account=account)

    def spent(self, name: str) -> list[str]:
        return [run.release.run for item in self.budget(name).datasets() for run in item.spending]

    def put_back(self, name: str) -> None:
        """The budget is as it was before any run: there is none."""
        for path in self.place.glob(f"{name}.sqlite*"):
            path.unlink()

    async def play(self, run: str, **changes: object) -> list[tuple[int, Envelope]]:
        """Returns what the server sent."""
        config = self.config(run, **changes)
        (self.place / run).mkdir()

        def answer(number: int) -> Answer:
            def take(envelope: Envelope) -> Envelope:
                try:
                    return self.node(config, number).answer(envelope)
                except Exception as error:
                    self.failures.append(f"{NAMES[number]}: {type(error).__name__}: {error}")
                    raise

            return take

        grid = Grid({number: answer(number) for number in range(len(NAMES))})
        register = self.place / "register"
        await play_on(grid, config, self.certificates, self.place / run, register=register)
        return grid.sent


async def test_node_whose_budget_was_put_back_is_charged_first_for_what_the_server_released(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Its limit, of the first run, covers one: it leaves, and nothing of its table is sent."""
    grid = Charged(certificates, tmp_path)
    await grid.play("one")
    assert grid.spent(NAMES[0]) == ["one"]
    grid.put_back(NAMES[0])
    for name in NAMES[1:]:
        grid.budget(name).set_limit(name, 10.0, 1e-5, why="two runs")
    sent = await grid.play("two", **{"clients.grace_s": 0.3, "clients.minimum": 5})
    assert grid.spent(NAMES[0]) == ["one"]
    assert grid.budget(NAMES[0]).intended() == []
    assert grid.spent(NAMES[1]) == ["one", "two"]
    assert {text.split(":")[0] for text in grid.failures} == {NAMES[0]}
    assert all("BudgetExceeded" in text for text in grid.failures)
    steps = [kind for node, envelope in sent if node == 0 for kind in kinds_of(envelope)]
    assert set(steps) == {"flaim.releases"}


def test_node_with_several_populations_leaves_what_it_was_told_to_be_entered(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Charged(certificates, tmp_path)
    asyncio.run(grid.play("one"))
    grid.put_back(NAMES[0])
    for name in NAMES[1:]:
        grid.budget(name).set_limit(name, 10.0, 1e-5, why="two runs")
    others = grid.budget(NAMES[0])
    for other in ("cars", "birds"):
        others.charge(TableIdentity(other), Release("ab" * 32, other, "flaim", 0.1, 1, 1e-5), other)
    asyncio.run(grid.play("two", **{"clients.grace_s": 0.3, "clients.minimum": 5}))
    assert sorted(grid.spent(NAMES[0])) == ["birds", "cars"]
    told = tmp_path / "two" / NAMES[0] / TOLD_FILE
    assert any(f"needs --told {told}" in text for text in grid.failures)
    config, own = grid.config("two", **{"timeouts.connect_s": 0.5}), certificates[NAMES[0]]
    monkeypatch.setattr("parties.cli.budget.load_config", lambda path: config)
    files = [f"--{name}={getattr(own, name)}" for name in ("ca", "cert", "key")]
    given = ["budget", "reconcile", "two.toml", "--budget", str(others.path), *files]
    # Over Flower nobody listens at the address.
    assert run_command_line(cli, given) == Status.NETWORK
    given += ["--told", str(told), "--run", "one"]
    assert run_command_line(cli, given) == Status.USAGE
    assert run_command_line(cli, [*given, "--population", "birds"]) == Status.DONE
    assert sorted(grid.spent(NAMES[0])) == ["birds", "cars", "one"]


def test_node_that_has_asked_greets_only_in_answer_to_what_it_is_told(
    certificates: Certificates, tmp_path: Path
) -> None:
    """A server that goes on without an answer, or answers otherwise, gets nothing of the table."""
    grid = Charged(certificates, tmp_path)
    config = grid.config("one")
    told = FederationMessage(MessageKind.RELEASES, 0, b"[]").pack()
    nonsense = FederationMessage(MessageKind.RELEASES, 0, b"7").pack()
    brief = FederationMessage(MessageKind.BRIEF, 1, b"").pack()
    for frames in ((brief,), (told, told), (), (nonsense,), (brief, told)):
        node = grid.node(config, 0)
        asked = node.answer(Envelope(challenge=bytes(32)))
        assert kinds_of(asked) == ["flaim.releases"]
        assert asked.proof
        with pytest.raises(FederationProtocolError):
            grid.node(config, 0).answer(Envelope(frames))
        assert grid.budget(NAMES[0]).intended() == []
    asked = grid.node(config, 0).answer(Envelope(challenge=bytes(32)))
    greeted = grid.node(config, 0).answer(Envelope((told,)))
    assert kinds_of(greeted) == ["flaim.hello"]
    assert (greeted.card, greeted.proof) == (b"", b"")
    with pytest.raises(FederationProtocolError):
        grid.node(config, 0).answer(Envelope((told,)))


async def test_node_is_told_of_no_key_but_its_own(
    certificates: Certificates, tmp_path: Path
) -> None:
    """A question with another one's card, or without a valid proof, gets no answer."""
    grid = Charged(certificates, tmp_path)
    await grid.play("one")
    config = grid.config("two", **{"clients.wait_s": 3.0, "clients.minimum": 5})
    (tmp_path / "two").mkdir()
    for name in NAMES:
        grid.put_back(name)

    def stolen(envelope: Envelope) -> Envelope:
        return replace(grid.node(config, 0).answer(envelope), proof=bytes(64))

    honest = {
        number: (lambda envelope, n=number: grid.node(config, n).answer(envelope))
        for number in range(1, len(NAMES))
    }
    nodes = Grid({0: stolen, **honest})
    register = tmp_path / "register"
    with pytest.raises(TooFewClients):
        # All others learn of the first run, which is all that their budgets cover.
        await play_on(nodes, config, certificates, tmp_path / "two", register=register)
    assert not [envelope for node, envelope in nodes.sent if node == 0 and envelope.frames]
    assert grid.spent(NAMES[0]) == []
    assert grid.spent(NAMES[1]) == ["one"]


@pytest.mark.parametrize(("overrides", "trips"), [({}, 4), (MALICIOUS, 5)])
async def test_run_on_a_grid_takes_as_few_round_trips_as_its_stages(
    certificates: Certificates, tmp_path: Path, overrides: dict[str, object], trips: int
) -> None:
    """One to join, the stages of the first sums, a choice and the stages for each round, one to say goodbye."""
    config = flaim_config(certificates, overrides)
    grid = Grid(nodes_of(config, certificates, tmp_path))
    await play_on(grid, config, certificates, tmp_path)
    counted = Counter(node for node, _ in grid.sent)
    assert set(counted.values()) == {1 + trips + 2 * (1 + trips) + 1}
    # Who chooses the next query hears in the same message that the last sum is done.
    assert any(kinds_of(e)[:2] == ["secagg.finished", "flaim.brief"] for _, e in grid.sent)


@pytest.mark.parametrize(
    "at",
    [
        stage if stage == "secagg.survivors" else pytest.param(stage, marks=pytest.mark.slow)
        for stage in STAGES
    ],
)
async def test_run_on_a_grid_survives_a_node_that_vanishes(
    certificates: Certificates, tmp_path: Path, at: str
) -> None:
    config = flaim_config(certificates, MALICIOUS | {"timeouts.receive_s": 1.5})
    nodes = nodes_of(config, certificates, tmp_path)
    gone = next(iter(nodes))
    answer = nodes[gone]

    def vanishing(envelope: Envelope) -> Envelope:
        if at in kinds_of(envelope) and (round_of(envelope) or 0) == (at == "flaim.layout"):
            grid.lost.add(gone)
        return answer(envelope)

    grid = Grid(nodes | {gone: vanishing})
    await play_on(grid, config, certificates, tmp_path)
    found = json.loads((tmp_path / "server" / "result.json").read_text())
    assert found["rounds_done"] == 2
    assert gone in grid.lost
    assert found["sums"]["dropouts"] >= 1
    assert_clean(collect(config, tmp_path, certificates))


async def test_node_that_fails_once_comes_back(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_module, "RECHALLENGE_LOST_S", 0.0)
    config = flaim_config(certificates)
    nodes = nodes_of(config, certificates, tmp_path)
    weak = next(iter(nodes))
    answer, failed = nodes[weak], []

    def failing(envelope: Envelope) -> Envelope:
        if "secagg.keys" in kinds_of(envelope) and not failed:
            failed.append(envelope)
            raise ZeroDivisionError
        return answer(envelope)

    grid = Grid(nodes | {weak: failing})
    await play_on(grid, config, certificates, tmp_path)
    path = tmp_path / "server" / "transcript.jsonl"
    notes = [
        r["what"]
        for r in verified_records(path, verify=lambda *_: None)
        if r["kind"] == "note" and r.get("client") == NAMES[0]
    ]
    assert notes == ["joined", "left", "joined"]


async def test_new_node_takes_the_place_of_one_that_is_gone(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is turned away for as long as the one before it seems to be there, and asked again."""
    monkeypatch.setattr(grid_module, "RECHALLENGE_REFUSED_S", 0.0)
    config = flaim_config(certificates)
    nodes = nodes_of(config, certificates, tmp_path)
    before = next(iter(nodes))
    answer = nodes[before]

    def leaving(envelope: Envelope) -> Envelope:
        if "secagg.keys" in kinds_of(envelope):
            grid.lost.add(before)
            grid.answers[7] = answer
        return answer(envelope)

    grid = Grid(nodes | {before: leaving})
    await play_on(grid, config, certificates, tmp_path)
    assert 7 in {node for node, _ in grid.sent}
    found = json.loads((tmp_path / "server" / "result.json").read_text())
    assert found["sums"]["dropouts"] == 1
    assert found["rounds_done"] == 2


def impostor(certificates: Certificates, how: str) -> Callable[[Envelope], Envelope]:
    """An answer to a challenge that is not right, made of one that is."""

    def change(answer: Envelope) -> Envelope:
        match how:
            case "another's card":
                return Envelope(
                    answer.frames, card=answer.card[:32] + bytes(64), proof=answer.proof
                )
            case "an old proof":
                return Envelope(answer.frames, card=answer.card, proof=bytes(64))
            case "no greeting":
                return Envelope((), card=answer.card, proof=answer.proof)
            case _:
                return Envelope((b"FLAM",), card=answer.card, proof=answer.proof)

    return change


@pytest.mark.parametrize(
    "how",
    [
        "an old proof",
        *(
            pytest.param(how, marks=pytest.mark.slow)
            for how in ("another's card", "no greeting", "no message")
        ),
    ],
)
async def test_node_that_does_not_prove_its_name_is_not_let_in(
    certificates: Certificates, tmp_path: Path, how: str
) -> None:
    config = flaim_config(certificates, {"clients.grace_s": 0.3, "clients.minimum": 5})
    nodes = nodes_of(config, certificates, tmp_path)
    liar = next(iter(nodes))
    answer, change = nodes[liar], impostor(certificates, how)
    grid = Grid(nodes | {liar: lambda envelope: change(answer(envelope))})
    await play_on(grid, config, certificates, tmp_path)
    found = json.loads((tmp_path / "server" / "result.json").read_text())
    assert found["clients"] == len(NAMES) - 1


def test_node_keeps_its_state_to_itself_and_forgets_it_once_it_was_lied_to(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = flaim_config(certificates, MALICIOUS)
    node = node_of(config, certificates, tmp_path, 0)
    answer = node.answer(Envelope(challenge=bytes(32)))
    assert answer.proof
    assert "codes" not in repr(node)
    assert "frames" not in repr(answer)
    state = tmp_path / NAMES[0] / STATE_FILE
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    bad = wire.pack_envelope(wire.Envelope(Kind.SURVIVORS, wire.SERVER, 0, bytes(16), b""))
    with pytest.raises((FederationProtocolError, SecAggError)):
        node.answer(Envelope((bad,)))
    assert not state.exists()
    with pytest.raises(FederationProtocolError, match="not in a run"):
        node.answer(Envelope((FederationMessage(MessageKind.GOODBYE, 0).pack(),)))


@pytest.mark.parametrize(
    "record",
    [{"frames": "text"}, {"frames": [1]}, {"frames": [b""], "more": b""}, {"challenge": 5}],
)
def test_envelope_of_another_app_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(FederationProtocolError, match="none of this app"):
        Envelope.of_record(record, "x")


def test_frames_that_need_no_answer_wait_for_one_that_does() -> None:
    lazy = [
        FederationMessage(kind, 1).pack() for kind in (MessageKind.WELCOME, MessageKind.SKIPPED)
    ]
    assert not any(map(needs_answer, lazy))
    assert needs_answer(FederationMessage(MessageKind.BRIEF, 1).pack())
    assert needs_answer(FederationMessage(MessageKind.GOODBYE, 0).pack())
