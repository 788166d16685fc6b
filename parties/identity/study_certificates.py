"""Certificates of a study's authority and servers, as texts from outside: of a proposal, or of an invitation.

Secret: nothing. The texts are untrusted until ``checked_certificates`` has returned them.
"""

from collections.abc import Mapping

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from parties.config import Config
from parties.foundation.errors import CertificateError
from parties.foundation.untrusted_text import certificate_from_pem
from parties.identity.tls import common_name
from protocols.mesh import key_hash

AUTHORITY_FILE = "ca.crt"


def checked_certificates(config: Config, texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the valid certificates of the authority and the pinned servers, by file name. Raises CertificateError."""
    authority = _certificate(texts, AUTHORITY_FILE)
    kept = [AUTHORITY_FILE]
    for pinned in [server.pinned for server in config.require_servers()]:
        name = f"{pinned.name}.crt"
        certificate = _certificate(texts, name)
        other = pinned.other_than(common_name(certificate, name), key_hash(certificate))
        if other is not None:
            raise CertificateError(f"{name}: {other}")
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise CertificateError(
                f"{name}: not issued by {AUTHORITY_FILE}; expected it from the study's authority"
            ) from error
        kept.append(name)
    return {name: texts[name] for name in kept}


def _certificate(texts: Mapping[str, str], name: str) -> x509.Certificate:
    try:
        return certificate_from_pem(texts[name].encode())
    except KeyError as error:
        raise CertificateError(f"{name}: is not among the certificates") from error
    except ValueError as error:
        raise CertificateError(f"{name}: is not an X.509 certificate; expected PEM") from error
