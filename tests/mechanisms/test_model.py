"""Models: answers against the explicit joint distribution, sampling, likelihood, saving."""

import itertools
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mechanisms.domain import Domain
from mechanisms.errors import EstimationError
from mechanisms.junction_tree import junction_tree
from mechanisms.model import Model
from mechanisms.sampling import public_generator
from tests.mechanisms.tables import domain_of

DOMAIN = domain_of(2, 3, 2, 4, 3, 2)


def forest(joint: NDArray[np.float64], domain: Domain) -> Model:
    """The projection of a joint distribution on two trees, (c0 c1 c2 - c1 c2 c3 - c3 c4) and c5."""
    cliques = (("c0", "c1", "c2"), ("c1", "c2", "c3"), ("c3", "c4"), ("c5",))
    marginals = tuple(marginal(joint, domain, clique) for clique in cliques)
    return Model(domain, cliques, (-1, 0, 1, -1), marginals)


def marginal(joint: NDArray[np.float64], domain: Domain, clique: tuple[str, ...]):  # type: ignore[no-untyped-def]
    kept = {domain.index(name) for name in clique}
    return joint.sum(axis=tuple(i for i in range(joint.ndim) if i not in kept))


def joint_of(model: Model) -> NDArray[np.float64]:
    """The model's joint distribution, cell by cell."""
    codes = np.array(list(np.ndindex(model.domain.shape)), np.int32)
    return np.exp(model.log_probabilities(codes)).reshape(model.domain.shape)


@pytest.fixture
def model() -> Model:
    rng = np.random.default_rng(1)
    joint = rng.dirichlet(np.full(np.prod(DOMAIN.shape), 0.3)).reshape(DOMAIN.shape)
    return forest(joint, DOMAIN)


def test_log_probabilities_sum_to_one_and_meet_the_cliques(model: Model) -> None:
    joint = joint_of(model)
    assert joint.sum() == pytest.approx(1, abs=1e-12)
    for clique, expected in zip(model.cliques, model.marginals, strict=True):
        assert np.allclose(marginal(joint, DOMAIN, clique), expected, atol=1e-12)


def test_answers_are_marginals_of_the_joint_for_all_cliques(model: Model) -> None:
    joint = joint_of(model)
    cliques = [clique for k in range(1, 5) for clique in itertools.combinations(DOMAIN.names, k)]
    for clique, answer in zip(cliques, model.answers(cliques), strict=True):
        assert answer.shape == DOMAIN.sizes(clique)
        assert np.allclose(answer, marginal(joint, DOMAIN, clique), atol=1e-12)


def test_answers_hold_when_cells_are_empty() -> None:
    joint = np.zeros(DOMAIN.shape)
    joint[0, 1, 1, 2, 0, 1] = 0.25
    joint[1, 1, 0, 3, 2, 1] = 0.75
    model = forest(joint, DOMAIN)
    (answer,) = model.answers([("c0", "c4")])
    assert np.allclose(answer, marginal(joint, DOMAIN, ("c0", "c4")))
    sampled = model.sample(4, public_generator(1))
    assert sorted(map(tuple, sampled.tolist())) == [(0, 1, 1, 2, 0, 1)] + [(1, 1, 0, 3, 2, 1)] * 3


def test_answers_q32_round_and_stay_in_range() -> None:
    domain = domain_of(1, 2)
    model = Model(domain, (("c0",), ("c1",)), (-1, -1), (np.array([1.0]), np.array([0.25, 0.75])))
    answers = model.answers_q32([("c0",), ("c0", "c1")])
    assert answers.dtype == np.uint32
    assert answers.tolist() == [2**32 - 1, 2**30, 3 * 2**30]
    thirds = Model(domain, model.cliques, (-1, -1), (np.array([1.0]), np.array([1 / 3, 2 / 3])))
    assert thirds.answers_q32([("c1",)]).tolist() == [2**32 // 3, 2 * 2**32 // 3 + 1]


def test_sample_meets_clique_marginals_up_to_rounding(model: Model) -> None:
    rows = 20_000
    codes = model.sample(rows, public_generator(3))
    assert codes.shape == (rows, 6)
    assert codes.dtype == np.int32
    for i, clique in enumerate(model.cliques):
        counts = np.zeros(DOMAIN.sizes(clique))
        np.add.at(counts, tuple(codes[:, [DOMAIN.index(name) for name in clique]].T), 1)
        # One row is lost or won by rounding at both ends of a cell, in each clique on the way.
        assert np.abs(counts - rows * model.marginals[i]).max() <= 2 * (i + 1) + 2


@pytest.mark.parametrize("rows", [1, 7, 300, 20_000])
def test_sampling_error_is_below_two_for_what_was_sampled_and_not_for_a_part_of_it(
    model: Model, rows: int
) -> None:
    for seed in range(20):
        codes = model.sample(rows, public_generator(seed))
        assert model.sampling_error(codes) < 2
    if rows >= 300:
        first = codes[np.lexsort(codes.T)][: rows // 2]
        assert model.sampling_error(first) > 2
        assert model.sampling_error(codes[: rows * 2 // 3]) > 2
    # Rows that the model cannot have.
    assert model.sampling_error(np.ones((50, 6), np.int32)) > 2


def test_sample_keeps_conditional_independence(model: Model) -> None:
    # A pair of columns far apart is not met by construction; 6 deviations of a binomial.
    rows = 200_000
    codes = model.sample(rows, public_generator(4))
    for clique in (("c0", "c4"), ("c0", "c5"), ("c4", "c5")):
        counts = np.zeros(DOMAIN.sizes(clique))
        np.add.at(counts, tuple(codes[:, [DOMAIN.index(name) for name in clique]].T), 1)
        (expected,) = model.answers([clique])
        assert (np.abs(counts - rows * expected) <= 6 * np.sqrt(rows * expected) + 1).all()


def test_sample_draws_for_rows_that_are_alone_in_their_group() -> None:
    # Each of 4,000 rows has a parent of its own: a quarter of them each, by five deviations of a binomial.
    domain = domain_of(4000, 4)
    marginals = (np.full(4000, 1 / 4000), np.full((4000, 4), 1 / 16000))
    model = Model(domain, (("c0",), ("c0", "c1")), (-1, 0), marginals)
    codes = model.sample(4000, public_generator(7))
    assert len(np.unique(codes[:, 0])) == 4000
    assert np.abs(np.bincount(codes[:, 1], minlength=4) - 1000).max() < 5 * np.sqrt(750)


def test_sample_is_in_random_order(model: Model) -> None:
    codes = model.sample(10_000, public_generator(5))
    assert abs(np.corrcoef(codes[:-1, 0], codes[1:, 0])[0, 1]) < 0.04


def test_sample_repeats_when_seed_does(model: Model) -> None:
    first, second = (model.sample(100, public_generator(6)) for _ in range(2))
    assert (first == second).all()
    assert model.sample(1, public_generator(6)).shape == (1, 6)
    with pytest.raises(ValueError, match="rows = 0"):
        model.sample(0, public_generator(6))


def test_load_gives_back_what_save_wrote(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert (again.domain, again.cliques, again.parents) == (
        model.domain,
        model.cliques,
        model.parents,
    )
    for left, right in zip(again.marginals, model.marginals, strict=True):
        assert (left == right).all()


@pytest.mark.parametrize(
    "broken", ["absent", "json", "npz", "zip", "deflate", "shape", "nan", "infinite", "negative"]
)
def test_load_says_where_a_model_is_damaged(model: Model, tmp_path: Path, broken: str) -> None:
    model.save(tmp_path)
    if broken == "absent":
        (tmp_path / "marginals.npz").unlink()
    if broken == "json":
        (tmp_path / "model.json").write_text("{")
    if broken == "npz":
        (tmp_path / "marginals.npz").write_bytes(b"no archive")
    if broken == "zip":
        whole = (tmp_path / "marginals.npz").read_bytes()
        (tmp_path / "marginals.npz").write_bytes(whole[:-30])
    if broken == "deflate":
        archive = bytearray((tmp_path / "marginals.npz").read_bytes())
        # The first bytes after the header of the first member, which names it.
        archive[archive.index(b"clique_0.npy") + 40] ^= 0xFF
        (tmp_path / "marginals.npz").write_bytes(archive)
    strange = {"nan": np.nan, "infinite": np.inf, "negative": -0.1}.get(broken)
    if strange is not None:
        marginals = (np.full_like(model.marginals[0], strange), *model.marginals[1:])
        Model(model.domain, model.cliques, model.parents, marginals).save(tmp_path)
    if broken == "shape":
        text = (tmp_path / "model.json").read_text()
        (tmp_path / "model.json").write_text(text.replace('"c5"', '"c4"'))
    with pytest.raises(EstimationError, match=str(tmp_path)):
        Model.load(tmp_path)


@pytest.mark.parametrize("bomb", ["larger", "further", "twice"])
def test_arrays_that_the_tree_does_not_have_are_not_unpacked(
    model: Model, tmp_path: Path, bomb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a megabyte of zeros in an archive is half a gigabyte in memory."""
    model.save(tmp_path)
    arrays = {f"clique_{i}": marginal for i, marginal in enumerate(model.marginals)}
    arrays["clique_0" if bomb == "larger" else "more"] = np.zeros(1 << 20)
    np.savez_compressed(tmp_path / "marginals.npz", **arrays)
    if bomb == "twice":
        with (
            ZipFile(tmp_path / "marginals.npz", "a") as archive,
            pytest.warns(UserWarning, match="Duplicate name"),
        ):
            archive.writestr("clique_0.npy", b"")

    def load(*_: object, **__: object) -> None:
        raise AssertionError("unpacked")

    monkeypatch.setattr(np, "load", load)
    with pytest.raises(EstimationError, match=r"arrays than its tree|more cells than its clique"):
        Model.load(tmp_path)


def test_model_is_checked_when_made() -> None:
    one = np.array([0.5, 0.5])
    domain = domain_of(2, 2)
    with pytest.raises(ValueError, match="cover"):
        Model(domain, (("c0",),), (-1,), (one,))
    with pytest.raises(ValueError, match="after its parent"):
        Model(domain, (("c0",), ("c1",)), (1, -1), (one, one))
    with pytest.raises(ValueError, match="shape"):
        Model(domain, (("c0",), ("c1",)), (-1, -1), (one, np.ones(3)))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_answers_of_pairs_are_those_of_the_joint_whatever_the_tree(data: st.DataObject) -> None:
    """Trees of drawn sets: separators of several columns, columns in many cliques, parts that nothing joins."""
    names = DOMAIN.names
    every = [q for k in (1, 2, 3) for q in itertools.combinations(names, k)]
    contained = data.draw(st.lists(st.sampled_from(every), max_size=7))
    cliques, parents = junction_tree(DOMAIN, contained)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    joint = rng.dirichlet(np.full(np.prod(DOMAIN.shape), 0.2)).reshape(DOMAIN.shape)
    model = Model(DOMAIN, cliques, parents, tuple(marginal(joint, DOMAIN, q) for q in cliques))
    expected = joint_of(model)
    pairs = [pair for pair in itertools.permutations(names, 2) if pair[0] < pair[1]]
    for pair, answer in zip(pairs, model.answers(pairs), strict=True):
        assert np.allclose(answer, marginal(expected, DOMAIN, pair), atol=1e-12)
