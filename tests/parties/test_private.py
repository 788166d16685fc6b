"""One party's private things: files that nobody else reads, keys that nobody else can read, no core dumps."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from parties.config import CertificateFiles
from parties.foundation.errors import CertificateError
from parties.identity.tls import load_identity, make_certificates, signer
from parties.mpc.records import Checkpoint
from parties.mpc.replay.log import ReplayLog
from parties.mpc.storage.incoming import OutgoingUpload
from parties.mpc.storage.store import Store
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER
from tests.parties.support import make_submission, make_total, make_upload

CONFIG = "c0" * 32
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


@pytest.mark.usefixtures("umask")
def test_store_and_tape_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    tape = ReplayLog(tmp_path, 0)
    with Store(tmp_path / "store", CONFIG) as store:
        upload, digests = make_upload(make_submission()), ("aa" * 32, "bb" * 32)
        with store.submissions.incoming() as body, store.submissions.incoming() as whole:
            body.write(b"body")
            whole.write(b"sealed")
            store.submissions.accept(
                upload, body, digests, limit=3, outgoing=OutgoingUpload(whole, (1, 2))
            )
        store.totals.save(make_total(1, ("clinic-a",), np.ones(9, np.uint32)))
        store.releases.save_checkpoint(Checkpoint(1, 2, 20.5, 3, np.array([1.5])))
        store.traffic.add("clinic-a", received=1, sent=1)
        found = {
            path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777
            for path in tmp_path.rglob("*")
        }
    tape.close()
    assert {"store/lock", "store/store.sqlite-wal", "replay/WARNING.txt"} < found.keys()
    kinds = {name: 0o700 if (tmp_path / name).is_dir() else 0o600 for name in found}
    assert found == kinds


def test_database_that_was_opened_to_others_is_closed_to_them_again(tmp_path: Path) -> None:
    Database(tmp_path, CONFIG, LEDGER).close()
    (tmp_path / "store.sqlite").chmod(0o644)
    with Database(tmp_path, CONFIG, LEDGER):
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_private_keys_that_others_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    files: CertificateFiles = make_certificates(tmp_path, ["party-0"])["party-0"]
    files.key.chmod(mode)
    for use in (load_identity, signer):
        with pytest.raises(CertificateError, match=rf"party-0\.key: others may read it .*{mode:o}"):
            use(files)
    files.key.chmod(0o400)
    assert load_identity(files).name == "party-0"


ATTEMPT = """
import ctypes, resource, sys
from parties.cli.main import cli
from parties.cli.runtime import run_command_line

_, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
status = run_command_line(cli, sys.argv[1:])
dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) if sys.platform.startswith("linux") else 0
print(status, resource.getrlimit(resource.RLIMIT_CORE)[0], dumpable)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "study", "no.toml", "--pid", "0"],
        ["internal", "owners", "no.json"],
        ["join", "no.toml", "--data", "no.csv"],
        ["internal", "server", "no.toml"],
        ["internal", "flaim-clients", "no.json", "--share", "0/1"],
    ],
    ids=lambda arguments: "-".join(arguments[:2]),
)
def test_processes_that_hold_shares_or_tables_leave_no_core(arguments: list[str]) -> None:
    """Even before they have read anything: here there is nothing to read."""
    ended = subprocess.run(
        [sys.executable, "-c", ATTEMPT, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    status, limit, dumpable = map(int, ended.stdout.split())
    assert status in (3, 7), ended.stderr
    assert (limit, dumpable) == (0, 0)
