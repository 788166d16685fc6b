"""Registry of the algorithms between silos.

An algorithm NAME has its table [NAME] in the configuration, listed in `parties.config.SILO_ALGORITHMS`, and a module in
``_MODULES`` with a function ``plan(config)`` that returns an `AlgorithmPlan` or raises ConfigError.
`parties.config.parsing.section_of` reads the table into a dataclass.
"""

from collections.abc import Mapping
from importlib import import_module

from parties.config import SILO_ALGORITHMS, Config
from parties.federation.algorithm import AlgorithmPlan
from parties.foundation.errors import ConfigError

_MODULES: Mapping[str, str] = {
    "tda": "parties.methods.tda",
    "mtl": "parties.methods.mtl",
}


def plan_of(config: Config) -> AlgorithmPlan:
    """Returns the plan of the run of ``config``. Raises ConfigError."""
    if config.algorithm is None:
        raise ConfigError(
            config.source,
            "silos",
            f"is missing; expected what is to be computed between silos: [{'] or ['.join(SILO_ALGORITHMS)}]",
        )
    name = config.algorithm[0]
    try:
        made: AlgorithmPlan = import_module(_MODULES[name]).plan(config)
    except ConfigError as error:
        if error.source:
            raise
        message = str(error).removeprefix(f": {error.key}: ")
        raise ConfigError(config.source, error.key, message) from error
    return made
