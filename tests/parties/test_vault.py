"""Encrypted streams: they open whole with the one passphrase or key, and nothing else of them opens."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.crypto import encrypted_file
from parties.crypto.encrypted_file import (
    MAGIC,
    DecryptingReader,
    EncryptingWriter,
    KeyWrapper,
    PassphraseWrapper,
    PublicKeyWrapper,
)
from parties.crypto.hpke import SealKey
from parties.foundation.errors import SealError

KEY = SealKey.generate()
OWN = PublicKeyWrapper(KEY.public, KEY)
SEGMENT = 64


@pytest.fixture(autouse=True, scope="module")
def small() -> object:
    """Segments of 64 bytes, and a derivation that takes no memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encrypted_file, "SEGMENT_BYTES", SEGMENT)
        patch.setattr(encrypted_file, "_SCRYPT", {"n": 1 << 4, "r": 8, "p": 1})
        yield


def sealed(content: bytes, opener: KeyWrapper = OWN, pieces: int = 7) -> bytes:
    file = io.BytesIO()
    sink = EncryptingWriter(file, opener)
    for start in range(0, len(content), pieces):
        sink.write(content[start : start + pieces])
    sink.finish()
    return file.getvalue()


def opened(data: bytes, opener: KeyWrapper = OWN) -> bytes:
    return DecryptingReader(io.BytesIO(data), opener).read() or b""


@settings(deadline=None)
@given(content=st.binary(max_size=4 * SEGMENT), pieces=st.integers(1, 200))
def test_a_stream_opens_to_its_content_whatever_its_length(content: bytes, pieces: int) -> None:
    data = sealed(content, pieces=pieces)
    assert opened(data) == content
    assert len(content) < 16 or content not in data


@pytest.mark.parametrize("size", [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT])
def test_a_stream_that_is_cut_off_or_lacks_a_segment_does_not_open(size: int) -> None:
    data = sealed(b"x" * size)
    begin = data.index(b"\n", len(MAGIC)) + 1
    step = SEGMENT + 16
    for cut in {len(data) - 1, len(data) - 16, begin, *range(begin + step, len(data), step)}:
        with pytest.raises(SealError, match="altered or is cut off"):
            opened(data[:cut])
    for start in range(begin, len(data) - step, step):
        with pytest.raises(SealError):
            opened(data[:start] + data[start + step :])
    with pytest.raises(SealError):
        opened(data + data[begin:])


@settings(deadline=None)
@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_stream_does_not_open_with_any_bit_changed(at: int, bit: int) -> None:
    data = bytearray(sealed(b"content" * 20))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(SealError):
        opened(bytes(data))


def test_a_stream_opens_with_its_passphrase_or_its_key_alone() -> None:
    by_words, by_key = PassphraseWrapper("correct horse battery"), OWN
    data = sealed(b"content", by_words)
    assert opened(data, PassphraseWrapper("correct horse battery")) == b"content"
    with pytest.raises(SealError, match="the passphrase is another one"):
        opened(data, PassphraseWrapper("correct horse battery."))
    with pytest.raises(SealError, match="opens with a passphrase"):
        opened(data, by_key)
    data = sealed(b"content", by_key)
    other = SealKey.generate()
    with pytest.raises(SealError, match="with this key; expected the one it was made for"):
        opened(data, PublicKeyWrapper(other.public, other))
    with pytest.raises(SealError, match="opens with a private key"):
        opened(data, by_words)
    with pytest.raises(SealError, match="expected --key"):
        opened(data, PublicKeyWrapper(KEY.public))


def test_two_streams_of_the_same_have_nothing_in_common_but_their_form() -> None:
    words = PassphraseWrapper("correct horse battery")
    first, second = (sealed(bytes(200), words).split(b"\n", 2) for _ in range(2))
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert first[2][:64] != second[2][:64]


def test_a_passphrase_has_a_least_length_and_is_in_no_repr() -> None:
    with pytest.raises(ValueError, match="has 11 characters; expected at least 12"):
        PassphraseWrapper("x" * 11)
    assert "horse" not in repr(PassphraseWrapper("correct horse battery"))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"syncret vault 2\n{}\n",
        MAGIC,
        MAGIC + b"{}\n",
        MAGIC + b"[]\n",
        MAGIC + b'{"opens": "passphrase"' + b" " * 9000 + b"}\n",
        MAGIC + b'{"opens": "passphrase", "salt": "AA==", "n": 1099511627776, "r": 8, "p": 1}\n',
        MAGIC + b'{"opens": "passphrase", "salt": "AA==", "n": 15, "r": 8, "p": 1}\n',
        MAGIC + b'{"opens": "key", "box": "?"}\n',
    ],
)
def test_a_file_that_is_none_is_refused(head: bytes) -> None:
    for opener in (PassphraseWrapper("correct horse battery"), OWN):
        with pytest.raises(SealError):
            opened(head + bytes(100), opener)
