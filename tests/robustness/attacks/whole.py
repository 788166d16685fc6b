"""Whole runs of DistAIM on made-up owners, by the servers' own code (`parties.mpc.computation`).

``WHOLE`` serves attacks on the parts that only whole runs have: agreement, listing and comparison of owners, broadcasts
of models, the end, a restart. Stores are in a temporary folder. All values here are public: the data is made up.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from mechanisms.aim import AimResult, Estimate, Measurement
from parties.config import COUNTS_INPUT, MALICIOUS, SEMI_HONEST, Config, config_from_dict
from parties.identity.tls import authority_bytes, make_certificates, public_keys
from parties.mpc.computation import compute
from parties.mpc.estimation import LEAD
from parties.mpc.finishing import LeadDuties
from parties.mpc.inputs import form_for, input_forms
from parties.mpc.outputs import CostsFile
from parties.mpc.participants.control import AdmissionControl
from parties.mpc.participants.listing import Page
from parties.mpc.planning.budget import make_plan
from parties.mpc.private_bins import first_workload
from parties.mpc.records import StoredSubmission
from parties.mpc.replay.effects import Effects, ParticipantView
from parties.mpc.server_folder import ServerFolder
from parties.mpc.session import MpcSession
from parties.mpc.storage.store import Store
from parties.mpc.submission.messages import RING_BITS, Submission
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.observability.events import Event, Progress
from parties.observability.status import RunInfo, RunStatus
from parties.session.result_digests import ResultDigests
from parties.session.study import Study
from protocols.context import Context, Costs
from protocols.upload import UploadSeeds
from tests.robustness.attacks.mesh import Program, run

_OWNERS = ("clinic-a", "clinic-b", "clinic-c")
_ROWS, _CAPACITY = 12, 20
_SERVERS = ("server-0", "server-1", "server-2")
_COLUMNS: Sequence[Mapping[str, object]] = (
    {"name": "sex", "kind": "categorical", "categories": ["f", "m"]},
    {"name": "age", "kind": "integer", "low": 0, "high": 6},
)
_FINE = {"name": "age", "kind": "integer", "low": 0, "high": 6, "bins": "private", "coarse": 4}
_PRIVATE = {
    "column": [_COLUMNS[0], _FINE],
    "run.input": "rows",
    "run.epsilon": 20.0,
    "run.rounds": 1,
}
_ANNEALED = {"run.schedule": "annealed", "run.rounds": None, "run.epsilon": 20.0}


@dataclass(frozen=True, slots=True)
class _Upload:
    """A server's share of one owner's submission: its record and its body."""

    stored: StoredSubmission
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _MadeUpSubmissions:
    """``SubmissionView`` of made-up uploads, as if their owners had sent them; the rest is in a store."""

    store: Store
    uploads: Mapping[str, _Upload]

    def page(self, up_to_round: int, after: str, revoked: Collection[str] = ()) -> Page:
        """See ``SubmissionView.page``; all undecided uploads are on one page."""
        known = self.store.registry.find(self.uploads)
        held = (self.uploads[client].stored for client in sorted(self.uploads.keys() - known))
        return Page(tuple(s for s in held if s.submission.first_round <= up_to_round))

    def stored(self, client: str, upload: str) -> StoredSubmission:
        """See ``SubmissionView.stored``."""
        return self.uploads[client].stored

    def count(self) -> int:
        """See ``SubmissionView.count``."""
        return len(self.uploads)

    def read(self, client: str, version: int = 1) -> bytes:
        """See ``SubmissionView.read``."""
        return self.uploads[client].body

    def settle(self, client: str, version: int, withdrawal: SignedWithdrawal | None = None) -> None:
        """See ``SubmissionView.settle``."""
        self.store.submissions.settle(client, version, withdrawal)


class _Stopped(Exception):
    """Raised to stop a server."""


@dataclass(frozen=True, slots=True)
class _StoppedAfter:
    """Sink that stops a server after ``round``; None never stops it."""

    round: int | None

    def take(self, event: Event) -> None:
        """Raises ``_Stopped`` at the end of the round."""
        ended = event.name == "round-done" and self.round is not None
        if ended and event.fields.get("done") == self.round:
            raise _Stopped


class _Nonce(Effects):
    """Effects without chance: a server's nonce is the same in every run, and ``uploads`` are there."""

    def __init__(self, uploads: Mapping[str, _Upload]) -> None:
        self._uploads = uploads

    def participants(self, store: Store) -> ParticipantView:
        """See ``Effects.participants``."""
        made_up = _MadeUpSubmissions(store, self._uploads)
        return replace(super().participants(store), submissions=made_up)

    def once(self, name: str, take: object) -> bytes:
        """See ``Effects.once``."""
        return bytes(16) if name == "nonce" else super().once(name, take)  # type: ignore[arg-type]


class _Uniform:
    """An estimator that answers at once without learning: models are public and only affect the quality of choices."""

    def __init__(self, study: Study) -> None:
        workload = study.workload
        sizes = [workload.domain.size(query) for query in workload.candidates]
        self._answers = np.concatenate([np.full(n, (1 << 32) // n - 1, np.uint32) for n in sizes])
        self._allowed = np.ones(len(sizes), np.bool_)

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """See ``mechanisms.aim.Estimator``."""
        return Estimate(self._allowed, self._answers)


def _nothing_written(result: AimResult, study: Study) -> ResultDigests:
    return ResultDigests("00" * 32, "00" * 32, 0)


@lru_cache
def _authority() -> tuple[bytes, tuple[Mapping[str, str], ...]]:
    """Returns the authority's certificate, and the servers' keys as a configuration has them."""
    with tempfile.TemporaryDirectory() as name:
        files = make_certificates(Path(name), _SERVERS)
        keys = tuple(public_keys(files[s].cert, files[s].seal) for s in _SERVERS)
        return authority_bytes(files[_SERVERS[0]]), keys


def _config(changes: Mapping[str, object], *, malicious: bool) -> Config:
    _, keys = _authority()
    servers = [
        {"name": name, "mesh": f"127.0.0.1:{2 * i + 1}", "ingest": f"127.0.0.1:{2 * i + 2}", **key}
        for i, (name, key) in enumerate(zip(_SERVERS, keys, strict=True))
    ]
    config = config_from_dict(
        {
            "run": {
                "id": "attack",
                "epsilon": 2.0,
                "delta": 1e-5,
                "rounds": 2,
                "input": COUNTS_INPUT,
                "security": MALICIOUS if malicious else SEMI_HONEST,
            },
            "workload": {"degree": 2, "count": "all"},
            "clients": {
                "expected": len(_OWNERS),
                "minimum": 1,
                "rows_per_client": _CAPACITY,
            },
            "column": list(_COLUMNS),
            "party": servers,
        },
        source="attacks",
        base=Path(),
    )
    return config.override(changes) if changes else config


def _uploads(config: Config, pid: int) -> dict[str, _Upload]:
    """Returns server ``pid``'s uploads of all owners, who come in round 1; of two rounds, the last comes in round 2."""
    workload = first_workload(config) or config.build_workload()
    form, found = form_for(Study(config, workload), _CAPACITY), {}
    form = input_forms(Study(config, workload))[form.name]
    for number, owner in enumerate(_OWNERS):
        codes = np.zeros((_ROWS, len(config.domain.shape)), np.int32)
        codes[::4] = 1
        seeds = UploadSeeds(bytes([number]) * 16, bytes([number + 100]) * 16)
        body = form.share(form.values(codes, _CAPACITY), seeds).bodies[pid]
        late = number == len(_OWNERS) - 1 and (config.run.rounds or 0) > 1
        submission = Submission(
            config.run.id,
            owner,
            config.digest(),
            config.build_workload().digest(),
            config.build_workload().maximal_cells,
            RING_BITS,
            form.name,
            _CAPACITY,
            2 if late else 1,
            f"{number:032x}",
        )
        own, following = (d.hex() for d in form.component_digests(pid, body, _CAPACITY))
        stored = StoredSubmission.of(
            submission, submission.digest(), "00" * 32, own, following, len(body), 0.0
        )
        found[owner] = _Upload(stored, body)
    return found


async def _server(ctx: Context, config: Config, folder: Path, stop_after: int | None) -> None:
    """Runs one server in ``folder`` to its end, from the state of its store."""
    study, pid = Study.of(config), ctx.pid
    directory = folder / str(pid)
    directory.mkdir(exist_ok=True)
    effects = _Nonce(_uploads(config, pid))
    lead = LeadDuties(_Uniform, _nothing_written) if pid == LEAD else None
    with Store(directory / "store", config.digest()) as store:
        path = directory / "transcript.jsonl"
        transcript = effects.transcript(path, sign=bytes, header={})
        session = MpcSession(
            study=study,
            pid=pid,
            plan=make_plan(study),
            folder=ServerFolder(directory, store, transcript),
            effects=effects,
            progress=Progress(_StoppedAfter(stop_after)),
            status=RunStatus(RunInfo.of_server(config, pid)),
            control=AdmissionControl(asyncio.Event()),
            authority=_authority()[0],
        )
        costs = CostsFile(directory / "costs.json", Costs())
        try:
            await compute(session, ctx, costs=costs, lead=lead)
        except _Stopped:
            return
        finally:
            transcript.close()


def _whole(changes: Mapping[str, object], stop_after: int | None = None) -> Program:
    """Returns a program that runs from the beginning to the end, or to the end of round ``stop_after``."""

    async def program(ctx: Context) -> None:
        config = _config(changes, malicious=ctx.verifier is not None)
        with tempfile.TemporaryDirectory() as folder:
            await _server(ctx, config, Path(folder), stop_after)

    return program


@lru_cache
def _interrupted(malicious: bool) -> tempfile.TemporaryDirectory[str]:
    """Returns the three servers' folders after a stop behind round 1."""
    folder = tempfile.TemporaryDirectory()

    async def program(ctx: Context) -> None:
        await _server(ctx, _config({}, malicious=malicious), Path(folder.name), 1)

    run(program, malicious=malicious)
    return folder


async def _restarted(ctx: Context) -> None:
    """Continues a run whose three servers were stopped."""
    malicious = ctx.verifier is not None
    with tempfile.TemporaryDirectory() as folder:
        before = Path(_interrupted(malicious).name) / str(ctx.pid)
        shutil.copytree(before, Path(folder) / str(ctx.pid))
        await _server(ctx, _config({}, malicious=malicious), Path(folder), None)


WHOLE: Mapping[str, Program] = {
    "run": _whole({}),
    "run-restarted": _restarted,
    "run-annealed": _whole(_ANNEALED, stop_after=2),
    "run-private-bins": _whole(_PRIVATE),
}
BEFORE: Mapping[str, Callable[[bool], object]] = {"run-restarted": _interrupted}
"""Preparations by program; the argument is True in malicious mode."""
