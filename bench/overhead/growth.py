"""Growth of a client's traffic with the cells, the clients, the rounds and the columns.

Each axis changes one setting and leaves the others as in the paper: 64 random three-way queries, 100 clients,
participation 0.1, 10 rounds, Adult's published domain. A client has 440 random rows, as many as Adult's; uploads are
the same for any rows. Every point is measured, beside our formula.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.overhead.client import GROUPINGS, Population, published_domain
from bench.overhead.flaim import measure_flaim
from bench.overhead.formula import MB, upload_payload
from bench.overhead.replay import THREAT, Terms, mean_payload, private_settings, replay
from bench.overhead.upload import measure_uploads
from mechanisms.domain import Domain, Integer
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.workload import Workload, draw_workload
from protocols.upload import FORMS

AXES = ("cells", "clients", "rounds", "attributes")
ROUNDS = 10
ROWS_PER_CLIENT = 440
CELL_COLUMNS = 8
CODES = (4, 8, 16, 32, 48)
_ATTRIBUTE_CODES = 32
_ATTRIBUTES = (5, 8, 11, 15, 20, 30, 50)
_CLIENTS = (10, 30, 100, 300, 1_000, 3_000, 10_000)
_ROUNDS = (1, 4, 10, 32, 96)
_REPLAYS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One point of an axis, at ``x``."""

    axis: str
    x: int
    workload: Workload
    population: Population
    rounds: int = ROUNDS


@dataclass(frozen=True, slots=True)
class Point:
    """MB of messages of one client, both directions: by our formula, and measured."""

    x: int
    method: str
    variant: str
    predicted_mb: float
    measured_mb: float


def cases(axis: str) -> Sequence[Case]:
    """Returns the points of an axis. Raises ValueError for a name outside ``AXES``."""
    usual = Population()
    if axis == "cells":
        workloads = [draw_workload(_equal_columns(CELL_COLUMNS, codes)) for codes in CODES]
        return [Case(axis, workload.cells, workload, usual) for workload in workloads]
    if axis == "attributes":
        return [
            Case(axis, columns, draw_workload(_equal_columns(columns, _ATTRIBUTE_CODES)), usual)
            for columns in _ATTRIBUTES
        ]
    domain = published_domain("adult")
    if domain is None:
        raise RuntimeError("Adult's domain is published")
    adult = draw_workload(domain)
    if axis == "clients":
        return [
            Case(axis, clients, adult, Population(clients, usual.participation))
            for clients in _CLIENTS
        ]
    if axis == "rounds":
        return [Case(axis, rounds, adult, usual, rounds) for rounds in _ROUNDS]
    raise ValueError(f"no axis {axis!r}; expected one of {', '.join(AXES)}")


def _equal_columns(count: int, codes: int) -> Domain:
    return Domain(tuple(Integer(f"c{i:02d}", 0, codes - 1, codes) for i in range(count)))


def measure_growth(axis: str) -> Iterator[Point]:
    """Measures the points of an axis. Raises ValueError for an unknown axis, RuntimeError if a process fails."""
    uploaded: dict[int, dict[str, float]] = {}
    for case in cases(axis):
        key = id(case.workload)
        if key not in uploaded:
            uploaded[key] = _uploaded(case)
        for form in FORMS:
            predicted = upload_payload(case.workload, form) / MB
            yield Point(case.x, "distaim", form, predicted, uploaded[key][form])
        yield from _flaim_points(case)


def _uploaded(case: Case) -> dict[str, float]:
    """Measures MB of an upload by form; neither the clients nor the rounds change it."""
    with tempfile.TemporaryDirectory(prefix="syncret-overhead-") as folder:
        codes = _random_rows(case.workload.domain, 1)[0]
        uploads = asyncio.run(
            measure_uploads(case.workload, codes, Path(folder), rounds=[case.rounds])
        )
    return {one.form: (one.sent_bytes + one.received_bytes) / MB for one in uploads}


def _flaim_points(case: Case) -> Iterator[Point]:
    population, max_rows = case.population, ROWS_PER_CLIENT * case.population.clients
    for grouping in GROUPINGS:
        settings = private_settings(
            case.rounds,
            participation=population.participation,
            max_rows=max_rows,
            grouping=grouping,
        )
        tables = _random_rows(case.workload.domain, population.clients)
        run = asyncio.run(measure_flaim(case.workload, tables, settings, seed=1))
        measured = (run.sent + run.received) / MB
        predicted = _predicted(case, settings, max_rows) / MB
        yield Point(case.x, "flaim", grouping, predicted, measured)


def _predicted(case: Case, settings: FlaimSettings, max_rows: int) -> float:
    """Returns a client's bytes of messages, the mean over a few replays: the model's size differs between them."""
    terms, means = Terms(max_rows, THREAT), []
    for seed in range(_REPLAYS):
        run = replay(
            case.workload,
            settings,
            clients=case.population.clients,
            rows=ROWS_PER_CLIENT,
            seed=seed,
        )
        mean = mean_payload(case.workload, run, settings.grouping, terms)
        means.append(mean.sent + mean.received)
    return statistics.fmean(means)


def _random_rows(domain: Domain, clients: int) -> list[NDArray[np.int32]]:
    """Returns one table of codes for each client."""
    generator, shape = np.random.default_rng(1), np.array(domain.shape)
    return [
        generator.integers(0, shape, (ROWS_PER_CLIENT, len(shape))).astype(np.int32)
        for _ in range(clients)
    ]
