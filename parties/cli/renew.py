"""Commands `certs renew`: new certificates in place of those that end, for the keys that stay pinned."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parties.cli.options import authority_option, days_option, folder_option
from parties.cli.runtime import common_options, print_json, print_lines, say
from parties.identity.join_documents import fingerprint_lines, fingerprint_words
from parties.identity.tls import (
    Authority,
    authority_digest,
    common_name,
    load_certificate,
    public_pem,
)
from parties.service.identity import ServiceIdentity
from parties.service.rotation import announce, finish_activation
from parties.storage.files import write_atomic
from protocols.mesh import key_hash

if TYPE_CHECKING:
    from parties.service.admin_listener import OperatorFiles

_PATH = click.Path(path_type=Path)
_SERVER_DAYS, _AUTHORITY_DAYS = 3_650, 3_650


@click.group(epilog="Example: syncret certs renew server --dir /var/lib/syncret")
def renew() -> None:
    """Make a new certificate in place of one that ends; `syncret status` and the console say 30 days before.

    Keys of servers, owners and the authority stay, and with them their words; only an operator's key is made anew. For
    another key of a server: `syncret serve rotate`.
    """


@renew.command(
    short_help="A server's certificate among the three.",
    epilog="Example: syncret certs renew server --dir /var/lib/syncret",
)
@days_option(_SERVER_DAYS)
@folder_option
@common_options
def server(days: float, folder: Path, *, as_json: bool) -> None:
    """On a server's host: make its certificate among the three servers anew, for the same key.

    The service tells the two others, which know the key: nobody has to compare or hand over anything. Until both have
    heard of it the certificate before stays at work.
    """
    finish_activation(folder)
    made = announce(ServiceIdentity.load(folder), new_key=False, days=days)
    end = made.server.certificate.not_valid_after_utc
    if as_json:
        print_json({"name": made.server.name, "expires": end.isoformat(timespec="seconds")})
        return
    say(
        f"{made.server.name}: a certificate until {end:%Y-%m-%d}, of the same key. The service uses it once "
        "the two others have heard of it, which takes seconds while all three run."
    )


@renew.command(
    short_help="The certificate of the admin API over HTTPS.",
    epilog="Example: syncret certs renew admin --dir /var/lib/syncret",
)
@days_option(365)
@folder_option
@common_options
def admin(days: float, folder: Path, *, as_json: bool) -> None:
    """On a server's host: make the certificate of its admin API anew, for the same key and hosts.

    It is at work once a running server has read it (systemctl reload, or SIGHUP). Give admin/admin.crt to Prometheus
    and to whoever else knows the server by it.
    """
    from parties.service.admin_listener import renew_admin

    end = renew_admin(folder, days=days).not_valid_after_utc
    if as_json:
        print_json({"expires": end.isoformat(timespec="seconds")})
        return
    say(
        f"{folder / 'admin' / 'admin.crt'}: until {end:%Y-%m-%d}. A running server takes it by: systemctl reload "
        "syncret. Give the file to Prometheus and to all who know the server by it."
    )


@renew.command(
    short_help="An operator's key and certificate for the admin API.",
    epilog="Example: syncret certs renew operator anna --dir /var/lib/syncret",
)
@click.argument("name")
@days_option(365)
@folder_option
@common_options
def operator(name: str, days: float, folder: Path, *, as_json: bool) -> None:
    """On a server's host: make NAME's key and certificate for the admin API anew.

    Its fingerprint replaces the one before in settings.toml. Once a running server has read it (systemctl reload, or
    SIGHUP) the new one is let in, and the one before no more.
    """
    from parties.service.admin_listener import renew_operator

    password = secrets.token_urlsafe(12)
    made = renew_operator(folder, name, days=days, password=password)
    if as_json:
        print_operator(made, name, password)
        return
    print_lines([f"{name}: {made.fingerprint}"])
    say(
        f"The fingerprint is in {folder / 'settings.toml'} where the one before was; a running server takes it by: "
        f"systemctl reload syncret. Take {made.key} and {made.bundle} to {name}, and delete them here. {made.bundle} "
        f"has the password {password}"
    )


def print_operator(made: "OperatorFiles", name: str, password: str) -> None:
    """Prints an operator's new files as JSON."""
    paths = {key: str(getattr(made, key)) for key in ("cert", "key", "bundle")}
    print_json({"name": name, "fingerprint": made.fingerprint, **paths, "password": password})


@renew.command(
    short_help="The coordinator: a data owner's certificate.",
    epilog="Example: syncret certs renew owner certs/north.crt",
)
@click.argument("certificates", type=_PATH, nargs=-1, required=True)
@authority_option
@days_option(365)
@common_options
def owner(certificates: tuple[Path, ...], authority: Path, days: float, *, as_json: bool) -> None:
    """At the coordinator: make data owners' CERTIFICATES anew, for the same names and keys.

    Each file is replaced; give it to its owner, who puts it in the place of the one before. The owner's key and words,
    its charges and its submissions stay. An owner that was admitted through the servers is admitted there again:
    `syncret study admit`, with the same words.
    """
    issuer = Authority.load(authority)
    made = []
    for path in certificates:
        found = load_certificate(path, "certificate")
        made.append((path, issuer.renewed(found, path, days)))
    for path, certificate in made:
        write_atomic(path, public_pem(certificate))
    if as_json:
        ends = {str(path): each.not_valid_after_utc.isoformat() for path, each in made}
        print_json({"renewed": ends})
        return
    for path, certificate in made:
        print_lines([common_name(certificate, path), *fingerprint_lines(key_hash(certificate))])
    say(f"{', '.join(str(path) for path, _ in made)}: give each to its owner")


@renew.command(
    short_help="The coordinator: the authority's certificate.",
    epilog="Example: syncret certs renew authority",
)
@click.option(
    "--dir",
    "directory",
    type=_PATH,
    default=Path("authority"),
    show_default=True,
    help="The authority's folder. Its key stays there.",
)
@days_option(_AUTHORITY_DAYS)
@common_options
def authority(directory: Path, days: float, *, as_json: bool) -> None:
    """At the coordinator: make the authority's certificate anew, for the same key and name.

    Certificates that it has issued stay valid under it. Studies that are proposed have the certificate before, and keep
    it; the next study has the new one, whose words are others.
    """
    renewed = Authority.load(directory).renew(days)
    digest = authority_digest(renewed.certificate)
    end = renewed.certificate.not_valid_after_utc
    if as_json:
        print_json(
            {
                "authority": str(directory),
                "digest": digest,
                "words": fingerprint_words(digest),
                "expires": end.isoformat(timespec="seconds"),
            }
        )
        return
    print_lines([f"the authority in {directory}, until {end:%Y-%m-%d}", *fingerprint_lines(digest)])
    say("It is for the next study; those that are proposed keep the certificate before.")
