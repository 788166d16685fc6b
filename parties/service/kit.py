"""Kits: for each server and each data owner of a study a folder with its files, none of them secret.

A kit has the configuration and the public certificates, the servers' cards or files, a unit for systemd and a compose
file that run this server, and a README with the commands of the operator or data owner in order. ``make_kits`` builds
kits from a list of public files, each of which it parses as its type, so that a key that lies in the study's folder by
mistake does not get into a kit.
"""

import importlib.resources
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from mechanisms.text_table import and_list
from parties.config import Config, load_config, named_files
from parties.config.limits import check_name, check_names
from parties.config.provenance import check_confirmed
from parties.foundation.errors import CertificateError, ConfigError, StoreError
from parties.foundation.untrusted_text import certificate_from_pem
from parties.foundation.version import version
from parties.identity.join_documents import fingerprint_lines, load_server_card
from parties.identity.study_setup import CERTIFICATES
from parties.service.identity import ServerFile
from parties.storage.files import disk_errors, write_atomic

HOME = "/var/lib/syncret"
_SOURCE = f"# in the source of Syncret {version()}"


SERVICE_COMMAND = ("serve", "--dir", HOME)
SERVICE_DESCRIPTION = "a server of private synthetic tables"


@dataclass(frozen=True, slots=True)
class KitServer:
    """Server ``name`` of a study with configuration ``file``; ``pid`` is None for a single server (FLAIM, silos).

    ``servers`` are the files that `syncret serve` reads to know the servers, in their order. Without them the kit runs
    `syncret serve study` for this study alone.
    """

    config: Config
    file: str
    name: str
    pid: int | None
    servers: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of `syncret` that run the server."""
        if self.servers:
            return SERVICE_COMMAND
        study, run = f"{HOME}/study/{self.file}", self.folder
        if self.pid is None:
            return ("serve", "study", study, "--dir", run)
        return ("serve", "study", study, "--pid", str(self.pid), "--dir", run)

    @property
    def folder(self) -> str:
        """Folder of the server's files, for `syncret status` and `syncret backup`."""
        return HOME if self.servers else f"{HOME}/run"

    @property
    def ports(self) -> tuple[int, ...]:
        """Ports at which the server listens: mesh and ingest, or the one for FLAIM's clients or silos."""
        if self.pid is None:
            address = self.config.require_federation().address
            return () if address is None else (address.port,)
        party = self.config.parties[self.pid]
        return party.mesh.port, party.ingest.port

    @property
    def host(self) -> str:
        """Host name at which others reach the server."""
        if self.pid is None:
            address = self.config.require_federation().address
            return self.name if address is None else address.host
        return self.config.parties[self.pid].mesh.host

    @property
    def container_command(self) -> str:
        """Command in the compose file: in a container a service listens at all addresses."""
        words = list(self.command)
        if self.servers and self.pid is not None:
            mesh, ingest = self.ports
            words += ["--listen-mesh", f"0.0.0.0:{mesh}", "--listen-ingest", f"0.0.0.0:{ingest}"]
        return json.dumps(words)


def server_text(server: KitServer) -> str:
    """Returns the README of a server's kit."""
    alone = "the silos' server" if server.config.silos else "FLAIM's server"
    role = alone if server.pid is None else f"server {server.pid}"
    ports = and_list(map(str, server.ports))
    return "\n".join(
        [
            f"# {server.name}: {role} of {server.config.run.id}",
            "",
            "Nothing here is secret. Your keys are on your host, where they were made, and stay there.",
            "",
            *_fingerprint_steps(
                server.config, server.file, f"`{server.name}` has the words of its own card"
            ),
            "",
            f"Then, on {server.host}, whose ports {ports} others have to reach:",
            "",
            *_commands(_steps(server)),
            "",
            "In containers instead of systemd: compose.yaml, with what is said at its head.",
            "",
            f"A copy of what it keeps, encrypted, while it runs: `syncret backup {server.folder} --to FILE --for PUB`.",
            "",
        ]
    )


def _steps(server: KitServer) -> list[str]:
    install = [
        "python3 -m venv /opt/syncret",
        f"/opt/syncret/bin/pip install -c constraints.txt '.[server]'   {_SOURCE}",
        "install -m 0644 syncret.conf /etc/sysusers.d/ && systemd-sysusers",
        "install -m 0644 syncret.service /etc/systemd/system/",
        f"install -d -o syncret -g syncret -m 0700 {HOME}",
    ]
    if not server.servers:
        return [
            *install,
            f"cp -r study tls {HOME}/ && chown -R syncret: {HOME}   # tls: of `syncret certs card`",
            "systemctl enable --now syncret",
            f"syncret status {server.folder}",
        ]
    files = " ".join(f"servers/{name}" for name in server.servers)
    as_user = "sudo -u syncret /opt/syncret/bin/syncret"
    return [
        *install,
        f"{as_user} serve join {files} --dir {HOME}   # after its `serve init`",
        "systemctl enable --now syncret",
        f"{as_user} study list --dir {HOME}",
        f"{as_user} study approve {server.config.digest()} --dir {HOME}   # once the words are the same",
    ]


def owner_text(config: Config, file: str, name: str, *, admitted: bool) -> str:
    """Returns the README of a data owner's kit; ``admitted``: the kit includes the owner's certificate."""
    command = "join"
    steps = [f"pip install -c constraints.txt .   {_SOURCE}"]
    if not admitted:
        steps += [
            f"syncret certs request {name}   # send {name}.request to the coordinator, and read the words out",
            f"cp {name}.crt study/certificates/   # what comes back",
        ]
    if config.parties:
        steps += [
            f"syncret join study/{file} --data TABLE.csv --check   # shows all, sends nothing"
        ]
    steps += [f"syncret {command} study/{file} --data TABLE.csv", "syncret budget"]
    key = "made by `syncret certs request`, in tls" if admitted else "made below, in tls"
    return "\n".join(
        [
            f"# {name}: data owner in {config.run.id}",
            "",
            f"Nothing here is secret. Your key is {key}, and stays on your host.",
            "",
            *_fingerprint_steps(config, file, "two operators at least read you the same ones"),
            "",
            "Then, in this folder, with tls beside study:",
            "",
            *_commands(steps),
            "",
            "In a container instead: compose.yaml, with what is said at its head.",
            "",
        ]
    )


def _fingerprint_steps(config: Config, file: str, right: str) -> list[str]:
    return [
        f"Compare first: `syncret certs fingerprint study/{file}` shows these words, and {right}.",
        "",
        *fingerprint_lines(config.digest()),
    ]


def _commands(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


_PRIVATE = b"PRIVATE KEY"
_TEMPLATES = "kit_files"
_MAX_BYTES = 1 << 24
Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Kits:
    """Kits of a study: the files of each server and data owner, by name within the kit."""

    config: Config
    parties: Mapping[str, Files] = field(repr=False)


def make_kits(
    config: Path, cards: Sequence[Path], owners: Sequence[str], *, out: Path, zipped: bool
) -> list[Path]:
    """Writes a folder (or a zip) for each server and data owner of the study in ``config``, below the new ``out``.

    Args:
        config: Path of the study's configuration.
        cards: Servers' cards or, for servers of many studies, the files of `syncret serve init`, in the servers' order.
        owners: Data owners in addition to those in the configuration.

    Raises ConfigError, CertificateError, StoreError.
    """
    kits = _kits(config, cards, owners)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise StoreError(out, "is there already; expected the name of a new folder")
    with disk_errors(out, "made"):
        out.mkdir(parents=True, exist_ok=True)
    return [_write(out, name, files, zipped=zipped) for name, files in kits.parties.items()]


def _kits(path: Path, cards: Sequence[Path], owners: Sequence[str]) -> Kits:
    config = load_config(path)
    check_confirmed(config)
    # The name appears in units and commands.
    check_name("the file's name", path.name)
    servers = _server_names(config)
    section = config.silos or config.flaim
    named = config.clients.names if section is None else section.clients
    everybody = list(dict.fromkeys((*named, *owners)))
    check_names("owner", [*servers, *everybody])
    public, names = _cards(config, cards)
    study: dict[str, bytes] = {
        f"study/{path.name}": _public(path),
        **{f"study/{listed.name}": _public(listed) for listed in named_files(path)},
        **_certificates(config, ["ca", *servers]),
        **public,
    }
    kits: dict[str, Files] = {}
    for number, name in enumerate(servers):
        pid = number if config.parties else None
        kits[name] = {**study, **_server_files(KitServer(config, path.name, name, pid, names))}
    for name in everybody:
        own = _certificates(config, [name])
        text = owner_text(config, path.name, name, admitted=bool(own))
        yaml = _filled_template("owner.yaml", name=name)
        kits[name] = {**study, **own, "README.md": text.encode(), "compose.yaml": yaml}
    return Kits(config, kits)


def _server_names(config: Config) -> list[str]:
    if config.parties:
        return [party.name for party in config.parties]
    section = config.silos or config.flaim
    if section is not None and section.key is not None:
        return [section.server]
    raise ConfigError(
        config.source,
        "party",
        "is missing, and so is the key of a server of FLAIM or of silos; expected the configuration that "
        "`syncret certs merge` made",
    )


def _server_files(server: KitServer) -> Files:
    described = SERVICE_DESCRIPTION if server.servers else f"study {server.config.run.id}"
    unit = unit_text(server.command, described, watched=bool(server.servers))
    ports = "\n".join(f'      - "{port}:{port}"' for port in server.ports)
    return {
        "README.md": server_text(server).encode(),
        "syncret.service": unit,
        "syncret.conf": _template("syncret.conf").encode(),
        "compose.yaml": _filled_template(
            "server.yaml",
            name=server.name,
            command=server.container_command,
            folder=server.folder,
            host=server.host,
            ports=ports,
        ),
    }


def unit_text(command: Sequence[str], description: str, *, watched: bool) -> bytes:
    """Returns a systemd unit that runs `syncret` with ``command``; ``watched``: with a watchdog for its event loop."""
    watchdog = "WatchdogSec=60\n" if watched else ""
    return _filled_template(
        "syncret.service", command=" ".join(command), description=description, watchdog=watchdog
    )


def _cards(config: Config, paths: Sequence[Path]) -> tuple[Files, tuple[str, ...]]:
    """Returns the servers' files by path within a kit, and the names of those for `serve`, in their order.

    Raises CertificateError if a file belongs to no server of the configuration, or has another key.
    """
    files: dict[str, bytes] = {}
    names = []
    keys = _keys(config)
    for path in paths:
        service = path.suffix == ".server"
        item = ServerFile.load(path) if service else load_server_card(path)
        if keys.get(item.name) != item.key:
            raise CertificateError(
                f"{path}: is of {item.name}, with a key of {item.key[:16]}...; expected a server of the configuration: "
                f"{', '.join(f'{name} ({key[:16]}...)' for name, key in keys.items())}"
            )
        files[f"servers/{path.name}"] = _public(path)
        names += [path.name] if service else []
    if names and [Path(name).stem for name in names] != list(keys):
        raise CertificateError(
            f"these are the files {', '.join(names)}; expected those of {', '.join(keys)} in this order, or none"
        )
    return files, tuple(names)


def _keys(config: Config) -> dict[str, str]:
    if config.parties:
        return {party.name: party.key for party in config.parties}
    section = config.require_federation()
    return {section.server: section.pinned.key}


def _certificates(config: Config, names: Sequence[str]) -> Files:
    """Returns the existing certificates of ``names``. Raises CertificateError."""
    folder = config.base / CERTIFICATES
    files = {}
    for name in names:
        path = folder / f"{name}.crt"
        if path.exists():
            data = _public(path)
            try:
                certificate_from_pem(data)
            except ValueError as error:
                raise CertificateError(f"{path}: is no certificate; expected PEM") from error
            files[f"study/{CERTIFICATES}/{path.name}"] = data
    return files


def _public(path: Path) -> bytes:
    """Returns the content of a public file. Raises CertificateError if it contains a private key."""
    with disk_errors(path, "read"), path.open("rb") as file:
        data = file.read(_MAX_BYTES)
    if _PRIVATE in data:
        raise CertificateError(f"{path}: has a private key in it, which goes into no kit")
    return data


def _template(name: str) -> str:
    files = importlib.resources.files("parties.service")
    return (files / _TEMPLATES / name).read_text(encoding="utf-8")


def _filled_template(template: str, /, **values: str) -> bytes:
    return Template(_template(template)).substitute(values).encode()


def _write(out: Path, name: str, files: Files, *, zipped: bool) -> Path:
    if not zipped:
        for target, data in files.items():
            path = out / name / target
            with disk_errors(path, "made"):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data)
        return out / name
    path = out / f"{name}.zip"
    with disk_errors(path), zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
        for target, data in files.items():
            # A fixed timestamp: the same kits make the same bytes.
            archive.writestr(zipfile.ZipInfo(f"{name}/{target}"), data)
    return path
