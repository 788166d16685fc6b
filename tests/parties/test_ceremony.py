"""One configuration from a study and cards, and data owners admitted: what is made, and what is refused."""

import re
import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from parties.config import Address, CertificateFiles, Config, load_config
from parties.federation.session import server_certificate_files as flaim_files
from parties.foundation.errors import CertificateError, ConfigError, StoreError
from parties.identity import study_setup
from parties.identity.join_documents import (
    ensure_join_request,
    ensure_server_card,
    load_join_request,
    load_server_card,
)
from parties.identity.study_setup import create_study, issue_certificates
from parties.identity.tls import (
    Authority,
    client_context,
    is_for_servers,
    load_identity,
    own_certificate,
    server_context,
)
from parties.mpc.session import server_files
from tests.parties.commands import snapshot
from tests.parties.hosts import OWNERS, SERVERS, make_cards, make_requests, three_hosts
from tests.parties.small import write_small

FLAIM_TABLE = '\n[flaim]  # a federation\nvariant = "naive"\nclients = ["north", "south", "west"]\n'
DAYS = 10


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    Authority.make(tmp_path / "authority", DAYS)
    return tmp_path / "authority"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_small(tmp_path)[0]


def merged(study: Path, cards: list[Path], authority: Path) -> Config:
    return create_study(
        study, cards, authority=authority, out=study.parent / "out", valid_days=DAYS
    )


def admitted(requests: list[Path], authority: Path, out: str = "certs") -> list[Path]:
    return list(
        issue_certificates(
            requests, authority=authority, out=authority.parent / out, valid_days=DAYS
        )
    )


def flaim_card(folder: Path, name: str = "hub") -> Path:
    (folder / name).mkdir()
    path = folder / name / f"{name}.card"
    ensure_server_card(
        name, {"address": Address("127.0.0.1", 7500)}, keys=folder / name / "tls", path=path
    )
    return path


def test_merge_keeps_the_study_and_adds_the_servers_in_order(
    tmp_path: Path, study: Path, authority: Path
) -> None:
    cards = make_cards(tmp_path)
    config = merged(study, [cards[2], cards[0], cards[1]], authority)
    assert [party.name for party in config.parties] == ["gamma", "alpha", "beta"]
    for party in config.parties:
        card = load_server_card(tmp_path / party.name / f"{party.name}.card")
        assert (party.key, party.seal) == (card.key, card.seal)
        assert {"mesh": party.mesh, "ingest": party.ingest} == card.ends
    text = (tmp_path / "out" / "small.toml").read_text()
    assert text.startswith(study.read_text().rstrip())
    assert load_config(study).override({"party": config.to_dict()["party"]}).digest() == (
        config.digest()
    )
    made = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")}
    names = ("ca", *SERVERS)
    assert made == {"small.toml", *(f"certificates/{name}.crt" for name in names)}


def test_one_configuration_works_on_every_host_and_at_every_owner(
    tmp_path: Path, study: Path
) -> None:
    configs = {name: load_config(path) for name, path in three_hosts(tmp_path, study).items()}
    (digest,) = {config.digest() for config in configs.values()}
    assert len(digest) == 64
    pins = [party.pinned for party in configs["alpha"].parties]
    for pid, name in enumerate(SERVERS):
        files = server_files(configs[name], pid)
        assert load_identity(files).name == name
        server_context(files)
        client_context(files, pins[(pid + 1) % 3])
    for name in OWNERS:
        files = own_certificate(configs[name].require_tls())
        assert load_identity(files).name == name
        client_context(files, pins[0])


def test_merge_puts_flaims_server_into_its_table(
    tmp_path: Path, study: Path, authority: Path
) -> None:
    study.write_bytes((study.read_text() + FLAIM_TABLE).replace("\n", "\r\n").encode())
    config = merged(study, [flaim_card(tmp_path)], authority)
    section = config.require_flaim()
    assert (section.server, str(section.address)) == ("hub", "127.0.0.1:7500")
    assert section.key == load_server_card(tmp_path / "hub" / "hub.card").key
    assert section.clients == OWNERS
    shutil.move(tmp_path / "out", tmp_path / "hub" / "study")
    files = flaim_files(load_config(tmp_path / "hub" / "study" / "small.toml"))
    assert load_identity(files).name == "hub"


def test_merge_wants_a_flaim_table_that_takes_lines(
    tmp_path: Path, study: Path, authority: Path
) -> None:
    card, text = flaim_card(tmp_path), study.read_text()
    with pytest.raises(ConfigError, match=r"flaim: is missing; expected \[flaim\]"):
        merged(study, [card], authority)
    inline = 'flaim = {variant = "naive", clients = ["a", "b", "c"]}\n' + text
    hidden = text + '[flaim]\nclients = [\n"a", "b", "c"]\n'
    study.write_text(inline)
    with pytest.raises(ConfigError, match="does not take the cards' lines"):
        merged(study, [card], authority)
    study.write_text(hidden + 'variant = """\n[flaim]\n"""\n')
    with pytest.raises(ConfigError, match=r"flaim\.variant"):
        merged(study, [card], authority)
    study.write_text(text + '[missing]\nvalues = ["""\n[flaim]\n"""]\n' + hidden[len(text) :])
    with pytest.raises(ConfigError, match="does not take the cards' lines"):
        merged(study, [card], authority)
    for line in ('server = "hub"', 'address = "a:1"', f'key = "{"ab" * 32}"'):
        study.write_text(hidden + line)
        with pytest.raises(ConfigError, match=f"{line.split()[0]}: stands there already"):
            merged(study, [card], authority)
    study.write_text(hidden.replace('"c"', '"hub"'))
    with pytest.raises(ConfigError, match="or the server's"):
        merged(study, [card], authority)
    assert not (tmp_path / "out").exists()


def test_merge_refuses_a_study_that_has_servers_or_paths(
    tmp_path: Path, study: Path, authority: Path
) -> None:
    cards, text = make_cards(tmp_path), study.read_text()
    study.write_text(text + '[tls]\nca = "a"\ncert = "b"\nkey = "c"\n')
    with pytest.raises(ConfigError, match="tls: stands there already"):
        merged(study, cards, authority)
    study.write_text(text + '[compute]\ndask = "tls://cluster.example:8786"\n')
    with pytest.raises(ConfigError, match="one server's own copy"):
        merged(study, cards, authority)
    study.write_text(text)
    merged(study, cards, authority)
    again = tmp_path / "out" / "small.toml"
    with pytest.raises(ConfigError, match="party: stands there already"):
        create_study(again, cards, authority=authority, out=tmp_path / "new", valid_days=DAYS)
    study.write_text(text.replace("epsilon", "epsilom"))
    with pytest.raises(ConfigError, match="did you mean 'epsilon'"):
        merged(study, cards, authority)
    study.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        merged(study, cards, authority)


def test_merge_wants_three_different_cards_or_flaims(
    tmp_path: Path, study: Path, authority: Path
) -> None:
    cards = make_cards(tmp_path)
    alpha = load_server_card(cards[0])
    ends = {"mesh": Address("x", 1), "ingest": Address("x", 2)}
    twin, copy = tmp_path / "twin.card", tmp_path / "copy.card"
    ensure_server_card("twin", ends, keys=tmp_path / "alpha" / "tls", path=twin)
    ensure_server_card("beta", ends, keys=tmp_path / "copy", path=copy)
    shutil.copy(tmp_path / "alpha" / "tls" / "own.seal", tmp_path / "copy" / "own.seal")
    copy.unlink()
    ensure_server_card("delta", ends, keys=tmp_path / "copy", path=copy)
    clash = tmp_path / "clash.card"
    ensure_server_card("clash", alpha.ends, keys=tmp_path / "clash", path=clash)
    cases = [
        (cards[:2], "these are 2 cards: alpha, beta; expected three"),
        ([*cards, twin], "these are 4 cards"),
        ([cards[0], cards[0], cards[1]], f"has the name of {cards[0]}, 'alpha'"),
        ([cards[0], twin, cards[1]], f"{twin}: has the key of {cards[0]}"),
        ([cards[0], copy, cards[1]], f"{copy}: has the seal of {cards[0]}"),
        ([flaim_card(tmp_path), *cards[:2]], "these are 3 cards"),
    ]
    before = snapshot(tmp_path)
    for given, said in cases:
        with pytest.raises(CertificateError, match=re.escape(said)):
            merged(study, given, authority)
    with pytest.raises(ConfigError, match="addresses repeat"):
        merged(study, [cards[0], clash, cards[1]], authority)
    assert snapshot(tmp_path) == before


def test_merge_overwrites_nothing_and_leaves_nothing_behind(
    tmp_path: Path, study: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = make_cards(tmp_path)
    merged(study, cards, authority)
    before = snapshot(tmp_path)
    with pytest.raises(StoreError, match="is there already; expected the name of a new folder"):
        merged(study, cards, authority)
    with pytest.raises(StoreError, match="is there already"):
        create_study(study, cards, authority=authority, out=study, valid_days=DAYS)
    with pytest.raises(StoreError, match="cannot be made"):
        create_study(study, cards, authority=authority, out=study / "x", valid_days=DAYS)

    def full(*arguments: object, **more: object) -> bytes:
        raise StoreError(tmp_path, "cannot be written")

    monkeypatch.setattr(study_setup, "_issue", full)
    with pytest.raises(StoreError, match="cannot be written"):
        create_study(study, cards, authority=authority, out=tmp_path / "new", valid_days=DAYS)
    assert snapshot(tmp_path) == before


def test_merge_and_admit_want_an_authority(tmp_path: Path, study: Path) -> None:
    cards, requests = make_cards(tmp_path), make_requests(tmp_path)
    folder = tmp_path / "authority"
    with pytest.raises(CertificateError, match=r"ca\.key: private key cannot be read"):
        merged(study, cards, folder)
    with pytest.raises(CertificateError, match=r"ca\.key: private key cannot be read"):
        admitted(requests, folder)
    Authority.make(folder, DAYS)
    Authority.make(tmp_path / "other", DAYS)
    shutil.copy(tmp_path / "other" / "ca.crt", folder / "ca.crt")
    with pytest.raises(CertificateError, match="not the key of"):
        merged(study, cards, folder)
    assert not (tmp_path / "out").exists()


def test_admit_issues_for_client_use_only(tmp_path: Path, authority: Path) -> None:
    for path, name in zip(admitted(make_requests(tmp_path), authority), OWNERS, strict=True):
        assert path == tmp_path / "certs" / f"{name}.crt"
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]
        assert not is_for_servers(certificate)
        files = CertificateFiles(authority / "ca.crt", path, tmp_path / name / "tls" / "own.key")
        assert load_identity(files).name == name


def test_admit_refuses_names_that_are_taken(tmp_path: Path, study: Path, authority: Path) -> None:
    merged(study, make_cards(tmp_path), authority)
    north, south, west = make_requests(tmp_path)
    admitted([north], authority)
    thief = tmp_path / "thief.request"
    ensure_join_request("north", keys=tmp_path / "thief", path=thief)
    server = tmp_path / "server.request"
    ensure_join_request("alpha", keys=tmp_path / "alpha" / "tls", path=server)
    before = snapshot(tmp_path)
    cases = [
        ([south, north], "certs", "north.crt: exists already; expected another name or folder"),
        ([south, thief], "new", "'north' is admitted already, with another key"),
        ([south, server], "new", "'alpha' is the name of a server; expected another for a data"),
        ([south, south], "new", "has the name of"),
        ([west, north, thief], "new", "has the name of"),
    ]
    for given, out, said in cases:
        with pytest.raises(CertificateError, match=re.escape(said)):
            admitted(given, authority, out)
    with pytest.raises(StoreError, match="cannot be made"):
        admitted([south], authority, "small.toml/x")
    assert snapshot(tmp_path) == before
    # The same key may have another certificate, as when the first is about to expire.
    (again,) = admitted([north], authority, "later")
    assert again.exists()


def test_merge_refuses_a_server_with_the_name_of_a_data_owner(
    tmp_path: Path, study: Path, authority: Path
) -> None:
    ensure_join_request("alpha", keys=tmp_path / "owner", path=tmp_path / "alpha.request")
    admitted([tmp_path / "alpha.request"], authority)
    with pytest.raises(CertificateError, match="'alpha' is the name of a data owner; expected"):
        merged(study, make_cards(tmp_path), authority)
    assert not (tmp_path / "out").exists()


def test_merge_takes_a_server_with_a_new_key_and_it_is_another_configuration(
    tmp_path: Path, study: Path, authority: Path
) -> None:
    cards = make_cards(tmp_path)
    first = merged(study, cards, authority)
    ends = load_server_card(cards[0]).ends
    cards[0] = tmp_path / "new.card"
    ensure_server_card("alpha", ends, keys=tmp_path / "new", path=cards[0])
    second = create_study(study, cards, authority=authority, out=tmp_path / "two", valid_days=DAYS)
    assert second.digest() != first.digest()


def test_admit_does_not_read_further_than_a_damaged_request(
    tmp_path: Path, authority: Path
) -> None:
    north, south, _ = make_requests(tmp_path)
    south.write_text(south.read_text().replace('name = "south"', 'name = "other"'))
    before = snapshot(tmp_path)
    with pytest.raises(CertificateError, match="was altered"):
        admitted([north, south], authority)
    assert snapshot(tmp_path) == before
    assert load_join_request(north).name == "north"
