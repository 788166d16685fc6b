"""Replay: an honest server's messages are recomputed, one that deviates is found, and so is a recording that lies."""

import json
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import protocols.measure
from mechanisms.aim import Estimate, Measurement
from parties.audit.findings import CheckFailure
from parties.audit.replay import replay_folder
from parties.audit.runner import audit_folder
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles
from parties.foundation.exit_codes import Status
from parties.mpc.inputs import SubmissionBatch
from parties.mpc.inputs.counts import Counts
from parties.mpc.records import RunningTotal
from parties.mpc.replay.log import Recording, ReplayLog, read_replay_log
from parties.mpc.replay.recorder import RecordedEffects
from parties.mpc.storage.submissions import SubmissionStore
from parties.mpc.storage.totals import TotalStore
from protocols.context import Context
from protocols.discrete import Sampler
from protocols.ring import R32
from protocols.shares import Share
from tests.parties.audit_runs import make_run, read_lines, sealed_anew, write_lines
from tests.parties.mesh import EVERYONE, UniformEstimator
from tests.parties.support import PARTIES, make_config
from tests.parties.tampering import dropping, find, flip, setting

RECORDED = {"run.rounds": 2, "run.noise": "distributed", "run.record_replay": True}
Certificates = dict[str, CertificateFiles]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    """The folder of a run: server-0 to server-2, and run."""
    folder = tmp_path_factory.mktemp("recorded")
    make_run(folder, certificates, RECORDED)
    return folder


@pytest.mark.parametrize("pid", [0, 1, 2])
def test_replay_recomputes_every_message_of_an_honest_server(recorded: Path, pid: int) -> None:
    said = replay_folder(recorded / f"server-{pid}")
    sent = sum(record["kind"] == "sent" for record in read_lines(recorded / "run", pid))
    assert f"all {sent} messages of 1 mesh" in said
    against_all = replay_folder(recorded / f"server-{pid}", recorded / "run" / "transcripts")
    assert said.removeprefix(against_all.removesuffix(".")).startswith(", by its own transcript")


def test_replay_finds_the_transcript_in_the_folder_of_a_trial(
    recorded: Path, tmp_path: Path
) -> None:
    """A trial's transcripts are in the run's folder, its recordings in parties/N."""
    server = tmp_path / "run" / "parties" / "1"
    shutil.copytree(recorded / "server-1", server)
    (server / "transcript.jsonl").unlink()
    shutil.copytree(recorded / "run" / "transcripts", tmp_path / "run" / "transcripts")
    assert replay_folder(server) == replay_folder(recorded / "server-1")
    shutil.rmtree(server / "replay")
    found = audit_folder(None, replays=[server])
    assert [check.name for check in found.checks] == ["replay 1"]
    assert "holds no recording" in found.checks[0].detail


@pytest.mark.parametrize(
    ("overrides", "kill"),
    [
        ({"run.noise": "discrete-gaussian", "run.upload": "plain"}, (2, "round", 2)),
        pytest.param({"run.noise": "box-muller"}, (0, "selected", 1), marks=pytest.mark.slow),
        pytest.param(
            {"run.schedule": "annealed", "run.rounds": None},
            (1, "connected", None),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["exact-plain", "box-muller", "annealed"],
)
def test_replay_recomputes_the_messages_of_an_interrupted_run(
    tmp_path: Path,
    certificates: Certificates,
    overrides: dict[str, object],
    kill: tuple[int, str, int | None],
) -> None:
    make_run(tmp_path, certificates, RECORDED | overrides, kill=kill)
    for pid in range(3):
        assert "of 2 meshes" in replay_folder(tmp_path / f"server-{pid}")


def test_recording_is_for_its_owner_alone_and_off_by_default(recorded: Path) -> None:
    folder = recorded / "server-1" / "replay"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (tape,) = folder.glob("*.tape")
    assert stat.S_IMODE(tape.stat().st_mode) == 0o600
    assert "Give it to nobody" in (folder / "WARNING.txt").read_text()
    assert not make_config().run.record_replay
    assert make_config().digest() == make_config({"run.record_replay": True}).digest()
    assert "record_replay = true" in make_config({"run.record_replay": True}).resolved_toml()
    recording = read_replay_log(tape)
    text = (recorded / "server-1" / "transcript.jsonl").read_text()
    for key in recording.keys.values():
        assert key.hex() not in text
        assert key.hex() not in repr(recording)


def silent_noise(ctx: Context, count: int, sampler: Sampler) -> NDArray[np.int64]:
    """Server 1 adds no noise of its own, which nobody can see in the messages."""
    samples = HONEST_SAMPLES(ctx, count, sampler)
    return np.zeros_like(samples) if ctx._transport.pid == 1 else samples


HONEST_SAMPLES = protocols.measure.local_samples


def test_replay_finds_the_server_that_deviates_where_the_transcripts_do_not(
    tmp_path: Path, certificates: Certificates
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocols.measure, "local_samples", silent_noise)
        run = make_run(tmp_path, certificates, RECORDED)
    assert audit_folder(run).ok
    with pytest.raises(
        CheckFailure, match=r"server 1 sent in step measure\.(noise|open) of round 0"
    ):
        replay_folder(tmp_path / "server-1")
    for pid in (0, 2):
        replay_folder(tmp_path / f"server-{pid}")


class NeverTogether(UniformEstimator):
    """A model that lets no query about sex and ward be chosen: nothing that is opened depends on those counts."""

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        uniform = await super().estimate(measurements, round=round, final=final)
        allowed = [query != ("sex", "ward") for query in self.workload.candidates]
        return Estimate(np.array(allowed), uniform.answers_q32)


def moved(part: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """A component with four counts of sex and ward moved, so that no other query's counts change."""
    workload = make_config().build_workload()
    start = workload.maximal_offsets[workload.maximal.index(("sex", "ward"))]
    result = part.copy()
    table = result[start : start + 6].reshape(2, 3)
    table[0, 0] += 1
    table[1, 1] += 1
    table[0, 1] -= 1
    table[1, 0] -= 1
    return result


def moved_total(total: RunningTotal, component: int) -> RunningTotal:
    own, next_ = total.share.own, total.share.next
    parts = (moved(own), next_) if component == 0 else (own, moved(next_))
    share = Share(R32, total.share.pid, *map(np.uint32, parts))
    return RunningTotal(total.round, share, total.members)


def recorded_otherwise(patch: pytest.MonkeyPatch, component: int) -> None:
    """Server 1 stores other shares of one owner after it has compared the digests of those that came."""
    honest = SubmissionStore.read

    def read(store: SubmissionStore, client: str, version: int) -> bytes:
        body = honest(store, client, version)
        if "server-1" not in str(store.directory) or client != EVERYONE[1]:
            return body
        parts = np.frombuffer(body, "<u8").reshape(2, -1).copy()
        parts[component] = moved(parts[component])
        return parts.tobytes()

    patch.setattr(SubmissionStore, "read", read)


def added_otherwise(patch: pytest.MonkeyPatch, component: int) -> None:
    """Server 1 adds something else than what it has compared, and keeps, of its owners."""
    honest = Counts._sum

    def add(form: Counts, total: Share, batch: SubmissionBatch) -> tuple[Share, Share]:
        share, sums = honest(form, total, batch)
        if total.pid != 1 or EVERYONE[1] not in batch.clients:
            return share, sums
        return moved_total(RunningTotal(0, share), component).share, sums

    patch.setattr(Counts, "_sum", add)


def resumed_otherwise(patch: pytest.MonkeyPatch, component: int) -> None:
    """Server 1 goes on after a restart with another total than it had."""
    honest = TotalStore.load

    def load(store: TotalStore, round: int, pid: int) -> RunningTotal:
        total = honest(store, round, pid)
        return moved_total(total, component) if pid == 1 else total

    patch.setattr(TotalStore, "load", load)


@pytest.mark.parametrize("component", [0, 1], ids=["own", "next"])
@pytest.mark.parametrize(
    ("cheat", "found"),
    [
        (recorded_otherwise, "shares of 'clinic-b' in the recording are not those"),
        (added_otherwise, "note in line .* is not what the protocol makes"),
        (resumed_otherwise, "total of round . that it had not committed to"),
    ],
)
def test_replay_finds_the_server_that_used_other_shares_than_an_owner_sent(
    tmp_path: Path,
    certificates: Certificates,
    cheat: Callable[[pytest.MonkeyPatch, int], None],
    found: str,
    component: int,
) -> None:
    """No message of the protocol shows it, since nothing is opened of what it changed: the audit passes."""
    config = RECORDED | {"run.upload": "plain"}
    kill = (2, "round", 1) if cheat is resumed_otherwise else None
    with pytest.MonkeyPatch.context() as patch:
        cheat(patch, component)
        run = make_run(
            tmp_path,
            certificates,
            config,
            kill=kill,
            estimator=lambda study, plan: NeverTogether(study.workload),
        )
    assert audit_folder(run).ok
    with pytest.raises(CheckFailure, match=found):
        replay_folder(tmp_path / "server-1")
    for pid in (0, 2):
        replay_folder(tmp_path / f"server-{pid}")


Lie = Callable[[Recording], None]


def other_message(recording: Recording) -> None:
    """Another message is said to have been received in the noise of the last round."""
    key = max(recording.received, key=lambda k: len(recording.received[k]))
    data = bytearray(recording.received[key])
    data[-1] ^= 1
    recording.received[key] = bytes(data)  # type: ignore[index]


def other_key(name: str) -> Lie:
    return lambda recording: recording.keys.update({name: bytes(16)})  # type: ignore[attr-defined]


def missing_key(recording: Recording) -> None:
    del recording.keys["1"]  # type: ignore[attr-defined]


def other_input(prefix: str) -> Lie:
    """Another value of an input: a share of a client's counts, for instance."""

    def lie(recording: Recording) -> None:
        place = next(n for n, (name, _) in enumerate(recording.inputs) if name.startswith(prefix))
        name, value = recording.inputs[place]
        data = bytearray(value)
        data[-1] ^= 1
        recording.inputs[place] = (name, bytes(data))  # type: ignore[index]

    return lie


def input_missing(recording: Recording) -> None:
    del recording.inputs[5]  # type: ignore[attr-defined]


def ended_early(recording: Recording) -> None:
    del recording.inputs[-1:]  # type: ignore[attr-defined]


def rewrite(folder: Path, lie: Lie) -> None:
    """The recording of a server, changed."""
    (path,) = (folder / "replay").glob("*.tape")
    recording = read_replay_log(path)
    lie(recording)
    path.unlink()
    tape = ReplayLog(folder, int((folder / "replay" / "server.txt").read_text()))
    for name, key in recording.keys.items():
        tape.key(name, key)
    for name, value in recording.inputs:
        tape.input(name, value)
    for (peer, label), payload in recording.received.items():
        tape.received(peer, label, np.frombuffer(payload, np.uint8))
    tape.close()


LIES: dict[str, Lie] = {
    "message": other_message,
    "own-key": other_key("1"),
    "next-key": other_key("2"),
    "private-key": other_key("private"),
    "key-missing": missing_key,
    "share": other_input("body of"),
    "nonce": other_input("nonce"),
    "page": other_input("page"),
    "input-missing": input_missing,
    "ended-early": ended_early,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_replay_finds_a_recording_that_lies(recorded: Path, tmp_path: Path, lie: Lie) -> None:
    folder = tmp_path / "server-1"
    shutil.copytree(recorded / "server-1", folder)
    rewrite(folder, lambda recording: None)
    replay_folder(folder)  # A control: written anew it still holds.
    rewrite(folder, lie)
    with pytest.raises(CheckFailure):
        replay_folder(folder)


def test_replay_finds_a_transcript_that_lies(
    recorded: Path, tmp_path: Path, certificates: Certificates
) -> None:
    """Signed anew by the server itself: what it says it sent or received is not what it recorded."""
    for number, change in enumerate(
        (
            setting("sent", "digest", flip, step="select.choose"),
            setting("received", "digest", flip, step="select.choose"),
            dropping("sent", step="measure.open"),
            setting("opened", "value", flip, what="measure.counts"),
            setting("sent", "bytes", 1, step="measure.open"),
            lambda lines: find(lines, "header").update(version="0.0.1"),
        )
    ):
        run = tmp_path / str(number)
        shutil.copytree(recorded / "run", run)
        lines = read_lines(run, 2)
        change(lines)
        write_lines(run, 2, lines, certificates[PARTIES[2]])
        with pytest.raises(CheckFailure):
            replay_folder(recorded / "server-2", run / "transcripts")


def test_replay_goes_by_the_version_of_the_attempts_with_messages(
    recorded: Path, tmp_path: Path, certificates: Certificates
) -> None:
    """A server may be upgraded while it waits for the others: what it was before has recorded nothing."""
    run = tmp_path / "run"
    shutil.copytree(recorded / "run", run)
    header, *lines = read_lines(run, 2)
    upgraded = [{**header, "version": "0.0.1"}, {**header, "kind": "resumed"}, *lines]
    write_lines(run, 2, upgraded, certificates[PARTIES[2]])
    transcripts = run / "transcripts"
    found = replay_folder(recorded / "server-2", transcripts)
    assert found == replay_folder(recorded / "server-2", recorded / "run" / "transcripts")


def test_replay_needs_the_recording_of_every_mesh(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckFailure, match="holds no recording"):
        replay_folder(tmp_path)
    folder = tmp_path / "server-0"
    shutil.copytree(recorded / "server-0", folder)
    (tape,) = (folder / "replay").glob("*.tape")
    tape.write_bytes(b"something else")
    with pytest.raises(CheckFailure, match="is not a recording"):
        replay_folder(folder)
    shutil.copyfile(next((recorded / "server-1" / "replay").glob("*.tape")), tape)
    with pytest.raises(CheckFailure):
        replay_folder(folder)


def test_tape_is_on_the_disk_before_the_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = ReplayLog(tmp_path, 0)
    path = tmp_path / "t.jsonl"
    circumstances = RecordedEffects(tape)
    transcript = circumstances.transcript(path, sign=bytes, header={})
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda file: synced.append(os.fstat(file).st_ino))
    assert circumstances.once("nonce", lambda: b"1") == b"1"
    transcript.seal("round 1")
    (held,) = (tmp_path / "replay").glob("*.tape")
    assert synced == [held.stat().st_ino, path.stat().st_ino]
    assert read_replay_log(held).inputs == [("nonce", b"1")]
    transcript.close()
    tape.close()


def test_replay_takes_a_recording_that_a_kill_ended_before_it_began(
    recorded: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "server-0"
    shutil.copytree(recorded / "server-0", folder)
    for number in range(3):
        (folder / "replay" / f"attempt-{number}.tape").write_bytes(
            b"syncret tape 1\n"[: 7 * number]
        )
    assert "of 1 mesh" in replay_folder(folder)


def test_replay_takes_a_recording_whose_messages_no_transcript_kept_once(
    recorded: Path, tmp_path: Path, certificates: Certificates
) -> None:
    """The server was killed before its first seal; without a restart there is no attempt for the recording."""
    folder = tmp_path / "server-1"
    shutil.copytree(recorded / "server-1", folder)
    lines = read_lines(recorded / "run", 1)
    (tape,) = (folder / "replay").glob("*.tape")
    shutil.copyfile(tape, tape.with_name("attempt-0.tape"))
    with pytest.raises(CheckFailure, match="belongs to no attempt"):
        replay_folder(folder)
    begun = [lines[0], lines[0] | {"kind": "resumed"}, *lines[1:]]
    (folder / "transcript.jsonl").write_bytes(sealed_anew(begun, certificates[PARTIES[1]]))
    assert "of 2 meshes" in replay_folder(folder)


def test_command_judges_recordings(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = ["--replay", str(recorded / "server-0"), "--json"]
    assert run_command_line(cli, ["audit", *alone]) == Status.DONE
    document = json.loads(capsys.readouterr().out)
    assert [(c["name"], c["status"]) for c in document["checks"]] == [("replay 0", "pass")]
    shutil.copytree(recorded / "run", tmp_path / "run")
    both = [item for pid in range(3) for item in ("--replay", str(recorded / f"server-{pid}"))]
    assert run_command_line(cli, ["audit", str(tmp_path / "run"), *both, "--json"]) == Status.DONE
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [c["name"] for c in checks[-3:]] == ["replay 0", "replay 1", "replay 2"]
    assert {c["status"] for c in checks} == {"pass", "not applicable"}
