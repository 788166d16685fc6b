"""Heterogeneity of a partition: 0 for equal tables, 1 for disjoint ones, and the definition in between."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.papers.utility.heterogeneity import Heterogeneity, all_marginals
from bench.papers.utility.heterogeneity import heterogeneity as of_marginals
from mechanisms.domain import Categorical, Domain
from mechanisms.workload import Workload


def workload(*sizes: int) -> Workload:
    names = "abcdef"[: len(sizes)]
    domain = Domain(
        tuple(
            Categorical(name, tuple(map(str, range(size))))
            for name, size in zip(names, sizes, strict=True)
        )
    )
    queries = tuple((left, right) for left in names for right in names if left < right)
    return Workload(domain, queries)


def heterogeneity(load: Workload, codes: np.ndarray, owners: np.ndarray) -> Heterogeneity:
    return of_marginals(load.domain, load.queries, codes, owners)


def test_all_marginals_are_the_sets_of_up_to_so_many_columns() -> None:
    found = all_marginals(workload(2, 3, 4, 5).domain, 3)
    assert len(found) == len(set(found)) == 4 + 6 + 4
    assert {len(marginal) for marginal in found} == {1, 2, 3}


def test_heterogeneity_is_zero_for_equal_tables() -> None:
    codes = np.array([[0, 1], [1, 2], [0, 0]] * 2, np.int32)
    found = heterogeneity(workload(2, 3), codes, np.array([0, 0, 0, 1, 1, 1], np.int32))
    assert found.mean == pytest.approx(0)
    assert found.greatest == pytest.approx(0)


def test_heterogeneity_of_disjoint_clients_is_what_they_lack() -> None:
    # Two clients of equal size that share no cell: each is half of everybody, so the distance is 1/2.
    codes = np.array([[0, 0], [0, 0], [1, 1], [1, 1]], np.int32)
    found = heterogeneity(workload(2, 2), codes, np.array([0, 0, 1, 1], np.int32))
    assert (found.mean, found.deviation) == (0.5, 0)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**31))
def test_heterogeneity_follows_its_definition(rows: int, clients: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = (2, 3, 4)
    codes = np.stack([rng.integers(size, size=rows) for size in sizes], axis=1).astype(np.int32)
    owners = rng.integers(clients, size=rows).astype(np.int32)
    load = workload(*sizes)
    expected = []
    for client in np.unique(owners):
        distances = []
        for query in load.queries:
            columns = [load.domain.index(name) for name in query]
            shape = load.domain.sizes(query)
            histograms = [
                np.histogramdd(part[:, columns], [np.arange(n + 1) - 0.5 for n in shape])[0]
                / len(part)
                for part in (codes[owners == client], codes)
            ]
            distances.append(0.5 * np.abs(histograms[0] - histograms[1]).sum())
        expected.append(np.mean(distances))
    found = heterogeneity(load, codes, owners)
    assert found.mean == pytest.approx(np.mean(expected))
    assert found.deviation == pytest.approx(np.std(expected), abs=1e-12)
    assert found.least == pytest.approx(min(expected))
    assert found.greatest == pytest.approx(max(expected))


def test_heterogeneity_refuses_owners_of_another_length() -> None:
    with pytest.raises(ValueError, match="one owner per row"):
        heterogeneity(workload(2, 2), np.zeros((3, 2), np.int32), np.zeros(2, np.int32))
