"""Answers of one silo to a server that keeps to the rules, and to one that does not; requests as bytes."""

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.accounting import Ledger
from mechanisms.errors import BudgetExceeded, RequestRefused
from mechanisms.events import DiscreteGaussianEvent
from mechanisms.silos import Noise, Request
from parties.config import CertificateFiles, Config
from parties.federation.algorithm import SiloContext
from parties.federation.client_session import SiloSession
from parties.federation.journal import SumTask, request_from_head, request_head
from parties.federation.messages import FederationMessage, MessageKind, pack_task
from parties.federation.sum_parameters import silo_sum
from parties.foundation.errors import FederationProtocolError
from parties.identity.tls import make_certificates
from secagg.errors import ParametersRefused
from secagg.keys import PUBLIC_BYTES
from secagg.wire import SERVER as FROM_SERVER
from secagg.wire import Envelope, Kind, encode_announcement, pack_envelope
from tests.parties.silos_support import NAMES, SERVER, TABLE, Tails, silos_config


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    made: Mapping[str, CertificateFiles] = make_certificates(
        tmp_path_factory.mktemp("silos"), [SERVER], NAMES
    )
    return silos_config(made)


def silo_of(config: Config, budget: float | None = None) -> tuple[SiloSession, Ledger]:
    plan = Tails(config)
    ledger = Ledger(plan.rho if budget is None else budget)
    silo = plan.silo(TABLE, SiloContext(NAMES[1], 1, Path()), ledger)
    return SiloSession(config, silo, server=SERVER, random_bytes=np.random.bytes), ledger


def asking(
    request: Request, *, number: int = 1, silos: int = 5, place: int | None = 1, round: int = 1
) -> bytes:
    body = pack_task(place, SumTask(number, silos, request).pack())
    return FederationMessage(MessageKind.REQUEST, round, body).pack()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"silos": 2}, "a sum over 2; expected 3 to 6"),
        ({"silos": 7}, "a sum over 7; expected 3 to 6"),
        ({"place": 5}, "asks silo 5"),
        ({"place": None}, "asks silo None"),
        ({"round": 2}, "asks for sum 1 in 2"),
        ({"number": 0, "round": 0}, "expected one after 0"),
    ],
)
def test_session_refuses_sums_that_its_config_does_not_have(
    config: Config, changes: dict[str, Any], text: str
) -> None:
    silo, ledger = silo_of(config)
    with pytest.raises(FederationProtocolError, match=text):
        silo.receive(asking(Tails(config).request(0), **changes))
    assert not ledger.entries


@pytest.mark.parametrize(
    "changes",
    [{"length": 39}, {"low": -1}, {"noise": None}, {"noise": Noise("server", Fraction(1))}],
)
def test_session_refuses_requests_that_its_plan_does_not_have(
    config: Config, changes: dict[str, Any]
) -> None:
    silo, ledger = silo_of(config)
    with pytest.raises(RequestRefused, match=next(iter(changes))):
        silo.receive(asking(dataclasses.replace(Tails(config).request(0), **changes)))
    assert not ledger.entries


def test_session_answers_no_sum_twice_and_none_that_it_cannot_pay_for(config: Config) -> None:
    request = Tails(config).request(0)
    silo, ledger = silo_of(config, Tails(config).rho * 0.9)
    for number in (1, 2):
        assert silo.receive(asking(request, number=number, round=number)) is None
        assert silo.busy
        with pytest.raises(FederationProtocolError, match="while a sum was being taken"):
            silo.receive(asking(request, number=number + 1, round=number + 1))
        silo.lost()
    with pytest.raises(FederationProtocolError, match="expected one after 2"):
        silo.receive(asking(request, number=2, round=2))
    with pytest.raises(BudgetExceeded):
        silo.receive(asking(request, number=3, round=3))
    assert len(ledger.entries) == 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"noise": None}, "noise"), ({"low": -2000}, "low"), ({"length": 41}, "length")],
)
def test_session_refuses_a_secagg_session_of_another_sum_than_it_was_asked_for(
    config: Config, changes: dict[str, Any], text: str
) -> None:
    """The request was right; what the server announces afterwards is not."""
    request = Tails(config).request(0)
    silo, _ = silo_of(config)
    silo.receive(asking(request))
    other = dataclasses.replace(request, **changes)
    parameters = silo_sum(config, other, 5).parameters(random_bytes=np.random.bytes)
    announced = Envelope(
        Kind.ANNOUNCE,
        FROM_SERVER,
        1,
        parameters.digest[:16],
        encode_announcement(parameters, bytes(PUBLIC_BYTES)),
    )
    with pytest.raises(ParametersRefused, match=text):
        silo.receive(pack_envelope(announced))


def test_session_takes_one_result(config: Config, tmp_path: Path) -> None:
    plan = Tails(config)
    inner = plan.silo(TABLE, SiloContext(NAMES[1], 1, tmp_path), Ledger(plan.rho))
    silo = SiloSession(config, inner, server=SERVER, random_bytes=np.random.bytes)
    result = FederationMessage(MessageKind.RESULT, 0, b"all").pack()
    assert silo.receive(result) is None
    assert (silo.finished, inner.result) == (True, b"all")
    with pytest.raises(FederationProtocolError, match="a second result"):
        silo.receive(result)
    silo.receive(FederationMessage(MessageKind.GOODBYE, 0).pack())
    assert silo.over


@given(
    st.integers(1, 1 << 20),
    st.integers(-(1 << 50), 0),
    st.binary(max_size=40),
    st.sampled_from([None, Noise("server", Fraction(7, 3)), Noise("distributed", Fraction(9, 4))]),
    st.sampled_from([None, DiscreteGaussianEvent(3.25, 1.5)]),
)
def test_task_comes_back_from_bytes(
    length: int, low: int, payload: bytes, noise: Noise | None, event: DiscreteGaussianEvent | None
) -> None:
    task = SumTask(3, 5, Request("step", payload, length, low, 10, noise, event))
    assert SumTask.unpack(task.pack(), SERVER) == task
    assert request_from_head(request_head(task.request), payload) == task.request


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[]",
        b"{}",
        b'{"step":"a"}',
        b"[" * 3000,
        request_head(Request("a", b"", 1, 0, 1)).replace(b":1", b":1.0"),
        request_head(Request("a", b"", 1, 0, 1)).replace(b'"a"', b"7"),
        request_head(Request("a", b"", 1, 0, 1)).replace(b",", b", "),
        request_head(Request("a", b"", 1, 0, 1)).replace(b"{", b'{"more":1,'),
        request_head(Request("a", b"", 1, 0, 1)).replace(b"null", b'["server",1,0]', 1),
        request_head(Request("a", b"", 1, 0, 1)).replace(b'"low":0', b'"low":9'),
    ],
)
def test_task_refuses_heads_that_it_does_not_write(head: bytes) -> None:
    body = b"".join(n.to_bytes(4, "big") for n in (1, 5, len(head))) + head
    with pytest.raises(FederationProtocolError, match="a request"):
        SumTask.unpack(body, SERVER)
    with pytest.raises(FederationProtocolError, match="breaks off"):
        SumTask.unpack(body[:11], SERVER)


def test_statement_that_nothing_was_opened_is_void_once_another_attempt_asks(
    config: Config,
) -> None:
    """The server has signed, and ends before it says why; the silo comes back to its next attempt."""
    silo, _ = silo_of(config)
    silo.receive(asking(Tails(config).request(0)))
    silo.receive(FederationMessage(MessageKind.UNOPENED, 0, b"signed").pack())
    silo.lost()
    assert silo.unopened == b"signed"
    silo.receive(asking(Tails(config).request(1), number=2, round=2))
    assert silo.unopened is None
