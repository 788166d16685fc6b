"""Ends of certificates: of a service, of its admin API, and of a study's server; with what renews each.

``service_certificates`` and ``run_certificates`` list them; ``check_valid`` refuses a start with one that has ended and
without which nobody gets in. A certificate ends soon ``SOON`` before. All values here are public.
"""

import contextlib
import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from parties.config import CertificateFiles
from parties.foundation.errors import CertificateError, CertificateExpired, PartyError
from parties.identity.tls import common_name, load_certificate
from parties.observability.events import Progress
from parties.service.events import EventName
from parties.service.identity import ServiceIdentity
from parties.service.rotation import announced
from parties.service.settings import AdminSection, load_settings
from parties.storage.files import disk_errors

SOON = datetime.timedelta(days=30)
SERVER, PEER, ADMIN, OPERATOR, AUTHORITY = "server", "peer", "admin", "operator", "authority"
"""Kinds of certificates."""
_READ_AGAIN_S = 60.0
_SAY_AGAIN_S = 86_400.0


@dataclass(frozen=True, slots=True)
class CertificateEnd:
    """End of a certificate of the ``kind``, for ``name``; ``renew`` is what renews it, in words."""

    kind: str
    name: str
    expires: datetime.datetime
    renew: str

    @property
    def left(self) -> datetime.timedelta:
        """Time until it ends, negative afterwards."""
        return self.expires - datetime.datetime.now(datetime.UTC)

    @property
    def ended(self) -> bool:
        """True if it is not valid any more."""
        return self.left < datetime.timedelta()

    def sentence(self) -> str:
        """Returns for people what ends when, and what renews it; "" while it does not end soon."""
        if self.left >= SOON:
            return ""
        when = f"{self.expires:%Y-%m-%d %H:%M} UTC"
        verb = "has ended on" if self.ended else f"ends in {max(0, self.left.days)} days, on"
        return (
            f"the certificate of {_KIND_TEXTS[self.kind]} {self.name} {verb} {when}: {self.renew}"
        )

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        state = "ended" if self.ended else ("soon" if self.left < SOON else "valid")
        return {
            "kind": self.kind,
            "name": self.name,
            "expires": self.expires.isoformat(timespec="seconds"),
            "left_s": round(self.left.total_seconds()),
            "state": state,
            "renew": self.renew,
            "text": self.sentence(),
        }


_KIND_TEXTS = {
    SERVER: "this server,",
    PEER: "the server",
    ADMIN: "the admin API of",
    OPERATOR: "the operator",
    AUTHORITY: "the study's authority,",
}


def service_certificates(identity: ServiceIdentity) -> list[CertificateEnd]:
    """Returns the ends of a service's certificates: the servers', and those of its admin API.

    Raises ConfigError, CertificateError, StoreError.
    """
    folder, own = identity.folder, identity.own
    found = [
        CertificateEnd(
            SERVER,
            own.name,
            load_certificate(identity.files.cert, "certificate").not_valid_after_utc,
            f"syncret certs renew server --dir {folder}",
        )
    ]
    for pid in identity.peers:
        server = identity.accepted(pid)[-1]
        renew = "its operator renews it there, with `syncret certs renew server`"
        found.append(
            CertificateEnd(PEER, server.name, server.certificate.not_valid_after_utc, renew)
        )
    return found + admin_certificates(folder, load_settings(folder).admin)


def admin_certificates(folder: Path, section: AdminSection) -> list[CertificateEnd]:
    """Returns the ends of the certificates of an admin API on the network: its own, and those that it lets in.

    Raises CertificateError, StoreError.
    """
    if section.address is None:
        return []
    own = load_certificate(folder / section.cert, "certificate")
    found = [
        CertificateEnd(
            ADMIN,
            section.address,
            own.not_valid_after_utc,
            f"syncret certs renew admin --dir {folder}",
        )
    ]
    allowed = section.fingerprints | section.reading
    for certificate in _certificates(folder / section.ca):
        if certificate.fingerprint(hashes.SHA256()).hex() in allowed:
            name = common_name(certificate, folder / section.ca)
            renew = f"syncret certs renew operator {name} --dir {folder}"
            found.append(CertificateEnd(OPERATOR, name, certificate.not_valid_after_utc, renew))
    return found


def run_certificates(tls: CertificateFiles | None) -> list[CertificateEnd]:
    """Returns the ends of the certificates that a study's server uses. Raises CertificateError."""
    if tls is None:
        return []
    cert, authority = (
        load_certificate(tls.cert, "certificate"),
        load_certificate(tls.ca, "authority"),
    )
    renew = "its coordinator makes a new study, with certificates for longer (--days)"
    return [
        CertificateEnd(SERVER, common_name(cert, tls.cert), cert.not_valid_after_utc, renew),
        CertificateEnd(
            AUTHORITY, common_name(authority, tls.ca), authority.not_valid_after_utc, renew
        ),
    ]


def _certificates(path: Path) -> list[x509.Certificate]:
    with disk_errors(path, "read"):
        data = path.read_bytes()
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise CertificateError(f"{path}: is not a file of certificates; expected PEM") from error


def check_valid(identity: ServiceIdentity) -> None:
    """Raises CertificateExpired if this server's certificate has ended, or one without which nobody gets in.

    A server whose certificate is renewed, and waits for the others to hear of it, may start: they know it by its key.
    """
    found = service_certificates(identity)
    pending = announced(identity)
    blocking = [
        end
        for end in found
        if end.ended and (end.kind == ADMIN or (end.kind == SERVER and pending is None))
    ]
    operators = [end for end in found if end.kind == OPERATOR]
    if operators and all(end.ended for end in operators):
        blocking += operators
    if blocking:
        said = "; ".join(end.sentence() for end in blocking)
        raise CertificateExpired(f"{said} (is this machine's clock right?)")


class CertificateWatch:
    """Ends of certificates from ``source``, read again once a minute.

    Each that ends soon is an event of the bus ``events``, once a day.
    """

    def __init__(
        self, source: Callable[[], Sequence[CertificateEnd]], events: Progress | None = None
    ) -> None:
        self._source = source
        self._events = events or Progress()
        self._found: list[CertificateEnd] = []
        self._read_at = self._said_at = -float("inf")

    def forget(self) -> None:
        """Has the certificates read again at the next question."""
        self._read_at = -float("inf")

    def all(self) -> list[CertificateEnd]:
        """Returns the ends; the last known ones where a file cannot be read."""
        now = time.monotonic()
        if now - self._read_at > _READ_AGAIN_S:
            self._read_at = now
            with contextlib.suppress(PartyError):
                self._found = list(self._source())
            self._say(now)
        return self._found

    def sentences(self) -> list[str]:
        """Returns a sentence for each certificate that ends soon, or has ended."""
        return [text for end in self.all() if (text := end.sentence())]

    def _say(self, now: float) -> None:
        ends = [(end, text) for end in self._found if (text := end.sentence())]
        if ends and now - self._said_at > _SAY_AGAIN_S:
            self._said_at = now
            for end, text in ends:
                left = round(end.left.total_seconds())
                self._events.event(
                    EventName.CERTIFICATE_ENDS, text, kind=end.kind, holder=end.name, left_s=left
                )
