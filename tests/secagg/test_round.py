import json
import runpy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import secagg
from secagg import wire
from secagg.client import SecAggClient
from secagg.errors import (
    MalformedMessage,
    ParameterError,
    ParametersRefused,
    RoundAborted,
    SumOutOfRange,
    TooFewShares,
    TooFewSurvivors,
    ValueOutOfRange,
)
from secagg.graph import ThreatModel, choose
from secagg.masks import packed_bytes, word
from secagg.noise import NoiseKind, SessionNoise, distributed_noise, server_noise
from secagg.parameters import ClientPolicy, Parameters
from secagg.server import SecAggServer, Stage
from secagg.simulation import policy_for, run_round
from secagg.wire import Kind
from tests.secagg.support import exact_sum, identities, seeded, session, vectors

STAGES = [Stage.ADVERTISE, Stage.SHARES, Stage.MASKED, Stage.SIGNATURE, Stage.REVEAL]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("neighbours", [4, 5, 7])
@pytest.mark.parametrize("first", STAGES)
@pytest.mark.parametrize("second", STAGES)
def test_run_round_survives_a_dropout_at_any_two_stages(
    signed: bool, neighbours: int, first: Stage, second: Stage
) -> None:
    parameters = session(8, signed, neighbours=neighbours)
    values = vectors(parameters)
    # One of them is enough where the threshold leaves room for one each: 3 of 4, or 4 of 5 with signatures.
    drops = {2: first} if neighbours - parameters.threshold == 1 else {2: first, 5: second}
    report = run_round(
        parameters, values, drops=drops, identities=identities(8) if signed else None
    )
    early = {u for u, stage in drops.items() if stage <= Stage.MASKED}
    assert report.server.survivors == frozenset(range(8)) - early
    assert np.array_equal(report.server.exact_result, exact_sum(values, report.server.survivors))
    assert report.failures == {}


@given(data=st.data(), low=st.integers(-(10**9), 10**9), width=st.integers(1, 2**50))
@settings(max_examples=40, deadline=None)
def test_run_round_gives_the_exact_sum_for_any_range_and_length(
    data: st.DataObject, low: int, width: int
) -> None:
    clients = data.draw(st.integers(3, 9))
    length = data.draw(st.sampled_from([1, 2, 63, 64, 65, 200]))
    scale = data.draw(st.sampled_from([1, 1, 3]))
    parameters = session(
        clients, length=length, low=low, high=low + width, scale=scale, min_survivors=clients
    )
    values = vectors(parameters, data.draw(st.integers(0, 99)))
    values[0][:] = low + width
    values[1][:] = low
    report = run_round(parameters, values)
    total = exact_sum(values, report.server.survivors)
    assert np.array_equal(report.server.scaled_result, (total - clients * low) * scale)
    if scale == 1:
        assert np.array_equal(report.server.exact_result, total)
    assert np.allclose(report.server.result, total, rtol=1e-12)


@pytest.mark.parametrize("extreme", ["low", "high"])
def test_run_round_does_not_wrap_where_everybody_holds_an_extreme(extreme: str) -> None:
    # 8 x 32 + 1 values: one more than a ring of 8 bits holds.
    parameters = session(8, low=-16, high=16)
    assert parameters.bits == 9
    values = [np.full(9, getattr(parameters, extreme)) for _ in range(8)]
    assert run_round(parameters, values).server.exact_result.tolist() == [8 * int(values[0][0])] * 9


@pytest.mark.parametrize(
    ("low", "high", "bits"), [(0, 1, 4), (-16, 15, 8), (0, 32, 9), (0, 2**40, 44)]
)
def test_bits_are_the_fewest_that_hold_the_sum(low: int, high: int, bits: int) -> None:
    assert session(8, low=low, high=high).bits == bits
    assert 1 << bits > 8 * (high - low) >= 1 << (bits - 1)


@pytest.mark.parametrize("survivors", [5, 8])
def test_ring_tells_noise_below_zero_from_noise_above_the_largest_sum(survivors: int) -> None:
    noise = distributed_noise(40.0, 1, 8)
    encoding = session(8, low=0, high=20, noise=noise).encoding
    assert noise.margin(8) > encoding.span
    extremes = np.array([-encoding.margin, -1, 0, survivors * 20, survivors * 20 + encoding.margin])
    total = extremes.astype(word(encoding.bits)) & word(encoding.bits)((1 << encoding.bits) - 1)
    assert encoding.decode(total, survivors).tolist() == extremes.tolist()


@pytest.mark.parametrize(
    "changes", [{"bits": 1}, {"bits": -1}, {"numerator": 2, "denominator": 2}, {"numerator": 1}]
)
def test_parameters_have_one_form_with_the_ring_that_follows(changes: dict[str, int]) -> None:
    parameters = session(8, noise=distributed_noise(6.0, 1, 3))
    data = bytearray(parameters.to_bytes())
    assert Parameters.from_bytes(bytes(data)) == parameters
    variance = parameters.noise.variance
    if "bits" in changes:
        data[-33] += changes["bits"]
    else:
        numerator = variance.numerator * changes["numerator"]
        denominator = variance.denominator * changes.get("denominator", 0)
        data[73:89] = numerator.to_bytes(8, "big") + denominator.to_bytes(8, "big")
    with pytest.raises(ParameterError):
        Parameters.from_bytes(bytes(data))


def test_wire_refuses_bodies_beyond_the_limit_repeated_ids_and_clients_that_do_not_exist() -> None:
    message = wire.pack_envelope(wire.Envelope(Kind.MASKED, 1, wire.SERVER, bytes(16), bytes(99)))
    assert wire.open_envelope(message, 99).body == bytes(99)
    with pytest.raises(MalformedMessage, match="at most 98"):
        wire.open_envelope(message, 98)
    entry = (5).to_bytes(4, "big") + b"x"
    assert wire.decode_list((1).to_bytes(4, "big") + entry, 1, [5, 6]) == {5: b"x"}
    with pytest.raises(MalformedMessage, match="ascending"):
        wire.decode_list((2).to_bytes(4, "big") + entry + entry, 1, [5, 6])
    assert wire.decode_survivors(b"\xff\xe0", 11).all()
    with pytest.raises(MalformedMessage, match="do not exist"):
        wire.decode_survivors(b"\xff\xf0", 11)


@pytest.mark.parametrize("sign", [1, -1])
def test_parameters_refuse_sums_beyond_63_bits_wherever_the_range_lies(sign: int) -> None:
    # A narrow range far from zero: the ring is small, the sum is not.
    far = (1 << 63) // 8
    with pytest.raises(ParameterError, match="nearer to zero"):
        session(8, low=min(sign * far, sign * far - sign), high=max(sign * far, sign * far - sign))
    parameters = session(
        8, low=min(sign * (far - 2), sign * (far - 1)), high=max(sign * (far - 2), sign * (far - 1))
    )
    values = [np.full(9, parameters.high) for _ in range(8)]
    found = run_round(parameters, values).server.exact_result
    assert found.tolist() == [8 * parameters.high] * 9


@pytest.mark.parametrize(("clients", "high", "bits"), [(3, 1, 2), (3, (1 << 61) - 1, 63)])
@pytest.mark.parametrize("low", [0, -1])
def test_run_round_is_exact_in_the_smallest_and_the_largest_ring(
    clients: int, high: int, bits: int, low: int
) -> None:
    parameters = session(clients, length=1, low=low, high=high + low, min_survivors=3)
    assert parameters.bits == bits
    for value in (low, high + low):
        report = run_round(parameters, [np.array([value])] * clients)
        assert report.server.exact_result.tolist() == [clients * value]
    with pytest.raises(ParameterError, match="ring of 64 bits"):
        session(4, low=0, high=1 << 61)


@pytest.mark.parametrize("bad", [-1, 1001, np.uint64(2**63), np.int64(-(2**63))])
def test_client_refuses_a_value_outside_its_range_before_it_sends_a_vector(bad: int) -> None:
    parameters = session(6)
    values = [*vectors(parameters)]
    spoilt = values[3].astype(np.asarray(bad).dtype)
    spoilt[4] = bad
    report = run_round(parameters, [*values[:3], spoilt, *values[4:]])
    assert isinstance(report.failures[3], ValueOutOfRange)
    assert "index 4" in str(report.failures[3])
    assert report.server.survivors == frozenset(range(6)) - {3}
    assert np.array_equal(report.server.exact_result, exact_sum(values, report.server.survivors))


@pytest.mark.parametrize("bad", [np.zeros(8, np.int64), np.zeros((9, 1), np.int64), np.zeros(9)])
def test_client_refuses_vectors_of_another_shape_or_type(bad: np.ndarray) -> None:
    parameters = session(6)
    report = run_round(parameters, [bad, *vectors(parameters)[1:]])
    assert isinstance(report.failures[0], ValueOutOfRange)


def test_server_refuses_a_sum_that_honest_clients_cannot_reach() -> None:
    # The unmasked sum of a cheat: one client's vector is far beyond its range.
    parameters = session(6, low=0, high=20)
    encoding = parameters.encoding
    total = np.full(9, 5 * 20 + 1, np.uint32)
    assert encoding.decode(total, 6).tolist() == [101] * 9
    with pytest.raises(SumOutOfRange):
        encoding.decode(total, 5)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("signed", [False, True])
def test_run_round_reveals_nothing_with_fewer_survivors_than_the_minimum(
    stage: Stage, signed: bool
) -> None:
    if stage is Stage.SIGNATURE and not signed:
        stage = Stage.REVEAL
    parameters = session(8, signed, neighbours=7, threshold=4, min_survivors=6)
    drops = dict.fromkeys(range(3 if stage <= Stage.MASKED else 5), stage)
    with pytest.raises(RoundAborted) as caught:
        run_round(
            parameters,
            vectors(parameters),
            drops=drops,
            identities=identities(8) if signed else None,
        )
    assert isinstance(caught.value, TooFewSurvivors if stage <= Stage.MASKED else TooFewShares)


def test_server_aborts_where_a_secret_lacks_shares_and_has_no_result() -> None:
    parameters = session(6, threshold=4, min_survivors=5)
    server: list[SecAggServer] = []
    with pytest.raises(TooFewShares, match="expected at least 4") as caught:
        run_round(
            parameters,
            vectors(parameters),
            drops={0: Stage.REVEAL, 1: Stage.REVEAL, 2: Stage.REVEAL},
        )
    assert server == []
    assert "3 shares" in str(caught.value) or "2 shares" in str(caught.value)


@pytest.mark.parametrize("signed", [False, True])
def test_run_round_sends_the_bytes_its_formula_says(signed: bool) -> None:
    clients, neighbours = 10, 6
    parameters = session(clients, signed, neighbours=neighbours, length=1000)
    report = run_round(
        parameters, vectors(parameters), identities=identities(clients) if signed else None
    )
    k, overhead, s = neighbours, wire.OVERHEAD_BYTES, 64 if signed else 0
    assert overhead == 50
    sealed = 8 + 1172 * k + 1140 * k // 2
    sent = 2432 + s + 32 + sealed + packed_bytes(1000, parameters.bits) + s + 1136 + 4 + 37 * k
    received = (
        len(parameters.to_bytes())
        + 1216
        + (4 + (2436 + s) * k)
        + sealed
        + 2
        + (4 + (4 + s) * k if signed else 0)
    )
    messages = 5 if signed else 4
    assert report.sent_bytes == [sent + messages * overhead] * clients
    assert report.received_bytes == [received + (messages + 1) * overhead] * clients


def test_run_round_streams_vectors_that_are_functions() -> None:
    parameters = session(6)
    values, asked = vectors(parameters), list[int]()

    def supply(u: int) -> np.ndarray:
        asked.append(u)
        return values[u]

    report = run_round(
        parameters,
        [lambda u=u: supply(u) for u in range(6)],  # type: ignore[misc]
        drops={4: Stage.SHARES},
    )
    assert sorted(asked) == [0, 1, 2, 3, 5]
    assert np.array_equal(report.server.exact_result, exact_sum(values, report.server.survivors))


def test_run_round_adds_distributed_noise_of_the_deviation_asked_for() -> None:
    # Six clients, 20,000 cells, deviation 8 asked of four: the sum has 8 sqrt(6/4). The sample variance is within 6 %
    # but for six deviations of it.
    honest, sigma = 4, 8.0
    scale = 2  # In scaled units a client's part has deviation 2 sigma / sqrt(4) = 8.
    noise = distributed_noise(sigma, scale, honest)
    parameters = session(6, length=20_000, scale=scale, noise=noise)
    values = vectors(parameters)
    report = run_round(parameters, values, random_bytes=seeded("noise"))
    errors = report.server.result - exact_sum(values, report.server.survivors)
    expected = 6 * float(noise.variance) / scale**2
    assert errors.var() == pytest.approx(expected, rel=0.06)
    assert expected == pytest.approx(sigma**2 * 6 / 4, rel=0.01)
    assert report.server.noise_deviation == pytest.approx(expected**0.5)
    with pytest.raises(ValueError, match="result"):
        _ = report.server.exact_result


def test_run_round_adds_server_noise_once() -> None:
    parameters = session(6, length=20_000, noise=server_noise(5.0))
    values = vectors(parameters)
    report = run_round(parameters, values, random_bytes=seeded("server noise"))
    errors = report.server.exact_result - exact_sum(values, report.server.survivors)
    assert errors.var() == pytest.approx(25, rel=0.06)
    assert report.server.noise_deviation == pytest.approx(5, rel=1e-3)
    with pytest.raises(ValueError, match="no sum"):
        _ = SecAggServer(parameters).noise_deviation


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("min_clients", 9, "clients"),
        ("max_clients", 7, "clients"),
        ("min_neighbours", 5, "neighbours"),
        ("min_threshold", 4, "threshold"),
        ("min_survivors", 6, "survivors"),
        ("length", 10, "length"),
        ("low", 1, "low"),
        ("high", 999, "high"),
        ("scale", 2, "scale"),
        ("noise", SessionNoise(NoiseKind.SERVER, server_noise(1.0).variance), "noise"),
        ("session", bytes(32), "session"),
        ("graph_seed", bytes(32), "graph seed"),
    ],
)
def test_client_refuses_parameters_below_its_own_minima(
    field: str, value: object, message: str
) -> None:
    parameters = session(8, neighbours=4)
    accepted = policy_for(parameters)
    fields = {name: getattr(accepted, name) for name in ClientPolicy.__slots__}
    strict = ClientPolicy(**{**fields, field: value})
    with pytest.raises(ParametersRefused, match=message):
        strict.check(parameters, None)
    accepted.check(parameters, None)
    if field not in ("low", "high", "length", "scale", "noise"):
        with pytest.raises(TooFewSurvivors):
            run_round(parameters, vectors(parameters), policy=strict)


def test_stages_are_in_the_order_of_the_round() -> None:
    assert all(earlier < later for earlier, later in pairwise(Stage))


def test_readme_example_gives_the_sum_it_promises(tmp_path: Path) -> None:
    readme = Path(secagg.__file__).parent / "README.md"
    code = readme.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    names = runpy.run_path(str(tmp_path / "example.py"))
    assert (names["neighbours"], names["threshold"]) == (28, 6)
    assert names["report"].server.exact_result.tolist() == [sum(range(100)) - 7] * 1000


@pytest.mark.slow
def test_run_round_of_3000_clients_survives_a_third_dropping_out_at_all_stages() -> None:
    clients = 3000
    neighbours, threshold = choose(clients, ThreatModel())
    parameters = session(
        clients, neighbours=neighbours, threshold=threshold, min_survivors=2000, length=50
    )
    values = vectors(parameters)
    stages = [Stage.ADVERTISE, Stage.SHARES, Stage.MASKED, Stage.REVEAL]
    drops = {u: stages[u // 3 % 4] for u in range(0, clients, 3)}
    report = run_round(parameters, values, drops=drops)
    assert report.failures == {}
    assert len(report.server.survivors) == 2250
    assert np.array_equal(report.server.exact_result, exact_sum(values, report.server.survivors))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_run_round_of_10000_clients_survives_dropouts_at_all_stages() -> None:
    clients = 10_000
    neighbours, threshold = choose(clients, ThreatModel())
    assert (neighbours, threshold) == (86, 29)
    parameters = session(
        clients, neighbours=neighbours, threshold=threshold, min_survivors=6700, length=8
    )
    values = vectors(parameters)
    stages = [Stage.ADVERTISE, Stage.SHARES, Stage.MASKED, Stage.REVEAL]
    drops = {u: stages[u // 10 % 4] for u in range(0, clients, 10)}
    report = run_round(parameters, values, drops=drops)
    assert report.failures == {}
    assert len(report.server.survivors) == 9250
    assert np.array_equal(report.server.exact_result, exact_sum(values, report.server.survivors))


@pytest.mark.parametrize("signed", [False, True])
def test_thaw_goes_on_where_a_client_was_frozen_at_any_stage(signed: bool) -> None:
    """Every client is another object after each of its messages, and made of bytes."""
    parameters = session(6, signed, neighbours=5, threshold=4, min_survivors=5)
    values, people = vectors(parameters), identities(6)
    roster = [person.public for person in people] if signed else None
    mine = [person if signed else None for person in people]
    clients = [
        SecAggClient(u, values[u], policy_for(parameters), identity=mine[u], roster=roster)
        for u in range(6)
    ]
    server = SecAggServer(parameters, roster=roster)
    queue = server.start()
    while queue:
        u, message = queue.pop(0)
        answer = clients[u].receive(message)
        frozen = clients[u].freeze()
        clients[u] = SecAggClient.thaw(
            frozen, policy_for(parameters), identity=mine[u], roster=roster
        )
        queue += [] if answer is None else server.receive(u, answer)
    assert np.array_equal(server.exact_result, sum(values))
    # Of the vector, the keys and the shares nothing is left.
    left = json.loads(clients[0].freeze())
    assert not left["values"]
    assert left["secrets"] is None
    assert left["shares"] == left["public"] == []
