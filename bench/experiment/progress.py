"""A bar of a long command's progress on standard error, and lines in its place where no terminal is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class Bar:
    """The progress of a number of runs."""

    def __init__(self, bars: Progress, task: TaskID, total: int) -> None:
        self._bars, self._task, self._total = bars, task, total
        self._done = 0
        self.live = bars.console.is_terminal

    def show(self, text: str) -> None:
        """Shows a passing text beside the bar; nowhere without a terminal."""
        self._bars.update(self._task, text=text)

    def beside(self, run: str) -> Callable[[str], None]:
        """Returns a function that shows the steps of one run."""
        return lambda step: self.show(f"{run}: {step}")

    def say(self, line: str) -> None:
        """Shows a line beside the bar, or prints it without a terminal."""
        if self.live:
            self.show(line)
        else:
            click.echo(line, err=True)

    def done(self, line: str = "") -> None:
        """Counts a run; its ``line`` is said with its number, if there is one."""
        self._done += 1
        self._bars.advance(self._task)
        if line:
            self.say(f"{self._done} of {self._total}: {line}")


@contextmanager
def progress_bar(total: int, what: str = "runs") -> Iterator[Bar]:
    """Opens the bar of ``total`` runs."""
    console = Console(stderr=True)
    name, text = TextColumn("{task.description}"), TextColumn("{task.fields[text]}")
    columns = (name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), text)
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bars:
        yield Bar(bars, bars.add_task(what, total=total, text=""), total)
