"""Robustness in full: one command that runs all of it, and says what came out otherwise than it should."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.robustness import cli
from tests.robustness.attacks.cli import attacks
from tests.robustness.chaos.cli import chaos
from tests.robustness.fuzzing.cli import fuzz
from tests.robustness.kills.cli import kills


def test_full_runs_every_kind_of_test_with_options_that_exist() -> None:
    place = Path("place")
    commands = cli.full_commands(finds=place, results=place, output=place, jobs=2)
    for name, *arguments in commands:
        cli.robustness.commands[name].make_context(name, list(arguments))
    assert {name for name, *_ in commands} == {attacks.name, fuzz.name, kills.name, chaos.name}
    assert (
        sum(int(words[words.index("--frames") + 1]) for words in commands if "--frames" in words)
        == 10**6
    )
    assert [words[2] for words in commands if words[0] == "kills" and "--of" in words] == [
        "services"
    ]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that `full` has run; damaged inputs come to another end than they should."""
    names: list[str] = []
    for name in ("attacks", "fuzz", "kills", "chaos"):

        @click.pass_context
        def play(context: click.Context, /, **_: object) -> None:
            names.append(str(context.info_name))
            if context.info_name == "fuzz":
                raise SystemExit(1)

        command = cli.robustness.commands[name]
        monkeypatch.setattr(command, "callback", play)
    return names


def test_full_goes_on_after_a_find_and_ends_with_status_1(played: list[str]) -> None:
    result = CliRunner().invoke(cli.robustness, ["full"])
    assert played == ["attacks", *4 * ["fuzz"], *2 * ["kills"], "chaos"]
    assert result.exit_code == 1
    assert "not as it should be: fuzz --frames 250000 --seed 301" in result.output
