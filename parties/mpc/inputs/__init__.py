"""Input forms of a run: submissions that participants may send, and their conversion into shares of counts.

``input_forms`` are the forms of a run, ``form_for`` the form that one participant uses, and ``input_form`` a form by
name: the only table from names to forms. All forms end in the same running total. Public: the forms of a run.
"""

from collections.abc import Callable, Mapping
from functools import partial

from mechanisms.domain import Domain
from mechanisms.resolving import unmeasured
from mechanisms.workload import Workload
from parties.config import AUTO_INPUT, COUNTS_INPUT, ROWS_INPUT
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
from parties.session.study import Study
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
"""Largest number of rows times cells that servers count unasked: minutes of work on today's cores."""


def input_form(name: str, workload: Workload, fine: Domain | None = None) -> InputForm:
    """Form that submissions call ``name``; rows are of the domain ``fine``, if that is not the workload's."""
    return _BY_NAME[name](workload) if fine is None else Rows(workload, fine)


def input_forms(study: Study) -> Mapping[str, InputForm]:
    """Forms that participants of this run may send, by name; with ``auto``, rows only if servers can count them at all.

    With private bins, rows alone: the cells to count are known only after round 0. With sources, rows of each source.
    """
    if study.config.sources:
        link = SourceLink(study.config)
        fine = study.config.domain if unmeasured(study.config.domain) else None
        return {
            SOURCE_ROWS[n]: LinkedRows(link, n, study.workload, fine)
            for n in range(len(study.config.sources))
        }
    if unmeasured(study.config.domain):
        return {ROWS: input_form(ROWS, study.workload, study.config.domain)}
    countable = (ROWS,) if study.workload.maximal_cells <= MAX_CELLS else ()
    names = {
        COUNTS_INPUT: (study.config.run.upload,),
        ROWS_INPUT: (ROWS,),
        AUTO_INPUT: (study.config.run.upload, *countable),
    }[study.config.run.input]
    return {name: input_form(name, study.workload) for name in names}


def form_for(study: Study, capacity: int, client: str | None = None) -> InputForm:
    """Form of a participant that may have ``capacity`` rows: the run's form with the fewest bytes.

    Rows are left out, unless they are the only form, if the servers would have to count more than ``MAX_PRODUCTS`` with
    such a capacity for every participant. With sources, the form of the ``client``'s source, or without a client the
    form with the most bytes. Raises ConfigError for a client in no source.
    """
    forms = input_forms(study)
    if study.config.sources:
        if client is not None:
            return forms[SOURCE_ROWS[study.config.source_of(client)]]
        return max(forms.values(), key=lambda form: sent_bytes(form, capacity))
    products = capacity * study.config.clients.expected * study.workload.maximal_cells
    if products > MAX_PRODUCTS and len(forms) > 1:
        forms = {name: form for name, form in forms.items() if not form.by_capacity}
    return min(forms.values(), key=lambda form: sent_bytes(form, capacity))


def sent_bytes(form: InputForm, capacity: int) -> int:
    """Size of a participant's input in ``form`` before sealing, in bytes."""
    private = sum(form.private_size(pid, capacity) for pid in range(3))
    return private + form.common_size(capacity)
