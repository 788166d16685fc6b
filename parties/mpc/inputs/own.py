"""One participant's input: the shared values of its table, and their form.

Secret: values and rows. Public: the form and the capacity, which follow from the configuration and the declared
capacity, and never from the rows.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import DataError
from parties.config import Config
from parties.mpc.inputs import InputForm, form_for
from parties.session.study import Study


def declared_capacity(config: Config, capacity: int | None) -> int:
    """Declared capacity; None: the largest permitted number of rows. Raises DataError if it exceeds that number."""
    bound = config.clients.rows_per_client
    declared = bound if capacity is None else capacity
    if not 0 < declared <= bound:
        raise DataError(
            f"a capacity of {declared} rows; expected 1 to {bound} (clients.rows_per_client in {config.source})"
        )
    return declared


def capacity_for(rows: int, bound: int) -> int:
    """Sensible capacity for ``rows`` rows: rounded up to two digits, at most ``bound``."""
    unit = int(10 ** max(0, len(str(rows)) - 2))
    return min(max(1, -(-rows // unit) * unit), bound)


@dataclass(frozen=True, slots=True, eq=False)
class OwnerInput:
    """A participant's ``values`` in ``form``, of ``rows`` rows; its submission states ``capacity`` instead."""

    form: InputForm
    capacity: int
    values: NDArray[np.unsignedinteger] = field(repr=False)
    rows: int = field(repr=False)

    @classmethod
    def of(
        cls,
        study: Study,
        codes: NDArray[np.int32],
        capacity: int | None = None,
        client: str | None = None,
    ) -> Self:
        """Builds the input of coded rows (rows, columns), at most ``capacity``; with sources, of ``client``'s columns.

        Raises DataError if there are more rows.
        """
        config = study.config
        declared = declared_capacity(config, capacity)
        config.check_rows(len(codes), capacity)
        form = form_for(study, declared, client)
        weighed = declared if form.by_capacity else config.clients.rows_per_client
        return cls(form, weighed, form.values(codes, weighed), len(codes))
