"""What an owner would send, by each form that it could take: sizes, which depend on public facts alone.

Provides ``Offer``, and ``drafted_offers`` and ``text_with_offers``, of a config that is being written.
Public: sizes. Secret until its owner has looked at it: a draft.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mechanisms.draft import Draft
from mechanisms.workload import Workload
from parties.config import Config, config_from_dict
from parties.distaim.inputs import form_for, input_forms
from parties.distaim.inputs.own import declared_capacity
from parties.distaim.sealed import Sizes
from parties.drafting import draft_text
from parties.errors import ConfigError
from protocols.upload import ROWS


@dataclass(frozen=True, slots=True)
class Offer:
    """An owner of at most ``capacity`` rows sends ``form``; ``sent_bytes`` are those of sealed uploads, by form."""

    capacity: int
    form: str
    sent_bytes: Mapping[str, int]

    @classmethod
    def of(cls, config: Config, workload: Workload, capacity: int | None = None) -> Self:
        """For an owner that declares this capacity (None: the run's bound). Raises DataError as ``OwnInput.of``."""
        declared = declared_capacity(config, capacity)
        forms = input_forms(config, workload)
        sizes = {name: Sizes.of(form, declared).whole for name, form in forms.items()}
        return cls(declared, form_for(config, workload, declared).name, sizes)

    def __str__(self) -> str:
        sizes = " or ".join(
            f"{size:,} bytes as {_kind(form)}" for form, size in self.sent_bytes.items()
        )
        rows = f"an owner of at most {self.capacity:,} rows sends"
        return f"{rows} {sizes}; with this config, {_kind(self.form)}"


def _kind(form: str) -> str:
    return "rows" if form == ROWS else "counts"


def text_with_offers(name: str, draft: Draft) -> tuple[str, tuple[Offer, ...]]:
    """The draft of the table called ``name`` as TOML, with what owners would send by it. Raises ConfigError."""
    offers = drafted_offers(tomllib.loads(draft_text(name, draft)))
    return draft_text(name, draft, [str(offer) for offer in offers]), offers


def drafted_offers(document: Mapping[str, object]) -> tuple[Offer, ...]:
    """What owners would send by a drafted config: one of as many rows as there may be, and one of a hundredth.

    None of them where its workload has too many cells. Raises ConfigError.
    """
    run = {"id": "draft", **dict(document.get("run", {}))}  # type: ignore[call-overload]
    config = config_from_dict({**document, "run": run}, source="draft", base=Path())
    try:
        workload = config.build_workload()
    except ConfigError:
        return ()
    bound = config.clients.rows_per_client
    return tuple(Offer.of(config, workload, rows) for rows in (bound, max(1, bound // 100)))
