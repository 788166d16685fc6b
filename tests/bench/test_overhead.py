"""The paper's formula, our own payloads by formula, and both against bytes counted at sockets."""

import asyncio
import json
import secrets
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.cli import bench
from bench.datasets import DATA_VARIABLE
from bench.fetch import DatasetError
from bench.overhead.client import (
    Population,
    Subject,
    document,
    formula_results,
    measured_results,
    published_domain,
)
from bench.overhead.formula import (
    RECORD_BYTES,
    RECORD_OVERHEAD_BYTES,
    UPLOAD_RECEIVED_BYTES,
    Counting,
    distaim_formula,
    flaim_formula,
    owner_rows,
    packed_rows,
    round_payload,
    upload_payload,
    upload_wire,
)
from bench.overhead.upload import Relay, Upload, measure_uploads
from mechanisms.domain import Domain, Integer
from mechanisms.workload import Workload, draw_workload
from parties.federation.secagg_client import run_secagg_client
from parties.federation.secagg_server import RoundServer
from parties.identity.tls import make_certificates, pinned_key_in
from protocols.upload import WHOLE, body_size
from secagg.client import SecAggClient
from secagg.keys import Identity
from secagg.parameters import Parameters, roster_digest
from secagg.server import SecAggServer
from secagg.simulation import policy_for, run_round

CONNECTION_BYTES = 8_000
"""More than a connection's handshake, HTTP headers and receipt take, both directions together."""
FEW = 100
"""Bytes by which connections of the same messages may differ."""
ENTRY = {"method", "rounds", "formula_mb", "sent_mb", "received_mb", "wire_mb"}


def domain(*sizes: int) -> Domain:
    return Domain(tuple(Integer(f"c{i}", 0, n - 1, n) for i, n in enumerate(sizes)))


# Formula


@pytest.mark.parametrize(
    ("name", "candidates", "cells", "mb"),
    [
        ("adult", 161, 2_870_490, "137.8"),
        ("magic", None, 1_683_394, "80.8"),
        ("credit", None, 1_937_442, "93.0"),
        ("intrusion", None, 2_103_459, "101.0"),
    ],
)
def test_the_formula_gives_what_the_paper_printed(
    name: str, candidates: int | None, cells: int, mb: str
) -> None:
    found = published_domain(name)
    assert found is not None
    workload = draw_workload(found)
    assert workload.cells == cells
    assert candidates in (None, len(workload.candidates))
    assert f"{distaim_formula(workload) / 1e6:.1f}" == mb


@pytest.mark.parametrize("name", ["adult", "covtype", "credit", "intrusion", "magic"])
def test_formula_only_needs_no_table(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    monkeypatch.setattr("bench.datasets.load", _refuse)
    arguments = ["overhead", "--dataset", name, "--rounds", "2,4", "--formula-only", "--json"]
    done = CliRunner().invoke(bench, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found) >= {"dataset", "candidates", "closure_cells", "maximal_cells", "results"}
    assert len(found["results"]) == 10
    for entry in found["results"]:
        kind = "upload" if entry["method"] == "distaim" else "grouping"
        assert set(entry) >= ENTRY | {kind}
        assert entry["formula_mb"] > 0
        assert entry["sent_mb"] is entry["received_mb"] is entry["wire_mb"] is None
        assert entry["predicted_wire_mb"] > entry["predicted_mb"] > 0
    by_form = {
        form: [e["formula_mb"] for e in found["results"] if e.get("upload") == form]
        for form in WHOLE
    }
    assert by_form["seeded"] == by_form["plain"] == [48 * found["closure_cells"] / 1e6] * 2
    # The paper's count knows no rows: theirs are the packed rows, two seeds and a key's worth of 144, and three boxes.
    sent = found["packed_rows_mb"] + (144 + 3 * 1136) / 1e6
    assert by_form["rows"] == [pytest.approx(sent, rel=1e-12)] * 2
    assert found["counting"]["rows"] == 100 * found["owner_rows"]
    assert found["counting"]["mb_per_server"] > 0


def _refuse(name: str) -> None:
    raise AssertionError(f"the table {name} was asked for")


def test_flaim_by_the_formula_grows_with_the_rounds_and_distaim_does_not() -> None:
    subject = Subject("made up", draw_workload(domain(2, 3, 4, 5)), 5000, None)
    results = formula_results(subject, [1, 10, 100])
    for form in WHOLE:
        assert len({r.formula for r in results if r.variant == form}) == 1
    union = [r.formula for r in results if (r.method, r.variant) == ("flaim", "union")]
    assert union == sorted(set(union))


def test_the_formula_counts_eight_bytes_a_cell() -> None:
    workload = draw_workload(domain(2, 3, 4))
    # 2 + 3 + 4, the pairs 6 + 8 + 12, and all three 24.
    assert distaim_formula(workload) == 48 * 59
    assert flaim_formula(100, 20) == 960


@pytest.mark.parametrize(
    ("clients", "capacity", "packed"), [(5, 8792, 71_435), (100, 440, 3575), (10_000, 5, 41)]
)
def test_rows_by_formula_are_the_packed_rows_and_what_sealing_adds(
    clients: int, capacity: int, packed: int
) -> None:
    subject = Subject.load("adult", rows=False)
    assert owner_rows(subject.rows, clients) == capacity
    # 65 bits a row: presence, and the bits of 14 codes.
    assert packed_rows(subject.workload, capacity) == packed == -(-capacity * 65 // 8)
    sent = upload_payload(subject.workload, "rows", capacity)
    assert sent == packed + 144 + 3 * 1136
    # The design's goals, and what follows for an owner of five rows.
    assert sent <= 1.1 * packed + 4500
    assert upload_wire(sent) <= 1.1 * packed + 9500
    assert capacity > 5 or upload_wire(sent) < 15_000


def test_rows_are_less_than_flaims_client_on_adult_and_do_not_depend_on_t() -> None:
    subject = Subject.load("adult", rows=False)
    results = formula_results(subject, [4, 32], Population())
    rows = [r.predicted_wire for r in results if r.variant == "rows"]
    union = [r.predicted_wire for r in results if r.variant == "union"]
    assert len(rows) == len(union) == 2
    assert rows[0] == rows[1] is not None
    assert all(flaim is not None and rows[0] < flaim for flaim in union)


def test_counting_costs_its_batches() -> None:
    workload = draw_workload(domain(30, 20, 25, 2), degree=3, count=2)
    few, whole = Counting.of(workload, 100, 10), Counting.of(workload, 100, 20)
    assert (few.rows, whole.rows) == (1000, 2000)
    assert few.server_bytes < whole.server_bytes < 2 * few.server_bytes
    # Of owners so large that no two are counted together, each has a batch and lifts all cells.
    large = Counting.of(workload, 20_000, 3)
    assert large.server_bytes == pytest.approx(3 * Counting.of(workload, 20_000, 1).server_bytes)
    assert large.core_seconds > Counting.of(workload, 10_000, 6).core_seconds


# Uploads


@pytest.fixture(scope="module")
def workload() -> Workload:
    return draw_workload(domain(30, 20, 25, 2), degree=3, count=2)


@pytest.fixture(scope="module")
def uploads(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> list[Upload]:
    codes = np.random.default_rng(0).integers(0, workload.domain.shape, (50, 4)).astype(np.int32)
    folder = tmp_path_factory.mktemp("uploads")
    return asyncio.run(measure_uploads(workload, codes, folder, rounds=[4], forms=WHOLE))


def test_uploads_on_the_wire_are_the_formula_within_the_framing(
    workload: Workload, uploads: list[Upload]
) -> None:
    assert [upload.form for upload in uploads] == ["seeded", "plain", "rows"]
    # 5, 5, 5 and 1 bits of codes and one of presence: 50 rows are 107 bytes.
    packed = -(-50 * 17 // 8)
    for upload in uploads:
        payload = upload_payload(workload, upload.form, 50)
        assert upload.sent_bytes == payload
        assert abs(upload.received_bytes - UPLOAD_RECEIVED_BYTES) <= FEW
        # What is small is in as many records as it needs.
        assert abs(upload.wire_bytes - upload_wire(payload)) <= (FEW if payload < 10**5 else 10**4)
        assert 0 < upload.received_bytes < 1000
        records = payload // RECORD_BYTES + 8
        most = payload + RECORD_OVERHEAD_BYTES * records + CONNECTION_BYTES
        assert payload + upload.received_bytes < upload.wire_bytes <= most
        assert upload.connections == 1
        assert sum(upload.stored_bytes) == sum(
            body_size(pid, upload.form, packed if upload.form == "rows" else workload.maximal_cells)
            for pid in range(3)
        )
    seeded, plain, rows = uploads
    assert rows.sent_bytes == packed + 144 + 3 * 1136
    # What is promised of it: packed rows, three sealed boxes and a receipt; a connection with TLS around them.
    assert rows.sent_bytes <= 1.1 * packed + 4500
    assert rows.wire_sent_bytes <= 1.1 * packed + 9500
    assert plain.sent_bytes == 48 * workload.maximal_cells + 3 * 1136
    assert seeded.sent_bytes == 4 * workload.maximal_cells + 144 + 3 * 1136


def test_the_relays_count_what_the_kernel_counts(uploads: list[Upload]) -> None:
    for upload in uploads:
        # The kernel counts a connection's first, empty segment as a byte; it is read before the goodbye.
        assert abs(upload.wire_sent_bytes - upload.owner.socket_sent_bytes) <= 30
        assert abs(upload.wire_received_bytes - upload.owner.socket_received_bytes) <= 30
        assert upload.owner.peak_bytes > 0
        assert set(upload.owner.cpu_s) == {"workload", "count", "share", "upload"}


# SecAgg rounds


def parameters(clients: int, neighbours: int, length: int, roster: bytes = bytes(32)) -> Parameters:
    threshold = neighbours // 2 + 1
    return Parameters(
        secrets.token_bytes(32),
        clients,
        neighbours,
        threshold,
        threshold + 1,
        length,
        0,
        1000,
        graph_seed=secrets.token_bytes(32),
        roster_digest=roster,
    )


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("clients", "neighbours"), [(5, 4), (12, 6), (40, 10)])
def test_a_round_has_the_formulas_bytes(clients: int, neighbours: int, signed: bool) -> None:
    people = [Identity(secrets.token_bytes(32)) for _ in range(clients)] if signed else None
    roster = bytes(32) if people is None else roster_digest([one.public for one in people])
    asked = parameters(clients, neighbours, 77, roster)
    report = run_round(asked, [np.full(77, u) for u in range(clients)], identities=people)
    expected = round_payload(asked)
    assert set(report.sent_bytes) == {expected.sent}
    assert set(report.received_bytes) == {expected.received}


def sealed_bytes(size: int) -> int:
    """``size`` bytes in full TLS records."""
    return size + RECORD_OVERHEAD_BYTES * -(-size // RECORD_BYTES)


async def test_a_round_over_tls_has_the_formulas_records(tmp_path: Path) -> None:
    names = [f"owner-{u}" for u in range(5)]
    files = make_certificates(tmp_path, ["aggregator"], names)
    wires = {}
    for length in (100, 50_000):
        asked = parameters(5, 4, length)
        async with RoundServer(SecAggServer(asked), names, files=files["aggregator"]) as server:
            relays = [Relay(server.port) for _ in names]
            for relay in relays:
                await relay.__aenter__()
            clients = [
                run_secagg_client(
                    SecAggClient(u, np.full(length, u), policy_for(asked)),
                    "127.0.0.1",
                    relays[u].port,
                    server=pinned_key_in(files["aggregator"].cert),
                    files=files[name],
                )
                for u, name in enumerate(names)
            ]
            await asyncio.gather(server.run(), *clients)
            for relay in relays:
                await relay.settled()
                await relay.__aexit__(None, None, None)
        # A write that the loop takes in two pieces is two records.
        assert all(abs(one.counted.sent - relays[0].counted.sent) <= FEW for one in relays)
        wires[length] = relays[0].counted
    # The handshake is the same; what differs is the masked vector, in records of its own.
    small, large = (round_payload(parameters(5, 4, length)) for length in (100, 50_000))
    vectors = [asked.sent - small.sent + 1000 for asked in (small, large)]
    assert abs(wires[100].received - wires[50_000].received) <= FEW
    difference = wires[50_000].sent - wires[100].sent
    records = sealed_bytes(vectors[1]) - sealed_bytes(vectors[0])
    assert abs(difference - records) <= FEW
    for counted in wires.values():
        assert small.received < counted.received < small.received + CONNECTION_BYTES


# Both methods, measured


def test_what_is_measured_has_every_key_and_a_number_in_it() -> None:
    small = draw_workload(domain(4, 3, 5, 2), degree=3, count=2)
    codes = np.random.default_rng(0).integers(0, small.domain.shape, (80, 4)).astype(np.int32)
    subject, population = Subject("made up", small, len(codes), codes), Population(4, 1.0)
    results = measured_results(subject, [2], population)
    found = json.loads(json.dumps(document(subject, results, population)))
    assert (found["clients"], found["participation"]) == (4, 1.0)
    kinds = [(e["method"], e.get("upload", e.get("grouping"))) for e in found["results"]]
    assert kinds[:3] == [("distaim", "seeded"), ("distaim", "plain"), ("distaim", "rows")]
    assert kinds[3:] == [("flaim", "union"), ("flaim", "query")]
    for entry in found["results"]:
        kind = "upload" if entry["method"] == "distaim" else "grouping"
        assert set(entry) >= ENTRY | {kind}
        assert entry["rounds"] == 2
        for key in ("formula_mb", "sent_mb", "received_mb", "wire_mb"):
            assert isinstance(entry[key], float), key
            assert entry[key] > 0, key
        assert entry["client_cpu_s"] > 0
        assert entry["client_peak_mb"] >= 0
        assert entry["wire_mb"] > entry["sent_mb"] + entry["received_mb"]
        # All single columns first, then T rounds; an upload is one.
        assert entry["rounds_joined"] == (1 if entry["method"] == "distaim" else 3)
    seeded, plain, rows = found["results"][:3]
    # Twenty rows of 9 bits.
    assert found["owner_rows"] == 20
    assert rows["sent_mb"] == pytest.approx((23 + 144 + 3 * 1136) / 1e6)
    assert rows["wire_mb"] == pytest.approx(rows["predicted_wire_mb"], abs=FEW / 1e6)
    boxes = 3 * 1136
    assert plain["sent_mb"] == (48 * small.maximal_cells + boxes) / 1e6
    assert seeded["sent_mb"] == pytest.approx((4 * small.maximal_cells + 144 + boxes) / 1e6)


# Bad input


@pytest.mark.parametrize(("clients", "participation"), [(100, 0.0001), (3, 0.05), (100_000, 1e-30)])
def test_a_population_that_has_hardly_a_round_is_refused(
    clients: int, participation: float
) -> None:
    codes = np.zeros((9, 4), np.int32)
    subject = Subject("made up", draw_workload(domain(2, 3, 4, 5)), 9, codes)
    population = Population(clients, participation)
    for make in (formula_results, measured_results):
        with pytest.raises(ValueError, match=f"participation {participation:g} of {clients}"):
            make(subject, [2], population)


def test_a_refused_population_is_an_error_and_no_endless_run() -> None:
    words = "overhead --dataset adult --participation 0.0001 --rounds 2 --formula-only --json"
    done = CliRunner().invoke(bench, words.split())
    assert done.exit_code == 1
    assert "hardly any round would have 3 members" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "nowhere"], "nowhere"),
        (["--dataset", "adult", "--rounds", "four"], "4,32,96"),
        (["--dataset", "adult", "--rounds", ""], "4,32,96"),
        (["--dataset", "adult", "--rounds", "0"], "from 1 to"),
        (["--dataset", "adult", "--rounds", "4,20000"], "from 1 to"),
        ([], "--dataset"),
    ],
)
def test_bad_input_is_refused_by_name(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(bench, ["overhead", *arguments, "--formula-only"])
    assert done.exit_code == 2
    assert said in done.output


def test_a_domain_that_only_the_table_tells_is_not_generated() -> None:
    with pytest.raises(DatasetError, match="not known without the table"):
        Subject.load("census", rows=True, generated=True)
    with pytest.raises(DatasetError, match="expected one of"):
        Subject.load("nowhere", rows=False)


def test_generated_rows_fit_the_domain() -> None:
    subject = Subject.load("magic", rows=True, generated=True)
    assert subject.codes is not None
    assert subject.codes.shape == (subject.rows, 11) == (17_118, 11)
    assert (subject.codes.max(axis=0) == np.array(subject.workload.domain.shape) - 1).all()
