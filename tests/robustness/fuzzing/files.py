"""Files as fuzzing targets: files that people exchange, files in a program's folder, and archives of runs.

Half of the edited signed files are signed anew by their own key: an attacker who has made the key can sign any content.
Transcripts are chained anew, as a lying server would.
"""

import base64
import io
import json
import shutil
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mechanisms.draft import draft_domain
from mechanisms.reading import read_text
from mechanisms.table import encode
from parties.audit.bundle import public_files, unpacked_run, write_bundle
from parties.audit.runner import audit_folder
from parties.config import Address, load_config
from parties.crypto.encrypted_file import EncryptingWriter, KeyWrapper, PublicKeyWrapper
from parties.crypto.hpke import SealKey
from parties.identity.join_documents import (
    ensure_join_request,
    ensure_server_card,
    load_join_request,
    load_server_card,
)
from parties.identity.tls import load_certificate, load_key
from parties.mpc.replay.log import ReplayLog, read_replay_log
from parties.mpc.storage.store import Store
from parties.mpc.submission.state import (
    SubmissionKey,
    SubmissionState,
    WithdrawnSubmissions,
    completed_receipt,
    load_withdrawn,
    mark_complete,
    mark_withdrawn,
)
from parties.report.from_result import read_result
from parties.service.backup import manifest_of
from parties.service.identity import ServerFile
from parties.service.offline_status import offline_status
from parties.service.settings import load_settings
from parties.session.model_files import load_model
from parties.storage.database import FILE
from parties.storage.owner_budget import OwnerBudget
from parties.storage.population_budget import Release
from parties.storage.populations import TableIdentity
from parties.storage.privacy_ledger import DurableLedger
from parties.storage.release_registry import ReleaseRegistry
from protocols.transcript import START, canonical, chain, read
from tests.robustness.fuzzing.corpus import OWNERS, PARTIES, Corpus
from tests.robustness.fuzzing.messages import folder_of
from tests.robustness.fuzzing.mutate import Mutator
from tests.robustness.fuzzing.target import Target


def file_targets(corpus: Corpus) -> Iterator[tuple[str, Callable[[], Target]]]:
    """Yields each target's name and its maker, bound to the corpus."""
    for name, make in _MAKERS.items():
        yield name, partial(make, corpus)


def _damaged(draw: Mutator, data: bytes) -> bytes:
    return draw.several(draw.damage, data)


def _spoilt(draw: Mutator, data: bytes) -> bytes:
    return draw.several(draw.spoil, data)


def _json(draw: Mutator, data: bytes) -> bytes:
    return draw.json(data)


def _at(path: Path, reader: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Returns a reader that writes its input to ``path`` and reads that file."""

    def read_there(data: bytes) -> object:
        path.write_bytes(data)
        path.chmod(0o600)
        return reader(path)

    return read_there


# Files that people write.


def _toml_of(data: bytes) -> dict[str, object]:
    return tomllib.loads(data.decode())


def _config(corpus: Corpus) -> Target:
    texts = [corpus.config.resolved_toml().encode(), corpus.flaim.resolved_toml().encode()]
    parsed = {text: _toml_of(text) for text in texts}

    def reader(path: Path) -> object:
        config = load_config(path)
        return config.digest(), config.resolved_toml()

    def damage(draw: Mutator, data: bytes) -> bytes:
        return draw.toml(data, parsed[data])

    path = folder_of(corpus, "config") / "study.toml"
    return Target("config", texts, _at(path, reader), damage, share=30)


_SETTINGS = b"""[keep]
transcripts_days = 90
results_days = 365.5
[admin]
address = "127.0.0.1:7444"
clients = ["%s"]
readers = []
[traces]
endpoint = "http://127.0.0.1:4318/v1/traces"
"""


def _settings(corpus: Corpus) -> Target:
    folder, text = folder_of(corpus, "settings"), _SETTINGS % (b"ab" * 32)
    parsed = _toml_of(text)

    def damage(draw: Mutator, data: bytes) -> bytes:
        return draw.toml(data, parsed)

    reader = _at(folder / "settings.toml", lambda path: load_settings(path.parent))
    return Target("settings", [text], reader, damage, share=20)


# Files that people exchange.


def _signed_anew(text: bytes, kind: str, key: Ed25519PrivateKey) -> bytes:
    """Signs a card, request or server file anew after its content was edited, if it can be parsed at all."""
    try:
        document = _toml_of(text)
        fields = {k: v for k, v in document.items() if k not in (kind, "signature")}
        said = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        signature = key.sign(f"syncret {kind} 1\n{said}".encode())
    except (ValueError, RecursionError, TypeError):
        return text
    head, _, _ = text.rpartition(b"signature = ")
    return head + b'signature = "%s"\n' % base64.b64encode(signature)


def _signed(kind: str, key: Path) -> Callable[[Mutator, bytes], bytes]:
    private = load_key(key)
    if not isinstance(private, Ed25519PrivateKey):
        raise TypeError("our keys are Ed25519")

    def damage(draw: Mutator, data: bytes) -> bytes:
        damaged = draw.several(draw.spoil, data)
        return _signed_anew(damaged, kind, private) if draw.draw.random() < 0.5 else damaged

    return damage


def _card(corpus: Corpus) -> Target:
    folder = folder_of(corpus, "card")
    ends = {"mesh": Address("127.0.0.1", 1), "ingest": Address("127.0.0.1", 2)}
    ensure_server_card("alpha", ends, keys=folder / "keys", path=folder / "alpha.card")
    seed = (folder / "alpha.card").read_bytes()
    damage = _signed("card", folder / "keys" / "own.key")
    return Target("card", [seed], _at(folder / "other.card", load_server_card), damage, share=20)


def _request(corpus: Corpus) -> Target:
    folder = folder_of(corpus, "request")
    ensure_join_request("north", keys=folder / "keys", path=folder / "north.request")
    seed = (folder / "north.request").read_bytes()
    damage = _signed("request", folder / "keys" / "own.key")
    return Target(
        "request", [seed], _at(folder / "other.request", load_join_request), damage, share=20
    )


def _server_file(corpus: Corpus) -> Target:
    own = corpus.identity.folder
    seed = (own / f"{PARTIES[0]}.server").read_bytes()
    damage = _signed("server", own / "keys" / "own.key")
    path = folder_of(corpus, "server-file") / "other.server"
    return Target("server-file", [seed], _at(path, ServerFile.load), damage, share=15)


def _certificate(corpus: Corpus) -> Target:
    files = corpus.certificates[OWNERS[0]]
    path = folder_of(corpus, "certificate") / "x.crt"
    reader = _at(path, lambda path: load_certificate(path, "certificate"))
    return Target("certificate", [files.cert.read_bytes()], reader, _damaged, share=20)


def _key(corpus: Corpus) -> Target:
    files, path = corpus.certificates[OWNERS[0]], folder_of(corpus, "key") / "x.key"
    return Target("key", [files.key.read_bytes()], _at(path, load_key), _damaged, share=10)


def _seal(corpus: Corpus) -> Target:
    files, path = corpus.certificates[PARTIES[0]], folder_of(corpus, "seal") / "x.seal"
    return Target("seal", [files.seal.read_bytes()], _at(path, SealKey.load), _damaged, share=4)


# Tables.


def _csv(corpus: Corpus) -> Target:
    domain = corpus.config.domain
    path = folder_of(corpus, "csv") / "table.csv"

    def reader(path: Path) -> object:
        return encode(domain, read_text(path), source=path)

    return Target("csv", _tables(corpus), _at(path, reader), _spoilt, share=15)


def _draft(corpus: Corpus) -> Target:
    path = folder_of(corpus, "draft") / "table.csv"
    return Target("draft", _tables(corpus), _at(path, draft_domain), _spoilt, share=4)


def _tables(corpus: Corpus) -> list[bytes]:
    table = corpus.table
    quoted = b'"sex";"ward";"age"\r\n' + b'"f";"x";"3"\r\n"m";"y";"4"\r\n' * 9
    return [table, b"\xef\xbb\xbf" + table, quoted, table.decode().encode("utf-16")]


# Files in a program's folder.


def _state(corpus: Corpus) -> Target:
    path = folder_of(corpus, "state") / "x.state"
    return Target(
        "owner-state", [corpus.state.read_bytes()], _at(path, SubmissionState.read), _json, share=20
    )


_KEY = SubmissionKey("ab" * 32, OWNERS[0], "cd" * 32)


def _completed(corpus: Corpus) -> Target:
    path = folder_of(corpus, "completed") / "x.state"
    mark_complete(path, _KEY, {"run": "small", "receipts": [], "kept_for": []})
    reader = _at(path, lambda path: completed_receipt(path, _KEY))
    return Target("completed", [path.read_bytes()], reader, _json, share=8)


def _withdrawn(corpus: Corpus) -> Target:
    path = folder_of(corpus, "withdrawn") / "x.state"
    proof = json.dumps({"client": OWNERS[0], "servers": {}})
    mark_withdrawn(path, WithdrawnSubmissions(_KEY.config, _KEY.client, 1, ("ef" * 32,), proof))
    reader = _at(path, lambda path: load_withdrawn(path, _KEY.config, _KEY.client))
    return Target("withdrawn", [path.read_bytes()], reader, _json, share=8)


def _tape(corpus: Corpus) -> Target:
    folder = folder_of(corpus, "tape")
    tape = ReplayLog(folder, 1)
    tape.input("nonce", bytes(16))
    tape.key("private", bytes(16))
    tape.close()
    (made,) = (folder / "replay").glob("*.tape")
    seed = made.read_bytes()
    return Target("tape", [seed], _at(folder / "x.tape", read_replay_log), _damaged, share=10)


def _database(path: Path) -> bytes:
    return path.read_bytes()


def _store(corpus: Corpus) -> Target:
    """A server's store and ledger, with damaged pages."""
    folder, digest = folder_of(corpus, "store"), "ab" * 32
    with Store(folder / "made", digest) as store:
        store.set_meta("selected/1", "4")
    seed = _database(folder / "made" / FILE)

    def reader(data: bytes) -> object:
        place = folder / "read"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        (place / FILE).write_bytes(data)
        with Store(place, digest) as store:
            public = (
                store.finalized.finalized(),
                store.records.all(),
                store.releases.checkpoints(),
            )
            asked = (store.submissions.all(), *public)
            return (
                asked,
                store.submissions.page(1, ""),
                DurableLedger(store).entries,
                store.traffic.by_client(),
            )

    return Target("store", [seed], reader, _damaged, share=0.5)


def _budget(corpus: Corpus) -> Target:
    folder = folder_of(corpus, "budget")
    table = folder / "north.csv"
    table.write_bytes(corpus.table)
    source = TableIdentity.of_file(table, "north")
    release = Release("ab" * 32, "small", "distaim", 0.1, 2.0, 1e-5)
    OwnerBudget(folder / "made.sqlite").charge(source, release, "cd" * 32)

    def reader(path: Path) -> object:
        budget = OwnerBudget(path)
        return [dataset.to_dict() for dataset in budget.datasets()], budget.quote(source, release)

    seed = _database(folder / "made.sqlite")
    return Target("budget", [seed], _at(folder / "x.sqlite", reader), _damaged, share=1)


def _register(corpus: Corpus) -> Target:
    folder = folder_of(corpus, "register")
    ReleaseRegistry(folder / "made.sqlite")

    def reader(path: Path) -> object:
        return ReleaseRegistry(path).record("ab" * 32, "cd" * 16)

    seed = _database(folder / "made.sqlite")
    return Target("register", [seed], _at(folder / "x.sqlite", reader), _damaged, share=1)


# Finished runs.


def _lines(draw: Mutator, data: bytes) -> bytes:
    """Edits, drops or moves some records of a transcript, and makes its seals state the new chain."""
    records = [json.loads(line) for line in data.splitlines()]
    for _ in range(1 + int(draw.draw.expovariate(1.0))):
        at = draw.draw.randrange(len(records))
        match draw.draw.randrange(5):
            case 0:
                del records[at]
            case 1:
                records.insert(draw.draw.randrange(len(records)), records[at])
            case _:
                records[at] = draw.edit(records[at])
        if not records:
            break
    head, written = START, []
    for record in records:
        if isinstance(record, dict) and record.get("kind") == "seal":
            record = record | {"head": head.hex()}
        try:
            line = canonical(record)
        except (ValueError, TypeError, RecursionError):
            line = json.dumps(record).encode()
        head = chain(head, line)
        written.append(line + b"\n")
    return b"".join(written)


def _transcripts(corpus: Corpus) -> list[bytes]:
    return [(corpus.run / "transcripts" / f"party-{pid}.jsonl").read_bytes() for pid in range(3)]


def _transcript(corpus: Corpus) -> Target:
    path = folder_of(corpus, "transcript") / "x.jsonl"
    # Only the beginning: a whole transcript takes long to parse.
    head = b"".join(_transcripts(corpus)[0].splitlines(keepends=True)[:40])

    def damage(draw: Mutator, data: bytes) -> bytes:
        return _spoilt(draw, data) if draw.draw.random() < 0.5 else _lines(draw, data)

    return Target("transcript", [head], _at(path, read), damage, share=10)


def _past(corpus: Corpus) -> Target:
    """The folder of a server that does not run, read for its status."""
    folder = folder_of(corpus, "past")
    seed = _transcripts(corpus)[0].splitlines(keepends=True)[0]
    Store(folder / "server" / "store", "ab" * 32).close()

    def reader(path: Path) -> object:
        return offline_status(path.parent)

    where = folder / "server" / "transcript.jsonl"
    return Target("past", [seed], _at(where, reader), _json_line, share=4)


def _json_line(draw: Mutator, data: bytes) -> bytes:
    return draw.json(data) + b"\n"


def _audit(corpus: Corpus) -> Target:
    """A run in which one server's transcript is altered and chained anew."""
    run = folder_of(corpus, "audit") / "run"
    shutil.copytree(corpus.run, run, ignore=shutil.ignore_patterns("parties", "owners"))

    def reader(path: Path) -> object:
        return audit_folder(path.parent.parent).to_dict()

    where = run / "transcripts" / "party-1.jsonl"
    seed = _transcripts(corpus)[1]
    return Target("audit", [seed], _at(where, reader), _lines, share=0.3)


def _audited_report(corpus: Corpus) -> Target:
    run = folder_of(corpus, "audited-report") / "run"
    shutil.copytree(corpus.run, run, ignore=shutil.ignore_patterns("parties", "owners"))

    def reader(path: Path) -> object:
        return audit_folder(path.parent).to_dict()

    seed = (corpus.run / "report.json").read_bytes()
    return Target("audited-report", [seed], _at(run / "report.json", reader), _json, share=0.2)


def _result(corpus: Corpus) -> Target:
    path = folder_of(corpus, "result") / "result.json"
    seed = (corpus.run / "parties" / "0" / "result.json").read_bytes()
    reader = _at(path, lambda path: read_result(path.parent))
    return Target("result", [seed], reader, _json, share=5)


def _model(corpus: Corpus) -> Target:
    """A model whose tree, or whose archive of numbers, is damaged."""
    folder = folder_of(corpus, "model")
    shutil.copytree(corpus.run / "model", folder / "model")
    tree = (folder / "model" / "model.json").read_bytes()
    numbers = (folder / "model" / "marginals.npz").read_bytes()

    def reader(data: bytes) -> object:
        (folder / "model" / "model.json").write_bytes(data if data[:1] == b"{" else tree)
        (folder / "model" / "marginals.npz").write_bytes(numbers if data[:1] == b"{" else data)
        return load_model(folder).answers_q32((("sex",), ("ward", "age")))

    def damage(draw: Mutator, data: bytes) -> bytes:
        return draw.json(data) if data == tree else _archive(draw, data)

    return Target("model", [tree, numbers], reader, damage, share=5)


# Archives.


_NAMES = (
    "../out.json",
    "/tmp/out.json",
    "run/../../out",
    "C:out",
    "a\\b",
    "run/transcripts/party-0.jsonl",
    "transcripts/PARTY-0.jsonl",
    "report.json",
    "model/" * 60 + "x.npz",
    "",
    ".",
    "model/\x1b[2J.json",
    "certificates/ca.crt\0.key",
)


def _archive(draw: Mutator, data: bytes) -> bytes:
    """Returns a zip file with an entry added or renamed, a link, or a bomb; or with damaged bytes."""
    if draw.draw.random() < 0.5:
        return _damaged(draw, data)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        entries = [(item.filename, old.read(item)) for item in old.infolist()]
        at = draw.draw.randrange(len(entries))
        name, content = entries[at]
        odd = draw.draw.choice(_NAMES)
        kind = draw.draw.randrange(5)
        for number, (other, bytes_) in enumerate(entries):
            if number != at or kind in (0, 1, 2):
                new.writestr(other, bytes_)
        entry = zipfile.ZipInfo(odd if kind < 4 else name)
        entry.compress_type = draw.draw.choice(
            (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)
        )
        entry.external_attr = draw.draw.choice((0, 0o100644, 0o120777, 0o040755, 0o060666)) << 16
        bomb = b"\0" * draw.draw.choice((0, 100, 1 << 22))
        new.writestr(entry, draw.draw.choice((content, bomb, _damaged(draw, content))))
    return made.getvalue()


def _bundle(corpus: Corpus) -> Target:
    folder = folder_of(corpus, "bundle")
    write_bundle(public_files(corpus.run), folder / "run.zip")
    seed = (folder / "run.zip").read_bytes()

    def reader(path: Path) -> object:
        with unpacked_run(path) as unpacked:
            return sorted(unpacked.folder.rglob("*"))

    return Target("bundle", [seed], _at(folder / "x.zip", reader), _archive, share=2)


def _entries(draw: Mutator, entries: Sequence[tuple[str, bytes]], form: int) -> bytes:
    """Returns a tar file of ``entries``, one of them under another name, as a link, as a device, or twice."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        at = draw.draw.randrange(len(entries) + 1)
        for number, (name, content) in enumerate(entries):
            for _ in range(1 + (number == at and draw.draw.random() < 0.2)):
                entry = tarfile.TarInfo(name)
                if number == at:
                    entry.name = draw.draw.choice((*_NAMES[:-1], name))
                    entry.type = draw.draw.choice(
                        (
                            tarfile.REGTYPE,
                            tarfile.SYMTYPE,
                            tarfile.LNKTYPE,
                            tarfile.FIFOTYPE,
                            tarfile.DIRTYPE,
                        )
                    )
                    entry.linkname = draw.draw.choice(("/etc/passwd", "../../x", name))
                entry.size = len(content) if entry.isreg() else 0
                archive.addfile(entry, io.BytesIO(content) if entry.isreg() else None)
    return made.getvalue()


def _tar_of(entries: Sequence[tuple[str, bytes]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def _tar(corpus: Corpus) -> Target:
    path = folder_of(corpus, "tar") / "x.tar"
    entries = [
        (f"run/{name}", file.read_bytes()[:20_000])
        for name, file in public_files(corpus.run).items()
    ]

    def damage(draw: Mutator, data: bytes) -> bytes:
        if draw.draw.random() < 0.5:
            return _damaged(draw, data)
        return _entries(draw, entries, draw.draw.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)))

    def reader(path: Path) -> object:
        with unpacked_run(path) as unpacked:
            return sorted(unpacked.folder.rglob("*"))

    return Target("tar", [_tar_of(entries)], _at(path, reader), damage, share=2)


def _opener() -> KeyWrapper:
    key = SealKey.generate()
    return PublicKeyWrapper(key.public, key)


_MANIFEST = {
    "folder": "server",
    "made_at": "2026-01-01T00:00:00Z",
    "syncret": "1",
    "stores": [
        {"path": "store/store.sqlite", "config": "ab" * 32, "store": "cd" * 16, "charges": 3}
    ],
    "keys": False,
    "form": 1,
}


def _sealed_backup(content: bytes, opener: KeyWrapper) -> bytes:
    made = io.BytesIO()
    sink = EncryptingWriter(made, opener)
    sink.write(content)
    sink.finish()
    return made.getvalue()


def _backup(corpus: Corpus) -> Target:
    """A backup with damaged content, sealed to the public key as anyone can do."""
    opener, path = _opener(), folder_of(corpus, "backup") / "x.backup"
    manifest = json.dumps(_MANIFEST).encode()

    def reader(data: bytes) -> object:
        path.write_bytes(_sealed_backup(data, opener))
        return manifest_of(path, opener)

    entries = [("manifest.json", manifest), ("folder/transcript.jsonl", b"x" * 100)]

    def damage(draw: Mutator, data: bytes) -> bytes:
        if draw.draw.random() < 0.3:
            return _damaged(draw, data)
        if draw.draw.random() < 0.6:
            return _tar_of([("manifest.json", draw.json(manifest))])
        return _entries(draw, entries, tarfile.PAX_FORMAT)

    return Target("backup", [_tar_of(entries)], reader, damage, share=4)


def _backup_bytes(corpus: Corpus) -> Target:
    """A backup with damaged bytes of the file itself."""
    opener, path = _opener(), folder_of(corpus, "backup-bytes") / "x.backup"
    seed = _sealed_backup(_tar_of([("manifest.json", json.dumps(_MANIFEST).encode())]), opener)
    reader = _at(path, lambda path: manifest_of(path, opener))
    return Target("backup-bytes", [seed], reader, _damaged, share=4)


_MAKERS: dict[str, Callable[[Corpus], Target]] = {
    "config": _config,
    "settings": _settings,
    "card": _card,
    "request": _request,
    "server-file": _server_file,
    "certificate": _certificate,
    "key": _key,
    "seal": _seal,
    "csv": _csv,
    "draft": _draft,
    "owner-state": _state,
    "completed": _completed,
    "withdrawn": _withdrawn,
    "tape": _tape,
    "store": _store,
    "budget": _budget,
    "register": _register,
    "transcript": _transcript,
    "past": _past,
    "bundle": _bundle,
    "tar": _tar,
    "model": _model,
    "result": _result,
    "backup": _backup,
    "backup-bytes": _backup_bytes,
    "audit": _audit,
    "audited-report": _audited_report,
}
