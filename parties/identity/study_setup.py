"""Set-up of a study by its coordinator: the configuration with the servers' cards, and certificates for data owners.

The authority issues certificates for public keys of others, and sees no private key but its own. Its folder ``issued``
keeps all issued certificates: a data owner's name belongs to one key, and no name to both a server and an owner.
``create_study`` and ``issue_certificates`` never replace a file of those that they hand out.

Secret: the authority's private key. Public: everything else. Known limit: the coordinator verifies the origin of a card
or a request with its sender, by the fingerprint.
"""

import contextlib
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from parties.config import (
    Config,
    FlaimSection,
    SilosSection,
    apply_overrides,
    bound_text,
    load_config,
    named_files,
)
from parties.config.provenance import check_confirmed
from parties.foundation.errors import CertificateError, ConfigError, StoreError
from parties.foundation.untrusted_text import parse_toml
from parties.identity.join_documents import (
    JoinRequest,
    ServerCard,
    load_join_request,
    load_server_card,
    public_key,
)
from parties.identity.tls import Authority, is_for_servers, load_certificate, public_pem
from parties.storage.files import disk_errors, write_atomic, write_new
from protocols.mesh import key_hash

CERTIFICATES = "certificates"
"""Folder of a study's public certificates, beside its configuration."""
TLS = {
    "ca": f"{CERTIFICATES}/ca.crt",
    "cert": f"{CERTIFICATES}/{{name}}.crt",
    "key": "../tls/own.key",
}
"""Paths of [tls]. A study's folder is public and the same everywhere; private keys lie beside it."""
_ISSUED = "issued"
_SERVERS = 3
_HEADERS = {
    name: re.compile(rf"^[ \t]*\[[ \t]*{name}[ \t]*\][ \t]*(#[^\n]*)?\r?$", re.MULTILINE)
    for name in (FlaimSection.KEY, SilosSection.KEY)
}
"""Headers of the configuration's tables with a single server."""


def create_study(
    study: Path, cards: Sequence[Path], *, authority: Path, out: Path, valid_days: float
) -> Config:
    """Creates the folder ``out``: the configuration of ``study`` with the servers of ``cards``, and certificates.

    ``cards`` are three of compute servers, in the order of their numbers, or one of FLAIM's or the silos' server.
    Raises ConfigError, CertificateError, StoreError; ``out`` is then unchanged.
    """
    servers = _servers(cards)
    tables = _added_tables(study, servers)
    check_confirmed(load_config(study, tables))
    text = bound_text(_merged_text(study, tables), study).encode()
    issuer = Authority.load(authority)
    for server in servers:
        _check_issued(issuer, server, server=True)
    with new_folder(out) as folder:
        (folder / CERTIFICATES).mkdir()
        write_new(folder / study.name, text)
        for listed in named_files(study):
            with disk_errors(listed, "read"):
                write_new(folder / listed.name, listed.read_bytes())
        write_new(folder / CERTIFICATES / "ca.crt", public_pem(issuer.certificate))
        for server in servers:
            pem = _issue(issuer, server, server=True, valid_days=valid_days)
            write_new(folder / CERTIFICATES / f"{server.name}.crt", pem)
    return load_config(out / study.name)


def issue_certificates(
    requests: Sequence[Path], *, authority: Path, out: Path, valid_days: float
) -> dict[Path, JoinRequest]:
    """Issues a certificate for client use for all ``requests``, or for none: NAME.crt in the folder ``out``.

    An admitted owner may have another certificate for the same key. Raises CertificateError, StoreError.
    """
    issuer = Authority.load(authority)
    owners = [load_join_request(path) for path in requests]
    _all_different(requests, owners)
    made = {out / f"{owner.name}.crt": owner for owner in owners}
    for path, owner in made.items():
        if path.exists():
            raise CertificateError(f"{path}: exists already; expected another name or folder")
        _check_issued(issuer, owner, server=False)
    with disk_errors(out, "made"):
        out.mkdir(parents=True, exist_ok=True)
    for path, owner in made.items():
        write_new(path, _issue(issuer, owner, server=False, valid_days=valid_days))
    return made


def issue_certificate(request: JoinRequest, *, authority: Path, valid_days: float) -> bytes:
    """Issues a certificate for client use to one owner, and returns it (PEM). Raises as ``issue_certificates``."""
    issuer = Authority.load(authority)
    _check_issued(issuer, request, server=False)
    return _issue(issuer, request, server=False, valid_days=valid_days)


def _servers(paths: Sequence[Path]) -> list[ServerCard]:
    """Returns the cards of three compute servers or of FLAIM's. Raises CertificateError."""
    cards = [load_server_card(path) for path in paths]
    if len(cards) != (1 if any(card.of_flaim for card in cards) else _SERVERS):
        raise CertificateError(
            f"these are {len(cards)} cards: {', '.join(card.name for card in cards)}; expected three of compute "
            "servers, or one of FLAIM's server"
        )
    _all_different(paths, cards)
    return cards


def _all_different(paths: Sequence[Path], items: Sequence[JoinRequest]) -> None:
    """Raises CertificateError if two files share a name, a key or a sealing key."""
    for what in ("name", "key", "seal"):
        seen: dict[str, Path] = {}
        for path, item in zip(paths, items, strict=True):
            value = item.fields().get(what)
            if value in seen:
                raise CertificateError(
                    f"{path}: has the {what} of {seen[value]}, {value[:64]!r}; expected another"
                )
            if value is not None:
                seen[value] = path


def _added_tables(study: Path, servers: Sequence[ServerCard]) -> dict[str, object]:
    """Returns the cards' additions to a study, by dotted key.

    Raises ConfigError if the study has one of them already.
    """
    config = load_config(study)
    there: dict[str, object] = {"party": config.parties, "tls": config.tls}
    first = servers[0]
    added: dict[str, object] = {"tls": TLS}
    if first.of_flaim:
        name, text = config.federation_section, _table(study, config.federation_section)
        if text is None:
            raise ConfigError(str(study), name, f"is missing; expected [{name}] with the clients")
        there |= {f"{name}.{key}": text.get(key) for key in ("server", "address", "key")}
        end = str(first.ends["address"])
        added |= {f"{name}.server": first.name, f"{name}.address": end, f"{name}.key": first.key}
    else:
        added["party"] = [
            {
                "name": card.name,
                **{name: str(end) for name, end in card.ends.items()},
                "key": card.key,
                "seal": card.seal,
            }
            for card in servers
        ]
    if config.compute.dask:
        said = "is in a study for all servers; expected it in one server's own copy of the configuration"
        raise ConfigError(str(study), "compute.dask", said)
    for key, value in there.items():
        if value:
            raise ConfigError(str(study), key, "stands there already; expected it from the cards")
    return added


def _document(study: Path) -> tuple[str, dict[str, object]]:
    with disk_errors(study, "read"):
        text = study.read_bytes().decode()
    return text, parse_toml(text)


def _table(study: Path, name: str) -> Mapping[str, object] | None:
    table = _document(study)[1].get(name)
    return table if isinstance(table, dict) else None


def _merged_text(study: Path, tables: Mapping[str, object]) -> str:
    """Returns the study's text with the lines of ``tables`` added. Raises ConfigError if they do not fit in."""
    text, document = _document(study)
    for name, pattern in _HEADERS.items():
        start = f"{name}."
        own = {k.removeprefix(start): v for k, v in tables.items() if k.startswith(start)}
        if own and (header := pattern.search(text)):
            rest = text[header.end() :].removeprefix("\n")
            text = f"{text[: header.end()]}\n{_lines(own)}{rest}"
    text = f"{text.rstrip()}\n\n# From the servers' cards.\n"
    parties = tables.get("party", [])
    for table in parties if isinstance(parties, list) else []:
        text += f"[[party]]\n{_lines(table)}\n"
    text += f"[tls]\n{_lines(TLS)}"
    apply_overrides(document, tables)
    # Verifies the result: a multi-line string that looks like a table header would receive the lines.
    try:
        same = parse_toml(text) == document
    except ValueError:
        same = False
    if not same:
        raise ConfigError(
            str(study),
            "",
            "does not take the cards' lines; expected [flaim] or [silos] on a line of its own",
        )
    return text


def _lines(table: Mapping[str, object]) -> str:
    """Returns TOML lines; names, addresses and keys need no escapes."""
    return "".join(f'{key} = "{value}"\n' for key, value in table.items())


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder, which moves to ``path`` at the end if the block succeeds. Raises StoreError."""
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise StoreError(path, "is there already; expected the name of a new folder")
    beside = path.absolute()
    beside = beside.with_name(f".{beside.name}.{secrets.token_hex(4)}")
    with disk_errors(path, "made"):
        try:
            beside.mkdir(parents=True)
            yield beside
            beside.rename(path)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise


def _check_issued(issuer: Authority, asking: JoinRequest, *, server: bool) -> None:
    """Raises CertificateError for a name that the authority has given to another key, or for another use."""
    path = issuer.directory / _ISSUED / f"{asking.name}.crt"
    if not path.exists():
        return
    issued = load_certificate(path, "issued certificate")
    if is_for_servers(issued) != server:
        is_, wants = ("a server", "a data owner")[:: 1 if not server else -1]
        raise CertificateError(
            f"{asking.name!r} is the name of {is_}; expected another for {wants}"
        )
    # A server may change its key: the configuration then changes, and all sides compare it.
    if not server and key_hash(issued) != asking.key:
        raise CertificateError(
            f"{asking.name!r} is admitted already, with another key; expected another name"
        )


def _issue(issuer: Authority, asking: JoinRequest, *, server: bool, valid_days: float) -> bytes:
    """Returns a certificate for a checked name and key (PEM), and records it at the authority. Raises StoreError."""
    key = public_key(asking.public)
    certificate = issuer.issue(asking.name, key, server=server, valid_days=valid_days)
    pem, folder = public_pem(certificate), issuer.directory / _ISSUED
    with disk_errors(folder, "made"):
        folder.mkdir(exist_ok=True)
    write_atomic(folder / f"{asking.name}.crt", pem)
    return pem
