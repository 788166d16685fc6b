"""Effect of smoothing on likelihoods, in the runs that have both.

`nll` mixes the model with the uniform distribution at weight 1e-6, `nll_raw` does not (`bench.papers.utility.runs`);
raw less smoothed is 0 if every held-out row is likely.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.experiment.markdown import filled, markdown_table
from bench.papers.utility.store import Store

_ENOUGH = 3


@dataclass(frozen=True, slots=True)
class Gaps:
    """Raw less smoothed negative log-likelihood of every run with both, and the smoothed one, by table and method."""

    known: Mapping[tuple[str, str], Sequence[tuple[float, float]]]

    @classmethod
    def of(cls, store: Store) -> "Gaps":
        """Collects the gaps of all runs."""
        known = defaultdict(list)
        for entry in store.everything():
            if (raw := entry.result.nll_raw) is not None:
                settings = entry.settings
                pair = max(0.0, raw - entry.result.nll), entry.result.nll
                known[settings.dataset, settings.method].append(pair)
        return cls(known)

    def of_method(self, dataset: str, method: str) -> list[float]:
        """Returns a method's gaps on this table, or on all tables if this one has hardly any."""
        own = self.known.get((dataset, method), [])
        chosen = (
            own
            if len(own) >= _ENOUGH
            else [pair for (_, m), pairs in self.known.items() if m == method for pair in pairs]
        )
        return [gap for gap, _ in chosen]


def smoothing_section(gaps: Gaps, undecided: int) -> str:
    """Returns a table of the gaps, and the number of cells without a verdict because of them."""
    title = "## What smoothing does to likelihoods\n\n"
    if not gaps.known:
        return title + "No run has both.\n"
    rows = []
    for (dataset, method), pairs in sorted(gaps.known.items()):
        apart = [gap for gap, _ in pairs]
        usual = median(nll for _, nll in pairs)
        ends = f"{min(apart):.2f} to {max(apart):,.2f}"
        rows.append(
            (dataset, method, str(len(pairs)), f"{usual:.2f}", f"{median(apart):.2f}", ends)
        )
    heads = "table | method | runs | NLL smoothed, median | raw less smoothed, median | least to greatest"
    before = """
    The paper's likelihoods are raw. Mixed with the uniform distribution at weight 1e-6, as in records that lack the raw
    one, they can only be lower, so that a smoothed one that is worse than the paper's is worse. By how much, in all
    runs that have both, whatever their epsilon and T:
    """
    after = f"""
    Little for AIM, whose marginals are of everybody; nats for methods whose queries few clients chose, and
    without bound where a measurement calls a value impossible that a held-out row has. So a smoothed likelihood near
    the paper's or below is no agreement, unless the greatest difference known of its method on its table (on any,
    where fewer than three are known on it) is below 5 % of the paper's figure: {undecided} cells
    have no verdict for that.
    """
    return f"{title}{filled(before)}\n\n{markdown_table(heads, rows)}\n\n{filled(after)}\n"
