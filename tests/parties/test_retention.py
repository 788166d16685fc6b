"""Remains of ended runs go when they are old, and never while others rely on them; a server's own settings."""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from parties.cli.main import cli
from parties.config import CertificateFiles
from parties.foundation.errors import ConfigError, StoreError
from parties.mpc import server
from parties.mpc.storage.store import Store
from parties.service import retention
from parties.service.events import service_events
from parties.service.offline_status import offline_status
from parties.service.reload import LiveSettings
from parties.service.retention import NOTE, RESULTS, TRANSCRIPTS, removed_at, retention_task, sweep
from parties.service.settings import FILE, KeepSection, Settings, load_settings
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from tests.parties.mesh import EVERYONE, Cluster, make_uniform
from tests.parties.support import make_config
from tests.until import eventually

DAY = 86_400.0
BOTH = KeepSection(transcripts_days=30, results_days=10)


def make_run(folder: Path, *, ended: bool = True, tape: bool = False) -> float:
    """A server's folder with what a run leaves; returns when it ended."""
    with Store(folder / "store", "c0" * 32) as store:
        if ended:
            store.state.end()
        at = store.meta("ended") or "2026-01-01T00:00:00Z"
    for name in ("transcript.jsonl", "result.json", "synthetic.csv", "report.html", "costs.json"):
        (folder / name).write_text(name)
    (folder / "model").mkdir()
    (folder / "model" / "model.json").write_text("{}")
    if tape:
        (folder / "replay").mkdir()
        (folder / "replay" / "tape.bin").write_bytes(b"shares")
    return datetime.fromisoformat(at).timestamp()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_sweep_removes_each_kind_at_its_age_and_not_before(tmp_path: Path) -> None:
    ended = make_run(tmp_path, tape=True)
    before = names(tmp_path)
    assert sweep(tmp_path, BOTH, now=ended + 9.9 * DAY) == ()
    assert names(tmp_path) == before
    (first,) = sweep(tmp_path, BOTH, now=ended + 10 * DAY)
    assert (first.what, first.names) == (RESULTS, ("synthetic.csv", "model", "report.html"))
    assert names(tmp_path) == before - {"synthetic.csv", "model", "report.html"} | {NOTE}
    (second,) = sweep(tmp_path, BOTH, now=ended + 31 * DAY)
    assert (second.what, second.names) == (TRANSCRIPTS, ("transcript.jsonl", "replay"))
    assert names(tmp_path) == {"store", "result.json", "costs.json", NOTE}
    assert sweep(tmp_path, BOTH, now=ended + 9999 * DAY) == ()


def test_sweep_says_what_was_there(tmp_path: Path) -> None:
    ended = make_run(tmp_path)
    sweep(tmp_path, BOTH, now=ended + 40 * DAY)
    note = json.loads((tmp_path / NOTE).read_text())
    assert note[TRANSCRIPTS]["transcript_sha256"] == hashlib.sha256(b"transcript.jsonl").hexdigest()
    when = datetime.fromtimestamp(ended + 40 * DAY, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert removed_at(tmp_path, TRANSCRIPTS) == removed_at(tmp_path, RESULTS) == when
    with pytest.raises(StoreError, match=f"its transcript was deleted on {when}"):
        offline_status(tmp_path)


def test_sweep_leaves_a_run_that_has_not_ended(tmp_path: Path) -> None:
    make_run(tmp_path, ended=False)
    before = names(tmp_path)
    assert sweep(tmp_path, KeepSection(0, 0), now=9e9) == ()
    assert names(tmp_path) == before


def test_sweep_finds_all_runs_below_a_folder_and_a_dry_one_removes_nothing(tmp_path: Path) -> None:
    for name in ("first", "second"):
        ended = make_run(tmp_path / "studies" / name / "run")
    make_run(tmp_path / "studies" / "third" / "run", ended=False)
    dry = sweep(tmp_path, BOTH, now=ended + 99 * DAY, dry=True)
    assert len(dry) == 4
    assert sweep(tmp_path, BOTH, now=ended + 99 * DAY) == dry
    left = [path.parts[-3] for path in tmp_path.rglob("transcript.jsonl")]
    assert left == ["third"]


def test_sweep_goes_on_after_a_kill_between_its_note_and_the_files(tmp_path: Path) -> None:
    ended = make_run(tmp_path)
    sweep(tmp_path, BOTH, now=ended + 40 * DAY)
    (tmp_path / "transcript.jsonl").write_text("transcript.jsonl")
    sweep(tmp_path, BOTH, now=ended + 41 * DAY)
    assert not (tmp_path / "transcript.jsonl").exists()


def test_sweep_follows_no_link_out_of_the_folder(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    ended = make_run(run)
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (run / "replay").symlink_to(elsewhere)
    sweep(run, BOTH, now=ended + 99 * DAY)
    assert (elsewhere / "file").exists()
    assert not (run / "replay").exists()


def test_sweep_of_flaim_counts_from_its_result(tmp_path: Path) -> None:
    Database(tmp_path / "store", "c0" * 32, LEDGER).close()
    (tmp_path / "transcript.jsonl").touch()
    (tmp_path / "store" / "rounds").mkdir()
    assert sweep(tmp_path, KeepSection(0, 0), now=9e9) == ()
    (tmp_path / "result.json").touch()
    assert len(sweep(tmp_path, KeepSection(0, 0), now=9e9)) == 1
    assert names(tmp_path) == {"store", "result.json", NOTE}


def test_sweep_of_silos_counts_from_its_result_and_knows_its_files(tmp_path: Path) -> None:
    make_run(tmp_path, ended=False)
    (tmp_path / "transcripts").mkdir()
    for name in ("model.json", "transcripts/server.jsonl", "kept.txt"):
        (tmp_path / name).write_text(name)
    files = ["synthetic.csv", "model.json", "../kept.txt", "store/store.sqlite", "config.toml"]
    (tmp_path / "config.toml").write_text("[run]")
    (tmp_path / "result.json").write_text(json.dumps({"files": files}))
    at = (tmp_path / "result.json").stat().st_mtime
    assert sweep(tmp_path, BOTH, now=at + 9 * DAY) == ()
    (first,) = sweep(tmp_path, BOTH, now=at + 11 * DAY)
    assert set(first.names) == {"synthetic.csv", "model", "report.html", "model.json"}
    (second,) = sweep(tmp_path, BOTH, now=at + 31 * DAY)
    assert set(second.names) == {"transcript.jsonl", "transcripts"}
    assert {"store", "config.toml", "result.json", "kept.txt"} <= names(tmp_path)


async def test_a_real_run_keeps_its_ledger_and_is_over_when_it_is_started_again(
    tmp_path: Path, certificates: Mapping[str, CertificateFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "make_estimator", make_uniform)
    cluster = Cluster(make_config({"run.rounds": 1}), tmp_path, certificates)
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    store = cluster.directory(0) / "store"
    with Store(store, cluster.config.digest()) as opened:
        entries = DurableLedger(opened).entries
    removed = sweep(cluster.directory(0), KeepSection(0, 0), now=9e9)
    assert {item.what for item in removed} == {TRANSCRIPTS, RESULTS}
    with Store(store, cluster.config.digest()) as opened:
        assert opened.state.ended
        assert DurableLedger(opened).entries == entries != []


# A service


async def test_tidying_sweeps_by_the_settings_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retention, "_DAY_S", 3600.0)
    caplog.set_level("INFO", "syncret.service")
    (tmp_path / FILE).write_text("[keep]\nresults_days = 0\n")
    run = tmp_path / "studies" / "stays" / "run"
    make_run(run)
    settings = LiveSettings(tmp_path, service_events())

    async def apply(found: Settings) -> None: ...

    async with asyncio.timeout(20), retention_task(tmp_path, settings, service_events()):
        await eventually(lambda: not (run / "synthetic.csv").exists())
        (tmp_path / FILE).write_text("[kept]\n")
        await settings.read_again(apply, ("keep",))
        assert "kept: is unknown" in caplog.text
        assert (run / "transcript.jsonl").exists()
        # A reload sweeps at once.
        (tmp_path / FILE).write_text("[keep]\ntranscripts_days = 0\n")
        await settings.read_again(apply, ("keep",))
        await eventually(lambda: not (run / "transcript.jsonl").exists())
    assert "deleted for their age: synthetic.csv, model, report.html" in caplog.text


# The command


def called(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["forget", *map(str, arguments)])
    return result.exit_code, " ".join(result.output.split())


def test_forget_older_than_removes_what_is_asked_for(tmp_path: Path) -> None:
    make_run(tmp_path)
    assert called("--older-than", 1, "--dir", tmp_path) == (0, "nothing is that old")
    status, output = called("--older-than", 0, "--dir", tmp_path, "--dry-run", "--json")
    found = json.loads(output)["removed"]
    assert (status, [item["what"] for item in found]) == (0, [TRANSCRIPTS, RESULTS])
    assert (tmp_path / "transcript.jsonl").exists()
    status, output = called("--older-than", 0, "--dir", tmp_path, "--results")
    assert "deleted: synthetic.csv, model, report.html" in output
    assert (tmp_path / "transcript.jsonl").exists()
    assert "transcript.jsonl" in called("--older-than", 0, "--dir", tmp_path)[1]


def test_forget_older_than_removes_transcripts_alone_where_it_is_asked_to(tmp_path: Path) -> None:
    make_run(tmp_path)
    _, output = called("--older-than", 0, "--dir", tmp_path, "--transcripts")
    assert "deleted: transcript.jsonl" in output
    assert not (tmp_path / "transcript.jsonl").exists()
    assert (tmp_path / "synthetic.csv").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dir", "x"],
        ["--dir", "x", "--pid", "1"],
        ["--dir", "x", "--older-than", "-1"],
        ["--dir", "x", "--older-than", "1", "--pid", "1"],
        ["study.toml", "--dir", "x", "--older-than", "1"],
        ["study.toml", "--dir", "x"],
        ["study.toml", "--pid", "1", "--dir", "x", "--dry-run"],
    ],
)
def test_forget_takes_a_run_or_an_age(arguments: list[str]) -> None:
    assert called(*arguments)[0] == 2


# Settings


def test_settings_are_for_ever_where_there_is_no_file(tmp_path: Path) -> None:
    assert load_settings(tmp_path).keep == KeepSection(None, None)
    (tmp_path / FILE).write_text("[keep]\ntranscripts_days = 3650\nresults_days = 0.5\n")
    assert load_settings(tmp_path).keep == KeepSection(3650, 0.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[keep", "is not valid TOML"),
        ("[kept]", "kept: is unknown; expected keep"),
        ("keep = 1", "keep: is no table"),
        ("[keep]\nledger_days = 1", "keep.ledger_days: is unknown; expected transcripts_days or"),
        ('[keep]\nresults_days = "a week"', "keep.results_days: is 'a week'; expected a number"),
        ("[keep]\nresults_days = -1", "keep.results_days: is -1; expected at least 0"),
        ("[keep]\nresults_days = nan", "keep.results_days: is nan"),
    ],
)
def test_settings_refuse_what_they_do_not_know(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_settings(tmp_path)
    assert str(caught.value).startswith(str(tmp_path / FILE))
