"""A whole configuration: sections that fit together, its agreed part, and conversion from TOML and back."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import tomli_w

from mechanisms.annealing import CENTRAL_ROUNDS
from mechanisms.column_parts import PRIVATE
from mechanisms.columns import private_of
from mechanisms.domain import Domain
from mechanisms.errors import DataError, MechanismError
from mechanisms.resolving import stand_in, unmeasured
from mechanisms.workload import Workload, draw_workload
from parties.config import parsing
from parties.config.limits import check
from parties.config.proxy import Proxy, proxy_for, read_login
from parties.config.schema import (
    ANNEALED,
    PERSON,
    CertificateFiles,
    ClientsSection,
    ComputeSection,
    FederationSection,
    FlaimSection,
    NetworkSection,
    PartySection,
    RefreshSection,
    RunSection,
    SilosSection,
    SingleServer,
    StudyServer,
    TimeoutsSection,
    TlsSection,
    WorkloadSection,
)
from parties.config.sources import SourceSection, check_sources, rows_of_unit
from parties.foundation.errors import ConfigError

SERVERS = 3
_OWN_SECTIONS = ("tls", "timeouts", "compute", "network")


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration of a run.

    ``parties`` is empty or has three entries. ``base`` is the folder that relative paths in [tls] start from.
    ``source`` names the configuration in errors.
    """

    run: RunSection
    workload: WorkloadSection
    clients: ClientsSection
    domain: Domain
    parties: tuple[PartySection, ...]
    tls: TlsSection | None
    timeouts: TimeoutsSection
    base: Path
    source: str = field(default="config", compare=False)
    flaim: FlaimSection | None = None
    compute: ComputeSection = field(default_factory=ComputeSection)
    network: NetworkSection = field(default_factory=NetworkSection)
    sources: tuple[SourceSection, ...] = ()
    silos: SilosSection | None = None
    algorithm: tuple[str, Mapping[str, object]] | None = None
    """Name and table of the algorithm between silos; the algorithm itself parses the table."""
    refresh: RefreshSection | None = None
    _digest: str = field(default="", init=False, repr=False, compare=False)
    """Digest, once somebody has asked for it."""

    def __post_init__(self) -> None:
        check_sources(self.sources, self.run, self.clients, self.domain)
        check(
            self.run.large_delta is True or self.run.delta < 1 / math.sqrt(self.max_rows),
            "run.delta",
            f"is {self.run.delta:g}, no less than 1 in the root of {self.max_rows:,} rows, and by itself would allow "
            "that many rows are published as they are; expected far less than 1 in the number of rows, or "
            "run.large_delta = true",
        )
        check(
            not (self.parties and self.sources) or all(source.owners for source in self.sources),
            "source.owners",
            "is missing; where [[party]] names servers, expected the owners of each source by name",
        )
        self._check_person()
        check(
            self.silos is None or not (self.flaim or self.parties),
            "silos",
            f"is there beside {'flaim' if self.flaim else 'party'}; expected one of them, whose servers owners meet",
        )
        check(
            self.refresh is None or not self.federation,
            "refresh",
            "is there beside flaim or silos; only DistAIM and central AIM start from an earlier model",
        )
        check(
            self.run.estimator is None or not (self.federation or self.refresh),
            "run.estimator",
            f"is {self.run.estimator!r} beside {'refresh' if self.refresh else 'flaim or silos'}; it fits models of "
            "DistAIM and central AIM, from nothing",
        )
        section = self.federation
        if section is not None:
            key = section.KEY
            expected, named = self.clients.expected, len(section.clients)
            check(
                named in (0, expected),
                f"{key}.clients",
                f"has {named} names; expected {expected}, as many as clients.expected",
            )
            check(
                not (named and self.clients.names)
                or set(self.clients.names) == set(section.clients),
                "clients.names",
                f"differs from {key}.clients; expected the same names, or one of the two lists",
            )
        check(
            len(self.parties) in (0, SERVERS),
            "party",
            f"stands {len(self.parties)} times; expected exactly {SERVERS} [[party]] tables",
        )
        annealed = CENTRAL_ROUNDS * len(self.domain.names)
        check(
            self.run.schedule != ANNEALED or self.run.rounds == annealed,
            "run.rounds",
            f'is {self.run.rounds} beside schedule = "{ANNEALED}", which has {annealed} at most (16 a column) and '
            "fewer as it goes; expected none",
        )
        keys = [party.key for party in self.parties]
        check(len(set(keys)) == len(keys), "party.key", f"repeats in {keys}; expected three")
        names = [party.name for party in self.parties]
        check(len(set(names)) == len(names), "party.name", f"repeats in {names}; expected three")
        ends = [str(end) for party in self.parties for end in (party.mesh, party.ingest)]
        check(len(set(ends)) == len(ends), "party", f"addresses repeat in {ends}; expected six")

    @property
    def max_rows(self) -> int:
        """Public bound on the rows of the whole table."""
        return self.clients.max_rows

    @property
    def federation(self) -> FederationSection | None:
        """Section of a run with one server, [silos] or [flaim]; None for a run with compute servers alone."""
        return self.silos or self.flaim

    @property
    def owners(self) -> frozenset[str]:
        """Names of the data owners that may take part; empty where every owner with a certificate may."""
        section = self.federation
        return frozenset(self.clients.names or (section.clients if section is not None else ()))

    @property
    def rows_of_unit(self) -> int:
        """Maximum number of rows of the whole table that one unit of privacy (run.unit) counts for."""
        return rows_of_unit(self.sources, self.run)

    def source_of(self, owner: str) -> int:
        """Returns the number of the source that ``owner`` has a table of.

        Raises ConfigError if no source lists the owner.
        """
        for number, source in enumerate(self.sources):
            if owner in source.owners:
                return number
        raise ConfigError(
            self.source,
            "source.owners",
            f"has no {owner!r}; expected every data owner in the source whose columns it has",
        )

    def _check_person(self) -> None:
        """Raises ConfigError for a person's key (run.person) that no owner's program could go by."""
        if self.run.person is None:
            return
        check(
            self.run.unit == PERSON and not self.sources and bool(self.run.person),
            "run.person",
            f"is {list(self.run.person)}; expected columns, beside unit = {PERSON!r} and without [[source]] tables",
        )
        modelled = [name for name in self.run.person if name not in self.domain.ignore]
        check(
            not modelled,
            "run.person",
            f"has {', '.join(map(repr, modelled))}; expected columns that ignore lists, since a key is not modelled",
        )

    def resolved(self, domain: Domain) -> "Config":
        """Returns a copy with ``domain``, whose private bins are measured; the parties agree on the original config."""
        return replace(self, domain=domain)

    def check_bins(self) -> None:
        """Raises ConfigError for private bins still to be measured; for methods that do not measure bins."""
        self.check_bounds()
        if private := unmeasured(self.domain):
            raise ConfigError(
                self.source,
                "column.bins",
                f'is "{PRIVATE}" in column {self.domain.names[private[0]]!r}, which DistAIM and central AIM '
                "measure and FLAIM does not; expected a number of bins, or edges",
            )

    def check_bounds(self) -> None:
        """Raises ConfigError for private values still to be measured; for methods without round 0's noisy counts."""
        for position in unmeasured(self.domain):
            private = private_of(self.domain.columns[position])
            if private is not None and private.free:
                raise ConfigError(
                    self.source,
                    "column.values",
                    f'is "{PRIVATE}" in column {self.domain.names[position]!r}, which DistAIM and central AIM measure '
                    "and other methods do not; expected low and high, or categories",
                )

    def check_rows(self, rows: int, capacity: int | None = None) -> None:
        """Raises DataError if a table has more rows than its owner's ``capacity``, or by default than the agreed bound.

        The owner's own program calls this before it counts or sends anything. An owner's participation therefore
        reveals about its table only that the table is not larger than the agreed bound, or than the capacity that the
        owner declared. A table may have no rows.
        """
        bound, where = self.clients.rows_per_client, f"clients.rows_per_client in {self.source}"
        if capacity is not None:
            bound, where = (
                capacity,
                "its capacity, which is to be chosen without looking at the data",
            )
        if rows > bound:
            raise DataError(f"the table has {rows} rows; expected at most {bound} ({where})")

    def require_parties(self) -> tuple[PartySection, ...]:
        """Returns the three parties. Raises ConfigError if the config has none."""
        if not self.parties:
            one = f"; [{self.federation_section}] is of a run with one server"
            raise ConfigError(
                self.source,
                "party",
                "is missing; expected three [[party]] tables: name, mesh, ingest, key, seal"
                + (one if self.federation else ""),
            )
        return self.parties

    def require_servers(self) -> tuple[StudyServer, ...]:
        """Returns the servers as owners reach them: the three parties, or the one server of a federation.

        Raises ConfigError if the config has none.
        """
        if self.parties or self.federation is None:
            return self.require_parties()
        section = self.require_federation()
        if section.address is None:
            raise RuntimeError("the config was checked for an address")
        return (SingleServer(section.server, section.address, section.pinned),)

    def require_flaim(self) -> FlaimSection:
        """Returns [flaim] with address, server's key and clients' names. Raises ConfigError if one is missing."""
        if self.silos is not None:
            raise ConfigError(
                self.source,
                "silos",
                "is there, of a run between silos; expected one of FLAIM",
            )
        self._check_federation("flaim", self.flaim)
        return self.flaim  # type: ignore[return-value]

    def require_federation(self) -> FederationSection:
        """Returns [silos] if there is one, else [flaim], with address, key and names.

        Raises ConfigError if one is missing.
        """
        if self.silos is None:
            return self.require_flaim()
        self._check_federation("silos", self.silos)
        return self.silos

    @property
    def federation_section(self) -> str:
        """Name of the section that ``require_federation`` returns."""
        return "flaim" if self.silos is None else "silos"

    def _check_federation(self, name: str, section: FederationSection | None) -> None:
        for key in ("address", "key", "clients"):
            if not getattr(section, key, None):
                raise ConfigError(
                    self.source,
                    f"{name}.{key}",
                    f"is missing; expected a [{name}] table with address (host:port of the server), key (the hash of "
                    "its public key, from its card) and clients (the names in their certificates)",
                )

    def require_tls(self, pid: int | None = None, name: str | None = None) -> CertificateFiles:
        """Returns the certificate files of server ``pid``, of FLAIM's server ``name``, or (neither) of a data owner.

        Raises ConfigError if there are none.
        """
        if self.tls is None:
            raise ConfigError(
                self.source, "tls", "is missing; expected ca, cert and key (PEM files)"
            )
        if pid is not None and self.parties:
            name = self.parties[pid].name
        return self.tls.files(self.base, pid, name)

    def build_workload(self) -> Workload:
        """Returns the workload that [workload] describes. Raises ConfigError if it does not fit the domain.

        Columns whose private bins are still to be measured have their maximum number of cells.
        """
        section, domain = self.workload, stand_in(self.domain)
        try:
            if section.queries is not None:
                return Workload(domain, section.queries, section.target)
            return draw_workload(
                domain,
                degree=section.degree,
                count=section.count,
                seed=section.seed,
                targets=section.target,
            )
        except MechanismError as error:
            raise ConfigError(self.source, "workload", str(error)) from error

    def to_dict(self) -> dict[str, object]:
        """Returns the TOML document as a dictionary, with every default filled in and absolute [tls] paths."""
        document: dict[str, object] = {
            "run": parsing.section_dict(self.run),
            "workload": parsing.workload_dict(self.workload),
            "clients": parsing.clients_dict(self.clients),
            "timeouts": parsing.section_dict(self.timeouts),
            "compute": parsing.section_dict(self.compute),
        }
        if self.network != NetworkSection():
            document["network"] = self._network()
        if self.tls is not None:
            paths = {item.name: getattr(self.tls, item.name) for item in fields(self.tls)}
            document["tls"] = {
                key: str((self.base / path).absolute()) for key, path in paths.items()
            }
        if self.refresh is not None:
            document["refresh"] = self._refresh()
        if self.sources:
            document["source"] = [parsing.source_dict(source) for source in self.sources]
        document |= self.domain.to_dict()
        if self.flaim is not None:
            document["flaim"] = parsing.federation_dict(self.flaim)
        if self.silos is not None and self.algorithm is not None:
            document["silos"] = parsing.federation_dict(self.silos)
            document[self.algorithm[0]] = dict(self.algorithm[1])
        if self.parties:
            document["party"] = [
                {
                    "name": party.name,
                    "mesh": str(party.mesh),
                    "ingest": str(party.ingest),
                    "key": party.key,
                    "seal": party.seal,
                }
                for party in self.parties
            ]
        return document

    def resolved_toml(self) -> str:
        """Returns the config as TOML with every default filled in; loads to an equal Config from any folder."""
        return tomli_w.dumps(self.to_dict())

    def digest(self) -> str:
        """Returns the hex SHA-256 of ``agreed``."""
        if not self._digest:
            object.__setattr__(self, "_digest", agreed_digest(self.agreed()))
        return self._digest

    def agreed(self) -> dict[str, object]:
        """Returns the values that all parties agree on.

        These are all but addresses, [tls], [timeouts], [compute], [network] and record_replay, ``idle_s`` of a
        federation, and the path of an earlier model.
        """
        document = self.to_dict()
        agreed = {key: value for key, value in document.items() if key not in _OWN_SECTIONS}
        run = parsing.section_dict(self.run)
        agreed["run"] = {key: value for key, value in run.items() if key != "record_replay"}
        if self.refresh is not None:
            agreed["refresh"] = {"digest": self.refresh.digest}
        agreed["party"] = [
            {"name": party.name, "key": party.key, "seal": party.seal} for party in self.parties
        ]
        if (section := self.federation) is not None:
            table = parsing.federation_dict(section)
            agreed[section.KEY] = {k: v for k, v in table.items() if k not in ("address", "idle_s")}
        return agreed

    def _refresh(self) -> dict[str, object]:
        """Returns [refresh], with an absolute path."""
        table = parsing.section_dict(self.refresh)
        if "model" in table:
            table["model"] = str((self.base / str(table["model"])).absolute())
        return table

    def _network(self) -> dict[str, object]:
        """Returns [network], with an absolute path."""
        login = self.network.proxy_login
        path = str((self.base / login).absolute()) if login else ""
        return {"proxy": self.network.proxy, "proxy_login": path}

    def proxy_to(self, host: str) -> Proxy | None:
        """Returns the proxy on a participant's way to ``host``, or None.

        Raises ConfigError: no proxy's URL, in [network] or in the environment, or a file without a login.
        """
        login, path = "", self.network.proxy_login
        if path:
            login = read_login(self.base / path, "network.proxy_login")
        return proxy_for(host, named=self.network.proxy, login=login)

    def override(self, values: Mapping[str, object]) -> "Config":
        """Returns a copy with other values by dotted key ("run.rounds", "party"); None removes a key.

        Raises ConfigError.
        """
        document = self.to_dict()
        apply_overrides(document, values)
        return config_from_dict(document, source=self.source, base=self.base)


def agreed_digest(agreed: Mapping[str, object]) -> str:
    """Returns the hex SHA-256 of the canonical JSON of ``agreed``, the result of ``Config.agreed``."""
    canonical = json.dumps(agreed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(b"syncret config 1\n" + canonical.encode()).hexdigest()


def apply_overrides(document: dict[str, object], values: Mapping[str, object]) -> None:
    """Sets ``values`` by dotted key in a TOML ``document``; None removes the key.

    Raises ConfigError if a section of ``document`` is not a table.
    """
    for key, value in values.items():
        section, _, name = key.partition(".")
        table = document.setdefault(section, {}) if name else document
        if not isinstance(table, dict):
            raise ConfigError("overrides", key, f"[{section}] is not a table")
        if value is None:
            table.pop(name or section, None)
        else:
            table[name or section] = value


def config_from_dict(document: Mapping[str, object], *, source: str, base: Path) -> Config:
    """Returns a checked Config from a TOML document; ``source`` names the document in errors. Raises ConfigError."""
    try:
        parsing.check_sections(document)
        return Config(
            run=parsing.read_run(document),
            workload=parsing.read_workload(document),
            clients=parsing.read_clients(document),
            domain=parsing.read_domain(document),
            parties=parsing.read_parties(document),
            tls=parsing.read_tls(document),
            timeouts=parsing.read_timeouts(document),
            base=base,
            source=source,
            flaim=parsing.read_flaim(document),
            compute=parsing.read_compute(document),
            network=parsing.read_network(document),
            sources=parsing.read_sources(document),
            silos=parsing.read_silos(document),
            algorithm=parsing.read_algorithm(document),
            refresh=parsing.read_refresh(document),
        )
    except ConfigError as error:
        if error.source:
            raise
        message = str(error).removeprefix(f": {error.key}: ")
        raise ConfigError(source, error.key, message) from error.__cause__
