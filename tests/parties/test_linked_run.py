"""A run over several sources: real servers join rows on shares, count what comes of it, and are audited."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import parties.mpc.server
from mechanisms.errors import DataError
from mechanisms.linking import LIMBS
from mechanisms.source import TableSource
from mechanisms.text_table import TextTable
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles, Config
from parties.foundation.errors import ConfigError, SubmissionRefused
from parties.foundation.exit_codes import TooFewClients
from parties.mpc.inputs import InputForm, form_for, input_forms, own
from parties.mpc.participants import notices
from parties.mpc.planning.upload_size import UploadSize
from parties.mpc.submission.submit import submit
from parties.mpc.transcript_schema import COUNTING
from parties.report.html import render_html
from parties.report.model import ReportFigures
from parties.session.owner import DataOwner, Table, source_codes
from parties.session.study import Study
from protocols.fields import encode
from protocols.steps import COMPARISONS, OF_LINKING
from tests.parties import audit_runs
from tests.parties.audit_runs import Finished, Lines, copy_run, read_lines
from tests.parties.mesh import Cluster, Recording, make_uniform
from tests.parties.support import make_config
from tests.parties.tampering import Forger, doubling, dropping, failed, find, setting

Certificates = dict[str, CertificateFiles]
CLINICS, REGISTRY = ("clinic-a", "clinic-b"), ("clinic-c",)
OWNERS = (*CLINICS, *REGISTRY)
SOURCES: Sequence[Mapping[str, object]] = (
    {"name": "clinics", "columns": ["age", "sex"], "key": ["number"], "owners": list(CLINICS)},
    {"name": "registry", "columns": ["ward"], "key": ["person"], "owners": list(REGISTRY)},
)
LINKED = {
    "run.rounds": 2,
    "run.noise": "distributed",
    "run.input": "rows",
    "run.record_replay": True,
    "clients.expected": 3,
    "source": list(SOURCES),
    "timeouts.receive_s": 30.0,
}
CAPACITIES = {"clinic-a": 30, "clinic-b": 20, "clinic-c": 40}
Row = tuple[str, ...]
"""A key, and the values of a source's columns."""


def rows_of(owner: str) -> list[Row]:
    """Clinic a has persons 0 to 24, b 20 to 34, so that some stand in both; the registry has every other of 0 to 59."""
    draw = np.random.default_rng(OWNERS.index(owner))
    people = {"clinic-a": range(25), "clinic-b": range(20, 35), "clinic-c": range(0, 60, 2)}[owner]
    if owner in CLINICS:
        return [
            (f"P-{n:03d}", str(draw.integers(10)), str(draw.choice(["f", "m"]))) for n in people
        ]
    return [(f" p-{n:03d}", str(draw.choice(["x", "y", "z"]))) for n in people]


def table_of(owner: str) -> TextTable:
    names = ("number", "age", "sex") if owner in CLINICS else ("person", "ward")
    rows = rows_of(owner)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    return TextTable(columns, range(2, len(rows) + 2))


def tables(config: Config) -> dict[str, NDArray[np.int32]]:
    """Inputs of the owners, which their own programs make."""
    return {
        owner: source_codes(
            config, config.source_of(owner), table_of(owner), where=owner, ignore_extra=False
        )
        for owner in OWNERS
    }


def joined(config: Config, most: int = 1) -> NDArray[np.int32]:
    """The codes of the join in the clear: keys in at most ``most`` rows of the clinics, and in one of the registry."""
    clinics = [row for owner in CLINICS for row in rows_of(owner)]
    often = Counter(row[0] for row in clinics)
    wards = {row[0].strip().upper(): row[1] for row in rows_of("clinic-c")}
    found = [
        (["f", "m"].index(sex), ["x", "y", "z"].index(wards[key]), int(age))
        for key, age, sex in clinics
        if often[key] <= most and key in wards
    ]
    return np.array(found, np.int32)


def finish(
    folder: Path,
    certificates: Certificates,
    changes: Mapping[str, object],
    shared: Mapping[str, NDArray[np.int32]] | None = None,
    *,
    owners: Sequence[str] = OWNERS,
    kill: tuple[int, str, int | None] | None = None,
) -> Finished:
    return audit_runs.finish(
        folder,
        certificates,
        LINKED | changes,
        owners=owners,
        capacities=CAPACITIES,
        tables=tables if shared is None else lambda config: shared,
        kill=kill,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Finished:
    return finish(tmp_path_factory.mktemp("linked"), certificates, {})


def test_run_counts_the_join_of_all_owners_rows(finished: Finished) -> None:
    """Persons 20 to 24 stand in two clinics, and join nothing."""
    codes = joined(finished.config)
    assert len(codes) == 15
    finished.check_counts(codes)
    note = find(read_lines(finished.run, 0), "note", what=COUNTING.what)
    assert (note["form"], note["capacities"]) == ("linked", CAPACITIES)


def test_audit_passes_and_the_report_has_sources_and_unit(finished: Finished) -> None:
    audit = audit_folder(finished.run)
    assert failed(audit) == set(), [check for check in audit.checks if check.status == "fail"]
    report = json.loads((finished.run / "report.json").read_text())
    assert report["workload"]["sources"] == [
        {"name": "clinics", "columns": ["age", "sex"], "owners": 2, "rows_capacity": 50},
        {"name": "registry", "columns": ["ward"], "owners": 1, "rows_capacity": 40},
    ]
    assert (report["parameters"]["link"], report["parameters"]["unit"]) == ("key", "row")
    assert "one of the sources clinics, registry" in report["about"]["unit"]
    sent = report["communication"]["server_sent_bytes_by_step"]
    assert all(min(sent[step.name]) > 0 for step in OF_LINKING)
    page = render_html(report, ReportFigures())
    assert "The rows of 2 sources were linked by linking keys" in page
    assert "adds or removes one joined row at most" in page


def secrets_of(config: Config) -> set[str]:
    """Keys as they were written and normalised, and 24 bits of a hash in hexadecimal."""
    keys = {row[0].strip() for owner in OWNERS for row in rows_of(owner)}
    limbs = {int(limb) for limb in tables(config)["clinic-a"][:, :LIMBS].reshape(-1)}
    # Short numbers stand in any text.
    return keys | {key.lower() for key in keys} | {f"{n:06x}" for n in limbs if n > 1 << 20}


def test_nothing_that_is_left_holds_a_key_or_its_hash(finished: Finished) -> None:
    """Nor do transcripts, but for the hashes, whose few digits stand in what is chance; a log that has one is found."""
    words = secrets_of(finished.config)
    keys = {word for word in words if word.upper().startswith("P-")}
    for path in finished.run.rglob("*"):
        if path.suffix in (".json", ".csv", ".toml"):
            assert not [word for word in words if word in path.read_text(encoding="utf-8")], path
        if path.suffix == ".jsonl":
            assert not [key for key in keys if key in path.read_text(encoding="utf-8")], path
    log = f"rows of clinic-a: {table_of('clinic-a').columns['number'][0]}"
    assert any(word in log for word in words)


def sizes(lines: Lines) -> list[tuple[object, ...]]:
    """Messages sent while rows are linked, without the sort, whose comparisons are random."""
    steps = {step.name for step in OF_LINKING} - {"link.sort"}
    found = [r for r in lines if r["kind"] == "sent" and r["step"] in steps]
    return sorted((r["step"], r["peer"], r["bytes"]) for r in found)


def test_transcripts_do_not_depend_on_how_many_rows_match(
    finished: Finished, tmp_path: Path, certificates: Certificates
) -> None:
    """The same owners, nobody of whom is in both sources: all messages but the sort's have the same sizes."""
    shared = tables(finished.config)
    shared["clinic-c"] = shared["clinic-c"].copy()
    shared["clinic-c"][:, 0] ^= 1
    other = finish(tmp_path, certificates, {"run.record_replay": False}, shared)
    other.check_counts(np.zeros((0, 3), np.int32))
    assert sizes(read_lines(other.run, 1)) == sizes(read_lines(finished.run, 1))
    assert failed(audit_folder(other.run)) == set()


def test_persons_of_several_rows_are_joined_with_each(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Two rows of a person in the clinics count; the noise is for two."""
    sources = [{**SOURCES[0], "rows_per_person": 2}, SOURCES[1]]
    changes = {"source": sources, "run.unit": "person", "run.record_replay": False}
    run = finish(tmp_path, certificates, changes)
    codes = joined(run.config, most=2)
    assert len(codes) == 21
    run.check_counts(codes)
    assert failed(audit_folder(run.run)) == set()
    report = json.loads((run.run / "report.json").read_text())
    assert (report["parameters"]["unit"], report["parameters"]["rows_of_unit"]) == ("person", 2)
    assert "in clinics up to 2" in report["about"]["unit"]
    assert any("costs 4 times as much" in sentence for sentence in report["trust"])


@pytest.mark.slow
def test_malicious_run_links_and_is_proved(tmp_path: Path, certificates: Certificates) -> None:
    changes = {"run.security": "malicious", "run.noise": "box-muller", "run.rounds": 1}
    run = finish(tmp_path, certificates, changes | {"run.record_replay": False})
    run.check_counts(joined(run.config))
    audit = audit_folder(run.run)
    assert failed(audit) == set(), [check for check in audit.checks if check.status == "fail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "age", [{"low": 0, "high": 9, "bins": "private", "coarse": 4}, {"values": "private"}]
)
def test_private_bins_are_of_the_join(
    tmp_path: Path, certificates: Certificates, age: dict[str, object]
) -> None:
    """Rows are linked once for fine cells, and again for those that round 0 has chosen."""
    columns = [
        {"name": "sex", "kind": "categorical", "categories": ["f", "m"]},
        {"name": "ward", "kind": "categorical", "categories": ["x", "y", "z"]},
        {"name": "age", "kind": "integer"} | age,
    ]
    changes = {"column": columns, "run.epsilon": 20.0, "run.record_replay": False}
    run = finish(tmp_path, certificates, changes)
    own = [run.totals[f"server-{pid}"].share.own for pid in range(3)]
    sums = sum(own, np.zeros_like(own[0]))
    # The first two-way query is sex and ward, whose cells are as they were.
    codes = joined(run.config)
    expected = np.bincount(codes[:, 0] * 3 + codes[:, 1], minlength=6)
    np.testing.assert_array_equal(sums[:6], expected)
    assert failed(audit_folder(run.run)) == set()


async def test_run_ends_where_a_source_has_no_owner(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would join, nothing is charged for that, and owners may still come."""
    closed = list[object]()
    monkeypatch.setattr(notices, "close_enrollment", closed.append)
    config = make_config(LINKED | {"clients.minimum": 1, "clients.wait_s": 1.0})
    cluster = Cluster(config, tmp_path, certificates, tables(config))
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    ended = await cluster.run(owners=CLINICS, capacities=CAPACITIES)
    assert all(isinstance(error, TooFewClients) for error in ended)
    assert "no data owner of source 'registry'" in str(ended[0])
    # Nothing was joined: servers that are started again wait for the registry.
    assert not closed


COUNTED = {"what": COUNTING.what}
OPENED = {"what": COMPARISONS.what}


def with_another_bit(lines: Lines) -> None:
    """The last comparisons say more than there was to compare: a word more, as all of a full one may be an order."""
    entry = [r for r in lines if r["kind"] == "opened" and r["what"] == COMPARISONS.what][-1]
    entry["count"] += 1
    entry["value"] = encode(b"\xff" * 8 * entry["count"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (setting("note", "form", "rows", **COUNTED), {"limits", "openings", "costs"}),
        (setting("note", "capacities", {"clinic-a": 30, "clinic-c": 40}, **COUNTED), {"openings"}),
        (dropping("opened", **OPENED), {"openings", "costs"}),
        (doubling("opened", **OPENED), {"openings", "costs"}),
        (setting("opened", "step", "link.join", **OPENED), {"openings"}),
        (with_another_bit, {"openings"}),
    ],
)
def test_audit_catches(
    change: object,
    expected: set[str],
    finished: Finished,
    tmp_path: Path,
    certificates: Certificates,
) -> None:
    """Told alike by all three servers, and signed by them."""
    forger = Forger(copy_run(finished.run, tmp_path), finished.run, certificates)
    forger.edit(change)  # type: ignore[arg-type]
    audit = audit_folder(forger.run)
    assert expected <= failed(audit), [c for c in audit.checks if c.status == "fail"]


def test_owners_form_is_that_of_its_source() -> None:
    config = make_config(LINKED)
    workload = config.build_workload()
    assert list(input_forms(Study(config, workload))) == ["rows.0", "rows.1"]
    assert form_for(Study(config, workload), 10, "clinic-c").name == "rows.1"


async def test_server_refuses_rows_of_another_source_and_owners_that_come_after_the_join(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of the other source is no upload of this owner; and one that comes later is told that it is too late."""
    config = make_config(LINKED | {"clients.minimum": 2, "clients.wait_s": 1.5, "run.rounds": 2})
    cluster = Cluster(config, tmp_path, certificates, shared := tables(config))
    refused, sending = list[str](), list[asyncio.Task[None]]()

    def form_of(study: Study, capacity: int, client: str | None) -> InputForm:
        astray = client == "clinic-b" and not refused
        return form_for(study, capacity, "clinic-c" if astray else client)

    async def send(codes: NDArray[np.int32], first_round: int | None = None) -> None:
        with pytest.raises(SubmissionRefused) as caught:
            await submit(config, codes, certificates["clinic-b"], first_round=first_round)
        refused.append(str(caught.value))

    async def astray_then_for_round_2() -> None:
        await send(shared["clinic-c"][:15])
        await send(shared["clinic-b"], first_round=2)

    def on_event(name: str, fields: Mapping[str, object]) -> None:
        if name == "listening":
            sending.append(asyncio.create_task(astray_then_for_round_2()))
        if name == "round" and fields.get("round") == 0:
            sending.append(asyncio.create_task(send(shared["clinic-b"])))

    monkeypatch.setattr(own, "form_for", form_of)
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    records = {0: Recording(on_event)}
    there = ("clinic-a", "clinic-c")
    ended = await cluster.run(owners=there, capacities=CAPACITIES, records=records)
    await asyncio.gather(*sending)
    assert ended == [None] * 3
    assert "Syncret-Form" in refused[0]
    assert "rows.0, by the config" in refused[0]
    assert "sources are joined before round 1" in refused[1]
    assert "closed" in refused[2] or "ended" in refused[2]


def owner(folder: Path, name: str, content: str, certificates: Certificates) -> DataOwner:
    path = folder / f"{name}.csv"
    path.write_text(content)
    table = Table(TableSource(str(path)), ignore_extra=False)
    return DataOwner(
        make_config(LINKED), table, certificates[name], name, None, folder / "budget.sqlite"
    )


def test_owner_shares_its_sources_columns_and_hashed_keys_and_sees_what_it_would_send(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Its program knows the source by the owner's name; its summary, which is for its eyes, has no key."""
    one = owner(tmp_path, "clinic-c", "person,ward\n 0007,x\n8,z\n", certificates)
    codes, columns = one.codes_and_summaries()
    assert codes.shape == (2, LIMBS + 1)
    assert codes[:, LIMBS].tolist() == [0, 2]
    assert [column.name for column in columns] == ["ward"]
    offer = UploadSize.of(Study.of(one.config), 100, "clinic-c")
    assert list(offer.sent_bytes) == [offer.form] == ["rows.1"]
    assert str(offer).endswith("bytes as rows (of the source in place 2)")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("clinic-c", "person,ward\n7,x\n,y\n", "line 3 has no linking key"),
        ("clinic-c", "person,ward\nA7,x\n8,y\na7,z\n", "lines 2, 4 have the same linking key"),
        ("clinic-c", "ward\nx\n", "'person' of the linking key is not in the table"),
        ("clinic-a", "person,ward\n7,x\n", "column 'age' of the domain is not in the table"),
        ("clinic-c", "person,ward,more\n7,x,1\n", "column 'more' is not in the domain"),
    ],
)
def test_owners_table_is_refused_by_lines(
    name: str, content: str, said: str, tmp_path: Path, certificates: Certificates
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        owner(tmp_path, name, content, certificates).codes_and_summaries()
    assert "A7" not in str(caught.value)


def test_owner_in_no_source_is_told_so(tmp_path: Path, certificates: Certificates) -> None:
    one = owner(tmp_path, "clinic-d", "person,ward\n7,x\n", certificates)
    with pytest.raises(ConfigError, match=r"source\.owners: has no 'clinic-d'"):
        one.codes_and_summaries()
