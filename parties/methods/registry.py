"""Registry of the methods between silos.

A method NAME has its table [NAME] in the configuration (`parties.config.algorithms`) and a
`parties.federation.algorithm.FederatedMethod`: Syncret's own as METHOD in a module of this package, others by entry
points of installed packages. Commands, local runs, services and the audit find a method here and name none.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

from parties.config import Config
from parties.config.algorithms import OWN_ALGORITHMS, installed_algorithms, silo_algorithms
from parties.federation.algorithm import AlgorithmPlan, FederatedMethod
from parties.foundation.errors import ConfigError

_MODULES: Mapping[str, str] = {name: f"parties.methods.{name}" for name in OWN_ALGORITHMS}


def method_named(name: str, source: str = "the config") -> FederatedMethod:
    """Returns the method with the table [``name``]. Raises ConfigError where an installed package has none to load."""
    if name in _MODULES:
        own: FederatedMethod = import_module(_MODULES[name]).METHOD
        return own
    point = installed_algorithms().get(name)
    found: object = None
    if point is not None:
        with _foreign_code(source, name, f"cannot be loaded from {point.value}"):
            found = point.load()
    if not isinstance(found, FederatedMethod) or found.name != name:
        raise ConfigError(
            source,
            name,
            f"is no method between silos; expected one of {', '.join(silo_algorithms())}",
        )
    return found


def plan_of(config: Config) -> AlgorithmPlan:
    """Returns the plan of the run of ``config``. Raises ConfigError."""
    if config.algorithm is None:
        raise ConfigError(
            config.source,
            "silos",
            f"is missing; expected what is to be computed between silos: [{'] or ['.join(silo_algorithms())}]",
        )
    name = config.algorithm[0]
    method = method_named(name, config.source)
    try:
        if name in _MODULES:
            return method.plan(config)
        with _foreign_code(config.source, name, "cannot be planned"):
            return method.plan(config)
    except ConfigError as error:
        if error.source:
            raise
        message = str(error).removeprefix(f": {error.key}: ")
        raise ConfigError(config.source, error.key, message) from error


@contextmanager
def _foreign_code(source: str, key: str, problem: str) -> Iterator[None]:
    """Another package's code runs within. Raises ConfigError for whatever goes wrong in it."""
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        text = f"{problem}: {type(error).__name__}: {error}"
        raise ConfigError(source, key, text) from error
