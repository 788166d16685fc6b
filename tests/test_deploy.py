"""Files of `deploy/`: linted by the tools of each format where they are installed, and held to their promises."""

import configparser
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import pack, sbom, slim
from parties.crypto.encrypted_file import PublicKeyWrapper
from parties.crypto.hpke import SealKey
from parties.foundation.version import version
from parties.local.children import free_ports
from parties.service.backup import back_up, restore
from parties.service.kit import SERVICE_COMMAND, SERVICE_DESCRIPTION, unit_text
from tests.until import nothing_runs

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "syncret"
OWNER_CHART = DEPLOY / "helm" / "syncret-owner"
CHARTS = (CHART, OWNER_CHART)
UNIT = DEPLOY / "systemd" / "syncret.service"
IMAGES = sorted(DEPLOY.glob("*.Containerfile"))
MOST_EXPOSED = 2.0
"""Of 10, by systemd's account of what a unit may do."""


def tool(*names: str) -> str:
    """The first of these programs that is installed here, beside this Python or on the path."""
    beside = Path(sys.executable).parent
    for name in names:
        if found := shutil.which(name, path=f"{beside}{os.pathsep}{os.environ['PATH']}"):
            return found
    pytest.skip(f"{' or '.join(names)} is not installed here")


def run(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sections(path: Path) -> configparser.ConfigParser:
    """A unit of systemd."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    return unit


# Images


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_containerfiles_have_nothing_for_hadolint_to_say(path: Path) -> None:
    assert run(tool("hadolint"), "--no-color", str(path)) == ""


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_images_run_as_nobody_special_from_a_pinned_base(path: Path) -> None:
    text = path.read_text()
    users = re.findall(r"^USER (.*)$", text, re.MULTILINE)
    assert users == ["10001:10001"]
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BUILDER}", "${BASE}"]
    (base,) = re.findall(r"^ARG BASE=\S+:(3\.\d+\.\d+)-slim-\w+$", text, re.MULTILINE)
    assert re.findall(r"^ARG BUILDER=\S+:(3\.\d+\.\d+)-\w+$", text, re.MULTILINE) == [base]
    assert "-c constraints.txt" in text
    assert "HEALTHCHECK" in text


def test_a_source_distribution_has_all_that_its_compiled_parts_include() -> None:
    """Without a header an installation from it would compile nothing, and say nothing."""
    manifest = (ROOT / "MANIFEST.in").read_text().splitlines()
    headers = [
        (ROOT / "protocols" / name).relative_to(ROOT)
        for source in (ROOT / "protocols").glob("*.c")
        for name in re.findall(r'^#include "(.+)"$', source.read_text(), re.MULTILINE)
    ]
    assert headers
    for header in headers:
        assert f"include {header}" in manifest
        assert f'"{header}"' in (ROOT / "setup.py").read_text()


def test_images_are_made_of_the_packages_that_the_project_installs() -> None:
    """The build's copied files are all of it, and the ignore file lets nothing else in.

    Owners count no rows, and their image is made without what compiles the kernel.
    """
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    for path in IMAGES:
        copied = re.findall(r"^COPY (?!--from)(.*)$", path.read_text(), re.MULTILINE)
        names = {name for line in copied for name in line.split()[:-1]}
        # Written so that it may be missing.
        compiling = {"setup.py"} if path.name.startswith("owner") else set()
        assert {name.replace("wheel[s]", "wheels") for name in names} == set(allowed) - compiling
    assert all((ROOT / name).exists() for name in set(allowed) - {"wheels"})
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    assert packages <= set(allowed)


def test_images_and_wheels_have_no_bench_and_extras_of_servers_and_owners_alone() -> None:
    extras = []
    for path in IMAGES:
        text = path.read_text()
        assert not re.search(r"^COPY.*bench", text, re.MULTILINE)
        extras += re.findall(r"'\.\[([\w,]+)\]'", text)
    assert extras == [pack.OWNER, "server,sql,oidc,traces"]
    assert set(pack.IMAGES.split(",")) >= {name for found in extras for name in found.split(",")}
    assert "bench" not in pack.PACKAGES
    assert set(pack.PACKAGES) == set(slim.OURS)


def test_health_checks_are_in_every_format_that_images_have_not() -> None:
    """Podman leaves an image's health check out in the OCI format, so that compose and quadlet have it again."""
    text = (DEPLOY / "server.Containerfile").read_text()
    (command,) = re.findall(r"^HEALTHCHECK.*\\\n    CMD (\[.*\])$", text, re.MULTILINE)
    words = json.loads(command)
    for name in SERVERS:
        assert compose()["services"][name]["healthcheck"]["test"] == ["CMD", *words]
    unit = sections(DEPLOY / "systemd" / "syncret.container")
    assert unit["Container"]["HealthCmd"].split() == words
    assert unit["Container"]["ReadOnly"] == "true"
    assert unit["Container"]["DropCapability"] == "ALL"


def a_package(site: Path, name: str, *, needs: tuple[str, ...] = (), more: str = "") -> None:
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{more}"]
    lines += [f"Requires-Dist: {need}\n" for need in needs]
    (folder / "METADATA").write_text("".join(lines))


def test_the_bill_of_materials_has_every_package_with_its_licence_and_needs(tmp_path: Path) -> None:
    a_package(tmp_path, "syncret", needs=("Num_Py>=2", "absent; extra == 'server'"))
    a_package(tmp_path, "num.py", more="License-Expression: BSD-3-Clause\n")
    a_package(tmp_path, "old", more="Classifier: License :: OSI Approved :: MIT License\n")
    bill: Any = json.loads(sbom.text([str(tmp_path)]))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "syncret"
    found = {one["name"]: one for one in bill["components"]}
    assert set(found) == {"num.py", "old"}
    assert found["num.py"]["purl"] == "pkg:pypi/num-py@1.0"
    assert found["num.py"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert found["old"]["licenses"] == [{"license": {"name": "MIT License"}}]
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert needs["pkg:pypi/syncret@1.0"] == ["pkg:pypi/num-py@1.0"]
    assert sbom.text([str(tmp_path)]) == sbom.text([str(tmp_path)])


def test_slimming_leaves_out_tests_and_sources_and_nothing_else(tmp_path: Path) -> None:
    kept = ("numpy/core.py", "numpy/testing/__init__.py", "numpy/lib.so", "pyarrow/libarrow.so.26")
    gone = (
        "numpy/tests/test_a.py",
        "numpy/a.pyx",
        "numpy/_a_tests.so",
        "numpy/_simd.so",
        "pyarrow/libarrow_s3.so",
        "PIL/_avif.cpython-311-x86_64-linux-gnu.so",
        "pillow.libs/libavif-c6062d5f.so.16.4.2",
    )
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    slim.leave_out(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)


def test_hashes_of_a_bundle_are_those_of_its_wheels(tmp_path: Path) -> None:
    wheel = tmp_path / "Tomli_W-1.2.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    digest = hashlib.sha256(b"a wheel").hexdigest()
    assert pack.requirements([wheel]) == f"tomli-w==1.2.0 --hash=sha256:{digest}\n"


# systemd


def test_the_unit_is_the_one_that_kits_have() -> None:
    made = unit_text(SERVICE_COMMAND, SERVICE_DESCRIPTION, watched=True)
    assert UNIT.read_bytes() == made


def test_the_unit_is_verified_by_systemd(tmp_path: Path) -> None:
    """But for its program, which is not installed here."""
    program = f"ExecStart={sys.executable} serve"
    text = re.sub(r"ExecStart=\S+ serve", program, UNIT.read_text())
    assert program in text
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    done = subprocess.run(
        [tool("systemd-analyze"), "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_is_confined() -> None:
    shown = run(tool("systemd-analyze"), "security", "--offline=true", "--no-pager", str(UNIT))
    exposure = re.search(r"exposure level for syncret\.service: ([0-9.]+)", shown)
    assert exposure is not None
    assert float(exposure.group(1)) <= MOST_EXPOSED


# Ports


def test_guides_and_examples_have_data_owners_come_to_443() -> None:
    """Networks of hospitals let out that port. Containers, whose user may not listen there, have another."""
    texts = [path for path in ROOT.glob("[de]*/**/*.md") if path.is_file()]
    texts += (ROOT / "parties" / "cli").glob("*.py")
    shown = [
        port
        for path in texts
        for port in re.findall(r"--ingest \w+\.example\S*:(\d+)", path.read_text())
    ]
    assert set(shown) == {"443"}
    assert len(shown) > 8
    unit = sections(DEPLOY / "systemd" / "syncret.container")["Container"]
    text = (DEPLOY / "server.Containerfile").read_text()
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    (exposed,) = re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE)
    assert json.loads(command) == unit["Exec"].split()
    assert re.findall(r"0\.0\.0\.0:(\d+)", unit["Exec"]) == exposed.split()
    published = re.findall(
        r"^PublishPort=(.*)$", (DEPLOY / "systemd" / "syncret.container").read_text(), re.MULTILINE
    )
    assert published == ["7100:7100", "443:7443"]
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE" in UNIT.read_text()


# Compose


def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_compose_is_valid() -> None:
    path = str(DEPLOY / "compose.yaml")
    if shutil.which("docker") and "compose" in _docker_commands():
        run("docker", "compose", "-f", path, "config", "--quiet")
    else:
        run(tool("docker-compose"), "-f", path, "config", "--quiet")


def _docker_commands() -> str:
    return subprocess.run(["docker", "--help"], capture_output=True, text=True, check=False).stdout


def test_compose_has_three_servers_their_operators_and_three_owners_and_confines_them() -> None:
    services = compose()["services"]
    assert {"alpha", "beta", "gamma", "coordinator", "north", "south", "west"} <= set(services)
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        published = service.get("ports", [])
        assert all(port.startswith("127.0.0.1:") for port in published), name
        assert not published or name == "prometheus"
    volumes = {name: str(services[name]["volumes"]) for name in ("alpha", "beta", "gamma")}
    for name, mounted in volumes.items():
        assert [other for other in volumes if f"'{other}:/" in mounted] == [name]


def test_prometheus_asks_the_three_servers_where_they_answer() -> None:
    services = compose()["services"]
    jobs = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    assert targets == {name: [services[name]["environment"]["ADMIN"]] for name in SERVERS}
    for job in jobs:
        assert job["scheme"] == "https"
        folders = {Path(path).parent for path in job["tls_config"].values()}
        assert folders == {Path("/scrape") / job["job_name"]}


SERVERS, OWNERS = ("alpha", "beta", "gamma"), ("north", "south", "west")


class Containers:
    """The scripts that compose.yaml starts, as processes, each with a folder of its own in the place of a volume."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        (folder / "bin").mkdir()
        program = folder / "bin" / "syncret"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m parties "$@"\n')
        program.chmod(0o755)
        for name in ("exchange", "scrape", *SERVERS, *OWNERS):
            (folder / name).mkdir(mode=0o700)

    def start(
        self, script: str, *arguments: str, home: str, **more: str
    ) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME_DIR": str(self.folder / home),
            "EXCHANGE": str(self.folder / "exchange"),
            "SCRAPE": str(self.folder / "scrape"),
            "EXAMPLE": str(ROOT / "examples" / "three-hosts"),
            "SYNCRET_BUDGET": str(self.folder / home / "budget.sqlite"),
            "SYNCRET_SUPERVISED": "1",
            "PATIENCE_S": "150",
            **more,
        }
        with (self.folder / f"{script}-{home}.log").open("ab") as log:
            command = ["sh", str(DEPLOY / "compose" / script), *arguments]
            started = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self.started.append(started)
        return started

    def wait_for(self, pattern: str) -> None:
        """Until there is such a file."""
        deadline = time.monotonic() + 120
        while not list(self.folder.glob(pattern)):
            assert time.monotonic() < deadline, f"no {pattern}\n{self.said()}"
            time.sleep(0.2)

    def said(self) -> str:
        """Output of all processes, for a failing test."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


def scraped(certificates: Path, port: int) -> str:
    """Metrics that Prometheus gets of a server, with its own files."""
    context = ssl.create_default_context(cafile=certificates / "admin.crt")
    context.load_cert_chain(certificates / "prometheus.crt", certificates / "prometheus.key")
    with urllib.request.urlopen(f"https://localhost:{port}/metrics", context=context) as answer:
        text: str = answer.read().decode()
    return text


@pytest.mark.slow
def test_the_scripts_of_compose_run_the_study_of_three_hosts(tmp_path: Path) -> None:
    """As processes: what runs in containers, but for the containers.

    Alpha's disk is lost while one owner has not sent yet, and restored from a copy that was taken while it ran. Servers
    end with 0 by SIGTERM.
    """
    lab, ports, key = Containers(tmp_path), free_ports(9), SealKey.generate()

    def serve(name: str) -> "subprocess.Popen[bytes]":
        number = SERVERS.index(name)
        ends = [f"localhost:{port}" for port in ports[3 * number : 3 * number + 3]]
        given = dict(zip(("MESH", "INGEST", "ADMIN"), ends, strict=True))
        return lab.start("server.sh", name, home=name, LISTEN_HOST="127.0.0.1", **given)

    try:
        servers = {name: serve(name) for name in SERVERS}
        operators = [lab.start("coordinator.sh", *OWNERS, home="alpha")]
        operators += [lab.start("approve.sh", home=name) for name in SERVERS]
        *prompt, late = (lab.start("owner.sh", name, home=name) for name in OWNERS)
        lab.wait_for("exchange/west.request")
        late.send_signal(signal.SIGSTOP)
        for process in (*operators, *prompt):
            assert process.wait(160) == 0, lab.said()
        back_up(tmp_path / "alpha", tmp_path / "copy", PublicKeyWrapper(key.public))
        servers["alpha"].kill()
        servers["alpha"].wait()
        # Its workers end a moment after it, and write into the folder until then.
        nothing_runs(tmp_path / "alpha")
        shutil.rmtree(tmp_path / "alpha")
        opener, register = PublicKeyWrapper(key.public, key), tmp_path / "none" / "register.sqlite"
        restore(tmp_path / "copy", tmp_path / "alpha", opener, register=register)
        servers["alpha"] = serve("alpha")
        late.send_signal(signal.SIGCONT)
        assert late.wait(160) == 0, lab.said()
        lab.wait_for("alpha/studies/*/run/report.html")
        for number, name in enumerate(SERVERS):
            assert "syncret_" in scraped(tmp_path / "scrape" / name, ports[3 * number + 2])
        for process in servers.values():
            process.terminate()
        assert [process.wait(30) for process in servers.values()] == [0, 0, 0], lab.said()
    finally:
        for process in lab.started:
            process.kill()
            process.wait()


# Helm


def rendered(values: Mapping[str, object] = {}, chart: Path = CHART) -> list[dict[str, Any]]:
    """A chart's manifests."""
    done = by_helm("render", chart, values)
    assert done.returncode == 0, done.stdout + done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def by_helm(
    what: str, chart: Path, values: Mapping[str, object] = {}
) -> "subprocess.CompletedProcess[str]":
    """Output of Helm's library on a chart; see `tests/helm_chart.py`."""
    if importlib.util.find_spec("helm_python") is None:
        pytest.skip("helm-python-sdk is not installed here")
    command = [sys.executable, str(ROOT / "tests" / "helm_chart.py"), what, str(chart), "one"]
    return subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, check=False
    )


def by_kind(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {manifest["kind"]: manifest for manifest in manifests}


def by_name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("chart", CHARTS, ids=by_name)
def test_helm_has_nothing_to_say(chart: Path) -> None:
    done = by_helm("lint", chart)
    assert (done.returncode, done.stdout.strip()) == (0, "")


@pytest.mark.parametrize("chart", CHARTS, ids=by_name)
def test_the_chart_is_of_this_version(chart: Path) -> None:
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"] == version()


@pytest.mark.parametrize("chart", CHARTS, ids=by_name)
def test_values_and_their_schema_have_the_same_keys(chart: Path) -> None:
    """A key that one lacks is refused by Helm, or cannot be set."""
    schema = json.loads((chart / "values.schema.json").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for key, value in values.items():
        found = schema["properties"][key]
        found = schema["definitions"]["end"] if "$ref" in found else found
        if "properties" in found:
            assert set(value) == set(found["properties"]), key


@pytest.mark.parametrize("chart", CHARTS, ids=by_name)
def test_templates_use_values_that_there_are(chart: Path) -> None:
    values = yaml.safe_load((chart / "values.yaml").read_text())
    used = set()
    for path in (chart / "templates").iterdir():
        used |= set(re.findall(r"\.Values((?:\.\w+)+)", path.read_text()))
    for name in used:
        value: Any = values
        for part in name[1:].split("."):
            assert isinstance(value, dict)
            assert part in value, f"values.yaml lacks {name[1:]}"
            value = value[part]


def test_the_chart_runs_one_confined_server_behind_two_ports() -> None:
    manifests = rendered()
    found = by_kind(manifests)
    assert set(found) == {"StatefulSet", "Service", "NetworkPolicy", "ServiceAccount"}
    account = found["ServiceAccount"]
    assert account["automountServiceAccountToken"] is False
    assert found["StatefulSet"]["spec"]["template"]["spec"]["serviceAccountName"] == "one-syncret"
    assert account["metadata"]["name"] == "one-syncret"
    spec = found["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 1
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["image"] == f"syncret-server:{version()}"
    (server,) = pod["containers"]
    assert server["args"][0] == "serve"
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(server)
    services = {m["metadata"]["name"]: m["spec"] for m in manifests if m["kind"] == "Service"}
    assert found["StatefulSet"]["spec"]["serviceName"] in services
    ports = {name: [port["port"] for port in spec["ports"]] for name, spec in services.items()}
    assert ports == {"one-syncret-mesh": [7100], "one-syncret-ingest": [443]}
    assert [port["containerPort"] for port in server["ports"]] == [7100, 7443]
    policy = found["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert [rule["ports"] for rule in policy["ingress"]] == [
        [{"port": "mesh"}],
        [{"port": "ingest"}],
    ]
    labels = spec["template"]["metadata"]["labels"].items()
    for selector in (spec["selector"], policy["podSelector"]):
        assert selector["matchLabels"].items() <= labels
    assert all(spec["selector"].items() <= labels for spec in services.values())


def test_the_chart_has_ipv6_and_each_ports_own_kind_of_service() -> None:
    values = {
        "mesh": {"address": "[2001:db8::1]:7100", "type": "NodePort"},
        "ingest": {"annotations": {"lb": "public"}},
        "network": {"listen": "::", "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6"]},
    }
    manifests = rendered(values)
    services = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "Service"}
    mesh, ingest = services["one-syncret-mesh"], services["one-syncret-ingest"]
    assert mesh["spec"]["type"] == "NodePort"
    assert ingest["spec"]["type"] == "LoadBalancer"
    assert "annotations" not in mesh["metadata"]
    assert ingest["metadata"]["annotations"] == {"lb": "public"}
    for service in services.values():
        assert service["spec"]["ipFamilyPolicy"] == "PreferDualStack"
        assert service["spec"]["ipFamilies"] == ["IPv6"]
    (server,) = by_kind(manifests)["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    listening = [word for word in server["args"] if word.startswith("[")]
    assert listening == ["[::]:7100", "[::]:7443"]


def test_the_chart_takes_what_clusters_add() -> None:
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    mounted = {"name": "csi", "mountPath": "/keys", "readOnly": True}
    volume = {"name": "csi", "csi": {"driver": "secrets-store.csi.k8s.io"}}
    values = {
        "extraEnv": [proxy],
        "extraVolumes": [volume],
        "extraVolumeMounts": [mounted],
        "serviceAccount": {"create": False, "name": "theirs"},
    }
    found = by_kind(rendered(values))
    assert "ServiceAccount" not in found
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "theirs"
    assert volume in pod["volumes"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert proxy in container["env"]
        assert mounted in container["volumeMounts"]


MONITORED = {
    "admin": {"port": 7444},
    "monitoring": {
        "serviceMonitor": True,
        "prometheusRule": True,
        "tlsSecret": "scrape",
        "serverName": "alpha.example.org",
        "labels": {"release": "prometheus"},
    },
}


def test_the_chart_has_prometheus_operators_resources_and_the_rules_of_one_file() -> None:
    manifests = rendered(MONITORED)
    found = by_kind(manifests)
    rules = yaml.safe_load((DEPLOY / "prometheus" / "syncret.rules.yml").read_text())
    assert found["PrometheusRule"]["spec"] == rules
    monitor = found["ServiceMonitor"]
    for manifest in (monitor, found["PrometheusRule"]):
        assert manifest["metadata"]["labels"]["release"] == "prometheus"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    matched = [
        m for m in manifests if m["kind"] == "Service" and wanted <= m["metadata"]["labels"].items()
    ]
    assert [m["metadata"]["name"] for m in matched] == ["one-syncret-admin"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["path"]) == ("https", "/metrics")
    assert endpoint["port"] in [port["name"] for port in matched[0]["spec"]["ports"]]
    tls = endpoint["tlsConfig"]
    assert tls["serverName"] == "alpha.example.org"
    secrets = (tls["ca"]["secret"], tls["cert"]["secret"], tls["keySecret"])
    assert [secret["key"] for secret in secrets] == [
        "admin.crt",
        "prometheus.crt",
        "prometheus.key",
    ]


@pytest.mark.parametrize(
    ("without", "named"),
    [("admin", "admin.port"), ("monitoring", "monitoring.tlsSecret")],
)
def test_a_service_monitor_that_could_ask_nothing_is_refused(without: str, named: str) -> None:
    values = {**MONITORED, without: {"port": 0} if without == "admin" else {"serviceMonitor": True}}
    done = by_helm("render", CHART, values)
    assert done.returncode != 0
    assert named in done.stderr


OWNED = {
    "invitation": {"url": "https://alpha.example.org:7443/study.invitation#" + "0" * 64},
    "table": {"volume": {"persistentVolumeClaim": {"claimName": "stays"}}},
}


@pytest.mark.parametrize("agree", [False, True])
def test_an_owners_job_sends_nothing_without_consent(agree: bool) -> None:
    found = by_kind(rendered({**OWNED, "agree": agree}, OWNER_CHART))
    assert set(found) == {"Job", "PersistentVolumeClaim"}
    assert found["PersistentVolumeClaim"]["metadata"]["annotations"] == {
        "helm.sh/resource-policy": "keep"
    }
    pod = found["Job"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    (owner,) = pod["containers"]
    assert owner["image"] == f"syncret-owner:{version()}"
    assert owner["securityContext"]["readOnlyRootFilesystem"] is True
    joins = [line for line in owner["command"][-1].splitlines() if "syncret join" in line]
    assert [("--yes" in line, "--check" in line) for line in joins] == [(agree, not agree)]
    assert found["Job"]["metadata"]["name"].endswith("-join" if agree else "-check")
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["table"]["persistentVolumeClaim"] == {"claimName": "stays"}
    mounted = {mount["name"]: mount for mount in owner["volumeMounts"]}
    assert set(mounted) == set(volumes)
    assert mounted["table"]["readOnly"] is True


def test_an_owners_job_without_a_table_or_an_invitation_is_refused() -> None:
    for missing in OWNED:
        given = {key: value for key, value in OWNED.items() if key != missing}
        done = by_helm("render", OWNER_CHART, given)
        assert done.returncode != 0
        assert f"{missing}." in done.stderr


def test_the_chart_has_the_operators_port_where_it_is_asked_for() -> None:
    manifests = rendered({"admin": {"port": 7444}})
    services = {m["metadata"]["name"]: m["spec"] for m in manifests if m["kind"] == "Service"}
    (name,) = [name for name in services if name.endswith("-admin")]
    assert services[name]["type"] == "ClusterIP"
    assert services[name]["ports"] == [{"name": "admin", "port": 7444, "targetPort": "admin"}]
    found = by_kind(manifests)
    (server,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "admin", "containerPort": 7444} in server["ports"]
    # Nobody reaches it before somebody is named.
    assert len(found["NetworkPolicy"]["spec"]["ingress"]) == 2
    prometheus = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    values = {
        "admin": {"port": 7444},
        "networkPolicy": {
            "enabled": True,
            "meshFrom": [],
            "ingestFrom": [],
            "adminFrom": prometheus,
        },
    }
    *_, last = by_kind(rendered(values))["NetworkPolicy"]["spec"]["ingress"]
    assert last == {"ports": [{"port": "admin"}], "from": prometheus}


def test_the_chart_takes_secrets_by_reference_alone() -> None:
    values = {
        "database": {"existingSecret": "base", "key": "url"},
        "identity": {"existingSecret": "keys"},
        "servers": {"existingConfigMap": "three"},
        "settings": "[keep]\ntranscripts_days = 30\n",
        "image": {"digest": "sha256:" + "0" * 64},
        "networkPolicy": {"meshFrom": [{"ipBlock": {"cidr": "192.0.2.10/32"}}]},
        "persistence": {"storageClass": "fast"},
    }
    manifests = rendered(values)
    found = by_kind(manifests)
    assert "Secret" not in found
    assert found["ConfigMap"]["data"]["settings.toml"].strip() == values["settings"].strip()  # type: ignore[attr-defined]
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    assert {
        "name": "SYNCRET_DATABASE",
        "valueFrom": {"secretKeyRef": {"name": "base", "key": "url"}},
    } in server["env"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["identity"]["secret"] == {"secretName": "keys", "defaultMode": 0o400}
    assert volumes["servers"]["configMap"] == {"name": "three"}
    assert server["image"].endswith("@sha256:" + "0" * 64)
    first, second = found["NetworkPolicy"]["spec"]["ingress"]
    assert first["from"] == [{"ipBlock": {"cidr": "192.0.2.10/32"}}]
    assert "from" not in second
    (claim,) = found["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
