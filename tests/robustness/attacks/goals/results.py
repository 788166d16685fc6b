"""Goals of a server, ways to them, and results of trying: ``Goal``, ``Way``, ``Got`` and ``Try``.

All values here are public.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.robustness.attacks.judge import MALICIOUS, SEMI_HONEST

BOTH = (SEMI_HONEST, MALICIOUS)


@dataclass(frozen=True, slots=True)
class Got:
    """Outcome of a way: goal ``reached`` or not, the attacker's gain ``got``, the others' observation ``seen``."""

    reached: bool
    got: str
    seen: str


@dataclass(frozen=True, slots=True)
class Way:
    """A way to a goal; ``attack`` tries it in a mode.

    ``reaches`` lists the modes in which the goal is reached: as a control, or as a known limit that the others see.
    """

    attack: Callable[[str], Got]
    modes: Sequence[str] = BOTH
    reaches: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of a server, in words, and the ways to it by name."""

    wanted: str
    ways: Mapping[str, Way]


@dataclass(frozen=True, slots=True)
class Try:
    """Result of one ``way`` to ``goal`` in one mode; ``expected`` is True if the goal is known to be reached there."""

    goal: str
    way: str
    mode: str
    wanted: str
    got: str
    seen: str
    reached: bool
    expected: bool

    @property
    def as_it_should_be(self) -> bool:
        """True if the goal is reached exactly where a control or a known limit says so."""
        return self.reached == self.expected

    def to_dict(self) -> dict[str, object]:
        """Returns the fields for JSON."""
        return asdict(self)


def tried(
    name: str, goal: Goal, ways: Sequence[str] = (), modes: Sequence[str] = BOTH
) -> list[Try]:
    """Tries the ways of a goal, all or those named, in those of their modes that are asked for."""
    return [
        _result(name, goal, label, mode)
        for label, way in goal.ways.items()
        if not ways or label in ways
        for mode in way.modes
        if mode in modes
    ]


def _result(name: str, goal: Goal, label: str, mode: str) -> Try:
    way = goal.ways[label]
    found = way.attack(mode)
    return Try(
        name,
        label,
        mode,
        goal.wanted,
        found.got,
        found.seen,
        found.reached,
        expected=mode in way.reaches,
    )
