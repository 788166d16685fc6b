"""Draws of FLAIM's participants: turns that are spread evenly, and that nobody takes more often than it pays for."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.errors import RoundLost
from mechanisms.flaim_participants import draw_round, draw_turns
from mechanisms.flaim_settings import FlaimSettings


def settings_of(rounds: int, participation: float, variant: str = "pairs") -> FlaimSettings:
    return FlaimSettings.preset(variant, rho=0.1, rounds=rounds, participation=participation)


def numbers(rounds: int) -> list[int]:
    """The numbers of the rounds: there is no round 1."""
    return [0, *range(2, rounds + 1)]


@given(
    st.integers(3, 60),
    st.integers(1, 12),
    st.floats(0.01, 1.0),
    st.integers(0, 1 << 32),
)
def test_draw_turns_gives_nobody_more_turns_than_it_pays_for(
    clients: int, rounds: int, participation: float, seed: int
) -> None:
    settings, chance = settings_of(rounds, participation), random.Random(seed)
    taken: Counter[int] = Counter()
    for number in numbers(rounds):
        before = {client: taken[client] for client in range(clients)}
        try:
            drawn = draw_turns(before, settings, chance.randbytes, number=number)
        except RoundLost:
            break
        assert len(set(drawn)) == len(drawn) >= 3
        assert list(drawn) == sorted(drawn)
        taken.update(drawn)
    assert max(taken.values()) <= settings.turns
    # A turn is left over only where too few clients have one.
    waiting = [client for client in range(clients) if taken[client] < settings.turns]
    if settings.turns == 1:
        assert not waiting
    else:
        assert len(waiting) < 3 or sum(taken.values()) >= clients


@pytest.mark.parametrize(
    ("rounds", "participation", "sizes"),
    [
        (10, 0.1, [10] * 10),
        (11, 0.1, [10, *[9] * 10]),
        (10, 0.5, [50] * 10),
        (3, 1.0, [100] * 3),
        (1, 0.2, [100]),
    ],
)
def test_draw_turns_spreads_them_evenly(
    rounds: int, participation: float, sizes: list[int]
) -> None:
    settings, chance = settings_of(rounds, participation), random.Random(1)
    taken: Counter[int] = Counter()
    found = []
    for number in numbers(rounds):
        drawn = draw_turns(
            {client: taken[client] for client in range(100)},
            settings,
            chance.randbytes,
            number=number,
        )
        taken.update(drawn)
        found.append(len(drawn))
    assert found == sizes
    assert set(taken.values()) == {settings.turns}


def test_draw_turns_takes_along_who_would_be_too_few_alone() -> None:
    settings = settings_of(3, 0.34)
    assert settings.turns == 1
    drawn = draw_turns(dict.fromkeys(range(8), 0), settings, random.Random(2).randbytes, number=2)
    assert len(drawn) == 4
    drawn = draw_turns(dict.fromkeys(range(5), 0), settings, random.Random(2).randbytes, number=2)
    assert drawn == (0, 1, 2, 3, 4)


def test_draw_turns_is_lost_without_clients_that_have_one_left() -> None:
    taken = {0: 1, 1: 1, 2: 0, 3: 0}
    with pytest.raises(RoundLost, match="2 of 4 clients have a turn left"):
        draw_turns(taken, settings_of(10, 0.1), random.Random(3).randbytes, number=2)


def test_draw_round_draws_anew_in_the_papers_variants() -> None:
    settings = settings_of(10, 1.0, "private")
    taken = dict.fromkeys(range(5), 10)
    drawn = draw_round(
        range(5), taken, settings, random_bytes=random.Random(4).randbytes, number=10
    )
    assert drawn == (0, 1, 2, 3, 4)
