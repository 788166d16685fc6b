"""A study as commands of data owners take it: its configuration, or an invitation as a file or at a URL.

An invitation's URL ends in # and the study's digest, so that nobody on the way, nor who serves it, replaces the
configuration. The study's folder is made where the command runs, which has the owner's keys, too.
"""

import re
import time
from pathlib import Path

import click

from mechanisms.text_table import and_list
from parties.cli.runtime import command_progress, run_supervised
from parties.config import Config, load_config
from parties.foundation.errors import CertificateError, ConfigError
from parties.identity.invitation import (
    MAX_BYTES,
    SUFFIX,
    Invitation,
    accept_invitation,
    load_invitation,
    parse_invitation,
)
from parties.identity.join_documents import fingerprint_lines, make_admission_request
from parties.identity.listed_owners import listed_owners, unlisted_problem
from parties.identity.study_setup import CERTIFICATES
from parties.identity.tls import own_certificate
from parties.local.processes import Supervision
from parties.mpc.submission.admission import await_admission
from parties.storage.files import write_atomic

_URL = "https://"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FETCH_S = 60.0
_CHUNK = 1 << 16
_MOST_NAMES = 40


def is_invitation(study: str) -> bool:
    """True if ``study`` names an invitation, and no configuration."""
    return study.startswith(_URL) or study.endswith(SUFFIX)


def open_invitation(study: str) -> Invitation:
    """Returns the invitation in the file, or at the URL, ``study``. Raises ConfigError, CertificateError."""
    if not study.startswith(_URL):
        return load_invitation(Path(study))
    url, _, digest = study.partition("#")
    if _DIGEST.fullmatch(digest) is None:
        raise ConfigError(
            url, "", "has no digest; expected the invitation's URL with # and the study's 64 digits"
        )
    found = parse_invitation(_fetched(url), url)
    if found.config.digest() != digest:
        raise ConfigError(
            url, "digest", f"is {found.config.digest()}; expected {digest}, as the URL has it"
        )
    return found


def study_path(study: str) -> Path:
    """Returns the configuration's path; of an invitation, in the study's folder, which is made if it is not there.

    Raises ConfigError, CertificateError, StoreError.
    """
    if not is_invitation(study):
        return Path(study)
    return accept_invitation(open_invitation(study), Path())


def open_study(study: str) -> Config:
    """Returns the configuration of a study. Raises as ``study_path``."""
    return load_config(study_path(study))


def is_admitted(path: Path) -> bool:
    """True if the study's folder of the configuration ``path`` has a certificate of the owner's key."""
    try:
        own_certificate(load_config(path).require_tls())
    except CertificateError:
        return False
    return True


def ensure_admitted(path: Path, name: str, *, wait_s: float) -> None:
    """Makes the owner's key, asks the servers to be admitted as ``name``, and keeps the certificate when it comes.

    Does nothing where the certificate is there. Raises NotYet, NotAdmitted, ConfigError, CertificateError, StoreError.
    """
    if is_admitted(path):
        return
    config, progress = load_config(path), command_progress()
    if name in [server.name for server in config.require_servers()]:
        raise CertificateError(f"{name!r} is the name of a server; expected another for an owner")
    listed = listed_owners(config)
    if listed and name not in listed:
        raise CertificateError(
            f"{unlisted_problem(listed, name, '')}; expected one of {and_list(list(listed)[:_MOST_NAMES])}"
        )
    keys = config.require_tls().key.parent
    request, text = make_admission_request(name, config.digest(), keys=keys)
    if problem := unlisted_problem(listed, name, request.key):
        raise CertificateError(
            f"{keys}: {problem}; expected the key whose request you sent before the study was made"
        )
    lines = [
        f"{name} asks to be admitted to {config.run.id}. Read these words to the study's coordinator, by telephone:",
        *fingerprint_lines(request.key),
    ]
    click.echo("\n".join(lines), err=True)

    async def ask(supervision: Supervision) -> str:
        return await await_admission(config, request, text, wait_s=wait_s, progress=progress)

    certificate = run_supervised(ask, watch_stdin=False, events=None)
    write_atomic(path.parent / CERTIFICATES / f"{name}.crt", certificate)
    click.echo(f"{name} is admitted", err=True)


def _fetched(url: str) -> bytes:
    """Returns what is at the URL, and nowhere else: no redirect is followed. Raises ConfigError."""
    # Local imports: they take longer than the rest of a command.
    import http.client
    import urllib.error
    import urllib.request

    class Stays(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            raise urllib.error.URLError("it redirects to another address")

    data, end = bytearray(), time.monotonic() + _FETCH_S
    try:
        with urllib.request.build_opener(Stays).open(url, timeout=_FETCH_S) as answer:
            while len(data) <= MAX_BYTES and (piece := answer.read1(_CHUNK)):
                data += piece
                if time.monotonic() > end:
                    raise TimeoutError(f"it took more than {_FETCH_S:.0f} s")
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            url, "", f"cannot be fetched: {reason}; expected an invitation there, or its file"
        ) from error
    return bytes(data)
