"""For which neighbouring tables FLAIM's epsilon holds, in words that stand wherever it is printed.

Provides ``unit`` (who is told apart from whom) and ``Replaced`` (what was released costs a row that is replaced by
another, where sizes are public: then tables of one size are the neighbours). All public. Source: `mechanisms` README.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mechanisms.accounting import epsilon_from_rho, rho
from mechanisms.events import Event
from mechanisms.replacement import rho_of_replacing
from parties.config import FlaimSection

PUBLIC_SIZES = "public"


def unit(section: FlaimSection) -> str:
    """The guarantee's neighbours."""
    of_row = "one row added to or removed from one client's table"
    if section.sizes != PUBLIC_SIZES:
        return of_row
    return f"{of_row}, its declared number of rows, which is public, being the same"


@dataclass(frozen=True, slots=True)
class Replaced:
    """``rho`` and, at the run's delta, ``epsilon`` for one row replaced by another; ``times`` the charged rho."""

    rho: float
    epsilon: float
    times: float

    @classmethod
    def of(
        cls, section: FlaimSection, events: Iterable[Event], *, delta: float
    ) -> "Replaced | None":
        """What the charged ``events`` come to; None where sizes are not public, or nothing was charged."""
        events = list(events)
        if section.sizes != PUBLIC_SIZES or not events:
            return None
        cost = rho_of_replacing(events)
        return cls(cost, epsilon_from_rho(cost, delta), cost / sum(map(rho, events)))

    def __str__(self) -> str:
        return (
            f"for one row replaced by another: rho {self.rho:.4g}, {self.times:.3g} times as much, epsilon = "
            f"{self.epsilon:.3g} at the same delta"
        )
