"""Sections of a config as frozen dataclasses, whose constructors check the values. All values here are public.

Names contain the units (``_s`` seconds, ``_mb`` megabytes). Raises ConfigError.
"""

import datetime
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias

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
from parties.config.proxy import Proxy
from parties.crypto.hpke import SealTo
from parties.crypto.pinned_key import PinnedKey
from parties.foundation.errors import ConfigError
from protocols.noise_kinds import BOX_MULLER, DISCRETE, NOISES
from protocols.select_spec import FRACTION_BITS
from protocols.upload import FORMS

MAX_ROWS = 2 ** (30 - FRACTION_BITS) - 2**17
"""Maximum number of rows of a table.

Sums of absolute count differences, at 6 fractional bits, stay below 2^31 for queries of at most 2^24 - 1 cells
(`parties.mpc.planning.validation`).
"""
MAX_TERMS = 20_000
"""Maximum length of the terms of use, in characters."""
SECURITIES = SEMI_HONEST, MALICIOUS = "semi-honest", "malicious"
ACCOUNTANTS = GAUSSIAN, ZCDP.name
SCHEDULES = FIXED, ANNEALED = "fixed", "annealed"
FALLBACKS = ("columns",)
ESTIMATORS = (MBI,) = ("mbi",)
"""Packages that fit a model instead of our own code."""
VERIFIABLE_NOISES = (DISCRETE, BOX_MULLER)
"""Noises that run.security = "malicious" allows."""
CHECKS = TOTALS, CELLS, NO_CHECK = "totals", "cells", "none"
UPLOADS = FORMS
INPUTS = AUTO_INPUT, COUNTS_INPUT, ROWS_INPUT = "auto", "counts", "rows"
LINKS = BY_KEY, BY_ORDER = "key", "order"
UNITS = ROW, PERSON = "row", "person"
MORE_ROWS = (SAMPLE,) = ("sample",)
"""Rules for a person with too many rows, instead of refusing the table."""
FLAIM_MIN_CLIENTS = 3
"""Minimum number of clients in a secure sum."""
FLAIM_VARIANTS = ("naive", "oracle", "private", "random", "naivebayes", "pairs")
FLAIM_GROUPINGS = ("union", "query")
FLAIM_NOISES = ("server", "distributed")
FLAIM_SIZES = ("estimated", "public")
GPUS = AUTO, NEVER, ALWAYS = "auto", "never", "always"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SCHEDULER = re.compile(r"(tcp|tls|ws|wss|ucx)://[^\s/]+:[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class RunSection:
    """[run]: privacy budget, schedule, noise, security and output of a run.

    - ``epsilon`` and ``delta`` are the run's whole budget.
    - ``rows`` is the number of synthetic rows; None writes the estimated total.
    - ``schedule``: ``fixed`` has ``rounds`` equal rounds; ``annealed`` has finer rounds once the model has settled. The
      annealed ``rounds`` are 16 per column, the number that the budget would last for if the model never settled, and
      need not be given.
    - ``rule`` is the estimate of the error that a noisy measurement leaves (`mechanisms.remaining_error`). Selections
      use it, and an annealed schedule uses it to decide if the model has settled. ``aim`` is the rule of the papers.
    - ``measure_share`` is the share of the budget for noisy counts.
    - ``initial_share`` is the share of that for one-way marginals. The default is a fifth; by the rule ``aim`` each
      one-way marginal gets as much as any other.
    - ``tree_share`` is the share of the budget left by round 0 that an annealed schedule spends, before other rounds,
      on pairs that join all columns to one tree. The default is a quarter; by the rule ``aim`` nothing.
    - ``accountant`` converts epsilon and delta to a budget: as the loss of one Gaussian (`mechanisms.gaussian_privacy`)
      where that is proven and allows more, or by ``zcdp``.
    - ``input`` is the form of owners' data: ``counts``, in the form ``upload``; ``rows``; or the smaller one
      (``auto``).
    - ``check`` is the servers' check of an owner's weight (`protocols.bounded`): ``totals``, which have to agree and be
      at most clients.rows_per_client; ``cells``, each cell besides; ``none``, for benchmarks. Rows need no check.
    - ``unit`` is the unit of privacy: ``row``, or ``person`` with all of its rows. A person's rows are those in the
      sources (`parties.config.sources`), linked by key or by order (``link``). Without sources they are
      ``rows_per_person``, a bound that the owners vouch for and no server checks. ``person`` names the columns, none of
      them modelled, by which an owner's own program knows a person's rows: it refuses a table with more of them, or
      leaves all but ``rows_per_person`` of them out where ``more_rows`` is ``sample``.
    - ``security`` is the behaviour of one server that does no harm: reading all it receives (semi-honest), or any
      behaviour (malicious), where the run ends before it opens a value that rests on the deviation.
    - ``seed`` only feeds public choices (which synthetic rows are drawn from the model), never noise or shares.
    - ``large_delta`` says in so many words that ``delta`` may be as large as 1 in the root of the number of rows. Such
      a delta allows that many rows are published as they are.
    - ``fallback`` is what an annealed run measures where noise would drown the pairs of columns: ``columns``, each
      single column once more, or as usual without it. Runs with fixed rounds or the papers' rule have none.
    - ``estimator`` is the package that fits the model: our own, or ``mbi``, by Private-PGM's authors, with the same
      numbers of iterations (AIM and DistAIM).
    - ``terms`` is the text of the terms of use, which goes with the table.
    - ``record_replay`` makes a server keep its keys, shares and received messages for an auditor
      (`parties.mpc.replay.log`); these are secret. Each server decides alone; the value is not agreed on.
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
    large_delta: bool | None = None
    person: tuple[str, ...] | None = None
    more_rows: str | None = None
    fallback: str | None = None
    estimator: str | None = None

    @property
    def may_fall_back(self) -> bool:
        """True if the run measures single columns alone where noise would drown the pairs."""
        usual = self.schedule == ANNEALED and self.rule == REMAINING_ERROR
        return usual and self.fallback is not None

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
        if self.fallback is not None:
            check_choice("run.fallback", self.fallback, FALLBACKS)
        if self.estimator is not None:
            check_choice("run.estimator", self.estimator, ESTIMATORS)
        check_choice("run.noise", self.noise, NOISES)
        check_choice("run.security", self.security, SECURITIES)
        check(
            self.security != MALICIOUS or self.noise in VERIFIABLE_NOISES,
            "run.noise",
            f"is {self.noise!r}, which rests on the word of single servers; with run.security = {MALICIOUS!r} expected "
            + " or ".join(map(repr, VERIFIABLE_NOISES)),
        )
        check_choice("run.unit", self.unit, UNITS)
        if self.more_rows is not None:
            check_choice("run.more_rows", self.more_rows, MORE_ROWS)
            check(
                self.person is not None,
                "run.more_rows",
                "stands without run.person; expected the columns by which a person's rows are known",
            )
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
    """Raises ConfigError unless ``terms`` is printable text of 1 to MAX_TERMS characters."""
    text = "".join(terms.split("\n"))
    check(
        bool(text.strip()) and text.isprintable() and len(terms) <= MAX_TERMS,
        key,
        f"is no text of 1 to {MAX_TERMS} printable characters",
    )


@dataclass(frozen=True, slots=True)
class RefreshSection:
    """[refresh]: the earlier run whose model a run starts from.

    ``digest`` is the digest of that model, which the earlier run's servers sealed, and what parties agree on. ``model``
    is the path of a bundle, or of a run's or model's folder, on this machine; None if the model is in the folder
    `start` beside the config.
    """

    digest: str
    model: str | None = None

    def __post_init__(self) -> None:
        check(
            _DIGEST.fullmatch(self.digest) is not None,
            "refresh.digest",
            f"is {self.digest!r}; expected the 64 hex digits of the earlier run's model (published in its transcripts)",
        )


@dataclass(frozen=True, slots=True)
class WorkloadSection:
    """[workload]: ``count`` random queries of ``degree`` columns (None: all such queries), or the listed ``queries``.

    ``target``: columns that the table shall predict; their queries count several times.
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
    """[clients]: maximum number of data owners, public bound on each one's rows, and rules of admission.

    ``expected`` is the maximum number of data owners, ``rows_per_client`` the bound on each one's rows. A client takes
    part in each of the rounds 1..T with probability ``participation`` and is counted from its first round on. Clients
    of round 1 are already counted in the initial measurements (round 0). Only clients in ``names`` may take part,
    unless ``names`` is empty. Admission is between ``opens`` and ``closes`` (RFC 3339, with offset).

    Before the first round the run waits for all expected clients: until ``closes``, or without that date for ``wait_s``
    seconds. With ``grace_s``, once ``minimum`` clients are complete, the run waits at most that many seconds after the
    latest arrival. The run needs ``minimum`` counted clients (default: all expected if every client takes part in every
    round, else 1).
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
        """``opens`` as a time; None if the run opens at once."""
        return None if self.opens is None else read_time("clients.opens", self.opens)

    @property
    def closing(self) -> datetime.datetime | None:
        """``closes`` as a time; None if no date closes the run."""
        return None if self.closes is None else read_time("clients.closes", self.closes)

    @property
    def max_rows(self) -> int:
        """Public bound on the rows of the whole table."""
        return self.expected * self.rows_per_client


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address; ``host`` is a name or an IP address without brackets."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if not self.host or not 0 < self.port < 65536:
            raise ValueError(f"{self.host!r}:{self.port} is not a TCP address")

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Returns the address of "host:port" or "[::1]:port". Raises ValueError."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not port.isdecimal() or (":" in bare and bare == host):
            raise ValueError(f"is {text!r}; expected host:port, such as 127.0.0.1:7000")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartySection:
    """[[party]]: a server with common name ``name``, address ``mesh`` for servers and ``ingest`` for owners.

    ``key`` is the hex SHA-256 of the public key in its certificate. A peer with another key is not this server,
    whatever its certificate says. ``seal`` is the public key (base64) that owners seal this server's part of their
    uploads to.
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
        """Name and key hash that the server has to prove."""
        return PinnedKey(self.name, self.key)

    @property
    def seal_to(self) -> SealTo:
        """Public key that uploads for this server are sealed to."""
        return SealTo.parse(self.seal)


class StudyServer(Protocol):
    """A server as a study's owners reach it, of three or alone: its name, address and pinned key."""

    @property
    def name(self) -> str:
        """Name in its certificate."""

    @property
    def ingest(self) -> Address:
        """Address for owners."""

    @property
    def pinned(self) -> PinnedKey:
        """Name and key hash that the server has to prove."""


@dataclass(frozen=True, slots=True)
class SingleServer:
    """The one server of a federation, as a ``StudyServer``."""

    name: str
    ingest: Address
    pinned: PinnedKey


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files of one identity: the authority ``ca``, the certificate ``cert``, its private key ``key``."""

    ca: Path
    cert: Path
    key: Path

    @property
    def seal(self) -> Path:
        """Path of a server's sealing key, beside its private key."""
        return self.key.with_suffix(".seal")


@dataclass(frozen=True, slots=True)
class TlsSection:
    """[tls]: PEM files; "{pid}" stands for the server's number, "{name}" for its name. Relative to the config's folder.

    At a data owner "{name}" stands for any name with a certificate of its key (`parties.identity.tls.own_certificate`).
    """

    ca: str
    cert: str
    key: str

    def files(
        self, base: Path, pid: int | None = None, name: str | None = None
    ) -> CertificateFiles:
        """Returns the paths for server ``pid`` called ``name``; placeholders of None remain, as at a data owner."""

        def resolve(path: str) -> Path:
            for hole, value in (("{pid}", pid), ("{name}", name)):
                path = path if value is None else path.replace(hole, str(value))
            return base / path

        return CertificateFiles(resolve(self.ca), resolve(self.cert), resolve(self.key))


@dataclass(frozen=True, slots=True)
class TimeoutsSection:
    """[timeouts], in seconds: connecting to a peer, receiving one message of a peer, and one owner's whole upload."""

    connect_s: float = 30.0
    receive_s: float = 60.0
    submit_s: float = 60.0

    def __post_init__(self) -> None:
        for item in fields(self):
            check_number(f"timeouts.{item.name}", getattr(self, item.name), low=0.1, high=86400)


@dataclass(frozen=True, slots=True)
class ComputeSection:
    """[compute]: resources for the part of counting rows that needs no other server; each server decides on its own.

    ``threads`` is the number of workers, 0 for one per core. ``gpu`` says if a GPU is used where CuPy finds one.
    ``dask`` is the address of the scheduler of a Dask cluster, which has to be this server's own.
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
class NetworkSection:
    """[network]: a participant's way to its servers; each participant decides on its own.

    ``proxy`` is the URL of an HTTP proxy, "" for that of the environment, if any. ``proxy_login`` is the path of a file
    whose one line is user:password, for basic authentication. The URL has neither: it may be shown.
    """

    proxy: str = ""
    proxy_login: str = ""

    def __post_init__(self) -> None:
        if self.proxy:
            found = Proxy.parse(self.proxy, "network.proxy")
            check(
                not found.login,
                "network.proxy",
                "has a user or a password, and a config is shown to others; expected network.proxy_login, a file",
            )


@dataclass(frozen=True, slots=True)
class FlaimSection:
    """[flaim]: variant of FLAIM, kind of secure sums, and addresses and names of the server and the clients.

    Every sum of a round needs ``minimum`` clients. SecAgg withstands the fractions ``corrupt`` (one client at least)
    and ``dropouts`` of a round's clients. ``server`` and ``clients`` are the names in their certificates. ``key`` is
    the hash of the server's public key, as in [[party]]. ``address`` is the server's; a trial on one machine makes its
    own. ``client_keys`` are the hashes of the clients' public keys, in their order; run.security = "malicious" relies
    on them where they are given. A client tolerates ``idle_s`` seconds of silence between rounds.
    """

    KEY: ClassVar[str] = "flaim"
    WHO: ClassVar[str] = "clients"
    TURN: ClassVar[str] = "round"

    variant: str = "pairs"
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
        _check_federation(self)

    @property
    def pinned(self) -> PinnedKey:
        """Name and key hash that the server has to prove. Raises ConfigError if there is no ``key``."""
        return _pinned_key(self)

    @property
    def declares_rows(self) -> bool:
        """True if clients declare their number of rows."""
        return self.sizes == "public"


@dataclass(frozen=True, slots=True)
class SilosSection:
    """[silos]: server and silos of an algorithm on rounds of exact sums, and limits of a sum.

    The keys have the same meaning as in [flaim]; ``clients`` are the silos.
    """

    KEY: ClassVar[str] = "silos"
    WHO: ClassVar[str] = "silos"
    TURN: ClassVar[str] = "sum"

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
        _check_federation(self)

    @property
    def pinned(self) -> PinnedKey:
        """Name and key hash that the server has to prove. Raises ConfigError if there is no ``key``."""
        return _pinned_key(self)

    @property
    def declares_rows(self) -> bool:
        """Always False: silos do not declare their number of rows."""
        return False


FederationSection: TypeAlias = FlaimSection | SilosSection
"""The section of a run with one server: ``KEY`` is its name; ``WHO`` and ``TURN`` are its nouns in texts."""


def _check_federation(of: FederationSection) -> None:
    """Refuses values of the keys that [flaim] and [silos] share."""
    section = of.KEY
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


def _pinned_key(of: FederationSection) -> PinnedKey:
    if of.key is None:
        raise ConfigError("", f"{of.KEY}.key", "is missing; expected it from the server's card")
    return PinnedKey(of.server, of.key)
