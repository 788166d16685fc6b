"""What counting rows costs the servers, before it begins: seconds, bytes, and what counts would cost instead.

Provides ``CountingCost`` and ``counting_cost_text``. Bytes are by the protocol's formulas; seconds are an estimate for
machines of today, on all cores of this one. Public: everything.

What linking sources takes, before it is done: what servers send, in how many rounds, and about how long.

Provides ``max_joined_rows`` (rows that may come of it), ``link_cost``, ``link_memory`` and ``link_seconds``. The order
of shuffled rows decides how many comparisons a sort takes; here they are those of typical orders, which differ by some
percent. Public: everything.
"""

import math
from dataclasses import dataclass
from typing import Self

from mechanisms.resolving import unmeasured
from mechanisms.workload import Workload
from parties.config import MALICIOUS, SEMI_HONEST, Config
from parties.mpc.inputs import form_for, input_form, input_forms
from parties.mpc.inputs.linked import SourceLink
from parties.mpc.inputs.rows import counting_plan
from parties.mpc.submission.sealed_upload import UploadSizes
from protocols import costs, link_costs
from protocols.bitslice import words_for
from protocols.costs import Cost
from protocols.products import usable_cores
from protocols.upload import ROWS

COMPARISONS_A_ROW = 2.45
"""For each unit of ln(rows): 22.1 of 10,000 rows, 28.6 of 100,000."""
MEMORY_A_ROW = {SEMI_HONEST: 750, MALICIOUS: 3000}
"""At a server's peak, by `bench link` with keys of 96 bits and 100,000 rows a source."""
SECONDS_A_COMPARISON = {SEMI_HONEST: 2e-6, MALICIOUS: 6e-6}
"""Of three servers on two cores; three quarters are proofs where there are any (`protocols` README, section 8)."""


def _declared(config: Config) -> dict[str, int]:
    """Owners who declare as many rows as they may; in a trial that has not named them yet, as many of each source."""
    bound = config.clients.rows_per_client
    return {owner: bound for source in config.sources for owner in source.owners}


def _comparisons(rows: int) -> float:
    return COMPARISONS_A_ROW * math.log(rows) * rows if rows > 1 else 0.0


def max_joined_rows(config: Config) -> int:
    """How many rows the joined table has at most, in a run with sources."""
    bound, owners = config.clients.rows_per_client, config.clients.expected
    if not any(source.owners for source in config.sources):
        return bound * max(1, owners // len(config.sources))
    return SourceLink.of(config).candidates(_declared(config))


def link_cost(config: Config) -> Cost:
    """What joining the rows of all owners sends; nothing without sources, or where these have no owners yet."""
    declared = _declared(config)
    if not declared:
        return Cost()
    link = SourceLink.of(config)
    if not link.by_key:
        return link_costs.align(link.rows(declared)[0], len(config.sources))
    facts = link.linking(declared)
    levels = max(1, round(1.2 * math.log2(max(2, facts.total)) - 5))
    words = words_for(math.ceil(_comparisons(facts.total) / levels))
    return link_costs.join(facts, [words] * levels)


def link_seconds(config: Config) -> float:
    """About how long that takes, but for what is sent."""
    declared = _declared(config)
    if not declared or not SourceLink.of(config).by_key:
        return 0.0
    a_comparison = SECONDS_A_COMPARISON[config.run.security]
    return a_comparison * _comparisons(SourceLink.of(config).linking(declared).total)


def link_memory(config: Config) -> int:
    """Bytes that a server holds at most for it: of all rows of all sources, sorted at once."""
    declared = _declared(config)
    if not declared or not SourceLink.of(config).by_key:
        return 0
    return MEMORY_A_ROW[config.run.security] * SourceLink.of(config).linking(declared).total


_SERVERS = 3


@dataclass(frozen=True, slots=True)
class CountingCost:
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


def counting_cost_text(config: Config, workload: Workload) -> str | None:
    """What a run says of counting before it starts, for owners who declare nothing; None where they send counts.

    With both figures where rows cost more than counts, all owners and servers together.
    """
    owners, capacity = config.clients.expected, config.clients.rows_per_client
    if config.sources:
        rows = max_joined_rows(config)
        effort = CountingCost.of(workload, rows, config.run.security)
        linked = f"linking the rows of {len(config.sources)} sources, then {effort}"
        return f"{linked} at most, less where owners declare less (submit --capacity)"
    form = form_for(config, workload, capacity)
    if not form.by_capacity:
        if ROWS not in input_forms(config, workload):
            return None
        return f"owners who declare no less than {capacity:,} rows send counts: see run.input, and submit --capacity"
    effort = CountingCost.of(workload, owners * capacity, config.run.security)
    text = f"at most {effort}, less where owners declare less (submit --capacity)"
    if unmeasured(config.domain):
        return f"{text}; and finer cells of private bins before that"
    by_rows = owners * _upload_bytes(UploadSizes.of(form, capacity)) + _SERVERS * effort.sent_bytes
    by_counts = owners * _upload_bytes(
        UploadSizes.of(input_form(config.run.upload, workload), capacity)
    )
    if by_rows <= by_counts:
        return text
    return (
        f"{text}. Owners and servers send {_size(by_rows)} in all; with counts it would be {_size(by_counts)} "
        f"(run.input, or a smaller clients.rows_per_client)"
    )


def _upload_bytes(sizes: UploadSizes) -> int:
    """An owner's upload, and what servers pass on of it."""
    return sizes.whole + round(2 * sum(sizes.passed_on(pid) for pid in range(_SERVERS)) / _SERVERS)


def _seconds(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _size(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} bytes"
