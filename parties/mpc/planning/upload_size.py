"""Size of a participant's upload in each form, and of the uploads of a draft config.

Sizes depend on public facts alone. Secret until its owner has looked at it: a draft. Public: sizes.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mechanisms.draft import Draft
from mechanisms.linked_draft import SourceDraft
from parties.config import config_from_dict
from parties.foundation.errors import ConfigError
from parties.mpc.inputs import form_for, input_forms
from parties.mpc.inputs.own import declared_capacity
from parties.mpc.submission.sealed_upload import UploadSizes
from parties.session.draft_config import draft_text
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


def draft_text_with_upload_sizes(
    name: str, draft: Draft, sources: Sequence[SourceDraft] = ()
) -> tuple[str, tuple[UploadSize, ...]]:
    """The draft of the table called ``name`` as TOML, with participants' upload sizes. Raises ConfigError."""
    sizes = draft_upload_sizes(tomllib.loads(draft_text(name, draft, sources=sources)))
    return draft_text(name, draft, [str(offer) for offer in sizes], sources), sizes


def draft_upload_sizes(document: Mapping[str, object]) -> tuple[UploadSize, ...]:
    """Upload sizes by a drafted config: for a participant with the maximum number of rows, and with a hundredth.

    Empty if the workload has too many cells. Raises ConfigError.
    """
    run = {"id": "draft", **dict(document.get("run", {}))}  # type: ignore[call-overload]
    config = config_from_dict({**document, "run": run}, source="draft", base=Path())
    try:
        workload = config.build_workload()
    except ConfigError:
        return ()
    bound = config.clients.rows_per_client
    return tuple(
        UploadSize.of(Study(config, workload), rows) for rows in (bound, max(1, bound // 100))
    )
