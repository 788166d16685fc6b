"""A wheel of Syncret in environments with nothing else, on every Python that this machine has from 3.11 on."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parties.foundation.version import version
from tests.test_deploy import ROOT

OLDEST, NEWEST = 11, 14
FOLDERS = ("parties", "protocols", "secagg", "mechanisms", "bench")
FILES = ("pyproject.toml", "setup.py", "README.md", "MANIFEST.in", "syncret.py")


def interpreter(minor: int) -> str | None:
    """The path of a Python 3.``minor`` that starts, by its usual name; None without one."""
    found = shutil.which(f"python3.{minor}")
    if found is None:
        return None
    # A manager of versions has names on the path for those that it would not start.
    done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return found if done.returncode == 0 else None


def pip(python: Path | str, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Syncret's wheel, with its compiled parts, made of a copy of this tree."""
    source, out = (tmp_path_factory.mktemp(name) for name in ("source", "wheel"))
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "results")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    done = pip(sys.executable, "wheel", "-q", "--no-deps", "--wheel-dir", out, source)
    if done.returncode:
        pytest.skip(f"no package index answers: {done.stderr[-300:]}")
    (made,) = out.glob("syncret-*.whl")
    return made


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("minor", range(OLDEST, NEWEST + 1))
def test_a_wheel_runs_whole_studies_in_a_bare_environment(
    minor: int, wheel: Path, tmp_path: Path
) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"no python3.{minor} on the path of this machine")
    subprocess.run([python, "-m", "venv", tmp_path / "bare"], check=True)
    own = tmp_path / "bare" / "bin"
    constraints = ROOT / "constraints.txt"
    done = pip(own / "python", "install", "-q", "-c", constraints, f"{wheel}[server]")
    assert done.returncode == 0, done.stderr[-2000:]
    home = tmp_path / "home"
    home.mkdir()
    environment = {"PATH": os.defpath, "HOME": str(home)}

    def said(program: Path, *arguments: str | Path) -> str:
        command = [str(program), *map(str, arguments)]
        ended = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        return ended.stdout

    syncret, run = own / "syncret", home / "run"
    assert said(syncret, "--version") == f"syncret, version {version()}\n"
    where = "import protocols; print(protocols.__file__)"
    assert said(own / "python", "-c", where).startswith(str(tmp_path / "bare"))
    report = json.loads(said(syncret, "demo", "--json", "--out", run))
    assert report["rounds_done"] == report["parameters"]["rounds"]
    assert json.loads(said(syncret, "audit", run, "--json"))["ok"]
    # The run of one Python passes the audit of another.
    mine = [sys.executable, "-m", "parties", "audit", str(run), "--json"]
    ended = subprocess.run(mine, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
