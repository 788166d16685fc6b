"""Invitations: made of a study's folder, opened from a file or a URL, refused where they were changed."""

import http.server
import ssl
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parties.cli.invitations import ensure_admitted, is_invitation, open_invitation, study_path
from parties.cli.main import cli
from parties.config import load_config
from parties.foundation.errors import CertificateError, ConfigError, PartyError, StoreError
from parties.identity.invitation import (
    MAX_BYTES,
    accept_invitation,
    load_invitation,
    make_invitation,
    parse_invitation,
)
from parties.identity.study_setup import create_study
from parties.identity.tls import Authority, make_certificates
from tests.parties.hosts import make_cards
from tests.parties.small import write_small


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration in a study's folder."""
    folder = tmp_path_factory.mktemp("study")
    config, _ = write_small(folder)
    Authority.make(folder / "authority", 10)
    create_study(
        config, make_cards(folder), authority=folder / "authority", out=folder / "out", valid_days=9
    )
    return folder / "out" / config.name


def test_an_invitation_makes_the_study_it_was_made_of(study: Path, tmp_path: Path) -> None:
    made = make_invitation(study, "north")
    path = tmp_path / "small.invitation"
    path.write_text(made.text())
    found = load_invitation(path)
    assert found.owner == "north"
    accepted = accept_invitation(found, tmp_path)
    assert load_config(accepted).digest() == load_config(study).digest()
    # Again: as it is, with what the owner has added.
    text = accepted.read_text() + '\n[network]\nproxy = "http://proxy.example:3128"\n'
    accepted.write_text(text)
    assert accept_invitation(found, tmp_path) == accepted
    assert accepted.read_text() == text
    for certificate in (study.parent / "certificates").glob("*.crt"):
        copy = accepted.parent / "certificates" / certificate.name
        assert copy.read_bytes() == certificate.read_bytes()


def test_nothing_of_the_coordinators_own_is_in_an_invitation(study: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "certificates").symlink_to(study.parent / "certificates")
    text = study.read_text() + '\n[network]\nproxy = "http://inside.example:3128"\n'
    (own / study.name).write_text(text + '[compute]\ndask = "tcp://inside.example:8786"\n')
    made = make_invitation(own / study.name).text()
    assert "inside.example" not in made
    assert str(tmp_path) not in made


def test_an_invitation_takes_nothing_over_that_is_the_owners_own(study: Path) -> None:
    document = tomllib.loads(make_invitation(study).text())
    config = tomllib.loads(document["config"])
    config["network"] = {"proxy": "http://evil.example:3128", "proxy_login": "/etc/passwd"}
    config["tls"] = {name: f"/etc/{name}" for name in ("ca", "cert", "key")}
    document["config"] = tomli_w.dumps(config)
    found = parse_invitation(tomli_w.dumps(document).encode(), "it")
    assert "/etc/" not in found.text()
    assert "evil" not in found.text()


def test_an_owner_is_not_called_as_a_server(study: Path, tmp_path: Path) -> None:
    """Its certificate would replace the server's, and no audit of the result would hold."""
    path = accept_invitation(make_invitation(study, "alpha"), tmp_path)
    with pytest.raises(CertificateError, match="name of a server"):
        ensure_admitted(path, "alpha", wait_s=0)
    assert not (tmp_path / "tls").exists()


def test_another_study_of_the_name_is_not_written_over(study: Path, tmp_path: Path) -> None:
    found = make_invitation(study)
    other = found.config.override({"run.epsilon": found.config.run.epsilon / 2})
    accept_invitation(found, tmp_path)
    with pytest.raises(StoreError, match="of another study"):
        accept_invitation(type(found)(other, found.certificates), tmp_path)


def _changed(study: Path, key: str, value: object) -> bytes:
    return tomli_w.dumps({**tomllib.loads(make_invitation(study).text()), key: value}).encode()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("digest", "0" * 64, "was changed"),
        ("config", "run = 1", "expected"),
        ("config", "[", "TOML"),
        ("certificates", {}, "ca.crt: is not among"),
        ("certificates", {"ca.crt": "nonsense"}, "not an X.509"),
        ("certificates", 1, "no invitation"),
        ("invitation", 2, "this version's"),
        ("owner", "../north", "cannot be a name"),
        ("owner", 1, "is no text"),
    ],
)
def test_a_changed_invitation_is_refused_in_words(
    study: Path, key: str, value: object, said: str
) -> None:
    with pytest.raises((ConfigError, CertificateError), match=said):
        parse_invitation(_changed(study, key, value), "it")


def test_a_server_of_another_authority_is_refused(study: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, ["alpha"])
    document = tomllib.loads(make_invitation(study).text())
    texts = dict(document["certificates"]) | {"ca.crt": (tmp_path / "ca.crt").read_text()}
    with pytest.raises(CertificateError, match="not issued by"):
        parse_invitation(_changed(study, "certificates", texts), "it")


def test_an_endless_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.invitation"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="more than"):
        load_invitation(path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_an_error_or_means_nothing(study: Path, data: st.DataObject) -> None:
    whole = make_invitation(study).text().encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    try:
        found = parse_invitation(bytes(damaged), "it")
    except PartyError:
        return
    assert found.config.digest() == load_config(study).digest()


@pytest.fixture
def served(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    """The URL of an invitation at a web server of this machine, and the study's digest."""
    make_certificates(tmp_path, ["127.0.0.1"])
    body = make_invitation(study).text().encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/none":
                self.wfile.write(b"no answer of HTTP\r\n\r\n")
                return
            self.send_response(302 if self.path == "/moved" else 200)
            self.send_header("Location", "/small.invitation")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    web = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "127.0.0.1.crt", tmp_path / "127.0.0.1.key")
    web.socket = context.wrap_socket(web.socket, server_side=True)
    thread = threading.Thread(target=web.serve_forever)
    thread.start()
    trusting = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    trusting.check_hostname = False
    monkeypatch.setattr(ssl, "_create_default_https_context", lambda: trusting)
    try:
        yield f"https://127.0.0.1:{web.server_port}/small.invitation", load_config(study).digest()
    finally:
        web.shutdown()
        thread.join()
        web.server_close()


def test_a_url_gives_the_study_whose_digest_it_has(
    served: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, digest = served
    monkeypatch.chdir(tmp_path)
    assert load_config(study_path(f"{url}#{digest}")).digest() == digest
    other = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    with pytest.raises(ConfigError, match="as the URL has it"):
        open_invitation(f"{url}#{other}")
    for bare in (url, f"{url}#", f"{url}#{digest[:32]}"):
        with pytest.raises(ConfigError, match="has no digest"):
            open_invitation(bare)
    for other in ("https://127.0.0.1:1/x", url.replace("small.invitation", "none")):
        with pytest.raises(ConfigError, match="cannot be fetched"):
            open_invitation(f"{other}#{digest}")
    with pytest.raises(ConfigError, match="redirects to another address"):
        open_invitation(f"{url.replace('small.invitation', 'moved')}#{digest}")


def test_a_url_that_takes_too_long_is_given_up(
    served: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, digest = served
    times = iter((0.0, 61.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(times, 99.0))
    with pytest.raises(ConfigError, match="more than 60 s"):
        open_invitation(f"{url}#{digest}")


def test_a_configuration_is_no_invitation() -> None:
    assert not is_invitation("study/stays.toml")
    assert is_invitation("stays.invitation")


def test_invite_names_the_owner_in_the_invitation_and_its_file(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for options, name, owner in (
        (["--owner", "north"], "north.small.invitation", "north"),
        ([], "small.invitation", ""),
    ):
        made = CliRunner().invoke(cli, ["study", "invite", str(study), *options])
        assert made.exit_code == 0, made.output
        assert load_invitation(tmp_path / name).owner == owner


def test_a_check_before_the_admission_says_how_to_ask_for_it(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.invitation").write_text(make_invitation(study).text())
    Path("table.csv").write_text("a\n1\n")
    told = "syncret certs request NAME --to small.invitation"
    for config, said in (("small.invitation", True), ("small/small.toml", False)):
        asked = CliRunner().invoke(cli, ["join", config, "--data", "table.csv", "--check"])
        assert isinstance(asked.exception, CertificateError), asked.output
        assert (told in str(asked.exception)) == said
