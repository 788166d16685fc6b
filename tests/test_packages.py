"""Packages of data owners and images, made here and run: the one-file zipapp, the bundle of wheels, both images."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from parties.foundation.version import version
from tests.parties.serving import LIMIT_S, Cluster, cluster
from tests.parties.small import write_small
from tests.parties.test_taking_part import (
    authority_of,
    owner_by_invitation,
    propose_and_invite,
    waiting,
)
from tests.test_deploy import DEPLOY, ROOT, run, tool

BARE = str(Path(sys.base_prefix) / "bin" / "python3")
"""Python without any package."""


def packing(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(DEPLOY / "pack.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_nothing_is_packed_without_wheels(tmp_path: Path) -> None:
    done = packing("zipapp", "--wheels", tmp_path, "--out", tmp_path / "out")
    assert done.returncode != 0
    assert "expected those of `pack.py wheels`" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def wheels() -> Path:
    """The folder of `make wheels`, made here where it is missing or of other code, and an index answers."""
    folder = ROOT / "wheels"
    if not any(has_this_code(path) for path in folder.glob("syncret-*.whl")):
        done = packing("wheels")
        if done.returncode:
            pytest.skip(f"no package index answers: {done.stderr[-300:]}")
    return folder


def has_this_code(wheel: Path) -> bool:
    """True for a wheel of Syncret whose modules are those of this tree."""
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if ".dist-info/" not in name]
        return all(
            (ROOT / name).is_file() and (ROOT / name).read_bytes() == packed.read(name)
            for name in names
        )


@pytest.fixture(scope="module")
def zipapp(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An owner's one file, as `make zipapp` makes it."""
    if importlib.util.find_spec("pex") is None:
        pytest.skip("pex is not installed here")
    out = tmp_path_factory.mktemp("dist")
    done = packing("zipapp", "--wheels", wheels, "--out", out)
    assert done.returncode == 0, done.stderr
    return out / "syncret.pyz"


def bare_environment(home: Path) -> dict[str, str]:
    """The environment of somebody who has nothing of this project."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(home)}


@pytest.mark.slow
def test_an_owners_one_file_and_bundle_run_on_a_python_with_nothing(
    wheels: Path, zipapp: Path, tmp_path: Path
) -> None:
    done = packing("bundle", "--wheels", wheels, "--out", tmp_path)
    assert done.returncode == 0, done.stderr

    def said(*command: str) -> str:
        home = bare_environment(tmp_path)
        done = subprocess.run(command, env=home, cwd=tmp_path, capture_output=True, text=True)
        return f"{done.returncode} {done.stdout}{done.stderr}"

    app = (BARE, str(zipapp))
    assert said(*app, "--version") == f"0 syncret, version {version()}\n"
    assert "absent.invitation" in said(*app, "join", "absent.invitation", "--data", "x", "--yes")
    (packed,) = tmp_path.glob("syncret-owner-*.zip")
    shutil.unpack_archive(packed, tmp_path / "bundle")
    assert json.loads((tmp_path / "bundle" / "sbom.cdx.json").read_text())["components"]
    lines = re.findall(r"^  (\S+ .*)$", (tmp_path / "bundle" / "README.txt").read_text(), re.M)
    script = "\n".join(["set -e", "cd bundle", *lines]).replace(
        "python3 -m venv", f"{BARE} -m venv"
    )
    ended = said("/bin/sh", "-c", script)
    assert ended.startswith("0 "), ended
    assert f"syncret, version {version()}" in ended


def host_of_north(folder: Path) -> Path:
    """A folder with north's table alone."""
    host = folder / "packaged-north"
    host.mkdir()
    write_small(host)
    (host / "small.toml").unlink()
    return host


def take_part(
    three: Cluster, host: Path, program: Sequence[str], environment: Mapping[str, str]
) -> None:
    """A study by invitation until its audited result; north is in ``host``, with a ``program`` of its own."""
    digest, invitation = propose_and_invite(three, "packaged")
    shutil.copy(invitation, host)
    joining = {
        name: owner_by_invitation(three, name, invitation, "--yes", "--json")
        for name in ("south", "west")
    }
    words = ("join", invitation.name, "--data", "small.csv", "--name", "north", "--yes", "--json")
    joining["north"] = subprocess.Popen(
        [*program, *words],
        cwd=host,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        alpha, authority = three.serves[0], str(authority_of(three, "packaged"))
        for asked in waiting(alpha, digest, *joining).values():
            alpha.command("study", "admit", digest, asked["words"], "--authority", authority)
        three.approve(digest)
        results = {}
        for name, process in joining.items():
            out, errors = process.communicate(timeout=2 * LIMIT_S)
            assert process.returncode == 0, (name, out, errors)
            results[name] = json.loads(out)
    finally:
        for process in joining.values():
            process.kill()
            process.communicate()
    for said in results.values():
        assert len(said["submission"]["receipts"]) == 3
        assert said["result"]["audit"]["ok"], said
    bundles = {path.read_bytes() for path in three.folder.glob("packaged-*/packaged.zip")}
    assert len(bundles) == 1
    assert (host / "packaged.zip").exists()
    assert (host / "tls" / "own.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_owner_goes_from_the_invitation_to_the_audited_result_with_one_file(
    zipapp: Path, tmp_path: Path
) -> None:
    """On a Python with nothing, with three services and two other owners of this tree as processes."""
    environment = bare_environment(tmp_path)
    app = (BARE, str(zipapp))
    # It unpacks itself when it runs first.
    subprocess.run([*app, "--version"], env=environment, stdout=subprocess.DEVNULL, check=True)
    (tmp_path / "study").mkdir()
    with cluster(tmp_path / "study") as three:
        take_part(three, host_of_north(three.folder), app, environment)


LIMITS = {"owner": 200e6, "server": 400e6}
"""Bytes of an image above its base."""


class Podman:
    """Podman with a store of its own, and by runc where it is there: crun refuses hybrid control groups."""

    def __init__(self, folder: Path, run_root: str) -> None:
        self.store = folder / "store"
        # Podman refuses a long path for what lasts as long as a container.
        self.options = [tool("podman"), "--root", str(self.store), "--runroot", run_root]
        self.options += ["--cgroup-manager", "cgroupfs"]
        if shutil.which("runc"):
            self.options += ["--runtime", "runc"]

    def __call__(self, *words: str | Path) -> str:
        return run(*self.options, *map(str, words))

    def build(self, kind: str, form: str) -> None:
        """An image of this tree, with no network."""
        bases = ("--build-arg", "BASE=localhost/base", "--build-arg", "BUILDER=localhost/base")
        file, name = DEPLOY / f"{kind}.Containerfile", f"syncret-{kind}"
        limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
        network = ("--network", "none", "--format", form)
        self("build", *network, *limits, *bases, "-f", file, "-t", name, ROOT)

    def shell(self, kind: str, script: str) -> str:
        """Output of a script in a confined container."""
        confined = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--no-healthcheck")
        limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
        command = ("--entrypoint", "/bin/sh", f"syncret-{kind}", "-ec", script)
        return self("run", "--rm", "--network", "none", *confined, *limits, *command)

    def owner(self, home: Path) -> list[str]:
        """The owner's program in a confined container of this host's network, with ``home`` as its volume."""
        shutil.chown(home, 10001, 10001)
        confined = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--no-healthcheck")
        limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--timeout", "900")
        command = ("run", "--rm", "--network", "host", "-v", f"{home}:/data")
        return [*self.options, *command, *confined, *limits, "syncret-owner"]

    def close(self) -> None:
        """Deletes all images, and the mount that podman makes of its own store."""
        self("system", "prune", "--all", "--force")
        subprocess.run(["umount", str(self.store / "overlay")], capture_output=True, check=False)

    def bytes_of(self, image: str) -> int:
        return int(self("image", "inspect", image, "--format", "{{.Size}}"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_podman_builds_both_images_without_a_network_and_runs_them(
    wheels: Path, tmp_path: Path
) -> None:
    """On a base by debootstrap, so that no registry of images is asked.

    A study of three servers runs in one container; in another study an owner takes part by its image.
    """
    debootstrap, base = tool("debootstrap"), tmp_path / "base"
    if os.geteuid():
        pytest.skip("debootstrap wants root")
    run_root = TemporaryDirectory(prefix="podman-")
    podman = Podman(tmp_path, run_root.name)
    included = "--include=python3,python3-venv,binutils"
    made = subprocess.run(
        [debootstrap, "--variant=minbase", included, "bookworm", str(base)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no mirror of Debian answers: {made.stdout[-300:]}")
    run("tar", "-C", str(base), "-cf", str(tmp_path / "base.tar"), ".")
    shutil.rmtree(base)
    try:
        podman("import", tmp_path / "base.tar", "localhost/base:latest")
        for kind, limit in LIMITS.items():
            podman.build(kind, "docker")
            image = f"localhost/syncret-{kind}"
            assert podman.bytes_of(image) - podman.bytes_of("localhost/base") <= limit
            health = podman("image", "inspect", image, "--format", "{{.Config.Healthcheck}}")
            assert "syncret" in health
            assert version() in podman.shell(kind, "syncret --version")
            site = "/opt/syncret/lib/python3*/site-packages"
            there = podman.shell(kind, f"ls -d {site}/* ; find {site} -name tests; id -u")
            assert not re.search(r"/(bench|pip|setuptools|pytest|tests)$", there, re.MULTILINE)
            assert there.endswith("10001\n")
            bill = json.loads(podman.shell(kind, "cat /opt/syncret/sbom.cdx.json"))
            assert {"numpy", "cryptography"} <= {one["name"] for one in bill["components"]}
        podman.shell("server", "syncret demo --out /tmp/demo && syncret audit /tmp/demo")
        podman.shell("owner", "python -c 'import pyarrow.parquet, openpyxl, psycopg, sqlalchemy'")
        (tmp_path / "study").mkdir()
        with cluster(tmp_path / "study") as three:
            host = host_of_north(three.folder)
            take_part(three, host, podman.owner(host), os.environ)
    finally:
        podman.close()
        run_root.cleanup()
