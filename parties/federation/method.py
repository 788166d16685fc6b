"""Methods with one server, as commands, services, local runs and the audit ask for them.

A ``ServedMethod`` is registered by its section of the configuration (`parties.methods.registry`). All values here are
public.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parties.config import Config
from parties.federation.client import Participation
from parties.federation.client_session import SumSession
from parties.federation.server import FederationPlan
from parties.session.owner import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedMethod:
    """A method with one server, or a kind of methods, by its section of the configuration.

    Attributes:
        key: Name of the section; "KEY-server" is the server's folder by default.
        title: Name for people.
        again: Effect of the server's command when it is repeated after a stop.
        join_options: Options of `syncret join` that it has, by parameter.
        run_options: Options of `syncret run` that it has, by parameter.
        plan: Returns the run at the server. Raises ConfigError.
        participation: Returns the part of a participant with a table. Raises ConfigError, DataError.
        write_report: Writes the server's report into its folder, at the end. Raises StoreError.
    """

    key: str
    title: str
    again: str
    join_options: Sequence[str]
    run_options: Sequence[str]
    plan: Callable[[Config], FederationPlan]
    participation: Callable[[Config, Table], Participation[SumSession]]
    write_report: Callable[[Config, Path], None]
