"""Numbers on the command line: nan is none of them, though every range of click's takes it."""

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """A range of numbers; nan is refused, with which no deadline comes and no budget is exceeded."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Returns the number. Raises BadParameter."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number
