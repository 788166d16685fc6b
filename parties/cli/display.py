"""Display of a trial's overall progress on standard error: bars in a terminal, plain lines elsewhere."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from parties.observability.events import Event, FieldValue, TextLines


class Display:
    """Progress display of a trial on standard error: bars in a terminal, plain lines elsewhere."""

    def __init__(self, *, clients: int, rounds: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._lines = TextLines(stream=None)
        self._bars: Progress | None = None
        self._totals = {"uploads": clients, "rounds": rounds}
        self._tasks: dict[str, TaskID] = {}
        self._tenths = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description:8}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[text]}"),
            )
            self._bars = Progress(*columns, console=self._console, transient=True)
            self._bars.start()
            for name, total in self._totals.items():
                self._tasks[name] = self._bars.add_task(name, total=total, text="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def take(self, event: Event) -> None:
        """Shows the event; ``uploads`` and ``rounds`` with a number in ``done`` move the bars."""
        name, text, done = event.name, event.text, event.fields.get("done")
        if self._bars is None:
            if name != "uploads" or self._is_mark(done):
                self._lines.take(event)
            return
        if name in self._tasks and isinstance(done, int):
            self._bars.update(self._tasks[name], completed=done, text=text)
        else:
            self._bars.update(self._tasks["rounds"], text=text)

    def _is_mark(self, done: FieldValue) -> bool:
        """Returns true once for each tenth of the uploads: a line for each upload would hide everything else."""
        total = max(1, self._totals["uploads"])
        tenth = 10 * done // total if isinstance(done, int) else 10
        if tenth == self._tenths:
            return False
        self._tenths = tenth
        return True
