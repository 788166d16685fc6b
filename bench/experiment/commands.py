"""Options that experiments' commands share, lists by commas as their values, and failures as one message."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import click

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_ALONE = "Print JSON and nothing else on standard output."
_OBJECT = "One JSON object on standard output."


def json_option(command: F) -> F:
    """Adds --json, as ``as_json``: nothing else is on standard output."""
    return click.option("--json", "as_json", is_flag=True, help=_ALONE)(command)


def json_object_option(command: F) -> F:
    """Adds --json, as ``as_json``: one object."""
    return click.option("--json", "as_json", is_flag=True, help=_OBJECT)(command)


def output_option(text: str) -> Callable[[F], F]:
    """Adds --output, a folder, with this help."""
    return click.option(
        "--output", type=click.Path(file_okay=False, path_type=Path), default=None, help=text
    )


def results_option(default: Path) -> Callable[[F], F]:
    """Adds --results, as ``store_path``: a file of runs (`bench.experiment.runs`)."""
    return click.option(
        "--results",
        "store_path",
        type=click.Path(dir_okay=False, path_type=Path),
        default=default,
        show_default=True,
        help="JSON lines; what is there already is not run again.",
    )


repeats_option = click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Runs of each kind, each with a seed of its own.",
)


class Listed(click.ParamType[tuple[T, ...]], Generic[T]):
    """Values separated by commas, each once; ``expected`` says what each has to be, so that it ``holds``."""

    def __init__(
        self,
        read: Callable[[str], T],
        name: str,
        expected: str,
        *,
        holds: Callable[[T], bool] = lambda value: True,
    ) -> None:
        self._read, self._expected, self._holds = read, expected, holds
        self.name = name

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[T, ...]:
        """Returns the values."""
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(dict.fromkeys(self._read(part.strip()) for part in str(value).split(",")))
        except ValueError:
            found = ()
        if not found or not all(map(self._holds, found)):
            self.fail(f"{value!r}; expected by commas: {self._expected}", param, ctx)
        return found


NAME_LIST = Listed(str, "NAME,...", "at least one name", holds=bool)


def whole_numbers(most: int, example: str) -> Listed[int]:
    """Returns the type of whole numbers from 1 to ``most``."""
    expected = f"whole numbers from 1 to {most:,}, as {example}"
    return Listed(int, "N,...", expected, holds=lambda value: 1 <= value <= most)


POSITIVE = Listed(float, "X,...", "positive numbers", holds=lambda value: 0 < value < float("inf"))


@contextlib.contextmanager
def failures(*kinds: type[Exception]) -> Iterator[None]:
    """Makes errors of these kinds one message of the command."""
    try:
        yield
    except kinds as error:
        raise click.ClickException(str(error)) from error
