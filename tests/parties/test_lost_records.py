"""A server whose folder came back from a backup: what its neighbours have recorded is what the audit goes by."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from parties.audit.checks.privacy import lost_records
from parties.audit.evidence import MeshSession
from parties.audit.findings import CheckFailure
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from tests.parties.audit_runs import copy_run, make_run, read_lines, write_lines
from tests.parties.support import PARTIES

SMALL = {"run.rounds": 3, "run.noise": "distributed"}
Record = tuple[object, ...]
Certificates = dict[str, CertificateFiles]


@dataclass
class _Attempt:
    pid: int


@dataclass
class _Session:
    clean: bool
    over: bool
    present: tuple[_Attempt, ...] = (_Attempt(0), _Attempt(1), _Attempt(2))


def judged(lists: list[list[Record]], *, clean: bool = False, over: bool = True) -> dict[int, int]:
    return dict(lost_records(lists, cast(MeshSession, _Session(clean, over))))


def random_records(rng: np.random.Generator) -> list[Record]:
    return [(n, "step", "what", 1, int(rng.integers(9))) for n in range(int(rng.integers(2, 12)))]


def test_one_server_may_have_lost_any_end_of_a_broken_mesh() -> None:
    rng = np.random.default_rng(42)
    for _ in range(300):
        records = random_records(rng)
        lists = [records[: len(records) - int(rng.integers(2))] for _ in range(3)]
        who, longest = int(rng.integers(3)), max(map(len, lists))
        lists[who] = records[: int(rng.integers(len(records) + 1))]
        longest = max(map(len, lists))
        expected = {who: longest - len(lists[who])} if longest - len(lists[who]) > 1 else {}
        assert judged(lists) == expected


@pytest.mark.parametrize(
    "kind",
    ["two lost it", "whole mesh", "last mesh", "other value", "one alone has more", "no third"],
)
def test_other_differences_are_found(kind: str) -> None:
    rng = np.random.default_rng(43)
    for _ in range(100):
        records = random_records(rng)
        lists = [list(records) for _ in range(3)]
        one, two, three = rng.permutation(3)
        if kind == "two lost it":
            lists[one], lists[two] = records[:-2], records[: int(rng.integers(len(records) - 1))]
        elif kind in ("whole mesh", "last mesh"):
            lists[one] = records[: int(rng.integers(len(records) - 1))]
        elif kind == "other value":
            place = int(rng.integers(len(records)))
            lists[one][place] = (*records[place][:-1], "another")
            lists[two] = records[: int(rng.integers(len(records)))]
        elif kind == "no third":
            lists = [records, records[: int(rng.integers(len(records) - 1))]]
        else:
            lists[three] += random_records(rng)
        with pytest.raises(CheckFailure):
            judged(lists, clean=kind == "whole mesh", over=kind != "last mesh")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    folder = tmp_path_factory.mktemp("lost")
    return make_run(folder, certificates, SMALL, kill=(1, "round", 2))


def cut_back(run: Path, pid: int, seal: int, certificates: Certificates) -> None:
    """Gives the server the transcript of a backup of its ``seal``-th seal, and what it wrote after the restart.

    It has its charges again from the others, once the three have agreed.
    """
    lines = read_lines(run, pid)
    end = next(n for n, record in enumerate(lines) if record["kind"] == "resumed")
    agreed = next(n for n in range(end, len(lines)) if lines[n]["kind"] == "seal")
    cut = [n for n in range(end) if lines[n]["kind"] == "seal"][seal] + 1
    charges = [r | {"t": lines[agreed]["t"]} for r in lines[cut:end] if r["kind"] == "ledger"]
    kept = [*lines[:cut], *lines[end : agreed + 1], *charges, *lines[agreed + 1 :]]
    write_lines(run, pid, kept, certificates[PARTIES[pid]])


@pytest.mark.parametrize("pid", range(3))
@pytest.mark.parametrize("seal", [0, 1])
def test_audit_passes_a_server_restored_from_a_backup(
    interrupted: Path, certificates: Certificates, tmp_path: Path, pid: int, seal: int
) -> None:
    run = copy_run(interrupted, tmp_path)
    cut_back(run, pid, seal, certificates)
    checks = {check.name: check for check in audit_folder(run).checks}
    failed = {name for name, check in checks.items() if check.status == "fail"}
    # The first server's report was made from its whole record; one made after a restore lists what is left.
    assert failed == ({"report"} if pid == 0 else set())
    assert f"server {pid} has an earlier copy of its folder" in checks["values"].detail
    assert ("The report is" in checks["values"].detail) == (pid == 0)


def test_audit_fails_two_servers_that_lost_the_same(
    interrupted: Path, certificates: Certificates, tmp_path: Path
) -> None:
    """Then one server's word would be all that is known of an opening."""
    run = copy_run(interrupted, tmp_path)
    for pid in (0, 2):
        cut_back(run, pid, 0, certificates)
    failed = [check.name for check in audit_folder(run).checks if check.status == "fail"]
    assert "values" in failed
