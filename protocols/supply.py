"""Gumbel noise for several selections, made at once: rounds and messages are paid for once, and planes are longer.

Provides ``GumbelSupply``, and ``lacking``, how many are made when. Noise depends on nothing, so it can be made before
what it is for is known. Each sample is used once, and is in memory alone: a server that starts again makes the same
ones again, of the same source, and skips those that were used. Secret: the samples. Public: how many there are.
"""

from protocols.context import Context, NoiseSource
from protocols.gumbel import gumbel
from protocols.shares import Share, concatenate

AT_ONCE = 4096
"""Samples made at a time, at most, unless one selection takes more: they cost hardly more than 250 do."""


def lacking(samples: int, count: int, most: int, selections: int) -> int:
    """How many to make where ``samples`` are there, before one of so many ``selections`` to come takes ``count``.

    None while there are enough; else what all of these selections take if each is among ``most``, or as many whole ones
    as ``AT_ONCE`` allows. However many each is among then, no more are made in all, nor more often.
    """
    if samples >= count:
        return 0
    return most * max(1, min(selections, AT_ONCE // most))


class GumbelSupply:
    """Samples of which each selection takes the next ones. Secret."""

    def __init__(self) -> None:
        self._held: Share | None = None

    def __repr__(self) -> str:
        return f"GumbelSupply(samples={self.samples})"

    @property
    def samples(self) -> int:
        """How many are there."""
        return 0 if self._held is None else self._held.size

    async def take(
        self,
        ctx: Context,
        count: int,
        lacking: int,
        *,
        source: NoiseSource | None = None,
        skip: int = 0,
    ) -> Share:
        """The next ``count`` samples (count,) in Z_2^64, as ``gumbel`` makes them, after ``lacking`` more are made.

        These are drawn from ``source``, fresh without one, and the first ``skip`` of them are left out.

        Leaks: none.
        Rounds, Communication: of ``gumbel`` for what is lacking; nothing where that is 0.
        Raises: ValueError where there are not that many; ChannelError, ProtocolViolation.
        """
        if self.samples + lacking - skip < count:
            raise ValueError(
                f"{count} samples from {self.samples} and {lacking - skip} that are to be made"
            )
        held = [self._held] if self._held is not None else []
        self._held = None
        if lacking:
            with ctx.noise_of(source) as n:
                held.append((await gumbel(n, lacking))[skip:])
        samples = concatenate(*held)
        self._held = samples[count:]
        return samples[:count]
