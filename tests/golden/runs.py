"""Recorded runs: the command `python -m tests.golden.runs` makes the archives in runs/ anew, by today's code.

Each is a trial on this machine, of invented rows, with real processes and real certificates; an archive has what an
audit and a replay read of its folder. Recordings hold the keys and shares of three servers: of a run of nobody's data.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tomli_w

from parties.foundation.version import version
from parties.mpc.estimation import make_estimator
from tests.golden.archives import RUNS, SUFFIX, pack, unpack
from tests.golden.audits import SERVERS, as_version, outcome
from tests.parties.audit_runs import make_run
from tests.parties.support import certificates

Section = Mapping[str, object]
LEFT_OUT = ("report.html", "log.txt", "WARNING.txt", "audit.html")
_ROWS = 60
COLUMNS: Sequence[Section] = (
    {"name": "sex", "kind": "categorical", "categories": ["f", "m"]},
    {"name": "ward", "kind": "categorical", "categories": ["x", "y", "z"]},
    {"name": "age", "kind": "integer", "low": 0, "high": 4},
)
SCORES: Sequence[Section] = (
    {"name": "age", "kind": "integer", "low": 20, "high": 80, "bins": 6},
    {"name": "sex", "kind": "categorical", "categories": ["f", "m"]},
    {"name": "score", "kind": "integer", "low": 0, "high": 100, "bins": 5},
)
CLINICS = {"name": "clinics", "columns": ["age", "sex"], "key": ["number"]}
REGISTRY = {"name": "registry", "columns": ["ward"], "key": ["person"]}
MALICIOUS = {"security": "malicious"}
INTERRUPTED = "interrupted"
"""A run whose server 0 was stopped in round 2 and started again: two meshes, and totals from before."""
RESTARTED = "restarted"
"""Another one, in which some of the possible fits exclude the last choice: about one such run in ten is."""


@dataclass(frozen=True)
class Recorded:
    """A run to record: its ``command``, what its configuration has in [run] and besides, and further ``options``.

    ``kept`` are the servers whose recordings are in the archive; under malicious security one is larger than the rest.
    """

    command: str
    run: Section = field(default_factory=dict)
    tables: Section = field(default_factory=dict)
    options: Sequence[str] = ("--clients", "3")
    kept: Sequence[int] = SERVERS

    def document(self) -> dict[str, object]:
        """The document is the run's configuration."""
        run = {"id": "golden", "epsilon": 5.0, "delta": 1e-5, "rounds": 1}
        if self.command in ("run", "flaim"):
            run |= {"iterations": 5, "final_iterations": 5}
        if self.command == "run" and "--method" not in self.options:
            run["record_replay"] = True
        return {
            "run": {key: value for key, value in {**run, **self.run}.items() if value is not None},
            "clients": {"expected": 3, "rows_per_client": 200},
            "timeouts": {"connect_s": 60.0, "receive_s": 60.0, "submit_s": 60.0},
            "column": list(COLUMNS),
            **self.tables,
        }


RECORDED: Mapping[str, Recorded] = {
    "counts": Recorded("run", {"input": "counts", "rounds": 2}),
    "counts-malicious": Recorded("run", {"input": "counts", **MALICIOUS}, kept=[0]),
    "plain": Recorded("run", {"input": "counts", "upload": "plain", "noise": "box-muller"}),
    "plain-malicious": Recorded(
        "run",
        {"input": "counts", "upload": "plain", "noise": "box-muller", **MALICIOUS},
        kept=[1],
    ),
    "rows": Recorded("run", {"input": "rows", "noise": "distributed"}),
    "rows-malicious": Recorded("run", {"input": "rows", **MALICIOUS}, kept=[2]),
    "annealed": Recorded(
        "run",
        {"input": "rows", "noise": "distributed", "schedule": "annealed", "rounds": None},
        kept=[0],
    ),
    "bins": Recorded(
        "run",
        {"input": "rows", "epsilon": 20.0},
        {"column": [*COLUMNS[:2], {**COLUMNS[2], "high": 99, "bins": "private"}]},
        kept=[0],
    ),
    "linked": Recorded("run", tables={"source": [CLINICS, REGISTRY]}, options=("--clients", "1")),
    "person": Recorded(
        "run",
        {"unit": "person"},
        {"source": [{**CLINICS, "rows_per_person": 2}, REGISTRY]},
        options=("--clients", "1"),
    ),
    "aim": Recorded("run", {"rounds": 2}, options=("--method", "aim", "--clients", "3")),
    "flaim": Recorded("flaim", {"rounds": 2}),
    "flaim-malicious": Recorded("flaim", MALICIOUS, {"flaim": {"noise": "distributed"}}),
    "flaim-naive": Recorded(
        "flaim", options=("--clients", "3", "--variant", "naive", "--grouping", "query")
    ),
    "tda": Recorded(
        "tda",
        {"rounds": 2, **MALICIOUS},
        {"tda": {"components": 2}},
        options=("--clients", "3", "--noise", "distributed"),
    ),
    "mtl": Recorded(
        "mtl",
        {"rounds": 3, "delta": 1e-3},
        {
            "column": list(SCORES),
            "mtl": {"label": "score", "lambdas": ["0", "1"], "tuning_rounds": 1, "rate": 0.2},
        },
    ),
}


NAMES = (*RECORDED, INTERRUPTED, RESTARTED)


def main() -> None:
    """The command makes and packs all runs, or those that it is given the names of, and writes their outcomes.

    With --outcomes it leaves the archives as they are, and writes what is found in them by now.
    """
    given = sys.argv[1:]
    only = "--outcomes" in given
    for name in [name for name in given if name in NAMES] or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            if not only:
                _make(name, Path(folder) / "made")
            _judge(name, Path(folder) / "kept", _version_of(name) if only else version())


def _make(name: str, folder: Path) -> None:
    folder.mkdir()
    recorded = RECORDED.get(name)
    out = _interrupted(folder) if recorded is None else _trial(recorded, folder)
    kept = SERVERS if recorded is None else recorded.kept
    archive = RUNS / f"{name}{SUFFIX}"
    pack(out, archive, _packed(out, kept))
    print(name, archive.stat().st_size)


def _version_of(name: str) -> str:
    return str(json.loads((RUNS / f"{name}.json").read_text())["version"])


def _judge(name: str, folder: Path, made: str) -> None:
    """The outcome of a run that version ``made`` has recorded goes to a file beside its archive."""
    run = unpack(RUNS / f"{name}{SUFFIX}", folder)
    with as_version(made, run):
        found = {"version": made, **outcome(run)}
    (RUNS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


def _trial(recorded: Recorded, folder: Path) -> Path:
    """A trial on this machine leaves its folder, which the function returns."""
    config, out = folder / "golden.toml", folder / "run"
    config.write_text(tomli_w.dumps(recorded.document()))
    arguments = [recorded.command, str(config), *_data(recorded, folder), *recorded.options]
    places = {f"SYNCRET_{place}": str(folder / place) for place in ("BUDGET", "REGISTER")}
    subprocess.run(
        [sys.executable, "-m", "parties", *arguments, "--out", str(out)],
        check=True,
        env=os.environ | places,
    )
    _without_paths(out / "config.toml")
    return out


def _interrupted(folder: Path) -> Path:
    """A run of three servers in this process leaves a folder as an auditor gets it, with the recordings."""
    changes = {
        "run.rounds": 2,
        "run.noise": "distributed",
        "run.iterations": 5,
        "run.final_iterations": 5,
        "run.record_replay": True,
    }
    stopped = (0, "round", 2)
    out = make_run(folder, certificates(), changes, kill=stopped, estimator=make_estimator)
    for pid in SERVERS:
        shutil.copytree(folder / f"server-{pid}" / "replay", out / "parties" / str(pid) / "replay")
    return out


def _packed(out: Path, kept: Sequence[int]) -> list[Path]:
    """The list has the files of the run's folder that an archive keeps."""
    others = [out / "parties" / str(pid) / "replay" for pid in SERVERS if pid not in kept]
    return [
        path
        for path in out.rglob("*")
        if path.is_file() and path.name not in LEFT_OUT and path.parent not in others
    ]


def _without_paths(config: Path) -> None:
    """The configuration loses the section with the places of keys."""
    config.write_text(re.sub(r"(?m)^\[tls\]\n(?:\w.*\n)*\n?", "", config.read_text()))


def _data(recorded: Recorded, folder: Path) -> list[str]:
    draw = np.random.default_rng(1)
    if "source" in recorded.tables:
        people = draw.permutation(_ROWS)
        clinics = [
            ("number", "age", "sex"),
            *((f"p{n:02}", n % 5, "fm"[n % 2]) for n in people[:40]),
        ]
        registry = [("person", "ward"), *((f" P{n:02}", "xyz"[n % 3]) for n in people[20:])]
        return [
            option
            for name, rows in (("clinics", clinics), ("registry", registry))
            for option in ("--source", f"{name}={_write(folder, name, rows)}")
        ]
    if recorded.command == "mtl":
        age, sex = draw.integers(20, 81, _ROWS), draw.integers(0, 2, _ROWS)
        scores = [
            ("age", "sex", "score"),
            *((a, "fm"[s], a + 10 * s) for a, s in zip(age, sex, strict=True)),
        ]
        return ["--data", _write(folder, "scores", scores)]
    codes = draw.integers(0, (2, 3, 5), (_ROWS, 3))
    rows = [("sex", "ward", "age"), *(("fm"[s], "xyz"[w], a) for s, w, a in codes)]
    return ["--data", _write(folder, "rows", rows)]


def _write(folder: Path, name: str, rows: Sequence[Sequence[object]]) -> str:
    path = folder / f"{name}.csv"
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return str(path)


if __name__ == "__main__":
    main()
