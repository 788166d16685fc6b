"""What linking sources takes, before it is done: what servers send, in how many rounds, and about how long.

Provides ``most_joined`` (rows that may come of it), ``link_cost``, ``link_memory`` and ``link_seconds``. The order of
shuffled rows decides how many comparisons a sort takes; here they are those of typical orders, which differ by
some percent.
Public: everything.
"""

import math

from parties.config import MALICIOUS, SEMI_HONEST, Config
from parties.distaim.inputs.linked import Link
from protocols import link_costs
from protocols.bitslice import words_for
from protocols.costs import Cost

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


def most_joined(config: Config) -> int:
    """How many rows the joined table has at most, in a run with sources."""
    bound, owners = config.clients.rows_per_client, config.clients.expected
    if not any(source.owners for source in config.sources):
        return bound * max(1, owners // len(config.sources))
    return Link.of(config).candidates(_declared(config))


def link_cost(config: Config) -> Cost:
    """What joining the rows of all owners sends; nothing without sources, or where these have no owners yet."""
    declared = _declared(config)
    if not declared:
        return Cost()
    link = Link.of(config)
    if not link.by_key:
        return link_costs.align(link.rows(declared)[0], len(config.sources))
    facts = link.linking(declared)
    levels = max(1, round(1.2 * math.log2(max(2, facts.total)) - 5))
    words = words_for(math.ceil(_comparisons(facts.total) / levels))
    return link_costs.join(facts, [words] * levels)


def link_seconds(config: Config) -> float:
    """About how long that takes, but for what is sent."""
    declared = _declared(config)
    if not declared or not Link.of(config).by_key:
        return 0.0
    a_comparison = SECONDS_A_COMPARISON[config.run.security]
    return a_comparison * _comparisons(Link.of(config).linking(declared).total)


def link_memory(config: Config) -> int:
    """Bytes that a server holds at most for it: of all rows of all sources, sorted at once."""
    declared = _declared(config)
    if not declared or not Link.of(config).by_key:
        return 0
    return MEMORY_A_ROW[config.run.security] * Link.of(config).linking(declared).total
