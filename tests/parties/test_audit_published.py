"""Publications of a deviating lead, and foreign files in a folder that an auditor looks at."""

import datetime
import io
import itertools
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import parties.mpc.server
from mechanisms.domain import Domain, Integer
from mechanisms.model import Model
from mechanisms.sampling import public_generator
from mechanisms.workload import Workload
from parties.audit.checks.publication import implausible_query
from parties.audit.findings import PASS
from parties.audit.runner import Audit, audit_folder
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles, Config
from parties.foundation.exit_codes import Status
from parties.identity.tls import public_pem
from parties.mpc.estimation import make_estimator
from parties.mpc.outputs import WrittenOutputs, write_synthetic
from parties.report.columns import column_summaries
from parties.report.from_result import read_table_of
from parties.report.verdict import verdict
from tests.parties.audit_runs import copy_run, make_run
from tests.parties.support import make_config
from tests.parties.tampering import Forger, failed, setting

SMALL: dict[str, object] = {
    "run.rounds": 1,
    "run.noise": "distributed",
    "run.final_iterations": 300,
    "run.rows": 20_000,
}
Certificates = dict[str, CertificateFiles]


@pytest.fixture(scope="session")
def honest_run(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    return make_run(
        tmp_path_factory.mktemp("published"), certificates, SMALL, estimator=make_estimator
    )


def detail(audit: Audit, name: str) -> str:
    return next(check.detail for check in audit.checks if check.name == name)


# A lead that deviates.


def unmeasured(model: Model) -> list[tuple[int, int]]:
    """Pairs of columns that are in no clique together: nothing that was opened says how they go together."""
    pairs = itertools.combinations(range(len(model.domain.names)), 2)
    names = model.domain.names
    return [
        pair for pair in pairs if not any({names[i] for i in pair} <= set(c) for c in model.cliques)
    ]


def invented(model: Model) -> Model:
    """A model with the same clique marginals, hence the same misfit, and a correlation that nobody measured.

    Of all squares of cells the one with the most to move.
    """
    joint = model.answers([model.domain.names])[0].copy()

    def squares() -> Iterator[tuple[NDArray[np.float64], ...]]:
        for pair in unmeasured(model):
            table = np.moveaxis(joint, pair, (0, 1))
            for a, b in itertools.combinations(range(table.shape[0]), 2):
                for c, d in itertools.permutations(range(table.shape[1]), 2):
                    yield table[a, c], table[a, d], table[b, c], table[b, d]

    ac, ad, bc, bd = max(squares(), key=lambda one: float(np.minimum(one[1], one[2]).sum()))
    moved = np.minimum(ad, bc)
    # The distance in L1 is four times that, and the auditor's own tolerance is 0.1.
    assert moved.sum() > 0.03
    for cells, sign in ((ac, 1), (bd, 1), (ad, -1), (bc, -1)):
        cells += sign * moved
    return Model(model.domain, (model.domain.names,), (-1,), (joint,))


def lead_that(changes: Callable[[Model], Model], folder: Path, certificates: Certificates) -> Path:
    def write(directory: Path, model: Model, config: Config, *, total: int) -> WrittenOutputs:
        return write_synthetic(directory, changes(model), config, total=total)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parties.mpc.server, "write_synthetic", write)
        # Little noise: a model that noise had left one value a column would have nothing to deviate with.
        little = {**SMALL, "run.epsilon": 20.0}
        return make_run(folder, certificates, little, estimator=make_estimator)


def test_audit_refuses_a_model_with_a_correlation_that_was_not_measured(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The attack: its misfit is that of a fit, to the last digit."""
    audit = audit_folder(lead_that(invented, tmp_path, certificates))
    assert failed(audit) == {"model"}
    assert "answers a query otherwise" in detail(audit, "model")


def sorted_rows(model: Model, codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """The columns of single cliques, each sorted: every clique counts as before."""
    assert all(len(clique) == 1 for clique in model.cliques)
    return np.sort(codes, axis=0)


def test_audit_refuses_a_table_whose_rows_are_arranged(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The attack: columns that the model has independent are sorted, and all counts of its cliques are right."""
    sample = Model.sample

    def of_single_columns(model: Model) -> Model:
        marginals = model.answers([(name,) for name in model.domain.names])
        names = tuple((name,) for name in model.domain.names)
        return Model(model.domain, names, (-1,) * len(names), tuple(marginals))

    def sorting(self: Model, rows: int, generator: np.random.Generator) -> NDArray[np.int32]:
        return sorted_rows(self, sample(self, rows, generator))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "sample", sorting)
        run = lead_that(of_single_columns, tmp_path, certificates)
    audit = audit_folder(run)
    assert "table" in failed(audit)
    assert "are no chance" in detail(audit, "table")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30_000), st.floats(0.05, 3.0))
def test_arranged_finds_nothing_in_rows_that_were_drawn(
    seed: int, rows: int, concentration: float
) -> None:
    """Chains of cliques with sparse conditionals; a false alarm has a chance below 10^-9 a table."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(2, 8, 5)
    domain = Domain(tuple(Integer(f"c{i}", 0, int(s) - 1, int(s)) for i, s in enumerate(sizes)))
    cliques = tuple(itertools.pairwise(domain.names))
    first = generator.dirichlet(np.full(sizes[0], concentration))
    marginals = []
    for size in sizes[1:]:
        given = generator.dirichlet(np.full(size, concentration), len(first))
        marginals.append(first[:, None] * given)
        first = marginals[-1].sum(axis=0)
    model = Model(domain, cliques, (-1, 0, 1, 2), tuple(marginals))
    workload = Workload(domain, tuple(itertools.combinations(domain.names, 2)))
    assert implausible_query(model.sample(rows, public_generator(seed)), model, workload) is None


# A folder that somebody else has made.


def test_audit_of_the_agreed_configuration_refuses_a_run_of_another_one(
    honest_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A forger of three servers with own keys passes every check but this one."""
    right, wrong = honest_run / "config.toml", tmp_path / "agreed.toml"
    text = right.read_text()
    key = next(line for line in text.splitlines() if line.startswith("key = "))
    wrong.write_text(text.replace(key, f'key = "{"0" * 64}"'))
    audit = audit_folder(honest_run, agreed=right)
    assert audit.ok
    assert "which you gave" in detail(audit, "configuration")
    other = audit_folder(honest_run, agreed=wrong)
    assert failed(other) == {"configuration"}
    said = detail(other, "configuration")
    assert "agreed.toml is not the configuration of the transcripts: party.party-0.key: " in said
    assert said.count(" here, ") == 1
    assert said.endswith(" in the transcripts")
    page = ["--html", str(tmp_path / "x.html")]
    assert (
        run_command_line(cli, ["audit", str(honest_run), "--config", str(wrong), *page])
        == Status.AUDIT
    )
    assert (
        run_command_line(cli, ["audit", "--replay", str(tmp_path), "--config", str(right)])
        == Status.USAGE
    )
    # A path that is none is the auditor's mistake, and no page says that the run is wrong.
    nowhere = ["--config", str(tmp_path / "nowhere.toml"), "--html", str(tmp_path / "y.html")]
    assert run_command_line(cli, ["audit", str(honest_run), *nowhere]) == Status.CONFIG
    assert not (tmp_path / "y.html").exists()
    capsys.readouterr()


def test_command_does_not_write_through_a_link(
    honest_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The attack: audit.html in the folder is a link to a file of the auditor's."""
    run, own = copy_run(honest_run, tmp_path), tmp_path / "diary"
    own.write_text("dear diary")
    (run / "audit.html").symlink_to(own)
    assert run_command_line(cli, ["audit", str(run)]) == Status.DONE
    capsys.readouterr()
    assert own.read_text() == "dear diary"
    assert not (run / "audit.html").is_symlink()
    assert "<html" in (run / "audit.html").read_text()


def test_sentences_have_nothing_that_moves_a_cursor(
    honest_run: Path, tmp_path: Path, certificates: Certificates
) -> None:
    """The attack: three servers write another version, which clears the screen and says that all is well."""
    forger = Forger(copy_run(honest_run, tmp_path), honest_run, certificates)
    forger.edit(setting("header", "version", "0.1\x1b[2J\x1b[H\u202eall is well"))
    audit = audit_folder(forger.run)
    assert "all is well" in detail(audit, "agreement")
    assert all(check.detail.isprintable() for check in audit.checks)


def test_audit_fails_on_a_model_that_claims_more_numbers_than_there_is_memory(
    honest_run: Path, tmp_path: Path
) -> None:
    run = copy_run(honest_run, tmp_path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 58,)}
    )
    with zipfile.ZipFile(run / "model" / "marginals.npz", "w") as archive:
        for number in range(9):
            archive.writestr(f"clique_{number}.npy", header.getvalue())
    audit = audit_folder(run)
    assert {"published", "table", "model"} <= failed(audit)


def test_audit_fails_on_a_certificate_for_nobody(honest_run: Path, tmp_path: Path) -> None:
    run = copy_run(honest_run, tmp_path)
    key, now = Ed25519PrivateKey.generate(), datetime.datetime.now(datetime.UTC)
    nobody = x509.CertificateBuilder(
        issuer_name=x509.Name([]),
        subject_name=x509.Name([]),
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=now,
        not_valid_after=now + datetime.timedelta(days=1),
    ).sign(key, None)
    (run / "certificates" / "a.crt").write_bytes(public_pem(nobody))
    assert failed(audit_folder(run)) == {"certificates", "signatures"}


@pytest.mark.parametrize(("field", "value"), [("initial", 1), ("sigmas", [2.0]), ("last_round", 1)])
def test_audit_wants_one_account_of_where_a_run_went_on(
    field: str, value: object, honest_run: Path, tmp_path: Path, certificates: Certificates
) -> None:
    forger = Forger(copy_run(honest_run, tmp_path), honest_run, certificates)
    forger.edit(setting("note", field, value, what="agreed"), 1)
    assert "values" in failed(audit_folder(forger.run))


@pytest.mark.parametrize("forged", ["ended", "configuration", "columns", "provenance", "all"])
def test_audit_holds_what_a_report_says_it_is_about_to_the_transcripts(
    forged: str, honest_run: Path, tmp_path: Path
) -> None:
    run = copy_run(honest_run, tmp_path)
    document = json.loads((run / "report.json").read_text())
    facts = document["about"]
    changed = {
        "ended": "2020-01-01T00:00:00Z",
        "configuration": "0" * 64,
        "columns": facts["columns"][:-1],
        "provenance": {"public": 1},
    }
    document["about"] = "x" if forged == "all" else {**facts, forged: changed[forged]}
    (run / "report.json").write_text(json.dumps(document))
    assert failed(audit_folder(run)) == {"report"}
    # Its words and its version follow from the run, too; those of another edition are its writer's own.
    document["about"] = {**facts, "version": "9", "unit": "a row"}
    (run / "report.json").write_text(json.dumps(document))
    assert failed(audit_folder(run)) == {"contents"}
    document["about"]["edition"] = 1
    (run / "report.json").write_text(json.dumps(document))
    audit = audit_folder(run)
    assert failed(audit) == set()
    assert (
        "report.json (dataset, about.edition, about.version, about.unit, communication"
        in audit.headline
    )
    # Older reports say nothing.
    del document["about"]
    (run / "report.json").write_text(json.dumps(document))
    audit = audit_folder(run)
    assert failed(audit) == set()
    assert "report.json (no about, " in audit.headline, audit.headline


def test_audit_tells_what_a_report_says_alone(honest_run: Path) -> None:
    audit = audit_folder(honest_run)
    assert {check.status for check in audit.checks} == {PASS}
    assert "report.html" in detail(audit, "report")


Quality = dict[str, Any]


def narrower(quality: Quality) -> None:
    quality["marginals"][-1]["high"] -= 0.1


def farther(quality: Quality) -> None:
    quality["marginals"][0]["low"] += 0.1


def surer(quality: Quality) -> None:
    quality["confidence"] = 0.99


def fewer(quality: Quality) -> None:
    del quality["marginals"][-1]


def better(quality: Quality) -> None:
    quality["marginals"][0]["expected"] /= 2


def likelier(quality: Quality) -> None:
    max(quality["marginals"], key=lambda one: one["likely"])["likely"] /= 2


def oftener(quality: Quality) -> None:
    quality["likely"]["share"] = 0.99


def quieter(quality: Quality) -> None:
    # One that follows from others has none, and which do is chance; all of them may.
    of = next((one for one in quality["marginals"] if one["noise"]), quality["marginals"][0])
    of["noise"] = (of["noise"] or 1.0) / 2


def related(quality: Quality) -> None:
    pairs = quality["dependencies"]
    pairs["measured"] += pairs["independent"] + pairs["through_others"]
    pairs["independent"], pairs["through_others"] = [], []


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (narrower, "narrower interval"),
        (farther, "narrower interval"),
        (surer, "another confidence"),
        (fewer, "not exactly one interval"),
        (better, "expects another error"),
        (likelier, "less is likely"),
        (oftener, "another share of the marginals"),
        (quieter, "another noise"),
        (related, "other dependencies"),
    ],
)
def test_audit_refuses_a_report_that_promises_more_than_follows(
    lie: Callable[[Quality], None], said: str, honest_run: Path, tmp_path: Path
) -> None:
    """With the verdict that follows from the lie; the verdict alone is the next test's."""
    run = copy_run(honest_run, tmp_path)
    report = json.loads((run / "report.json").read_text())
    lie(report["quality"])
    domain = make_config().domain
    report["quality"]["verdict"] = verdict(report["quality"], domain)
    (run / "report.json").write_text(json.dumps(report))
    audit = audit_folder(run)
    assert failed(audit) == {"quality"}
    assert said in detail(audit, "quality")


def test_audit_refuses_a_verdict_that_does_not_follow(honest_run: Path, tmp_path: Path) -> None:
    run = copy_run(honest_run, tmp_path)
    report = json.loads((run / "report.json").read_text())
    report["quality"]["verdict"]["not_for"] = []
    (run / "report.json").write_text(json.dumps(report))
    audit = audit_folder(run)
    assert failed(audit) == {"quality"}
    assert "does not follow from its own figures" in detail(audit, "quality")


def test_audit_takes_wider_intervals_and_leaves_true_errors_alone(
    honest_run: Path, tmp_path: Path
) -> None:
    run = copy_run(honest_run, tmp_path)
    report = json.loads((run / "report.json").read_text())
    for marginal in report["quality"]["marginals"]:
        marginal |= {"high": 2.0, "low": 0.0, "true_error": 0.1, "held": True}
    report["quality"]["verdict"] = verdict(report["quality"], make_config().domain)
    (run / "report.json").write_text(json.dumps(report))
    audit = audit_folder(run)
    assert audit.ok
    assert "True errors" in detail(audit, "quality")
    del report["quality"]
    (run / "report.json").write_text(json.dumps(report))
    audit = audit_folder(run)
    assert audit.ok
    assert "says nothing of quality" in detail(audit, "quality")


def test_audit_refuses_columns_that_the_table_does_not_have(
    honest_run: Path, tmp_path: Path
) -> None:
    run = copy_run(honest_run, tmp_path)
    report = json.loads((run / "report.json").read_text())
    config = make_config()
    columns = column_summaries(config.domain, read_table_of(config, run).values)
    report["columns"] = [dict(column) for column in columns]
    (run / "report.json").write_text(json.dumps(report))
    assert audit_folder(run).ok
    (age,) = (column for column in report["columns"] if column["column"] == "age")
    age["quantiles"]["0.5"]["synthetic"] += 1
    (run / "report.json").write_text(json.dumps(report))
    audit = audit_folder(run)
    assert failed(audit) == {"quality"}
    assert "another quantile 0.5 of the column age" in detail(audit, "quality")
