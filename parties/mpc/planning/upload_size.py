"""Size of a participant's upload in each form. It depends on public facts alone, and is public."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from parties.mpc.inputs import form_for, input_forms
from parties.mpc.inputs.own import declared_capacity
from parties.mpc.submission.sealed_upload import UploadSizes
from parties.session.study import Study
from protocols.upload import FORMS, SOURCE_ROWS


@dataclass(frozen=True, slots=True)
class UploadSize:
    """Form and sizes for a participant of at most ``capacity`` rows; ``sent_bytes`` are of sealed uploads, by form."""

    capacity: int
    form: str
    sent_bytes: Mapping[str, int]

    @classmethod
    def of(
        cls,
        study: Study,
        capacity: int | None = None,
        client: str | None = None,
    ) -> Self:
        """Sizes for a participant with this capacity (None: the run's bound); with sources, for ``client``.

        Raises DataError as ``OwnerInput.of``.
        """
        declared = declared_capacity(study.config, capacity)
        form = form_for(study, declared, client)
        forms = input_forms(study)
        if study.config.sources and client is not None:
            forms = {form.name: form}
        sizes = {name: UploadSizes.of(form, declared).whole for name, form in forms.items()}
        return cls(declared, form.name, sizes)

    def __str__(self) -> str:
        sizes = " or ".join(
            f"{size:,} bytes as {_kind(form)}" for form, size in self.sent_bytes.items()
        )
        rows = f"an owner of at most {self.capacity:,} rows sends {sizes}"
        # Participants of several sources have no choice of form.
        return rows if self.form in SOURCE_ROWS else f"{rows}; with this config, {_kind(self.form)}"


def _kind(form: str) -> str:
    if form in FORMS:
        return "counts"
    _, _, source = form.partition(".")
    return f"rows (of the source in place {int(source) + 1})" if source else "rows"
