"""Command `certs`: keys, cards and certificates, and the fingerprints that participants compare.

Each key is made on its owner's host; only `certs trial` makes all in one folder.
"""

import json
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from parties.cli.invitations import ensure_admitted, open_study, study_path
from parties.cli.numbers import NumberRange
from parties.cli.options import authority_option, days_option
from parties.cli.renew import print_operator, renew
from parties.cli.runtime import common_options, print_json, print_lines, say
from parties.config import Address, Config
from parties.crypto.hpke import SealKey
from parties.identity.join_documents import (
    CARD,
    REQUEST,
    JoinRequest,
    ensure_join_request,
    ensure_server_card,
    fingerprint_lines,
    fingerprint_words,
)
from parties.identity.study_setup import CERTIFICATES, create_study, issue_certificates
from parties.identity.tls import Authority, authority_digest, check_subject, make_certificates
from parties.service.settings import FILE
from parties.storage.files import write_new


@click.command(epilog="Example: syncret certs fingerprint study/stays.toml")
@click.argument("config")
@common_options
def fingerprint(config: str, as_json: bool) -> None:
    """Show what stands for the configuration, and for each server's key, in words and in hex.

    All operators and data owners compare the configuration's words before they begin: it has the budget, the columns
    and the servers' keys in it. Paths, addresses and timeouts do not count. A server's words are those of its card.
    """
    loaded = open_study(config)
    if as_json:
        click.echo(json.dumps(record_of(loaded), indent=2))
    else:
        click.echo("\n".join(lines_of(loaded)))


def record_of(config: Config) -> dict[str, object]:
    """Returns the fingerprints as in --json."""
    servers = [
        {"role": role, "name": name, "key": key, "words": fingerprint_words(key)}
        for role, name, key in _servers(config)
    ]
    digest = config.digest()
    return {
        "run": config.run.id,
        "digest": digest,
        "words": fingerprint_words(digest),
        "servers": servers,
    }


def lines_of(config: Config) -> list[str]:
    """Returns the fingerprints as lines of text."""
    lines = [f"the configuration of {config.run.id}", *fingerprint_lines(config.digest())]
    servers = _servers(config)
    if not servers:
        lines.append("no servers yet: `syncret certs merge` puts them in")
    for role, name, key in servers:
        lines += [f"{role}: {name}", *fingerprint_lines(key)]
    return lines


def _servers(config: Config) -> list[tuple[str, str, str]]:
    """Returns role, name and key of each server."""
    servers = [(f"party {pid}", party.name, party.key) for pid, party in enumerate(config.parties)]
    section = config.federation
    if section is not None and section.key is not None:
        servers.append((f"{section.KEY}.server", section.server, section.key))
    return servers


_PATH = click.Path(path_type=Path)
_AUTHORITY_DAYS = 3_650
_ADMIN_ADDRESS = "0.0.0.0:7444"


def _an_address(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> Address | None:
    try:
        return None if value is None else Address.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


def _address(name: str, meaning: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(f"--{name}", metavar="HOST:PORT", callback=_an_address, help=meaning)


_KEYS = click.option(
    "--dir",
    "keys",
    type=_PATH,
    default=Path("tls"),
    show_default=True,
    help="Where the private keys are made, or already are. They stay there.",
)


@click.group(
    epilog="Example: syncret certs card alpha --mesh alpha.example:7100 --ingest alpha.example:443"
)
def certs() -> None:
    """Make keys, cards and certificates, each where it belongs.

    A server's operator: card, operator. The coordinator: authority, merge, admit. A data owner: request. Everybody
    compares what `syncret certs fingerprint` shows. All of them have --json.
    """


certs.add_command(fingerprint)
certs.add_command(renew)


@certs.command(
    short_help="A server: make its keys and its card.",
    epilog="Example: syncret certs card alpha --mesh alpha.example:7100 --ingest alpha.example:443",
)
@click.argument("name")
@_address("mesh", "Where the other two servers reach this one.")
@_address("ingest", "Where data owners reach it.")
@_address("address", "Of FLAIM's server, instead of the two: where its clients reach it.")
@_KEYS
@common_options
def card(
    name: str,
    mesh: Address | None,
    ingest: Address | None,
    address: Address | None,
    keys: Path,
    as_json: bool,
) -> None:
    """On a server's own host: make its keys, and NAME.card for the coordinator, in this folder.

    Called again it shows the card that is there; with other addresses it makes another card of the same keys.
    """
    given = {"mesh": mesh, "ingest": ingest, "address": address}
    ends = {key: end for key, end in given.items() if end is not None}
    path = _file_for(name, CARD)
    if tuple(ends) not in ((), ("mesh", "ingest"), ("address",)):
        raise click.UsageError("give --mesh and --ingest, or of FLAIM's server --address")
    if not ends and not path.exists():
        raise click.UsageError("there is no card yet: give --mesh and --ingest, or --address")
    made, new = ensure_server_card(name, ends or None, keys=keys, path=path)
    if as_json:
        print_json(
            made.fields() | {"words": fingerprint_words(made.key), "card": str(path), "new": new}
        )
        return
    print_lines(made.lines())
    say(
        f"{path}: {'made' if new else 'as it was'}. Send it to the coordinator, and read the words to everybody who "
        f"asks. What is in {keys} stays on this host."
    )


@certs.command(
    short_help="A data owner: make its key and its request.",
    epilog="Example: syncret certs request north",
)
@click.argument("name")
@_KEYS
@click.option(
    "--to",
    "invitation",
    default=None,
    metavar="INVITATION",
    help="Send it to the servers of the study instead, and wait to be admitted.",
)
@click.option(
    "--wait",
    "wait_s",
    type=NumberRange(min=0),
    default=0,
    show_default=True,
    metavar="SECONDS",
    help="With --to: how long. The same command asks again.",
)
@common_options
def request(name: str, keys: Path, invitation: str | None, *, wait_s: float, as_json: bool) -> None:
    """At a data owner: make its key, and NAME.request for the coordinator, in this folder.

    Called again it shows the request that is there. With --to there is no file: the request goes to the servers, whose
    keys the invitation has, and the certificate comes from them; exit status 18 as long as nobody has admitted you.
    """
    if invitation is not None:
        path = study_path(invitation)
        ensure_admitted(path, name, wait_s=wait_s)
        if as_json:
            print_json({"name": name, "study": str(path), "admitted": True})
        return
    path = _file_for(name, REQUEST)
    made, new = ensure_join_request(name, keys=keys, path=path)
    if as_json:
        print_json(
            made.fields() | {"words": fingerprint_words(made.key), "request": str(path), "new": new}
        )
        return
    print_lines(_request_lines(made))
    say(
        f"{path}: {'made' if new else 'as it was'}. Send it to the coordinator, and read out the words when asked. "
        f"What is in {keys} stays here."
    )


@certs.command(
    short_help="The coordinator: make the authority.", epilog="Example: syncret certs authority"
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
def authority(directory: Path, days: float, as_json: bool) -> None:
    """At the coordinator: make the authority that admits data owners, ca.crt and ca.key.

    Called again it shows the one that is there.
    """
    new = not Authority.is_in(directory)
    made = Authority.make(directory, days) if new else Authority.load(directory)
    digest = authority_digest(made.certificate)
    if as_json:
        print_json(
            {
                "authority": str(directory),
                "digest": digest,
                "words": fingerprint_words(digest),
                "new": new,
            }
        )
        return
    print_lines([f"the authority in {directory}", *fingerprint_lines(digest)])
    say("Its key admits data owners and cannot pass for a server. Keep it to yourself.")


@certs.command(
    "merge",
    short_help="The coordinator: a study and cards, one configuration.",
    epilog="Example: syncret certs merge study.toml alpha.card beta.card gamma.card --out study",
)
@click.argument("study", type=_PATH)
@click.argument("cards", type=_PATH, nargs=-1, required=True)
@authority_option
@click.option("--out", type=_PATH, default=Path("study"), show_default=True, help="A new folder.")
@days_option(365)
@common_options
def merge_command(
    study: Path, cards: tuple[Path, ...], authority: Path, out: Path, days: float, as_json: bool
) -> None:
    """At the coordinator: make one configuration of STUDY and the servers' CARDS.

    The folder is public and the same for everybody: the configuration and the servers' certificates. The order of the
    cards is the servers' numbers.
    """
    config = create_study(study, cards, authority=authority, out=out, valid_days=days)
    path = out / study.name
    if as_json:
        print_json({"file": str(path), **record_of(config)})
        return
    print_lines(lines_of(config))
    say(_next_steps(config, path))


@certs.command(
    "admit",
    short_help="The coordinator: data owners' certificates.",
    epilog="Example: syncret certs admit north.request south.request --out certs",
)
@click.argument("requests", type=_PATH, nargs=-1, required=True)
@authority_option
@click.option(
    "--out",
    type=_PATH,
    default=Path("certs"),
    show_default=True,
    help="Folder for the certificates.",
)
@days_option(365)
@common_options
def admit_command(
    requests: tuple[Path, ...], authority: Path, out: Path, days: float, as_json: bool
) -> None:
    """At the coordinator: make NAME.crt of each data owner's REQUEST, for client use only.

    Nobody is admitted if one of them cannot be. Hand a certificate out once its owner has read you the same words.
    """
    made = issue_certificates(requests, authority=authority, out=out, valid_days=days)
    if as_json:
        owners = [
            owner.fields() | {"words": fingerprint_words(owner.key), "certificate": str(path)}
            for path, owner in made.items()
        ]
        print_json({"admitted": owners})
        return
    for owner in made.values():
        print_lines(_request_lines(owner))
    say(
        f"{', '.join(map(str, made))}: give each to its owner, who puts it into the study's folder {CERTIFICATES}, "
        "once the owner has read you the words above."
    )


@certs.command(
    "backup-key",
    short_help="An operator: make a key that backups are encrypted to.",
    epilog="Example: syncret certs backup-key offsite",
)
@click.argument("name")
@common_options
def backup_key(name: str, as_json: bool) -> None:
    """Make NAME.backup-key, which opens backups, and NAME.backup-pub, with which they are made.

    Keep the first on another machine than the server's, or on paper: whoever has it can read this server's shares.
    """
    check_subject(name)  # The name becomes part of a path.
    private, public = Path(f"{name}.backup-key"), Path(f"{name}.backup-pub")
    key = SealKey.generate()
    write_new(private, key.pem(), secret=True)
    write_new(public, f"{key.public}\n".encode())
    if as_json:
        print_json({"private": str(private), "public": str(public)})
        return
    print_lines([f"{private}: keep it elsewhere: syncret restore wants it (--key)"])
    print_lines([f"{public}: for syncret backup --for"])


@certs.command(
    short_help="For trials: make everybody's keys in one place.",
    epilog="Example: syncret certs trial tls --party alpha --party beta --party gamma --client north",
)
@click.argument("directory", type=_PATH)
@click.option(
    "--party",
    "parties",
    multiple=True,
    help="A server's name; may be repeated. Default: party-0..2.",
)
@click.option("--client", "clients", multiple=True, help="A data owner's name; may be repeated.")
@days_option(365)
@common_options
def trial(
    directory: Path, parties: tuple[str, ...], clients: tuple[str, ...], days: float, as_json: bool
) -> None:
    """For trials: make an authority and everybody's keys and certificates in DIRECTORY.

    Called again with new names, it adds to the authority that is there. All keys are then in one place: not for
    private data.
    """
    if not parties and not clients:
        parties = ("party-0", "party-1", "party-2")
    made = make_certificates(directory, parties, clients, valid_days=days)
    if as_json:
        print_json({n: {"cert": str(f.cert), "key": str(f.key)} for n, f in made.items()})
        return
    print_lines([f"{name}: {files.cert} {files.key}" for name, files in made.items()])
    say(f"{directory / 'ca.crt'}: the authority (its key is beside it: keep it safe)")


@certs.command(
    short_help="A server: make keys for who may look at it over the network.",
    epilog="Example: syncret certs operator anna --dir /var/lib/syncret/stays-2026 --host alpha.example",
)
@click.argument("name")
@click.option(
    "--dir",
    "directory",
    type=_PATH,
    default=Path(),
    help="The server's folder; by default the one you are in.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=("localhost", "127.0.0.1", "::1"),
    show_default=True,
    help="Names and addresses of this host, for the server's own certificate, which is made once.",
)
@click.option("--reader", is_flag=True, help="It may look, and order nothing: for Prometheus.")
@click.option(
    "--write",
    is_flag=True,
    help="Write what lets NAME in into settings.toml, too; comments in it stay.",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    callback=_an_address,
    default=_ADMIN_ADDRESS,
    show_default=True,
    help="Where the admin API listens, if the settings say nothing of it yet.",
)
@days_option(365)
@common_options
def operator(
    name: str,
    directory: Path,
    hosts: tuple[str, ...],
    reader: bool,
    *,
    write: bool,
    address: Address,
    days: float,
    as_json: bool,
) -> None:
    """On a server's host: make NAME's key and certificate for the admin API, and the server's own if there is none.

    They are in the folder admin: NAME.crt and NAME.key for Prometheus and curl, NAME.p12 for a browser, with the
    password that is shown once. Nobody is let in until settings.toml in the server's folder says so: what to write
    there is shown, or written with --write, and read by a running server at SIGHUP (systemctl reload). Take the key and
    the bundle to the operator, and delete them here.
    """
    from parties.service.admin_listener import make_operator

    at, list_it = "", None
    if write:
        # Local import: an editor of TOML that keeps comments, of the extra `server`.
        from parties.service.settings_file import NO_FINGERPRINT, admit_operator, with_operator

        list_it = partial(admit_operator, directory, name, reader=reader, address=str(address))
        # What is wrong with the settings is said before anything is made.
        with_operator(directory, name, NO_FINGERPRINT, reader=reader, address=str(address))
    password = secrets.token_urlsafe(12)
    made = make_operator(directory, name, hosts=hosts, days=days, password=password)
    if list_it is not None:
        at = list_it(made.fingerprint)
    if as_json:
        print_operator(made, name, password)
        return
    settings, key = directory / FILE, "readers" if reader else "clients"
    bundle = f"{made.bundle} has the password {password}"
    if write:
        print_lines([f"{settings}: lists {name} among the {key} of the admin API at {at}"])
        say(
            f"A running server lets {name} in once it has read it: systemctl reload syncret. {bundle}"
        )
        return
    print_lines(["[admin]", f'address = "{address}"', f'{key} = ["{made.fingerprint}"]  # {name}'])
    say(
        f"These lines belong into {settings} (--write writes them); of further ones add the fingerprint to {key}. "
        f"{bundle}"
    )


def _file_for(name: str, kind: str) -> Path:
    check_subject(name)  # The name becomes part of a path.
    return Path(f"{name}.{kind}")


def _request_lines(owner: JoinRequest) -> list[str]:
    return [owner.name, *fingerprint_lines(owner.key)]


def _next_steps(config: Config, path: Path) -> str:
    folder, where = path.parent, f"the folder that has tls/, in which {path.parent.name}/ then is"
    if config.parties:
        servers = [
            f"  {party.name}: syncret serve study {path} --pid {pid} --dir RUN"
            for pid, party in enumerate(config.parties)
        ]
    else:
        servers = [f"  {config.require_federation().server}: syncret serve study {path} --dir RUN"]
    owners = f"syncret join {path} --data FILE"
    return "\n".join(
        (
            f"\nSend {folder} to everybody: nothing in it is secret. Each puts it into {where},",
            f"and reads out what is above: syncret certs fingerprint {path}",
            *servers,
            f"  each data owner, once it has its certificate in {folder / CERTIFICATES}: {owners}",
        )
    )
