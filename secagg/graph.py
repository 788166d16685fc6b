"""The neighbour graph: pairs of clients that mask together, and numbers of neighbours and shares that are enough.

A ``Graph`` is complete, or Bell et al.'s random k-regular one: a circulant graph on a random order of the clients.
``choose`` returns the smallest k and threshold t for n clients, a fraction of corrupt ones and of dropouts;
``strength`` the bits of security of given k and t. Everything here is public. The graph is a function of a public
32-byte seed that must not be known before the set of clients, and of the corrupt ones among them, is fixed.

Bad events, for the worst numbers c of corrupt clients (one at least) and d of dropouts that the fractions allow,
rounded up. Against a semi-honest server:

- connected: the honest survivors fall apart. Cutting a circulant graph takes two disjoint runs of k/2 neighbours on the
  ring, all k of them corrupt or dropped: at most n (n-k-1)/2 C(n-k, c+d-k)/C(n, c+d).
- secrecy: some client has t or more corrupt neighbours: n times a hypergeometric tail.
- recovery: some client keeps fewer than t neighbours: n times a hypergeometric tail.

The first two are each below 2^-(security+1), the third below 2^-correctness. In a complete graph c and d are counted,
and nothing is left to chance.

A malicious server chooses the dropouts, and keeps messages back: of two honest survivors neither may ever get the
other's keys, and then they have no mask in common. Chance does not protect there, and one event is all of security:

- thick: some run of k/2 places on the ring has ``thick_run(k, t)`` = t - ceil(k/2) or more corrupt clients: n times a
  hypergeometric tail. README.md proves that without it one list of survivors is opened, and all of it as one sum.

In a complete graph 2t - k or more corrupt clients are the bad event.

Source: Bell et al. 2020, section 4; the union bound over the two cuts, and constants to compare with, in
google-parfait/federated-compute (semi-honest; its semi-malicious thresholds are below ours). Known limits: against a
semi-honest server dropouts are assumed not to depend on the graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import ceil, exp, inf, lgamma, log

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from secagg.errors import ParameterError
from secagg.keys import Usage, derive

SEED_BYTES = 32
# Fractions such as 0.29 * 100 must not gain a client by binary rounding.
_SMALL = 1e-9


class Adversary(Enum):
    """Power of the server besides looking: none, or to lie to each client about the survivors."""

    SEMI_HONEST = "semi-honest"
    MALICIOUS = "malicious"


@dataclass(frozen=True, slots=True)
class ThreatModel:
    """Threat that a graph has to withstand: fractions of ``corrupt`` clients and of ``dropouts``, and security in bits.

    One client at least is taken for corrupt, for any fraction: it may be the server's own.
    """

    corrupt: float = 0.05
    dropouts: float = 0.33
    adversary: Adversary = Adversary.SEMI_HONEST
    security_bits: float = 40
    correctness_bits: float = 20

    def __post_init__(self) -> None:
        if not (0 <= self.corrupt < 1 and 0 <= self.dropouts < 1):
            raise ParameterError(
                f"fractions {self.corrupt} corrupt and {self.dropouts} dropping out; expected both in [0, 1)"
            )
        if not (self.security_bits > 0 and self.correctness_bits > 0):
            raise ParameterError("security and correctness are positive numbers of bits")

    def corrupt_clients(self, clients: int) -> int:
        """Returns the fraction as a number of clients, rounded up; one at least."""
        return max(1, ceil(self.corrupt * clients - _SMALL))

    def dropped_clients(self, clients: int) -> int:
        """Returns the fraction as a number of clients, rounded up."""
        return ceil(self.dropouts * clients - _SMALL)


@dataclass(frozen=True, slots=True)
class Strength:
    """Bits of security (connected and secret) and of correctness (recoverable); infinite where nothing can go wrong."""

    security_bits: float
    correctness_bits: float


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) if 0 <= k <= n else -inf


def _log_tail(clients: int, marked: int, drawn: int, least: int) -> float:
    """Returns ln P[X >= least], X hypergeometric: ``marked`` among ``drawn`` of ``clients``; rounded up by 10^-9."""
    terms = [
        _log_choose(marked, x) + _log_choose(clients - marked, drawn - x)
        for x in range(max(least, 0), min(marked, drawn) + 1)
    ]
    # The logarithm of a sum of exponentials, with the largest taken out so that nothing overflows.
    top = max(terms, default=-inf)
    if top == -inf:
        return -inf
    total = top + log(sum(exp(term - top) for term in terms)) - _log_choose(clients, drawn)
    return min(0.0, total + 1e-9)


def _log_disconnected(clients: int, neighbours: int, removed: int) -> float:
    # A ring of k/2 neighbours on either side falls apart where two runs of k/2 places are gone, with somebody left on
    # both sides between them: n (n - k - 1) / 2 pairs of runs, each gone in C(n-k, r-k) of the C(n, r) choices of those
    # removed. The edges across the ring of an odd k only help.
    even = neighbours - neighbours % 2
    if even > removed or clients - even - 1 <= 0:
        return -inf
    pairs = log(clients) + log(clients - even - 1) - log(2)
    return pairs + _log_choose(clients - even, removed - even) - _log_choose(clients, removed)


def _bits(log_probability: float) -> float:
    return inf if log_probability == -inf else -log_probability / log(2)


def thick_run(neighbours: int, threshold: int) -> int:
    """Returns the fewest corrupt clients in a run of k/2 ring places that help a malicious server; see README.md."""
    return threshold - (neighbours + 1) // 2


@lru_cache(maxsize=1024)
def strength(clients: int, neighbours: int, threshold: int, model: ThreatModel) -> Strength:
    """Returns the strength of ``threshold`` of ``neighbours`` among ``clients`` under ``model``."""
    corrupt, dropped = model.corrupt_clients(clients), model.dropped_clients(clients)
    malicious = model.adversary is Adversary.MALICIOUS
    if neighbours == clients - 1:
        least = 2 * threshold - neighbours if malicious else threshold
        return Strength(
            inf if corrupt < least else 0.0, inf if neighbours - dropped >= threshold else 0.0
        )
    # Of n clients any may have bad luck: n times the tail for one. A secret is lost where more than k - t holders drop
    # out, and known where t of them are corrupt.
    lost = log(clients) + _log_tail(clients, dropped, neighbours, neighbours - threshold + 1)
    if malicious:
        run, least = neighbours // 2, thick_run(neighbours, threshold)
        thick = _bits(log(clients) + _log_tail(clients, corrupt, run, least))
        return Strength(max(0.0, thick), max(0.0, _bits(lost)))
    removed = min(clients, corrupt + dropped)
    connected = _bits(_log_disconnected(clients, neighbours, removed))
    secret = _bits(log(clients) + _log_tail(clients, corrupt, neighbours, threshold))
    # Each of the two has half of the failures, as in `choose`.
    return Strength(max(0.0, min(connected, secret) - 1), max(0.0, _bits(lost)))


def choose(clients: int, model: ThreatModel) -> tuple[int, int]:
    """Returns the smallest even number of neighbours, and with it the smallest threshold, that ``model`` allows.

    Falls back on the complete graph where no sparser one is enough. Raises ParameterError where none is.
    """
    if clients < 3:
        raise ParameterError(
            f"{clients} clients; expected at least 3, or a sum shows the other's vector"
        )
    for neighbours in [*range(2, clients - 1, 2), clients - 1]:
        if neighbours < clients - 1 and model.adversary is Adversary.SEMI_HONEST:
            removed = min(clients, model.corrupt_clients(clients) + model.dropped_clients(clients))
            if _bits(_log_disconnected(clients, neighbours, removed)) < model.security_bits + 1:
                continue
        threshold = _smallest_threshold(clients, neighbours, model)
        if threshold is not None:
            return neighbours, threshold
    raise ParameterError(
        f"no graph of {clients} clients withstands {model.corrupt:.0%} corrupt and {model.dropouts:.0%} dropping out "
        f"({model.adversary.value} server); expected smaller fractions or more clients"
    )


def _smallest_threshold(clients: int, neighbours: int, model: ThreatModel) -> int | None:
    # Security grows with the threshold: bisect for the smallest that is secure, then see whether it is correct.
    low, high = 2, neighbours + 1
    while low < high:
        middle = (low + high) // 2
        if strength(clients, neighbours, middle, model).security_bits >= model.security_bits:
            high = middle
        else:
            low = middle + 1
    if low > neighbours:
        return None
    enough = strength(clients, neighbours, low, model).correctness_bits >= model.correctness_bits
    return low if enough else None


class Graph:
    """The neighbours of every client; the same for everybody who knows the session's parameters."""

    __slots__ = ("_order", "_position", "clients", "neighbour_count")

    def __init__(self, clients: int, neighbours: int, order: Sequence[int]) -> None:
        """Makes the graph of the ring ``order``; raises ParameterError where no regular graph of this degree exists."""
        if not 2 <= neighbours < clients or (neighbours % 2 and clients % 2):
            raise ParameterError(
                f"{neighbours} neighbours among {clients} clients; expected 2 to {clients - 1}, "
                "and not both odd"
            )
        self.clients = clients
        self.neighbour_count = neighbours
        self._order = tuple(order)
        self._position = {client: place for place, client in enumerate(self._order)}

    def neighbours(self, client: int) -> tuple[int, ...]:
        """Returns the neighbours of ``client``, ascending: k/2 on each side of the ring, and opposite for odd k."""
        n, half = self.clients, self.neighbour_count // 2
        place = self._position[client]
        steps = [step for size in range(1, half + 1) for step in (size, -size)]
        if self.neighbour_count % 2:
            steps.append(n // 2)
        return tuple(sorted(self._order[(place + step) % n] for step in steps))

    def first(self, client: int, other: int) -> bool:
        """Returns True if ``client`` makes the pair secret of two neighbours: ``other`` comes after it.

        That is, within half the ring; of two opposite ones, the one that is nearer to the ring's start. Each client
        makes k/2 of its k secrets, or half a one more or less for odd k.
        """
        place, ahead = self._position[client], self._position[other] - self._position[client]
        twice = 2 * (ahead % self.clients)
        return twice < self.clients or (twice == self.clients and place < self._position[other])

    @property
    def witnesses(self) -> tuple[int, ...]:
        """Witnesses, whose signatures make a survivor list unique: the neighbours of the ring's first client."""
        return self.neighbours(self._order[0])


@lru_cache(maxsize=16)
def draw(clients: int, neighbours: int, seed: bytes, session: bytes) -> Graph:
    """Returns a session's graph: clients in the order of 64-bit words of a keystream under ``seed`` and ``session``.

    Equal words keep the order of their ids; among 10,000 clients that happens once in 2^38 sessions.
    """
    key = derive(seed, Usage.GRAPH, session)
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(8 * clients))
    order = np.argsort(np.frombuffer(stream, "<u8"), kind="stable")
    return Graph(clients, neighbours, [int(client) for client in order])
