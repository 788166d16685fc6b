"""The coin flip for a pair's key: both ends make the same, neither can choose it, and other bindings make others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import ProtocolViolation
from protocols.keystream import KEY_BYTES
from protocols.pairing import COMMITMENT_BYTES, SHARE_BYTES, Coin

SHARES = st.binary(min_size=SHARE_BYTES, max_size=SHARE_BYTES)
PAIRS = st.sampled_from([(0, 1), (0, 2), (1, 2)])


def keys(one: Coin, other: Coin) -> tuple[bytes, bytes]:
    return one.key(other.commitment, other.share), other.key(one.commitment, one.share)


@given(pair=PAIRS, shares=st.tuples(SHARES, SHARES), binding=st.binary(max_size=40))
def test_key_is_the_same_at_both_ends(
    pair: tuple[int, int], shares: tuple[bytes, bytes], binding: bytes
) -> None:
    low, high = pair
    mine, theirs = keys(Coin(low, high, binding, shares[0]), Coin(high, low, binding, shares[1]))
    assert mine == theirs
    assert len(mine) == KEY_BYTES


@given(shares=st.tuples(SHARES, SHARES, SHARES).filter(lambda s: s[1] != s[2]))
def test_key_depends_on_each_end_and_on_what_both_agreed(shares: tuple[bytes, ...]) -> None:
    fixed = Coin(0, 1, b"run", shares[0])
    first, _ = keys(fixed, Coin(1, 0, b"run", shares[1]))
    assert first != keys(fixed, Coin(1, 0, b"run", shares[2]))[0]
    assert first != keys(Coin(0, 1, b"another", shares[0]), Coin(1, 0, b"run", shares[1]))[0]
    assert first != keys(Coin(0, 2, b"run", shares[0]), Coin(2, 0, b"run", shares[1]))[0]


@pytest.mark.parametrize("shown", ["another", "short", "long", "mine"])
def test_key_refuses_what_was_not_committed_to(shown: str) -> None:
    """Seen the other's share, an end that could choose its own would choose the key."""
    mine, theirs = Coin(0, 1, b""), Coin(1, 0, b"")
    share = {
        "another": Coin(1, 0, b"").share,
        "short": theirs.share[:-1],
        "long": theirs.share + b"x",
        "mine": mine.share,
    }[shown]
    with pytest.raises(ProtocolViolation, match="party 1 did not show") as caught:
        mine.key(theirs.commitment, share)
    assert caught.value.pid == 1
    assert share.hex() not in str(caught.value)


def test_key_refuses_a_commitment_sent_back() -> None:
    """A peer that repeats this party's own messages would have both ends alike, and know nothing it could not undo."""
    mine = Coin(0, 1, b"")
    with pytest.raises(ProtocolViolation):
        mine.key(mine.commitment, mine.share)


def test_commitment_hides_the_share_and_repr_shows_nothing() -> None:
    first, second = Coin(0, 1, b""), Coin(0, 1, b"")
    assert len(first.commitment) == COMMITMENT_BYTES
    assert first.commitment != second.commitment
    assert first.share not in first.commitment
    assert repr(first) == "Coin(pid=0, peer=1)"
