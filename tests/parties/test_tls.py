"""Certificates and handshakes: real TLS on loopback, right and wrong peers."""

import asyncio
import contextlib
import datetime
import shutil
import socket
import ssl
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from parties.config import CertificateFiles
from parties.crypto.pinned_key import PinnedKey
from parties.foundation.errors import CertificateError, StoreError
from parties.identity import tls
from parties.identity.tls import (
    check_pinned_identity,
    client_context,
    explain_tls_error,
    load_identity,
    make_certificates,
    peer_name,
    pinned_client_context,
    pinned_key_in,
    pinned_server_context,
    private_pem,
    public_pem,
    self_signed,
    server_context,
    signer,
)
from tests.parties.support import file_size_limit

Certificates = dict[str, CertificateFiles]


def raw_client(ca: Path, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """A client that checks nothing of its own, as a hostile one would."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(ca)
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context


class Server:
    """An echoing TLS server that remembers who came and what arrived."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.data = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            self.names.append(peer_name(writer.get_extra_info("ssl_object")))
            data = await reader.read(100)
            self.data += data
            writer.write(data)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await listener.wait_closed()


async def talk(port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"hello")
        return await asyncio.wait_for(reader.read(100), 5)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_contexts_connect_and_name_both_peers(certificates: Certificates) -> None:
    async with listening(server_context(certificates["party-0"])) as server:
        assert (
            await talk(
                server.port,
                client_context(
                    certificates["clinic-a"], pinned_key_in(certificates["party-0"].cert)
                ),
            )
            == b"hello"
        )
        assert (
            await talk(
                server.port,
                client_context(
                    certificates["party-1"], pinned_key_in(certificates["party-0"].cert)
                ),
            )
            == b"hello"
        )
    assert server.names == ["clinic-a", "party-1"]


async def test_client_context_fails_the_handshake_when_the_server_is_another(
    certificates: Certificates,
) -> None:
    async with listening(server_context(certificates["party-1"])) as server:
        context = client_context(
            certificates["clinic-a"], pinned_key_in(certificates["party-0"].cert)
        )
        with pytest.raises(
            ssl.SSLCertVerificationError, match="is for 'party-1'; expected 'party-0'"
        ):
            await talk(server.port, context)
    assert server.data == b""


async def test_client_context_refuses_a_second_certificate_of_the_same_authority(
    certificates: Certificates, tmp_path: Path
) -> None:
    """The authority's holder can issue another certificate for a server's name; the pinned key is not in it."""
    authority = certificates["party-0"].ca
    for name in ("ca.crt", "ca.key"):
        shutil.copy(authority.with_name(name), tmp_path / name)
    minted = make_certificates(tmp_path, ["party-0"])["party-0"]
    async with listening(server_context(minted)) as server:
        context = client_context(
            certificates["clinic-a"], pinned_key_in(certificates["party-0"].cert)
        )
        with pytest.raises(ssl.SSLCertVerificationError, match="'party-0' has another key"):
            await talk(server.port, context)
    assert server.names == []


async def test_known_contexts_hold_whatever_the_clock_shows_and_for_the_pinned_key_alone(
    tmp_path: Path,
) -> None:
    """Services compare their clocks: that of a host whose clock is off has to get through to be compared."""
    files = {}
    for name in ("alpha", "beta"):
        key = ed25519.Ed25519PrivateKey.generate()
        cert, path = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
        cert.write_bytes(public_pem(self_signed(name, key, -1)))
        path.write_bytes(private_pem(key))
        files[name] = CertificateFiles(tmp_path / "known.pem", cert, path)
    certs = [item.cert.read_bytes() for item in files.values()]
    (tmp_path / "known.pem").write_bytes(b"".join(certs))
    alpha, beta = (pinned_key_in(item.cert) for item in files.values())
    server_side = pinned_server_context(files["alpha"])
    seen: list[bytes] = []
    to_alpha = pinned_client_context(files["beta"], [beta, alpha], seen.append)
    to_beta = pinned_client_context(files["beta"], [beta])
    async with listening(server_side) as server:
        assert await talk(server.port, to_alpha) == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError, match="is for 'alpha'"):
            await talk(server.port, to_beta)
    presented = x509.load_pem_x509_certificate(certs[0]).public_bytes(serialization.Encoding.DER)
    assert seen == [presented]


def test_check_holder_refuses_another_key_than_the_pinned_one(certificates: Certificates) -> None:
    files = certificates["party-0"]
    assert check_pinned_identity(files, pinned_key_in(files.cert), "party 0") == files
    with pytest.raises(CertificateError, match="the configuration expects abab"):
        check_pinned_identity(files, PinnedKey("party-0", "ab" * 32), "party 0")


def test_client_context_checks_the_name_on_blocking_sockets(certificates: Certificates) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    context = server_context(certificates["party-1"])

    def serve() -> None:
        for _ in range(2):
            plain, _ = listener.accept()
            with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as link:
                link.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        for name, right in (("party-0", False), ("party-1", True)):
            plain = socket.create_connection(listener.getsockname())
            expected = (
                contextlib.nullcontext() if right else pytest.raises(ssl.SSLError, match=name)
            )
            with (
                expected,
                client_context(
                    certificates["clinic-a"], pinned_key_in(certificates[name].cert)
                ).wrap_socket(plain) as link,
            ):
                assert peer_name(link) == name
            plain.close()
    finally:
        thread.join()
        listener.close()


async def test_client_context_refuses_a_data_owner_as_server(certificates: Certificates) -> None:
    async with listening(server_context(certificates["clinic-b"])) as server:
        context = client_context(
            certificates["clinic-a"], pinned_key_in(certificates["clinic-b"].cert)
        )
        with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
            await talk(server.port, context)


@pytest.mark.parametrize(
    ("case", "meaning"),
    [
        ("nothing", "it wants a certificate of the run's authority"),
        ("foreign", "our certificate is of an authority it does not know"),
        ("expired", "our certificate has expired"),
        ("old protocol", "it does not speak our version of TLS"),
    ],
)
async def test_server_context_tells_clients_why_it_refuses_them(
    tmp_path: Path, case: str, meaning: str
) -> None:
    run = make_certificates(tmp_path / "run", ["party-0"], ["clinic-a"])
    own, server_files = run["clinic-a"], run["party-0"]
    foreign = make_certificates(tmp_path / "foreign", [], ["clinic-a"])["clinic-a"]
    late = make_certificates(tmp_path / "run", [], ["late"], valid_days=-1)["late"]
    old = raw_client(own.ca, own.cert, own.key)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    client = {
        "nothing": raw_client(own.ca),
        "foreign": raw_client(own.ca, foreign.cert, foreign.key),
        "expired": raw_client(own.ca, late.cert, late.key),
        "old protocol": old,
    }[case]
    async with listening(server_context(server_files)) as server:
        with pytest.raises(ssl.SSLError) as caught:
            await talk(server.port, client)
    assert (
        str(explain_tls_error(caught.value, "party-0"))
        == f"party-0 refused the connection: {meaning}"
    )
    assert server.names == []


async def test_client_context_refuses_a_server_of_another_authority(
    tmp_path: Path, certificates: Certificates
) -> None:
    foreign = make_certificates(tmp_path, ["party-0"])["party-0"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(foreign.cert, foreign.key)
    async with listening(context) as server:
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            await talk(
                server.port,
                client_context(
                    certificates["clinic-a"], pinned_key_in(certificates["party-0"].cert)
                ),
            )
    assert "does not verify" in str(explain_tls_error(caught.value, "party-0"))


def test_load_identity_gives_the_common_name(certificates: Certificates) -> None:
    identity = load_identity(certificates["clinic-a"])
    assert identity.name == "clinic-a"
    left = identity.expires - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=364) < left <= datetime.timedelta(days=365)


def test_load_identity_names_the_file_and_the_reason(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, other = certificates["clinic-a"], certificates["clinic-b"]
    foreign = make_certificates(tmp_path / "foreign", ["x"])["x"]
    garbage = tmp_path / "garbage.pem"
    garbage.write_bytes(b"not a certificate")
    missing = tmp_path / "missing.pem"
    wide = tmp_path / "rsa.key"
    wide.write_bytes(pem(rsa.generate_private_key(65537, 2048)))
    for private in (garbage, wide):
        private.chmod(0o600)
    cases = [
        (CertificateFiles(good.ca, missing, good.key), missing, "cannot be read"),
        (CertificateFiles(missing, good.cert, good.key), missing, "cannot be read"),
        (CertificateFiles(good.ca, good.cert, missing), missing, "cannot be read"),
        (CertificateFiles(good.ca, garbage, good.key), garbage, "not an X.509 certificate"),
        (CertificateFiles(good.ca, good.cert, garbage), garbage, "not a private key"),
        (CertificateFiles(good.ca, good.cert, wide), wide, "expected Ed25519"),
        (CertificateFiles(good.ca, good.cert, other.key), other.key, "not the key of"),
        (CertificateFiles(foreign.ca, good.cert, good.key), good.cert, "not issued by"),
    ]
    expired = make_certificates(tmp_path / "old", [], ["late"], valid_days=-1)["late"]
    cases.append((expired, expired.cert, "expired on"))
    for files, path, reason in cases:
        with pytest.raises(CertificateError, match=reason) as caught:
            load_identity(files)
        assert str(caught.value).startswith(f"{path}: ")
    earlier = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    monkeypatch.setattr(tls, "_now", lambda: earlier)
    with pytest.raises(CertificateError, match="clock"):
        server_context(good)


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_make_certificates_keeps_keys_to_the_owner(tmp_path: Path) -> None:
    make_certificates(tmp_path / "new", ["party-0"], ["clinic-a"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
    keys = {name: mode for name, mode in modes.items() if not name.endswith(".crt")}
    assert set(keys.values()) == {0o600}
    assert sorted(keys) == ["ca.key", "clinic-a.key", "party-0.key", "party-0.seal"]
    assert sorted(modes.keys() - keys) == ["ca.crt", "clinic-a.crt", "party-0.crt"]


def test_make_certificates_adds_to_an_authority_that_is_there(tmp_path: Path) -> None:
    first = make_certificates(tmp_path, ["party-0"])["party-0"]
    authority = first.ca.read_bytes()
    second = make_certificates(tmp_path, [], ["clinic-z"])["clinic-z"]
    assert second.ca.read_bytes() == authority
    assert load_identity(second).name == "clinic-z"


@pytest.mark.parametrize(
    ("parties", "clients", "message"),
    [
        (["a", "a"], [], "names repeat"),
        (["a"], ["a"], "names repeat"),
        (["../a"], [], "cannot be a name"),
        (["ca"], [], "cannot be a name"),
        ([""], [], "cannot be a name"),
        (["a" * 64], [], "cannot be a name"),
        (["fresh", "taken"], [], "exists already"),
    ],
)
def test_make_certificates_writes_nothing_when_a_name_is_unusable(
    tmp_path: Path, parties: list[str], clients: list[str], message: str
) -> None:
    make_certificates(tmp_path, ["taken"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CertificateError, match=message):
        make_certificates(tmp_path, parties, clients)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_make_certificates_refuses_an_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        make_certificates(tmp_path / "file" / "certs", ["a"])


def test_make_certificates_leaves_no_half_pair_when_the_disk_is_full(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["party-0"])
    before = sorted(tmp_path.iterdir())
    with (
        file_size_limit(300),
        pytest.raises(StoreError, match="cannot be written: File too large"),
    ):
        make_certificates(tmp_path, ["party-1"])
    assert sorted(tmp_path.iterdir()) == before
    make_certificates(tmp_path, ["party-1"])


def test_make_certificates_leaves_alone_what_came_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*arguments: object) -> object:
        (tmp_path / "north.key").write_text("of another process")
        return real(*arguments)  # type: ignore[arg-type]

    real = tls._authority
    monkeypatch.setattr(tls, "_authority", meanwhile)
    with pytest.raises(StoreError, match="cannot be written: File exists"):
        make_certificates(tmp_path, [], ["north"])
    assert (tmp_path / "north.key").read_text() == "of another process"
    assert not (tmp_path / "north.crt").exists()


def test_signer_verifies_under_the_certificate(tmp_path: Path, certificates: Certificates) -> None:
    files = certificates["party-0"]
    key = x509.load_pem_x509_certificate(files.cert.read_bytes()).public_key()
    assert isinstance(key, ed25519.Ed25519PublicKey)
    key.verify(signer(files)(b"head"), b"head")
    curve = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "curve.key").write_bytes(pem(curve))
    (tmp_path / "curve.key").chmod(0o600)
    signature = signer(CertificateFiles(files.ca, files.cert, tmp_path / "curve.key"))(b"head")
    curve.public_key().verify(signature, b"head", ec.ECDSA(hashes.SHA256()))


def test_explain_is_none_when_the_failure_is_not_of_tls() -> None:
    assert explain_tls_error(ConnectionRefusedError("no"), "party-0") is None
    assert "failed" in str(explain_tls_error(ssl.SSLError("odd"), "party-0"))
