"""Shamir's secret sharing over a 256-bit prime field, in plain integers.

Secrets and shares are 32 bytes, big-endian, below ``PRIME``; a holder's point is its client id plus one and public. Any
t - 1 shares are uniform and independent of the secret; t give it back. Many secrets can have one set of holders.
Secret: secrets, shares, coefficients. Source: Shamir 1979. Known limits: Python's integers take a time that depends on
their values, which this project's adversaries (a server and clients at the other end of a network) do not see; shares
carry no proof, so callers check the combined secret.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

PRIME = 2**256 - 189
"""Largest prime below 2^256: uniform 32-byte strings are below it but for one in 2^248."""

SECRET_BYTES = 32
RandomBytes = Callable[[int], bytes]


def random_secret(random_bytes: RandomBytes) -> bytes:
    """Draws 32 bytes, uniform below ``PRIME`` by rejection."""
    while True:
        secret = random_bytes(SECRET_BYTES)
        if int.from_bytes(secret, "big") < PRIME:
            return secret


def split(
    secret: bytes, threshold: int, points: Sequence[int], *, random_bytes: RandomBytes
) -> list[bytes]:
    """Splits ``secret`` into one share per point; any ``threshold`` of them give it back.

    Points are different integers in [1, 2^32]. Raises ValueError where they are not, where the threshold exceeds their
    number, or where the secret is not 32 bytes below ``PRIME``.
    """
    constant = int.from_bytes(secret, "big")
    if len(secret) != SECRET_BYTES or constant >= PRIME:
        raise ValueError("a secret is 32 bytes, as a big-endian number below the field's prime")
    if not 1 <= threshold <= len(points):
        raise ValueError(
            f"threshold {threshold} of {len(points)} points; expected 1 to {len(points)}"
        )
    _check_points(points)
    coefficients = [
        int.from_bytes(random_secret(random_bytes), "big") for _ in range(threshold - 1)
    ]
    shares = []
    for point in points:
        # Points are short: Horner's rule without reductions grows by a few bits a step, one reduction at the end.
        value = 0
        for coefficient in coefficients:
            value = value * point + coefficient
        shares.append(((value * point + constant) % PRIME).to_bytes(SECRET_BYTES, "big"))
    return shares


def combine(points: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Returns the secret behind exactly the threshold's number of ``shares`` at ``points``.

    Any shares give some value: callers compare it with the owner's commitment. Raises ValueError where the lengths
    differ, a point is unusable or comes twice, or a share is not a field element.
    """
    if len(points) != len(shares):
        raise ValueError(f"{len(points)} points for {len(shares)} shares")
    values = [int.from_bytes(share, "big") for share in shares]
    if any(len(share) != SECRET_BYTES for share in shares) or any(v >= PRIME for v in values):
        raise ValueError("a share is 32 bytes, as a big-endian number below the field's prime")
    weights = lagrange_at_zero(tuple(points))
    total = sum(weight * value for weight, value in zip(weights, values, strict=True)) % PRIME
    return total.to_bytes(SECRET_BYTES, "big")


@lru_cache(maxsize=256)
def lagrange_at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the weights with which shares at ``points`` add up to the secret; cached by points. Raises ValueError."""
    _check_points(points)
    product = 1
    for point in points:
        product = product * point % PRIME
    # w_i = prod_j x_j / (x_i prod_{j != i} (x_j - x_i)); all denominators are inverted with one inversion.
    denominators = []
    for own in points:
        value = own
        for other in points:
            if other != own:
                value *= other - own
        denominators.append(value % PRIME)
    return tuple(product * inverse % PRIME for inverse in _invert_all(denominators))


def _invert_all(values: Sequence[int]) -> list[int]:
    # Montgomery's trick: with P_i = v_0 ... v_(i-1), the inverse of the whole product gives 1/v_i = P_i / P_(i+1), from
    # the last to the first.
    prefixes, running = [], 1
    for value in values:
        prefixes.append(running)
        running = running * value % PRIME
    inverse = pow(running, -1, PRIME)
    inverses = [0] * len(values)
    for index in reversed(range(len(values))):
        inverses[index] = inverse * prefixes[index] % PRIME
        inverse = inverse * values[index] % PRIME
    return inverses


def _check_points(points: Sequence[int]) -> None:
    if len(set(points)) != len(points) or not all(1 <= point <= 1 << 32 for point in points):
        raise ValueError("points are different integers in [1, 2^32]")
