"""A draft of a config, and what owners would send by it.

Provides ``drafted_offers`` and ``text_with_offers``. Secret until its owner has looked at it: a draft. Public: sizes.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from mechanisms.draft import Draft
from mechanisms.linked_draft import SourceDraft
from parties.config import config_from_dict
from parties.distaim.offers import Offer
from parties.drafting import draft_text
from parties.errors import ConfigError


def text_with_offers(
    name: str, draft: Draft, sources: Sequence[SourceDraft] = ()
) -> tuple[str, tuple[Offer, ...]]:
    """The draft of the table called ``name`` as TOML, with what owners would send by it. Raises ConfigError."""
    offers = drafted_offers(tomllib.loads(draft_text(name, draft, sources=sources)))
    return draft_text(name, draft, [str(offer) for offer in offers], sources), offers


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
