"""Servers that are killed without warning: the same command goes on, and the audit of the finished run passes."""

import json
from pathlib import Path

import pytest

from parties.config import CertificateFiles
from tests.parties.killing import audit_of, run_servers
from tests.parties.mesh import EVERYONE, Cluster
from tests.parties.support import PARTIES, make_config

SMALL = {"run.rounds": 2, "run.noise": "distributed", "timeouts.connect_s": 30.0}
KILLED = -9
Certificates = dict[str, CertificateFiles]


def assert_goes_on(cluster: Cluster, kill: dict[int, str], **options: dict[str, int]) -> None:
    """Some of them are killed; started again, the three finish a run that an auditor passes."""
    assert KILLED in run_servers(cluster, kill, **options)
    assert run_servers(cluster, **options) == [0, 0, 0]
    assert audit_of(cluster) == []


@pytest.mark.parametrize(
    "kill",
    [
        {0: "after opened 1 select.index"},
        dict.fromkeys(range(3), "after meta selected/1"),
        dict.fromkeys(range(3), "after checkpoint 1"),
        {1: "after note selected 2"},
        {2: "after seal agreed"},
    ],
    ids=lambda kill: "-".join([*map(str, kill), *kill[max(kill)].split()]),
)
def test_audit_passes_a_run_after_a_kill(
    tmp_path: Path, certificates: Certificates, kill: dict[int, str]
) -> None:
    assert_goes_on(Cluster(make_config(SMALL), tmp_path, certificates), kill)


@pytest.mark.parametrize(
    "moment", ["before accept", "after accept", "before delivered", "after delivered"]
)
def test_audit_passes_a_run_after_a_kill_while_an_upload_is_passed_on(
    tmp_path: Path, certificates: Certificates, moment: str
) -> None:
    """Each kill meets an upload between two servers, for any choice of servers by the owners."""
    owner = EVERYONE[0]
    where = f"{moment} {owner}"
    kill = (
        {0: f"{where} 1", 1: f"{where} 2", 2: f"{where} 0"} if "delivered" in moment else {1: where}
    )
    assert_goes_on(Cluster(make_config(SMALL), tmp_path, certificates), kill)


@pytest.mark.parametrize("point", ["after note counting 0", "before counting"])
def test_replay_passes_a_run_after_a_kill_while_rows_are_counted(
    tmp_path: Path, certificates: Certificates, point: str
) -> None:
    """A batch that was interrupted is counted again. Of three owners one sends counts, 224 bytes instead of 1000."""
    both = {"run.input": "auto", "clients.rows_per_client": 1000, "run.record_replay": True}
    cluster = Cluster(make_config(SMALL | both), tmp_path, certificates)
    assert_goes_on(cluster, {1: point}, capacities={EVERYONE[0]: 40, EVERYONE[2]: 25})
    report = json.loads((cluster.directory(0) / "report.json").read_text())
    assert report["workload"]["rows_capacity"] == 65


@pytest.mark.parametrize(
    "point", ["before opened 1 select.index", "after seal round 1", "before note agreed None"]
)
def test_replay_passes_a_run_after_a_kill(
    tmp_path: Path, certificates: Certificates, point: str
) -> None:
    config = make_config(SMALL | {"run.record_replay": True})
    assert_goes_on(Cluster(config, tmp_path, certificates), {1: point})


def test_audit_passes_when_a_data_owner_came_for_the_round_that_was_lost(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Its choice was charged, and what is left does not cover the round again."""
    changes = {"clients.participation": 0.5, "clients.minimum": 1}
    cluster = Cluster(make_config(SMALL | changes), tmp_path, certificates)
    kill = {1: "before opened 2 select.index"}
    assert_goes_on(cluster, kill, first_rounds={EVERYONE[2]: 2})


def test_lead_keeps_the_table_when_another_server_is_killed_before_its_end(
    tmp_path: Path, certificates: Certificates
) -> None:
    cluster = Cluster(make_config(SMALL), tmp_path, certificates)
    assert run_servers(cluster, {1: "before result.json"})[1] == KILLED
    published = (cluster.directory(0) / "synthetic.csv").read_bytes()
    assert run_servers(cluster) == [0, 0, 0]
    assert (cluster.directory(0) / "synthetic.csv").read_bytes() == published
    assert audit_of(cluster) == []


@pytest.mark.parametrize(
    "point",
    [
        "before meta ended",
        "after meta ended",
        "after discard submission",
        "before scrub",
        "after scrub",
    ],
)
def test_server_that_is_killed_while_it_deletes_goes_on_with_it(
    tmp_path: Path, certificates: Certificates, point: str
) -> None:
    cluster = Cluster(make_config(SMALL), tmp_path, certificates)
    assert run_servers(cluster, {1: point})[1] == KILLED
    for pid in (0, 2):
        assert not cluster.own_files(PARTIES[pid]).seal.exists()
    assert run_servers(cluster) == [0, 0, 0]
    assert audit_of(cluster) == []
    for pid in range(3):
        left = {
            path.relative_to(cluster.directory(pid)).parts[1]
            for path in (cluster.directory(pid) / "store").rglob("*")
            if path.is_file()
        }
        assert left == {"lock", "store.sqlite", "checkpoints", "estimates"}
        assert not cluster.own_files(PARTIES[pid]).seal.exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("replay", [False, True], ids=["plain", "recorded"])
def test_audit_passes_a_run_after_a_kill_anywhere(
    tmp_path: Path, certificates: Certificates, victim: int, *, replay: bool
) -> None:
    config = make_config(SMALL | {"run.record_replay": replay})
    for number in range(1 + victim, 100, 7):
        cluster = Cluster(config, tmp_path / str(number), certificates)
        ended = run_servers(cluster, {victim: str(number)})
        if ended == [0, 0, 0]:
            return
        assert run_servers(cluster) == [0, 0, 0]
        assert audit_of(cluster) == [], number
