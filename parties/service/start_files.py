"""Model of an earlier run in a proposal of a study that starts from it: the files that the servers pass on.

A proposal has them in base64, by name, under ``START``. The configuration has their digest, and each server compares
the files with it, and their columns with the study's, before its operator sees the study. All of it is public; what
comes from another server is untrusted.
"""

import base64
import binascii
import math
from collections.abc import Mapping

from mechanisms.errors import MechanismError
from mechanisms.model import MARGINALS_FILE, TREE_FILE
from mechanisms.pgm import CELLS_PER_MB
from parties.config import Config, EarlierModel, check_same_columns
from parties.foundation.errors import ConfigError

START = "start"
MAX_START_BYTES = 1 << 25
"""Maximum size of the files together, in base64."""
_MOST_MB = 1024
"""Maximum size of an earlier model in memory, in MB."""
_EXPECTED = "expected those of the bundle that its [refresh] names"


def encoded_start(earlier: EarlierModel | None) -> dict[str, object]:
    """Returns the part of a proposal with the earlier model; empty without one."""
    if earlier is None:
        return {}
    texts = {name: base64.b64encode(data).decode() for name, data in earlier.files.items()}
    return {START: texts}


def checked_start(document: Mapping[str, object], config: Config) -> EarlierModel | None:
    """Returns the earlier model in a proposal, that of the configuration's [refresh]; None for a study without it.

    Raises ConfigError for one that is missing, too large, damaged, or another one.
    """
    if config.refresh is None:
        return None
    try:
        found = EarlierModel(_decoded(document.get(START)))
        digest = found.digest
    except ValueError as error:
        raise _error(config, f"comes without the files of the model: {error}") from error
    if digest != config.refresh.digest:
        raise _error(config, f"comes with the files of another model, {digest}")
    check_same_columns(config, found)
    try:
        # Before it is unpacked: a small file may have much in it.
        _check_size(config, found)
        found.model()
    except MechanismError as error:
        raise _error(config, f"comes with a damaged model: {error}") from error
    return found


def _check_size(config: Config, found: EarlierModel) -> None:
    """Raises ConfigError for a model of more memory than the study's own may have."""
    needed = math.ceil(found.cells / CELLS_PER_MB)
    if needed > min(config.run.max_model_mb, _MOST_MB):
        raise ConfigError(
            config.source,
            "run.max_model_mb",
            f"is {config.run.max_model_mb:g}, and the earlier model takes {needed} MB; expected at least as many, and "
            f"no more than {_MOST_MB} for an earlier model",
        )


def _decoded(value: object) -> dict[str, bytes]:
    """Returns the files. Raises ValueError."""
    if not isinstance(value, Mapping) or {*value} != {TREE_FILE, MARGINALS_FILE}:
        raise ValueError(f"no {TREE_FILE} and {MARGINALS_FILE}")
    texts = {str(name): text for name, text in value.items() if isinstance(text, str)}
    if sum(map(len, texts.values())) > MAX_START_BYTES:
        raise ValueError(f"they have more than {MAX_START_BYTES} bytes")
    try:
        return {name: base64.b64decode(texts[name], validate=True) for name in value}
    except (KeyError, binascii.Error) as error:
        raise ValueError("they are not base64") from error


def _error(config: Config, said: str) -> ConfigError:
    digest = config.refresh.digest if config.refresh is not None else ""
    return ConfigError(config.source, "refresh", f"{said}; {_EXPECTED}, {digest}")
