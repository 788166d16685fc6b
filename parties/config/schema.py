"""Sections of a config as frozen dataclasses, whose constructors check the values. All values here are public.

Names contain the units (``_s`` seconds, ``_mb`` megabytes). Raises ConfigError.
"""

import datetime
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias

from mechanisms.accounting import ZCDP
from mechanisms.gaussian_privacy import GAUSSIAN
from mechanisms.scores import REMAINING_ERROR, RULES
from mechanisms.table_keys import one_of, up_to_key, within
from parties.config.limits import (
    check,
    check_allowed,
    check_key_hash,
    check_name,
    check_names,
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
_MONTH_S = 31 * 86400.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SCHEDULER = re.compile(r"(tcp|tls|ws|wss|ucx)://[^\s/]+:[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class RunSection:
    """[run]: privacy budget, schedule, noise, security and output of a run."""

    id: str
    """Name of the run: 1 to 63 letters, digits, `.`, `_` or `-`."""
    epsilon: float = field(metadata=within(0, above=True))
    """Epsilon of the whole run."""
    delta: float = field(metadata=within(0, 1, above=True, below=True))
    """Delta of the whole run, far less than 1 in the number of rows."""
    rounds: int = field(metadata=within(1, 10_000))
    """Number of equal rounds. An annealed run has 16 per column at most, as if the model never settled, and needs no
    such key.
    """
    schedule: str = field(default=FIXED, metadata=one_of(SCHEDULES))
    """``fixed`` has ``rounds`` equal rounds, ``annealed`` has finer rounds once the model has settled."""
    rule: str = field(default=REMAINING_ERROR, metadata=one_of(RULES))
    """Estimate of the error that a noisy measurement leaves (`mechanisms.remaining_error`). Selections use it, and an
    annealed schedule uses it to decide if the model has settled. ``aim`` is the rule of the papers.
    """
    measure_share: float = field(default=0.9, metadata=within(0, 1, above=True, below=True))
    """Share of the budget for noisy counts; selections have the rest."""
    initial_share: float | None = field(default=None, metadata=within(0, 1, above=True, below=True))
    """Share of the budget for counts that one-way marginals have in round 0. Without the key it is a fifth; by the rule
    ``aim`` each one-way marginal gets as much as any other.
    """
    tree_share: float | None = field(default=None, metadata=within(0, 1, below=True))
    """Share of the budget left by round 0 that an annealed schedule spends, before other rounds, on pairs that join all
    columns to one tree. Without the key it is a quarter; by the rule ``aim`` nothing.
    """
    accountant: str = field(default=GAUSSIAN, metadata=one_of(ACCOUNTANTS))
    """Conversion of epsilon and delta to a budget: as the loss of one Gaussian (`mechanisms.gaussian_privacy`) where
    that is proven and allows more, or by ``zcdp``.
    """
    noise: str = field(default=DISCRETE, metadata=one_of(NOISES))
    """Noise of the servers' counts. With security = "malicious" it is not ``distributed``."""
    security: str = field(default=SEMI_HONEST, metadata=one_of(SECURITIES))
    """Behaviour of one server that does no harm: reading all it receives (semi-honest), or any behaviour (malicious),
    where the run ends before it opens a value that rests on the deviation.
    """
    unit: str = field(default=ROW, metadata=one_of(UNITS))
    """Unit of privacy: ``row``, or ``person`` with all of its rows. A person's rows are those in the sources
    (`parties.config.sources`), linked by key or by order (``link``).
    """
    rows_per_person: int = field(default=1, metadata=within(1, 1000))
    """Largest number of rows of a person, where there are no sources. Owners vouch for it, and no server checks it."""
    link: str = field(default=BY_KEY, metadata=one_of(LINKS))
    """Linkage of rows of several sources: by their key, or by their order."""
    input: str = field(default=AUTO_INPUT, metadata=one_of(INPUTS))
    """Form of owners' data: ``counts``, in the form ``upload``; ``rows``; or the smaller one (``auto``)."""
    upload: str = field(default="seeded", metadata=one_of(UPLOADS))
    """Form of an owner's counts on their way to the servers."""
    check: str = field(default=TOTALS, metadata=one_of(CHECKS))
    """Servers' check of an owner's weight (`protocols.bounded`): ``totals``, which have to agree and be at most
    clients.rows_per_client; ``cells``, each cell besides; ``none``, for benchmarks. Rows need no check.
    """
    iterations: int = field(default=100, metadata=within(1))
    """Iterations of fitting the model in each round."""
    final_iterations: int = field(default=1000, metadata=within(1))
    """Iterations of fitting the model at the end."""
    max_model_mb: float = field(default=80.0, metadata=within(1))
    """Largest size of the model, in megabytes."""
    rows: int | None = field(default=None, metadata=within(1, MAX_ROWS))
    """Number of synthetic rows. Without the key it is the estimated total."""
    seed: int | None = field(default=None, metadata=within(0))
    """Seed of public choices, such as which synthetic rows are drawn from the model; never of noise or shares."""
    record_replay: bool = False
    """Record of a server's keys, shares and received messages for an auditor (`parties.mpc.replay.log`); these are
    secret. Each server decides alone; the value is not agreed on.
    """
    terms: str | None = None
    """Text of the terms of use, which goes with the table: 1 to 20,000 printable characters."""
    large_delta: bool | None = None
    """Consent to a ``delta`` of 1 in the root of the number of rows, or more. Such a delta allows that many rows are
    published as they are.
    """
    person: tuple[str, ...] | None = None
    """Columns, none of them modelled, by which an owner's own program knows a person's rows. It refuses a table in
    which a person has more than ``rows_per_person``.
    """
    more_rows: str | None = field(default=None, metadata=one_of(MORE_ROWS))
    """``sample`` leaves a person's rows beyond ``rows_per_person`` out, instead of refusing the table."""
    fallback: str | None = field(default=None, metadata=one_of(FALLBACKS))
    """Measurement of an annealed run where noise would drown the pairs of columns: ``columns``, each single column once
    more, or as usual without the key. Runs with fixed rounds or the papers' rule have none.
    """
    estimator: str | None = field(default=None, metadata=one_of(ESTIMATORS))
    """Package that fits the models of AIM and DistAIM, with the same numbers of iterations: ``mbi``, by Private-PGM's
    authors, or our own code without the key.
    """

    @property
    def may_fall_back(self) -> bool:
        """True if the run measures single columns alone where noise would drown the pairs."""
        usual = self.schedule == ANNEALED and self.rule == REMAINING_ERROR
        return usual and self.fallback is not None

    def __post_init__(self) -> None:
        check_name("run.id", self.id)
        check_allowed("run", self)
        joining = self.tree_share
        check(
            not joining or self.schedule == ANNEALED,
            "run.tree_share",
            f'is {joining} beside schedule = "{self.schedule}"; expected "{ANNEALED}"',
        )
        check(
            self.security != MALICIOUS or self.noise in VERIFIABLE_NOISES,
            "run.noise",
            f"is {self.noise!r}, which rests on the word of single servers; with run.security = {MALICIOUS!r} expected "
            + " or ".join(map(repr, VERIFIABLE_NOISES)),
        )
        check(
            self.more_rows is None or self.person is not None,
            "run.more_rows",
            "stands without run.person; expected the columns by which a person's rows are known",
        )
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
    """[refresh]: the earlier run whose model a run starts from."""

    digest: str
    """Digest of that model, which the earlier run's servers sealed, and what parties agree on: 64 hex digits."""
    model: str | None = None
    """Path of a bundle, or of a run's or model's folder, on this machine. Without the key the model is in the folder
    `start` beside the configuration.
    """

    def __post_init__(self) -> None:
        check(
            _DIGEST.fullmatch(self.digest) is not None,
            "refresh.digest",
            f"is {self.digest!r}; expected the 64 hex digits of the earlier run's model (published in its transcripts)",
        )


@dataclass(frozen=True, slots=True)
class WorkloadSection:
    """[workload]: the queries, drawn or listed."""

    degree: int = field(default=2, metadata=within(1))
    """Number of columns of each drawn query."""
    count: int | None = field(default=None, metadata=within(1))
    """Number of random queries, or "all" of that degree."""
    seed: int = field(default=123, metadata=within(0))
    """Public seed of the drawing."""
    queries: tuple[tuple[str, ...], ...] | None = None
    """Listed queries, each a list of columns, instead of a drawing."""
    target: tuple[str, ...] = ()
    """Column, or list of columns, that the table shall predict; their queries count several times."""

    def __post_init__(self) -> None:
        check(
            len({*self.target}) == len(self.target),
            "workload.target",
            "has a column twice; expected different columns",
        )
        check_allowed("workload", self)
        check(
            self.queries is None or (all(self.queries) and len(self.queries) > 0),
            "workload.queries",
            "is empty or has an empty query; expected lists of column names",
        )


@dataclass(frozen=True, slots=True)
class ClientsSection:
    """[clients]: maximum number of data owners, public bound on each one's rows, and rules of admission.

    Before the first round the run waits for all expected clients: until ``closes``, or without that date for ``wait_s``
    seconds.
    """

    expected: int = field(metadata=within(1))
    """Maximum number of data owners."""
    rows_per_client: int = field(metadata=within(1))
    """Public bound on each owner's rows. Times ``expected`` it is at most 16,646,144."""
    minimum: int = field(metadata=up_to_key(1, "expected"))
    """Number of counted owners that the run needs."""
    participation: float = field(default=1.0, metadata=within(0, 1, above=True))
    """Probability that an owner takes part in each of the rounds 1..T. It is counted from its first round on. Owners of
    round 1 are already counted in the initial measurements (round 0).
    """
    wait_s: float = field(default=60.0, metadata=within(0, _MONTH_S))
    """Seconds that servers wait for owners where there is no ``closes``."""
    grace_s: float | None = field(default=None, metadata=within(0, _MONTH_S))
    """Seconds that the run still waits after the latest arrival, once ``minimum`` owners are complete. Without the key
    the run waits for all.
    """
    names: tuple[str, ...] = ()
    """Names of the owners that may take part, as in their certificates. Without the key every owner may."""
    opens: str | None = None
    """Begin of admission, with offset (RFC 3339)."""
    closes: str | None = None
    """End of admission, with offset, after ``opens``."""

    def __post_init__(self) -> None:
        check_allowed("clients", self)
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
    """[[party]]: one of the three servers.

    A peer with another key is not this server, whatever its certificate says.
    """

    name: str
    """Common name in the server's certificate."""
    mesh: Address
    """Address for the other servers."""
    ingest: Address
    """Address for data owners."""
    key: str
    """SHA-256 of the public key in the server's certificate, 64 hex digits."""
    seal: str
    """Public key (base64) that owners seal this server's part of their uploads to."""

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
    """File of the study's authority."""
    cert: str
    """File of the own certificate."""
    key: str
    """File of the own private key."""

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
    """[timeouts], in seconds."""

    connect_s: float = field(default=30.0, metadata=within(0.1, 86400))
    """Seconds for connecting to a peer."""
    receive_s: float = field(default=60.0, metadata=within(0.1, 86400))
    """Seconds for receiving one message of a peer."""
    submit_s: float = field(default=60.0, metadata=within(0.1, 86400))
    """Seconds for one owner's whole upload."""

    def __post_init__(self) -> None:
        check_allowed("timeouts", self)


@dataclass(frozen=True, slots=True)
class ComputeSection:
    """[compute]: resources for the part of counting rows that needs no other server; each server decides on its own."""

    threads: int = field(default=0, metadata=within(0, 4096))
    """Number of workers, 0 for one per core."""
    gpu: str = field(default=AUTO, metadata=one_of(GPUS))
    """Use of a GPU: ``auto`` where CuPy finds one."""
    dask: str = ""
    """Address of the scheduler of a Dask cluster, which has to be this server's own."""

    def __post_init__(self) -> None:
        check_allowed("compute", self)
        check(
            not self.dask or _SCHEDULER.fullmatch(self.dask) is not None,
            "compute.dask",
            f"is {self.dask!r}; expected the address of a Dask scheduler, such as tls://scheduler.example:8786",
        )


@dataclass(frozen=True, slots=True)
class NetworkSection:
    """[network]: a participant's way to its servers; each participant decides on its own."""

    proxy: str = ""
    """URL of an HTTP proxy, without user and password, since it may be shown. Without the key it is that of the
    environment, if any.
    """
    proxy_login: str = ""
    """Path of a file whose one line is user:password, for basic authentication."""

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
    """[flaim]: variant of FLAIM, kind of secure sums, and addresses and names of the server and the clients."""

    KEY: ClassVar[str] = "flaim"
    WHO: ClassVar[str] = "clients"
    TURN: ClassVar[str] = "round"

    variant: str = field(default="pairs", metadata=one_of(FLAIM_VARIANTS))
    """Choice of the queries: ``pairs`` has all pairs of columns; the others are those of the papers, ``oracle`` in
    simulations alone.
    """
    local_rounds: int = field(default=1, metadata=within(1, 1000))
    """Number of queries that a client chooses in a round, where it chooses any."""
    grouping: str = field(default="union", metadata=one_of(FLAIM_GROUPINGS))
    """Sums of a round: one over everything that was chosen, or one for each query."""
    noise: str = field(default="server", metadata=one_of(FLAIM_NOISES))
    """Source of the noise: the server, or every client its part."""
    sizes: str = field(default="estimated", metadata=one_of(FLAIM_SIZES))
    """Clients' numbers of rows: one number for all, from noisy sums, or declared ones. Epsilon is then for tables of
    the same declared size.
    """
    minimum: int = field(default=FLAIM_MIN_CLIENTS, metadata=within(FLAIM_MIN_CLIENTS))
    """Least number of clients behind a sum."""
    corrupt: float = field(default=0.05, metadata=within(0, 0.9))
    """Fraction of a sum's clients that may be corrupt; one client at least is taken for it."""
    dropouts: float = field(default=0.33, metadata=within(0, 0.9))
    """Fraction of a sum's clients that may drop out."""
    idle_s: float = field(default=3600.0, metadata=within(1, _MONTH_S))
    """Seconds of silence between rounds that a client tolerates."""
    server: str = "flaim-server"
    """Name in the server's certificate."""
    key: str | None = None
    """SHA-256 of the server's public key, 64 hex digits, as in [[party]]."""
    address: Address | None = None
    """Address of the server. A trial on one machine makes its own."""
    clients: tuple[str, ...] = ()
    """Names in the clients' certificates."""
    client_keys: tuple[str, ...] = ()
    """SHA-256 of the clients' public keys, in their order. run.security = "malicious" relies on them where they are
    given.
    """

    def __post_init__(self) -> None:
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
    """[silos]: server and silos of an algorithm on rounds of exact sums, and limits of a sum."""

    KEY: ClassVar[str] = "silos"
    WHO: ClassVar[str] = "silos"
    TURN: ClassVar[str] = "sum"

    noise: str = field(default="server", metadata=one_of(FLAIM_NOISES))
    """Source of the noise: the server, or every silo its part."""
    minimum: int = field(default=FLAIM_MIN_CLIENTS, metadata=within(FLAIM_MIN_CLIENTS))
    """Least number of silos behind a sum."""
    corrupt: float = field(default=0.05, metadata=within(0, 0.9))
    """Fraction of a sum's silos that may be corrupt; one silo at least is taken for it."""
    dropouts: float = field(default=0.33, metadata=within(0, 0.9))
    """Fraction of a sum's silos that may drop out."""
    idle_s: float = field(default=3600.0, metadata=within(1, _MONTH_S))
    """Seconds of silence between sums that a silo tolerates."""
    server: str = "silos-server"
    """Name in the server's certificate."""
    key: str | None = None
    """SHA-256 of the server's public key, 64 hex digits, as in [[party]]."""
    address: Address | None = None
    """Address of the server. A trial on one machine makes its own."""
    clients: tuple[str, ...] = ()
    """Names in the silos' certificates."""
    client_keys: tuple[str, ...] = ()
    """SHA-256 of the silos' public keys, in their order. run.security = "malicious" relies on them where they are
    given.
    """

    def __post_init__(self) -> None:
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
    check_allowed(section, of)
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
