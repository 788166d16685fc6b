"""Runs recorded by an earlier tree: audits and replays find in each what they found then, check by check."""

import json
from pathlib import Path

import pytest

from tests.golden import runs
from tests.golden.archives import RUNS, SUFFIX, unpack
from tests.golden.audits import Outcome, as_version, outcome

NAMES = sorted(path.name.removesuffix(SUFFIX) for path in RUNS.glob(f"*{SUFFIX}"))
SECRET_LINE = b"PRIVATE KEY-----"
TAMPERED = "counts"
"""The run that a test changes a byte of, to see that a golden master can fail."""


def recorded(name: str) -> Outcome:
    """The outcome is the one that the maker of the run has found."""
    found: Outcome = json.loads((RUNS / f"{name}.json").read_text())
    return found


def test_archives_are_of_the_runs_that_the_maker_makes() -> None:
    assert sorted(runs.NAMES) == NAMES
    assert sorted(path.stem for path in RUNS.glob("*.json")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_audit_finds_in_a_recorded_run_what_it_found(name: str, tmp_path: Path) -> None:
    expected = recorded(name)
    run = unpack(RUNS / f"{name}{SUFFIX}", tmp_path / "run")
    with as_version(str(expected.pop("version")), run):
        assert outcome(run) == expected


@pytest.mark.parametrize("name", NAMES)
def test_archive_has_no_private_key_and_no_path_of_its_maker(name: str, tmp_path: Path) -> None:
    run = unpack(RUNS / f"{name}{SUFFIX}", tmp_path / "run")
    for path in run.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert SECRET_LINE not in content, path
            assert b"/tmp/" not in content, path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("transcripts/party-1.jsonl", "chains"),
        ("parties/2/replay/*.tape", "replay 2"),
        ("synthetic.csv", "published"),
    ],
)
def test_changed_byte_of_a_recorded_run_is_found(
    pattern: str, expected: str, tmp_path: Path
) -> None:
    run = unpack(RUNS / f"{TAMPERED}{SUFFIX}", tmp_path / "run")
    (path,) = run.glob(pattern)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    known = recorded(TAMPERED)
    with as_version(str(known["version"]), run):
        checks = outcome(run)["checks"]
    assert isinstance(checks, list)
    assert expected in [name for name, status, _ in checks if status == "fail"]
