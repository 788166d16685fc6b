from fractions import Fraction
from math import comb, inf, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.errors import ParameterError
from secagg.graph import (
    Adversary,
    Graph,
    ThreatModel,
    choose,
    draw,
    strength,
    thick_run,
)

SEMI, MALICIOUS = Adversary.SEMI_HONEST, Adversary.MALICIOUS


@pytest.mark.parametrize(
    ("clients", "corrupt", "dropouts", "neighbours", "threshold"),
    [
        (100, 0.05, 0.33, 28, 6),
        (1_000, 0.05, 0.33, 72, 24),
        (10_000, 0.05, 0.33, 86, 29),
        (1_000_000, 0.05, 0.33, 102, 34),
        (100, 0.33, 0.33, 68, 34),
        (1_000, 0.33, 0.33, 286, 150),
        (100, 0.33, 0.05, 34, 29),
        (1_000, 0.33, 0.05, 78, 60),
    ],
)
def test_choose_finds_the_published_constants(
    clients: int, corrupt: float, dropouts: float, neighbours: int, threshold: int
) -> None:
    assert choose(clients, ThreatModel(corrupt, dropouts)) == (neighbours, threshold)


@pytest.mark.parametrize(
    ("clients", "corrupt", "dropouts", "published", "neighbours", "threshold"),
    [
        # Published for a semi-malicious server, who lies about survivors but keeps no keys back: not enough here.
        (100, 0.05, 0.33, (72, 39), 78, 45),
        (1_000, 0.05, 0.33, (398, 223), 490, 284),
        (100, 0.3, 0.3, (92, 62), 99, 65),
        (1_000, 0.33, 0.05, (132, 109), 194, 166),
        (10_000, 0.33, 0.05, (178, 146), 254, 215),
    ],
)
def test_choose_asks_for_more_against_a_malicious_server(
    clients: int,
    corrupt: float,
    dropouts: float,
    published: tuple[int, int],
    neighbours: int,
    threshold: int,
) -> None:
    model = ThreatModel(corrupt, dropouts, MALICIOUS)
    assert choose(clients, model) == (neighbours, threshold)
    assert strength(clients, *published, model).security_bits < model.security_bits
    # Neither fewer neighbours nor a smaller threshold would do.
    assert strength(clients, neighbours, threshold - 1, model).security_bits < 40
    assert not any(
        found.security_bits >= 40 and found.correctness_bits >= 20
        for t in range(2, neighbours - 1)
        for found in [strength(clients, neighbours - 2, t, model)]
    )


@given(
    clients=st.integers(6, 60),
    corrupt=st.sampled_from([0.0, 0.05, 0.2]),
    dropouts=st.sampled_from([0.0, 0.1, 0.33]),
    data=st.data(),
)
@settings(max_examples=60)
def test_strength_is_the_exact_probability_of_the_bad_events(
    clients: int, corrupt: float, dropouts: float, data: st.DataObject
) -> None:
    k = 2 * data.draw(st.integers(1, (clients - 2) // 2))
    t = data.draw(st.integers(2, k)) if k > 2 else 2
    adversary = data.draw(st.sampled_from([SEMI, MALICIOUS]))
    model = ThreatModel(corrupt, dropouts, adversary)
    c = max(1, -(-round(corrupt * 100) * clients // 100))
    d = -(-round(dropouts * 100) * clients // 100)

    def tail(marked: int, drawn: int, at_least: int) -> Fraction:
        ways = sum(
            comb(marked, x) * comb(clients - marked, drawn - x)
            for x in range(max(at_least, 0), drawn + 1)
        )
        return Fraction(ways, comb(clients, drawn))

    lost = clients * tail(d, k, k - t + 1)
    if adversary is SEMI:
        cut = Fraction(0)
        if k <= c + d and clients - k - 1 > 0:
            cut = Fraction(clients * (clients - k - 1), 2)
            cut *= Fraction(comb(clients - k, c + d - k), comb(clients, c + d))
        insecure = 2 * max(cut, clients * tail(c, k, t))
    else:
        insecure = clients * tail(c, k // 2, t - k // 2)
    found = strength(clients, k, t, model)
    for probability, bits in ((insecure, found.security_bits), (lost, found.correctness_bits)):
        expected = inf if probability == 0 else max(0.0, -log2(probability))
        assert bits == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("adversary", [SEMI, MALICIOUS])
def test_strength_counts_in_a_complete_graph(adversary: Adversary) -> None:
    model = ThreatModel(0.2, 0.2, adversary)
    # Two corrupt and two dropping out among ten; nine neighbours.
    secure = [strength(10, 9, t, model).security_bits == inf for t in range(2, 10)]
    correct = [strength(10, 9, t, model).correctness_bits == inf for t in range(2, 10)]
    smallest = 3 if adversary is SEMI else 6
    assert secure == [t >= smallest for t in range(2, 10)]
    assert correct == [t <= 7 for t in range(2, 10)]


def test_choose_falls_back_on_the_complete_graph() -> None:
    assert choose(10, ThreatModel(0.33, 0.33)) == (9, 5)
    with pytest.raises(ParameterError, match="no graph of 10 clients"):
        choose(10, ThreatModel(0.45, 0.55))
    with pytest.raises(ParameterError, match="at least 3"):
        choose(2, ThreatModel())


def test_strength_bounds_how_often_a_cut_happens_by_chance() -> None:
    # 20 clients, 4 neighbours, 9 of 20 removed: the bound is above the frequency among 20,000 draws, and not by far.
    model, generator = ThreatModel(0.25, 0.2), np.random.default_rng(5)
    graph = Graph(20, 4, range(20))
    cut = 0
    for _ in range(20_000):
        alive = np.ones(20, np.bool_)
        alive[generator.choice(20, 9, replace=False)] = False
        first = int(alive.argmax())
        reached, frontier = {first}, [first]
        while frontier:
            new = {v for u in frontier for v in graph.neighbours(u) if alive[v]} - reached
            reached |= new
            frontier = list(new)
        cut += len(reached) < alive.sum()
    removed = Fraction(20 * 15, 2) * Fraction(comb(16, 5), comb(20, 9))
    assert strength(20, 4, 4, model).security_bits == pytest.approx(
        max(0.0, -log2(float(2 * removed)))
    )
    assert 0.2 * removed < cut / 20_000 < removed


@given(clients=st.integers(3, 60), data=st.data())
def test_draw_gives_a_simple_regular_graph(clients: int, data: st.DataObject) -> None:
    neighbours = data.draw(st.integers(2, clients - 1))
    if neighbours % 2 and clients % 2:
        with pytest.raises(ParameterError, match="not both odd"):
            draw(clients, neighbours, bytes(32), bytes(32))
        return
    seed = data.draw(st.binary(min_size=32, max_size=32))
    graph = draw(clients, neighbours, seed, bytes(32))
    for u in range(clients):
        near = graph.neighbours(u)
        assert len(set(near)) == len(near) == neighbours
        assert u not in near
        assert all(u in graph.neighbours(v) for v in near)


def test_draw_makes_all_pairs_neighbours_equally_often() -> None:
    # 28 pairs of 8 clients, 4 of 7 others are neighbours, 2,000 seeds: 1,143 expected, deviation 22; seven of them.
    counts = np.zeros((8, 8), np.int64)
    for seed in range(2000):
        graph = draw(8, 4, seed.to_bytes(32, "big"), bytes(32))
        for u in range(8):
            counts[u, list(graph.neighbours(u))] += 1
    off_diagonal = counts[~np.eye(8, dtype=np.bool_)]
    assert np.abs(off_diagonal - 2000 * 4 / 7).max() < 155
    assert draw(8, 4, bytes(32), bytes(32))._order != draw(8, 4, bytes(32), b"\1" * 32)._order


@given(clients=st.integers(6, 40), data=st.data())
@settings(max_examples=60)
def test_graph_without_thick_runs_has_few_corrupt_neighbours_anywhere(
    clients: int, data: st.DataObject
) -> None:
    # What README's proof says of one run holds for the witnesses too: fewer than 2t - k of them are corrupt.
    neighbours = data.draw(
        st.integers(4, clients - 2).filter(lambda k: not (k % 2 and clients % 2))
    )
    threshold = data.draw(st.integers(neighbours // 2 + 1, neighbours))
    least, half = thick_run(neighbours, threshold), neighbours // 2
    order = data.draw(st.permutations(range(clients)))
    graph = Graph(clients, neighbours, order)
    corrupt = np.array(data.draw(st.lists(st.booleans(), min_size=clients, max_size=clients)))
    ring = np.concatenate([corrupt[order], corrupt[order]])
    if max(ring[start : start + half].sum() for start in range(clients)) < least:
        for u in range(clients):
            assert corrupt[list(graph.neighbours(u))].sum() < 2 * threshold - neighbours
    assert graph.witnesses == graph.neighbours(order[0])


@pytest.mark.parametrize("corrupt", [0.0, 1e-12, 0.05])
@pytest.mark.parametrize("clients", [3, 4, 5, 6, 7, 20])
def test_threat_model_takes_one_client_at_least_for_corrupt(clients: int, corrupt: float) -> None:
    model = ThreatModel(corrupt, 0.0)
    assert model.corrupt_clients(clients) == 1
    neighbours, threshold = choose(clients, model)
    # One neighbour in league with the server never has enough shares.
    assert threshold >= 2
    assert strength(clients, neighbours, threshold, model).security_bits >= 40


@pytest.mark.parametrize("changes", [{"corrupt": -0.1}, {"dropouts": 1.0}, {"security_bits": 0}])
def test_threat_model_refuses_what_is_no_fraction(changes: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        ThreatModel(**changes)  # type: ignore[arg-type]
