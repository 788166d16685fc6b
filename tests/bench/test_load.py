"""Load: a sample of what the commands measure, and that they see what they look for."""

import asyncio
import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli import bench
from bench.load.fleet import Played
from bench.load.garbage import KINDS
from bench.load.owners import OwnersLoad, judged, measure_owners
from bench.load.soak import Grown, Looked, _sockets
from bench.load.watch import Watch
from bench.processes import Figures, figures


def run(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(bench, ["load", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


# Owners


@pytest.mark.slow
def test_load_owners_are_counted_once_beside_quick_garbage_and_nobody_else_is(
    tmp_path: Path,
) -> None:
    """Ten kinds of garbage, one of each; those that take their time are among the slow tests."""
    found = run(
        "owners",
        "--owners",
        "20",
        "--garbage",
        "0.3333",
        "--processes",
        "1",
        "--output",
        str(tmp_path),
    )
    assert (found["accepted"], found["counted"], found["garbage"]) == (20, 20, 10)
    assert (found["lost"], found["twice"], found["uninvited"], found["unexpected"]) == (0, 0, 0, 0)
    assert found["failed"] == {}
    text = (tmp_path / "load.md").read_text()
    assert "`syncret bench load owners --owners 20 --garbage 0.3333 --at-once 48`" in text
    assert "| another's upload | 403: 1 |" in text


@pytest.mark.slow
async def test_load_owners_come_through_all_kinds_of_garbage(tmp_path: Path) -> None:
    load = await measure_owners(tmp_path, owners=600, garbage=0.1, at_once=24, processes=2)
    assert load.problems == []
    assert set(load.garbage_ends) == set(KINDS)
    assert all(load.garbage_ends.values())
    # A server keeps less than 20 KB of an owner in memory.
    for first, end, _ in load.memory_mb:
        assert end - first < 0.02 * 600


def looked(**changes: int) -> tuple[float, Figures]:
    values = {"memory_bytes": 10**8, "cpu_s": 1.0, "descriptors": 20, "threads": 9, **changes}
    return 0.0, Figures(**values)  # type: ignore[arg-type]


def judge(counted: list[list[str]], **played: Any) -> OwnersLoad:
    accepted = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    one = Played(0.0, **{"accepted": accepted, "seconds": [1.0] * 4, **played})
    watch = Watch(
        {}, seen={f"server {n}": [looked(), looked(descriptors=90), looked()] for n in range(3)}
    )
    return judged([one], counted, watch, 4.0, at_once=1, counting_s=1.0)


def test_load_owners_says_who_is_lost_counted_twice_or_uninvited() -> None:
    right = ["a", "b", "c", "d"]
    assert judge([right] * 3).problems == []
    (lost,) = judge([right, right, right[1:]]).problems
    assert lost == "1 owners with receipts were not counted"
    (twice,) = judge([[*right, "a"], right, right]).problems
    assert twice == "1 owners were counted twice"
    (uninvited,) = judge([[*right, "other-1"], right, right]).problems
    assert uninvited == "1 senders of garbage were counted"
    (failed,) = judge([right] * 3, failed={"e": "no answer"}).problems
    assert failed == "1 honest owners were not accepted"
    (unexpected,) = judge([right] * 3, garbage={"altered": {"201": 2, "400": 1}}).problems
    assert unexpected == "2 pieces of garbage were answered as they should not be"


def test_load_owners_is_bounded_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*arguments: Any, **named: Any) -> OwnersLoad:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("bench.load.commands.measure_owners", never)
    result = CliRunner().invoke(bench, ["load", "owners", "--owners", "1"])
    assert (result.exit_code, result.output) == (1, "Error: it took too long\n")


# Soak


@pytest.mark.slow
def test_load_soak_runs_studies_one_after_the_other() -> None:
    found = run("soak", "--studies", "1")
    assert found["studies"] == 1
    for grown in found["services"]:
        assert grown["children"] == [0, 0]
        assert grown["listening"] == [2, 2]
        assert grown["threads"][0] == grown["threads"][1]


@pytest.mark.slow
def test_load_soak_leaves_no_files_threads_processes_or_ports_behind() -> None:
    assert run("soak", "--studies", "8")["studies"] == 8


def seen(files: int = 20, left: int = 0, listening: int = 2, **changes: int) -> Looked:
    return Looked(looked(**changes)[1], files, left, listening, 1000)


def test_load_soak_sees_what_grows() -> None:
    flat = [seen() for _ in range(40)]
    assert Grown.of(flat).problems == []
    assert Grown.of([*flat, seen(threads=10)]).problems == ["threads: 9, then 10"]
    assert Grown.of([*flat, seen(left=1)]).problems == ["processes: 0, then 1"]
    assert Grown.of([*flat, seen(listening=3)]).problems == ["ports: 2, then 3"]
    # What the first studies import and cache is no leak.
    assert Grown.of([seen(threads=4), *flat]).problems == []


def test_load_soak_sees_files_that_are_left_and_not_those_that_come_and_go() -> None:
    assert Grown.of([seen(20 + 6 * (n % 3 > 1)) for n in range(40)]).problems == []
    leaking = [seen(20 + n // 15) for n in range(40)]
    assert Grown.of(leaking).problems == ["files and sockets: 20, then 22"]


def test_load_soak_leaves_out_connections_and_counts_others_as_files() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as exits:
        before = figures(os.getpid()).descriptors
        listening, connected = _sockets(os.getpid(), "0A"), _sockets(os.getpid(), "01")
        ends = [socket.create_connection(server.getsockname()) for _ in range(2)]
        others = [exits.enter_context(server.accept()[0]) for _ in ends]
        assert _sockets(os.getpid(), "01") == connected + 4
        assert _sockets(os.getpid(), "0A") == listening
        for end in ends:
            end.close()
        # What the other end has closed, and nobody has closed here, is left behind.
        assert _sockets(os.getpid(), "01") == connected
        assert figures(os.getpid()).descriptors == before + len(others)


def test_load_soak_sees_memory_that_does_not_stop_growing() -> None:
    def looks(grown: list[int]) -> Grown:
        return Grown.of([seen(memory_bytes=10**8 + add) for add in grown])

    leaking = looks([600_000 * n for n in range(40)])
    assert leaking.problems == ["memory: 600 KB a study"]
    assert leaking.memory_mb == pytest.approx((101.2, 106.6, 112.0, 118.0, 123.4), abs=1)
    cached = looks([600_000 * min(n, 15) for n in range(40)])
    assert cached.problems == []


# Long


@pytest.mark.slow
def test_load_long_measures_a_whole_run(tmp_path: Path) -> None:
    found = run("long", "rows", "--size", "2000", "--output", str(tmp_path))
    assert (found["kind"], found["size"], found["shape"]["clients"]) == ("rows", 2000, 10)
    assert found["processes"] >= 4
    assert 0 < found["largest_mb"] <= found["peak_mb"]
    records = json.loads((tmp_path / "load.json").read_text())["records"]
    assert [record["command"] for record in records] == ["syncret bench load long rows --size 2000"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("rounds", 30), ("columns", 60), ("clients", 60)])
def test_load_long_runs_of_all_kinds_end(kind: str, size: int) -> None:
    assert run("long", kind, "--size", str(size))["seconds"] > 0
