"""`syncret bench` as a group: its help, and how SIGTERM and Ctrl-C end what it has started, in the background too."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bench.cli import bench
from bench.engine.measure import run_three
from bench.networks import ROOT, opened
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.foundation.exit_codes import Status
from tests.parties.commands import LIMIT_S, Run
from tests.robustness.cli import robustness
from tests.until import until


def test_bench_has_help_with_an_example() -> None:
    shown = CliRunner().invoke(cli, ["bench", "--help"])
    assert "Example: syncret bench engine --task" in " ".join(shown.output.split())


@pytest.mark.parametrize("words", [["attacks", "--all"], ["load", "fuzz"], ["load", "kills"]])
def test_former_names_lead_to_the_tests_of_robustness(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert run_command_line(cli, ["bench", *words]) == Status.USAGE
    name = next(word for word in words if word != "load")
    said = capsys.readouterr().err
    assert f"is called python -m tests.robustness {name} now, in a checkout of the source" in said
    assert name in robustness.commands


def test_all_commands_together_import_nothing_of_the_extras() -> None:
    script = (
        "import sys, click\n"
        "from bench.cli import bench\n"
        "context = click.Context(bench)\n"
        "assert all(bench.get_command(context, n) for n in bench.list_commands(context))\n"
        "assert len(bench.list_commands(context)) == 16\n"
        "found = {'sklearn', 'umap', 'joblib', 'dask', 'distributed'} & set(sys.modules)\n"
        "sys.exit(', '.join(found) or None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_papers_are_not_listed_and_refused_where_an_installation_leaves_them_out(
    tmp_path: Path,
) -> None:
    def said(*words: str, path: Path) -> tuple[int, str]:
        # Without .pth files: an editable installation would find what the copy leaves out.
        paths = [
            str(path),
            str(ROOT),
            *dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib"))),
        ]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-P", "-S", "-m", "parties", "bench", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    shutil.copytree(ROOT / "bench", tmp_path / "bench", ignore=shutil.ignore_patterns("papers"))
    for path, here in ((tmp_path, False), (ROOT, True)):
        status, listed = said("--help", path=path)
        assert status == Status.DONE
        assert [f"  {name} " in listed for name in ("engine", "tda", "mtl")] == [True, here, here]
    assert said("tda", "--help", path=ROOT)[0] == Status.DONE
    status, refused = said("tda", "--help", path=tmp_path)
    assert status == Status.USAGE
    assert "syncret bench tda: repeats a paper" in refused
    assert "pip install -c constraints.txt -e '.[papers]'" in refused


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command `wait` that signals its own process, and what was done at its end."""
    done: list[str] = []

    @click.command()
    @click.argument("number", type=int)
    def wait(number: int) -> None:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        except Exception:  # noqa: BLE001  # As a benchmark does that goes on after a failure.
            done.append("went on")
        finally:
            done.append("cleaned up")

    monkeypatch.setitem(bench.commands, "wait", wait)
    return done


STOPPED = [
    (signal.SIGTERM, Status.TERMINATED, "stopped by SIGTERM"),
    (signal.SIGINT, Status.INTERRUPTED, "stopped by Ctrl-C"),
]


@contextlib.contextmanager
def interrupts(disposition: signal.Handlers | None) -> Iterator[None]:
    """Sets SIGINT for this process and its children: ignored, as in the background of a script, or as usual."""
    before = signal.signal(signal.SIGINT, disposition or signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("disposition", [None, signal.SIG_IGN], ids=["foreground", "background"])
@pytest.mark.parametrize(("number", "status", "said"), STOPPED)
def test_bench_cleans_up_when_it_is_stopped(
    ends: list[str],
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    status: Status,
    said: str,
    disposition: signal.Handlers | None,
) -> None:
    with interrupts(disposition):
        before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
        assert run_command_line(cli, ["bench", "wait", str(int(number))]) == status
        assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    assert capsys.readouterr().err.strip() == f"syncret: error: {said}"
    assert ends == ["cleaned up"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for children in /proc")
@pytest.mark.parametrize(("number", "status", "said"), STOPPED)
def test_bench_engine_leaves_no_party_behind_after_a_signal_in_the_background(
    number: signal.Signals, status: Status, said: str
) -> None:
    options = ("--task", "abs_error", "--size", "1000000", "--repeat", "1000", "--no-peer")
    with interrupts(signal.SIG_IGN):
        run = Run("bench", "engine", *options)
    try:
        parties = _until_three_parties(run.process.pid)
        run.process.send_signal(number)
        ended, output = run.end()
    finally:
        run.process.kill()
    assert (ended, output) == (status, "")
    assert run.said[-1] == f"syncret: error: {said}"
    # Its children were waited for.
    assert not [pid for pid in parties if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(("number", "status", "said"), STOPPED)
def test_a_child_that_is_being_started_when_a_signal_comes_is_ended_too(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: Status, said: str
) -> None:
    started: list[int] = []

    class Signalled(subprocess.Popen[str]):
        """Gets its signal when the child runs, but its parent has not been told yet."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)
            if len(started) == 3:
                os.kill(os.getpid(), number)

    @click.command()
    def three() -> None:
        with opened("loopback") as network:
            run_three(network, [["http.server", "0"]] * 3, [""] * 3, "it")

    monkeypatch.setattr("subprocess.Popen", Signalled)
    monkeypatch.setitem(bench.commands, "three", three)
    with interrupts(None):
        assert run_command_line(cli, ["bench", "three"]) == status
    assert len(started) == 3
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _until_three_parties(pid: int) -> list[int]:
    return until(
        lambda: found if len(found := _parties(pid)) == 3 else [], "three parties", LIMIT_S
    )


def _parties(pid: int) -> list[int]:
    """The children of process `pid` that are parties."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if _is_party(child)]


def _is_party(pid: str) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return b"bench.engine.party" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
