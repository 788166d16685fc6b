"""A table to try things with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parties.api.arguments import check_whole, seed_of
from parties.foundation.process import require_server_packages

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = ("age", "systolic_mmhg", "stay_days")


def demo_table(
    rows: int = 1000, *, seed: int | None = None, random_state: int | None = None
) -> pd.DataFrame:
    """Returns ``rows`` invented hospital stays, those of `syncret demo`; the same ``seed`` gives the same.

    The seed is 1 by default. Raises TypeError, ValueError, ExtraMissing.
    """
    require_server_packages("a DataFrame")
    import pandas as pd

    from parties.local.demo_data import demo_table as table_of_text

    check_whole("rows", rows, least=0)
    table = table_of_text(rows, seed=seed_of(seed, random_state, default=1))
    return table.assign(**{name: pd.to_numeric(table[name]) for name in _NUMBERS})
