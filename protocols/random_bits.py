"""Random bits that no party knows, as bits and as elements of a ring, for masks, signs and conversions.

Secret: the bits. Their boolean form is common randomness, hence uniform whatever one party does, and free. Their ring
form is made of it by products, which a context's verifier checks like any others. Source: README section 1.
"""

from protocols.base import random
from protocols.bitslice import words_for
from protocols.context import Context
from protocols.free import bits_into_ring
from protocols.ring import BITS, Ring
from protocols.shares import Share


async def random_bits(ctx: Context, count: int, ring: Ring) -> tuple[Share, Share]:
    """Draws uniform bits that no party knows, in both forms.

    Shapes: returns a plane (words_for(count),) and the same bits as zeros and ones (count,) in ``ring``. Bits of the
        plane beyond ``count`` are random, too, and have no ring form.
    Leaks: none.
    Rounds: 2.
    Communication: n elements, and n more by party 0.
    Raises: ChannelError, ProtocolViolation.
    Source: ``free.bits_into_ring`` of common randomness.
    """
    r_bsh = random(ctx, BITS, (words_for(count),))
    return r_bsh, await bits_into_ring(ctx, r_bsh, count, ring)
