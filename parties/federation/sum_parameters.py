"""Parameters of the SecAgg session for a sum between silos. The server announces them; each silo computes and compares
them.

The rules are FLAIM's (`parties.federation.flaim_parameters`). The fraction ``corrupt`` of the silos of a sum, at least
one, may be in league with the server. With run.security = "malicious" the server may do anything: sessions are signed
in a complete graph, and the fraction is of all silos of the run. All values here are public.
"""

from collections.abc import Callable, Sequence

from mechanisms.silos import Noise, Request
from parties.config import Config, SilosSection
from parties.federation.algorithm import AlgorithmPlan
from parties.federation.flaim_parameters import graph_parameters, is_malicious, selectable_clients
from parties.foundation.errors import ConfigError
from secagg import ClientPolicy, Parameters, ThreatModel
from secagg.graph import Adversary
from secagg.noise import NoiseKind, SessionNoise
from secagg.parameters import DIGEST_BYTES, SESSION_BYTES, roster_digest

_NOISE_KINDS = {"server": NoiseKind.SERVER, "distributed": NoiseKind.DISTRIBUTED}


def silos_section(config: Config) -> SilosSection:
    """The section [silos], or its defaults."""
    return config.silos or SilosSection()


def corrupt_silos(config: Config, clients: int) -> int:
    """Number of silos among the ``clients`` of a sum that may be in league with the server; at least one."""
    threat = ThreatModel(corrupt=silos_section(config).corrupt)
    return threat.corrupt_clients(selectable_clients(config) or clients)


def honest_survivors(config: Config) -> int:
    """Minimum number of honest survivors of any sum; their noise alone has to suffice."""
    least = silos_section(config).minimum
    return max(1, least - corrupt_silos(config, least))


def check_silos(config: Config, plan: AlgorithmPlan) -> None:
    """Raises ConfigError if no sum of the run would protect a silo."""
    section, expected = silos_section(config), config.clients.expected
    if section.minimum > expected:
        raise ConfigError(
            config.source,
            "silos.minimum",
            f"is {section.minimum}; expected at most clients.expected, {expected}",
        )
    for clients in range(section.minimum, expected + 1):
        if clients - corrupt_silos(config, clients) < 2:
            raise ConfigError(
                config.source,
                "silos.corrupt",
                f"is {section.corrupt:g}, which is {corrupt_silos(config, clients)} of the {clients} silos of a sum; "
                "expected two honest ones in every sum, or it shows the vector of the only one: lower it, or raise "
                "silos.minimum",
            )
    if is_malicious(config) and section.noise != "distributed" and not plan.private_answers:
        raise ConfigError(
            config.source,
            "silos.noise",
            f"is {section.noise!r}: a server that may do anything would see exact sums over silos of its choice, and "
            "subtract them; expected 'distributed' with run.security = 'malicious'",
        )


def silo_least_survivors(config: Config, clients: int, noise: Noise | None) -> int:
    """Minimum number of survivors of ``clients`` for opening the sum."""
    section = silos_section(config)
    neighbours, threshold = graph_parameters(section, clients, selectable_clients(config))
    least = max(section.minimum, threshold + 1)
    if neighbours < clients - 1:
        # The sparse graph is made for this many dropouts; more may disconnect it.
        dropped = ThreatModel(dropouts=section.dropouts).dropped_clients(clients)
        least = max(least, clients - dropped)
    if noise is not None and noise.maker == "distributed":
        least = max(least, honest_survivors(config) + corrupt_silos(config, clients))
    return least


def silo_session_parameters(
    config: Config,
    request: Request,
    clients: int,
    *,
    random_bytes: Callable[[int], bytes],
    session_id: bytes | None = None,
    roster: Sequence[bytes] | None = None,
) -> Parameters:
    """Returns the session's parameters for ``request`` among ``clients``; signed if ``roster`` is given.

    Raises ParameterError.
    """
    neighbours, threshold = graph_parameters(
        silos_section(config), clients, selectable_clients(config)
    )
    return Parameters(
        session=session_id or random_bytes(SESSION_BYTES),
        graph_seed=random_bytes(SESSION_BYTES),
        clients=clients,
        neighbours=neighbours,
        threshold=threshold,
        min_survivors=silo_least_survivors(config, clients, request.noise),
        length=request.length,
        low=request.low,
        high=request.high,
        noise=session_noise(request.noise),
        roster_digest=bytes(DIGEST_BYTES) if roster is None else roster_digest(roster),
    )


def session_noise(noise: Noise | None) -> SessionNoise:
    """Returns the noise in SecAgg's terms. Raises ParameterError."""
    if noise is None:
        return SessionNoise()
    return SessionNoise(_NOISE_KINDS[noise.maker], noise.variance)


def silo_client_policy(
    config: Config, request: Request, clients: int, *, session_id: bytes | None = None
) -> ClientPolicy:
    """Returns a silo's requirements for the session of ``request``, from its own configuration.

    Raises ParameterError.
    """
    section, among = silos_section(config), selectable_clients(config)
    neighbours, threshold = graph_parameters(section, clients, among)
    complete = neighbours == clients - 1
    threat = ThreatModel(section.corrupt, 0.0 if complete else section.dropouts)
    if among is not None:
        corrupt_share = corrupt_silos(config, clients) / clients
        threat = ThreatModel(corrupt_share, 0.0, Adversary.MALICIOUS)
    return ClientPolicy(
        length=request.length,
        low=request.low,
        high=request.high,
        min_clients=max(clients, section.minimum),
        min_survivors=silo_least_survivors(config, clients, request.noise),
        min_neighbours=neighbours,
        min_threshold=threshold,
        noise=session_noise(request.noise),
        max_clients=clients,
        threat=threat,
        session=session_id,
    )
