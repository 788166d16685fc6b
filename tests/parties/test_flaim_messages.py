"""FLAIM's messages: what is packed comes back, anything else is refused, and reasons are cut and cleaned."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.federation.key_directory import MAX_CLIENT_KEY_BYTES, SignedClientKey
from parties.federation.messages import (
    HEADER_BYTES,
    VERSION,
    ClientGreeting,
    FederationMessage,
    MessageKind,
    Refusal,
    RefusalMessage,
    Welcome,
    is_secagg_message,
    pack_plain,
    pack_reason,
    pack_task,
    refused_error,
    unpack_plain,
    unpack_reason,
    unpack_task,
)
from parties.foundation.errors import FederationProtocolError
from parties.foundation.exit_codes import Status
from secagg.keys import IDENTITY_BYTES

digests = st.binary(min_size=32, max_size=32)


@given(st.sampled_from(MessageKind), st.integers(0, 2**32 - 1), st.binary(max_size=64))
def test_message_comes_back(kind: MessageKind, number: int, body: bytes) -> None:
    message = FederationMessage(kind, number, body)
    assert FederationMessage.unpack(message.pack(), "x") == message
    assert len(message.pack()) == HEADER_BYTES + len(body)
    assert not is_secagg_message(message.pack())


@given(
    digests,
    digests,
    st.none() | st.integers(0, 2**63),
    st.text(max_size=20),
    st.binary(max_size=300),
)
def test_hello_comes_back_with_its_card(
    config: bytes, workload: bytes, rows: int | None, version: str, card: bytes
) -> None:
    found = ClientGreeting.unpack(ClientGreeting(config, workload, rows, version, card).pack(), "x")
    assert (found.config, found.workload, found.rows) == (config, workload, rows)
    assert found.card == card
    assert found.version.isprintable()


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), digests)
def test_welcome_comes_back_and_hides_its_key(number: int, clients: int, key: bytes) -> None:
    welcome = Welcome(number, clients, key)
    assert Welcome.unpack(welcome.pack(), "x") == welcome
    assert key.hex() not in repr(welcome)
    assert str(key) not in repr(welcome)


@given(st.none() | st.integers(0, 2**32 - 2), st.binary(max_size=20))
def test_task_comes_back(place: int | None, layout: bytes) -> None:
    assert unpack_task(pack_task(place, layout), "x") == (place, layout)


@given(st.lists(st.integers(0, 2**24), min_size=1, max_size=9))
def test_plain_counts_come_back_within_the_agreed_bound(counts: list[int]) -> None:
    body = pack_plain(np.array(counts, np.int64))
    assert unpack_plain(body, len(counts), 2**24, "x").tolist() == counts
    with pytest.raises(FederationProtocolError):
        unpack_plain(body, len(counts) + 1, 2**24, "x")
    with pytest.raises(FederationProtocolError):
        unpack_plain(body, len(counts), max(counts) - 1, "x")


@given(st.text(max_size=600))
def test_reason_is_short_and_printable(text: str) -> None:
    packed = pack_reason(text)
    assert len(packed) <= 256
    assert unpack_reason(packed).isprintable()


@given(st.sampled_from(Refusal), st.text(max_size=600))
def test_refused_comes_back_with_its_status_and_printable_words(
    refusal: Refusal, words: str
) -> None:
    body = RefusalMessage(refusal, words).pack()
    found = RefusalMessage.unpack(body, "x")
    assert len(body) <= 257
    assert found.refusal is refusal
    assert found.words.isprintable()
    if words.isprintable() and len(words.encode()) <= 256:
        assert found.words == words


@given(st.binary(max_size=300))
def test_refused_takes_a_known_status_and_short_words_alone(body: bytes) -> None:
    known = 1 <= len(body) <= 257 and body[0] in set(Refusal)
    if known:
        assert RefusalMessage.unpack(body, "north").refusal == body[0]
    else:
        with pytest.raises(FederationProtocolError, match="north"):
            RefusalMessage.unpack(body, "north")


@pytest.mark.parametrize("body", [b"", b"\0", b"\x07", b"\xff", b"\x01" + bytes(257)])
def test_refused_without_a_status_or_with_too_many_words_is_a_violation(body: bytes) -> None:
    with pytest.raises(FederationProtocolError, match="a refusal of"):
        refused_error("north", body)


def test_every_refusal_ends_a_client_with_a_status_that_is_no_success() -> None:
    statuses = [
        refused_error("x", RefusalMessage(refusal, "").pack()).status for refusal in Refusal
    ]
    assert set(statuses) == {Status.PROTOCOL, Status.CLIENTS, Status.NETWORK, Status.NOT_ENROLLED}


def test_unpack_says_both_versions_where_they_differ() -> None:
    with pytest.raises(
        FederationProtocolError, match=f"messages of version 9; expected {VERSION}:"
    ):
        FederationMessage.unpack(b"FLAM\x09\x00" + bytes(4), "north")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"FLAM",
        b"SAGG" + bytes(6),
        b"FLAM\x01\x00" + bytes(4),
        b"FLAM" + bytes([VERSION, 0x63]) + bytes(4),
    ],
)
def test_unpack_refuses_what_is_no_message(data: bytes) -> None:
    with pytest.raises(FederationProtocolError, match="north"):
        FederationMessage.unpack(data, "north")


@pytest.mark.parametrize("size", [0, 1, 200])
def test_bodies_of_another_size_are_refused(size: int) -> None:
    with pytest.raises(FederationProtocolError):
        Welcome.unpack(bytes(size), "x")
    if size < 4:
        with pytest.raises(FederationProtocolError):
            unpack_task(bytes(size), "x")


def test_hello_that_is_cut_is_refused_and_what_is_longer_is_a_card() -> None:
    whole = ClientGreeting(bytes(32), bytes(32), None, "1").pack()
    for size in range(len(whole)):
        with pytest.raises(FederationProtocolError, match=f"north: a greeting of {size} bytes"):
            ClientGreeting.unpack(whole[:size], "north")
    assert ClientGreeting.unpack(whole, "north").card == b""
    assert ClientGreeting.unpack(whole + b"card", "north").card == b"card"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(IDENTITY_BYTES + 1),
        bytes(IDENTITY_BYTES + 2),
        bytes(IDENTITY_BYTES) + b"\x00\x40" + bytes(64),
        bytes(IDENTITY_BYTES) + b"\xff\xff" + bytes(200),
        bytes(MAX_CLIENT_KEY_BYTES + 1),
    ],
)
def test_card_without_a_certificate_or_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(
        FederationProtocolError, match=f"north: a client's card of {len(data)} bytes"
    ):
        SignedClientKey.unpack(data, "north")
