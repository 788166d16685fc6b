"""Conditions on a finished run, after any fault: its ledgers and its audit."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parties.audit.runner import audit_folder
from parties.config import Config
from parties.mpc.outputs import STORE_FOLDER
from parties.mpc.planning.budget import make_plan
from parties.mpc.storage.store import Store
from parties.session.study import Study
from parties.storage.privacy_ledger import DurableLedger


@dataclass(frozen=True, slots=True)
class Finished:
    """A run's servers' ``directories``, the ``certificates`` by file name, and the folder ``out`` for the auditor."""

    config: Config
    directories: Sequence[Path]
    certificates: Mapping[str, Path]
    out: Path


def judged(run: Finished, *, clocks_apart: bool = False) -> str:
    """Describes the violated conditions of a run; "" without any. ``clocks_apart`` allows one clock to be hours off."""
    plan = make_plan(Study.of(run.config))
    charged = []
    for pid, directory in enumerate(run.directories):
        with Store(directory / STORE_FOLDER, run.config.digest()) as store:
            ledger = DurableLedger(store)
            charged.append(sorted((e.round, e.step, e.rho) for e in ledger.entries))
            if ledger.spent > plan.rho * (1 + 1e-9):
                return f"server {pid} has charged {ledger.spent}, more than {plan.rho}"
    if charged[0] != charged[1] or charged[1] != charged[2]:
        return f"the ledgers differ: {charged}"
    _collect(run)
    failed = [check for check in audit_folder(run.out).checks if check.status == "fail"]
    # The audit has to report clocks that are hours apart.
    told = {"clocks"} if clocks_apart else set()
    return "; ".join(f"{c.name}: {c.detail}" for c in failed if c.name not in told)[:500]


def _collect(run: Finished) -> None:
    """Collects the run's folder as an auditor gets it."""
    out, lead = run.out, run.directories[0]
    shutil.rmtree(out, ignore_errors=True)
    (out / "transcripts").mkdir(parents=True)
    (out / "certificates").mkdir()
    for pid, directory in enumerate(run.directories):
        shutil.copyfile(directory / "transcript.jsonl", out / "transcripts" / f"party-{pid}.jsonl")
    for name, path in run.certificates.items():
        shutil.copyfile(path, out / "certificates" / name)
    (out / "config.toml").write_text(run.config.override({"tls": None}).resolved_toml())
    shutil.copyfile(lead / "synthetic.csv", out / "synthetic.csv")
    shutil.copytree(lead / "model", out / "model")
