"""Honest runs for the tests of the auditor, and how to tamper with their transcripts."""

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parties.mpc.server
from mechanisms.model import Model
from mechanisms.workload import count_marginals
from parties.config import CertificateFiles, Config, load_config
from parties.identity.tls import signer
from parties.methods.distaim import run_report
from parties.mpc.estimation import make_estimator
from parties.mpc.records import RunningTotal
from parties.mpc.storage.totals import TotalStore
from parties.report.quality import read_quality
from parties.report.verdict import verdict
from parties.session.study import Study
from protocols.transcript import START, canonical, chain, sealed
from tests.parties.mesh import EVERYONE, Cluster, make_uniform
from tests.parties.support import PARTIES, make_config

Lines = list[dict[str, Any]]


def make_run(
    folder: Path,
    certificates: Mapping[str, CertificateFiles],
    overrides: Mapping[str, object] | None = None,
    *,
    kill: tuple[int, str, int | None] | None = None,
    estimator: Callable[..., object] = make_uniform,
    owners: Sequence[str] = EVERYONE,
    capacities: Mapping[str, int] | None = None,
    rows: int = 20,
    torn: bool = False,
    tables: Callable[[Config], Mapping[str, NDArray[np.int32]]] | None = None,
    first_rounds: Mapping[str, int] | None = None,
) -> Path:
    """Three servers run to the end, `kill` and a restart between; returns the run folder as an auditor gets it.

    With `torn` the killed server had no time to sign: its transcript ends in half a record.
    """
    # Nobody is late here but a busy machine: three servers start in one process.
    overrides = {"timeouts.connect_s": 30.0, "timeouts.submit_s": 30.0, **(overrides or {})}
    if estimator is make_estimator:
        # The first model is compiled while the other two servers wait, for long on a busy machine.
        overrides = {"timeouts.receive_s": 60.0, **(overrides or {})}
    config = make_config(overrides)
    cluster = Cluster(config, folder, certificates, tables(config) if tables else {})
    started = partial(
        cluster.run, owners=owners, codes=rows, capacities=capacities, first_rounds=first_rounds
    )

    async def run() -> None:
        if kill:
            assert None not in await started(kill=kill)
            if torn:
                _tear(cluster.directory(kill[0]) / "transcript.jsonl")
        errors = await started()
        assert errors == [None] * 3, errors

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parties.mpc.server, "make_estimator", estimator)
        asyncio.run(run())
    return collect(cluster, folder / "run", model=estimator is make_estimator)


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run, and the last totals that its servers had."""

    folder: Path
    totals: Mapping[str, RunningTotal]

    @property
    def run(self) -> Path:
        """The folder as an auditor gets it."""
        return self.folder / "run"

    @property
    def config(self) -> Config:
        """The configuration, with the bins that were measured."""
        config = load_config(self.run / "config.toml")
        model = self.run / "model"
        return config.resolved(Model.load(model).domain) if model.exists() else config

    def check_counts(self, codes: NDArray[np.int32]) -> None:
        """The servers' shares are of the counts of these rows, which are coded by `config`."""
        own = [self.totals[f"server-{pid}"].share.own for pid in range(3)]
        expected = count_marginals(codes, self.config.build_workload())
        np.testing.assert_array_equal(own[0] + own[1] + own[2], expected)


def finish(
    folder: Path,
    certificates: Mapping[str, CertificateFiles],
    overrides: Mapping[str, object] | None = None,
    **options: Any,
) -> Finished:
    """Returns a run made by `make_run`, with the totals that the servers had."""
    totals: dict[str, RunningTotal] = {}
    save = TotalStore.save

    def kept(store: TotalStore, total: RunningTotal) -> None:
        totals[store.directory.parent.name] = total
        save(store, total)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TotalStore, "save", kept)
        make_run(folder, certificates, overrides, **options)
    return Finished(folder, totals)


def _tear(transcript: Path) -> None:
    lines = transcript.read_bytes().splitlines(keepends=True)
    transcript.write_bytes(b"".join(lines[:-2]) + lines[-2][:30])


def collect(cluster: Cluster, out: Path, *, model: bool = False) -> Path:
    """Collects an auditor's folder: transcripts, config, public certificates, table and report.

    The `model` only where it is one of the openings: most tests have one that has learnt nothing.
    """
    (out / "transcripts").mkdir(parents=True)
    (out / "certificates").mkdir()
    for pid, name in enumerate(PARTIES):
        source = cluster.directory(pid) / "transcript.jsonl"
        shutil.copyfile(source, out / "transcripts" / f"party-{pid}.jsonl")
        files = cluster.certificates[name]
        shutil.copyfile(files.cert, out / "certificates" / f"{name}.crt")
        shutil.copyfile(files.ca, out / "certificates" / "ca.crt")
    (out / "config.toml").write_text(_without_tls(cluster.config).resolved_toml())
    lead, config = cluster.directory(0), cluster.config
    shutil.copyfile(lead / "synthetic.csv", out / "synthetic.csv")
    if model:
        shutil.copytree(lead / "model", out / "model")
    report = run_report(Study.of(config), lead, dataset="test", wall_s={"total": 1.0})
    if model and (quality := read_quality(lead)):
        quality["verdict"] = verdict(quality, Model.load(out / "model").domain)
        report = replace(report, quality=quality)
    (out / "report.json").write_text(json.dumps(report.to_dict()))
    return out


def _without_tls(config: Config) -> Config:
    return config.override({"tls": None})


def read_lines(run: Path, pid: int) -> Lines:
    """A transcript's records."""
    text = (run / "transcripts" / f"party-{pid}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def write_lines(run: Path, pid: int, lines: Lines, key: CertificateFiles | None) -> None:
    """Write records as they are; with `key` every seal is made anew and signed by it."""
    (run / "transcripts" / f"party-{pid}.jsonl").write_bytes(sealed_anew(lines, key))


def sealed_anew(lines: Lines, key: CertificateFiles | None) -> bytes:
    """A transcript of these records; with `key` every seal is made anew and signed by it."""
    sign = signer(key) if key else None
    head, written = START, []
    for record in lines:
        if sign and record["kind"] == "seal":
            signature = sign(sealed(head, record["reason"], record["t"])).hex()
            record = record | {"head": head.hex(), "signature": signature}
        line = canonical(record)
        head = chain(head, line)
        written.append(line + b"\n")
    return b"".join(written)


def copy_run(run: Path, folder: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copytree(run, folder / "copy"))
