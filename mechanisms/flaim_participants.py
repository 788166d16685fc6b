"""Draws of the participants of FLAIM's rounds.

``draw_participants`` draws each client with the same probability, as in the paper. ``draw_turns`` lets clients take
turns, so that nobody takes part in more rounds than it pays for.

All values here are public: no draw depends on anybody's rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from mechanisms.errors import RoundLost
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.sampling import RandomBytes

# Most draws of participants before an error.
MAX_DRAWS = 10_000


def draw_round(
    clients: Sequence[int],
    taken: Mapping[int, int],
    settings: FlaimSettings,
    *,
    random_bytes: RandomBytes,
    number: int,
) -> tuple[int, ...]:
    """Draws the participants of round ``number`` among ``clients``; ``taken`` counts the rounds of each before.

    Raises ``RoundLost`` if too few can take part.
    """
    if settings.variant != "pairs":
        return draw_participants(clients, settings, random_bytes)
    before = {client: taken.get(client, 0) for client in clients}
    return draw_turns(before, settings, random_bytes, number=number)


def draw_participants(
    clients: Sequence[int], settings: FlaimSettings, random_bytes: RandomBytes
) -> tuple[int, ...]:
    """Draws a round's participants: each client with probability p, all drawn again while they are too few.

    The draw does not depend on the data, and our account claims no amplification from it, so that drawing again costs
    nothing. Raises ``RoundLost`` if it cannot succeed.
    """
    least = settings.min_participants
    if len(clients) < least:
        raise RoundLost(f"{len(clients)} clients are there; min_participants = {least}")
    # 53 random bits below ceil(2^53 p), for each client.
    threshold = math.ceil(settings.participation * 2.0**53)
    for _ in range(MAX_DRAWS):
        bits = np.frombuffer(random_bytes(8 * len(clients)), "<u8") >> np.uint64(11)
        drawn = tuple(
            c for c, taken in zip(clients, bits < np.uint64(threshold), strict=True) if taken
        )
        if len(drawn) >= least:
            return drawn
    raise RoundLost(
        f"no {least} participants in {MAX_DRAWS} draws at participation = {settings.participation} of "
        f"{len(clients)} clients: raise it, or lower min_participants"
    )


def draw_turns(
    taken: Mapping[int, int], settings: FlaimSettings, random_bytes: RandomBytes, *, number: int
) -> tuple[int, ...]:
    """Draws the participants of round ``number`` from clients that have ``taken`` part in so many rounds before.

    Turns that are left are spread evenly over the rounds that are left; clients with most of them come first, the rest
    is chance. If too few clients would be left for another sum, all take part now. Raises ``RoundLost`` if too few
    clients have a turn left.
    """
    least, rounds = settings.min_participants, settings.rounds - max(0, number - 1)
    left = {c: min(settings.turns - before, rounds) for c, before in taken.items()}
    left = {c: turns for c, turns in left.items() if turns > 0}
    if len(left) < least:
        raise RoundLost(
            f"{len(left)} of {len(taken)} clients have a turn left; min_participants = {least}"
        )
    size = max(least, -(-sum(left.values()) // max(1, rounds)))
    chance = np.frombuffer(random_bytes(8 * len(left)), "<u8").tolist()
    order = [
        c for _, _, c in sorted((-left[c], luck, c) for c, luck in zip(left, chance, strict=True))
    ]
    drawn = order[:size]
    later = [c for c in left if left[c] > (c in drawn)]
    if len(later) < least and all(left[c] == 1 for c in order[size:]):
        drawn = order
    return tuple(sorted(drawn))
