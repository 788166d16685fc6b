"""Faults that one operator can cure alone fail no study: a full disk, a clock that is off, for many tries."""

import contextlib
import json
import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text

from parties.foundation.exit_codes import Status
from tests.parties.commands import ROOT
from tests.parties.serving import SERVERS, Cluster, Serve, cluster, syncret
from tests.postgres import postgresql
from tests.until import nothing_runs, process_of, processes

pytestmark = pytest.mark.timeout(300)
HOOK = '''
"""A host whose clock is off by what a file says, and services that try often, and defects seldom."""
import datetime
import os
import time

import parties.service.attempts
import parties.identity.tls

_real = time.time


def _shifted():
    with open(os.environ["CLOCK_FILE"]) as file:
        return _real() + float(file.read())


time.time = _shifted
parties.identity.tls._now = lambda: datetime.datetime.fromtimestamp(_shifted(), datetime.UTC)
parties.service.attempts.LONGEST_PAUSE_S = 3.0
parties.service.attempts.MAX_FAILURES = 1
'''
MAX_FAILURES = 1
"""Tries of a defect in these services; each try starts a process."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    """Three services, each of a host with a clock that can be set."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    paths = os.pathsep.join([str(hook), str(ROOT)])
    with cluster(tmp_path, environment={"PYTHONPATH": paths}) as made:
        yield made
        for serve in made.serves:
            assert serve.end() == int(Status.TERMINATED), serve.log
    nothing_runs(tmp_path)


def set_clock(serve: Serve, seconds: float) -> None:
    Path(serve.environment["CLOCK_FILE"]).write_text(str(seconds))


def let_write(serve: Serve, most: int | None) -> None:
    """Let the files of a service and of its processes grow no larger than this from now on; None: as they may."""
    for pid in processes(serve.folder):
        with contextlib.suppress(ProcessLookupError):  # It may have ended meanwhile.
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            soft = hard if most is None else most
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def let_allocate(pid: int, more: int) -> None:
    """Let a process have only so many bytes more than it has, as in a cgroup that is almost full."""
    status = Path(f"/proc/{pid}/status").read_text()
    now = next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmSize" in line)
    _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (now + more, hard))


def the_study(status: dict[str, Any]) -> dict[str, Any]:
    (study,) = status["studies"]
    return dict(study)


@pytest.mark.slow
def test_a_full_disk_and_a_clock_that_is_off_fail_no_study(three: Cluster) -> None:
    """More tries than a defect has, at two servers at once, and then the whole study."""
    alpha, beta, gamma = three.serves
    digest = three.propose("patient")
    three.approve(digest)
    for serve in three.serves:
        serve.until_state("patient", "running")

    let_write(beta, 0)
    gamma.end()
    set_clock(gamma, -612)
    gamma.start()

    def tried(status: dict[str, Any]) -> bool:
        return bool(the_study(status)["process"]["restarts"] > MAX_FAILURES + 1)

    for serve in (beta, gamma):
        serve.until(tried, "tried again and again")
    disk, clock = "beta: its disk ", "gamma: its clock is 10 min 12 s behind, by the two others'"
    for serve in three.serves:
        status = serve.until(
            lambda s: clock in the_study(s)["why"] and disk in the_study(s)["why"], "waits"
        )
        study = the_study(status)
        assert study["state"] in ("waiting", "running")
        assert [(wait["name"], wait["cause"]) for wait in study["waits"]] == [
            ("beta", "disk"),
            ("gamma", "clock"),
        ]
        assert clock in status["troubles"]
        assert clock in serve.command("study", "list")
        assert disk in serve.command("study", "show", "patient")
        shown = syncret("status", str(serve.folder), cwd=three.folder)
        assert clock in " ".join(shown.split())
    offsets = {peer["name"]: peer["clock"]["offset_s"] for peer in alpha.get("/status")["peers"]}
    assert offsets["gamma"] == pytest.approx(-612, abs=5)
    assert offsets["beta"] == pytest.approx(0, abs=5)

    let_write(beta, None)
    set_clock(gamma, 0)
    for serve in three.serves:
        serve.until_state("patient", "running")
    three.submit("patient")
    for serve in three.serves:
        study = serve.until_state("patient", "finished")
        assert (study["turn"], study["reason"], study["waits"]) == (1, "", [])
        happened = [entry["what"] for entry in serve.get(f"/studies/{digest}")["history"]]
        assert happened.count("approved") == 3
        assert "failed" not in happened
    assert alpha.get("/status")["troubles"] == []


@pytest.mark.slow
def test_a_disk_that_fills_up_while_owners_send_is_told_and_they_come_again(
    three: Cluster,
) -> None:
    """Not even a study that would wait for its owners in vain: what cannot be stored ends the attempt, not the run."""
    alpha, beta, _ = three.serves
    digest = three.propose("filled")
    three.approve(digest)
    for serve in three.serves:
        serve.until_state("filled", "running")
    let_write(beta, 0)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(three.submit, "filled", away="beta")
        alpha.until(lambda status: "beta: its disk " in the_study(status)["why"], "waits")
        let_write(beta, None)
        sent.result()
    for serve in three.serves:
        assert serve.until_state("filled", "finished")["turn"] == 1


@pytest.mark.slow
def test_a_process_that_runs_out_of_memory_is_started_again(three: Cluster) -> None:
    digest = three.propose("narrow")
    three.approve(digest)
    for serve in three.serves:
        serve.until_state("narrow", "running")
    let_allocate(process_of(three.serves[1].folder, " worker "), 1 << 20)
    three.submit("narrow", away="beta")
    for serve in three.serves:
        study = serve.until_state("narrow", "finished")
        assert (study["turn"], study["reason"]) == (1, "")
    happened = [entry["what"] for entry in three.serves[1].get(f"/studies/{digest}")["history"]]
    assert happened.count("approved") == 3
    assert happened.count("waiting") > 0


@pytest.mark.slow
def test_services_on_postgresql_wait_for_it_and_go_on(tmp_path: Path) -> None:
    """Each has a database of its own; one of them is locked out for a while, with a study under way."""
    with postgresql() as location:
        urls = {name: location.replace("/postgres?", f"/{name}?") for name in SERVERS}
        with contextlib.closing(
            create_engine(location, isolation_level="AUTOCOMMIT", poolclass=NullPool).connect()
        ) as database:
            for name in SERVERS:
                database.execute(text(f"CREATE DATABASE {name}"))
            with cluster(tmp_path, databases=urls) as made:
                beta = made.serves[1]
                digest = made.propose("stored")
                made.approve(digest)
                for serve in made.serves:
                    serve.until_state("stored", "running")
                database.execute(text("ALTER DATABASE beta ALLOW_CONNECTIONS false"))
                database.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'beta'"
                    )
                )
                made.submit("stored")
                made.serves[0].until_state("stored", "finished")
                beta.until(
                    lambda s: "beta: its database" in json.dumps(s["troubles"]), "waits for it"
                )
                database.execute(text("ALTER DATABASE beta ALLOW_CONNECTIONS true"))
                for serve in made.serves:
                    assert serve.until_state("stored", "finished")["reason"] == ""
                for serve in made.serves:
                    assert not (serve.folder / "service.sqlite").exists()
                    assert serve.end() == int(Status.TERMINATED), serve.log
