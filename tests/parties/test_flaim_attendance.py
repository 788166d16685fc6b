"""FLAIM's server waits for clients and says so: before the run, before each round, after a restart; and its orders."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from parties.config import CertificateFiles, Config
from parties.federation.client import ParticipantReport
from parties.foundation.errors import NotEnrolled
from parties.foundation.exit_codes import FederationRefused, Status, TooFewClients, describe
from parties.identity.tls import make_certificates
from parties.methods.flaim.report import write_server_report
from parties.observability.status import RunInfo, RunStatus
from parties.session.operator_commands import OperatorCommands
from tests.parties.flaim_support import (
    NAMES,
    SERVER,
    Events,
    codes_of,
    flaim_config,
    leaving,
    play,
    run_client,
)
from tests.until import eventually

Certificates = dict[str, CertificateFiles]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("flaim-certs"), [SERVER], NAMES)


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "server" / "result.json").read_text())
    return found


def round_2_waits(events: Events) -> list[str]:
    return [text for text in events.texts("waiting") if text.startswith("round 2 waits")]


def coming_back(
    config: Config,
    certificates: Mapping[str, CertificateFiles],
    folder: Path,
    index: int,
    events: Events,
) -> Callable[[], Any]:
    """A client that leaves in round 1, and is there again once the server says that round 2 waits."""
    leave = leaving(config, certificates, folder, index, at="flaim.brief", round=1)

    async def fault() -> ParticipantReport:
        await leave()
        await eventually(lambda: round_2_waits(events))
        return await run_client(
            config,
            codes_of(index),
            certificates[NAMES[index]],
            folder / NAMES[index],
            progress=Events(),
        )

    return fault


async def test_round_waits_below_the_minimum_and_says_who_is_missing(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"clients.minimum": 6, "run.rounds": 2})
    events = Events()
    faults = {2: coming_back(config, certificates, tmp_path, 2, events)}
    _, clients = await play(config, certificates, tmp_path, faults, events=events)
    (text,) = round_2_waits(events)
    assert text.startswith(
        "round 2 waits: 5 of 6 clients are connected, at least 6 are needed; missing: clinic-c; until 20"
    )
    assert result(tmp_path)["rounds_done"] == 2
    assert all(isinstance(client, ParticipantReport) for client in clients)


async def test_server_whose_clients_do_not_come_back_goes_on_when_it_is_started_again(
    certificates: Certificates, tmp_path: Path
) -> None:
    """It ends with words, and has all six among its clients in the end, whoever came back."""
    changes = {"clients.minimum": 4, "clients.wait_s": 2.0, "run.rounds": 3}
    config = flaim_config(certificates, changes)
    faults = {
        index: leaving(config, certificates, tmp_path, index, at="flaim.brief", round=2)
        for index in range(3)
    }
    with pytest.raises(
        TooFewClients, match="round 3: 3 clients are connected; expected at least 4"
    ):
        await play(config, certificates, tmp_path, faults)

    async def away() -> None:
        """This one does not return."""

    _, clients = await play(config, certificates, tmp_path, {0: away, 1: away})
    found = result(tmp_path)
    assert (found["rounds_done"], found["clients"]) == (3, 6)
    assert [isinstance(client, ParticipantReport) for client in clients] == [False] * 2 + [True] * 4
    write_server_report(config, tmp_path / "server")
    report = json.loads((tmp_path / "server" / "report.json").read_text())
    assert not [note for note in report["notes"] if "clients came" in note]


async def test_run_finishes_with_the_rounds_done_as_its_operator_asks(
    certificates: Certificates, tmp_path: Path
) -> None:
    config, orders = flaim_config(certificates, {"run.rounds": 5}), OperatorCommands()
    board = RunStatus(RunInfo.of_federation(config))

    def ask() -> None:
        done = board.status()["rounds"]["done"]  # type: ignore[index]
        if done == 2 and not orders.asked.finish:
            orders.ask(finish=True)

    board.listen(ask)
    _, clients = await play(config, certificates, tmp_path, board=board, orders=orders)
    found = result(tmp_path)
    assert found["rounds_done"] == 2
    assert found["stopped"] == "the operator has ended it before round 3"
    assert all(isinstance(c, ParticipantReport) and c.finished for c in clients)
    told = board.status()["asked"]["told"]  # type: ignore[index]
    assert [(one["party"], one["finish"]) for one in told] == [("flaim-server", True)]


async def test_revoked_client_is_turned_away_with_a_status_of_its_own(
    certificates: Certificates, tmp_path: Path
) -> None:
    config, orders = flaim_config(certificates, {"clients.grace_s": 0.5}), OperatorCommands()
    orders.ask(revoke=[NAMES[1]])
    _, clients = await play(config, certificates, tmp_path, orders=orders)
    refused = clients[1]
    assert isinstance(refused, FederationRefused)
    assert describe(refused).status == Status.NOT_ENROLLED
    assert "was revoked by this server's operator" in str(refused)
    assert result(tmp_path)["clients"] == 5


async def test_client_that_comes_after_the_closing_is_told(
    certificates: Certificates, tmp_path: Path
) -> None:
    """By its own program, before anything is charged; the server does not wait then."""
    config = flaim_config(certificates, {"clients.closes": "2020-01-01T00:00:00Z"})
    with pytest.raises(TooFewClients, match="0 of 6 clients came within 0 s"):
        await play(config, certificates, tmp_path)
    with pytest.raises(NotEnrolled, match="closed to data owners at 2020-01-01"):
        await run_client(
            config, codes_of(0), certificates[NAMES[0]], tmp_path / "new", progress=Events()
        )
