"""Registry of the methods with one server.

``served_method`` finds one by its section of the configuration. A method between silos, NAME, has its table [NAME]
there (`parties.config.algorithms`) and a `parties.federation.algorithm.FederatedMethod`: Syncret's own as METHOD in a
module of this package, others by entry points of installed packages. Commands, local runs, services and the audit find
a method here and name none.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from parties.config import Config
from parties.config.algorithms import OWN_ALGORITHMS, installed_algorithms, silo_algorithms
from parties.foundation.errors import ConfigError

# A run on three servers asks for its method, too, and needs nothing of a federation.
if TYPE_CHECKING:
    from parties.federation.algorithm import AlgorithmPlan, FederatedMethod
    from parties.federation.method import ServedMethod

_MODULES: Mapping[str, str] = {name: f"parties.methods.{name}" for name in OWN_ALGORITHMS}

_SERVED: Mapping[str, str] = {"flaim": "flaim.method", "silos": "silos"}
"""Modules with a `parties.federation.method.ServedMethod`, SERVED, by the section of the configuration."""
DISTAIM = "distaim"


def method_of(config: Config, only: str | None = None) -> str:
    """Returns the method of a configuration: DISTAIM where it has compute servers, else the section of its one server.

    A configuration with both is of the section where ``only`` says so.
    """
    section = config.federation
    if section is None or (config.parties and only != section.KEY):
        return DISTAIM
    return section.KEY


def section_of(method: str) -> str | None:
    """Returns the section of the method with one server that is called ``method``; None if there is none."""
    if method in silo_algorithms():
        return "silos"
    return method if method in _SERVED and method != "silos" else None


def served_methods() -> "Sequence[ServedMethod]":
    """Returns all methods with one server."""
    return [served_method(key) for key in _SERVED]


def served_method(key: str) -> "ServedMethod":
    """Returns the method with one server that has the section ``key``."""
    found: ServedMethod = import_module(f"parties.methods.{_SERVED[key]}").SERVED
    return found


def method_named(name: str, source: str = "the config") -> "FederatedMethod":
    """Returns the method with the table [``name``]. Raises ConfigError where an installed package has none to load."""
    from parties.federation.algorithm import FederatedMethod

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


def plan_of(config: Config) -> "AlgorithmPlan":
    """Returns the plan of the run of ``config``. Raises ConfigError."""
    if config.algorithm is None:
        raise ConfigError(
            config.source,
            "silos",
            f"is missing; expected what is to be computed between silos: [{'] or ['.join(silo_algorithms())}]",
        )
    name = config.algorithm[0]
    method = method_named(name, config.source)
    if config.rows_of_unit > 1 and not method.of_persons:
        raise ConfigError(
            config.source,
            "run.rows_per_person",
            f"is {config.rows_of_unit}; expected 1, since the guarantee of [{name}] is for a row",
        )
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
