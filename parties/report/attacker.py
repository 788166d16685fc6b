"""The best attacker on a run, in a report: what it finds of those who were there, by how many absent it suspects.

``AttackerBound`` is computed from the loss of a whole unit of privacy (a row, or a person with its rows) in the
currency of the run's accountant, or from epsilon and delta alone where no more is known. All values here are public.
Source and validity: `mechanisms.tradeoff`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mechanisms.accounting import ZCDP, epsilon_from_rho, rho_from_epsilon_delta
from mechanisms.gaussian_privacy import GAUSSIAN, gaussian_budget, gaussian_epsilon
from mechanisms.tradeoff import found_at_most, gaussian_profile, stated_profile, zcdp_profile

STATED = "stated"
"""Accountant of a run of which epsilon and delta are all that is known."""
SHARES = (0.001, 0.01, 0.1)
"""Shares of falsely suspected absent rows in a report."""
DRAWN = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_WEAK, _NONE = 0.1, 0.5
"""Shares of the present that an attacker with a hundredth of false positives finds, from which on words are added."""


@dataclass(frozen=True, slots=True)
class AttackerBound:
    """Bound on an attacker: ``cost`` of a unit in the currency of ``accountant``, and the stated guarantee.

    ``distance`` is the statistical distance of all samples from the charged distributions.
    """

    accountant: str
    cost: float
    epsilon: float
    delta: float
    distance: float = 0.0

    def found_at_most(self, false_positives: float) -> float:
        """Returns the largest share of the present that an attacker with these false positives finds."""
        return _found(self, false_positives)

    def of_two(self) -> tuple[float, float]:
        """Returns epsilon and delta of two such runs together, for one who is in both."""
        found = math.inf
        if self.accountant == GAUSSIAN:
            found = gaussian_epsilon(2 * self.cost, self.delta, distance=2 * self.distance)
        elif self.accountant == ZCDP.name:
            found = epsilon_from_rho(2 * self.cost, self.delta, distance=2 * self.distance)
        return (found, self.delta) if found < math.inf else (2 * self.epsilon, 2 * self.delta)

    def to_dict(self) -> dict[str, object]:
        """Returns the section `attacker` of report.json."""
        epsilon, delta = self.of_two()
        return {
            "accountant": self.accountant,
            "cost": self.cost,
            "distance": self.distance,
            "found": [
                {"falsely_suspected": share, "found_at_most": self.found_at_most(share)}
                for share in SHARES
            ],
            "of_two_studies": {"epsilon": epsilon, "delta": delta},
        }


@lru_cache(maxsize=512)
def _found(bound: AttackerBound, false_positives: float) -> float:
    stated = stated_profile(bound.epsilon, bound.delta)
    found = found_at_most(stated, false_positives, stated=bound.epsilon)
    if bound.accountant == STATED:
        return found
    profile = gaussian_profile if bound.accountant == GAUSSIAN else zcdp_profile
    return min(found, found_at_most(profile(bound.cost), false_positives, distance=bound.distance))


def attacker_of(report: Mapping[str, object]) -> AttackerBound:
    """Returns the bound of a report; one that is looser for reports of earlier versions."""
    parameters, privacy, said = (
        _table(report, key) for key in ("parameters", "privacy", "attacker")
    )
    epsilon, delta = _number(parameters, "epsilon"), _number(parameters, "delta")
    if "cost" in said:
        return AttackerBound(
            str(said["accountant"]),
            _number(said, "cost"),
            epsilon,
            delta,
            _number(said, "distance"),
        )
    if "rho_total" not in privacy:
        return AttackerBound(STATED, 0.0, epsilon, delta)
    # Every accountant's budget implies as much zCDP, of a row; a person's rows count squared.
    rows = _number(parameters, "rows_of_unit") if "rows_of_unit" in parameters else 1.0
    return AttackerBound(ZCDP.name, _number(privacy, "rho_total") * rows * rows, epsilon, delta)


def attackers_of(report: Mapping[str, object], epsilons: Sequence[float]) -> list[AttackerBound]:
    """Returns the bounds of runs like the report's with other epsilons, as if the whole budget of each were spent."""
    bound = attacker_of(report)
    return [
        bound
        if epsilon == bound.epsilon
        else AttackerBound(
            bound.accountant, budget_of(bound, epsilon), epsilon, bound.delta, bound.distance
        )
        for epsilon in epsilons
    ]


def budget_of(bound: AttackerBound, epsilon: float) -> float:
    """Returns the cost of a unit in the currency of the bound's accountant that gives an epsilon with its delta."""
    if bound.accountant == GAUSSIAN:
        return gaussian_budget(epsilon, bound.delta)
    return rho_from_epsilon_delta(epsilon, bound.delta)


def attacker_text(bound: AttackerBound, who: str) -> str:
    """Returns what the best attacker finds; ``who`` is the unit, "row" or "person"."""
    one, ten = bound.found_at_most(0.01), bound.found_at_most(0.1)
    others = "all rows of everybody else" if who == "person" else "all other rows"
    said = (
        f"What that means: an attacker knows {others}, and decides from everything published here whether this {who} "
        f"was in the table. If it falsely suspects 1 % of the absent {who}s, it finds at most {percent(one)} of the "
        f"present ones; if it falsely suspects 10 %, at most {percent(ten)}. Guessing finds 1 % and 10 %."
    )
    return " ".join(filter(None, [said, weakness_text(bound, who)]))


def weakness_text(bound: AttackerBound, who: str) -> str:
    """Returns a sentence on a bound that protects a single ``who`` weakly, or hardly at all; "" for others."""
    one = bound.found_at_most(0.01)
    if one >= _NONE:
        return f"That protects a single {who} hardly at all: handle the table like the real one."
    return f"That is weak protection for a single {who}." if one >= _WEAK else ""


def delta_text(delta: float, rows: object) -> str:
    """Returns a sentence on a delta that is large for a table of so many ``rows``; "" for a smaller one."""
    if not isinstance(rows, int) or rows < 1 or delta < 1 / rows:
        return ""
    return (
        f"Delta is large: {delta:g} is at least 1 in {rows:,}, the number of rows. Such a delta alone would allow some "
        "row to be published as it is. It should be far smaller."
    )


def two_studies_text(bound: AttackerBound) -> str:
    """Returns what two such studies come to together."""
    epsilon, delta = bound.of_two()
    return (
        f"Somebody whose data is in two studies like this one has epsilon = {rounded_up(epsilon):g} and delta = "
        f"{delta:g} from both together."
    )


def percent(share: float) -> str:
    """Returns a share in percent, rounded up to two digits, and to one place above 10 %."""
    value = 100 * min(share, 1.0)
    digits = 1 if value >= 10 else 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{min(100.0, math.ceil(value * 10**digits - 1e-9) / 10**digits):g} %"


def rounded_up(epsilon: float) -> float:
    """Returns an epsilon rounded up to three digits."""
    if not 0 < epsilon < math.inf:
        return epsilon
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 2)
    return float(f"{math.ceil(epsilon / unit - 1e-9) * unit:.10g}")


def _table(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(table: Mapping[str, object], key: str) -> float:
    value = table[key]
    if not isinstance(value, int | float):
        raise ValueError(f"the report's {key!r} is not a number")
    return float(value)
