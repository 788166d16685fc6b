"""What one owner shares of its table, and in which form: the owner's side of the input forms.

Provides ``OwnerInput``, ``declared_capacity`` and ``capacity_for``. Secret: its values and its rows. Public: the form
and the capacity; they follow from the configuration and from what the owner declares, and never from its rows.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import DataError
from mechanisms.workload import Workload
from parties.config import Config
from parties.mpc.inputs import InputForm, form_for


def declared_capacity(config: Config, capacity: int | None) -> int:
    """What an owner declares; None: as many rows as any owner may have. Raises DataError where the run has less."""
    bound = config.clients.rows_per_client
    declared = bound if capacity is None else capacity
    if not 0 < declared <= bound:
        raise DataError(
            f"a capacity of {declared} rows; expected 1 to {bound} (clients.rows_per_client in {config.source})"
        )
    return declared


def capacity_for(rows: int, bound: int) -> int:
    """What an owner of ``rows`` rows may well declare: its rows rounded up to two digits; at most the ``bound``."""
    unit = int(10 ** max(0, len(str(rows)) - 2))
    return min(max(1, -(-rows // unit) * unit), bound)


@dataclass(frozen=True, slots=True, eq=False)
class OwnerInput:
    """An owner's ``values`` in ``form``, of so many ``rows``; ``capacity`` is what its submission says instead."""

    form: InputForm
    capacity: int
    values: NDArray[np.unsignedinteger] = field(repr=False)
    rows: int = field(repr=False)

    @classmethod
    def of(
        cls,
        config: Config,
        workload: Workload,
        codes: NDArray[np.int32],
        capacity: int | None = None,
        client: str | None = None,
    ) -> Self:
        """Of coded rows (rows, columns), at most ``capacity`` of them; with sources, as the ``client``'s has them.

        Raises DataError where there are more.
        """
        declared = declared_capacity(config, capacity)
        config.check_rows(len(codes), capacity)
        form = form_for(config, workload, declared, client)
        weighed = declared if form.by_capacity else config.clients.rows_per_client
        return cls(form, weighed, form.values(codes, weighed), len(codes))
