"""One silo of Fed-TDA: its answers, from its rows, to the three kinds of sums.

Rows, scores, random bytes and answers are secret. Releases, through sums with noise, are charged to the silo's own
ledger before it uses a row. A server's request is first compared with the silo's own settings; its mixtures and shares
may be arbitrary, since rows are limited to their norms in any case.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import MEASURE, Ledger
from mechanisms.errors import DataError, EstimationError, RequestRefused
from mechanisms.fixed_point import encode, encode_rows, unpack_arrays
from mechanisms.sampling import RandomBytes
from mechanisms.silos import Request, Silo
from mechanisms.tda.covariance import moments
from mechanisms.tda.icdm import Scores, normal_quantile
from mechanisms.tda.layout import Layout, Rows
from mechanisms.tda.mixture import Mixture, Prior, responsibilities, row_terms
from mechanisms.tda.model import TdaModel, column_scores
from mechanisms.tda.settings import TdaSettings
from mechanisms.tda.steps import (
    FREQUENCIES,
    MAX_PLACE,
    MIXTURE,
    MOMENTS,
    Step,
    Steps,
    mixture_unit,
    moment_scale,
)

Floats = NDArray[np.float64]

# Rows whose terms are in memory at once: 3 T n_c doubles each.
_PART = 2048


class TdaSilo(Silo):
    """A `mechanisms.silos.Silo` with ``rows``.

    ``ledger`` is its owner's, by default one for this run alone; None if the run is not private.

    Raises ``DataError`` for a table of more rows than the settings allow.
    """

    def __init__(
        self,
        rows: Rows,
        layout: Layout,
        settings: TdaSettings,
        *,
        ledger: Ledger | None = None,
        random_bytes: RandomBytes = secrets.token_bytes,
    ) -> None:
        if len(rows) > settings.max_silo_rows:
            raise DataError(
                f"a table of {len(rows)} rows; max_silo_rows = {settings.max_silo_rows} was agreed on"
            )
        self.ledger: Ledger | None = None
        if settings.private_run:
            self.ledger = Ledger(settings.rho) if ledger is None else ledger
        self.model: TdaModel | None = None
        self._rows = rows
        self._layout = layout
        self._settings = settings
        self._steps = Steps.of(layout, settings)
        self._random_bytes = random_bytes
        self._iteration = 0
        # Components (rows, n_c), once they are drawn, and the digest of the mixture that they were drawn by.
        self._assigned: tuple[bytes, NDArray[np.intp]] | None = None
        self._done = False

    def __repr__(self) -> str:
        spent = "not private" if self.ledger is None else f"spent {self.ledger.spent:.4g}"
        return f"TdaSilo({spent})"

    def answer(self, request: Request) -> NDArray[np.int64]:
        """See ``mechanisms.silos.Silo``. Steps come in their order; an iteration may be skipped, none comes twice."""
        if request.step == MIXTURE and self._assigned is None and not self._done:
            return self._answer_mixture(request)
        if request.step == FREQUENCIES and self._assigned is None and not self._done:
            return self._answer_frequencies(request)
        if request.step == MOMENTS and not self._done:
            return self._answer_moments(request)
        raise RequestRefused(f"{request.step!r} is no step that comes now")

    def finish(self, payload: bytes) -> None:
        """Takes the model. Raises ``RequestRefused`` if it is no model of this run."""
        try:
            model = TdaModel.from_json(payload.decode())
        except (EstimationError, UnicodeDecodeError) as error:
            raise RequestRefused(f"a result that is no model: {error}") from None
        same = model.layout == self._layout and model.privacy == self._settings.privacy
        if not same:
            raise RequestRefused("a model of another domain, or of another kind of privacy")
        self.model = model

    def _answer_mixture(self, request: Request) -> NDArray[np.int64]:
        """Answers with the E-step: sums of r, r z, r z^2 over the rows."""
        step, shape = self._steps.mixture, self._mixture_shape
        step.check(request)
        (number,), *arrays = unpack_arrays(request.payload, (1,), shape, shape, shape)
        if not (number == int(number) and self._iteration < number <= self._steps.iterations):
            raise RequestRefused(
                f"iteration {number:g} after {self._iteration} of {self._steps.iterations}"
            )
        mixture = self._read_mixture(arrays)
        self._charge(step, int(number))
        self._iteration = int(number)
        unit = mixture_unit(mixture, self._settings)
        real, whole = np.zeros(step.length), np.zeros(step.length, np.int64)
        for start in range(0, len(self._rows), _PART):
            terms = row_terms(self._rows.x[start : start + _PART], mixture, unit)
            flat = terms.reshape(len(terms), -1)
            if self._settings.private_run:
                whole += encode_rows(flat, scale_bits=step.scale_bits, norm=step.norm).sum(axis=0)
            else:
                real += flat.sum(axis=0)
        if self._settings.private_run:
            return whole
        return encode(real, scale_bits=step.scale_bits, bound=self._settings.max_silo_rows)

    def _answer_frequencies(self, request: Request) -> NDArray[np.int64]:
        """Answers with the counts of all categories.

        Every row's component in each continuous column is drawn here, for good.
        """
        step, shape = self._steps.frequencies, self._mixture_shape
        step.check(request)
        mixture = self._read_mixture(unpack_arrays(request.payload, shape, shape, shape))
        self._charge(step, self._iteration)
        counts = [
            np.bincount(codes, minlength=size)
            for codes, size in zip(self._categories(mixture), self._layout.sizes, strict=True)
        ]
        return np.concatenate(counts).astype(np.int64)

    def _answer_moments(self, request: Request) -> NDArray[np.int64]:
        """Answers with the second moments of rows (1, X)."""
        step, layout = self._steps.moments, self._layout
        step.check(request)
        shape = self._mixture_shape
        sizes = ((size,) for size in layout.sizes)
        arrays = unpack_arrays(request.payload, shape, shape, shape, *sizes)
        mixture, shares = self._read_mixture(arrays[:3]), arrays[3:]
        try:
            ranked = column_scores(layout, self._settings.order, mixture, shares)
        except ValueError as error:
            raise RequestRefused(f"shares that are none: {error}") from None
        self._charge(step, self._iteration)
        self._done = True
        x = self._scored(self._categories(mixture), mixture, ranked)
        rows = np.column_stack([np.ones(len(x)), x])
        if not self._settings.private_run:
            bound = MAX_PLACE**2 * self._settings.max_silo_rows
            return encode(moments(rows, whole=False), scale_bits=step.scale_bits, bound=bound)
        rows *= moment_scale(layout, self._settings, ranked)
        whole = encode_rows(rows, scale_bits=step.scale_bits // 2, norm=step.norm)
        return moments(whole.astype(np.float64), whole=True).astype(np.int64)

    @property
    def _mixture_shape(self) -> tuple[int, int]:
        return len(self._layout.continuous), self._layout.components

    def _read_mixture(self, arrays: list[Floats]) -> Mixture:
        try:
            return Mixture(Prior.of(self._settings.components), *arrays)
        except ValueError as error:
            raise RequestRefused(f"a mixture that is none: {error}") from None

    def _charge(self, step: Step, number: int) -> None:
        """Charges before anything is computed from the rows."""
        if self.ledger is not None and step.event is not None:
            self.ledger.charge(number, MEASURE, step.event)

    def _uniform(self, count: int) -> Floats:
        """Returns independent places (count,) in [0, 1)."""
        words = np.frombuffer(self._random_bytes(8 * count), "<u8") >> np.uint64(11)
        return np.asarray(words * 2.0**-53, np.float64)

    def _categories(self, mixture: Mixture) -> list[NDArray[np.intp]]:
        """Returns components and discrete codes, (rows,) each. Components are drawn once, and stay."""
        if self._assigned is None:
            self._assigned = mixture.digest, self._drawn(mixture)
        of, component = self._assigned
        if of != mixture.digest:
            raise RequestRefused("second moments of another mixture than the frequencies")
        return [*component.T, *self._rows.codes.T.astype(np.intp)]

    def _drawn(self, mixture: Mixture) -> NDArray[np.intp]:
        """Returns the component (rows, n_c) of each continuous value, and the further ones of special values."""
        rows, component = self._rows, np.empty(self._rows.x.shape, np.intp)
        for start in range(0, len(rows), _PART):
            r = responsibilities(rows.x[start : start + _PART], mixture)
            if self._settings.assignment == "argmax":
                chosen = r.argmax(axis=2)
            else:
                u = self._uniform(r[:, :, 0].size).reshape(r.shape[:2])
                chosen = (np.cumsum(r, axis=2)[:, :, :-1] <= u[:, :, None]).sum(axis=2)
            component[start : start + _PART] = chosen
        return np.where(rows.special >= 0, self._layout.components + rows.special, component)

    def _scored(
        self, categories: list[NDArray[np.intp]], mixture: Mixture, ranked: list[Scores]
    ) -> Floats:
        """Returns X (rows, l): places in components, then scores."""
        layout, rows = self._layout, self._rows
        x = np.empty((len(rows), layout.width))
        for j in range(len(layout.continuous)):
            special = rows.special[:, j] >= 0
            inside = np.where(special, 0, categories[j])
            place = (rows.x[:, j] - mixture.mean[j, inside]) / mixture.deviation[j, inside]
            # A value without a number has a random place, as normal as those of the others.
            place[special] = normal_quantile(self._uniform(int(special.sum())))
            x[:, j] = np.clip(place, -MAX_PLACE, MAX_PLACE)
        for k, (codes, scores) in enumerate(zip(categories, ranked, strict=True)):
            x[:, len(layout.continuous) + k] = self._scores(codes, scores)
        return x

    def _scores(self, codes: NDArray[np.intp], scores: Scores) -> Floats:
        """Returns scores of categories (rows,): their means, or numbers drawn from their intervals."""
        if self._settings.correlations == "latent":
            return scores.means()[codes]
        return scores.forward(codes, self._uniform(codes.size))
