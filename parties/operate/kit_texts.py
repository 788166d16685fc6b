"""The README of a kit: what a server's operator, or a data owner, does and types, in order.

Provides ``Part``, what a kit is of, ``server_text`` and ``owner_text``. Public: all of it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from parties.cards import read_out
from parties.config import Config
from parties.version import version

HOME = "/var/lib/syncret"
_SOURCE = f"# in the source of Syncret {version()}"


SERVICE_COMMAND = ("serve", "--dir", HOME)
SERVICE_DESCRIPTION = "a server of private synthetic tables"


@dataclass(frozen=True, slots=True)
class Part:
    """A server ``name`` of a study whose configuration is the file ``file``; ``pid`` is None of FLAIM's, and of silos'.

    ``servers`` are the files that tell `syncret serve` who the servers are, in their order; with none it is `syncret
    party`, `flaim-server` or `silos-server` that runs this study alone.
    """

    config: Config
    file: str
    name: str
    pid: int | None
    servers: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """What runs it, after `syncret`."""
        if self.servers:
            return SERVICE_COMMAND
        study, run = f"{HOME}/study/{self.file}", self.folder
        if self.pid is None:
            return (f"{self.config.meeting}-server", study, "--dir", run)
        return ("party", study, "--pid", str(self.pid), "--dir", run)

    @property
    def folder(self) -> str:
        """What it keeps, and where its status is asked for."""
        return HOME if self.servers else f"{HOME}/run"

    @property
    def ports(self) -> tuple[int, ...]:
        """Where it listens: mesh and ingest, or where FLAIM's clients or silos come."""
        if self.pid is None:
            address = self.config.require_meeting().address
            return () if address is None else (address.port,)
        party = self.config.parties[self.pid]
        return party.mesh.port, party.ingest.port

    @property
    def host(self) -> str:
        """By which others reach it."""
        if self.pid is None:
            address = self.config.require_meeting().address
            return self.name if address is None else address.host
        return self.config.parties[self.pid].mesh.host

    @property
    def container_command(self) -> str:
        """As compose has it: in a container a service listens at all addresses."""
        words = list(self.command)
        if self.servers and self.pid is not None:
            mesh, ingest = self.ports
            words += ["--listen-mesh", f"0.0.0.0:{mesh}", "--listen-ingest", f"0.0.0.0:{ingest}"]
        return json.dumps(words)


def server_text(part: Part) -> str:
    """A server's README."""
    alone = "the silos' server" if part.config.silos else "FLAIM's server"
    role = alone if part.pid is None else f"server {part.pid}"
    ports = " and ".join(map(str, part.ports))
    return "\n".join(
        [
            f"# {part.name}: {role} of {part.config.run.id}",
            "",
            "Nothing here is secret. Your keys are on your host, where they were made, and stay there.",
            "",
            *_compare(part.config, part.file, f"`{part.name}` has the words of its own card"),
            "",
            f"Then, on {part.host}, whose ports {ports} others have to reach:",
            "",
            *_commands(_steps(part)),
            "",
            "In containers instead of systemd: compose.yaml, with what is said at its head.",
            "",
            f"A copy of what it keeps, encrypted, while it runs: `syncret backup {part.folder} --to FILE --for PUB`.",
            "",
        ]
    )


def _steps(part: Part) -> list[str]:
    install = [
        "python3 -m venv /opt/syncret",
        f"/opt/syncret/bin/pip install -c constraints.txt '.[server]'   {_SOURCE}",
        "install -m 0644 syncret.conf /etc/sysusers.d/ && systemd-sysusers",
        "install -m 0644 syncret.service /etc/systemd/system/",
        f"install -d -o syncret -g syncret -m 0700 {HOME}",
    ]
    if not part.servers:
        return [
            *install,
            f"cp -r study tls {HOME}/ && chown -R syncret: {HOME}   # tls: of `syncret certs card`",
            "systemctl enable --now syncret",
            f"syncret status {part.folder}",
        ]
    files = " ".join(f"servers/{name}" for name in part.servers)
    as_user = "sudo -u syncret /opt/syncret/bin/syncret"
    return [
        *install,
        f"{as_user} serve join {files} --dir {HOME}   # after its `serve init`",
        "systemctl enable --now syncret",
        f"{as_user} study list --dir {HOME}",
        f"{as_user} study approve {part.config.digest()} --dir {HOME}   # once the words are the same",
    ]


def owner_text(config: Config, file: str, name: str, *, admitted: bool) -> str:
    """A data owner's README; ``admitted``: its certificate is in the kit."""
    command = "submit" if config.parties else f"{config.meeting}-client"
    steps = [f"pip install -c constraints.txt .   {_SOURCE}"]
    if not admitted:
        steps += [
            f"syncret certs request {name}   # send {name}.request to the coordinator, and read the words out",
            f"cp {name}.crt study/certificates/   # what comes back",
        ]
    if config.parties:
        steps += [
            f"syncret submit study/{file} --data TABLE.csv --check   # shows all, sends nothing"
        ]
    steps += [f"syncret {command} study/{file} --data TABLE.csv", "syncret budget"]
    key = "made by `syncret certs request`, in tls" if admitted else "made below, in tls"
    return "\n".join(
        [
            f"# {name}: data owner in {config.run.id}",
            "",
            f"Nothing here is secret. Your key is {key}, and stays on your host.",
            "",
            *_compare(config, file, "two operators at least read you the same ones"),
            "",
            "Then, in this folder, with tls beside study:",
            "",
            *_commands(steps),
            "",
            "In a container instead: compose.yaml, with what is said at its head.",
            "",
        ]
    )


def _compare(config: Config, file: str, right: str) -> list[str]:
    return [
        f"Compare first: `syncret fingerprint study/{file}` shows these words, and {right}.",
        "",
        *read_out(config.digest()),
    ]


def _commands(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
