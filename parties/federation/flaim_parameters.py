"""Parameters of the SecAgg session for a sum of FLAIM. The server announces them; each client computes and compares
them.

A session of n clients withstands ceil(corrupt n) clients in league with the server, and at least one, since a single
client may always be the server's own. A run in which some sum would have fewer than two honest clients is refused: such
a sum shows the vector of the only honest one. The fraction ``corrupt`` is of the clients of each sum, not of the run; a
small sample of the run's clients can contain a larger fraction. With 5 corrupt of 100, one sum over 20 in four has more
corrupt clients than corrupt = 0.05 allows; 0.25 covers all five. With distributed noise the honest survivors have to be
as many as the noise was made for, for any number of corrupt survivors: the minimum of survivors grows with n. If no
neighbour graph of n clients also withstands the configured dropouts, the graph is complete and the session survives
fewer dropouts; this costs rounds, never secrets.

With run.security = "malicious" the server may do anything. Sessions are signed (`parties.federation.key_directory`), in
a complete graph. Since such a server chooses the clients of a sum, ``corrupt`` is then a fraction of the run's clients,
all of whom may be in one sum. Every client adds noise: the difference of two exact sums over sets of the server's
choice would be one client's counts. Source: `secagg` README. All values here are public.
"""

import math
from collections.abc import Callable, Sequence

from mechanisms.accounting import rho_from_epsilon_delta
from mechanisms.flaim_messages import Layout
from mechanisms.flaim_settings import FlaimSettings, SumNoise
from mechanisms.workload import Workload
from parties.config import ANNEALED, MALICIOUS, Config, FlaimSection, SilosSection
from parties.foundation.errors import ConfigError
from parties.session.study import Study
from parties.storage.owner_budget import ROW, ROW_OF_KNOWN, Release
from secagg import ClientPolicy, Parameters, ThreatModel, choose, wire
from secagg.errors import ParameterError
from secagg.graph import Adversary
from secagg.keys import PUBLIC_BYTES, SIGNATURE_BYTES
from secagg.noise import NoiseKind, SessionNoise, server_noise
from secagg.parameters import DIGEST_BYTES, SESSION_BYTES, roster_digest

SMALLEST_SESSION = 3
"""Minimum number of clients. With two, each client learns the other's vector from the sum."""


def flaim_section(config: Config) -> FlaimSection:
    """The section [flaim], or its defaults."""
    return config.flaim or FlaimSection()


def settings_of(config: Config) -> FlaimSettings:
    """Returns the settings of the run of ``config``. Raises ConfigError if the run cannot be carried out."""
    run, section = config.run, flaim_section(config)
    config.check_bins()
    _check_malicious(config, section)
    if section.minimum > config.clients.expected:
        raise ConfigError(
            config.source,
            "flaim.minimum",
            f"is {section.minimum}; expected at most clients.expected, {config.clients.expected}",
        )
    _check_honest(config, section)
    try:
        settings = FlaimSettings.preset(
            section.variant,
            rho=rho_from_epsilon_delta(run.epsilon, run.delta),
            rounds=run.rounds,
            local_rounds=section.local_rounds,
            participation=config.clients.participation,
            min_participants=section.minimum,
            annealed=run.schedule == ANNEALED,
            measure_share=run.measure_share,
            grouping=section.grouping,
            noise=section.noise,
            corrupt=_corrupt(section, section.minimum, selectable_clients(config)),
            sizes=section.sizes,
            max_client_rows=config.clients.rows_per_client,
            iterations=run.iterations,
            final_iterations=run.final_iterations,
            max_model_mb=run.max_model_mb,
        )
        settings.schedule(len(config.domain.columns))
    except ValueError as problem:
        raise ConfigError(config.source, "flaim", f"cannot be carried out: {problem}") from problem
    return settings


def flaim_release(config: Config) -> Release:
    """Returns the maximum release of a table by participation: the whole run. Raises as ``settings_of``."""
    known = flaim_section(config).sizes == "public"
    return Release(
        config=config.digest(),
        run=config.run.id,
        method="flaim",
        rho=settings_of(config).rho,
        epsilon=config.run.epsilon,
        delta=config.run.delta,
        unit=ROW_OF_KNOWN if known else ROW,
    )


def is_malicious(config: Config) -> bool:
    """True if the server may do anything (run.security)."""
    return config.run.security == MALICIOUS


def selectable_clients(config: Config) -> int | None:
    """Number of the run's clients if a malicious server chooses the clients of a sum among them; None otherwise."""
    return config.clients.expected if is_malicious(config) else None


def _corrupt(section: FlaimSection | SilosSection, clients: int, everybody: int | None) -> int:
    """Number of corrupt clients among the ``clients`` of a sum, rounded up, at least one."""
    return ThreatModel(corrupt=section.corrupt).corrupt_clients(everybody or clients)


def _check_malicious(config: Config, section: FlaimSection) -> None:
    if is_malicious(config) and section.noise != "distributed":
        raise ConfigError(
            config.source,
            "flaim.noise",
            f"is {section.noise!r}: a server that may do anything would see exact sums over clients of its choice, and "
            "subtract them; expected 'distributed' with run.security = 'malicious'",
        )


def _check_honest(config: Config, section: FlaimSection) -> None:
    """Raises ConfigError if a sum over the minimum of clients, or more, would have fewer than two honest ones."""
    for clients in range(section.minimum, config.clients.expected + 1):
        corrupt = _corrupt(section, clients, selectable_clients(config))
        if clients - corrupt < 2:
            of = f"of the {clients} clients of a sum"
            if is_malicious(config):
                of = f"of the run's clients, who may all be among the {clients} of a sum"
            raise ConfigError(
                config.source,
                "flaim.corrupt",
                f"is {section.corrupt:g}, which is {corrupt} {of}; expected two honest ones in every sum, or it shows "
                "the vector of the only one: lower it, or raise flaim.minimum",
            )


def smallest_sum(section: FlaimSection, *, one_way: bool) -> int:
    """Minimum number of clients for a sum by SecAgg. For a single query, any three clients that chose it are enough."""
    return SMALLEST_SESSION if section.grouping == "query" and not one_way else section.minimum


def flaim_session_parameters(
    study: Study,
    layout: Layout,
    noise: SumNoise,
    *,
    random_bytes: Callable[[int], bytes],
    session_id: bytes | None = None,
    roster: Sequence[bytes] | None = None,
) -> Parameters:
    """Returns the session's parameters for a sum of ``layout``, over ``layout.clients``; signed if ``roster`` is given.

    Raises ParameterError.
    """
    return session_parameters(
        flaim_section(study.config),
        study.workload,
        layout,
        noise,
        high=study.config.clients.rows_per_client,
        random_bytes=random_bytes,
        session_id=session_id,
        roster=roster,
        everybody=selectable_clients(study.config),
    )


def session_parameters(
    section: FlaimSection,
    workload: Workload,
    layout: Layout,
    noise: SumNoise,
    *,
    high: int,
    random_bytes: Callable[[int], bytes],
    session_id: bytes | None = None,
    roster: Sequence[bytes] | None = None,
    everybody: int | None = None,
) -> Parameters:
    """Does the work of ``flaim_session_parameters``, from [flaim], the largest count and the run's clients.

    Raises ParameterError.
    """
    clients = layout.clients
    neighbours, threshold = graph_parameters(section, clients, everybody)
    return Parameters(
        session=session_id or random_bytes(SESSION_BYTES),
        graph_seed=random_bytes(SESSION_BYTES),
        clients=clients,
        neighbours=neighbours,
        threshold=threshold,
        min_survivors=flaim_least_survivors(section, layout, neighbours, threshold, everybody),
        length=layout.cells(workload),
        low=0,
        high=high,
        scale=noise.scale,
        noise=secagg_noise(noise),
        roster_digest=bytes(DIGEST_BYTES) if roster is None else roster_digest(roster),
    )


def graph_parameters(
    section: FlaimSection | SilosSection, clients: int, everybody: int | None
) -> tuple[int, int]:
    """Returns the neighbours and the threshold of a session of ``clients``. Raises ParameterError."""
    corrupt = _corrupt(section, clients, everybody)
    if everybody is not None:
        # A sparse graph follows from a seed; a server that chooses the clients could try seeds until one suits it. The
        # complete graph needs c < 2t - k, for c corrupt clients, k neighbours and threshold t.
        neighbours, threshold = clients - 1, (clients - 1 + corrupt) // 2 + 1
        if threshold > neighbours:
            raise ParameterError(f"{corrupt} corrupt clients among {clients} are too many")
        return neighbours, threshold
    try:
        return choose(clients, ThreatModel(section.corrupt, section.dropouts))
    except ParameterError:
        # Complete graph; a threshold above the number of corrupt clients is secure with any number of dropouts.
        threshold = corrupt + 1
        if threshold > clients - 1:
            raise
        return clients - 1, threshold


def flaim_least_survivors(
    section: FlaimSection, layout: Layout, neighbours: int, threshold: int, everybody: int | None
) -> int:
    """Minimum number of survivors of ``layout.clients`` for opening the sum."""
    clients = layout.clients
    least = max(smallest_sum(section, one_way=layout.one_way), threshold + 1)
    if neighbours < clients - 1:
        # The sparse graph is made for this many dropouts; more may disconnect it.
        dropped = ThreatModel(dropouts=section.dropouts).dropped_clients(clients)
        least = max(least, clients - dropped)
    if section.noise == "distributed":
        honest = section.minimum - _corrupt(section, section.minimum, everybody)
        least = max(least, honest + _corrupt(section, clients, everybody))
    return least


def secagg_noise(noise: SumNoise) -> SessionNoise:
    """Returns the noise in SecAgg's terms."""
    if noise.variance:
        return SessionNoise(NoiseKind.DISTRIBUTED, noise.variance)
    return server_noise(noise.sigma)


def flaim_client_policy(
    study: Study,
    layout: Layout,
    noise: SumNoise,
    *,
    session_id: bytes | None = None,
) -> ClientPolicy:
    """Returns a client's requirements for the session of ``layout``, from the client's own config.

    The client verifies the threat model's fraction of corrupt clients on the announced numbers. Dropouts endanger a
    sum, not a vector, unless the graph is sparse; there the client verifies them as well. Raises ParameterError.
    """
    section, clients, among = (
        flaim_section(study.config),
        layout.clients,
        selectable_clients(study.config),
    )
    neighbours, threshold = graph_parameters(section, clients, among)
    complete = neighbours == clients - 1
    threat = ThreatModel(section.corrupt, 0.0 if complete else section.dropouts)
    if among is not None:
        corrupt = _corrupt(section, clients, among)
        threat = ThreatModel(corrupt / clients, 0.0, Adversary.MALICIOUS)
    return ClientPolicy(
        length=layout.cells(study.workload),
        low=0,
        high=study.config.clients.rows_per_client,
        min_clients=max(clients, smallest_sum(section, one_way=layout.one_way)),
        min_survivors=flaim_least_survivors(section, layout, neighbours, threshold, among),
        min_neighbours=neighbours,
        min_threshold=threshold,
        scale=noise.scale,
        noise=secagg_noise(noise),
        max_clients=clients,
        threat=threat,
        session=session_id,
    )


def frame_bytes(clients: int) -> int:
    """Upper bound of any message to a client in a session of ``clients``, in bytes: all clients' keys."""
    keys = 4 + 2 * PUBLIC_BYTES + SIGNATURE_BYTES
    return wire.OVERHEAD_BYTES + wire.ANNOUNCE_BYTES + keys * clients + math.ceil(clients / 8)
