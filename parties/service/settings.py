"""A server's own settings, in the file settings.toml of its folder; they may differ between servers."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from parties.config import Address
from parties.config.limits import check, check_number
from parties.foundation.errors import ConfigError
from parties.service.access import Access, Role
from parties.service.events import NOTICES
from parties.storage.files import disk_errors

FILE = "settings.toml"
_MAX_DAYS = 36_500
_CHANGEABLE = frozenset({"email", "preferred_username", "upn", "unique_name", "name", "nickname"})
"""Claims by which one person may be two subjects, one after the other."""
_FINGERPRINTS = ("clients", "readers")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_ENDPOINT = re.compile(r"https?://[^\s/]+(/\S*)?")
_WEBHOOK = re.compile(
    r"https://[A-Za-z0-9.-]+(:\d{1,5})?(/[!-~]*)?|https://\[[0-9a-fA-F:.]+\](:\d{1,5})?(/[!-~]*)?"
)
_MAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}")
_NOTIFY_LISTS = ("mail_to", "events")
_MAX_HOURS = 24 * 366


@dataclass(frozen=True, slots=True)
class KeepSection:
    """[keep]: number of days after a run's end for which its transcripts and results are kept; None: for ever."""

    transcripts_days: float | None = None
    results_days: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None:
                check_number(f"keep.{item.name}", value, low=0, high=_MAX_DAYS)


@dataclass(frozen=True, slots=True)
class OidcSection:
    """[admin.oidc]: identity provider by which browsers without a certificate sign in to the console.

    Attributes:
        issuer: The provider's issuer, exactly as in its metadata; over TLS, or on this host.
        client_id: Name of this console at the provider.
        secret_file: File with the client's secret.
        url: Address at which browsers find the admin port, such as https://alpha.example.org:7444.
        roles: Role by value of the claim ``role_claim``; the highest one counts, and none is no access.
        subject_claim: Claim that names a person for good, and that this person cannot change.
        scope: Scopes to ask for; the provider may need more of them to give the claims.
        session_hours: Time after which a reader signs in again.
        ca: PEM file with the issuers of the provider's certificate, if this host does not know them.
    """

    issuer: str
    client_id: str
    secret_file: str
    url: str
    roles: Mapping[str, Role]
    role_claim: str = "groups"
    subject_claim: str = "sub"
    scope: str = "openid"
    session_hours: float = 8.0
    ca: str | None = None

    def __post_init__(self) -> None:
        wanted = "expected an address over TLS, such as https://login.example.org/realms/hospital"
        ok = is_safe_url(self.issuer) and not set("?#") & set(self.issuer)
        check(ok, "admin.oidc.issuer", f"is {self.issuer!r}; {wanted}")
        ok = is_safe_url(self.url) and urlsplit(self.url).path in ("", "/")
        wanted = "expected the admin port's address, such as https://alpha.example.org:7444"
        check(ok, "admin.oidc.url", f"is {self.url!r}; {wanted}")
        scopes = self.scope.split()
        check("openid" in scopes, "admin.oidc.scope", f"is {self.scope!r}; expected openid in it")
        check(bool(self.roles), "admin.oidc.roles", "is empty; expected roles by the claim's value")
        check_number("admin.oidc.session_hours", self.session_hours, low=0.1, high=168)

    @property
    def callback(self) -> str:
        """Address of the console to which the provider sends browsers back."""
        return f"{self.url.rstrip('/')}/console/callback"


def is_safe_url(url: str) -> bool:
    """Returns true for an address over TLS, or of this host."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return False
    if parts.username is not None or not host:
        return False
    return parts.scheme == "https" or (
        parts.scheme == "http" and host in ("127.0.0.1", "::1", "localhost")
    )


@dataclass(frozen=True, slots=True)
class AdminSection:
    """[admin]: ``address`` of the admin API over HTTPS; None: not on the network.

    Attributes:
        clients: SHA-256 fingerprints (hex, with colons as in openssl or without) of certificates with full access.
        readers: Fingerprints of certificates with read access, such as Prometheus's.
        roles: Role of each client by the name in its certificate: viewer, operator or approver. Without the table every
            client is an approver; with it, one that it lacks is a viewer.
        oidc: Identity provider for browsers without a certificate; None: certificates alone.
        four_eyes: Two approvers have to approve a study here, and neither may have proposed it.
        people: Subjects of each person who has several, such as a certificate's name and ``oidc:`` with a subject of
            the identity provider. For ``four_eyes`` they are one.
        ca: PEM file with the issuers of these certificates, or with the certificates themselves.

    File names are relative to the server's folder; `syncret certs operator` makes the files.
    """

    address: str | None = None
    clients: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    cert: str = "admin/admin.crt"
    key: str = "admin/admin.key"
    ca: str = "admin/operators.pem"
    roles: tuple[tuple[str, Role], ...] | None = None
    four_eyes: bool = False
    people: tuple[tuple[str, tuple[str, ...]], ...] = ()
    oidc: OidcSection | None = None

    def __post_init__(self) -> None:
        if self.address is not None:
            try:
                Address.parse(self.address)
            except ValueError as error:
                text = f"is {self.address!r}; expected host:port, such as 127.0.0.1:7444"
                raise ConfigError("", "admin.address", text) from error
            wanted = "expected the fingerprints of the certificates that may ask, or readers"
            check(
                bool(self.clients or self.readers or self.oidc),
                "admin.clients",
                f"is empty; {wanted}",
            )
        if self.four_eyes and self.oidc is not None:
            claim = self.oidc.subject_claim
            check(
                claim not in _CHANGEABLE,
                "admin.oidc.subject_claim",
                f"is {claim!r}, which a person can change; expected sub, or oid, where four eyes are required",
            )
        seen: dict[str, str] = {}
        for person, subjects in self.people:
            for subject in subjects:
                text = f"has {subject!r}, as {seen.get(subject)} has; expected each subject once"
                check(subject not in seen, f"admin.people.{person}", text)
                seen[subject] = person
        for name in _FINGERPRINTS:
            for one in getattr(self, name):
                _check_fingerprint(f"admin.{name}", one)

    @property
    def persons(self) -> tuple[frozenset[str], ...]:
        """Subjects of each person in ``people``."""
        return tuple(frozenset(subjects) for _, subjects in self.people)

    def access(self) -> Access:
        """Returns the access to the admin API."""
        return Access(
            self.fingerprints,
            self.reading,
            None if self.roles is None else dict(self.roles),
            sign_in=self.oidc is not None,
        )

    @property
    def fingerprints(self) -> frozenset[str]:
        """``clients`` in lower case and without colons."""
        return frozenset(normalised_fingerprint(client) for client in self.clients)

    @property
    def reading(self) -> frozenset[str]:
        """``readers`` in lower case and without colons."""
        return frozenset(normalised_fingerprint(reader) for reader in self.readers)


def _check_fingerprint(key: str, value: str) -> None:
    wanted = "expected 64 hexadecimal digits, as of: openssl x509 -noout -fingerprint -sha256"
    check(
        _FINGERPRINT.fullmatch(normalised_fingerprint(value)) is not None,
        key,
        f"has {value!r}; {wanted}",
    )


def normalised_fingerprint(fingerprint: str) -> str:
    """Returns the fingerprint in lower case and without colons."""
    return fingerprint.replace(":", "").lower()


@dataclass(frozen=True, slots=True)
class TracesSection:
    """[traces]: endpoint for traces (OTLP over HTTP), such as http://127.0.0.1:4318/v1/traces; None: no traces.

    A service has the traces of its studies' processes sent there.
    """

    endpoint: str | None = None

    def __post_init__(self) -> None:
        # Processes have it on their command lines.
        at = "@" in (self.endpoint or "")
        text = "has a user in it; expected a URL without one, and OTEL_EXPORTER_OTLP_HEADERS for credentials"
        check(not at, "traces.endpoint", text)
        ok = self.endpoint is None or _ENDPOINT.fullmatch(self.endpoint)
        check(
            bool(ok),
            "traces.endpoint",
            f"is {self.endpoint!r}; expected a URL such as http://127.0.0.1:4318/v1/traces",
        )


@dataclass(frozen=True, slots=True)
class NotifySection:
    """[notify]: where the operator is notified (`parties.service.notify`); nowhere without ``url`` and ``smtp``.

    Attributes:
        url: Webhook, an https URL; None: no webhook.
        secret: File with the secret that webhooks are signed with, ``whsec_`` and base64.
        ca: PEM file with the only authorities of the webhook's server; None: those of the system.
        smtp: ``host:port`` of a mail server with STARTTLS; None: no mail.
        mail_from: Sender's address.
        mail_to: Recipients' addresses.
        smtp_user: Name to log in with; None: no login. The password is in the file ``smtp_password``.
        smtp_ca: As ``ca``, of the mail server.
        events: Names of the events to be notified of; empty: all of ``NOTICES``.
        owner_missing_hours: Hours before the closing from which missing data owners are an event.

    File names are relative to the server's folder; files with secrets have to be closed to other users.
    """

    url: str | None = None
    secret: str = "notify/webhook.secret"
    ca: str | None = None
    smtp: str | None = None
    mail_from: str | None = None
    mail_to: tuple[str, ...] = ()
    smtp_user: str | None = None
    smtp_password: str = "notify/smtp.password"
    smtp_ca: str | None = None
    events: tuple[str, ...] = ()
    owner_missing_hours: float = 72.0

    def __post_init__(self) -> None:
        if self.url is not None:
            text = "is no https URL without user and fragment; expected https://HOST/PATH"
            check(_WEBHOOK.fullmatch(self.url) is not None, "notify.url", text)
        if self.smtp is not None:
            try:
                Address.parse(self.smtp)
            except ValueError as error:
                text = f"is {self.smtp!r}; expected host:port, such as mail.example.org:587"
                raise ConfigError("", "notify.smtp", text) from error
            check(self.mail_from is not None, "notify.mail_from", "is missing; expected an address")
            check(bool(self.mail_to), "notify.mail_to", "is empty; expected addresses")
        for key, addresses in (("mail_from", [self.mail_from]), ("mail_to", self.mail_to)):
            for one in addresses:
                ok = one is None or _MAIL.fullmatch(one)
                check(bool(ok), f"notify.{key}", f"has {one!r}; expected name@host")
        for one in self.events:
            known = " or ".join(sorted(NOTICES))
            check(one in set(NOTICES), "notify.events", f"has {one!r}; expected {known}")
        hours = self.owner_missing_hours
        check_number("notify.owner_missing_hours", hours, low=0, high=_MAX_HOURS)

    def wants(self, event: str) -> bool:
        """Returns true if the operator is to be notified of this event."""
        return not self.events or event in self.events


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections of the settings."""

    keep: KeepSection = field(default_factory=KeepSection)
    admin: AdminSection = field(default_factory=AdminSection)
    traces: TracesSection = field(default_factory=TracesSection)
    notify: NotifySection = field(default_factory=NotifySection)


def load_settings(folder: Path) -> Settings:
    """Returns the settings of a server's folder, or the defaults without a file. Raises ConfigError, StoreError."""
    path = folder / FILE
    if not path.exists():
        return Settings()
    with disk_errors(path, "read"):
        text = path.read_bytes()
    try:
        return settings_of(tomllib.loads(text.decode()))
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), "", f"is not valid TOML: {error}") from error
    except ConfigError as error:
        message = str(error).removeprefix(f": {error.key}: ")
        raise ConfigError(str(path), error.key, message) from error.__cause__


def settings_of(document: Mapping[str, object]) -> Settings:
    """Returns the settings in a file's document. Raises ConfigError."""
    _check_keys(document, [item.name for item in fields(Settings)], "")
    keep = _table(document, "keep", KeepSection)
    for key, value in keep.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        check(number, f"keep.{key}", f"is {value!r}; expected a number of days")
    admin = _table(document, "admin", AdminSection)
    for key, value in list(admin.items()):
        if key in _FINGERPRINTS:
            texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
            check(texts, f"admin.{key}", f"is {value!r}; expected a list of fingerprints")
        elif key == "roles":
            admin[key] = tuple(_roles(value, "admin.roles").items())
        elif key == "people":
            admin[key] = _people(value)
        elif key == "oidc":
            admin[key] = _oidc(value)
        elif key == "four_eyes":
            check(
                isinstance(value, bool), "admin.four_eyes", f"is {value!r}; expected true or false"
            )
        else:
            check(isinstance(value, str), f"admin.{key}", f"is {value!r}; expected text")
    admin |= {key: tuple(admin.get(key, ())) for key in _FINGERPRINTS}
    traces = _table(document, "traces", TracesSection)
    for key, value in traces.items():
        check(isinstance(value, str), f"traces.{key}", f"is {value!r}; expected text")
    return Settings(
        KeepSection(**keep), AdminSection(**admin), TracesSection(**traces), _notify(document)
    )


def _notify(document: Mapping[str, object]) -> NotifySection:
    notify = _table(document, "notify", NotifySection)
    for key, value in notify.items():
        if key in _NOTIFY_LISTS:
            texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
            check(texts, f"notify.{key}", f"is {value!r}; expected a list of texts")
            notify[key] = tuple(value)
        elif key == "owner_missing_hours":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            check(number, f"notify.{key}", f"is {value!r}; expected a number of hours")
        else:
            check(isinstance(value, str), f"notify.{key}", f"is {value!r}; expected text")
    return NotifySection(**notify)


def _roles(value: object, key: str) -> dict[str, Role]:
    """Returns the roles of a table. Raises ConfigError."""
    names = [role.value for role in Role]
    check(isinstance(value, Mapping), key, f"is no table; expected names with {' or '.join(names)}")
    table = value if isinstance(value, Mapping) else {}
    for name, role in table.items():
        check(role in names, f"{key}.{name}", f"is {role!r}; expected {' or '.join(names)}")
    return {str(name): Role(role) for name, role in table.items()}


def _people(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Returns [admin.people]. Raises ConfigError."""
    wanted = 'expected their subjects, such as anna = ["anna", "oidc:8f2a"]'
    check(isinstance(value, Mapping), "admin.people", f"is no table; {wanted}")
    table = value if isinstance(value, Mapping) else {}
    for name, subjects in table.items():
        texts = isinstance(subjects, list) and all(isinstance(one, str) and one for one in subjects)
        check(texts, f"admin.people.{name}", f"is {subjects!r}; {wanted}")
    return tuple((str(name), tuple(subjects)) for name, subjects in table.items())


def _oidc(value: object) -> OidcSection:
    """Returns [admin.oidc]. Raises ConfigError."""
    table = _table({"oidc": value}, "oidc", OidcSection, before="admin.")
    for item in fields(OidcSection):
        key = f"admin.oidc.{item.name}"
        needed = item.default is MISSING
        check(
            item.name in table or not needed, key, "is missing; expected it, as in docs/console.md"
        )
        if item.name in table and item.name not in ("roles", "session_hours"):
            text = table[item.name]
            check(isinstance(text, str) and bool(text), key, f"is {text!r}; expected text")
    table["roles"] = _roles(table["roles"], "admin.oidc.roles")
    hours = table.get("session_hours", 8.0)
    number = isinstance(hours, int | float) and not isinstance(hours, bool)
    check(number, "admin.oidc.session_hours", f"is {hours!r}; expected a number of hours")
    return OidcSection(**table)


def _table(
    document: Mapping[str, object], name: str, section: type[Any], *, before: str = ""
) -> dict[str, Any]:
    table, key = document.get(name, {}), f"{before}{name}"
    check(isinstance(table, Mapping), key, f"is no table; expected [{key}]")
    values = dict(table) if isinstance(table, Mapping) else {}
    _check_keys(values, [item.name for item in fields(section)], f"{key}.")
    return values


def _check_keys(table: Mapping[str, object], allowed: list[str], before: str) -> None:
    for key in table:
        check(key in allowed, f"{before}{key}", f"is unknown; expected {' or '.join(allowed)}")
