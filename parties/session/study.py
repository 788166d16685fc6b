"""A study: a configuration, and what follows from it alone."""

from dataclasses import dataclass

from mechanisms.workload import Workload
from parties.config import Config


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """A study, resolved once from its ``config``: the ``workload`` has all candidate marginals, public and costly."""

    config: Config
    workload: Workload

    @classmethod
    def of(cls, config: Config) -> "Study":
        """Resolves a configuration. Raises ConfigError where its workload cannot be built."""
        return cls(config, config.build_workload())
