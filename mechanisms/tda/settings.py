"""Settings of a run of Fed-TDA, on which all sides agree.

All values here are public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from mechanisms.silos import NoiseMaker

Privacy: TypeAlias = Literal["zcdp", "none"]
CategoryOrder: TypeAlias = Literal["listed", "frequency"]
Correlations: TypeAlias = Literal["latent", "scores"]
Assignment: TypeAlias = Literal["drawn", "argmax"]

PAPER_ITERATIONS = 100
MOST_COMPONENTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TdaSettings:
    """Settings of one run; made by ``private`` or ``paper``.

    Attributes:
        privacy: zcdp: every sum has noise, and the run costs a row at most ``rho``; none: exact sums, as in the paper,
            whose release is not private at all.
        components: T of each continuous column's mixture.
        iterations: the most iterations of the mixtures; an exact run ends them when no parameter moves by more than
            ``tolerance``.
        mixture_share, frequency_share: shares of ``rho`` for these sums; the rest is for the second moments.
        row_norm: bound on the contribution of one continuous column to a row of the mixtures' sums; longer rows are
            shortened.
        moment_norm: bound on the contribution of one column to the square of a row of scores; longer rows are
            shortened.
        order: of the categories' intervals: as listed (components from left to right), or by frequency (the paper).
        assignment: of a value to its component: drawn by its responsibilities, or the largest.
        correlations: of the drawn rows: latent, those of the normal variables behind the silos' categories
            (`mechanisms.tda.latent`), or those of scores that the silos draw (the paper).
        noise: server or distributed.
        corrupt: silos of a sum that may collude with the server, for distributed noise: only the noise of the other
            ``min_silos`` - ``corrupt`` is counted.
        max_silo_rows: a public bound on one silo's table.
        discrete: columns of numbers that are treated as categories, such as a label 1 .. 7.

    Raises ``ValueError``, naming the setting, if one is out of range or two do not go together.
    """

    privacy: Privacy
    rho: float = 0.0
    components: int = 10
    iterations: int = 10
    tolerance: float = 1e-3
    mixture_share: float = 0.4
    frequency_share: float = 0.2
    row_norm: float = 1.0
    moment_norm: float = 1.0
    order: CategoryOrder = "listed"
    assignment: Assignment = "drawn"
    correlations: Correlations = "latent"
    noise: NoiseMaker = "server"
    min_silos: int = 3
    corrupt: int = 1
    max_silo_rows: int = 1 << 20
    discrete: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, values in (
            ("privacy", get_args(Privacy)),
            ("order", get_args(CategoryOrder)),
            ("assignment", get_args(Assignment)),
            ("correlations", get_args(Correlations)),
            ("noise", get_args(NoiseMaker)),
        ):
            if getattr(self, name) not in values:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r}; it is one of {', '.join(values)}"
                )
        for name, most in (
            ("components", MOST_COMPONENTS),
            ("iterations", 10_000),
            ("max_silo_rows", 1 << 20),
        ):
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} = {getattr(self, name)}; it lies between 1 and {most}")
        for name in ("tolerance", "row_norm", "moment_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} = {getattr(self, name)}; it is positive and finite")
        if not 3 <= self.min_silos <= 1 << 16:
            raise ValueError(
                f"min_silos = {self.min_silos}; of a sum of two each knows the other's part: 3 or more"
            )
        if not 1 <= self.corrupt < self.min_silos:
            raise ValueError(
                f"corrupt = {self.corrupt} of min_silos = {self.min_silos}; at least one is taken for corrupt, and at"
                " least one has to be honest"
            )
        self._check_privacy()

    def _check_privacy(self) -> None:
        if not self.private_run and self.rho:
            raise ValueError(
                f'rho = {self.rho} with privacy = "none", which spends none; leave it out'
            )
        if self.private_run and not 0 < self.rho < math.inf:
            raise ValueError(f'rho = {self.rho}; privacy = "zcdp" needs a budget above 0')
        shares = self.mixture_share, self.frequency_share
        if not (min(shares) > 0 and sum(shares) < 1):
            raise ValueError(
                f"mixture_share = {shares[0]}, frequency_share = {shares[1]}; both are above 0, and leave something"
                " of the whole for the second moments"
            )

    @property
    def private_run(self) -> bool:
        """True if every sum has noise."""
        return self.privacy == "zcdp"

    @property
    def honest(self) -> int:
        """Least number of honest silos in every opened sum."""
        return self.min_silos - self.corrupt

    @classmethod
    def private(cls, rho: float, **changes: object) -> TdaSettings:
        """Returns settings with noise, for a budget of ``rho`` a row.

        Raises ``ValueError`` for an unknown setting too.
        """
        return cls._of({"privacy": "zcdp", "rho": rho}, changes)

    @classmethod
    def paper(cls, **changes: object) -> TdaSettings:
        """Returns the settings of the paper: not private."""
        preset: dict[str, object] = {
            "privacy": "none",
            "iterations": PAPER_ITERATIONS,
            "order": "frequency",
            "assignment": "argmax",
            "correlations": "scores",
        }
        return cls._of(preset, changes)

    @classmethod
    def _of(cls, preset: dict[str, object], changes: dict[str, object]) -> TdaSettings:
        if unknown := [name for name in changes if name not in cls.__dataclass_fields__]:
            raise ValueError(f"there is no setting {unknown[0]!r}")
        return cls(**{**preset, **changes})  # type: ignore[arg-type]  # __post_init__ checks every value
