"""Text of a draft config, with the sizes of the uploads that it asks for.

Secret until its owner has looked at it: a draft. Public: sizes.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from mechanisms.draft import Draft
from mechanisms.linked_draft import SourceDraft
from parties.config import config_from_dict
from parties.foundation.errors import ConfigError
from parties.mpc.planning.upload_size import UploadSize
from parties.session.draft_config import draft_text
from parties.session.study import Study


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
