"""The sections of a config as frozen dataclasses; values are checked when they are made. All of it is public.

Units are in the names (``_s`` seconds, ``_mb`` megabytes). Raises ConfigError.
"""

import datetime
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path

from mechanisms.accounting import ZCDP
from mechanisms.gaussian_privacy import GAUSSIAN
from mechanisms.scores import REMAINING_ERROR, RULES
from parties.config.limits import (
    check,
    check_choice,
    check_key_hash,
    check_name,
    check_names,
    check_number,
    read_time,
)
from parties.crypto.hpke import SealTo
from parties.crypto.pinned_key import PinnedKey
from parties.foundation.errors import ConfigError
from protocols.measure import BOX_MULLER, DISCRETE, NOISES
from protocols.select_spec import FRACTION_BITS
from protocols.upload import FORMS

MAX_ROWS = 2 ** (30 - FRACTION_BITS) - 2**17
"""Largest table: sums of absolute count differences, at 6 fractional bits, stay below 2^31 where a query has at most
2^24 - 1 cells (`parties.mpc.planning.validation`)."""
MAX_TERMS = 20_000
"""Characters of terms of use at most."""
SECURITIES = SEMI_HONEST, MALICIOUS = "semi-honest", "malicious"
ACCOUNTANTS = GAUSSIAN, ZCDP.name
SCHEDULES = FIXED, ANNEALED = "fixed", "annealed"
VERIFIABLE_NOISES = (DISCRETE, BOX_MULLER)
"""Those that run.security = "malicious" allows."""
CHECKS = TOTALS, CELLS, NO_CHECK = "totals", "cells", "none"
UPLOADS = FORMS
INPUTS = AUTO_INPUT, COUNTS_INPUT, ROWS_INPUT = "auto", "counts", "rows"
LINKS = BY_KEY, BY_ORDER = "key", "order"
UNITS = ROW, PERSON = "row", "person"
FLAIM_MIN_CLIENTS = 3
"""Clients behind a sum, at the very least."""
FLAIM_VARIANTS = ("naive", "oracle", "private", "random", "naivebayes")
FLAIM_GROUPINGS = ("union", "query")
FLAIM_NOISES = ("server", "distributed")
SILO_ALGORITHMS = ("tda", "mtl")
"""Tables of algorithms on rounds of exact sums between silos; what they hold is the algorithm's affair."""
FLAIM_SIZES = ("estimated", "public")
GPUS = AUTO, NEVER, ALWAYS = "auto", "never", "always"
_SCHEDULER = re.compile(r"(tcp|tls|ws|wss|ucx)://[^\s/]+:[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class RunSection:
    """[run]: ``epsilon`` and ``delta`` are the run's whole budget; ``rows`` None writes the estimated total.

    ``schedule`` fixed: ``rounds`` alike. ``schedule`` annealed: finer rounds once the model has settled; ``rounds`` is
    then 16 a column, which the budget would last for if it never did, and need not be given.
    ``rule`` is what error a noisy measurement is taken to leave (`mechanisms.remaining_error`), in choices and where an
    annealed schedule asks whether the model has settled; ``aim`` is that of the papers. ``measure_share`` of the budget
    is for noisy counts, and ``initial_share`` of that for one-way marginals; without it a fifth, by the rule ``aim`` as
    much for each as for any other. ``tree_share`` of what these leave is, in an annealed schedule, for pairs that join
    all columns to one tree, before other rounds; without it a quarter, by the rule ``aim`` nothing.
    ``accountant`` turns epsilon and delta into a budget: as the loss of one Gaussian (`mechanisms.gaussian_privacy`)
    where that is proven and allows more, or by ``zcdp``.
    ``input`` is what owners send: ``counts``, in the form ``upload``; ``rows``; or whichever is smaller (``auto``).
    ``check`` is what servers check of an owner's weight (`protocols.bounded`): its totals, which are to agree and to be
    at most clients.rows_per_client; each of its cells besides; or nothing, for benchmarks. Rows need no check.
    ``unit`` is whom epsilon and delta are for: one row, or a person with all of its rows. Those are its rows in the
    sources (`parties.config.sources`), ``link``ed by key or by order; without sources ``rows_per_person``, which is
    then owners' word.
    ``security`` is what one server may do without harm: look at what it sees (semi-honest), or anything (malicious):
    then the run ends before something is opened that rests on it.
    ``seed`` only feeds public choices (which synthetic rows are drawn from the model), never noise or shares.
    ``terms`` is what the table may be used for, a text that goes with it.
    ``record_replay`` makes a server keep its keys, shares and received messages for an auditor
    (`parties.mpc.replay.log`): secret. It is each server's own affair, and not part of what the parties agree on.
    """

    id: str
    epsilon: float
    delta: float
    rounds: int
    schedule: str = FIXED
    rule: str = REMAINING_ERROR
    measure_share: float = 0.9
    initial_share: float | None = None
    tree_share: float | None = None
    accountant: str = GAUSSIAN
    noise: str = DISCRETE
    security: str = SEMI_HONEST
    unit: str = ROW
    rows_per_person: int = 1
    link: str = BY_KEY
    input: str = AUTO_INPUT
    upload: str = "seeded"
    check: str = TOTALS
    iterations: int = 100
    final_iterations: int = 1000
    max_model_mb: float = 80.0
    rows: int | None = None
    seed: int | None = None
    record_replay: bool = False
    terms: str | None = None

    def __post_init__(self) -> None:
        check_name("run.id", self.id)
        check(
            0 < self.epsilon < math.inf,
            "run.epsilon",
            f"is {self.epsilon}; expected a finite number above 0",
        )
        check(0 < self.delta < 1, "run.delta", f"is {self.delta}; expected between 0 and 1")
        check_number("run.rounds", self.rounds, low=1, high=10_000)
        share = self.measure_share
        check(0 < share < 1, "run.measure_share", f"is {share}; expected between 0 and 1")
        check_choice("run.schedule", self.schedule, SCHEDULES)
        check_choice("run.rule", self.rule, RULES)
        check_choice("run.accountant", self.accountant, ACCOUNTANTS)
        first = self.initial_share
        check(
            first is None or 0 < first < 1,
            "run.initial_share",
            f"is {first}; expected between 0 and 1",
        )
        joining = self.tree_share
        check(
            joining is None or 0 <= joining < 1,
            "run.tree_share",
            f"is {joining}; expected at least 0 and below 1",
        )
        check(
            not joining or self.schedule == ANNEALED,
            "run.tree_share",
            f'is {joining} beside schedule = "{self.schedule}"; expected "{ANNEALED}"',
        )
        check_choice("run.noise", self.noise, NOISES)
        check_choice("run.security", self.security, SECURITIES)
        check(
            self.security != MALICIOUS or self.noise in VERIFIABLE_NOISES,
            "run.noise",
            f"is {self.noise!r}, which rests on the word of single servers; with run.security = {MALICIOUS!r} expected "
            + " or ".join(map(repr, VERIFIABLE_NOISES)),
        )
        check_choice("run.unit", self.unit, UNITS)
        check_number("run.rows_per_person", self.rows_per_person, low=1, high=1000)
        check_choice("run.link", self.link, LINKS)
        check_choice("run.input", self.input, INPUTS)
        check_choice("run.upload", self.upload, UPLOADS)
        check_choice("run.check", self.check, CHECKS)
        check_number("run.iterations", self.iterations, low=1)
        check_number("run.final_iterations", self.final_iterations, low=1)
        check_number("run.max_model_mb", self.max_model_mb, low=1)
        if self.rows is not None:
            check(
                1 <= self.rows <= MAX_ROWS,
                "run.rows",
                f"is {self.rows}; expected at least 1 and at most {MAX_ROWS}",
            )
        if self.seed is not None:
            check_number("run.seed", self.seed, low=0)
        if self.terms is not None:
            check_terms(self.terms)


def check_terms(terms: str, key: str = "run.terms") -> None:
    """Raises ConfigError unless ``terms`` is text of a length that somebody reads."""
    text = "".join(terms.split("\n"))
    check(
        bool(text.strip()) and text.isprintable() and len(terms) <= MAX_TERMS,
        key,
        f"is no text of 1 to {MAX_TERMS} printable characters",
    )


@dataclass(frozen=True, slots=True)
class WorkloadSection:
    """[workload]: ``count`` random queries of ``degree`` columns (None: all of them), or the ``queries`` listed.

    ``target``: columns that the table is made to predict; their queries count several times.
    """

    degree: int = 2
    count: int | None = None
    seed: int = 123
    queries: tuple[tuple[str, ...], ...] | None = None
    target: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(
            len({*self.target}) == len(self.target),
            "workload.target",
            "has a column twice; expected different columns",
        )
        check_number("workload.degree", self.degree, low=1)
        if self.count is not None:
            check_number("workload.count", self.count, low=1)
        check_number("workload.seed", self.seed, low=0)
        check(
            self.queries is None or (all(self.queries) and len(self.queries) > 0),
            "workload.queries",
            "is empty or has an empty query; expected lists of column names",
        )


@dataclass(frozen=True, slots=True)
class ClientsSection:
    """[clients]: how many data owners are ``expected`` at most, and the public bound on each one's rows.

    A client takes part in each of the rounds 1..T with probability ``participation`` and is counted from the first of
    them on; those of round 1 are counted in the initial measurements (round 0) already. ``names`` are the only ones
    that may take part, where there are any. They are taken in between ``opens`` and ``closes`` (RFC 3339, with offset).

    Before the first round the run waits for all that are expected: until ``closes``, or where that is not set for
    ``wait_s`` seconds; with ``grace_s``, once ``minimum`` are complete, no longer than so many seconds after the last
    one that came. It then needs ``minimum`` of them counted (default: all expected if everyone participates, else 1).
    """

    expected: int
    rows_per_client: int
    minimum: int
    participation: float = 1.0
    wait_s: float = 60.0
    grace_s: float | None = None
    names: tuple[str, ...] = ()
    opens: str | None = None
    closes: str | None = None

    def __post_init__(self) -> None:
        check_number("clients.expected", self.expected, low=1)
        check_number("clients.rows_per_client", self.rows_per_client, low=1)
        check_number("clients.minimum", self.minimum, low=1, high=self.expected)
        p = self.participation
        check(0 < p <= 1, "clients.participation", f"is {p}; expected above 0 and at most 1")
        check_number("clients.wait_s", self.wait_s, low=0, high=31 * 86400)
        if self.grace_s is not None:
            check_number("clients.grace_s", self.grace_s, low=0, high=31 * 86400)
        self._check_enrolment()
        check(
            self.max_rows <= MAX_ROWS,
            "clients.rows_per_client",
            f"times clients.expected is {self.max_rows} rows; expected at most {MAX_ROWS}",
        )

    def _check_enrolment(self) -> None:
        check_names("clients.names", self.names)
        check(
            len(self.names) in (0, self.expected),
            "clients.names",
            f"has {len(self.names)} names; expected {self.expected}, as many as clients.expected",
        )
        opens, closes = self.opening, self.closing
        check(
            opens is None or closes is None or opens < closes,
            "clients.closes",
            f"is {self.closes}; expected a time after clients.opens, which is {self.opens}",
        )

    @property
    def opening(self) -> datetime.datetime | None:
        """``opens`` as a time; None: at once."""
        return None if self.opens is None else read_time("clients.opens", self.opens)

    @property
    def closing(self) -> datetime.datetime | None:
        """``closes`` as a time; None where no date closes the run."""
        return None if self.closes is None else read_time("clients.closes", self.closes)

    @property
    def max_rows(self) -> int:
        """Public bound on the rows of the whole table."""
        return self.expected * self.rows_per_client


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address; ``host`` a name or an IP address without brackets."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if not self.host or not 0 < self.port < 65536:
            raise ValueError(f"{self.host!r}:{self.port} is not a TCP address")

    @classmethod
    def parse(cls, text: str) -> "Address":
        """From "host:port" or "[::1]:port". Raises ValueError."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not port.isdecimal() or (":" in bare and bare == host):
            raise ValueError(f"is {text!r}; expected host:port, such as 127.0.0.1:7000")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartySection:
    """[[party]]: ``name`` is the server's common name; servers meet at ``mesh``, owners at ``ingest``.

    ``key`` is the hex SHA-256 of its certificate's public key: whoever has another one is not this server, whatever
    its certificate says. ``seal`` is the public key (base64) that owners seal its part of their uploads to.
    """

    name: str
    mesh: Address
    ingest: Address
    key: str
    seal: str

    def __post_init__(self) -> None:
        check_name("party.name", self.name)
        check_key_hash("party.key", self.key)

    @property
    def pinned(self) -> PinnedKey:
        """Who the server has to be."""
        return PinnedKey(self.name, self.key)

    @property
    def seal_to(self) -> SealTo:
        """What to seal to."""
        return SealTo.parse(self.seal)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files of one identity: the authority ``ca``, the certificate ``cert``, its private key ``key``."""

    ca: Path
    cert: Path
    key: Path

    @property
    def seal(self) -> Path:
        """A server's sealing key, which lies beside its private key."""
        return self.key.with_suffix(".seal")


@dataclass(frozen=True, slots=True)
class TlsSection:
    """[tls]: PEM files; "{pid}" stands for the server's number, "{name}" for its name. Relative to the config's folder.

    At a data owner "{name}" is whatever name the certificate of its key has (`parties.identity.tls.own_certificate`).
    """

    ca: str
    cert: str
    key: str

    def files(
        self, base: Path, pid: int | None = None, name: str | None = None
    ) -> CertificateFiles:
        """The paths for server ``pid`` called ``name``; what is None is left as it is, as at a data owner."""

        def resolve(path: str) -> Path:
            for hole, value in (("{pid}", pid), ("{name}", name)):
                path = path if value is None else path.replace(hole, str(value))
            return base / path

        return CertificateFiles(resolve(self.ca), resolve(self.cert), resolve(self.key))


@dataclass(frozen=True, slots=True)
class TimeoutsSection:
    """[timeouts], in seconds: reaching a peer, waiting for one message of a peer, one data owner's whole upload."""

    connect_s: float = 30.0
    receive_s: float = 60.0
    submit_s: float = 60.0

    def __post_init__(self) -> None:
        for item in fields(self):
            check_number(f"timeouts.{item.name}", getattr(self, item.name), low=0.1, high=86400)


@dataclass(frozen=True, slots=True)
class ComputeSection:
    """[compute]: where a server does the work of counting rows that needs no other server; its own affair.

    ``threads`` workers, 0 for one a core; a ``gpu`` where CuPy finds one; or the Dask cluster of the scheduler at
    ``dask``, which has to be this server's own.
    """

    threads: int = 0
    gpu: str = AUTO
    dask: str = ""

    def __post_init__(self) -> None:
        check_number("compute.threads", self.threads, low=0, high=4096)
        check_choice("compute.gpu", self.gpu, GPUS)
        check(
            not self.dask or _SCHEDULER.fullmatch(self.dask) is not None,
            "compute.dask",
            f"is {self.dask!r}; expected the address of a Dask scheduler, such as tls://scheduler.example:8786",
        )


@dataclass(frozen=True, slots=True)
class FlaimSection:
    """[flaim]: which variant of FLAIM, by which sums, and who meets where.

    A round needs ``minimum`` clients behind every sum; of a round's clients the fractions ``corrupt`` (one client at
    least) and ``dropouts`` are what its SecAgg withstands. ``server`` and ``clients`` are the names in their
    certificates, ``key`` is the hash of the server's public key, as [[party]]'s, ``address`` where it listens; a trial
    on one machine makes its own. ``client_keys`` are the hashes of the clients' public keys, in their order, by which
    run.security = "malicious" goes where they are given. A client bears ``idle_s`` seconds of silence between rounds.
    """

    variant: str = "private"
    local_rounds: int = 1
    grouping: str = "union"
    noise: str = "server"
    sizes: str = "estimated"
    minimum: int = FLAIM_MIN_CLIENTS
    corrupt: float = 0.05
    dropouts: float = 0.33
    idle_s: float = 3600.0
    server: str = "flaim-server"
    key: str | None = None
    address: Address | None = None
    clients: tuple[str, ...] = ()
    client_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("flaim.variant", self.variant, FLAIM_VARIANTS)
        check_number("flaim.local_rounds", self.local_rounds, low=1, high=1000)
        check_choice("flaim.grouping", self.grouping, FLAIM_GROUPINGS)
        check_choice("flaim.noise", self.noise, FLAIM_NOISES)
        check_choice("flaim.sizes", self.sizes, FLAIM_SIZES)
        _check_federation("flaim", self)

    @property
    def pinned(self) -> PinnedKey:
        """Who the server has to be. Raises ConfigError where there is no ``key``."""
        return _pinned_key("flaim", self)

    @property
    def declares_rows(self) -> bool:
        """Whether clients say how many rows they have."""
        return self.sizes == "public"


@dataclass(frozen=True, slots=True)
class SilosSection:
    """[silos]: the server and the silos of an algorithm on rounds of exact sums, and what a sum withstands.

    The keys are those of [flaim], and mean the same; ``clients`` are the silos.
    """

    noise: str = "server"
    minimum: int = FLAIM_MIN_CLIENTS
    corrupt: float = 0.05
    dropouts: float = 0.33
    idle_s: float = 3600.0
    server: str = "silos-server"
    key: str | None = None
    address: Address | None = None
    clients: tuple[str, ...] = ()
    client_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("silos.noise", self.noise, FLAIM_NOISES)
        _check_federation("silos", self)

    @property
    def pinned(self) -> PinnedKey:
        """Who the server has to be. Raises ConfigError where there is no ``key``."""
        return _pinned_key("silos", self)

    @property
    def declares_rows(self) -> bool:
        """Silos do not say how many rows they have."""
        return False


def _check_federation(section: str, of: FlaimSection | SilosSection) -> None:
    """What [flaim] and [silos] have in common."""
    check_number(f"{section}.minimum", of.minimum, low=FLAIM_MIN_CLIENTS)
    for name in ("corrupt", "dropouts"):
        check_number(f"{section}.{name}", getattr(of, name), low=0, high=0.9)
    check_number(f"{section}.idle_s", of.idle_s, low=1, high=31 * 86400)
    if of.key is not None:
        check_key_hash(f"{section}.key", of.key)
    for name in (of.server, *of.clients):
        check_name(f"{section}.clients" if name != of.server else f"{section}.server", name)
    names = [of.server, *of.clients]
    check(
        len(set(names)) == len(names),
        f"{section}.clients",
        "has a name twice, or the server's; expected different names",
    )
    for key in of.client_keys:
        check_key_hash(f"{section}.client_keys", key)
    check(
        not of.client_keys or len(set(of.client_keys)) == len(of.clients),
        f"{section}.client_keys",
        f"has {len(set(of.client_keys))} different keys; expected one of each of the {len(of.clients)} "
        f"{section}.clients, in their order, or none",
    )


def _pinned_key(section: str, of: FlaimSection | SilosSection) -> PinnedKey:
    if of.key is None:
        raise ConfigError("", f"{section}.key", "is missing; expected it from the server's card")
    return PinnedKey(of.server, of.key)
