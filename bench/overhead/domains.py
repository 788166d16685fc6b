"""The domains of the paper's tables that are known without the tables: column names and numbers of codes.

Provides ``published_domain``, ``published_rows`` and ``KNOWN``. Columns and binning are those of `bench.datasets`
(numbers in 32 bins); how many categories the others have is in the tables' published descriptions. Only the sizes are
meant: the columns hold the codes themselves. Public. Known limits: `bench.datasets` reads categories from the table,
and draws part of the rows of intrusion, which may miss a rare category; census and marketing have too many to be
listed here.
"""

from collections.abc import Mapping

from bench.datasets import BINS, RECIPES, TRAIN_SHARE
from bench.published import (
    ADULT_CODES,
    COVTYPE_COLUMNS,
    CREDIT_COLUMNS,
    INTRUSION_COLUMNS,
    MAGIC_COLUMNS,
    PUBLICATIONS,
)
from mechanisms.domain import Domain, Integer

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "adult": tuple(ADULT_CODES),
    "covtype": COVTYPE_COLUMNS,
    "credit": CREDIT_COLUMNS,
    "intrusion": INTRUSION_COLUMNS,
    "magic": MAGIC_COLUMNS,
}
# Of the columns that are neither binned nor whole numbers; UCI's and KDD's descriptions.
_CATEGORIES: Mapping[str, Mapping[str, int]] = {
    "covtype": {"cover_type": 7},
    "credit": {"Class": 2},
    "intrusion": {
        "protocol_type": 3, "service": 66, "flag": 11, "land": 2, "logged_in": 2, "root_shell": 2, "su_attempted": 3,
        "is_host_login": 1, "is_guest_login": 2, "label": 23,
    },
    "magic": {"class": 2},
}  # fmt: skip

KNOWN = tuple(_COLUMNS)
"""The names ``published_domain`` knows."""


def published_domain(name: str) -> Domain | None:
    """The domain of table ``name``, or None where only the table tells it."""
    if name not in _COLUMNS:
        return None
    recipe, categories = RECIPES[name], _CATEGORIES.get(name, {})
    sizes = {
        column: BINS if column in recipe.binned else {**(recipe.whole or {}), **categories}[column]
        for column in _COLUMNS[name]
        if column not in recipe.dropped
    }
    return Domain(tuple(Integer(column, 0, n - 1, n) for column, n in sizes.items()))


def published_rows(name: str) -> int:
    """The rows of table ``name`` that are split among clients: the published ones or the paper's part, less a tenth."""
    recipe = RECIPES[name]
    return round(TRAIN_SHARE * (recipe.rows or PUBLICATIONS[recipe.file or name].rows))
