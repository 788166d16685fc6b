"""Registry of the methods between silos.

A method NAME has its table [NAME] in the configuration (`parties.config.algorithms`) and a
`parties.federation.algorithm.FederatedMethod`: Syncret's own as METHOD in a module of this package, others by entry
points of installed packages. Commands, local runs, services and the audit find a method here and name none.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint

from parties.config import Config
from parties.config.algorithms import OWN_ALGORITHMS, installed_algorithms, silo_algorithms
from parties.federation.algorithm import AlgorithmPlan, FederatedMethod
from parties.foundation.errors import ConfigError

_MODULES: Mapping[str, str] = {name: f"parties.methods.{name}" for name in OWN_ALGORITHMS}


def method_names() -> tuple[str, ...]:
    """Returns the names of all methods between silos."""
    return silo_algorithms()


def method_named(name: str, source: str = "the config") -> FederatedMethod:
    """Returns the method with the table [``name``]. Raises ConfigError where an installed package has none to load."""
    if name in _MODULES:
        own: FederatedMethod = import_module(_MODULES[name]).METHOD
        return own
    point = installed_algorithms().get(name)
    found = None if point is None else _loaded(point, source)
    if not isinstance(found, FederatedMethod) or found.name != name:
        raise ConfigError(
            source, name, f"is no method between silos; expected one of {', '.join(method_names())}"
        )
    return found


def plan_of(config: Config) -> AlgorithmPlan:
    """Returns the plan of the run of ``config``. Raises ConfigError."""
    if config.algorithm is None:
        raise ConfigError(
            config.source,
            "silos",
            f"is missing; expected what is to be computed between silos: [{'] or ['.join(method_names())}]",
        )
    name = config.algorithm[0]
    method = method_named(name, config.source)
    try:
        return method.plan(config) if name in _MODULES else _planned(method, config)
    except ConfigError as error:
        if error.source:
            raise
        message = str(error).removeprefix(f": {error.key}: ")
        raise ConfigError(config.source, error.key, message) from error


def _loaded(point: EntryPoint, source: str) -> object:
    """Loads another package's method. Raises ConfigError for whatever goes wrong in its code."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        text = f"cannot be loaded from {point.value}: {type(error).__name__}: {error}"
        raise ConfigError(source, point.name, text) from error


def _planned(method: FederatedMethod, config: Config) -> AlgorithmPlan:
    """Plans by another package's method. Raises ConfigError for whatever goes wrong in its code."""
    try:
        return method.plan(config)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        text = f"cannot be planned: {type(error).__name__}: {error}"
        raise ConfigError(config.source, method.name, text) from error
