"""A session's public parameters, and a client's requirements before it takes part.

``Parameters`` has everything both sides must agree on; its digest goes into every key, signature and message.
``Encoding`` has the values that a client may hold and the ring of their sum. All values here are public. The ring is
the smallest Z_2^b in which the sum of all clients' declared ranges, with the noise's margin on both sides, cannot wrap.
Source: `secagg` README. Known limits: sums beyond 63 bits are refused.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ParameterError, ParametersRefused, SumOutOfRange, ValueOutOfRange
from secagg.graph import SEED_BYTES, Adversary, Graph, ThreatModel, draw, strength, thick_run
from secagg.masks import MAX_BITS, Vector, word
from secagg.noise import NoiseKind, SessionNoise

SESSION_BYTES = 32
DIGEST_BYTES = 32
MAX_CLIENTS = 1 << 20
MAX_LENGTH = 1 << 28
_LAYOUT = struct.Struct(">32sIIIIIqqIBQQ32sB32s")
PARAMETERS_BYTES = _LAYOUT.size


@dataclass(frozen=True, slots=True)
class Encoding:
    """Vectors of ``length`` integers in [``low``, ``high``], multiplied by ``scale``, for up to ``clients`` clients."""

    length: int
    low: int
    high: int
    scale: int
    noise: SessionNoise
    clients: int

    def __post_init__(self) -> None:
        if not 1 <= self.length <= MAX_LENGTH:
            raise ParameterError(f"a vector of {self.length} values; expected 1 to {MAX_LENGTH}")
        if not (-(1 << 62) <= self.low < self.high <= 1 << 62 and 1 <= self.scale < 1 << 32):
            raise ParameterError(
                f"values in [{self.low}, {self.high}] at scale {self.scale}; "
                "expected low < high, both within 2^62, and a scale of 1 to 2^32 - 1"
            )
        if self.bits > MAX_BITS:
            raise ParameterError(
                f"the sum needs a ring of {self.bits} bits; expected at most {MAX_BITS}: "
                "narrow the values' range or the scale"
            )
        if self.clients * max(-self.low, self.high) >= 1 << MAX_BITS:
            raise ParameterError(
                f"{self.clients} values in [{self.low}, {self.high}] sum to more than {MAX_BITS} bits; "
                "expected a range nearer to zero"
            )

    @property
    def span(self) -> int:
        """Largest scaled sum over all clients, without noise."""
        return self.clients * self.scale * (self.high - self.low)

    @property
    def margin(self) -> int:
        """Room for noise below zero and above ``span``."""
        return self.noise.margin(self.clients)

    @property
    def bits(self) -> int:
        """b: 2^b is the least power of two above span + 2 margin."""
        return (self.span + 2 * self.margin).bit_length()

    def encode(self, values: NDArray[np.integer]) -> Vector:
        """Encodes ``values`` (length,) as ring elements s (x - low), before noise. Raises ValueOutOfRange."""
        if values.shape != (self.length,) or values.dtype.kind not in "iu":
            raise ValueOutOfRange(
                f"a vector of shape {values.shape} and type {values.dtype}; "
                f"expected {self.length} integers"
            )
        outside = (values < self.low) | (values > self.high)
        if outside.any():
            raise ValueOutOfRange(
                f"{int(outside.sum())} of {self.length} values lie outside the declared range "
                f"[{self.low}, {self.high}], the first at index {int(outside.argmax())}; nothing was sent"
            )
        shifted: NDArray[np.int64] = values.astype(np.int64) - self.low
        return (shifted * self.scale).astype(word(self.bits))

    def decode(self, total: Vector, survivors: int) -> NDArray[np.int64]:
        """Decodes the scaled sum of ``survivors`` clients: s sum(x - low) plus noise. Raises SumOutOfRange."""
        word_type, margin = word(self.bits), self.margin
        mask = word_type((1 << self.bits) - 1)
        # From -margin to span + margin there are no more integers than ring elements: up by the margin, modulo 2^b, and
        # down again gives each sum back, negative ones too.
        centred = ((total + word_type(margin)) & mask).astype(np.int64) - margin
        if (centred > survivors * self.scale * (self.high - self.low) + margin).any():
            raise SumOutOfRange(
                f"the sum leaves the range that {survivors} clients can reach; some client broke the protocol"
            )
        return centred


@dataclass(frozen=True)
class Parameters:
    """One session: ids are 0 to ``clients`` - 1; every field is public and agreed on by digest.

    ``roster_digest`` is `roster_digest(...)` of the identities' public keys, or zeros where messages are not signed.
    Raises ParameterError on construction where no round can have these values.
    """

    session: bytes
    clients: int
    neighbours: int
    threshold: int
    min_survivors: int
    length: int
    low: int
    high: int
    scale: int = 1
    noise: SessionNoise = field(default_factory=SessionNoise)
    graph_seed: bytes = bytes(SEED_BYTES)
    roster_digest: bytes = bytes(DIGEST_BYTES)

    def __post_init__(self) -> None:
        if len(self.session) != SESSION_BYTES or len(self.graph_seed) != SEED_BYTES:
            raise ParameterError("a session id and a graph seed have 32 bytes each")
        if len(self.roster_digest) != DIGEST_BYTES:
            raise ParameterError("a roster's digest has 32 bytes")
        if not 3 <= self.clients <= MAX_CLIENTS:
            raise ParameterError(f"{self.clients} clients; expected 3 to {MAX_CLIENTS}")
        if not 2 <= self.neighbours < self.clients or (self.neighbours % 2 and self.clients % 2):
            raise ParameterError(
                f"{self.neighbours} neighbours among {self.clients} clients; "
                f"expected 2 to {self.clients - 1}, and not both odd"
            )
        if not 2 <= self.threshold <= self.neighbours:
            raise ParameterError(
                f"a threshold of {self.threshold} among {self.neighbours} neighbours; "
                f"expected 2 to {self.neighbours}"
            )
        enough = thick_run(self.neighbours, self.threshold) >= 1
        if self.neighbours == self.clients - 1:
            enough = 2 * self.threshold > self.neighbours
        if self.signed and not enough:
            raise ParameterError(
                f"a threshold of {self.threshold} of {self.neighbours} with signatures; expected more than half (and "
                "one more for odd numbers on a sparse graph), or a server that lies could open some survivors' sum"
            )
        if not max(2, self.threshold + 1) <= self.min_survivors <= self.clients:
            raise ParameterError(
                f"a minimum of {self.min_survivors} survivors; "
                f"expected {max(2, self.threshold + 1)} (threshold plus one) to {self.clients}"
            )
        _ = self.encoding

    @property
    def signed(self) -> bool:
        """True if keys and survivor lists are signed."""
        return self.roster_digest != bytes(DIGEST_BYTES)

    @cached_property
    def encoding(self) -> Encoding:
        """Values and ring."""
        return Encoding(self.length, self.low, self.high, self.scale, self.noise, self.clients)

    @property
    def bits(self) -> int:
        """Bits of a ring element."""
        return self.encoding.bits

    @property
    def graph(self) -> Graph:
        """Neighbour graph: the pairs of clients that mask together."""
        return draw(self.clients, self.neighbours, self.graph_seed, self.session)

    def to_bytes(self) -> bytes:
        """Returns the canonical form that is announced and hashed."""
        sizes = (self.clients, self.neighbours, self.threshold, self.min_survivors, self.length)
        values = (self.low, self.high, self.scale)
        noise = (self.noise.kind.value, *self.noise.variance.as_integer_ratio())
        ends = (self.graph_seed, self.bits, self.roster_digest)
        return _LAYOUT.pack(self.session, *sizes, *values, *noise, *ends)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Parameters":
        """Returns the parameters of a canonical form. Raises ParameterError for any other bytes."""
        if len(data) != _LAYOUT.size:
            raise ParameterError(f"parameters of {len(data)} bytes; expected {_LAYOUT.size}")
        fields = _LAYOUT.unpack(data)
        kind, numerator, denominator, graph_seed, bits, roster = fields[9:]
        try:
            noise = SessionNoise(NoiseKind(kind), Fraction(numerator, denominator))
        except (ValueError, ZeroDivisionError) as error:
            raise ParameterError("no such noise") from error
        # The first nine are this class's fields in their order; the ring follows from all of them.
        agreed = (*fields[:9], noise, graph_seed, roster)
        parameters = cls(*agreed)
        if parameters.bits != bits or parameters.to_bytes() != data:
            raise ParameterError(
                f"a ring of {bits} bits; expected {parameters.bits} for this range and number of clients"
            )
        return parameters

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical form."""
        return hashlib.sha256(b"syncret secagg 2 parameters" + self.to_bytes()).digest()


def roster_digest(roster: Sequence[bytes]) -> bytes:
    """Returns SHA-256 over the identities' public keys in the order of the clients' ids."""
    return hashlib.sha256(b"syncret secagg 2 roster" + b"".join(roster)).digest()


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """Requirements of one client, from its own configuration; the server's wishes do not change them.

    ``length``, ``low``, ``high``, ``scale`` and the noise have to be as declared, which fixes the ring together with
    the number of clients. ``threat``: the announced graph must withstand it (None: only the minima count); a malicious
    server is withstood by signed sessions alone. ``session`` and ``graph_seed``: where given, exactly these. A signed
    session on a sparse graph needs both, and exactly ``min_neighbours``: the graph is a function of the three, and a
    server that may choose one of them can try until the corrupt clients surround an honest one.
    """

    length: int
    low: int
    high: int
    min_clients: int = 3
    min_survivors: int = 3
    min_neighbours: int = 2
    min_threshold: int = 2
    scale: int = 1
    noise: SessionNoise = field(default_factory=SessionNoise)
    max_clients: int = 10_000
    threat: ThreatModel | None = None
    session: bytes | None = None
    graph_seed: bytes | None = None

    def check(self, asked: Parameters, roster: Sequence[bytes] | None) -> None:
        """Raises ParametersRefused, naming the parameter, the requested value and the acceptable ones."""
        _at_least("clients", asked.clients, self.min_clients)
        _at_least("neighbours", asked.neighbours, min(self.min_neighbours, asked.clients - 1))
        _at_least("threshold", asked.threshold, self.min_threshold)
        _at_least("minimum of survivors", asked.min_survivors, self.min_survivors)
        if asked.clients > self.max_clients:
            raise ParametersRefused(
                f"{asked.clients} clients; expected at most {self.max_clients}", None, "announce"
            )
        for name in ("length", "low", "high", "scale", "noise"):
            _exactly(name, getattr(asked, name), getattr(self, name))
        if self.session is not None:
            _exactly("session id", asked.session, self.session)
        if self.graph_seed is not None:
            _exactly("graph seed", asked.graph_seed, self.graph_seed)
        expected = bytes(DIGEST_BYTES) if roster is None else roster_digest(roster)
        _exactly("roster digest", asked.roster_digest, expected)
        if roster is not None and len(roster) != asked.clients:
            raise ParametersRefused(
                f"{asked.clients} clients; expected the {len(roster)} of the roster",
                None,
                "announce",
            )
        if asked.signed and asked.neighbours < asked.clients - 1:
            self._check_graph(asked)
        self._check_strength(asked)

    def _check_graph(self, asked: Parameters) -> None:
        """Refuses a sparse graph that the server could draw again until it likes one."""
        if (
            self.graph_seed is None
            or self.session is None
            or asked.neighbours != self.min_neighbours
        ):
            raise ParametersRefused(
                "a sparse graph of the server's own choice; expected the complete graph, or a graph seed, a session id "
                "and a number of neighbours that this client's configuration names",
                None,
                "announce",
            )

    def _check_strength(self, asked: Parameters) -> None:
        if self.threat is None:
            return
        if self.threat.adversary is Adversary.MALICIOUS and not asked.signed:
            raise ParametersRefused(
                "a session without signatures; expected a roster, as the threat model has a malicious server",
                None,
                "announce",
            )
        announced = strength(asked.clients, asked.neighbours, asked.threshold, self.threat)
        if announced.security_bits < self.threat.security_bits:
            raise ParametersRefused(
                f"a threshold of {asked.threshold} of {asked.neighbours} neighbours among {asked.clients} clients is "
                f"worth {announced.security_bits:.1f} bits; expected {self.threat.security_bits:.1f}",
                None,
                "announce",
            )
        sparse = asked.neighbours < asked.clients - 1
        fewest = asked.clients - self.threat.dropped_clients(asked.clients)
        if sparse and self.threat.adversary is Adversary.SEMI_HONEST:
            # The graph of fewer survivors may fall apart, into sums over less than all of them.
            _at_least("minimum of survivors on a sparse graph", asked.min_survivors, fewest)


def _at_least(name: str, asked: int, least: int) -> None:
    if asked < least:
        raise ParametersRefused(
            f"{name}: the server asks for {asked}; expected at least {least}", None, "announce"
        )


def _exactly(name: str, asked: object, expected: object) -> None:
    if asked != expected:
        raise ParametersRefused(
            f"{name}: the server asks for {asked!r}; expected {expected!r}", None, "announce"
        )
