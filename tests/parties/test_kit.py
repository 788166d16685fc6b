"""Kits: each party has what it needs to do its part, and nothing that is secret gets into one."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.cli.main import cli
from parties.config import Address, load_config
from parties.foundation.errors import CertificateError, ConfigError, PartyError, StoreError
from parties.identity.join_documents import ensure_server_card, fingerprint_words
from parties.identity.study_setup import create_study
from parties.identity.tls import Authority, load_key, public_pem, self_signed
from parties.service.identity import create_identity
from parties.service.kit import make_kits
from tests.parties.commands import ROOT
from tests.parties.hosts import OWNERS, SERVERS, three_hosts

STUDY = ROOT / "examples" / "three-hosts" / "study.toml"
SILOS_STUDY = ROOT / "examples" / "tda" / "study.toml"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all hosts after the study's setup, each in a folder of its own; `study` is the coordinator's."""
    folder = tmp_path_factory.mktemp("hosts")
    three_hosts(folder, STUDY)
    return folder


def config_of(hosts: Path) -> Path:
    return hosts / "study" / "study.toml"


def cards(hosts: Path) -> list[Path]:
    return [hosts / name / f"{name}.card" for name in SERVERS]


def files_of(kit: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(kit)): path.read_bytes() for path in kit.rglob("*") if path.is_file()
    }


def test_kits_have_what_each_party_needs(hosts: Path, tmp_path: Path) -> None:
    made = make_kits(config_of(hosts), cards(hosts), OWNERS, out=tmp_path / "kits", zipped=False)
    assert [path.name for path in made] == [*SERVERS, *OWNERS]
    certificates = {f"study/certificates/{name}.crt" for name in ("ca", *SERVERS)}
    shared = {"study/study.toml", "README.md", "compose.yaml", *certificates}
    shared |= {f"servers/{name}.card" for name in SERVERS}
    for kit in made[:3]:
        assert set(files_of(kit)) == shared | {"syncret.service", "syncret.conf"}
    for kit in made[3:]:
        assert set(files_of(kit)) == shared | {f"study/certificates/{kit.name}.crt"}
    digest = load_config(config_of(hosts)).digest()
    for kit in made:
        assert load_config(kit / "study" / "study.toml").digest() == digest
        told = (kit / "README.md").read_text().split("in words")[1].split("in hex")[0]
        assert told.split() == fingerprint_words(digest).split()


def secrets_of(hosts: Path) -> set[bytes]:
    """A line of every private key that anybody has."""
    found = {
        line
        for path in hosts.rglob("*")
        if path.suffix in (".key", ".seal")
        for line in path.read_bytes().splitlines()
        if not line.startswith(b"-----") and len(line) > 20
    }
    assert len(found) > 10
    return found


@pytest.mark.parametrize("zipped", [False, True])
def test_no_kit_has_a_private_key_whatever_lies_in_the_study_s_folder(
    hosts: Path, tmp_path: Path, zipped: bool
) -> None:
    study = tmp_path / "study"
    shutil.copytree(hosts / "study", study)
    shutil.copytree(hosts / "alpha" / "tls", study / "tls")
    shutil.copy(hosts / "alpha" / "tls" / "own.key", study / "certificates" / "alpha.key")
    shutil.copytree(hosts / "authority", study / "authority")
    made = make_kits(study / "study.toml", cards(hosts), OWNERS, out=tmp_path / "o", zipped=zipped)
    everything = [path.read_bytes() for path in (tmp_path / "o").rglob("*") if path.is_file()]
    if zipped:
        archives = [zipfile.ZipFile(path) for path in made]
        everything += [archive.read(name) for archive in archives for name in archive.namelist()]
        for archive in archives:
            archive.close()
    for data in everything:
        assert b"PRIVATE KEY" not in data
        assert not any(line in data for line in secrets_of(hosts))


@pytest.mark.parametrize("name", ["certificates/alpha.crt", "certificates/north.crt", "study.toml"])
def test_a_public_file_with_a_private_key_in_it_is_refused(
    hosts: Path, tmp_path: Path, name: str
) -> None:
    study = tmp_path / "study"
    shutil.copytree(hosts / "study", study)
    key = (hosts / "alpha" / "tls" / "own.key").read_text()
    comment = "".join(f"# {line}\n" for line in key.splitlines())
    with (study / name).open("a") as file:
        file.write(comment if name.endswith("toml") else key)
    with pytest.raises(CertificateError, match="has a private key in it"):
        make_kits(study / "study.toml", (), ["north"], out=tmp_path / "kits", zipped=False)
    assert not (tmp_path / "kits").exists()


def test_kits_are_the_same_bytes_each_time(hosts: Path, tmp_path: Path) -> None:
    for out in ("first", "second"):
        make_kits(config_of(hosts), cards(hosts), ["north"], out=tmp_path / out, zipped=True)
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_a_server_s_kit_runs_it_by_systemd_and_in_a_container(hosts: Path, tmp_path: Path) -> None:
    made = make_kits(config_of(hosts), (), (), out=tmp_path / "kits", zipped=False)
    party = load_config(config_of(hosts)).parties[1]
    unit = (made[1] / "syncret.service").read_text()
    command = "serve study /var/lib/syncret/study/study.toml --pid 1 --dir /var/lib/syncret/run"
    assert f"\nExecStart=/opt/syncret/bin/syncret {command}\n" in unit
    assert "WatchdogSec" not in unit
    service = yaml.safe_load((made[1] / "compose.yaml").read_text())["services"]["beta"]
    assert service["command"] == command.split()
    assert service["ports"] == [f"{end.port}:{end.port}" for end in (party.mesh, party.ingest)]
    assert service["healthcheck"]["test"][1:4] == ["syncret", "status", "/var/lib/syncret/run"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]


def test_kits_of_a_service_join_the_servers_and_approve_the_study(
    hosts: Path, tmp_path: Path
) -> None:
    """Its keys are those of the configuration, as `study propose` has them."""
    config = load_config(config_of(hosts))
    files = []
    for party in config.parties:
        keys = tmp_path / party.name / "keys"
        keys.mkdir(parents=True, mode=0o700)
        shutil.copy(hosts / party.name / "tls" / "own.key", keys)
        own = load_key(keys / "own.key")
        assert isinstance(own, Ed25519PrivateKey)
        (keys / "own.crt").write_bytes(public_pem(self_signed(party.name, own, 10)))
        create_identity(tmp_path / party.name, party.name, party.mesh, party.ingest)
        files.append(tmp_path / party.name / f"{party.name}.server")
    made = make_kits(config_of(hosts), files, ["north"], out=tmp_path / "kits", zipped=False)
    unit = (made[0] / "syncret.service").read_text()
    assert "bin/syncret serve --dir /var/lib/syncret\n" in unit
    assert "WatchdogSec=60\n" in unit
    text = (made[0] / "README.md").read_text()
    assert "serve join servers/alpha.server servers/beta.server servers/gamma.server" in text
    assert f"study approve {config.digest()} --dir /var/lib/syncret" in text
    command = yaml.safe_load((made[0] / "compose.yaml").read_text())["services"]["alpha"]["command"]
    assert command[-4::2] == ["--listen-mesh", "--listen-ingest"]
    with pytest.raises(CertificateError, match=r"in this order, or none"):
        make_kits(config_of(hosts), files[::-1], (), out=tmp_path / "x", zipped=False)
    with pytest.raises(CertificateError, match=r"in this order, or none"):
        make_kits(config_of(hosts), files[:2], (), out=tmp_path / "x", zipped=False)


def test_kits_of_flaim_have_one_server(tmp_path: Path) -> None:
    study, table = (
        tmp_path / "stays.toml",
        'variant = "naive"\nclients = ["north", "south", "west"]',
    )
    study.write_text(f"{STUDY.read_text()}\n[flaim]\n{table}\n")
    card = tmp_path / "hub.card"
    ensure_server_card(
        "hub", {"address": Address("hub.example", 7500)}, keys=tmp_path / "tls", path=card
    )
    Authority.make(tmp_path / "authority", 10)
    authority, out = tmp_path / "authority", tmp_path / "study"
    create_study(study, [card], authority=authority, out=out, valid_days=10)
    made = make_kits(out / "stays.toml", [card], (), out=tmp_path / "kits", zipped=False)
    assert [path.name for path in made] == ["hub", *OWNERS]
    unit = (made[0] / "syncret.service").read_text()
    assert "serve study /var/lib/syncret/study/stays.toml --dir /var/lib/syncret/run\n" in unit
    assert '- "7500:7500"' in (made[0] / "compose.yaml").read_text()
    text = (made[1] / "README.md").read_text()
    assert "syncret join study/stays.toml" in text
    assert "syncret certs request north" in text


def test_kits_of_silos_have_their_commands(tmp_path: Path) -> None:
    card, authority, out = tmp_path / "hub.card", tmp_path / "authority", tmp_path / "study"
    ensure_server_card(
        "hub", {"address": Address("hub.example", 7500)}, keys=tmp_path / "tls", path=card
    )
    Authority.make(authority, 10)
    create_study(SILOS_STUDY, [card], authority=authority, out=out, valid_days=10)
    made = make_kits(out / SILOS_STUDY.name, [card], (), out=tmp_path / "kits", zipped=False)
    assert [path.name for path in made] == ["hub", *OWNERS]
    unit = (made[0] / "syncret.service").read_text()
    assert "serve study /var/lib/syncret/study/study.toml --dir /var/lib/syncret/run\n" in unit
    assert '- "7500:7500"' in (made[0] / "compose.yaml").read_text()
    assert "hub: the silos' server" in (made[0] / "README.md").read_text()
    assert "syncret join study/study.toml --data" in (made[1] / "README.md").read_text()
    keys = tmp_path / "service" / "keys"
    keys.mkdir(parents=True, mode=0o700)
    shutil.copy(tmp_path / "tls" / "own.key", keys / "own.key")
    own = load_key(keys / "own.key")
    (keys / "own.crt").write_bytes(public_pem(self_signed("hub", own, 10)))
    create_identity(keys.parent, "hub", Address("hub.example", 1), Address("hub.example", 7500))
    service = [keys.parent / "hub.server"]
    made = make_kits(out / SILOS_STUDY.name, service, (), out=tmp_path / "served", zipped=False)
    assert "serve --dir /var/lib/syncret\n" in (made[0] / "syncret.service").read_text()


def test_kits_refuse_what_belongs_to_another_study(hosts: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "alpha.card"
    other.parent.mkdir()
    ends = {"mesh": Address("a.example", 1), "ingest": Address("a.example", 2)}
    ensure_server_card("alpha", ends, keys=tmp_path / "tls", path=other)
    cases: list[tuple[Path, list[Path], list[str], type[PartyError], str]] = [
        (config_of(hosts), [other], [], CertificateError, "expected a server of the configuration"),
        (config_of(hosts), [hosts / "no.card"], [], CertificateError, "cannot be read"),
        (config_of(hosts), [], ["../north"], ConfigError, "owner: is '../north'"),
        (config_of(hosts), [], ["alpha"], ConfigError, "owner: has a name twice"),
        (STUDY, [], [], ConfigError, "expected the configuration that `syncret certs merge` made"),
    ]
    for config, cards_of, owners, kind, said in cases:
        with pytest.raises(kind, match=re.escape(said)):
            make_kits(config, cards_of, owners, out=tmp_path / "kits", zipped=False)
    spaced = tmp_path / "study"
    shutil.copytree(hosts / "study", spaced)
    (spaced / "study.toml").rename(spaced / "a study.toml")
    with pytest.raises(ConfigError, match=r"the file's name: is 'a study\.toml'"):
        make_kits(spaced / "a study.toml", (), (), out=tmp_path / "kits", zipped=False)
    assert not (tmp_path / "kits").exists()
    (tmp_path / "kits").mkdir()
    (tmp_path / "kits" / "file").touch()
    with pytest.raises(StoreError, match="is there already"):
        make_kits(config_of(hosts), (), (), out=tmp_path / "kits", zipped=False)


def test_the_command_says_what_goes_to_whom(hosts: Path, tmp_path: Path) -> None:
    arguments = [str(config_of(hosts)), *map(str, cards(hosts)), "--owner", "north"]
    out = ["--out", str(tmp_path / "kits")]
    shown = CliRunner().invoke(cli, ["kit", *arguments, *out])
    assert shown.exit_code == 0
    assert f"{tmp_path / 'kits' / 'north'}: send it to north" in shown.output
    out = ["--out", str(tmp_path / "zips"), "--zip", "--json"]
    shown = CliRunner().invoke(cli, ["kit", *arguments, *out])
    made = json.loads(shown.output)["kits"]
    assert [Path(path).name for path in made] == [f"{name}.zip" for name in (*SERVERS, "north")]
