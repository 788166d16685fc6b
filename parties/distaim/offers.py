"""What an owner would send, by each form that it could take: sizes, which depend on public facts alone.

Provides ``Offer``. Public.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from mechanisms.workload import Workload
from parties.config import Config
from parties.distaim.inputs import form_for, input_forms
from parties.distaim.inputs.own import declared_capacity
from parties.distaim.sealed import Sizes
from protocols.upload import FORMS, SOURCE_ROWS


@dataclass(frozen=True, slots=True)
class Offer:
    """An owner of at most ``capacity`` rows sends ``form``; ``sent_bytes`` are those of sealed uploads, by form."""

    capacity: int
    form: str
    sent_bytes: Mapping[str, int]

    @classmethod
    def of(
        cls,
        config: Config,
        workload: Workload,
        capacity: int | None = None,
        client: str | None = None,
    ) -> Self:
        """For an owner that declares this capacity (None: the run's bound); with sources, the ``client``.

        Raises DataError as ``OwnInput.of``.
        """
        declared = declared_capacity(config, capacity)
        form = form_for(config, workload, declared, client)
        forms = input_forms(config, workload)
        if config.sources and client is not None:
            forms = {form.name: form}
        sizes = {name: Sizes.of(form, declared).whole for name, form in forms.items()}
        return cls(declared, form.name, sizes)

    def __str__(self) -> str:
        sizes = " or ".join(
            f"{size:,} bytes as {_kind(form)}" for form, size in self.sent_bytes.items()
        )
        rows = f"an owner of at most {self.capacity:,} rows sends {sizes}"
        # Of several sources' owners nobody has a choice.
        return rows if self.form in SOURCE_ROWS else f"{rows}; with this config, {_kind(self.form)}"


def _kind(form: str) -> str:
    if form in FORMS:
        return "counts"
    _, _, source = form.partition(".")
    return f"rows (of the source in place {int(source) + 1})" if source else "rows"
