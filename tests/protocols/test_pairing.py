"""The coin flip for a pair's key: both ends make the same, neither can choose it, and it opens nowhere else."""

from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import ProtocolViolation
from protocols.keystream import KEY_BYTES
from protocols.pairing import (
    COMMITMENT_BYTES,
    OFFER_BYTES,
    SEALED_BYTES,
    SHARE_BYTES,
    Coin,
    PairKeys,
    frames_stream,
    seal_key,
)
from protocols.sealing import PUBLIC_BYTES, BoxKey

OWN = [BoxKey.generate() for _ in range(3)]
SHARES = st.binary(min_size=SHARE_BYTES, max_size=SHARE_BYTES)
PAIRS = st.sampled_from([(0, 1), (0, 2), (1, 2)])


MEETING = b"session"


def coin(pid: int, peer: int, binding: bytes = b"run", share: bytes | None = None) -> Coin:
    if share is None:
        return Coin(pid, peer, MEETING, binding, OWN[pid])
    return Coin(pid, peer, MEETING, binding, OWN[pid], share)


def keys(one: Coin, other: Coin) -> tuple[PairKeys, PairKeys]:
    boxes = one.sealed(other.offer), other.sealed(one.offer)
    return one.keys(other.offer, boxes[1]), other.keys(one.offer, boxes[0])


@settings(max_examples=20)
@given(pair=PAIRS, shares=st.tuples(SHARES, SHARES), binding=st.binary(max_size=40))
def test_keys_are_the_same_at_both_ends(
    pair: tuple[int, int], shares: tuple[bytes, bytes], binding: bytes
) -> None:
    low, high = pair
    mine, theirs = keys(coin(low, high, binding, shares[0]), coin(high, low, binding, shares[1]))
    assert (mine.component, mine.frames) == (theirs.component, theirs.frames)
    assert mine.component != mine.frames
    assert {len(mine.component), len(mine.frames)} == {KEY_BYTES}


@settings(max_examples=20)
@given(shares=st.tuples(SHARES, SHARES, SHARES).filter(lambda s: s[1] != s[2]))
def test_keys_depend_on_each_end(shares: tuple[bytes, ...]) -> None:
    first, _ = keys(coin(0, 1, share=shares[0]), coin(1, 0, share=shares[1]))
    for others in (
        keys(coin(0, 1, share=shares[0]), coin(1, 0, share=shares[2])),
        keys(coin(0, 2, share=shares[0]), coin(2, 0, share=shares[1])),
    ):
        assert first.component != others[0].component
        assert first.frames != others[0].frames


def test_keys_of_components_are_those_of_one_configuration_and_frames_show_what_differs() -> None:
    mine, theirs = keys(coin(0, 1, b"run"), coin(1, 0, b"another"))
    assert mine.component != theirs.component
    assert mine.frames == theirs.frames


def test_messages_have_the_stated_sizes() -> None:
    mine, theirs = coin(0, 1), coin(1, 0)
    assert len(mine.offer) == OFFER_BYTES == COMMITMENT_BYTES + PUBLIC_BYTES
    assert len(mine.sealed(theirs.offer)) == SEALED_BYTES


class Elsewhere:
    """Boxes that party 1 did not make for party 0 in this greeting: one for each thing that can differ."""

    mine, theirs = coin(0, 1), coin(1, 0)
    box = theirs.sealed(mine.offer)
    restarted = coin(0, 1)

    boxes: ClassVar = {
        "sealed to another party": Coin(1, 0, MEETING, b"run", OWN[1], theirs.share).sealed(
            mine.offer[:COMMITMENT_BYTES] + OWN[2].public.public
        ),
        "from an earlier greeting": theirs.sealed(restarted.offer),
        "of another peer": Coin(2, 0, MEETING, b"run", OWN[1], theirs.share).sealed(mine.offer),
        "of another session": Coin(1, 0, b"another", b"run", OWN[1], theirs.share).sealed(
            mine.offer
        ),
        "sent back": mine.sealed(theirs.offer),
        "cut short": box[:-1],
        "empty": b"",
        "longer": box + b"x",
        "altered": bytes([box[0] ^ 1]) + box[1:],
        "altered at its end": box[:-1] + bytes([box[-1] ^ 1]),
        "the share itself": theirs.share,
    }


@pytest.mark.parametrize("which", Elsewhere.boxes)
def test_keys_refuse_a_box_that_is_not_for_this_greeting(which: str) -> None:
    with pytest.raises(
        ProtocolViolation, match=r"party 1 sent a sealed share .* does not open"
    ) as caught:
        Elsewhere.mine.keys(Elsewhere.theirs.offer, Elsewhere.boxes[which])
    assert caught.value.pid == 1
    # The same with the right one goes well.
    assert Elsewhere.mine.keys(Elsewhere.theirs.offer, Elsewhere.box)


def test_keys_refuse_a_box_that_is_opened_with_another_key() -> None:
    mine, theirs = coin(0, 1), coin(1, 0)
    stranger = Coin(0, 1, MEETING, b"run", OWN[2], mine.share)
    with pytest.raises(ProtocolViolation, match="does not open"):
        stranger.keys(theirs.offer, theirs.sealed(mine.offer))


@pytest.mark.parametrize("shown", ["another", "short", "long", "mine"])
def test_keys_refuse_what_was_not_committed_to(shown: str) -> None:
    """Seen the other's share, an end that could choose its own would choose the key."""
    mine, theirs = coin(0, 1), coin(1, 0)
    share = {
        "another": coin(1, 0).share,
        "short": theirs.share[:-1],
        "long": theirs.share + b"x",
        "mine": mine.share,
    }[shown]
    info = theirs._info(mine.offer, 1, 0)
    box = OWN[0].public.seal(share, info)
    with pytest.raises(ProtocolViolation, match="party 1 did not show") as caught:
        mine.keys(theirs.offer, box)
    assert caught.value.pid == 1
    assert share.hex() not in str(caught.value)


def test_keys_refuse_an_offer_sent_back() -> None:
    """A peer that repeats this party's own messages would have both ends alike, and know nothing it could not undo."""
    mine = coin(0, 1)
    with pytest.raises(ProtocolViolation):
        mine.keys(mine.offer, mine.sealed(mine.offer))


@pytest.mark.parametrize("offered", [b"", bytes(PUBLIC_BYTES - 1), bytes([255]) * PUBLIC_BYTES])
def test_seal_key_refuses_what_is_none(offered: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="party 2's sealing key") as caught:
        seal_key(bytes(COMMITMENT_BYTES) + offered, 2)
    assert caught.value.pid == 2


def test_offer_hides_the_share_and_repr_shows_nothing() -> None:
    first, second = coin(0, 1), coin(0, 1)
    assert first.offer != second.offer
    assert first.share not in first.offer
    assert repr(first) == "Coin(pid=0, peer=1)"


def test_frames_stream_is_another_one_for_each_way_and_key() -> None:
    ways = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
    found = {
        frames_stream(bytes([key]) * KEY_BYTES, *way).read(64).tobytes()
        for key in (1, 2)
        for way in ways
    }
    assert len(found) == 2 * len(ways)
    again = frames_stream(bytes([1]) * KEY_BYTES, 0, 1).read(64).tobytes()
    assert again in found
