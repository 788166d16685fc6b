"""Client partitions: every row exactly once, nobody empty, and skew where skew is asked for."""

import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from parties.local.partition import (
    PARTITIONS,
    Partition,
    clustering,
    iid,
    label_skew,
    partition_rows,
    svd_embedding,
    umap_embedding,
)


def table(rows: int, sizes: tuple[int, ...], seed: int = 0) -> NDArray[np.int32]:
    """Independent uniform codes."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(size, size=rows) for size in sizes], axis=1).astype(np.int32)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, NDArray[np.int32], tuple[int, ...], int, int]:
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    clients = draw(st.integers(1, 12))
    rows = draw(st.integers(clients, 60))
    codes = table(rows, sizes, draw(st.integers(0, 2**32 - 1)))
    return draw(st.sampled_from(PARTITIONS)), codes, sizes, clients, draw(st.integers(0, 2**63))


@given(cases())
def test_partition_rows_gives_every_row_to_one_client_for_all_kinds(
    case: tuple[str, NDArray[np.int32], tuple[int, ...], int, int],
) -> None:
    kind, codes, sizes, clients, seed = case
    result = partition_rows(kind, codes, sizes, clients=clients, seed=seed)
    assert result.kind == kind
    assert result.clients == clients
    assert result.owners.shape == (len(codes),)
    assert result.owners.min() >= 0
    assert result.owners.max() < clients
    parts = [result.rows_of(client) for client in range(clients)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(codes)))
    assert [len(part) for part in parts] == result.sizes.tolist()
    assert result.sizes.min() >= 1


@given(cases())
def test_partition_rows_repeats_itself_for_the_same_seed(
    case: tuple[str, NDArray[np.int32], tuple[int, ...], int, int],
) -> None:
    kind, codes, sizes, clients, seed = case
    first = partition_rows(kind, codes, sizes, clients=clients, seed=seed)
    again = partition_rows(kind, codes, sizes, clients=clients, seed=seed)
    assert np.array_equal(first.owners, again.owners)


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partition_rows_differs_for_another_seed(kind: str) -> None:
    sizes = (4, 3, 2)
    codes = table(500, sizes)
    first, second = (partition_rows(kind, codes, sizes, clients=7, seed=seed) for seed in (1, 2))
    assert not np.array_equal(first.owners, second.owners)


@given(st.integers(1, 20), st.integers(0, 200))
def test_iid_sizes_differ_by_one_at_most(clients: int, extra: int) -> None:
    sizes = iid(clients + extra, clients=clients, seed=3).sizes
    assert sizes.max() - sizes.min() <= 1


def largest_class_share(partition: Partition, labels: NDArray[np.int32]) -> float:
    """Mean over rows of how much of its client's table has the client's commonest label: 1 is total skew."""
    tables = [labels[partition.rows_of(client)] for client in range(partition.clients)]
    return sum(np.bincount(part).max() for part in tables) / len(labels)


def test_label_skew_grows_as_beta_falls() -> None:
    labels = table(6000, (4,))[:, 0]
    shares = [
        largest_class_share(label_skew(labels, clients=10, seed=5, beta=beta), labels)
        for beta in (0.01, 0.5, 1000.0)
    ]
    assert shares[0] > 0.8
    assert shares[0] > shares[1] + 0.1 > shares[2]
    assert shares[2] < 0.35


def test_label_skew_uses_the_column_named_or_the_last() -> None:
    sizes = (4, 4)
    codes = table(4000, sizes)
    by_default = partition_rows("label-skew", codes, sizes, clients=10, seed=5, beta=0.05)
    by_name = partition_rows("label-skew", codes, sizes, clients=10, seed=5, beta=0.05, label=0)
    assert (
        largest_class_share(by_default, codes[:, 1])
        > 0.6
        > largest_class_share(by_default, codes[:, 0])
    )
    assert (
        largest_class_share(by_name, codes[:, 0]) > 0.6 > largest_class_share(by_name, codes[:, 1])
    )


def separated(rows: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Rows of three kinds that differ in four of six columns, and their kinds."""
    kinds = np.arange(rows, dtype=np.int32) % 3
    same = np.repeat(kinds[:, None], 4, axis=1)
    return np.concatenate([same, table(rows, (5, 5))], axis=1).astype(np.int32), kinds


def test_clustering_finds_groups_that_are_far_apart() -> None:
    codes, kinds = separated(300)
    result = clustering(codes, (3, 3, 3, 3, 5, 5), clients=3, seed=1)
    assert largest_class_share(result, kinds) == 1.0
    assert result.note == "k-means on the rows' svd embedding"


def test_clustering_ends_with_every_row_at_the_nearest_mean() -> None:
    codes = table(200, (9, 9))
    points = codes.astype(float)
    owners = clustering(codes, (9, 9), clients=5, seed=1, embedding=lambda *_: points).owners
    means = np.stack([points[owners == k].mean(axis=0) for k in range(5)])
    distance = ((points[:, None] - means) ** 2).sum(axis=2)
    assert np.allclose(distance[np.arange(200), owners], distance.min(axis=1))


def test_clustering_still_gives_everyone_a_row_when_all_rows_are_equal() -> None:
    codes = np.zeros((10, 3), dtype=np.int32)
    result = clustering(codes, (2, 2, 2), clients=10, seed=1)
    assert result.sizes.tolist() == [1] * 10


def test_svd_embedding_equals_the_svd_of_the_centred_one_hot_rows() -> None:
    sizes = (3, 4, 2)
    codes = table(200, sizes)
    one_hot = np.concatenate([np.eye(size)[codes[:, i]] for i, size in enumerate(sizes)], axis=1)
    left, values, _ = np.linalg.svd(one_hot - one_hot.mean(axis=0), full_matrices=False)
    points = svd_embedding(codes, sizes, 0, dimensions=5)
    # Axes may be flipped; the points' inner products may not change.
    expected = left[:, :5] * values[:5]
    np.testing.assert_allclose(points @ points.T, expected @ expected.T, atol=1e-9)


def test_clustering_uses_the_embedding_it_is_given() -> None:
    codes = np.zeros((6, 1), dtype=np.int32)

    def two_ends(codes: NDArray[np.int32], sizes: object, seed: int) -> NDArray[np.float64]:
        return np.repeat([[0.0], [9.0]], 3, axis=0)

    owners = clustering(codes, (1,), clients=2, seed=0, embedding=two_ends).owners
    assert len(set(owners[:3].tolist())) == len(set(owners[3:].tolist())) == 1
    assert owners[0] != owners[3]


def test_umap_embedding_says_what_to_install_without_the_bench_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match=r"bench extra: pip install -c constraints.txt"):
        umap_embedding(table(10, (2,)), (2,), 1)


def test_umap_embedding_passes_the_seed_and_the_papers_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[dict[str, object]] = []

    class Reducer:
        def __init__(self, **settings: object) -> None:
            made.append(settings)

        def fit_transform(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
            return points[:, :2]

    module = types.ModuleType("umap")
    module.UMAP = Reducer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "umap", module)
    codes = table(10, (3, 3, 3))
    assert np.array_equal(umap_embedding(codes, (3, 3, 3), 7), codes[:, :2])
    assert made == [{"n_neighbors": 15, "min_dist": 0.1, "random_state": 7, "n_jobs": 1}]


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partition_rows_leaves_some_clients_without_rows_where_there_are_fewer(kind: str) -> None:
    sizes = partition_rows(kind, table(3, (2,)), (2,), clients=5, seed=0).sizes
    assert sorted(sizes.tolist()) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partition_rows_refuses_a_table_without_rows(kind: str) -> None:
    with pytest.raises(ValueError, match="without rows"):
        partition_rows(kind, table(0, (2,)), (2,), clients=4, seed=0)


@pytest.mark.parametrize("clients", [0, -1])
def test_iid_refuses_no_clients(clients: int) -> None:
    with pytest.raises(ValueError, match="expected at least one"):
        iid(5, clients=clients, seed=0)


def test_partition_rows_refuses_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="'random'; expected one of iid, label-skew, clustering"):
        partition_rows("random", table(3, (2,)), (2,), clients=2, seed=0)


def test_partition_rows_refuses_a_label_that_is_no_column() -> None:
    with pytest.raises(ValueError, match="label column 1 is outside"):
        partition_rows("label-skew", table(3, (2,)), (2,), clients=2, seed=0, label=1)


@pytest.mark.parametrize("beta", [0.0, -1.0, 1e308, float("nan"), float("inf")])
def test_label_skew_refuses_a_beta_out_of_range(beta: float) -> None:
    with pytest.raises(ValueError, match="expected a positive number"):
        label_skew(np.zeros(5, dtype=np.int32), clients=2, seed=0, beta=beta)


@pytest.mark.parametrize("owners", [[0, 2], [-1, 0]])
def test_partition_refuses_an_owner_out_of_range(owners: list[int]) -> None:
    with pytest.raises(ValueError, match=r"outside \[0, 2\)"):
        Partition("iid", 2, np.array(owners, dtype=np.int32), "")


def test_rows_of_refuses_a_client_out_of_range() -> None:
    with pytest.raises(ValueError, match="client 2 is outside"):
        iid(5, clients=2, seed=0).rows_of(2)
