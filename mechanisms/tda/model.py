"""The released model of Fed-TDA, and rows drawn from it: a Gaussian copula over scores and places.

All values here are public if the run was private; ``privacy`` says so.

Rows X are normal with the covariance; categories are read off their scores, and a continuous column's value is its
component's mean plus its place times the deviation. Source: Fed-TDA, synthesis. Erratum: the paper's unitary matrix U
with Sigma = U U^T is the Cholesky factor.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import number_text
from mechanisms.domain import Domain, Integer
from mechanisms.errors import DomainError, EstimationError
from mechanisms.sampling import PublicGenerator
from mechanisms.table import decode_column, written_frame
from mechanisms.tda.icdm import Scores
from mechanisms.tda.layout import Continuous, Layout, scaled, specials, unscaled
from mechanisms.tda.mixture import Mixture, Prior
from mechanisms.tda.settings import CategoryOrder, Privacy

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
_KEYS = {
    "privacy",
    "order",
    "rows",
    "domain",
    "continuous",
    "components",
    "prior",
    "mixture",
    "shares",
    "covariance",
}


@dataclass(frozen=True, slots=True, eq=False)
class TdaModel:
    """A released model.

    ``mixture`` is that of the continuous columns, ``shares`` those of the categories of every component and discrete
    column, ``covariance`` (l, l) that of rows X, positive definite; ``rows`` is the estimated number of rows.

    Raises ``ValueError`` for parts that do not fit one another.
    """

    layout: Layout
    privacy: Privacy
    order: CategoryOrder
    rows: float
    mixture: Mixture
    shares: tuple[Floats, ...]
    covariance: Floats

    def __post_init__(self) -> None:
        layout, size = self.layout, self.layout.width
        if self.mixture.counts.shape != (len(layout.continuous), layout.components):
            raise ValueError("a mixture for other columns")
        if tuple(share.size for share in self.shares) != layout.sizes:
            raise ValueError("shares for other columns")
        if self.covariance.shape != (size, size) or not np.isfinite(self.covariance).all():
            raise ValueError(f"a covariance that is not a finite matrix of {size} columns")
        words = self.privacy in get_args(Privacy) and self.order in get_args(CategoryOrder)
        if not (self.rows >= 0 and words):
            raise ValueError(f"rows = {self.rows}, {self.privacy!r}, {self.order!r}: not a model's")

    def sample(self, rows: int, generator: PublicGenerator) -> pd.DataFrame:
        """Returns a synthetic table of ``rows`` rows in the user's columns, as text, with implied columns filled in."""
        layout = self.layout
        # X = L g with Sigma = L L^T and g standard normal.
        factor = np.linalg.cholesky(self.covariance)
        drawn = generator.standard_normal((rows, layout.width)) @ factor.T
        places, scores = drawn[:, : len(layout.continuous)], drawn[:, len(layout.continuous) :]
        ranked = column_scores(layout, self.order, self.mixture, self.shares)
        codes = [column.inverse(scores[:, k]) for k, column in enumerate(ranked)]
        columns: dict[str, NDArray[np.object_]] = {}
        for j in range(len(layout.continuous)):
            column = layout.number(j)
            columns[column.name] = self._written(j, codes[j], places[:, j])
        for i, code in zip(layout.discrete, codes[len(layout.continuous) :], strict=True):
            described = layout.domain.columns[i]
            written = decode_column(layout.domain, described, code.astype(np.int32), generator)
            columns[described.name] = written
        return written_frame(layout.domain, columns)

    def _written(self, j: int, component: NDArray[np.intp], place: Floats) -> NDArray[np.object_]:
        """Returns the ``j``-th continuous column as text (rows,), from components and places in them (rows,)."""
        layout, column, mixture = self.layout, self.layout.number(j), self.mixture
        inside = np.minimum(component, layout.components - 1)
        x = mixture.mean[j, inside] + place * mixture.deviation[j, inside]
        written = _as_text(column, unscaled(column, np.clip(x, 0.0, 1.0)))
        for k, special in enumerate(specials(column)):
            if special is None:
                text = layout.domain.missing_values[0]
            else:
                text = special if isinstance(special, str) else number_text(column, special)
            written[component == layout.components + k] = text
        return written

    def to_json(self) -> str:
        """Returns an exact representation, read by ``from_json``."""
        layout, mixture = self.layout, self.mixture
        return json.dumps(
            {
                "privacy": self.privacy,
                "order": self.order,
                "rows": self.rows,
                "domain": layout.domain.to_dict(),
                "continuous": list(layout.continuous),
                "components": layout.components,
                "prior": asdict(mixture.prior),
                "mixture": [
                    array.tolist() for array in (mixture.counts, mixture.mean, mixture.scatter)
                ],
                "shares": [share.tolist() for share in self.shares],
                "covariance": self.covariance.tolist(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> TdaModel:
        """Reads the output of ``to_json``. Raises ``EstimationError`` on anything else."""
        try:
            parts = json.loads(text)
            if not isinstance(parts, dict) or set(parts) != _KEYS:
                raise ValueError(f"it has the parts {', '.join(sorted(_KEYS))}")
            domain = Domain.from_dict(parts["domain"])
            continuous = tuple(map(int, parts["continuous"]))
            discrete = tuple(i for i in range(len(domain.columns)) if i not in continuous)
            layout = Layout(domain, continuous, discrete, int(parts["components"]))
            shape = (len(continuous), layout.components)
            arrays = [np.array(part, np.float64).reshape(shape) for part in parts["mixture"]]
            shares = tuple(np.array(share, np.float64) for share in parts["shares"])
            covariance = np.array(parts["covariance"], np.float64)
            mixture = Mixture(Prior(**parts["prior"]), *arrays)
            model = cls(
                layout,
                parts["privacy"],
                parts["order"],
                float(parts["rows"]),
                mixture,
                shares,
                covariance,
            )
            column_scores(layout, model.order, mixture, shares)
            np.linalg.cholesky(covariance)
            return model
        except (
            ValueError,
            TypeError,
            LookupError,
            OverflowError,
            RecursionError,
            DomainError,
        ) as error:
            raise EstimationError(f"not a model of Fed-TDA: {error}") from None
        except np.linalg.LinAlgError:
            raise EstimationError(
                "not a model of Fed-TDA: its covariance is not positive definite"
            ) from None


def column_scores(
    layout: Layout, order: CategoryOrder, mixture: Mixture, shares: Sequence[Floats]
) -> list[Scores]:
    """Returns the scores of every component and discrete column: n_c + n_d.

    Order "listed": components by their means, atoms among them, missing values last; categories by their codes.
    """
    if order == "frequency":
        return [Scores.by_frequency(share) for share in shares]
    ranked = []
    for j, share in enumerate(shares[: len(layout.continuous)]):
        column = layout.number(j)
        atoms = [
            _place(column, atom) if isinstance(atom, float) else np.inf for atom in specials(column)
        ]
        places = np.concatenate([mixture.mean[j], np.array(atoms, np.float64)])
        ranked.append(Scores(share, np.argsort(places, kind="stable")))
    return [*ranked, *map(Scores.as_listed, shares[len(layout.continuous) :])]


def _place(column: Continuous, atom: float) -> float:
    """Returns the place of an atom among the column's scaled values; an end if it lies outside."""
    return float(scaled(column, np.clip(np.array(atom), column.low, column.high)))


def _as_text(column: Continuous, values: Floats) -> NDArray[np.object_]:
    """Returns numbers (rows,) as the column writes them, at the column's resolution."""
    if not isinstance(column, Integer) and column.digits is not None:
        multiples = np.array([column.multiple(repr(x)) or 0 for x in values.tolist()], np.int64)
    else:
        places = 0 if isinstance(column, Integer) else column.places
        multiples = np.rint(values * 10.0**places).astype(np.int64)
    ranges = [column.cells.ranges[code] for code in column.cells.bins]
    first, last = min(low for low, _ in ranges), max(high for _, high in ranges)
    inside = np.clip(multiples, first, last).tolist()
    return np.array([column.text_of(k) for k in inside], object)
