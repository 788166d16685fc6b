"""What data owners may send, and how it becomes shares of counts: the input forms of a run.

Provides ``input_forms``, those that the owners of a run may send, ``form_for``, the one that an owner sends, and
``input_form``, one by its name: the only table from names to forms. Whatever they are, all end in the same running
total. Public: which forms there are.
"""

from collections.abc import Callable, Mapping
from functools import partial

from mechanisms.domain import Domain
from mechanisms.resolving import unmeasured
from mechanisms.workload import Workload
from parties.config import AUTO_INPUT, COUNTS_INPUT, ROWS_INPUT, Config
from parties.mpc.inputs.counts import Counts
from parties.mpc.inputs.form import (
    AdditionResult,
    InputForm,
    OnCountingProgress,
    RowLimit,
    SubmissionBatch,
)
from parties.mpc.inputs.linked import LinkedRows, SourceLink
from parties.mpc.inputs.rows import Rows
from protocols.row_plan import MAX_CELLS
from protocols.upload import FORMS, ROWS, SOURCE_ROWS

__all__ = [
    "AdditionResult",
    "InputForm",
    "OnCountingProgress",
    "RowLimit",
    "SubmissionBatch",
    "form_for",
    "input_form",
    "input_forms",
]

_BY_NAME: Mapping[str, Callable[[Workload], InputForm]] = {
    **{name: partial(Counts, name) for name in FORMS},
    ROWS: Rows,
}
MAX_PRODUCTS = 10**12
"""Rows times cells that servers are to count without being asked to: minutes, of cores of today."""


def input_form(name: str, workload: Workload, fine: Domain | None = None) -> InputForm:
    """The form that submissions call ``name``; rows are of the domain ``fine``, where that is not the workload's."""
    return _BY_NAME[name](workload) if fine is None else Rows(workload, fine)


def input_forms(config: Config, workload: Workload) -> Mapping[str, InputForm]:
    """The forms that owners of this run may send, by name; with ``auto``, rows where servers can count them at all.

    Rows alone where bins are private: what is to be counted is known after round 0. With sources, rows of each.
    """
    if config.sources:
        link = SourceLink(config, workload, config.domain if unmeasured(config.domain) else None)
        return {SOURCE_ROWS[n]: LinkedRows(link, n) for n in range(len(config.sources))}
    if unmeasured(config.domain):
        return {ROWS: input_form(ROWS, workload, config.domain)}
    countable = (ROWS,) if workload.maximal_cells <= MAX_CELLS else ()
    names = {
        COUNTS_INPUT: (config.run.upload,),
        ROWS_INPUT: (ROWS,),
        AUTO_INPUT: (config.run.upload, *countable),
    }[config.run.input]
    return {name: input_form(name, workload) for name in names}


def form_for(
    config: Config, workload: Workload, capacity: int, client: str | None = None
) -> InputForm:
    """What an owner that may have ``capacity`` rows sends: of the run's forms the one that takes the fewest bytes.

    Not rows, unless the run takes nothing else, where servers would have to count ``MAX_PRODUCTS`` if everybody had
    as many. With sources, that of the ``client``'s; of nobody in particular, what takes the most bytes.
    Raises ConfigError for a client in no source.
    """
    forms = input_forms(config, workload)
    if config.sources:
        if client is not None:
            return forms[SOURCE_ROWS[config.source_of(client)]]
        return max(forms.values(), key=lambda form: sent_bytes(form, capacity))
    products = capacity * config.clients.expected * workload.maximal_cells
    if products > MAX_PRODUCTS and len(forms) > 1:
        forms = {name: form for name, form in forms.items() if not form.by_capacity}
    return min(forms.values(), key=lambda form: sent_bytes(form, capacity))


def sent_bytes(form: InputForm, capacity: int) -> int:
    """What an owner gives of ``form``, before it is sealed."""
    private = sum(form.private_size(pid, capacity) for pid in range(3))
    return private + form.common_size(capacity)
