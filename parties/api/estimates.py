"""Answers of `Run.estimate`: estimates with intervals, as a sequence and as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from mechanisms.estimate import Estimate

if TYPE_CHECKING:
    import pandas as pd


class Estimates(Sequence[Estimate]):
    """The answers to a ``question``: one for each value of the columns that it is by, a single one without.

    ``frame()`` has them as a DataFrame, with a row for each. ``value``, ``low``, ``high`` and ``basis`` are those of a
    single answer.
    """

    def __init__(self, question: str, answers: Sequence[Estimate]) -> None:
        self.question = question
        self._answers = tuple(answers)

    def __len__(self) -> int:
        return len(self._answers)

    @overload
    def __getitem__(self, position: int) -> Estimate: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[Estimate]: ...

    def __getitem__(self, position: int | slice) -> Estimate | Sequence[Estimate]:
        return self._answers[position]

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self._answers)

    def __repr__(self) -> str:
        lines = [
            ", ".join([*(f"{name} {value}" for name, value in one.group.items()), ""]).rstrip(", ")
            + (": " if one.group else "")
            + str(one)
            for one in self
        ]
        return "\n".join([self.question, *lines])

    def _repr_html_(self) -> str:
        return str(self.frame().to_html(index=False))

    @property
    def value(self) -> float | str | None:
        """Value of a single answer; None for a refusal. Raises ValueError for several."""
        return self._single.value

    @property
    def low(self) -> float | str | None:
        """Lower end of a single answer's interval. Raises ValueError for several."""
        return self._single.low

    @property
    def high(self) -> float | str | None:
        """Upper end of a single answer's interval. Raises ValueError for several."""
        return self._single.high

    @property
    def basis(self) -> str | None:
        """Basis of a single answer: "measured", "earlier", "joined" or "guess". Raises ValueError for several."""
        return self._single.basis

    def frame(self) -> pd.DataFrame:
        """Returns a DataFrame: the groups' columns, then value, low, high, basis and refusal."""
        import pandas as pd

        fields = ("value", "low", "high", "basis", "refusal")
        return pd.DataFrame(
            [{**one.group, **{name: getattr(one, name) for name in fields}} for one in self]
        )

    @property
    def _single(self) -> Estimate:
        if len(self) != 1:
            raise ValueError(
                f"the question has {len(self)} answers; expected frame(), or one of them by its position"
            )
        return self._answers[0]
