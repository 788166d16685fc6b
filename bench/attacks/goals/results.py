"""What a server wanted, what it got, and what the others saw: ``Try``, ``Goal`` and ``Way``. Public."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.attacks.judge import MALICIOUS, SEMI_HONEST

BOTH = (SEMI_HONEST, MALICIOUS)


@dataclass(frozen=True, slots=True)
class Got:
    """What came of a try: whether the server ``reached`` what it wanted, what it ``got``, what the others ``saw``."""

    reached: bool
    got: str
    seen: str


@dataclass(frozen=True, slots=True)
class Way:
    """A way to a goal; ``attack`` tries it in a mode. ``reaches`` are the modes in which it is reached.

    These are controls, or known limits, where the others see it.
    """

    attack: Callable[[str], Got]
    modes: Sequence[str] = BOTH
    reaches: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """What a server wants, in words, and the ways to it by name."""

    wanted: str
    ways: Mapping[str, Way]


@dataclass(frozen=True, slots=True)
class Try:
    """A try of ``goal`` by a ``way``, in a mode, and what came of it; ``expected``: whether it is reached there."""

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
        """Nobody reaches what it should not; what is reached as a control, or as a known limit, the others see."""
        return self.reached == self.expected

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def tried(
    name: str, goal: Goal, ways: Sequence[str] = (), modes: Sequence[str] = BOTH
) -> list[Try]:
    """Every way of a goal, or some, in its modes."""
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
