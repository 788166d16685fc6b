"""What data owners may send, and how it becomes shares of counts: the input forms of a run.

Provides ``input_forms``, those that the owners of a run may send, ``form_for``, the one that an owner sends, and
``input_form``, one by its name: the only table from names to forms. Whatever they are, all end in the same running
total. Public: which forms there are.
"""

from collections.abc import Callable, Mapping
from functools import partial

from mechanisms.workload import Workload
from parties.config import Config
from parties.distaim.inputs.counts import Counts
from parties.distaim.inputs.form import Added, Batch, InputForm, Limit
from protocols.upload import FORMS

__all__ = ["Added", "Batch", "InputForm", "Limit", "form_for", "input_form", "input_forms"]

_BY_NAME: Mapping[str, Callable[[Workload], InputForm]] = {
    name: partial(Counts, name) for name in FORMS
}


def input_form(name: str, workload: Workload) -> InputForm:
    """The form that submissions call ``name``."""
    return _BY_NAME[name](workload)


def input_forms(config: Config, workload: Workload) -> Mapping[str, InputForm]:
    """The forms that owners of this run may send, by name."""
    return {config.run.upload: input_form(config.run.upload, workload)}


def form_for(config: Config, workload: Workload, capacity: int) -> InputForm:
    """What an owner that may have ``capacity`` rows sends: of the run's forms the one that takes the fewest bytes."""
    forms = input_forms(config, workload).values()
    return min(forms, key=lambda form: sent_bytes(form, capacity))


def sent_bytes(form: InputForm, capacity: int) -> int:
    """What an owner gives of ``form``, before it is sealed."""
    private = sum(form.private_size(pid, capacity) for pid in range(3))
    return private + form.common_size(capacity)
