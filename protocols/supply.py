"""Gumbel noise for several selections, made at once: rounds and messages are paid for once, and planes are longer.

Noise depends on nothing, so it can be made before its selection is known. Each sample is used once, and is in memory
alone: a server that starts again makes the same samples again, of the same source, and skips those that were used.
Secret: the samples. Public: the number of samples.
"""

from protocols.context import Context, NoiseSource
from protocols.gumbel import gumbel
from protocols.shares import Share, concatenate

AT_ONCE = 4096
"""Largest number of samples made at a time, unless one selection takes more: they cost hardly more than 250 do."""


def lacking(samples: int, count: int, most: int, selections: int) -> int:
    """Returns the number of samples to make before one of so many ``selections`` to come takes ``count``.

    The number is 0 while ``samples`` are enough. Else it is the need of all these selections if each is among ``most``,
    or of as many whole ones as ``AT_ONCE`` allows. For any numbers of candidates then, no more samples are made in all,
    nor more often.
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
        """Number of unused samples."""
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
        """Returns the next ``count`` samples (count,) in Z_2^64, of ``gumbel``'s form, after ``lacking`` more are made.

        These are drawn from ``source``, fresh without one, and the first ``skip`` of them are left out.

        Leaks: none.
        Rounds, Communication: of ``gumbel`` for ``lacking`` samples; nothing where that is 0.
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
