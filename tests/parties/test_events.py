"""The bus of events: every sink takes the same value, in order, and a run's bus leaves the command's as it was."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

from parties.observability.events import Event, Progress, no_tracing


class Named:
    """A sink that writes into a list which several share."""

    def __init__(self, name: str, taken: list[tuple[str, Event]]) -> None:
        self.name = name
        self.taken = taken

    def take(self, event: Event) -> None:
        self.taken.append((self.name, event))


def test_every_sink_takes_the_same_value_in_order() -> None:
    taken: list[tuple[str, Event]] = []
    Progress(Named("a", taken), Named("b", taken)).event("round", "round 1", done=1)
    assert [name for name, _ in taken] == ["a", "b"]
    assert taken[0][1] is taken[1][1]
    assert taken[0][1] == Event("round", "round 1", {"done": 1})


def test_also_has_new_sinks_first_and_leaves_the_bus_as_it_was() -> None:
    taken: list[tuple[str, Event]] = []
    command = Progress(Named("terminal", taken))
    run = command.also(Named("status", taken))
    run.event("listening", "")
    assert [name for name, _ in taken] == ["status", "terminal"]
    command.event("report", "")
    assert [name for name, _ in taken[2:]] == ["terminal"]


def test_steps_go_to_the_tracer_that_a_run_has_got() -> None:
    followed: list[tuple[str, int | None, Mapping[str, int]]] = []

    @contextlib.contextmanager
    def tracer(
        step: str, round: int | None, costs: Callable[[], Mapping[str, int]]
    ) -> Iterator[None]:
        yield
        followed.append((step, round, costs()))

    command = Progress()
    assert command.step is no_tracing
    run = command.also(tracer=tracer).also(Named("status", []))
    with run.step("select", 2, lambda: {"sent_bytes": 7}):
        assert followed == []
    assert followed == [("select", 2, {"sent_bytes": 7})]
