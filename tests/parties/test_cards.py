"""Cards, requests and words: what is made, what is read from strangers, and what is refused."""

import hashlib
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemonic import Mnemonic

from parties.config import Address
from parties.crypto.hpke import SealKey
from parties.foundation.errors import CertificateError, StoreError
from parties.identity import join_documents
from parties.identity.join_documents import (
    MAX_BYTES,
    ServerCard,
    ensure_join_request,
    ensure_server_card,
    fingerprint_lines,
    fingerprint_words,
    grouped_hex,
    load_join_request,
    load_server_card,
)
from parties.identity.tls import Authority
from protocols.mesh import key_hash
from tests.parties.support import file_size_limit

ENDS = {"mesh": Address("alpha.example", 7100), "ingest": Address("alpha.example", 7443)}
FLAIM = {"address": Address("::1", 7500)}


def card_of(folder: Path, name: str = "alpha", ends: dict[str, Address] = ENDS) -> Path:
    path = folder / f"{name}.card"
    ensure_server_card(name, ends, keys=folder / "tls", path=path)
    return path


def request_of(folder: Path, name: str = "north") -> Path:
    path = folder / f"{name}.request"
    ensure_join_request(name, keys=folder / "tls", path=path)
    return path


def forged(folder: Path, kind: str, **changes: str) -> Path:
    """A file with other values, signed with its key all the same, as a stranger may write it."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    fields = {
        "name": "alpha",
        "key": hashlib.sha256(public).hexdigest(),
        "public": join_documents._base64(public),
    }
    if kind == "card":
        ends = {name: str(end) for name, end in ENDS.items()}
        fields |= ends | {"seal": str(SealKey.generate().public)}
    values = {name: value for name, value in (fields | changes).items() if value}
    path = folder / f"forged.{kind}"
    path.write_bytes(join_documents._signed(kind, values, key))
    return path


def test_words_are_bip_39_of_the_first_16_bytes() -> None:
    assert fingerprint_words("00" * 32) == " ".join(["abandon"] * 11 + ["about"])
    digest = hashlib.sha256(b"x").hexdigest()
    assert (
        Mnemonic("english").to_entropy(fingerprint_words(digest)) == bytearray.fromhex(digest)[:16]
    )


@given(st.binary(min_size=32, max_size=32), st.integers(0, 127))
def test_words_differ_when_a_bit_of_the_first_16_bytes_does(digest: bytes, bit: int) -> None:
    other = (int.from_bytes(digest) ^ 1 << (255 - bit)).to_bytes(32)
    assert fingerprint_words(digest.hex()) != fingerprint_words(other.hex())
    assert len(fingerprint_words(digest.hex()).split()) == 12
    assert Mnemonic("english").check(fingerprint_words(digest.hex()))


def test_read_out_has_all_words_and_all_digits() -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    text = " ".join(" ".join(fingerprint_lines(digest)).split())
    assert text == f"in words {fingerprint_words(digest)} in hex {grouped_hex(digest)}"
    assert grouped_hex(digest).replace(" ", "") == digest


def test_own_card_keeps_its_keys_to_the_owner(tmp_path: Path) -> None:
    path = card_of(tmp_path)
    modes = {item.name: stat.S_IMODE(item.stat().st_mode) for item in (tmp_path / "tls").iterdir()}
    assert modes == {"own.key": 0o600, "own.seal": 0o600}
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    card = load_server_card(path)
    assert card.seal == str(SealKey.load(tmp_path / "tls" / "own.seal").public)
    private = (tmp_path / "tls" / "own.key").read_text().splitlines()[1]
    assert private not in path.read_text()


def test_card_has_the_hash_that_its_certificate_has(tmp_path: Path) -> None:
    card = load_server_card(card_of(tmp_path))
    authority = Authority.make(tmp_path / "authority", 1)
    certificate = authority.issue(
        "alpha", join_documents.public_key(card.public), server=True, valid_days=1
    )
    assert key_hash(certificate) == card.key


def test_own_card_shows_the_one_that_is_there_and_makes_nothing(tmp_path: Path) -> None:
    path = card_of(tmp_path)
    before = {item: item.read_bytes() for item in tmp_path.rglob("*") if item.is_file()}
    first = load_server_card(path)
    for ends in (None, ENDS):
        assert ensure_server_card("alpha", ends, keys=tmp_path / "tls", path=path) == (first, False)
    assert {item: item.read_bytes() for item in tmp_path.rglob("*") if item.is_file()} == before


def test_own_card_with_other_addresses_has_the_same_keys(tmp_path: Path) -> None:
    first = load_server_card(card_of(tmp_path))
    moved = {"mesh": Address("::1", 1), "ingest": Address("::1", 2)}
    second = load_server_card(card_of(tmp_path, ends=moved))
    assert (second.key, second.seal) == (first.key, first.seal)
    assert second.ends == moved


def test_own_card_makes_the_key_that_is_missing_after_a_kill(tmp_path: Path) -> None:
    card_of(tmp_path)
    key = (tmp_path / "tls" / "own.key").read_bytes()
    (tmp_path / "alpha.card").unlink()
    (tmp_path / "tls" / "own.seal").unlink()
    card_of(tmp_path)
    assert (tmp_path / "tls" / "own.key").read_bytes() == key


def test_own_card_makes_no_key_beside_a_card_whose_keys_are_gone(tmp_path: Path) -> None:
    path = card_of(tmp_path)
    for name in ("own.seal", "own.key"):
        (tmp_path / "tls" / name).unlink()
        with pytest.raises(CertificateError, match=f"{name}: .*cannot be read"):
            ensure_server_card("alpha", ENDS, keys=tmp_path / "tls", path=path)
        assert not (tmp_path / "tls" / name).exists()


def test_own_card_refuses_other_keys_than_the_cards_own(tmp_path: Path) -> None:
    path = card_of(tmp_path)
    (tmp_path / "other").mkdir()
    card_of(tmp_path / "other")
    before = path.read_bytes()
    with pytest.raises(CertificateError, match="is of other keys than those in"):
        ensure_server_card("alpha", ENDS, keys=tmp_path / "other" / "tls", path=path)
    with pytest.raises(CertificateError, match="is of 'alpha'; expected 'beta'"):
        ensure_server_card("beta", ENDS, keys=tmp_path / "tls", path=path)
    with pytest.raises(CertificateError, match="with other addresses: mesh, ingest"):
        ensure_server_card("alpha", FLAIM, keys=tmp_path / "tls", path=path)
    assert path.read_bytes() == before


def test_own_card_needs_addresses_where_there_is_no_card(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="expected the server's addresses"):
        ensure_server_card("alpha", None, keys=tmp_path / "tls", path=tmp_path / "alpha.card")
    assert list(tmp_path.iterdir()) == []


def test_own_card_of_flaims_server_has_no_sealing_key(tmp_path: Path) -> None:
    card = load_server_card(card_of(tmp_path, "flaim", FLAIM))
    assert (card.of_flaim, card.seal, card.ends) == (True, None, FLAIM)
    assert [item.name for item in (tmp_path / "tls").iterdir()] == ["own.key"]


def test_own_card_refuses_a_key_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    curve = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "tls" / "own.key").write_bytes(curve)
    (tmp_path / "tls" / "own.key").chmod(0o600)
    with pytest.raises(CertificateError, match=r"own\.key: key of another kind; expected Ed25519"):
        card_of(tmp_path)


def test_own_card_says_what_the_disk_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        ensure_server_card(
            "alpha", ENDS, keys=tmp_path / "file" / "tls", path=tmp_path / "alpha.card"
        )
    with pytest.raises(StoreError, match="cannot be written: No such file"):
        ensure_server_card(
            "alpha", ENDS, keys=tmp_path / "tls", path=tmp_path / "no" / "alpha.card"
        )
    with file_size_limit(1000), pytest.raises(StoreError, match="File too large"):
        card_of(tmp_path)
    assert not (tmp_path / "alpha.card").exists()
    card_of(tmp_path)


def test_own_request_shows_the_one_that_is_there(tmp_path: Path) -> None:
    path = request_of(tmp_path)
    before = path.read_bytes()
    request, new = ensure_join_request("north", keys=tmp_path / "tls", path=path)
    assert (request, new) == (load_join_request(path), False)
    with pytest.raises(CertificateError, match="is of 'north'; expected 'south'"):
        ensure_join_request("south", keys=tmp_path / "tls", path=path)
    (tmp_path / "tls" / "own.key").unlink()
    with pytest.raises(CertificateError, match=r"own\.key: private key cannot be read"):
        ensure_join_request("north", keys=tmp_path / "tls", path=path)
    ensure_join_request("west", keys=tmp_path / "tls", path=tmp_path / "west.request")
    with pytest.raises(CertificateError, match="is of another key"):
        ensure_join_request("north", keys=tmp_path / "tls", path=path)
    assert path.read_bytes() == before


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True).filter(
    lambda name: name != "ca"
)
hosts = st.one_of(
    st.from_regex(r"[a-z0-9][a-z0-9.-]{0,60}", fullmatch=True),
    st.ip_addresses().map(str),
)
ports = st.integers(1, 65535)


@settings(max_examples=40)
@given(name=names, host=hosts, mesh=ports, ingest=ports)
def test_load_card_gives_what_own_card_wrote(
    tmp_path_factory: pytest.TempPathFactory, name: str, host: str, mesh: int, ingest: int
) -> None:
    folder = tmp_path_factory.mktemp("card")
    ends = {"mesh": Address(host, mesh), "ingest": Address(host, ingest)}
    path = folder / "x.card"
    if mesh == ingest:
        with pytest.raises(CertificateError, match="expected two addresses"):
            ensure_server_card(name, ends, keys=folder / "tls", path=path)
        return
    card, new = ensure_server_card(name, ends, keys=folder / "tls", path=path)
    assert new
    assert load_server_card(path) == card
    assert (card.name, card.ends) == (name, ends)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("written")
    return {"card": card_of(folder), "request": request_of(folder)}


@pytest.mark.parametrize("kind", ["card", "request"])
@settings(max_examples=300)
@given(data=st.data())
def test_a_flipped_bit_is_noticed_or_means_nothing(
    written: dict[str, Path], kind: str, data: st.DataObject
) -> None:
    load = {"card": load_server_card, "request": load_join_request}[kind]
    whole = written[kind].read_bytes()
    place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    flipped = bytearray(whole)
    flipped[place] ^= 1 << bit
    damaged = written[kind].with_name(f"damaged.{kind}")
    damaged.write_bytes(flipped)
    try:
        read = load(damaged)
    except CertificateError:
        return
    assert read == load(written[kind])


@pytest.mark.parametrize("kind", ["card", "request"])
@settings(max_examples=200)
@given(text=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_anything_that_is_no_card_is_refused(
    written: dict[str, Path], kind: str, text: bytes
) -> None:
    path = written[kind].with_name(f"any.{kind}")
    path.write_bytes(text)
    with pytest.raises(CertificateError):
        {"card": load_server_card, "request": load_join_request}[kind](path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('mesh = "alpha', 'mesh = "omega', "was altered"),
        ('name = "alpha"', 'name = "beta"', "was altered"),
        ("card = 1", "card = 2", "is of version '2'; expected 1"),
        ("card = 1", "card = true", "is of version 'True'"),
        ("card = 1", "request = 1", "not a card"),
        ("card = 1", 'card = 1\nnew = "x"', "has 'new'; expected the values of a card"),
        ('name = "alpha"\n', "", "has no 'name'"),
        ('name = "alpha"', "name = 7", "a value that is no text"),
        ("card = 1", "card = 1\nx = " + "[" * 5000, "not valid TOML"),
        ("card = 1", "card = 1\nx = " + "9" * 5000, "not valid TOML"),
        ("card = 1", "card = 1\n#" + "x" * MAX_BYTES, f"has more than {MAX_BYTES} bytes"),
        ('signature = "', 'signature = "%', "is not base64"),
    ],
)
def test_load_card_says_what_was_changed(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = card_of(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(CertificateError, match=said) as caught:
        load_server_card(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "../alpha"}, "cannot be a name"),
        ({"name": "ca"}, "cannot be a name"),
        ({"name": "x" * 64}, "cannot be a name"),
        ({"key": "ab" * 32}, "key is 'abab"),
        ({"mesh": "alpha.example:07100"}, "mesh is 'alpha.example:07100'; expected"),
        ({"mesh": "alpha.example:7443"}, "expected two addresses"),
        ({"mesh": "alpha"}, "expected host:port"),
        ({"mesh": ""}, "are the addresses ingest; expected mesh and ingest"),
        ({"address": "a:1"}, "are the addresses mesh, ingest, address"),
        ({"seal": ""}, "has no sealing key"),
        ({"seal": "AAAA"}, "a key of 3 bytes"),
        ({"mesh": "", "ingest": "", "address": "a:1"}, "has a sealing key"),
    ],
)
def test_load_card_refuses_what_its_key_should_not_have_signed(
    tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    assert load_server_card(forged(tmp_path, "card")).name == "alpha"
    with pytest.raises(CertificateError, match=said):
        load_server_card(forged(tmp_path, "card", **changes))


def test_load_request_refuses_a_key_that_is_none_or_another_kind(tmp_path: Path) -> None:
    assert load_join_request(forged(tmp_path, "request")).name == "alpha"
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    der = curve.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for public, said in ((b"no key", "no key"), (der, "another kind")):
        path = forged(tmp_path, "request", public=join_documents._base64(public))
        with pytest.raises(CertificateError, match=said):
            load_join_request(path)
    with pytest.raises(CertificateError, match="not a request"):
        load_join_request(forged(tmp_path, "card"))
    with pytest.raises(CertificateError, match="cannot be read: No such file"):
        load_join_request(tmp_path / "none.request")
    with pytest.raises(CertificateError, match="cannot be read: Is a directory"):
        load_join_request(tmp_path)


def test_load_card_reads_no_more_than_a_card_has(tmp_path: Path) -> None:
    path = tmp_path / "endless.card"
    os.symlink("/dev/zero", path)
    with pytest.raises(CertificateError, match="more than"):
        load_server_card(path)


def test_card_refuses_a_host_that_no_terminal_should_see(tmp_path: Path) -> None:
    card = load_server_card(card_of(tmp_path))
    with pytest.raises(CertificateError, match=r"mesh is '.x1b"):
        ServerCard(card.name, card.public, ENDS | {"mesh": Address("\x1b[2Jalpha", 1)}, card.seal)


def test_own_card_asks_for_a_new_one_when_the_run_of_the_old_one_has_ended(tmp_path: Path) -> None:
    path, keys = tmp_path / "alpha.card", tmp_path / "tls"
    first, _ = ensure_server_card("alpha", ENDS, keys=keys, path=path)
    (keys / "own.seal").unlink()
    with pytest.raises(
        CertificateError, match=r"deletes it at the end of its run.*move this one away"
    ):
        ensure_server_card("alpha", None, keys=keys, path=path)
    path.unlink()
    second, new = ensure_server_card("alpha", ENDS, keys=keys, path=path)
    assert new
    assert second.key == first.key
    assert second.seal != first.seal
