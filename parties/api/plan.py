"""Plans from programs, as by `syncret plan`."""

from __future__ import annotations

from collections.abc import Mapping

from parties.api.arguments import check_changes, check_number, check_whole
from parties.api.config import ConfigLike, config_of
from parties.api.errors import in_terms_of_python
from parties.foundation.process import memory_bytes
from parties.local.resource_plan import ResourcePlan, document_of, lines_of, make_resource_plan
from parties.mpc.planning.resources import NetworkAssumptions


class Plan:
    """The plan of a run: ``str()`` is the text of `syncret plan`, ``to_dict()`` the document of its --json.

    ``rows`` is the number of rows that it is for, and ``warnings`` are sentences on what may not be worth it.
    """

    def __init__(self, made: ResourcePlan) -> None:
        self._made = made
        self.rows = made.rows
        self.warnings = tuple(made.warnings)

    def to_dict(self) -> dict[str, object]:
        """Returns the document of `syncret plan --json`."""
        return document_of(self._made)

    def __str__(self) -> str:
        return "\n".join(lines_of(self._made))

    def __repr__(self) -> str:
        return str(self)


@in_terms_of_python
def plan(
    config: ConfigLike,
    rows: int | None = None,
    *,
    capacity: int | None = None,
    bandwidth_mbit_s: float = 1000.0,
    latency_ms: float = 0.2,
    changes: Mapping[str, object] | None = None,
) -> Plan:
    """Computes what a run takes, as `syncret plan` does: cells, bytes, memory, seconds, and noise beside the counts.

    Args:
        config: Configuration; of a draft, edited.
        rows: Rows of all owners together; by default as many as there may be.
        capacity: Rows that each owner declares; by default an even part of ``rows``.
        bandwidth_mbit_s: Bandwidth between two servers, in Mbit/s.
        latency_ms: Latency of a message between two servers, in milliseconds.
        changes: Other values of the config by dotted key.

    Nothing is sent and no table is read. Raises ConfigError for what cannot work; DataError for a capacity beyond its
    bound; TypeError, ValueError.
    """
    for name, value in (("rows", rows), ("capacity", capacity)):
        if value is not None:
            check_whole(name, value, least=1)
    loaded = config_of(config, check_changes(changes))
    bandwidth = check_number("bandwidth_mbit_s", bandwidth_mbit_s, zero=False)
    network = NetworkAssumptions(
        bandwidth * 1e6 / 8, check_number("latency_ms", latency_ms, zero=True) / 1e3
    )
    return Plan(
        make_resource_plan(
            loaded, rows=rows, capacity=capacity, memory=memory_bytes(), network=network
        )
    )
