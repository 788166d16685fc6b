"""Arguments of every kind, given to every parameter of `import syncret`: each works, or the error says what is right.

No test names a parameter: they are those of the functions' signatures. An error is one of ours, or a TypeError or
ValueError that this program raises, and has no word of what is within: no attribute, no option of the command line.
"""

import inspect
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest

import syncret
from mechanisms.errors import MechanismError
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.foundation.errors import PartyError
from parties.foundation.exit_codes import Status

ROWS = 120
WRONG: dict[str, Any] = {
    "a list": ["age", 3],
    "a mapping": {1: 2},
    "an object": object(),
    "bytes": b"ward",
    "nan": float("nan"),
    "less than nothing": -1,
    "half": 0.5,
    "true": True,
    "a text": "what = ",
    "an empty text": "",
    "a function": len,
    "a huge number": 10**30,
    "an array": np.zeros((2, 2)),
    "an empty table": pd.DataFrame({"age": []}),
    "a type": int,
    "a date": pd.Timestamp("2024-01-01"),
}
WITHIN = re.compile(
    r"(?<![\w-])--[a-z][a-z-]+|object has no attribute|NoneType|not subscriptable|unhashable|unsupported operand|"
    r"is not a mapping|can't multiply|os\.PathLike|bytes-like|not iterable|positional argument|truth value of"
)


def people() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.DataFrame({"age": rng.integers(18, 40, ROWS), "ward": rng.choice(list("xyz"), ROWS)})


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each function with arguments that are right."""
    folder = tmp_path_factory.mktemp("wrong")
    table = people()
    config = syncret.draft(table)
    run = syncret.synthesize(table, config, method="aim", epsilon=5.0, out=folder / "run")
    saved = run.save(folder / "saved.zip", uncharged="drawn")
    return {
        "draft": (syncret.draft, {"table": table}),
        "plan": (syncret.plan, {"config": config}),
        "synthesize": (
            syncret.synthesize,
            {"table": table, "config": config, "method": "aim", "rounds": 1},
        ),
        "load": (syncret.load, {"run": saved}),
        "audit": (syncret.audit, {"run": saved}),
        "sample": (run.sample, {"rows": 3}),
        "estimate": (run.estimate, {"question": "count"}),
        "evaluate": (run.evaluate, {"real": table}),
        "save": (
            run.save,
            {"path": folder / "again.zip", "uncharged": "drawn", "overwrite": True},
        ),
    }


@pytest.mark.parametrize(
    "name",
    ["draft", "plan", "synthesize", "load", "audit", "sample", "estimate", "evaluate", "save"],
)
@pytest.mark.parametrize("kind", list(WRONG))
def test_wrong_arguments_end_in_words(
    usual: Any, name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNCRET_BUDGET", str(tmp_path / "budget"))
    call, given = usual[name]
    for parameter in inspect.signature(call).parameters:
        _check(call, {**given, parameter: WRONG[kind]}, parameter)


def _check(call: Callable[..., object], arguments: dict[str, Any], parameter: str) -> None:
    found: list[Exception] = []
    try:
        call(**arguments)
    except (TypeError, ValueError, PartyError, MechanismError) as error:
        found.append(error)
    for error in found:
        where = traceback.extract_tb(error.__traceback__)[-1].filename
        ours = "/parties/" in where or "/mechanisms/" in where
        assert ours, (parameter, error, where)
        assert not WITHIN.search(str(error)), (parameter, str(error))
        assert len(str(error)) > 15, (parameter, str(error))


WRONG_TEXTS = ("", "-1", "nan", "1e400", "/", "/dev/null", "a,b", "[", "=", "0", "9" * 20, "{}")


@pytest.mark.parametrize("command", ["plan", "data sample", "data estimate", "audit", "data draft"])
def test_wrong_options_end_in_words(
    usual: Any,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every option of the commands that read, with texts that are none of its values: no defect of the program."""
    monkeypatch.chdir(tmp_path)
    usual["plan"][1]["config"].write("draft.toml")
    people().to_csv("table.csv", index=False)
    saved = str(usual["load"][1]["run"])
    right = {
        "plan": ["draft.toml"],
        "data sample": [saved, "-n", "3", "--out", "rows.csv"],
        "data estimate": [saved, "count"],
        "audit": [saved],
        "data draft": ["table.csv"],
    }[command]
    found: click.Command = cli
    for name in command.split():
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), name)
        assert inner is not None
        found = inner
    for option in found.params:
        if not isinstance(option, click.Option) or option.is_flag:
            continue
        for text in WRONG_TEXTS:
            name = option.opts[0]
            given = [f"{name}={text}"] if name.startswith("--") else [name, text]
            status = run_command_line(cli, [*command.split(), *right, *given])
            said = capsys.readouterr().err
            assert status != Status.DEFECT, (given, said)
            assert not WITHIN.search(re.sub(r"--[a-z-]+", "", said)), (given, said)
