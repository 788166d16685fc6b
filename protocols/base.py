"""Primitives: zero shares, input, reshare, multiply, open.

With ``fixed.truncate`` they are the only functions that send bytes which depend on secrets. Communication is counted in
ring elements of the value's size n, sent per party. Leaks: nothing but the values that ``open_value`` opens. Source:
Araki et al. (CCS 2016), section 2; README section 1.
"""

import hashlib
import math

import numpy as np

from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.ring import Ring, RingArray
from protocols.shares import Additive, Share, product

_DIGEST_BYTES = 32


def zero(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> RingArray:
    """Returns this party's part alpha_i = F(k_i) - F(k_{i+1}) of a zero sharing. Free; uniform to both others."""
    own = ctx.common(ctx.pid, ring, shape)
    ctx.subtract_common(ctx.next_pid, ring, own)
    return own


def random(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> Share:
    """Returns a uniform value that no party knows. Free."""
    return Share(
        ring, ctx.pid, ctx.common(ctx.pid, ring, shape), ctx.common(ctx.next_pid, ring, shape)
    )


def noise(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> Share:
    """Returns a ``random`` value that decides a result: the same value again for the same opening. Free.

    ``random`` is for masks, on which no opened value depends. See ``Context.noise_of``.
    """
    return Share(
        ring, ctx.pid, ctx.noise(ctx.pid, ring, shape), ctx.noise(ctx.next_pid, ring, shape)
    )


def known(
    ctx: Context, ring: Ring, component: int, value: RingArray | None, shape: tuple[int, ...]
) -> Share:
    """Shares a value known to both holders of ``component`` as that component, the others zero. Free.

    ``value`` is None at the party that does not hold the component.
    """
    parts = []
    for held in (ctx.pid, ctx.next_pid):
        if held != component:
            parts.append(ring.blank(shape))
        elif value is None:
            raise ValueError(
                f"party {ctx.pid} holds component {component} and has to know the value"
            )
        else:
            parts.append(value)
    return Share(ring, ctx.pid, parts[0], parts[1])


async def share_input(
    ctx: Context, ring: Ring, dealer: int, value: RingArray | None, shape: tuple[int, ...]
) -> Share:
    """Shares a value that ``dealer`` alone knows.

    Shapes: ``shape``, the same at all parties; ``value`` is None at the others.
    Leaks: none.
    Rounds: 1.
    Communication: n elements sent by the dealer to the party before it, none by the others.
    Raises: ValueError where there is a verifier; ChannelError, ProtocolViolation.
    Source: README section 1; the component after the dealer's own comes from the common key, the third one is zero.
    """
    after = (dealer + 1) % 3
    mask = ring.blank(shape)
    if ctx.pid == dealer and value is not None:
        mask = ctx.common(after, ring, shape)
        value = ring.sub(value, mask)
    held = await _deal(ctx, ring, dealer, value, shape)
    if ctx.pid in (dealer, after):
        return Share(ring, ctx.pid, held, mask)
    return Share(ring, ctx.pid, mask, held)


async def split_input(
    ctx: Context, ring: Ring, dealer: int, value: RingArray | None, shape: tuple[int, ...]
) -> RingArray:
    """Shares an input, in fewer passes over memory than ``share_input``, for a dealer that computes nothing with it.

    Shapes: as there; ``value`` is contiguous. Returns, at each of the two others, its one component that is not zero.
        The party before the dealer shares that component with the dealer, who gets it in the place of ``value``.
    Leaks, Rounds, Communication, Raises, Source: as there.
    """
    if ctx.pid == dealer and value is not None:
        ctx.subtract_common((dealer + 1) % 3, ring, value)
    return await _deal(ctx, ring, dealer, value, shape)


async def _deal(
    ctx: Context, ring: Ring, dealer: int, masked: RingArray | None, shape: tuple[int, ...]
) -> RingArray:
    """Sends the dealer's value, less its mask, to the party before it. Returns that there and here, else the mask."""
    if ctx.verifier is not None:
        raise ValueError(f"what party {dealer} alone knows cannot be checked, and would be shared")
    after, before = (dealer + 1) % 3, (dealer - 1) % 3
    if ctx.pid == dealer:
        if masked is None or masked.shape != shape:
            raise ValueError(f"the dealer's value has to have shape {shape}")
        await ctx.round({before: ring.to_wire(masked)}, {})
        return masked
    if ctx.pid == after:
        mask = ctx.common(after, ring, shape)
        await ctx.round({}, {})
        return mask
    received = await ctx.round({}, {dealer: math.prod(shape) * ring.itemsize})
    return ring.from_wire(received[dealer], shape)


async def reshare(ctx: Context, z_add: Additive) -> Share:
    """Turns additive terms into a replicated share: masks them with a zero share and sends them to the party before.

    Shapes: any.
    Leaks: none; without the mask the term would show products of the receiver's unknown component.
    Rounds: 1.
    Communication: n elements.
    Raises: ChannelError, ProtocolViolation.
    Source: Araki et al. (CCS 2016), section 2.2.
    """
    ring, shape = z_add.ring, z_add.shape
    origins = masks_sh = None
    if ctx.verifier is None:
        # z_i = the party's terms + alpha_i, with alpha_i = F(k_i) - F(k_{i+1}).
        own = z_add.masked(zero(ctx, ring, shape))
    else:
        origins, masks_sh = z_add.known_origins(), random(ctx, ring, shape)
        own = z_add.masked(ring.sub(masks_sh.own, masks_sh.next))
    del z_add  # The terms are not kept while the message is under way.
    wire = ring.to_wire(own)
    received = await ctx.round({ctx.prev_pid: wire}, {ctx.next_pid: wire.size})
    z_sh = Share(ring, ctx.pid, own, ring.from_wire(received[ctx.next_pid], shape))
    if ctx.verifier is not None and origins is not None and masks_sh is not None:
        ctx.verifier.reshared(ctx.place(), origins, masks_sh, z_sh)
    return z_sh


async def reshare_from(ctx: Context, z_add: Additive, sender: int) -> Share:
    """Reshares terms that are zero at all parties but ``sender``: products of two components known to it alone.

    Such a term is a component of one value times the next component of another one. So the sender shares it as its
    input. Yet it is a product of sharings that no party alone can lie about, and a verifier has it proved like any
    other.

    Shapes: any.
    Leaks: none; one component is common randomness, one zero.
    Rounds: 1.
    Communication: n elements by the sender, none by the others.
    Raises: ChannelError, ProtocolViolation.
    Source: own; ``share_input``.
    """
    ring, shape = z_add.ring, z_add.shape
    after, before = (sender + 1) % 3, (sender - 1) % 3
    mask = None if ctx.pid == before else ctx.common(after, ring, shape)
    masks_sh = known(ctx, ring, after, mask, shape)
    if ctx.pid == sender:
        own = z_add.masked(ring.sub(masks_sh.own, masks_sh.next))
        await ctx.round({before: ring.to_wire(own)}, {})
        z_sh = Share(ring, ctx.pid, own, masks_sh.next)
    elif ctx.pid == after:
        await ctx.round({}, {})
        z_sh = masks_sh
    else:
        received = await ctx.round({}, {sender: math.prod(shape) * ring.itemsize})
        z_sh = Share(ring, ctx.pid, masks_sh.own, ring.from_wire(received[sender], shape))
    if ctx.verifier is not None:
        ctx.verifier.reshared(ctx.place(), z_add.known_origins(), masks_sh, z_sh)
    return z_sh


async def multiply(ctx: Context, x_sh: Share, y_sh: Share) -> Share:
    """Multiplies x * y element by element (AND for bits). Rounds and communication of ``reshare``."""
    return await reshare(ctx, product(ctx, x_sh, y_sh))


async def inner_product(ctx: Context, x_sh: Share, y_sh: Share) -> Share:
    """Sums x * y along the last axis, at one element however long it is. Rounds and communication of ``reshare``."""
    return await reshare(ctx, product(ctx, x_sh, y_sh).sum())


async def reveal_component(ctx: Context, x_sh: Share, component: int) -> RingArray | None:
    """Gives the two holders of ``component`` the value; the third party learns nothing and gets None.

    Shapes: any.
    Leaks: the value, to the two holders; it has to be masked, since this is not an opening.
    Rounds: 1.
    Communication: n elements by the third party to each holder, none by the others.
    Raises: ValueError where there is a verifier; ChannelError, ProtocolViolation.
    Source: none; each holder lacks one component, and the third party has both.
    """
    if ctx.verifier is not None:
        raise ValueError("what one party shows to the others cannot be checked")
    ring = x_sh.ring
    # Holders of component c are parties c - 1 and c; party c + 1 holds components c + 1 and c + 2, one for each of
    # them.
    third = (component + 1) % 3
    if ctx.pid == third:
        before = ring.to_wire(x_sh.own)
        await ctx.round({ctx.next_pid: before, ctx.prev_pid: ring.to_wire(x_sh.next)}, {})
        return None
    received = await ctx.round({}, {third: x_sh.size * ring.itemsize})
    return ring.add(ring.add(x_sh.own, x_sh.next), ring.from_wire(received[third], x_sh.shape))


async def open_masked(ctx: Context, x_sh: Share) -> RingArray:
    """Shows all three parties a value under a uniform mask that no party knows and no other value has.

    The shown value is uniform whatever was done to the value before, so that it needs no check of earlier products. The
    verifier compares before the next opening that all parties were shown the same. Only for a context with a verifier.

    Shapes: any.
    Leaks: none, for such a value.
    Rounds: 1.
    Communication: n elements.
    Raises: ValueError without a verifier; ChannelError, ProtocolViolation.
    Source: Araki et al. (S&P 2017), section 3.
    """
    if ctx.verifier is None:
        raise ValueError("nobody would compare what a masked value was shown as")
    ring = x_sh.ring
    wire = ring.to_wire(x_sh.own)
    missing = (await ctx.round({ctx.next_pid: wire}, {ctx.prev_pid: wire.size}))[ctx.prev_pid]
    ctx.verifier.shown(ctx.place(), ring.to_wire(x_sh.next), missing)
    return ring.add(ring.add(x_sh.own, x_sh.next), ring.from_wire(missing, x_sh.shape))


async def open_value(ctx: Context, x_sh: Share, what: str) -> RingArray:
    """Opens a value to all three parties, with each missing component confirmed by its other holder.

    A context's verifier first has everything proved on which the value may rest.

    Shapes: any.
    Leaks: the value. It is recorded in the costs and the transcript under ``what``.
    Rounds: 1, after those of ``settle``.
    Communication: n elements and a digest of 32 bytes; ``settle``'s.
    Raises: CheckFailed where the two holders of a component disagree; ChannelError, ProtocolViolation.
    Source: Araki et al. (CCS 2016), section 2.2; the digest is Furukawa et al. (2017), section 3.
    """
    if ctx.verifier is not None:
        await ctx.verifier.settle(ctx)
    ring = x_sh.ring
    wire = ring.to_wire(x_sh.own)
    digest = np.frombuffer(hashlib.sha256(ring.to_wire(x_sh.next).data).digest(), np.uint8)
    received = await ctx.round(
        {ctx.next_pid: wire, ctx.prev_pid: digest},
        {ctx.prev_pid: wire.size, ctx.next_pid: _DIGEST_BYTES},
    )
    missing = received[ctx.prev_pid]
    if hashlib.sha256(missing.data).digest() != received[ctx.next_pid].tobytes():
        raise CheckFailed(
            f"party {ctx.party(ctx.pid)} was shown different components by party {ctx.party(ctx.prev_pid)} and party"
            f" {ctx.party(ctx.next_pid)} while opening {what} in step {ctx.cost.step!r}: one of these two deviates"
        )
    value = ring.add(ring.add(x_sh.own, x_sh.next), ring.from_wire(missing, x_sh.shape))
    ctx.record_opening(what, value, ring)
    return value
