"""FLAIM as an app on Flower's own engines, as processes: SuperLink, SuperNodes, `flwr run`; wants extra `flower`."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat

from parties.config import CertificateFiles, Config
from parties.identity.tls import make_certificates
from parties.local.children import free_ports
from parties.methods.flaim.flower_node import STATE_FILE
from tests.parties.flaim_support import MALICIOUS, NAMES, SERVER, codes_of, flaim_config
from tests.parties.test_audit_flaim import assert_clean, collect

pytest.importorskip("flwr", reason="the extra `flower` is not installed (make test-flower)")

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "examples" / "flower"
BIN = Path(sys.executable).parent
STRANGER = "stranger"
Certificates = dict[str, CertificateFiles]
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Keys of their own: a server tells an owner with a new budget what an earlier run has released of its key."""
    return make_certificates(tmp_path / "flaim-certs", [SERVER], NAMES)


@dataclass
class Fleet:
    """Flower's processes, each with its log in ``folder``."""

    folder: Path
    ports: list[int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        paths = {"FLWR_HOME": str(self.folder / "flwr"), "PYTHONPATH": str(ROOT)}
        return os.environ | quiet | paths | {"PATH": f"{BIN}:{os.environ['PATH']}"}

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
                cwd=self.folder,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str, how: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        os.killpg(process.pid, how)
        process.wait()

    def stop(self) -> None:
        """Ask all to end, and make them after a while; Ray ends with who has started it."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, how)
            for process in self.processes.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=20)

    def flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def connect(self, port: str, trusting: Path | None = None) -> None:
        """`flwr run` goes to the SuperLink there, over TLS where it is known whom it is `trusting`."""
        how = "insecure = true" if trusting is None else f'root-certificates = "{trusting}"'
        (self.folder / "flwr" / "config.toml").write_text(
            '[superlink]\ndefault = "fleet"\n'
            f'[superlink.fleet]\naddress = "127.0.0.1:{port}"\n{how}\n'
        )

    def wait(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        ends = time.monotonic() + seconds
        while not done():
            logs = "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self.processes)
            assert time.monotonic() < ends, f"{what}\n{logs}"
            time.sleep(0.5)


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    found = Fleet(folder, free_ports(2 + len(NAMES)))
    (folder / "flwr").mkdir()
    try:
        yield found
    finally:
        found.stop()


def write_nodes(config: Config, certificates: Certificates, folder: Path) -> list[dict[str, str]]:
    """Everybody's table and files, and what each SuperNode is given."""
    study = folder / "study.toml"
    study.write_text(config.resolved_toml())
    nodes = []
    columns = config.domain.columns
    for number, name in enumerate(NAMES):
        place = folder / name
        place.mkdir()
        with (place / "table.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(column.name for column in columns)
            for row in codes_of(number):
                writer.writerow(
                    _text(column, code) for column, code in zip(columns, row, strict=True)
                )
        files = certificates[name]
        nodes.append(
            {
                "config": str(study),
                "data": str(place / "table.csv"),
                "ca": str(files.ca),
                "cert": str(files.cert),
                "key": str(files.key),
                "dir": str(place / "state"),
                "budget": str(place / "budget"),
            }
        )
    return nodes


def _text(column: Any, code: np.int32) -> str:
    categories = getattr(column, "categories", None)
    return str(column.low + int(code)) if categories is None else str(categories[code])


def start_deployment(found: Fleet, nodes: list[dict[str, str]]) -> None:
    """A SuperLink and a SuperNode for each client."""
    port, here = str(found.ports[0]), ("--insecure", "--host", "127.0.0.1", "--port")
    alone = "--disable-runtime-dependency-installation"
    found.start("superlink", "flower-superlink", *here, port, alone)
    for number, node in enumerate(nodes):
        settings = " ".join(f'{key}="{value}"' for key, value in node.items())
        where = (*here, str(found.ports[1 + number]), "--superlink", f"127.0.0.1:{port}")
        found.start(NAMES[number], "flower-supernode", *where, "--node-config", settings)
    found.connect(port)
    found.wait(
        lambda: all("SuperNode ID" in found.log(name) for name in NAMES),
        120,
        "SuperNodes do not start",
    )


@dataclass(frozen=True)
class HostFiles:
    """The TLS certificate of the SuperLink's host, as an operator's own authority issues it."""

    ca: Path
    cert: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> "HostFiles":
        authority, files = (
            trustme.CA(),
            cls(*(folder / f"host.{end}" for end in ("ca", "crt", "key"))),
        )
        issued = authority.issue_cert("127.0.0.1", "localhost")
        authority.cert_pem.write_to_path(files.ca)
        issued.cert_chain_pems[0].write_to_path(files.cert)
        issued.private_key_pem.write_to_path(files.key)
        return files


def node_key(path: Path) -> tuple[Path, Path]:
    """A key for Flower's node authentication as `ssh-keygen -t ecdsa -b 384` makes it: the private file, the public."""
    key, public = ec.generate_private_key(ec.SECP384R1()), path.with_suffix(".pub")
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return path, public


def start_guarded_deployment(found: Fleet, nodes: list[dict[str, str]], host: HostFiles) -> None:
    """`start_deployment` over TLS, with SuperNodes that the SuperLink knows by their keys; a stranger comes, too."""
    port, alone = str(found.ports[0]), "--disable-runtime-dependency-installation"
    tls = ("--ssl-ca-certfile", host.ca, "--ssl-certfile", host.cert, "--ssl-keyfile", host.key)
    here = ("--host", "127.0.0.1", "--port")
    guard = (*map(str, tls), "--enable-supernode-auth")
    found.start("superlink", "flower-superlink", *guard, *here, port, alone)
    found.connect(port, host.ca)
    found.wait(lambda: "Uvicorn running" in found.log("superlink"), 120, "no SuperLink")
    settings = [" ".join(f'{key}="{value}"' for key, value in node.items()) for node in nodes]
    for number, name in enumerate((*NAMES, STRANGER)):
        key, public = node_key(found.folder / f"{name}.node")
        if name != STRANGER:
            found.flwr("supernode", "register", str(public), "fleet")
        where = (*here, str(found.ports[1 + number]), "--superlink", f"127.0.0.1:{port}")
        proof = ("--root-certificates", str(host.ca), "--auth-supernode-private-key", str(key))
        config = settings[number % len(nodes)]
        found.start(name, "flower-supernode", *where, *proof, "--node-config", config)
    found.wait(
        lambda: all("SuperNode ID" in found.log(name) for name in NAMES),
        120,
        "SuperNodes do not start",
    )


def run_app(found: Fleet, *more: str, **settings: str) -> str:
    """Start a run; its number."""
    values = " ".join(f'{key}="{value}"' for key, value in settings.items())
    said = found.flwr("run", str(APP), "fleet", "--run-config", values, *more)
    number = re.search(r"\d{10,}", said)
    assert number, said
    return number[0]


def wait_for(found: Fleet, run: str, report: Path) -> None:
    """Until there is a report, or the ServerApp has ended: its words, then."""
    found.wait(
        lambda: report.exists() or "Finished task" in found.log("superlink"),
        800,
        "the run does not end",
    )
    assert report.exists(), found.flwr("log", run, "fleet", "--show")


def test_deployment_engine_runs_flaim_and_survives_a_killed_node(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = flaim_config(
        certificates,
        MALICIOUS | {"run.rounds": 1, "timeouts.receive_s": 240.0, "clients.wait_s": 240.0},
    )
    nodes = write_nodes(config, certificates, tmp_path)
    server, killed = tmp_path / "server", NAMES[2]
    with fleet(tmp_path) as found:
        start_deployment(found, nodes)
        run = run_app(found, config=str(tmp_path / "study.toml"), dir=str(server))
        state = tmp_path / killed / "state" / STATE_FILE

        def in_a_sum() -> bool:
            return state.exists() and json.loads(state.read_bytes())["session"]["sum"] is not None

        found.wait(in_a_sum, 200, "no sum has begun")
        found.kill(killed)
        wait_for(found, run, server / "report.json")
    result = json.loads((server / "result.json").read_text())
    assert result["rounds_done"] == 1
    assert result["sums"]["dropouts"] >= 1
    assert not any(
        (tmp_path / name / "state" / STATE_FILE).exists() for name in NAMES if name != killed
    )
    assert_clean(collect(config, tmp_path, certificates))


def test_deployment_engine_runs_flaim_over_tls_among_nodes_that_are_registered(
    certificates: Certificates, tmp_path: Path
) -> None:
    waits = {"timeouts.receive_s": 240.0, "clients.wait_s": 240.0}
    # A study of its own: what one configuration has released, no other folder releases again.
    config = flaim_config(certificates, MALICIOUS | waits | {"run.id": "guarded", "run.rounds": 1})
    nodes, host = write_nodes(config, certificates, tmp_path), HostFiles.make(tmp_path)
    server = tmp_path / "server"
    with fleet(tmp_path) as found:
        start_guarded_deployment(found, nodes, host)
        run = run_app(found, config=str(tmp_path / "study.toml"), dir=str(server))
        wait_for(found, run, server / "report.json")
        assert "SuperNode ID" not in found.log(STRANGER)
        plain = Path(found.folder / "flwr" / "config.toml")
        plain.write_text(plain.read_text().replace(str(host.ca), str(certificates[SERVER].ca)))
        with pytest.raises(AssertionError, match="unavailable"):
            found.flwr("run", str(APP), "fleet")
    assert json.loads((server / "result.json").read_text())["rounds_done"] == 1
    assert_clean(collect(config, tmp_path, certificates))


@pytest.mark.parametrize("security", [{}, MALICIOUS], ids=["semi-honest", "malicious"])
def test_simulation_engine_runs_flaim_with_a_file_of_nodes(
    certificates: Certificates, tmp_path: Path, security: dict[str, object]
) -> None:
    pytest.importorskip("ray", reason="the extra `flower` brings it")
    waits = {"timeouts.receive_s": 240.0, "clients.wait_s": 240.0}
    config = flaim_config(certificates, security | waits)
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps(write_nodes(config, certificates, tmp_path)))
    server, alone = tmp_path / "server", "--disable-runtime-dependency-installation"
    with fleet(tmp_path) as found:
        port = str(found.ports[0])
        where = ("--insecure", "--simulation", "--host", "127.0.0.1", "--port", port)
        found.start("superlink", "flower-superlink", *where, alone)
        found.connect(port)
        found.wait(lambda: "Uvicorn running" in found.log("superlink"), 120, "no SuperLink")
        size = ("--federation-config", f"num-supernodes={len(NAMES)}")
        run_app(
            found, *size, config=str(tmp_path / "study.toml"), dir=str(server), nodes=str(nodes)
        )
        found.wait((server / "report.json").exists, 800, "the run does not end")
    assert json.loads((server / "result.json").read_text())["rounds_done"] == 2
    assert_clean(collect(config, tmp_path, certificates))
