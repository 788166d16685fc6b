"""Invitations to a study: one public file that is all a data owner is handed.

An invitation has the configuration, which pins the servers' keys and has their addresses, and the certificates of the
study's authority and servers. ``accept_invitation`` makes the study's folder of it, as a coordinator would send one.
An invitation is untrusted input: its size is bounded, settings that are each participant's own ([tls], [compute],
[network]) are not taken over, and its digest has to be the configuration's. People compare the digest's words with two
operators: whoever made another configuration of it is found by that, and another certificate of a server by its key.

Secret: nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from mechanisms.errors import MechanismError
from parties.config import Config, config_from_dict, load_config
from parties.config.provenance import check_confirmed
from parties.foundation.errors import CertificateError, ConfigError, StoreError
from parties.foundation.untrusted_text import parse_toml
from parties.identity.study_certificates import checked_certificates
from parties.identity.study_setup import CERTIFICATES, TLS, new_folder
from parties.identity.tls import check_subject
from parties.storage.files import disk_errors, write_new

SUFFIX = ".invitation"
VERSION = 1
MAX_BYTES = 1 << 23
_KEY = "invitation"
_OWN = {"tls": None, "compute": None, "network": None}
"""Overrides that remove the sections that are each participant's own."""
_COMMENT = "# An invitation to a study. Nothing in it is secret. Hear the study's words from two operators.\n"


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation to the study of ``config``; ``owner`` is the name that the coordinator proposes, or empty.

    ``certificates`` are PEM texts by file name.
    """

    config: Config
    certificates: Mapping[str, str]
    owner: str = ""

    def text(self) -> str:
        """Content of the file."""
        document: dict[str, object] = {
            _KEY: VERSION,
            "run": self.config.run.id,
            "digest": self.config.digest(),
            **({"owner": self.owner} if self.owner else {}),
            "config": _study_text(self.config),
            "certificates": dict(self.certificates),
        }
        return _COMMENT + tomli_w.dumps(document, multiline_strings=True)


def make_invitation(path: Path, owner: str = "") -> Invitation:
    """Returns an invitation to the study whose configuration is the file ``path`` in the study's folder.

    Raises ConfigError, CertificateError, StoreError.
    """
    config = load_config(path)
    check_confirmed(config)
    if owner:
        check_subject(owner)
    texts = {}
    for name in ["ca", *(server.name for server in config.require_servers())]:
        certificate = path.resolve().parent / CERTIFICATES / f"{name}.crt"
        with disk_errors(certificate, "read"):
            texts[certificate.name] = certificate.read_text(encoding="ascii", errors="replace")
    return Invitation(config, checked_certificates(config, texts), owner)


def load_invitation(path: Path) -> Invitation:
    """Returns the invitation in a file. Raises as ``parse_invitation``, and ConfigError for a file of another kind."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            str(path), "", f"cannot be read: {error.strerror or error}; expected an invitation"
        ) from error
    return parse_invitation(data, str(path))


def parse_invitation(data: bytes, source: str) -> Invitation:
    """Returns the invitation of a file's bytes; errors call it ``source``. Raises ConfigError, CertificateError."""
    if len(data) > MAX_BYTES:
        raise ConfigError(source, "", f"has more than {MAX_BYTES} bytes; expected an invitation")
    try:
        document = parse_toml(data.decode())
    except ValueError as error:
        raise ConfigError(source, "", "is damaged, or no invitation: not valid TOML") from error
    match document:
        case {
            "invitation": int() as version,
            "digest": str() as digest,
            "config": str() as text,
            "certificates": dict() as certificates,
        }:
            pass
        case _:
            raise ConfigError(source, "", "is no invitation; expected what `study invite` made")
    if version != VERSION or isinstance(version, bool):
        raise ConfigError(source, _KEY, f"is {version}; expected {VERSION}, this version's")
    owner = document.get("owner", "")
    if not isinstance(owner, str):
        raise ConfigError(source, "owner", "is no text; expected a data owner's name")
    if owner:
        check_subject(owner)
    try:
        config = _config_of(text, source)
        texts = {str(name): str(value) for name, value in certificates.items()}
        kept = checked_certificates(config, texts)
    except MechanismError as error:
        raise ConfigError(source, "config", str(error)) from error
    except CertificateError as error:
        raise CertificateError(f"{source}: {error}") from error
    if config.digest() != digest:
        raise ConfigError(
            source,
            "digest",
            "is not the one of its configuration: the file was changed; expected it as it was made",
        )
    return Invitation(config, kept, owner)


def accept_invitation(invitation: Invitation, within: Path) -> Path:
    """Returns the configuration's path in the study's folder, which is made below ``within`` if it is not there.

    The folder is called as the run. Raises StoreError if there is one of another study.
    """
    config = invitation.config
    folder = within / config.run.id
    path = folder / f"{config.run.id}.toml"
    if path.exists():
        if load_config(path).digest() != config.digest():
            raise StoreError(
                folder, "is of another study of this name; expected another folder to work in"
            )
        return path
    with new_folder(folder) as made:
        (made / CERTIFICATES).mkdir()
        write_new(made / path.name, _study_text(config).encode())
        for name, text in invitation.certificates.items():
            write_new(made / CERTIFICATES / name, text.encode())
    return path


def _config_of(text: str, source: str) -> Config:
    """Returns the configuration without sections that are a participant's own. Raises ConfigError."""
    try:
        document = parse_toml(text)
    except ValueError as error:
        raise ConfigError(source, "config", "is not valid TOML") from error
    kept = {key: value for key, value in document.items() if key not in _OWN}
    config = config_from_dict(kept, source=f"{source}: config", base=Path())
    check_confirmed(config)
    config.require_servers()
    return config


def _study_text(config: Config) -> str:
    """Returns the configuration as a study's folder has it."""
    own: dict[str, object] = {**_OWN}
    if config.refresh is not None:
        # Owners need no earlier model: its digest is agreed on, and its files come with the result.
        own["refresh.model"] = None
    return tomli_w.dumps(config.override(own).to_dict() | {"tls": TLS})
