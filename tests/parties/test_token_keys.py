"""Keys in a PKCS#11 token: the file of their URI, and a soft token where SoftHSM, OpenSC's tool and the provider are.

The provider is OpenSSL's `pkcs11-provider`: Debian has it from version 13 on; ``SYNCRET_PKCS11_PROVIDER`` names another
one's file.
"""

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parties.crypto.pkcs11_key import uri_of, uri_pem
from parties.foundation.errors import CertificateError, OutsideKeyError
from parties.identity.tls import load_key, self_signed
from parties.observability.failure_causes import Cause, cause_of
from parties.service import rotation
from parties.service.identity import KEYS, ServiceIdentity, link_key
from tests.parties.serving import Cluster, cluster, make_identities

URI = "pkcs11:token=syncret;object={};type=private?pin-source=file:{}"
_MODULES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so")
_PROVIDERS = (
    os.environ.get("SYNCRET_PKCS11_PROVIDER", ""),
    "/usr/lib/x86_64-linux-gnu/ossl-modules/pkcs11.so",
    "/usr/lib/aarch64-linux-gnu/ossl-modules/pkcs11.so",
    "/usr/lib64/ossl-modules/pkcs11.so",
)


def of(name: str, pin: object = "/run/pin") -> str:
    return URI.format(name, pin)


def test_a_uri_comes_back_from_its_pem_text() -> None:
    for uri in (of("own"), of("o" * 40), of("own", "/run/" + 150 * "p"), of("a%20b")):
        assert uri_of(uri_pem(uri)) == uri
        assert uri_of(b"# by the operator\n" + uri_pem(uri)) == uri
    assert uri_of(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n") is None
    # As the provider's own tool writes it.
    text = uri_pem(of("own")).decode()
    assert text.startswith(
        "-----BEGIN PKCS#11 PROVIDER URI-----\nMGIaGVBLQ1MjMTEgUHJvdmlkZXIgVVJJIHYxLjAM"
    )


@pytest.mark.parametrize(
    "uri",
    [
        "pkcs11:",
        "pkcs11:token=syncret;object=own",
        "pkcs11:object=own?pin-source=file:/run/pin",
        "pkcs11:token=syncret?pin-source=file:/run/pin",
        "pkcs11:token=syncret;object=own?pin-source=pin",
        "pkcs11:token=syncret;object=own?pin-value=1234",
        "pkcs11:token=syncret;object=own?pin-source=file:/run/pin&pin-value=1234",
        "pkcs11:token=syncret;object=own;pin-value=1234?pin-source=file:/run/pin",
        "pkcs11:token=syncret;object=own;object=1234?pin-source=file:/run/pin",
        "pkcs11:token=syncret;object=own?pin-source=file:/run/pin&1234",
        "pkcs11:token=syncret;object=own;pin-source=file:/run/pin",
        "pkcs11:token=syn cret;object=own?pin-source=file:/run/pin",
        "file:/own.key",
        "",
    ],
)
def test_a_uri_that_names_no_key_and_pin_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="expected pkcs11:token="):
        uri_pem(uri)


def test_a_pin_in_a_uri_is_not_printed(tmp_path: Path) -> None:
    for uri in ("pkcs11:object=own;pin-value=4711", "pkcs11:token=a;object=own?pin-value=4711"):
        with pytest.raises(CertificateError) as refused:
            link_key(tmp_path / "own.key", Path(uri))
        assert "4711" not in str(refused.value)


def test_a_damaged_pem_text_is_a_certificate_error_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "own.key"
    whole = uri_pem(of("own"))
    begin, body, end = whole.partition(b"\n")[0], whole.split(b"\n", 1)[1], b""
    body, _, end = body.rpartition(b"-----END")
    der = base64.b64decode(body)
    for bad in (b"", der[:1], der[:5], der[:-1], der + b"\0", b"\x30\x82", b"\x30\xff" + der[2:]):
        path.write_bytes(begin + b"\n" + base64.encodebytes(bad) + b"-----END" + end)
        path.chmod(0o600)
        with pytest.raises(CertificateError, match=r"own\.key: "):
            load_key(path)


def test_a_token_that_is_not_there_is_its_operators_to_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.key"
    path.write_bytes(uri_pem(of("own", tmp_path / "pin")))
    path.chmod(0o600)
    monkeypatch.setenv("OPENSSL_CONF", "/dev/null")
    for programs in (os.environ["PATH"], str(tmp_path)):
        monkeypatch.setenv("PATH", programs)
        with pytest.raises(OutsideKeyError, match="expected the pkcs11-provider") as refused:
            load_key(path)
        assert cause_of(refused.value).cause is Cause.KEY


# With a soft token.


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a PIN's file, beside a soft token with two keys, own and next."""
    module = next((path for path in _MODULES if Path(path).exists()), None)
    provider = next((path for path in _PROVIDERS if path and Path(path).exists()), None)
    tools = [shutil.which(name) for name in ("softhsm2-util", "pkcs11-tool", "openssl")]
    if not (module and provider and all(tools)):
        pytest.skip("no soft token: softhsm2, opensc and OpenSSL's pkcs11-provider")
    folder = tmp_path_factory.mktemp("token")
    (folder / "tokens").mkdir()
    (folder / "softhsm.conf").write_text(f"directories.tokendir = {folder}/tokens\n")
    (folder / "openssl.cnf").write_text(
        "openssl_conf = init\n[init]\nproviders = all\n[all]\ndefault = built-in\npkcs11 = token\n"
        f"[built-in]\nactivate = 1\n[token]\nmodule = {provider}\nactivate = 1\n"
        f"pkcs11-module-path = {module}\npkcs11-module-cache-keys = never\n"
        "pkcs11-module-quirks = no-deinit no-operation-state\n"
    )
    (folder / "pin").write_text("1234\n")
    (folder / "pin").chmod(0o600)

    def run(*words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(folder / "softhsm.conf"))
        made = ("--init-token", "--free", "--label", "syncret", "--pin", "1234", "--so-pin", "4321")
        run("softhsm2-util", *made)
        # The provider finds a private key's public half by its id.
        for number, name in (("01", "own"), ("02", "next")):
            login = ("--module", module, "--login", "--pin", "1234", "--token-label", "syncret")
            pair = (
                "--keypairgen",
                "--key-type",
                "EC:edwards25519",
                "--label",
                name,
                "--id",
                number,
            )
            run("pkcs11-tool", *login, *pair)
        patch.setenv("OPENSSL_CONF", str(folder / "openssl.cnf"))
        yield folder


def test_a_tokens_key_signs_and_is_written_nowhere(token: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.key"
    path.write_bytes(uri_pem(of("own", token / "pin")))
    path.chmod(0o600)
    key: Any = load_key(path)
    key.public_key().verify(key.sign(b"message"), b"message")
    certificate = self_signed("alpha", key, 10)
    certificate.verify_directly_issued_by(certificate)
    with pytest.raises(TypeError, match="in a token"):
        key.private_bytes_raw()
    path.write_bytes(uri_pem(of("none", token / "pin")))
    with pytest.raises(OutsideKeyError, match="does not reach this key"):
        load_key(path)


def test_services_key_in_a_token_is_replaced_by_another_one_there(
    token: Path, tmp_path: Path
) -> None:
    uri = of("own", token / "pin")
    alpha = make_identities(tmp_path, keys={"alpha": Path(uri)})[0]
    identity = ServiceIdentity.load(alpha)
    before = identity.own.key
    assert uri_of((alpha / KEYS / "own.key").read_bytes()) == uri
    with pytest.raises(CertificateError, match="has the key at work"):
        rotation.announce(identity, new_key=True, key_file=Path(uri))
    rotation.announce(identity, new_key=True, key_file=Path(of("next", token / "pin")))
    rotation.activate(identity)
    assert identity.own.key != before


@pytest.mark.slow
def test_handshakes_without_the_provider_say_what_is_missing(token: Path, tmp_path: Path) -> None:
    """In a process of its own, whose OpenSSL has another configuration."""
    alpha = make_identities(tmp_path, keys={"alpha": Path(of("own", token / "pin"))})[0]
    code = (
        "import sys\nfrom pathlib import Path\nfrom parties.identity.tls import pinned_server_context\n"
        "from parties.service.identity import ServiceIdentity\n"
        "pinned_server_context(ServiceIdentity.load(Path(sys.argv[1])).files)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(alpha)],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENSSL_CONF": "/dev/null"},
        check=False,
    )
    assert "expected the pkcs11-provider" in done.stderr
    done = subprocess.run([sys.executable, "-c", code, str(alpha)], check=False)
    assert done.returncode == 0


@pytest.fixture
def three(token: Path, tmp_path: Path) -> Iterator[Cluster]:
    """Three services; alpha's key is in the token."""
    with cluster(tmp_path, keys={"alpha": Path(of("own", token / "pin"))}) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_study_runs_with_a_servers_key_in_a_token(three: Cluster) -> None:
    """Handshakes among services, of owners and of the engine, receipts and transcripts: all are signed there."""
    three.approve(three.propose("token"))
    three.submit_when_running("token")
    out = three.folder / "whole.zip"
    three.serves[0].command("study", "result", "token", "--out", str(out))
    assert out.exists()
    keys = three.serves[0].folder.rglob("own.key")
    assert {uri_of(path.read_bytes()) is not None for path in keys} == {True}
