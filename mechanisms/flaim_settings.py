"""Settings of a FLAIM run: variant, rounds and noise, as one frozen record that all sides agree on.

``FlaimSettings.preset`` has the settings of each variant; ``SumNoise`` is the noise of a sum.

All values here are public. Every side makes the same record from its own configuration.

Source: FLAIM paper (Maddock, Cormode, Maple, KDD 2024), Algorithm 1 and Lemma 4.1. Deviations: each client pays for its
local measurements, and the variant ``pairs`` is not the paper's, see README.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from mechanisms.accounting import Plan, Schedule, Variant, fixed_rounds_plan, rho
from mechanisms.annealing import FEDERATED_ROUNDS, AnnealedPlan
from mechanisms.events import (
    DiscreteGaussianEvent,
    Event,
    SumOfDiscreteGaussiansEvent,
    check_positive,
)
from mechanisms.workload import Workload

FlaimVariant: TypeAlias = Literal["naive", "oracle", "private", "random", "naivebayes", "pairs"]
Grouping: TypeAlias = Literal["union", "query"]
NoiseMaker: TypeAlias = Literal["server", "distributed"]
Sizes: TypeAlias = Literal["estimated", "public"]
Tau: TypeAlias = Literal["none", "oracle", "proxy"]
Settles: TypeAlias = Literal["sum", "any"]

FLAIM_VARIANTS: tuple[FlaimVariant, ...] = get_args(FlaimVariant)

# Least deviation of one client's noise, in scaled units: from 3 on, a sum of discrete Gaussians costs as much as a
# single one, up to 1e-36.
LEAST_CLIENT_DEVIATION = 3.0

# Relative increase of distributed noise's variance, so that rounding never makes it cost more.
_ROOM = Fraction(1, 10**9)


@dataclass(frozen=True, slots=True)
class SumNoise:
    """Noise of one sum of counts.

    With ``scale`` s > 0, each client multiplies its counts by s and adds a discrete Gaussian of ``variance``, before
    anything is sent. With ``scale`` 1 and ``variance`` 0, the server adds a discrete Gaussian of deviation ``sigma`` to
    the sum. ``event`` is the event that one marginal of the sum is charged as.
    """

    sigma: float
    scale: int
    variance: Fraction
    event: Event

    def deviation(self, survivors: int) -> float:
        """Returns the deviation of the noise in a sum over ``survivors`` clients, in rows."""
        if not self.variance:
            return self.sigma
        return math.sqrt(survivors * self.variance) / self.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaimSettings:
    """Settings of one run; ``preset`` fills in ``tau``, ``combine`` and ``weighted`` by variant.

    Attributes:
        rho: the zCDP budget.
        rounds: T, unused when ``annealed``.
        local_rounds: s, the choices of one client in one round.
        participation: the rate p of Poisson sampling, drawn again while fewer than ``min_participants`` are drawn; for
            ``pairs`` the share of the rounds that one client takes part in.
        min_participants: a sum over fewer clients is never opened.
        measure_share: r.
        grouping: union: one sum over all chosen queries; query: one sum for each chosen query, among its choosers.
        noise: server or distributed.
        corrupt: clients of a sum (at least one) that may collude with the server, for distributed noise: the noise of
            the other ``min_participants`` - ``corrupt`` has deviation sigma.
        sizes: estimated: the mean of noisy totals is used for every client; public: owners declare their number of
            rows, and the guarantee is for tables of the same declared size.
        settles: an annealed round is followed by a finer one if its choices moved the model by no more than noise
            would: all in sum, or any single query.
        tau: the heterogeneity subtracted from a client's score: none, the true one (not private: an experiment), or the
            mean over the columns of the distance from noisy one-way marginals.
        combine: one-way marginals are not chosen but measured in every round, and used for the model.
        weighted: measurements count by their rows over sigma.
        max_client_rows: a public bound on one client's table.
        iterations: iterations of PGM in a round; ``final_iterations`` at the end.
        max_model_mb: as in AIM.

    Raises ``ValueError``, naming the setting, if one is out of range or two do not go together.
    """

    variant: FlaimVariant
    rho: float
    rounds: int = 10
    local_rounds: int = 1
    participation: float = 0.1
    min_participants: int = 3
    annealed: bool = False
    measure_share: float = 0.9
    grouping: Grouping = "union"
    noise: NoiseMaker = "server"
    corrupt: int = 1
    sizes: Sizes = "estimated"
    settles: Settles = "sum"
    tau: Tau = "none"
    combine: bool = False
    weighted: bool = False
    max_client_rows: int = 1 << 20
    iterations: int = 100
    final_iterations: int = 1000
    max_model_mb: float = 80.0

    def __post_init__(self) -> None:
        for name, values in (
            ("variant", FLAIM_VARIANTS),
            ("grouping", get_args(Grouping)),
            ("noise", get_args(NoiseMaker)),
            ("sizes", get_args(Sizes)),
            ("settles", get_args(Settles)),
            ("tau", get_args(Tau)),
        ):
            if getattr(self, name) not in values:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r}; it is one of {', '.join(values)}"
                )
        check_positive("rho", self.rho)
        for name in ("rounds", "local_rounds", "max_client_rows", "iterations", "final_iterations"):
            if not 1 <= getattr(self, name) < 1 << 29:
                raise ValueError(f"{name} = {getattr(self, name)}; it is 1 or more, and below 2^29")
        if not 0 < self.participation <= 1:
            raise ValueError(
                f"participation = {self.participation}; it lies above 0 and is at most 1"
            )
        if not 0 < self.measure_share < 1:
            raise ValueError(f"measure_share = {self.measure_share}; it lies between 0 and 1")
        if self.min_participants < 3:
            raise ValueError(
                f"min_participants = {self.min_participants}; of a sum of two each knows the other's part: "
                "3 or more"
            )
        if not 1 <= self.corrupt < self.min_participants:
            raise ValueError(
                f"corrupt = {self.corrupt} of min_participants = {self.min_participants}; at least one is taken for "
                "corrupt, and at least one of the participants has to be honest"
            )
        check_positive("max_model_mb", self.max_model_mb)
        self._check_together()

    def _check_together(self) -> None:
        if self.variant == "pairs" and not (self.grouping == "union" and self.combine):
            raise ValueError(
                "variant = 'pairs' measures the same marginals of all participants; expected grouping = 'union' and "
                "combine = true"
            )
        if not self.selects and (self.tau != "none" or self.annealed):
            raise ValueError(
                f"variant = {self.variant!r} makes no private choices: tau is none, and it is not annealed"
            )
        if self.variant == "random" and self.combine:
            raise ValueError("variant = 'random' takes one-way marginals once: combine is false")
        if self.noise == "distributed" and self.grouping == "query":
            raise ValueError(
                "noise = 'distributed' needs grouping = 'union': a query may have a single chooser, "
                "whose noise alone would have to hide it"
            )

    @classmethod
    def preset(cls, variant: str, *, rho: float, **changes: object) -> FlaimSettings:
        """Returns the settings of one of the paper's variants, with ``changes`` by name (Figure 2's ablations).

        naive: no additions. oracle: tau oracle, weighted. private: tau proxy, combine, weighted. random: choices are
        uniform and cost nothing. naivebayes: one-way marginals only, in every round, weighted. pairs (not of the
        paper): one-way and two-way marginals in every round, weighted. Raises ``ValueError`` for an unknown variant or
        setting.
        """
        presets: dict[str, dict[str, object]] = {
            "naive": {},
            "oracle": {"tau": "oracle", "weighted": True},
            "private": {"tau": "proxy", "combine": True, "weighted": True},
            "random": {},
            "naivebayes": {"combine": True, "weighted": True},
            "pairs": {"combine": True, "weighted": True},
        }
        if variant not in presets:
            raise ValueError(f"variant = {variant!r}; it is one of {', '.join(presets)}")
        if unknown := [name for name in changes if name not in cls.__dataclass_fields__]:
            raise ValueError(f"there is no setting {unknown[0]!r}")
        values = {"variant": variant, "rho": rho, **presets[variant], **changes}
        return cls(**values)  # type: ignore[arg-type]  # __post_init__ checks every value

    @property
    def selects(self) -> bool:
        """True if clients choose by the exponential mechanism."""
        return self.variant in ("naive", "oracle", "private")

    @property
    def chosen(self) -> int:
        """Number of queries that each participant adds to a round's sums."""
        return 0 if self.variant in ("naivebayes", "pairs") else self.local_rounds

    @property
    def turns(self) -> int:
        """Most rounds that one client takes part in, which are those that it pays for: all but for ``pairs``."""
        if self.variant == "pairs":
            return max(1, math.floor(self.participation * self.rounds))
        return self.rounds

    def is_paid(self, number: int) -> bool:
        """Returns whether round ``number`` costs nothing more: the rounds before it paid for all turns of a client.

        All rounds of ``pairs`` cost the same, and there is no round 1.
        """
        return self.turns < self.rounds and max(0, number - 1) >= self.turns

    def counted(self, number: int) -> int:
        """Returns a round's number as people count: the first sums are the first round where clients choose nothing."""
        return number if self.chosen else max(1, number)

    def round_text(self, number: int) -> str:
        """Returns a round's number in words, such as "round 3 of 10"."""
        before = "" if self.counted(number) else "single columns before "
        return f"{before}round {self.counted(number) or 1}" + (
            "" if self.annealed else f" of {self.rounds}"
        )

    def common(self, workload: Workload) -> tuple[int, ...]:
        """Returns the candidates that a sum over all participants measures: columns, and for ``pairs`` pairs."""
        pairs = self.variant == "pairs"
        two = [i for i, clique in enumerate(workload.candidates) if pairs and len(clique) == 2]
        return (*workload.one_way, *two)

    @property
    def local_measurements(self) -> int:
        """Number of noisy marginals that a client measures for itself in a round: one between two choices."""
        return self.local_rounds - 1 if self.selects else 0

    @property
    def one_way_each_round(self) -> bool:
        """True if all one-way marginals are measured in every round; otherwise once, at the start."""
        return self.combine or self.tau == "proxy"

    @property
    def round_iterations(self) -> int:
        """Iterations of an estimate before the last; 0 if that model is not used."""
        if self.variant == "pairs":
            # Each of many steps fits a model that differs by one pair.
            return max(1, self.iterations // 4)
        return self.iterations if self.selects else 0

    @property
    def honest(self) -> int:
        """Least number m of honest clients in every opened sum."""
        return self.min_participants - self.corrupt

    def schedule(self, columns: int) -> Schedule:
        """Returns the division of the budget over the rounds that one client pays for (``turns``).

        ``columns`` is the number of marginals that are measured of all participants, of columns or pairs: the length of
        ``common``. A new object for each run. Raises ``ValueError`` if the budget is too small for it.
        """
        variant = self._plan_variant
        if self.annealed:
            return AnnealedPlan(
                self.rho,
                columns,
                rounds_per_column=FEDERATED_ROUNDS,
                measure_share=self.measure_share,
                noise="discrete-gaussian",
                variant=variant,
                local_rounds=self.local_rounds,
                local_measurements=self.local_measurements,
            )
        plan: Plan = fixed_rounds_plan(
            self.rho,
            self.turns,
            columns,
            measure_share=self.measure_share,
            noise="discrete-gaussian",
            variant=variant,
            local_rounds=self.local_rounds,
            local_measurements=self.local_measurements,
        )
        return plan

    @property
    def _plan_variant(self) -> Variant:
        if self.variant == "pairs":
            # All rounds measure the same marginals, as those of naivebayes do; these are more.
            return "naivebayes"
        if self.variant in ("random", "naivebayes"):
            return self.variant
        return "private" if self.one_way_each_round else "naive"

    def sum_noise(self, sigma: float) -> SumNoise:
        """Returns the noise of a sum that is charged as one of deviation ``sigma``. Its ``event`` costs no more."""
        return _sum_noise(self.noise, self.honest, sigma)


@lru_cache(maxsize=1024)
def _sum_noise(noise: NoiseMaker, honest: int, sigma: float) -> SumNoise:
    asked = DiscreteGaussianEvent(sigma)
    if noise == "server":
        return SumNoise(sigma, 1, Fraction(0), asked)
    scale = max(1, math.ceil(LEAST_CLIENT_DEVIATION * math.sqrt(honest) / sigma))
    # m clients' noise has deviation scale * sigma together; each client's variance is a part of it.
    exact = (Fraction(sigma) * scale) ** 2 / honest * (1 + _ROOM)
    # A short fraction keeps exact sampling fast; rounding up only adds noise.
    variance = Fraction(math.ceil(exact * 1024), 1024)
    # The account's deviation is below the sampler's.
    part = math.nextafter(math.sqrt(variance), 0.0)
    event = SumOfDiscreteGaussiansEvent(part, honest, sensitivity=scale)
    if rho(event) > rho(asked):
        raise ValueError(f"distributed noise for sigma = {sigma} costs more than it may")
    return SumNoise(sigma, scale, variance, event)
