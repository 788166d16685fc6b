"""Texts that must not change unmeant: each snapshot is compared whole, and a difference is shown."""

import difflib
from pathlib import Path

import pytest

from tests.golden import texts
from tests.golden.texts import SNAPSHOTS, path_of

WRITE = "if it is meant, write the snapshots anew: python -m tests.golden.write"


def difference(name: str) -> str:
    """The text shows the lines in which the snapshot ``name`` and the code differ."""
    before = path_of(name).read_text(encoding="utf-8").splitlines()
    lines = difflib.unified_diff(
        before,
        SNAPSHOTS[name]().splitlines(),
        f"{name}, recorded",
        f"{name}, now",
        lineterm="",
        n=1,
    )
    return "\n".join(lines)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_texts_are_those_of_the_snapshot(name: str) -> None:
    found = difference(name)
    assert not found, f"{found}\n\n{WRITE} {name}"


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_letter_that_changed_is_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = path_of(name).read_text(encoding="utf-8")
    place = len(text) // 2
    (tmp_path / name).write_text(f"{text[:place]}~{text[place + 1 :]}", encoding="utf-8")
    monkeypatch.setattr(texts, "HERE", tmp_path)
    found = difference(name)
    assert "recorded" in found
    assert "~" in found
