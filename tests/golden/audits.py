"""Outcomes of audits: the module brings them into a form that all machines have in common."""

import contextlib
import hashlib
import importlib.metadata
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from parties.audit.bundle import PACKAGE
from parties.cli.main import cli
from parties.config import load_config
from parties.foundation.exit_codes import describe
from parties.foundation.version import WIRE_VERSION, version
from parties.local.publication import is_local_run
from parties.mpc import agreement
from parties.report.document import read_document
from parties.report.public import without_pictures

Outcome = dict[str, object]
SERVERS = range(3)
_NUMBER = re.compile(r"\d+(?:[,.]\d+)*(?:e[+-]?\d+)?")
"""Figures of a sentence: a fit's may differ in the last digit on another machine."""
_ROWS, _SEED = 50, 7


@contextlib.contextmanager
def as_version(name: str, run: Path) -> Iterator[None]:
    """The program says within that it is version ``name``, and its messages are of ``run``'s version.

    No other than the recording one may replay a run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.metadata, "version", lambda _: name)
        patch.setattr(agreement, "WIRE_VERSION", _wire(run))
        version.cache_clear()
        try:
            yield
        finally:
            version.cache_clear()


def _wire(run: Path) -> int:
    for transcript in sorted(run.glob("transcripts/*.jsonl")):
        with transcript.open(encoding="utf-8") as lines:
            return int(json.loads(next(lines)).get("wire", WIRE_VERSION))
    return WIRE_VERSION


def outcome(run: Path) -> Outcome:
    """The outcome has all that `syncret audit` finds in a run, and digests of its bundle and of rows drawn from it."""
    found: Outcome = _audited(run)
    found["bundle"] = _bundled(run)
    if (run / "model").exists():
        found["sample"] = _sampled(run)
    return found


def _audited(run: Path) -> Outcome:
    replays = [run / "parties" / str(pid) for pid in SERVERS]
    options = [f"--replay={folder}" for folder in replays if (folder / "replay").exists()]
    result = CliRunner().invoke(cli, ["audit", str(run), *options, "--json"])
    if result.exception is not None and not result.stdout:
        return _failed(result.exception, run)
    status = 0 if result.exception is None else int(describe(result.exception).status)
    checks = json.loads(result.stdout)["checks"]
    return {
        "status": status,
        "checks": [[c["name"], c["status"], _NUMBER.sub("#", c["detail"])] for c in checks],
    }


def _failed(error: BaseException, run: Path) -> Outcome:
    failure = describe(error)
    return {"status": int(failure.status), "message": failure.message.replace(str(run), "RUN")}


def _bundled(run: Path) -> Outcome:
    """The digests are of all files that `syncret bundle` puts into one, its documents among them."""
    out = run.with_name("bundle.zip")
    config = load_config(run / "config.toml")
    local = is_local_run(run, config, read_document(run / "report.json") or {})
    word = ["--uncharged=Rows of nobody, drawn for this recording"] if local else []
    budget = run.with_name("budget.sqlite")
    arguments = ["bundle", str(run), f"--out={out}", *word, f"--budget={budget}"]
    result = CliRunner().invoke(cli, arguments)
    if result.exception is not None:
        return _failed(result.exception, run)
    with zipfile.ZipFile(out) as bundle:
        return {name: _digest(name, bundle.read(name)) for name in bundle.namelist()}


def _digest(name: str, content: bytes) -> str:
    """The digest is the SHA-256 of a file; another version of the drawing library makes other pictures of a page."""
    if name.endswith(".html"):
        content = without_pictures(content.decode()).encode()
    elif name == PACKAGE:
        package = json.loads(content)
        pages = [item for item in package["resources"] if item["path"].endswith(".html")]
        for page in pages:
            del page["hash"], page["bytes"]
        content = json.dumps(package).encode()
    return hashlib.sha256(content).hexdigest()


def _sampled(run: Path) -> str:
    """The digest is the SHA-256 of a table that `syncret sample` draws."""
    out = run / "more.csv"
    arguments = ["sample", str(run), f"--rows={_ROWS}", f"--seed={_SEED}", f"--out={out}"]
    result = CliRunner().invoke(cli, arguments)
    if result.exception is not None:
        raise result.exception
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    out.unlink()
    return digest
