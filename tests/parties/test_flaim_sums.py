"""Sessions of sums: the server's parameters are those that every client's policy accepts, and no weaker ones are."""

import math
import secrets
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.flaim_messages import Layout
from parties.config import Config
from parties.federation.sum_parameters import frame_bytes
from parties.foundation.errors import ConfigError
from parties.methods.flaim.settings import flaim_sum, settings_of
from parties.session.study import Study
from secagg import Parameters, wire
from secagg.errors import ParameterError, ParametersRefused
from secagg.graph import strength
from secagg.keys import PUBLIC_BYTES
from tests.parties.support import make_config


def config_of(noise: str, minimum: int, corrupt: float, dropouts: float) -> Config:
    table = {"noise": noise, "minimum": minimum, "corrupt": corrupt, "dropouts": dropouts}
    return make_config({"party": None, "clients.expected": 400, "flaim": table})


def announced(config: Config, clients: int) -> tuple[Layout, Parameters]:
    layout = Layout(1, 0, clients, 5.0, True, ())
    noise = settings_of(config).sum_noise(layout.sigma)
    workload = config.build_workload()
    return layout, flaim_sum(Study(config, workload), layout, noise).parameters(
        random_bytes=secrets.token_bytes
    )


@settings(max_examples=60)
@given(
    st.sampled_from(["server", "distributed"]),
    st.integers(3, 40),
    st.integers(0, 360),
    st.sampled_from([0.0, 0.05, 0.1, 0.33]),
    st.sampled_from([0.0, 0.1, 0.33, 0.5]),
)
def test_session_is_what_clients_insist_on(
    noise: str, minimum: int, more: int, corrupt: float, dropouts: float
) -> None:
    config, clients = config_of(noise, minimum, corrupt, dropouts), minimum + more
    try:
        layout, parameters = announced(config, clients)
    except ParameterError:
        return  # So many corrupt ones that no session of these clients is safe.
    sums, workload = settings_of(config), config.build_workload()
    wanted = flaim_sum(Study(config, workload), layout, sums.sum_noise(layout.sigma)).policy()
    wanted.check(parameters, None)
    threat = wanted.threat
    assert threat is not None
    found = strength(clients, parameters.neighbours, parameters.threshold, threat)
    assert found.security_bits >= 40
    assert parameters.min_survivors >= minimum
    if parameters.neighbours < clients - 1:
        # Of fewer a sparse graph may fall apart.
        assert parameters.min_survivors >= clients - math.ceil(dropouts * clients - 1e-9)
    # However many of the corrupt survive, there are as many honest ones as the noise was made for.
    if noise == "distributed":
        honest = parameters.min_survivors - max(1, math.ceil(corrupt * clients - 1e-9))
        assert honest >= sums.honest
        assert sums.honest == minimum - max(1, math.ceil(corrupt * minimum - 1e-9))


@pytest.mark.parametrize("noise", ["server", "distributed"])
@pytest.mark.parametrize("clients", [3, 4, 5, 6, 7])
def test_small_sessions_take_one_client_for_corrupt_though_the_fraction_is_zero(
    noise: str, clients: int
) -> None:
    config = config_of(noise, 3, 0.0, 0.33)
    layout, parameters = announced(config, clients)
    sums = settings_of(config)
    # One neighbour that tells the server its shares is not enough, and the noise is made without it.
    assert parameters.threshold >= 2
    assert parameters.min_survivors >= parameters.threshold + 1
    assert sums.corrupt == 1
    if noise == "distributed":
        assert sums.honest == 2
        variance = parameters.noise.variance
        assert 2 * variance >= (layout.sigma * parameters.scale) ** 2
    flaim_sum(Study.of(config), layout, sums.sum_noise(layout.sigma)).policy().check(
        parameters, None
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("min_survivors", -1),
        ("threshold", -1),
        ("neighbours", -2),
        ("clients", -2),
        ("scale", 1),
        ("high", 1),
        ("length", -1),
    ],
)
def test_client_refuses_a_session_that_is_weaker_or_of_another_sum(name: str, change: int) -> None:
    config = config_of("distributed", 20, 0.05, 0.33)
    layout, parameters = announced(config, 60)
    wanted = flaim_sum(
        Study.of(config), layout, settings_of(config).sum_noise(layout.sigma)
    ).policy()
    wanted.check(parameters, None)
    changed = replace(parameters, **{name: getattr(parameters, name) + change})
    with pytest.raises(ParametersRefused):
        wanted.check(changed, None)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"flaim": {"minimum": 4}}, "expected at most clients.expected, 3"),
        ({"flaim": {"noise": "distributed", "grouping": "query"}}, "grouping"),
        ({"flaim": {"noise": "distributed", "corrupt": 0.9}}, "honest"),
        ({"flaim": {"corrupt": 0.6}}, "which is 2 of the 3 clients of a sum; expected two honest"),
        ({"flaim": {"minimum": 5, "corrupt": 0.75}, "clients.expected": 9}, "4 of the 5 clients"),
        ({"flaim": {}, "run.delta": 1e-300, "run.rounds": 10_000}, None),
    ],
)
def test_settings_of_says_what_cannot_be_carried_out(
    overrides: dict[str, object], said: str | None
) -> None:
    config = make_config({"party": None, **overrides})
    if said is None:
        assert settings_of(config).rho > 0
        return
    with pytest.raises(ConfigError, match=said):
        settings_of(config)


@pytest.mark.parametrize("clients", [3, 400])
@pytest.mark.parametrize("signed", [False, True])
def test_frame_bytes_has_room_for_everybodys_keys(clients: int, signed: bool) -> None:
    keys = wire.PublicKeys(bytes(PUBLIC_BYTES), bytes(PUBLIC_BYTES), bytes(64 if signed else 0))
    body = wire.encode_list(dict.fromkeys(range(clients - 1), wire.encode_keys(keys)))
    assert frame_bytes(clients) >= wire.OVERHEAD_BYTES + len(body)
