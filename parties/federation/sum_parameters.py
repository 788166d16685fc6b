"""Parameters of the SecAgg session for a secure sum. The server announces them; each participant computes and compares
them.

A session of n participants withstands ceil(corrupt n) of them in league with the server, and at least one, since a
single participant may always be the server's own. A run in which some sum would have fewer than two honest participants
is refused: such a sum shows the vector of the only honest one. The fraction ``corrupt`` is of the participants of each
sum, not of the run; a small sample of the run's participants can contain a larger fraction. With 5 corrupt of 100, one
sum over 20 in four has more corrupt participants than corrupt = 0.05 allows; 0.25 covers all five. With distributed
noise the honest survivors have to be as many as the noise was made for, for any number of corrupt survivors: the
minimum of survivors grows with n. If no neighbour graph of n participants also withstands the configured dropouts, the
graph is complete and the session survives fewer dropouts; this costs rounds, never secrets.

With run.security = "malicious" the server may do anything. Sessions are signed (`parties.federation.key_directory`), in
a complete graph. Since such a server chooses the participants of a sum, ``corrupt`` is then a fraction of the run's
participants, all of whom may be in one sum. Every participant adds noise, unless its answers are private by themselves:
the difference of two exact sums over sets of the server's choice would be one participant's numbers. Source: `secagg`
README. All values here are public.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mechanisms.silos import Noise, Request
from parties.config import MALICIOUS, Config, FederationSection, SilosSection
from parties.foundation.errors import ConfigError
from secagg import ClientPolicy, Parameters, ThreatModel, choose, wire
from secagg.errors import ParameterError
from secagg.graph import Adversary
from secagg.keys import PUBLIC_BYTES, SIGNATURE_BYTES
from secagg.noise import NoiseKind, SessionNoise
from secagg.parameters import DIGEST_BYTES, SESSION_BYTES, roster_digest

_NOISE_KINDS = {"server": NoiseKind.SERVER, "distributed": NoiseKind.DISTRIBUTED}


def silos_section(config: Config) -> SilosSection:
    """The section [silos], or its defaults."""
    return config.silos or SilosSection()


def is_malicious(config: Config) -> bool:
    """True if the server may do anything (run.security)."""
    return config.run.security == MALICIOUS


def selectable_clients(config: Config) -> int | None:
    """Number of the run's participants if a malicious server chooses those of a sum among them; None otherwise."""
    return config.clients.expected if is_malicious(config) else None


def corrupt_among(section: FederationSection, clients: int, everybody: int | None) -> int:
    """Number of corrupt participants among the ``clients`` of a sum, rounded up, at least one.

    ``everybody`` is the number of the run's participants if the server chooses among them (``selectable_clients``).
    """
    return ThreatModel(corrupt=section.corrupt).corrupt_clients(everybody or clients)


def honest_among(section: FederationSection, everybody: int | None) -> int:
    """Minimum number of honest survivors of any sum; their noise alone has to suffice."""
    return max(1, section.minimum - corrupt_among(section, section.minimum, everybody))


def corrupt_silos(config: Config, clients: int) -> int:
    """Number of silos among the ``clients`` of a sum that may be in league with the server; at least one."""
    return corrupt_among(silos_section(config), clients, selectable_clients(config))


def honest_survivors(config: Config) -> int:
    """Minimum number of honest survivors of any sum between silos; their noise alone has to suffice."""
    return honest_among(silos_section(config), selectable_clients(config))


def check_minimum(config: Config, section: FederationSection) -> None:
    """Raises ConfigError if a sum would take more participants than there may be."""
    if section.minimum > config.clients.expected:
        raise ConfigError(
            config.source,
            f"{section.KEY}.minimum",
            f"is {section.minimum}; expected at most clients.expected, {config.clients.expected}",
        )


def check_sums(
    config: Config, section: FederationSection, *, private_answers: bool = False
) -> None:
    """Raises ConfigError if some sum of the run would not protect a participant.

    ``private_answers``: each participant's answers are private by themselves.
    """
    key, who, expected = section.KEY, section.WHO, config.clients.expected
    check_minimum(config, section)
    for clients in range(section.minimum, expected + 1):
        corrupt = corrupt_among(section, clients, selectable_clients(config))
        if clients - corrupt < 2:
            of = f"of the {clients} {who} of a sum"
            if is_malicious(config):
                of = f"of the run's {who}, who may all be among the {clients} of a sum"
            raise ConfigError(
                config.source,
                f"{key}.corrupt",
                f"is {section.corrupt:g}, which is {corrupt} {of}; expected two honest ones in every sum, or it shows "
                f"the vector of the only one: lower it, or raise {key}.minimum",
            )
    if is_malicious(config) and section.noise != "distributed" and not private_answers:
        raise ConfigError(
            config.source,
            f"{key}.noise",
            f"is {section.noise!r}: a server that may do anything would see exact sums over {who} of its choice, and "
            "subtract them; expected 'distributed' with run.security = 'malicious'",
        )


@dataclass(frozen=True, slots=True)
class SumSpec:
    """A sum over ``clients`` participants of ``length`` numbers in [``low``, ``high``], in units of 1 / ``scale``.

    ``section`` has the limits of the run's sums; this sum needs ``minimum`` survivors. ``everybody`` is the number of
    the run's participants if the server chooses among them (``selectable_clients``).
    """

    section: FederationSection
    clients: int
    minimum: int
    length: int
    low: int
    high: int
    noise: SessionNoise
    scale: int = 1
    everybody: int | None = None

    @property
    def corrupt(self) -> int:
        """Number of corrupt participants, rounded up, at least one."""
        return corrupt_among(self.section, self.clients, self.everybody)

    def graph(self) -> tuple[int, int]:
        """Returns the neighbours and the threshold of the session. Raises ParameterError."""
        clients, corrupt = self.clients, self.corrupt
        if self.everybody is not None:
            # A sparse graph follows from a seed; a server that chooses the participants could try seeds until one suits
            # it. The complete graph needs c < 2t - k, for c corrupt participants, k neighbours and threshold t.
            neighbours, threshold = clients - 1, (clients - 1 + corrupt) // 2 + 1
            if threshold > neighbours:
                raise ParameterError(f"{corrupt} corrupt clients among {clients} are too many")
            return neighbours, threshold
        try:
            return choose(clients, ThreatModel(self.section.corrupt, self.section.dropouts))
        except ParameterError:
            # Complete graph; a threshold above the number of corrupt participants is secure with any number of
            # dropouts.
            threshold = corrupt + 1
            if threshold > clients - 1:
                raise
            return clients - 1, threshold

    def least_survivors(self) -> int:
        """Returns the minimum number of survivors for opening the sum. Raises ParameterError."""
        neighbours, threshold = self.graph()
        least = max(self.minimum, threshold + 1)
        if neighbours < self.clients - 1:
            # The sparse graph is made for this many dropouts; more may disconnect it.
            dropped = ThreatModel(dropouts=self.section.dropouts).dropped_clients(self.clients)
            least = max(least, self.clients - dropped)
        if self.noise.kind is NoiseKind.DISTRIBUTED:
            least = max(least, honest_among(self.section, self.everybody) + self.corrupt)
        return least

    def parameters(
        self,
        *,
        random_bytes: Callable[[int], bytes],
        session: bytes | None = None,
        roster: Sequence[bytes] | None = None,
    ) -> Parameters:
        """Returns the parameters that the server announces; signed if ``roster`` is given. Raises ParameterError."""
        neighbours, threshold = self.graph()
        return Parameters(
            session=session or random_bytes(SESSION_BYTES),
            graph_seed=random_bytes(SESSION_BYTES),
            clients=self.clients,
            neighbours=neighbours,
            threshold=threshold,
            min_survivors=self.least_survivors(),
            length=self.length,
            low=self.low,
            high=self.high,
            scale=self.scale,
            noise=self.noise,
            roster_digest=bytes(DIGEST_BYTES) if roster is None else roster_digest(roster),
        )

    def policy(self, session: bytes | None = None) -> ClientPolicy:
        """Returns a participant's requirements for the session, from its own configuration. Raises ParameterError.

        The participant verifies the threat model's fraction of corrupt participants on the announced numbers. Dropouts
        endanger a sum, not a vector, unless the graph is sparse; there the participant verifies them as well.
        """
        neighbours, threshold = self.graph()
        complete = neighbours == self.clients - 1
        threat = ThreatModel(self.section.corrupt, 0.0 if complete else self.section.dropouts)
        if self.everybody is not None:
            threat = ThreatModel(self.corrupt / self.clients, 0.0, Adversary.MALICIOUS)
        return ClientPolicy(
            length=self.length,
            low=self.low,
            high=self.high,
            min_clients=max(self.clients, self.minimum),
            min_survivors=self.least_survivors(),
            min_neighbours=neighbours,
            min_threshold=threshold,
            scale=self.scale,
            noise=self.noise,
            max_clients=self.clients,
            threat=threat,
            session=session,
        )


def silo_sum(config: Config, request: Request, clients: int) -> SumSpec:
    """Returns the sum of ``request`` among ``clients`` silos. Raises ParameterError."""
    section = silos_section(config)
    return SumSpec(
        section,
        clients,
        section.minimum,
        request.length,
        request.low,
        request.high,
        session_noise(request.noise),
        everybody=selectable_clients(config),
    )


def session_noise(noise: Noise | None) -> SessionNoise:
    """Returns the noise in SecAgg's terms. Raises ParameterError."""
    if noise is None:
        return SessionNoise()
    return SessionNoise(_NOISE_KINDS[noise.maker], noise.variance)


def frame_bytes(clients: int) -> int:
    """Upper bound of any message to a participant in a session of ``clients``, in bytes: everybody's keys."""
    keys = 4 + 2 * PUBLIC_BYTES + SIGNATURE_BYTES
    return wire.OVERHEAD_BYTES + wire.ANNOUNCE_BYTES + keys * clients + math.ceil(clients / 8)
