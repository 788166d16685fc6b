"""What counting rows costs the servers, before it begins: seconds, bytes, and what counts would cost instead.

Provides ``Effort`` and ``effort_text``. Bytes are by the protocol's formulas; seconds are an estimate for machines of
today, on all cores of this one. Public: everything.
"""

from dataclasses import dataclass
from typing import Self

from mechanisms.resolving import unmeasured
from mechanisms.workload import Workload
from parties.config import MALICIOUS, Config
from parties.distaim.inputs import form_for, input_form, input_forms
from parties.distaim.inputs.rows import counting_plan
from parties.distaim.link_needs import most_joined
from parties.distaim.sealed import Sizes
from protocols import costs
from protocols.products import usable_cores
from protocols.upload import ROWS

_SERVERS = 3


@dataclass(frozen=True, slots=True)
class Effort:
    """Counting so many ``rows``, absent ones included: what a server sends, on average, and about how long it takes."""

    rows: int
    sent_bytes: int
    seconds: float

    @classmethod
    def of(cls, workload: Workload, rows: int, security: str) -> Self:
        """All at once; what comes in a later round is counted by itself. In malicious mode with the proofs."""
        plan, proved = counting_plan(workload), security == MALICIOUS
        seconds = plan.seconds(rows, usable_cores())
        with costs.with_verifier(proved):
            cost = costs.count_rows(plan, rows)
            if proved:
                cost += costs.count_proofs(plan, rows)
                seconds += plan.proof_seconds(rows)
        return cls(rows, sum(cost.sent) // _SERVERS, seconds)

    def __str__(self) -> str:
        return f"{self.rows:,} rows: about {_seconds(self.seconds)} and {_size(self.sent_bytes)} sent by each server"


def effort_text(config: Config, workload: Workload) -> str | None:
    """What a run says of counting before it starts, for owners who declare nothing; None where they send counts.

    With both figures where rows cost more than counts, all owners and servers together.
    """
    owners, capacity = config.clients.expected, config.clients.rows_per_client
    if config.sources:
        rows = most_joined(config)
        effort = Effort.of(workload, rows, config.run.security)
        linked = f"linking the rows of {len(config.sources)} sources, then {effort}"
        return f"{linked} at most, less where owners declare less (submit --capacity)"
    form = form_for(config, workload, capacity)
    if not form.by_capacity:
        if ROWS not in input_forms(config, workload):
            return None
        return f"owners who declare no less than {capacity:,} rows send counts: see run.input, and submit --capacity"
    effort = Effort.of(workload, owners * capacity, config.run.security)
    text = f"at most {effort}, less where owners declare less (submit --capacity)"
    if unmeasured(config.domain):
        return f"{text}; and finer cells of private bins before that"
    by_rows = owners * _moved(Sizes.of(form, capacity)) + _SERVERS * effort.sent_bytes
    by_counts = owners * _moved(Sizes.of(input_form(config.run.upload, workload), capacity))
    if by_rows <= by_counts:
        return text
    return (
        f"{text}. Owners and servers send {_size(by_rows)} in all; with counts it would be {_size(by_counts)} "
        f"(run.input, or a smaller clients.rows_per_client)"
    )


def _moved(sizes: Sizes) -> int:
    """An owner's upload, and what servers pass on of it."""
    return sizes.whole + round(2 * sum(sizes.passed_on(pid) for pid in range(_SERVERS)) / _SERVERS)


def _seconds(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _size(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} bytes"
