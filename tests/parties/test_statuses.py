"""Every kind of failure has a status and one message; none shows a traceback or a secret."""

import asyncio
import errno
from pathlib import Path

import pytest

from mechanisms.errors import BudgetExceeded, DataError, EstimationError
from parties.federation.attendance import Attendance
from parties.federation.members import ClientsSetup
from parties.federation.messages import Refusal, RefusalMessage, refusal_of, refused_error
from parties.federation.tls_members import TlsClients
from parties.foundation.errors import (
    CertificateError,
    ConfigError,
    FederationProtocolError,
    FrameTimeout,
    SealError,
    StoreError,
    SubmitError,
)
from parties.foundation.exit_codes import (
    Failure,
    FederationRefused,
    Status,
    Stopped,
    TooFewClients,
    describe,
)
from parties.observability.events import Progress
from parties.session.enrollment import Enrollment
from parties.session.operator_commands import OperatorCommands
from protocols.errors import CheckFailed, ConfigurationError, PeerClosed, ProtocolViolation
from secagg.errors import TooFewSurvivors
from tests.parties.support import make_config


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("a.toml", "run.id", "is wrong"), Status.CONFIG),
        (ConfigurationError("port"), Status.CONFIG),
        (DataError("line 3"), Status.DATA),
        (CertificateError("expired"), Status.CERTIFICATE),
        (SealError("copy: does not open"), Status.CERTIFICATE),
        (PeerClosed("party 1 has left", 1), Status.NETWORK),
        (SubmitError("refused"), Status.NETWORK),
        (StoreError.__new__(StoreError), Status.STORAGE),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), Status.STORAGE),
        (BudgetExceeded("spent"), Status.BUDGET),
        (ProtocolViolation("sent garbage", 1), Status.PROTOCOL),
        (CheckFailed("differ"), Status.PROTOCOL),
        (TooFewClients("two"), Status.CLIENTS),
        (EstimationError("overflow"), Status.ESTIMATION),
        (FrameTimeout("north", "silent"), Status.NETWORK),
        (FederationProtocolError("north", "sent garbage"), Status.PROTOCOL),
        (FederationRefused("another config", Status.PROTOCOL), Status.PROTOCOL),
        (FederationRefused("the server was stopped", Status.NETWORK), Status.NETWORK),
        (TooFewSurvivors("two"), Status.CLIENTS),
        (Stopped("stopped by SIGTERM", Status.TERMINATED), Status.TERMINATED),
        (KeyboardInterrupt(), Status.INTERRUPTED),
        (asyncio.CancelledError(), Status.INTERRUPTED),
        (ZeroDivisionError("division"), Status.DEFECT),
    ],
)
def test_describe_gives_a_status_and_a_message(error: BaseException, status: Status) -> None:
    failure = describe(error)
    assert failure.status == status
    assert failure.message
    assert "Traceback" not in failure.message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (asyncio.CancelledError(), Status.NETWORK),
        (StoreError(Path("/x"), "full"), Status.NETWORK),
        (EstimationError("overflow"), Status.PROTOCOL),
    ],
)
def test_describe_goes_by_the_byte_that_a_flaim_server_leaves_with(
    error: BaseException, status: Status
) -> None:
    failure = describe(refused_error("flaim-server", refusal_of(error).pack()))
    assert failure.status == status
    assert failure.message.startswith("flaim-server sends this client away: ")


def test_describe_does_not_go_by_the_words_of_a_refusal() -> None:
    for words in ("the server was stopped", "the server failed (StoreError)", "(flaim.minimum)"):
        body = RefusalMessage(Refusal.MISMATCH, words).pack()
        assert describe(refused_error("x", body)).status == Status.PROTOCOL


@pytest.mark.parametrize("closed", [False, True])
def test_describe_tells_a_flaim_client_that_too_few_came(closed: bool) -> None:
    async def too_few() -> bytes:
        flaim = {"address": "127.0.0.1:7300", "key": "0" * 64, "clients": ["a", "b", "c"]}
        config = make_config({"clients.wait_s": 0.0, "flaim": flaim})
        no_more = asyncio.Event()
        if closed:
            no_more.set()
        connections = TlsClients(
            ClientsSetup(config=config, files=None, workload_digest="", log=None)  # type: ignore[arg-type]
        )
        orders = OperatorCommands()
        enrolment = Enrollment(config.owners, config.clients, orders)
        attendance = Attendance(config, connections, enrolment, orders, Progress(), no_more)
        with pytest.raises(TooFewClients) as caught:
            await attendance.gather()
        return refusal_of(caught.value).pack()

    error = refused_error("flaim-server", asyncio.run(too_few()))
    assert describe(error) == Failure(Status.CLIENTS, str(error))


def test_describe_names_the_file_when_the_disk_is_full() -> None:
    failure = describe(OSError(errno.ENOSPC, "No space left on device", "/x/y"))
    assert failure.message.startswith("/x/y: No space left on device")


def test_describe_takes_the_first_of_a_group_and_of_groups_within() -> None:
    group = ExceptionGroup("tasks", [ExceptionGroup("inner", [SubmitError("refused")])])
    assert describe(group) == describe(SubmitError("refused"))


def test_describe_says_how_to_go_on_after_the_loss_of_a_server() -> None:
    said = describe(PeerClosed("party 2 closed the connection", pid=2)).message
    assert said.startswith("party 2 closed the connection; started again by the same command")


def test_statuses_are_distinct_and_fit_a_byte() -> None:
    assert len({int(status) for status in Status}) == len(Status)
    assert all(0 <= status < 256 for status in Status)


def test_stopped_says_what_the_same_command_does_then() -> None:
    stopped = Stopped("stopped by Ctrl-C", Status.INTERRUPTED)
    assert stopped.with_advice("") is stopped
    advised = describe(stopped.with_advice("the same command goes on after round 3"))
    assert advised.status == Status.INTERRUPTED
    assert advised.message == "stopped by Ctrl-C; the same command goes on after round 3"
