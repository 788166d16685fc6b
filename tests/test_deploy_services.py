"""Units of `deploy/systemd` and pods of the charts, started as processes of this host.

Commands, environments, probes and mounted files are read from the units, from the rendered manifests and from the
images' Containerfiles. Folders stand in the place of the paths of a host or a container.
"""

import contextlib
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from parties.local.children import free_ports
from tests.parties.serving import OWNERS, SERVERS, Cluster, Serve, make_identities
from tests.parties.small import write_small
from tests.parties.test_taking_part import authority_of, propose_and_invite, waiting
from tests.test_deploy import DEPLOY, OWNER_CHART, ROOT, UNIT, by_kind, rendered, run, sections
from tests.until import until

QUADLET = DEPLOY / "systemd" / "syncret.container"
README = DEPLOY / "README.md"
PATH = "/usr/bin:/bin"
READY_S = 120.0


@dataclass
class Image:
    """Entry point and environment of an image, as its Containerfile has them."""

    entry: list[str]
    environment: dict[str, str]

    @classmethod
    def of(cls, kind: str) -> "Image":
        text = (DEPLOY / f"{kind}.Containerfile").read_text()
        (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
        (block,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", text, re.MULTILINE)
        pairs = shlex.split(block.replace("\\\n", " ").replace("$PATH", PATH))
        return cls(json.loads(entry), dict(pair.split("=", 1) for pair in pairs))


class Place:
    """Folders in the place of paths, and the programs of /opt/syncret, which are this tree's."""

    def __init__(self, folder: Path, paths: Mapping[str, Path]) -> None:
        programs = folder / "bin"
        if not programs.exists():
            programs.mkdir()
            for name, module in (("syncret", "-m parties "), ("python", "")):
                path = programs / name
                path.write_text(
                    f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {module}"$@"\n'
                )
                path.chmod(0o755)
        (folder / "tmp").mkdir(exist_ok=True)
        self._folders = {"/opt/syncret/bin": programs, "/tmp": folder / "tmp", **paths}

    def text(self, text: str) -> str:
        """The text with the folders in it."""
        known = "|".join(map(re.escape, sorted(self._folders, key=len, reverse=True)))
        pattern = rf"(?<![\w./$-])({known})(?![\w.-])"
        return re.sub(pattern, lambda found: str(self._folders[found[1]]), text)

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        return {name: self.text(value) for name, value in {"PATH": PATH, **given}.items()}

    def succeeds(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """True if a probe's command ends with 0."""
        done = subprocess.run(
            [self.text(word) for word in command],
            env=self.environment(environment),
            capture_output=True,
            check=False,
        )
        return done.returncode == 0

    @contextlib.contextmanager
    def started(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, **more: Any
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """The command as a process, which has to have ended by the end of the block, or is killed."""
        with log.open("ab") as said:
            process = subprocess.Popen(
                [self.text(word) for word in command],
                env=self.environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                **more,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


class Systemd:
    """The socket that systemd listens at, with all that it has heard."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self._heard: list[str] = []

    def heard(self, message: str) -> bool:
        """True once a message has come."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._heard += self._socket.recv(4096).decode().splitlines()
        return message in self._heard

    def __enter__(self) -> "Systemd":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def test_the_unit_starts_a_server_that_is_ready_reads_its_settings_again_and_ends_with_0(
    tmp_path: Path,
) -> None:
    unit, log = sections(UNIT)["Service"], tmp_path / "log"
    home, *_ = make_identities(tmp_path)
    place = Place(tmp_path, {"/var/lib/syncret": home})
    environment = dict(pair.split("=", 1) for pair in unit["Environment"].split())
    with TemporaryDirectory(prefix="systemd-") as short:
        path = Path(short) / "notify"
        environment["NOTIFY_SOCKET"] = str(path)
        environment["WATCHDOG_USEC"] = str(int(unit["WatchdogSec"]) * 1_000_000)
        command, umask = shlex.split(unit["ExecStart"]), int(unit["UMask"], 8)
        working = place.text(unit["WorkingDirectory"])
        with (
            Systemd(path) as systemd,
            place.started(command, environment, log, cwd=working, umask=umask) as process,
        ):
            limit_s = float(unit["TimeoutStartSec"])
            for message in ("READY=1", "WATCHDOG=1"):
                until(partial(systemd.heard, message), f"{message}\n{log.read_text()}", limit_s)
            assert all(made.stat().st_mode & 0o077 == 0 for made in home.glob("*.sqlite"))
            (home / "settings.toml").write_text("[keep]\nresults_days = 30\n")
            reload = ["/bin/sh", "-c", unit["ExecReload"]]
            subprocess.run(reload, env={"MAINPID": str(process.pid)}, check=True)
            until(lambda: "is read again, and at work" in log.read_text(), "the settings read")
            process.send_signal(signal.SIGTERM)
            assert process.wait(float(unit["TimeoutStopSec"])) == 0, log.read_text()
            assert systemd.heard("STOPPING=1")


@pytest.mark.slow
def test_the_quadlets_container_has_a_server_that_is_healthy_and_ends_with_0(
    tmp_path: Path,
) -> None:
    unit, image, log = sections(QUADLET), Image.of("server"), tmp_path / "log"
    container = unit["Container"]
    volume, mounted = container["Volume"].split(":")
    assert volume == "syncret"
    home, *_ = make_identities(tmp_path)
    place = Place(tmp_path, {mounted: home})
    mesh, ingest = free_ports(2)
    given = container["Exec"].replace(":7100", f":{mesh}").replace(":7443", f":{ingest}")
    command = [*image.entry, *shlex.split(given)]
    health = shlex.split(container["HealthCmd"])
    with place.started(command, image.environment, log) as process:
        until((home / "admin.sock").exists, "a server that answers", READY_S)
        for port in (mesh, ingest):
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
        assert place.succeeds(health, image.environment), log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(float(unit["Service"]["TimeoutStopSec"])) == 0, log.read_text()
    assert not place.succeeds(health, image.environment)


class Pod:
    """A pod of rendered manifests: its volumes are folders that outlive it, its containers are processes."""

    def __init__(
        self, folder: Path, manifests: list[dict[str, Any]], kind: str, image: Image
    ) -> None:
        self._folder = folder
        self._image = image
        workload = by_kind(manifests)[kind]["spec"]
        self.spec = workload["template"]["spec"]
        claims = [claim["metadata"]["name"] for claim in workload.get("volumeClaimTemplates", [])]
        self.volumes = {name: folder / name for name in claims}
        self.volumes |= {v["name"]: folder / v["name"] for v in self.spec["volumes"]}
        for path in self.volumes.values():
            path.mkdir(parents=True, exist_ok=True)
        maps = {m["metadata"]["name"]: m["data"] for m in manifests if m["kind"] == "ConfigMap"}
        for volume in self.spec["volumes"]:
            for name, text in maps.get(volume.get("configMap", {}).get("name"), {}).items():
                (self.volumes[volume["name"]] / name).write_text(text)

    def _place(self, container: Mapping[str, Any]) -> Place:
        mounts = container["volumeMounts"]
        return Place(self._folder, {m["mountPath"]: self.volumes[m["name"]] for m in mounts})

    def _environment(self, container: Mapping[str, Any]) -> dict[str, str]:
        return self._image.environment | {e["name"]: e["value"] for e in container["env"]}

    @contextlib.contextmanager
    def job(self, *, before: bool = False) -> Iterator["subprocess.Popen[str]"]:
        """The one container, which works and ends; or the one ``before`` it."""
        (container,) = self.spec["initContainers" if before else "containers"]
        place = self._place(container)
        process = subprocess.Popen(
            [place.text(word) for word in container["command"]],
            env=place.environment(self._environment(container)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    @contextlib.contextmanager
    def serving(self) -> Iterator["subprocess.Popen[bytes]"]:
        """The pod's one container, after those before it, once the probes of the chart succeed."""
        with self.job(before=True) as made:
            finished(made)
        (container,) = self.spec["containers"]
        place, environment = self._place(container), self._environment(container)
        command = [*container.get("command", self._image.entry), *container["args"]]
        log = self._folder / "log"
        with place.started(command, environment, log) as process:
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                words = container[probe]["exec"]["command"]
                until(
                    partial(place.succeeds, words, environment),
                    f"{probe} of {self._folder.name}",
                    READY_S,
                )
            yield process


def finished(process: "subprocess.Popen[str]") -> str:
    """Output of a container that ends with 0."""
    out, _ = process.communicate(timeout=3 * READY_S)
    assert process.returncode == 0, out
    return out


def ended(process: "subprocess.Popen[bytes]", spec: Mapping[str, Any]) -> int:
    """Exit status of a container that Kubernetes ends."""
    process.send_signal(signal.SIGTERM)
    return process.wait(spec["terminationGracePeriodSeconds"])


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder of a short name: a socket in it has its name in the charts' probes."""
    with TemporaryDirectory(prefix="pods-") as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_charts_pods_take_a_study_from_the_invitation_to_the_audited_result(
    short: Path, tmp_path: Path
) -> None:
    """Three releases of the server's chart, and for each owner the job that checks and the job that agrees."""
    server, ports = Image.of("server"), free_ports(6)

    def end(port: int) -> dict[str, object]:
        return {"address": f"localhost:{port}", "port": port}

    def release(number: int, **more: object) -> Pod:
        name = SERVERS[number]
        values = {
            "name": name,
            "mesh": end(ports[2 * number]),
            "ingest": end(ports[2 * number + 1]),
            "network": {"listen": "127.0.0.1"},
            "settings": "[keep]\nresults_days = 30\n",
            **more,
        }
        return Pod(short / name, rendered(values), "StatefulSet", server)

    # First the operators hand over what the logs show, by the README's command.
    (cut,) = re.findall(r"-c identity \| (.*) >alpha.server$", README.read_text(), re.MULTILINE)
    three = {}
    for number, name in enumerate(SERVERS):
        with release(number).job(before=True) as made:
            three[f"{name}.server"] = run("/bin/sh", "-c", cut, given=finished(made))
    with contextlib.ExitStack() as stack:
        pods = [release(n, servers={"existingConfigMap": "three"}) for n in range(3)]
        for pod in pods:
            for file, text in three.items():
                (pod.volumes["servers"] / file).write_text(text)
        running = [stack.enter_context(pod.serving()) for pod in pods]
        homes = [pod.volumes["data"] / "server" for pod in pods]
        for home in homes:
            assert (home / "settings.toml").read_text().strip().endswith("results_days = 30")
        cluster = Cluster(tmp_path, [Serve(home) for home in homes])
        owners_of_the_chart(cluster, short)
        for process, pod in zip(running, pods, strict=True):
            assert ended(process, pod.spec) == 0


def owners_of_the_chart(cluster: Cluster, folder: Path) -> None:
    """A study until its owners have the audited result."""
    digest, invitation = propose_and_invite(cluster, "charted")
    alpha, authority = cluster.serves[0], str(authority_of(cluster, "charted"))

    def job(name: str, agree: bool) -> Pod:
        values = {
            "name": name,
            "agree": agree,
            "wait": 300,
            "invitation": {"existingConfigMap": "study"},
            "table": {"file": "small.csv", "volume": {"persistentVolumeClaim": {"claimName": "t"}}},
        }
        pod = Pod(folder / name, rendered(values, OWNER_CHART), "Job", Image.of("owner"))
        write_small(pod.volumes["table"])
        shutil.copy(invitation, pod.volumes["invitation"] / "study.invitation")
        return pod

    def started(stack: contextlib.ExitStack, *, agree: bool) -> dict[str, "subprocess.Popen[str]"]:
        pods = {name: job(name, agree) for name in OWNERS}
        return {name: stack.enter_context(pod.job()) for name, pod in pods.items()}

    with contextlib.ExitStack() as stack:
        checking = started(stack, agree=False)
        for asked in waiting(alpha, digest, *OWNERS).values():
            alpha.command("study", "admit", digest, asked["words"], "--authority", authority)
        # Jobs that find a study which has not begun wait for it.
        time.sleep(3)  # Sleeps: quiet.
        cluster.approve(digest)
        for serve in cluster.serves:
            serve.until_state("charted", "running")
        for process in checking.values():
            assert "300 rows" in finished(process)
        for name, process in started(stack, agree=True).items():
            assert "Everything that can be checked holds" in finished(process)
            assert (folder / name / "data" / "home" / "charted.zip").exists()
