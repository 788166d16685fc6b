"""Bundles and archives of a run: what is put in, and what comes out of one that somebody else has made."""

import io
import json
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.audit import bundle
from parties.audit.bundle import public_files, unpacked_run, write_bundle
from parties.audit.runner import audit_folder
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import Status
from parties.identity.tls import private_pem
from tests.parties.audit_runs import make_run

PLAIN = {
    "config.toml": b"run",
    "report.json": b"{}",
    "synthetic.csv": b"age\n1\n",
    "transcripts/party-0.jsonl": b"{}\n",
    "certificates/ca.crt": b"certificate",
    "model/model.json": b"{}",
    "model/marginals.npz": b"numbers",
}
SECRET = {
    "certificates/ca.key": b"secret",
    "certificates/party-0.seal": b"secret",
    "parties/0/result.json": b"{}",
    "owners/codes.npy": b"secret",
    "model/.hidden": b"secret",
    "run.json": b"{}",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder by its looks."""
    return files(tmp_path / "run", PLAIN | SECRET)


def files(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tarred(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def test_write_bundle_has_the_public_files_alone_and_always_the_same_bytes(
    run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run.zip"
    assert write_bundle(public_files(run), out) == sorted(PLAIN)
    with unpacked_run(out) as unpacked:
        assert contents(unpacked.folder) == PLAIN
    assert not unpacked.folder.exists()
    for path in run.rglob("*"):
        path.touch()
    write_bundle(public_files(run), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == out.read_bytes()


def test_write_bundle_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has no transcripts/; expected the folder of a finished"):
        public_files(tmp_path)
    with pytest.raises(StoreError, match=r"ends in \.zip"):
        write_bundle({}, tmp_path / "x.rar")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("above", ["", "./", "adult/", "./adult/"])
@pytest.mark.parametrize("pack", [zipped, tarred, lambda p, m: tarred(p, m, "w")])
def test_unpacked_gives_the_files_that_an_audit_reads(
    tmp_path: Path, above: str, pack: Callable[[Path, dict[str, bytes]], Path]
) -> None:
    members = {above + name: data for name, data in (PLAIN | SECRET).items()}
    with unpacked_run(pack(tmp_path / "archive", members)) as unpacked:
        folder = unpacked.folder
        found = contents(folder)
        assert {name: found[name] for name in PLAIN} == PLAIN
        assert all(name.split("/")[0] in ("certificates", "model") for name in found.keys() - PLAIN)
        assert all(not stat.S_IMODE(p.stat().st_mode) & 0o111 for p in folder.rglob("*.*"))


def test_write_bundle_refuses_a_private_key_by_whatever_name(run: Path, tmp_path: Path) -> None:
    key = private_pem(Ed25519PrivateKey.generate())
    (run / "certificates" / "server.pem").write_bytes(b"# ours\n" + key)
    with pytest.raises(StoreError, match="holds a private key"):
        public_files(run)
    with pytest.raises(StoreError, match="holds a private key"):
        public_files(run, certificates=run / "certificates")


def test_unpacked_is_the_folder_itself_where_it_is_one(run: Path) -> None:
    with unpacked_run(run) as unpacked:
        assert unpacked.folder == run


def linked(path: Path, kind: bytes) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("transcripts/party-0.jsonl")
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    return path


def zip_linked(path: Path) -> Path:
    entry = zipfile.ZipInfo("transcripts/party-0.jsonl")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    return path


def long_header(path: Path) -> Path:
    """A header that says of itself that it has gigabytes."""
    first, entry = (tarfile.TarInfo(f"transcripts/party-{pid}.jsonl") for pid in range(2))
    entry.type, entry.size = tarfile.XHDTYPE, 1 << 33
    path.write_bytes(first.tobuf() + entry.tobuf() + bytes(10240))
    return path


def encrypted(path: Path) -> Path:
    data = bytearray(zipped(path, PLAIN).read_bytes())
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = data.find(mark)
        while place >= 0:
            data[place + offset] |= 1
            place = data.find(mark, place + 4)
    path.write_bytes(data)
    return path


def test_unpacked_takes_a_tar_that_ends_in_a_zip_file_for_a_tar(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "marginals.npz", {"numbers.npy": b"numbers"}).read_bytes()
    path = tarred(tmp_path / "run.tar", PLAIN | {"model/marginals.npz": inner}, "w")
    assert zipfile.is_zipfile(path)
    with unpacked_run(path) as unpacked:
        assert contents(unpacked.folder)["model/marginals.npz"] == inner


def cut(path: Path) -> Path:
    whole = tarred(path, {"transcripts/party-0.jsonl": bytes(range(256)) * 4000}).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return path


def damaged(path: Path) -> Path:
    whole = bytearray(zipped(path, {"transcripts/party-0.jsonl": b"text" * 99}).read_bytes())
    whole[80] ^= 1
    path.write_bytes(whole)
    return path


def renamed(path: Path, *, local: bool) -> Path:
    """A member with another name for programs that heed its extra field, or go by the header before it."""
    name = b"synthetic.csv"
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("terms.txt")
        if not local:
            said = b"\1" + zlib.crc32(b"terms.txt").to_bytes(4, "little") + name
            entry.extra = struct.pack("<2H", 0x7075, len(said)) + said
        archive.writestr(entry, b"x")
    if local:
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"terms.txt", b"table.csv", 1))
    return path


def commented(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("synthetic.csv", b"x")
        archive.comment = b"PK\5\6" + bytes(18)
    return path


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "above": (lambda p: zipped(p, {"../transcripts/party-0.jsonl": b"x"}), "leads out of it"),
    "above in a tar": (lambda p: tarred(p, {"a/../../transcripts/x.jsonl": b"x"}), "leads out of it"),
    "absolute": (lambda p: tarred(p, {"/tmp/transcripts/x.jsonl": b"x"}), "leads out of it"),
    "backslashes": (lambda p: tarred(p, {"..\\transcripts\\x.jsonl": b"x"}), "leads out of it"),
    "drive": (lambda p: zipped(p, {"C:/transcripts/x.jsonl": b"x"}), "leads out of it"),
    "symbolic link": (lambda p: linked(p, tarfile.SYMTYPE), "a link or device"),
    "hard link": (lambda p: linked(p, tarfile.LNKTYPE), "a link or device"),
    "device": (lambda p: linked(p, tarfile.CHRTYPE), "a link or device"),
    "pipe": (lambda p: linked(p, tarfile.FIFOTYPE), "a link or device"),
    "link in a zip": (zip_linked, "a link or device"),
    "twice": (
        lambda p: zipped(p, {"model/a.json": b"1", "model/A.json": b"2"}), "'model/A.json' twice",
    ),
    "two runs": (
        lambda p: zipped(p, {f"{r}/transcripts/x.jsonl": b"1" for r in "ab"}), "several runs",
    ),
    "too many": (lambda p: tarred(p, {f"more/{n}": b"" for n in range(20)}), "more than 10 files"),
    "too large": (lambda p: zipped(p, {"synthetic.csv": bytes(5000)}), "more than 4000 bytes"),
    "too large together": (
        lambda p: tarred(p, {f"model/{n}.npz": bytes(1000) for n in range(5)}), "more than 4000 bytes",
    ),
    "another name in a field": (lambda p: renamed(p, local=False), "names a file in two ways"),
    "another name before": (lambda p: renamed(p, local=True), "names a file in two ways"),
    "comment": (commented, "plain zip file|is no archive"),
    "long header": (long_header, "cannot be unpacked"),
    "encrypted": (encrypted, "cannot be unpacked: RuntimeError"),
    "cut off": (cut, "cannot be unpacked"),
    "damaged": (damaged, "cannot be unpacked"),
    "no archive": (lambda p: files(p.parent, {p.name: b"text"}) / p.name, "is no archive"),
    "empty": (lambda p: files(p.parent, {p.name: b""}) / p.name, "is no archive"),
    "not there": (lambda p: p, "is not there"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_unpacked_refuses_and_leaves_nothing_behind(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, said = HOSTILE[name]
    monkeypatch.setattr(bundle, "MAX_BYTES", 4000 if "large" in name else 1 << 24)
    monkeypatch.setattr(bundle, "MAX_FILES", 10)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    inner = tmp_path / "archives"
    inner.mkdir()
    with pytest.raises(StoreError, match=said), unpacked_run(make(inner / "archive")):
        pass
    assert not any(scratch.iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"scratch", "archives"}


def test_commands_bundle_and_audit_it(
    tmp_path: Path, certificates: dict[str, CertificateFiles], capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, certificates, {"run.rounds": 1})
    out = tmp_path / "stays.zip"
    assert run_command_line(cli, ["bundle", str(run), "--out", str(out), "--json"]) == Status.DONE
    assert len(json.loads(capsys.readouterr().out)["files"]) == 15
    assert run_command_line(cli, ["audit", str(out), "--json"]) == Status.DONE
    found = json.loads(capsys.readouterr().out)
    # The bundle has more files than the folder, which are judged one by one.
    *checks, contents_of_all = found["checks"]
    assert checks == audit_folder(run).to_dict()["checks"][:-1]  # type: ignore[index]
    assert (contents_of_all["name"], contents_of_all["status"]) == ("contents", "pass")
    assert "<h1>Audit" in (tmp_path / "stays.audit.html").read_text()
    archive = tarred(tmp_path / "x.tar.gz", {f"run/{n}": d for n, d in contents(run).items()})
    assert run_command_line(cli, ["audit", str(archive)]) == Status.DONE
    assert (tmp_path / "x.audit.html").exists()
    capsys.readouterr()
    tampered = contents(run) | {"synthetic.csv": b"sex,ward,age\n"}
    tampered_zip = zipped(tmp_path / "tampered.zip", tampered)
    assert run_command_line(cli, ["audit", str(tampered_zip)]) == Status.AUDIT
    assert "published" in capsys.readouterr().err
    assert run_command_line(cli, ["audit", str(tmp_path / "none.zip")]) == Status.STORAGE
    assert "none.zip: is not there" in capsys.readouterr().err
