"""What data owners may send, and how it becomes shares of counts: the input forms of a run.

Provides ``input_forms``, those that the owners of a run may send, and ``input_form``, one by its name: the only table
from names to forms. Whatever they are, all end in the same running total. Public: which forms there are.
"""

from collections.abc import Callable, Mapping
from functools import partial

from mechanisms.workload import Workload
from parties.config import Config
from parties.distaim.inputs.counts import Counts
from parties.distaim.inputs.form import Added, Batch, InputForm, Limit
from protocols.upload import FORMS

__all__ = ["Added", "Batch", "InputForm", "Limit", "input_form", "input_forms"]

_BY_NAME: Mapping[str, Callable[[Workload], InputForm]] = {
    name: partial(Counts, name) for name in FORMS
}


def input_form(name: str, workload: Workload) -> InputForm:
    """The form that submissions call ``name``."""
    return _BY_NAME[name](workload)


def input_forms(config: Config, workload: Workload) -> Mapping[str, InputForm]:
    """The forms that owners of this run may send, by name."""
    return {config.run.upload: input_form(config.run.upload, workload)}
