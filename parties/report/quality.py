"""Quality of a run's synthetic table, derived from the opened values: the section `quality` of report.json.

``write_quality`` keeps the section of a finished run beside result.json until the report is written. All values here
are public except the additions of ``with_truth``, which are computed from the real table without noise (trials only).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.aim import AimResult, Measurement
from mechanisms.changes import Change, changes
from mechanisms.column_values import ColumnValues
from mechanisms.columns import private_of
from mechanisms.domain import Clique
from mechanisms.events import NoiseKind, noise_deviation
from mechanisms.expected_errors import Expected, expected_errors
from mechanisms.flaim import FlaimResult, Participant
from mechanisms.independence import pair_gains
from mechanisms.intervals import (
    CONFIDENCE,
    Choice,
    Interval,
    Released,
    marginal_intervals,
    prefix_bounds,
)
from mechanisms.likely_errors import SHARE, TABLES, likely_errors, parts_of
from mechanisms.metrics import table_answers
from mechanisms.model import Model
from mechanisms.private_bins import PrivateBins
from mechanisms.sampling import NOISE_BITS
from mechanisms.workload import Workload
from parties.config import ANNEALED, RunSection
from parties.report.claims import claims_with_truth, truth_text
from parties.report.dependencies import INDEPENDENT, MEASURED, TAKEN_OVER, THROUGH_OTHERS
from parties.report.document import read_document
from parties.report.shuffling import shuffling, with_released
from parties.storage.files import write_json

QUALITY = "quality.json"
"""File name, in the folder of the server that wrote the table, or of the trial."""
NOISE, AT_MOST = "noise", "at most"
"""Kinds of expected errors: the expected effect of noise on a measured marginal; a likely maximum."""


def aim_quality(
    run: RunSection,
    workload: Workload,
    result: AimResult,
    *,
    noise: NoiseKind,
    model: Model,
    codes: NDArray[np.int32],
    earlier: Model | None = None,
) -> dict[str, object]:
    """Returns the quality of a run of DistAIM or central AIM.

    Args:
        noise: kind of noise of the measurements.
        codes: the synthetic table (rows, columns).
        earlier: the model that a refresh started from.
    """
    released = [
        Released(
            m.round,
            m.candidate,
            m.noisy,
            noise_deviation(noise, m.sigma),
            frozenset(range(m.clients)),
            2.0**-NOISE_BITS if noise == "box-muller" else 0.0,
        )
        for m in result.measurements
        if not _chose_bins(workload, m)
    ]
    choice = None
    if result.last is not None:
        number = result.last.measurement.round
        # An annealed run decides in each round if it is the last; so each round has a share of the failure probability.
        share = 1 / (number * (number + 1)) if run.schedule == ANNEALED else 1.0
        of = next(r for r in reversed(released) if r.round == number)
        choice = Choice(result.last.spec, result.last.position, of, share)
    synthetic, fine = table_answers(workload, codes), _fine(workload, result, noise)
    owners = frozenset(range(result.clients))
    intervals = marginal_intervals(
        workload,
        synthetic,
        released,
        owners=owners,
        rounds=run.rounds,
        choice=choice,
        fine=fine,
    )
    expected = expected_errors(workload, synthetic, intervals, rows=result.total, choice=choice)
    prefixes = prefix_bounds(workload, released, fine, owners=owners, rounds=run.rounds)
    names = workload.domain.names
    document = _document(workload, synthetic, intervals, expected, released, model, earlier=earlier)
    if earlier is not None:
        document["earlier"] = {
            "marginals": [_change(of) for of in changes(workload, earlier, released)]
        }
    likely = likely_errors(
        workload,
        synthetic,
        intervals,
        expected,
        model=model,
        rows=result.total,
        choice=choice,
        settled=run.schedule == ANNEALED,
        alone=run.may_fall_back,
        taken_over=[(one, other) for one, other in document["dependencies"].get(TAKEN_OVER, ())],
    )
    marginals = zip(document["marginals"], likely, strict=True)
    return document | {
        "likely": {"share": SHARE, "tables": TABLES},
        "marginals": [{**marginal, "likely": below} for marginal, below in marginals],
        "fine": [
            {
                "column": names[of.candidate],
                "noise": of.noise,
                "rows": list(of.rows),
                "elsewhere": of.elsewhere,
            }
            for of in prefixes
            if math.isfinite(of.rows[1])
        ],
    }


def _fine(workload: Workload, result: AimResult, noise: NoiseKind) -> list[Released]:
    """Returns round 0's measurements of columns with private bins, by their fine cells, missing values last."""
    found = []
    for m in result.measurements:
        column = workload.domain.columns[m.candidate] if _chose_bins(workload, m) else None
        private = None if column is None else private_of(column)
        if column is not None and isinstance(private, PrivateBins):
            counts = [*private.histogram, *(m.noisy[-1:] if column.missing else ())]
            # The histogram is rounded to whole numbers; noise of this kind is not whole.
            rounding = 0.5 + 2.0**-NOISE_BITS if noise == "box-muller" else 0.0
            found.append(
                Released(
                    0,
                    m.candidate,
                    np.array(counts, np.float64),
                    private.deviation,
                    frozenset(range(m.clients)),
                    rounding,
                )
            )
    return found


def _chose_bins(workload: Workload, measurement: Measurement) -> bool:
    """True if this noise chose the column's cells, so that no bound on fresh noise holds for their counts."""
    column = workload.domain.columns[measurement.candidate] if measurement.round == 0 else None
    return column is not None and private_of(column) is not None


def flaim_quality(
    workload: Workload,
    result: FlaimResult,
    *,
    rounds: int,
    codes: NDArray[np.int32],
) -> dict[str, object]:
    """Returns the quality of a run of FLAIM.

    FLAIM has no selection by the scores of all clients, so that only its measurements give bounds.
    """
    released = [
        Released(m.round, m.candidate, m.noisy, m.deviation, frozenset(m.contributors))
        for done in result.rounds
        for m in done.measurements
    ]
    synthetic = table_answers(workload, codes)
    intervals = marginal_intervals(
        workload,
        synthetic,
        released,
        owners=frozenset(p.client for p in result.population),
        rounds=rounds,
        sizes=_declared(result.population),
    )
    expected = expected_errors(workload, synthetic, intervals, rows=result.total)
    # Likely errors were calibrated on AIM's models; FLAIM's models stop fitting at the noise and have larger errors.
    document = _document(workload, synthetic, intervals, expected, released, result.model)
    pairs = _pairs_in([workload.candidates[one.candidate] for one in released])
    return document | {"shuffling": with_released(document["shuffling"], len(pairs))}


def _declared(population: Sequence[Participant]) -> dict[int, int] | None:
    """Returns the clients' numbers of rows if they are public, else None."""
    sizes = {p.client: p.rows for p in population}
    return None if None in sizes.values() else {c: rows or 0 for c, rows in sizes.items()}


def _document(
    workload: Workload,
    synthetic: NDArray[np.float64],
    intervals: Sequence[Interval],
    expected: Sequence[Expected],
    released: Sequence[Released],
    model: Model,
    *,
    earlier: Model | None = None,
) -> dict[str, Any]:
    queries = set(workload.queries)
    measured = [workload.candidates[one.candidate] for one in released]
    related = dependencies(
        workload.domain.names,
        measured,
        model.cliques,
        earlier=None if earlier is None else earlier.cliques,
    )
    pairs = [(one, other) for one, other in related["measured"]]
    gains = pair_gains(workload, synthetic, pairs, intervals, expected)
    return {
        "confidence": CONFIDENCE,
        "marginals": [
            {
                "columns": list(clique),
                "query": clique in queries,
                "cells": workload.offsets[i + 1] - workload.offsets[i],
                "low": interval.low,
                "high": interval.high,
                "basis": interval.basis,
                "noise": interval.deviation,
                "expected": error.error,
                "expected_is": AT_MOST if error.at_most else NOISE,
            }
            for i, (clique, interval, error) in enumerate(
                zip(workload.candidates, intervals, expected, strict=True)
            )
        ],
        "dependencies": related,
        "shuffling": shuffling(gains, sum(map(len, related.values()))),
    }


def dependencies(
    columns: Clique,
    measured: Sequence[Clique],
    cliques: Sequence[Clique],
    *,
    earlier: Sequence[Clique] | None = None,
) -> dict[str, list[list[str]]]:
    """Returns all pairs of columns, by the model's knowledge of their relation.

    "measured": the pair is in a measured marginal and in a clique of the model. "through_others": the model knows only
    the relation that follows through other columns. "independent": the columns are independent in the model.
    "taken_over", of a refresh: the pair was not measured, and is in one of the ``earlier`` model's cliques.
    """
    inside = _pairs_in(cliques)
    seen = _pairs_in(measured) & inside
    before = _pairs_in(earlier or ()) & inside
    components = parts_of(columns, cliques)
    found: dict[str, list[list[str]]] = {MEASURED: []}
    found |= {} if earlier is None else {TAKEN_OVER: []}
    found |= {THROUGH_OTHERS: [], INDEPENDENT: []}
    for one, other in itertools.combinations(columns, 2):
        pair = (min(one, other), max(one, other))
        kind = THROUGH_OTHERS if components[one] == components[other] else INDEPENDENT
        kind = TAKEN_OVER if pair in before else kind
        found[MEASURED if pair in seen else kind].append([one, other])
    return found


def _change(of: Change) -> dict[str, object]:
    return {
        "columns": list(of.clique),
        "apart": of.apart,
        "noise": of.noise,
        "changed": of.changed,
    }


def _pairs_in(cliques: Sequence[Clique]) -> set[tuple[str, str]]:
    return {
        (one, other)
        for clique in cliques
        for one, other in itertools.combinations(sorted(clique), 2)
    }


def with_truth(
    quality: Mapping[str, Any],
    workload: Workload,
    synthetic: NDArray[np.int32],
    real: NDArray[np.int32],
    *,
    values: tuple[Sequence[ColumnValues], Sequence[ColumnValues]] = ((), ()),
) -> dict[str, Any]:
    """Returns the section with every marginal's true error, and the intervals and claims that held; not private.

    Args:
        real: the rows (rows, columns) of the owners that were counted.
        values: the values of the columns of the synthetic table and of those rows; without any, claims are not judged.
    """
    answers = table_answers(workload, real), table_answers(workload, synthetic)
    numbers = {clique: i for i, clique in enumerate(workload.candidates)}
    marginals = []
    for marginal in quality["marginals"]:
        cells = workload.slice(numbers[tuple(marginal["columns"])])
        one, other = (table[cells] / table[cells].sum() for table in answers)
        error = float(np.abs(one - other).sum())
        # 1e-9 absorbs the rounding of sums of doubles.
        held = marginal["low"] - 1e-9 <= error <= marginal["high"] + 1e-9
        marginals.append({**marginal, "true_error": error, "held": held})
    found = {**quality, "marginals": marginals, "held": _held(marginals)}
    if "shuffling" in quality:
        each = [_true_pair(pair, workload, answers) for pair in quality["shuffling"]["each"]]
        found["shuffling"] = {**quality["shuffling"], "each": each}
    made, beside = values
    if beside and "columns" in quality:
        claims = claims_with_truth(quality["columns"], workload.domain, made, beside)
        found |= {"columns": claims, "truth": truth_text(claims)}
    return found


def _true_pair(
    pair: Mapping[str, Any],
    workload: Workload,
    answers: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> dict[str, Any]:
    """Returns a measured pair with its true error, and that of its columns drawn independently, as shares of the rows.

    ``answers`` (workload.cells,) are the real and the synthetic table's.
    """
    columns = tuple(pair["columns"])
    cells = workload.slice(workload.candidates.index(columns))
    real, made = (
        (table[cells] / table[cells].sum()).reshape(workload.domain.sizes(columns))
        for table in answers
    )
    product = np.outer(made.sum(axis=1), made.sum(axis=0))
    off, independent = (float(np.abs(real - other).sum()) / 2 for other in (made, product))
    return {**pair, "true": {"off": off, "independent": independent}}


def _held(marginals: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Returns the numbers of intervals, of intervals that held, and of true errors up to the likely error."""
    below = [m["true_error"] <= m["likely"] + 1e-9 for m in marginals if "likely" in m]
    held = sum(marginal["held"] for marginal in marginals)
    return {"intervals": len(marginals), "held": held} | ({"likely": sum(below)} if below else {})


def write_quality(directory: Path, quality: Mapping[str, object]) -> None:
    """Writes the section to the folder of the table's maker. Raises StoreError."""
    write_json(directory / QUALITY, quality)


def read_quality(directory: Path) -> dict[str, Any] | None:
    """Returns the section that ``write_quality`` kept; None if there is none.

    Raises StoreError if the file is unreadable or holds no section.
    """
    return read_document(directory / QUALITY)
