"""Batches of agreed submissions, filled page by page.

``Batcher`` collects submissions; ``in_batches`` iterates over the batches of many. All values here are public.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from parties.mpc.inputs import InputForm
from parties.mpc.records import StoredSubmission

FormGroup: TypeAlias = tuple[InputForm, tuple[StoredSubmission, ...]]
"""Submissions that are counted at once, and their form."""
_MAX_BATCH = 1000


class Batcher:
    """Holds the added submissions that do not fill a batch yet, by forms that are counted together."""

    def __init__(self, forms: Mapping[str, InputForm]) -> None:
        self._forms = forms
        self._waiting: dict[str, list[StoredSubmission]] = defaultdict(list)

    def add(self, due: Iterable[StoredSubmission]) -> list[FormGroup]:
        """Adds ``due`` and returns the batches that are full with them."""
        for stored in due:
            self._waiting[self._forms[stored.submission.form].together].append(stored)
        full: list[FormGroup] = []
        for together, waiting in sorted(self._waiting.items()):
            form = self._form(waiting)
            *groups, last = form.batches(waiting)
            full += [(form, group) for group in groups]
            self._waiting[together] = list(last)
        return full

    def remainder(self) -> list[FormGroup]:
        """Submissions that fill no batch; the batcher is empty after that."""
        waiting = [waiting for _, waiting in sorted(self._waiting.items())]
        self._waiting.clear()
        return [(self._form(left), tuple(left)) for left in waiting]

    def _form(self, waiting: list[StoredSubmission]) -> InputForm:
        return self._forms[waiting[0].submission.form]


def in_batches(
    forms: Mapping[str, InputForm], submissions: Iterable[StoredSubmission]
) -> Iterator[FormGroup]:
    """All ``submissions`` in batches, each as soon as it is full."""
    batching, left = Batcher(forms), iter(submissions)
    while some := list(islice(left, _MAX_BATCH)):
        yield from batching.add(some)
    yield from batching.remainder()
