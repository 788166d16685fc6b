"""The bridge from MPyC programs: results of three real parties, beside MPyC's own on the same secure numbers.

``mpyc_program.py`` runs once, as three processes over MPyC's connections.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import syncret
from protocols import mpyc_bridge
from protocols.context import Context, StepCost
from protocols.errors import (
    ConfigurationError,
    PeerClosed,
    ProtocolViolation,
    ReceiveTimeout,
)
from protocols.mpyc_bridge import ErrorSelection
from protocols.mpyc_transport import MpycTransport, open_context
from tests.protocols.network import free_addresses

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("mpyc_program.py")
EXAMPLE = ROOT / "examples" / "mpyc_bridge.py"
LIMIT_S = 200.0
COUNTS = [5, 0, 7, 90, 3, 12, 4, 4, 8, 15]
SIGNED = [5, -7, 0, 1000, -1024, 1023]


def ended_parties(*words: str) -> list[tuple[int, str, str]]:
    """Status, output and errors of three processes that run a program of MPyC's, party 0 first."""
    mesh = [word for host, port in free_addresses() for word in ("-P", f"{host}:{port}")]
    command = [sys.executable, *words, *mesh]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [*command, "-I", str(pid)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for pid in range(3)
    ]
    try:
        ended = [process.communicate(timeout=LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [
        (process.returncode, out, errors)
        for process, (out, errors) in zip(processes, ended, strict=True)
    ]


def outputs_of(*words: str) -> list[str]:
    """The outputs of three processes; their errors fail the test."""
    ended = ended_parties(*words)
    for status, _, errors in ended:
        assert status == 0, errors[-3000:]
    return [out for _, out, _ in ended]


@pytest.fixture(scope="module", params=[(), ("--no-prss",)], ids=["", "no-prss"])
def found(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Results of the three parties, of a program with MPyC's keys and of one without."""
    return [json.loads(out.splitlines()[-1]) for out in outputs_of(str(PROGRAM), *request.param)]


def test_parties_have_the_same_results(found: list[dict[str, Any]]) -> None:
    for results in found:
        del results["sent_bytes"]
    assert found[0] == found[1] == found[2]


def test_secure_numbers_come_back_as_they_were(found: list[dict[str, Any]]) -> None:
    plain = [float(number) for number in SIGNED]
    expected = {
        name: [number + 1 for number in plain]
        for name in (
            "SecInt one round",
            "SecInt exact",
            "SecInt(64)",
            "SecFld small",
            "SecFld large",
        )
    }
    expected["SecFxp"] = [number / 4 + 1 for number in plain]
    expected["list"], expected["grid"] = plain, [2, 3, *plain]
    assert found[0]["there_and_back"] == expected


def test_select_chooses_as_mpyc_does_with_the_same_noise(found: list[dict[str, Any]]) -> None:
    *repeats, _ = found[0]["selections"]
    assert [ours for ours, _ in repeats] == [theirs for _, theirs in repeats]
    assert len(repeats) == 6


def test_measure_opens_what_mpyc_opens_with_the_same_noise(found: list[dict[str, Any]]) -> None:
    ours, theirs, *_ = found[0]["measurements"]
    assert ours == theirs
    assert ours != COUNTS


def test_measure_takes_each_type_and_kind_of_noise(found: list[dict[str, Any]]) -> None:
    """Statistic: the largest distance from the counts, of 10 at sigma = 3; beyond 7 sigma once in 10^10."""
    *_, discrete, box_muller, distributed = found[0]["measurements"]
    for noisy in (discrete, box_muller, distributed):
        assert np.abs(np.subtract(noisy, COUNTS)).max() < 7 * 3 * np.sqrt(1.5)
    assert all(float(value).is_integer() for value in discrete + distributed)
    assert all((64 * value).is_integer() for value in box_muller)


def test_absolute_errors_are_mpycs(found: list[dict[str, Any]]) -> None:
    ours, theirs, of_fixed, of_fixed_theirs = found[0]["errors"]
    assert ours == theirs == of_fixed == of_fixed_theirs == [13.0, 37.0, 9.0]


def test_samples_have_mean_and_variance(found: list[dict[str, Any]]) -> None:
    """Statistics: mean and variance of 300, each against 6 deviations: a false alarm once in 10^8."""
    for drawn, sigma in zip(found[0]["samples"], (5.0, 1.0, 1.0), strict=True):
        assert len(drawn) == 300
        assert abs(np.mean(drawn)) < 6 * sigma / np.sqrt(300)
        assert abs(np.var(drawn) / sigma**2 - 1) < 6 * np.sqrt(2 / 300)
    discrete, short, long = found[0]["samples"]
    assert all(float(value).is_integer() for value in discrete)
    assert all((value * 2**16).is_integer() for value in short)
    assert all((value * 2**26).is_integer() for value in long)
    assert not all((value * 2**16).is_integer() for value in long)


def test_join_brings_columns_to_the_rows_of_their_keys(found: list[dict[str, Any]]) -> None:
    present, insured, cost = found[0]["joined"]
    assert present == [1, 1, 0, 1, 0]
    assert insured == [0, 1, 0, 0, 0]
    assert cost == [300, 4, 5, 6, 7]


def test_one_number_is_measured(found: list[dict[str, Any]]) -> None:
    """Statistic: distance at sigma = 0.5, which is 5 or more once in 10^22."""
    for (noisy,) in found[0]["scalars"]:
        assert abs(noisy - 4) < 5


def test_calls_run_side_by_side(found: list[dict[str, Any]]) -> None:
    """Statistic: distances at sigma = 0.5; of 20, one of 5 or more once in 10^21."""
    doubled, squared = found[0]["side_by_side"]
    assert np.abs(np.subtract(doubled, 2 * np.array(COUNTS))).max() < 5
    assert np.abs(np.subtract(squared, np.array(COUNTS) ** 2)).max() < 5


def test_arguments_that_do_not_fit_are_refused_in_words(found: list[dict[str, Any]]) -> None:
    for said, words in zip(
        found[0]["refused"],
        (
            "GF(2^8)) has no prime field",
            "GF(2)) has no prime field",
            "TypeError: ndarray has no prime field",
            "have to be whole numbers",
            "SecInt32 has no fraction",
            "SecInt4 has no room for values of 9 bits",
            "numbers of 1 to 62",
            "TypeError: expected secure numbers of one type in a list",
            "TypeError: expected secure numbers of one type in a list",
            "TypeError: expected secure numbers of one type in a list",
            "max_rows = -10; expected",
            "-1 samples; expected 0 or more",
            "groups of 3 cells for 2 answers",
            "groups of 2 cells for 2 answers; each has one or more",
            "whole numbers",
            "whole numbers",
            "answers are expected to lie in",
        ),
        strict=True,
    ):
        assert words in said
    assert "not started" in found[0]["not started"]


def test_party_that_leaves_is_named_by_the_others() -> None:
    first, second, third = ended_parties(str(PROGRAM), "leave")
    assert third[0] == 0
    for status, _, errors in (first, second):
        assert status != 0
        assert "PeerClosed: the connection with party 2 is closed" in errors


def test_calls_in_another_order_at_one_party_end_at_the_deadline() -> None:
    """None ends with a number; party 1 waits for nobody in a conversion, and may end with its own components."""
    outputs = outputs_of(str(PROGRAM), "swap")
    first, second, third = (json.loads(out.splitlines()[-1]) for out in outputs)
    # Whoever is late finds that a party has left, whose deadline had passed.
    for words in (*first, *second[:4], *second[8:], *third):
        assert re.match("ReceiveTimeout: party .* sent nothing|PeerClosed: ", words), words


def three_in_a_row() -> int:
    """The first of three free ports one after the other, as MPyC's option ``-B`` takes them."""
    while True:
        ((_, first),) = free_addresses(1)
        ports = [port for _, port in free_addresses(2)]
        if ports == [first + 1, first + 2]:
            return first


def test_example_runs_by_one_command() -> None:
    command = [sys.executable, str(EXAMPLE), "-M3", "-B", str(three_in_a_row()), "--no-log"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # MPyC starts the other two; all three are a group of processes, of which none outlives the test.
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=LIMIT_S)
    finally:
        end_group(process)
    assert process.returncode == 0, errors[-3000:]
    chosen, counts, total, cost = out.splitlines()
    assert chosen in ("chosen: age", "chosen: region")
    assert counts.startswith("counts with noise: [")
    # Both tables have 120 people; noise of 7 sigma comes once in 10^11.
    assert abs(int(total.removeprefix("total with noise: ")) - 120) < 7 * 3
    assert cost.startswith("party 0: 73 rounds, ")


def end_group(process: "subprocess.Popen[str]") -> None:
    """Ends a process that leads a group, and the processes of the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_syncret_has_the_bridge_by_both_spellings() -> None:
    from syncret import mpyc

    assert mpyc is syncret.mpyc is mpyc_bridge
    with pytest.raises(AttributeError, match="no attribute 'mpy'"):
        syncret.mpy  # noqa: B018  # The access is what is tested.


def test_import_of_syncret_loads_no_bridge() -> None:
    code = "import sys, syncret; print([m for m in sys.modules if 'mpyc' in m])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_selection_has_gains_rounded_down_and_answers_rounded() -> None:
    spec = ErrorSelection.of([[1.01, 2.0], [0.0]], epsilon=0.3, max_rows=9)
    assert spec.gains == (int(0.3 * 2**21),) * 2
    assert spec.answers.tolist() == [65, 128, 0]
    assert spec.sizes.tolist() == [2, 1]


@pytest.mark.parametrize("answers", [[], [[]], [[-1.0]], [[float("nan")]], [[2.0**25]]])
def test_selection_refuses_answers_that_do_not_fit(answers: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="candidates of one cell"):
        ErrorSelection.of(answers, epsilon=1.0, max_rows=9)


# Keys and messages, on exchangers in one process.


class Exchanger:
    """An MPyC exchanger's two ends of messages, with a connection that may be closed."""

    def __init__(self, waiting: "dict[int, asyncio.Future[bytes]]", peer_waiting: Any) -> None:
        self.waiting, self.peer_waiting, self.closed = waiting, peer_waiting, False
        self.transport = self

    def is_closing(self) -> bool:
        return self.closed

    def send(self, label: int, payload: bytes) -> None:
        slot(self.peer_waiting, label).set_result(payload)

    def receive(self, label: int) -> "asyncio.Future[bytes]":
        return slot(self.waiting, label)


def slot(waiting: "dict[int, asyncio.Future[bytes]]", label: int) -> "asyncio.Future[bytes]":
    return waiting.setdefault(label, asyncio.get_running_loop().create_future())


def programs(parties: int = 3, threshold: int = 1) -> list[SimpleNamespace]:
    """MPyC's runtimes as far as a transport knows them, connected to one another."""
    waiting: dict[tuple[int, int], dict[int, asyncio.Future[bytes]]] = {
        (at, of): {} for at in range(parties) for of in range(parties)
    }
    return [
        SimpleNamespace(
            pid=pid,
            threshold=threshold,
            start_time=1.0,
            _program_counter=[7, 0],
            parties=[
                SimpleNamespace(protocol=Exchanger(waiting[pid, peer], waiting[peer, pid]))
                for peer in range(parties)
            ],
        )
        for pid in range(parties)
    ]


async def opened(mpcs: Sequence[Any]) -> list[tuple[Context, MpycTransport]]:
    return list(await asyncio.gather(*(open_context(mpc, timeout_s=0.3) for mpc in mpcs)))


async def test_holders_of_a_component_have_one_key_and_no_two_components_do() -> None:
    both = await opened(mpcs := programs())
    keys = {c: {both[pid][1].component_key(c) for pid in (c, (c - 1) % 3)} for c in range(3)}
    assert all(len(found) == 1 for found in keys.values())
    assert len(set.union(*keys.values())) == 3
    assert len({transport.private_key() for _, transport in both}) == 3
    with pytest.raises(ValueError, match="holds no component"):
        both[0][1].component_key(2)
    # The counter has gone on, so that a second context has labels and keys of its own.
    assert [mpc._program_counter for mpc in mpcs] == [[8, 0]] * 3
    again = await opened(mpcs)
    assert again[0][0].place() != both[0][0].place()
    assert again[0][1].component_key(0) != both[0][1].component_key(0)
    assert "key" not in repr(again[0][1])


@pytest.mark.parametrize(("parties", "threshold"), [(1, 0), (5, 1), (5, 2), (3, 0)])
async def test_other_numbers_of_parties_are_refused(parties: int, threshold: int) -> None:
    with pytest.raises(ConfigurationError, match="expected 3 with 1"):
        await open_context(programs(parties, threshold)[0])


async def test_share_that_was_not_committed_to_is_a_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Context.transfer

    async def altered(
        self: Context, sender: int, receiver: int, payload: bytes | None, **options: Any
    ) -> bytes | None:
        shown = payload[::-1] if sender == 0 and payload is not None else payload
        return await original(self, sender, receiver, shown, **options)

    monkeypatch.setattr(Context, "transfer", altered)
    with pytest.raises(ProtocolViolation, match="party 0 did not show"):
        await opened(programs())


async def test_silent_peer_ends_the_wait_and_a_closed_connection_at_once() -> None:
    mpc, cost = programs()[0], StepCost("test", None)
    transport = MpycTransport(mpc, 0.05)
    with pytest.raises(ReceiveTimeout, match=r"party 1 sent nothing for 0\.05 s in step 'test'"):
        await transport.fetch(1, 5, cost, 8)
    mpc.parties[2].protocol.closed = True
    with pytest.raises(PeerClosed, match="party 2 is closed"):
        await transport.fetch(2, 5, cost, 8)
    mpc.parties[1].protocol = None
    with pytest.raises(PeerClosed):
        transport.post(1, 5, np.zeros(3, np.uint8), cost)


async def test_message_above_its_limit_is_a_violation() -> None:
    mpcs, cost = programs(), StepCost("test", None)
    first, second = (MpycTransport(mpc, 1.0) for mpc in mpcs[:2])
    second.post(0, 5, np.arange(9, dtype=np.uint8), cost)
    with pytest.raises(ProtocolViolation, match="9 bytes in step 'test', at most 8"):
        await first.fetch(1, 5, cost, 8)
    second.post(0, 6, np.arange(8, dtype=np.uint8), cost)
    payload = await first.fetch(1, 6, cost, 8)
    assert payload.tolist() == list(range(8))
    assert payload.flags.writeable
    assert (second.total.sent_bytes, first.total.received_bytes) == (17, 8)
