"""Sealed boxes: they open with the one key and for the one purpose, and nothing else of them opens."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from parties.crypto import hpke
from parties.crypto.hpke import (
    OVERHEAD_BYTES,
    PUBLIC_BYTES,
    TAG_BYTES,
    SealKey,
    SealTo,
    decrypt_once,
    encrypt_once,
    sealed_size,
)
from parties.foundation.errors import CertificateError, SealError

KEY = SealKey.generate()


@given(content=st.binary(max_size=300), info=st.binary(max_size=40))
def test_seal_opens_to_its_content_and_has_the_stated_size(content: bytes, info: bytes) -> None:
    box = KEY.public.seal(content, info)
    assert len(box) == len(content) + OVERHEAD_BYTES
    assert KEY.open(box, info) == content


def test_seal_gives_another_box_each_time_and_shows_nothing_of_its_content() -> None:
    content = bytes(64)
    boxes = [KEY.public.seal(content, b"") for _ in range(2)]
    assert boxes[0] != boxes[1]
    assert all(box.count(0) < 64 for box in boxes)


@given(at=st.integers(0, OVERHEAD_BYTES + 31), bit=st.integers(0, 7))
def test_open_refuses_a_box_with_any_bit_flipped(at: int, bit: int) -> None:
    box = bytearray(KEY.public.seal(bytes(32), b"x"))
    box[at] ^= 1 << bit
    with pytest.raises(ValueError, match="does not open"):
        KEY.open(bytes(box), b"x")


@pytest.mark.parametrize("cut", [b"", b"x", bytes(OVERHEAD_BYTES - 1), bytes(5000)])
def test_open_refuses_what_is_no_box(cut: bytes) -> None:
    with pytest.raises(ValueError, match="does not open"):
        KEY.open(cut, b"")


def test_open_refuses_another_purpose_and_another_key() -> None:
    box = KEY.public.seal(b"shares", b"submission 1")
    with pytest.raises(ValueError, match="does not open"):
        KEY.open(box, b"submission 2")
    with pytest.raises(ValueError, match="does not open"):
        SealKey.generate().open(box, b"submission 1")


def test_seal_key_survives_its_file_and_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "alpha.seal"
    path.write_bytes(KEY.pem())
    path.chmod(0o600)
    again = SealKey.load(path)
    assert again.public == KEY.public
    assert again.open(KEY.public.seal(b"x", b""), b"") == b"x"
    assert repr(again) == "SealKey(...)"
    path.chmod(0o640)
    with pytest.raises(CertificateError, match="others may read it"):
        SealKey.load(path)


@pytest.mark.parametrize("content", [b"", b"garbage", KEY.pem().split(b"-----END")[0]])
def test_seal_key_refuses_what_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "alpha.seal"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(CertificateError, match=r"alpha\.seal"):
        SealKey.load(path)


def test_seal_to_reads_its_own_text_whatever_the_lines() -> None:
    text = str(KEY.public)
    assert SealTo.parse(text) == SealTo.parse(f"\n {text[:70]}\n  {text[70:]} ") == KEY.public


@pytest.mark.parametrize("text", ["", "AAAA", "not base64!", str(KEY.public)[:-8]])
def test_seal_to_refuses_what_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"base64|expected 1216"):
        SealTo.parse(text)
    assert PUBLIC_BYTES == 1216


SEGMENT = 100
ONCE = bytes(range(32))


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 100 bytes."""
    monkeypatch.setattr(hpke, "SEGMENT_BYTES", SEGMENT)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 200, 250])
@pytest.mark.usefixtures("small_segments")
def test_encrypt_once_opens_to_its_content_and_has_the_stated_size(size: int) -> None:
    content = bytes(n % 251 for n in range(size))
    sealed = encrypt_once(ONCE, content, b"x")
    assert len(sealed) == sealed_size(size)
    assert decrypt_once(ONCE, sealed, b"x") == content


@pytest.mark.usefixtures("small_segments")
def test_decrypt_once_refuses_segments_that_are_altered_moved_or_left_out() -> None:
    """Each of them is whole by itself."""
    sealed = encrypt_once(ONCE, bytes(250), b"x")
    step = SEGMENT + TAG_BYTES
    first, second, last = sealed[:step], sealed[step : 2 * step], sealed[2 * step :]
    flipped = bytes([sealed[0] ^ 1]) + sealed[1:]
    longer = encrypt_once(ONCE, bytes(350), b"x")
    for wrong in (
        flipped,
        second + first + last,
        first + last,
        first + second,
        first + second + second + last,
        sealed + longer[3 * step :],
        sealed[:-1],
        b"",
    ):
        with pytest.raises(SealError):
            decrypt_once(ONCE, wrong, b"x")
    with pytest.raises(SealError):
        decrypt_once(ONCE, sealed, b"y")
    with pytest.raises(SealError):
        decrypt_once(bytes(32), sealed, b"x")


def test_encrypt_once_of_one_segment_is_a_single_message() -> None:
    """As a common part of any usual size is."""
    sealed = encrypt_once(ONCE, b"counts", b"x")
    assert sealed == AESGCM(ONCE).encrypt(bytes(12), b"counts", b"x")
