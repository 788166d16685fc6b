"""Cost of counting and linking rows, before they begin: seconds, bytes, rounds, memory.

``CountingCost`` and ``counting_cost_text`` cover counting, and compare rows with counts. Bytes follow from the
protocol's formulas; seconds are an estimate for today's machines, on all cores of this one.

``max_joined_rows``, ``link_cost``, ``link_memory`` and ``link_seconds`` cover the linking of sources. The order of
shuffled rows decides the number of comparisons of a sort; the estimate takes typical orders, which differ by some
percent.

All values here are public.
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
from parties.session.study import Study
from protocols import costs, link_costs
from protocols.bitslice import words_for
from protocols.costs import Cost
from protocols.products import usable_cores
from protocols.upload import ROWS

COMPARISONS_A_ROW = 2.45
"""Comparisons of a row for each unit of ln(rows): 22.1 for 10,000 rows, 28.6 for 100,000."""
MEMORY_A_ROW = {SEMI_HONEST: 750, MALICIOUS: 3000}
"""Bytes a row at a server's peak, by `bench link` with keys of 96 bits and 100,000 rows a source."""
SECONDS_A_COMPARISON = {SEMI_HONEST: 2e-6, MALICIOUS: 6e-6}
"""Seconds a comparison, of three servers on two cores.

Three quarters are proofs in malicious mode (`protocols` README, section 8).
"""


def _declared(config: Config) -> dict[str, int]:
    """Maximum capacities of all participants; empty in a trial that has not named the sources' participants yet."""
    bound = config.clients.rows_per_client
    return {owner: bound for source in config.sources for owner in source.owners}


def _comparisons(rows: int) -> float:
    return COMPARISONS_A_ROW * math.log(rows) * rows if rows > 1 else 0.0


def max_joined_rows(config: Config) -> int:
    """Maximum number of rows of the joined table, in a run with sources."""
    bound, owners = config.clients.rows_per_client, config.clients.expected
    if not any(source.owners for source in config.sources):
        return bound * max(1, owners // len(config.sources))
    return SourceLink(config).candidates(_declared(config))


def link_cost(config: Config) -> Cost:
    """Cost of joining the rows of all participants; zero without sources, or if these have no participants yet."""
    declared = _declared(config)
    if not declared:
        return Cost()
    link = SourceLink(config)
    if not link.by_key:
        return link_costs.align(link.rows(declared)[0], len(config.sources))
    facts = link.linking(declared)
    levels = max(1, round(1.2 * math.log2(max(2, facts.total)) - 5))
    words = words_for(math.ceil(_comparisons(facts.total) / levels))
    return link_costs.join(facts, [words] * levels)


def link_seconds(config: Config) -> float:
    """Estimated time of joining in seconds, without the transfer of messages."""
    declared = _declared(config)
    if not declared or not SourceLink(config).by_key:
        return 0.0
    a_comparison = SECONDS_A_COMPARISON[config.run.security]
    return a_comparison * _comparisons(SourceLink(config).linking(declared).total)


def link_memory(config: Config) -> int:
    """Maximum memory of a server for joining, in bytes: all rows of all sources, sorted at once."""
    declared = _declared(config)
    if not declared or not SourceLink(config).by_key:
        return 0
    return MEMORY_A_ROW[config.run.security] * SourceLink(config).linking(declared).total


_SERVERS = 3


@dataclass(frozen=True, slots=True)
class CountingCost:
    """Cost of counting ``rows`` rows, absent ones included: a server's average bytes sent, and estimated seconds."""

    rows: int
    sent_bytes: int
    seconds: float

    @classmethod
    def of(cls, workload: Workload, rows: int, security: str) -> Self:
        """Cost of counting all rows at once; rows of a later round are counted apart. In malicious mode with proofs."""
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


def counting_cost_text(study: Study) -> str | None:
    """Text about counting before a run starts, if participants declare no capacity; None if they send counts.

    If rows cost more than counts, the text has both figures, for all participants and servers together.
    """
    owners, capacity = study.config.clients.expected, study.config.clients.rows_per_client
    if study.config.sources:
        rows = max_joined_rows(study.config)
        effort = CountingCost.of(study.workload, rows, study.config.run.security)
        linked = f"linking the rows of {len(study.config.sources)} sources, then {effort}"
        return f"{linked} at most, less where owners declare less (join --capacity)"
    form = form_for(study, capacity)
    if not form.by_capacity:
        if ROWS not in input_forms(study):
            return None
        return f"owners who declare no less than {capacity:,} rows send counts: see run.input, and join --capacity"
    effort = CountingCost.of(study.workload, owners * capacity, study.config.run.security)
    text = f"at most {effort}, less where owners declare less (join --capacity)"
    if unmeasured(study.config.domain):
        return f"{text}; and the fine cells of private columns before that"
    by_rows = owners * _upload_bytes(UploadSizes.of(form, capacity)) + _SERVERS * effort.sent_bytes
    by_counts = owners * _upload_bytes(
        UploadSizes.of(input_form(study.config.run.upload, study.workload), capacity)
    )
    if by_rows <= by_counts:
        return text
    return (
        f"{text}. Owners and servers send {_size(by_rows)} in all. If owners sent counts, it would be "
        f"{_size(by_counts)} (run.input, or a smaller clients.rows_per_client)"
    )


def _upload_bytes(sizes: UploadSizes) -> int:
    """Bytes of a participant's upload, and of its forwarding by servers."""
    return sizes.whole + round(2 * sum(sizes.passed_on(pid) for pid in range(_SERVERS)) / _SERVERS)


def _seconds(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _size(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} bytes"
