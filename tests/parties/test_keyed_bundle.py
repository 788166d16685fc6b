"""Bundles of tables with keys: what is in them, who pays, who can use them, and what is found of changes and lies."""

import json
import random
import re
import shutil
import sqlite3
import zipfile
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import syncret
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from parties.audit import bundle as archives
from parties.audit.bundle import PACKAGE, UnpackedRun, unpacked_run
from parties.audit.checks.documents import BundledFile
from parties.audit.checks.keyed_contents import KeyedContents
from parties.audit.checks.keyed_documents import keyed_documents, keyed_package
from parties.audit.findings import FAIL, Check, make_check
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.foundation.errors import PartyError, StoreError
from parties.foundation.exit_codes import AuditFailed, Status
from parties.local.keyed import KeyedFolder
from parties.methods.keyed_study import KeyedStudy, load_keyed_study
from parties.report.keyed import keyed_page
from parties.report.model import REAL_FIGURES
from parties.report.public import _inner, _steps
from parties.storage import owner_budget
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import OwnerBudget
from tests.mechanisms.test_keyed import office
from tests.parties.test_audit_contents import Change, Files, changes, digest, packed, read
from tests.parties.test_keyed_study import ran, syncret_command, written

VIEWS = ("patients", "stays")
USUAL = "usual.sqlite"
WORD = ("--uncharged", "rows of nobody")
TOP = {
    *("study.toml", "patients.csv", "stays.csv", "report.json", "report.html"),
    *("model-card.md", "terms.txt", PACKAGE),
}
FORGED = 3
"""Number of changes to each file at the top whose data package is made to fit; each draws all tables again."""


def study_of(folder: Path) -> tuple[Path, list[str]]:
    """As ``written``, with keys that stand nowhere else by chance."""
    path, options = written(folder)
    for name in VIEWS:
        table = folder / f"{name}.csv"
        text = table.read_text(encoding="utf-8").replace("\nP", "\nperson-")
        table.write_text(text, encoding="utf-8")
    return path, options


SUMMARY = b"""
[[table.summary]]
kind = "last"
column = "ward"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run by central AIM in `run`, its tables, and its bundle."""
    folder = tmp_path_factory.mktemp("keyed-bundle")
    path, options = study_of(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYNCRET_BUDGET", str(folder / USUAL))
        ran("run", path, *options, "--method", "aim", "--out", folder / "run")
    ran("bundle", folder / "run", "--out", folder / "run.zip", *WORD)
    return folder


@pytest.fixture(scope="module")
def files(place: Path) -> Files:
    return read(place / "run.zip")


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(place / "run", tmp_path / "run"))


def test_a_bundle_has_the_tables_and_what_each_view_alone_has(
    place: Path, files: Files, tmp_path: Path
) -> None:
    of_views = {
        f"views/{name}/{inner}"
        for name in VIEWS
        for inner in view_bundle(place / "run", name, tmp_path)
    }
    assert set(files) == TOP | of_views
    for name in VIEWS:
        for inner, data in view_bundle(place / "run", name, tmp_path).items():
            assert files[f"views/{name}/{inner}"] == data, inner
    for name in VIEWS:
        assert files[f"{name}.csv"] == (place / "run" / f"{name}.csv").read_bytes()
    ran("bundle", place / "run", "--out", tmp_path / "again.zip", *WORD)
    assert (tmp_path / "again.zip").read_bytes() == (place / "run.zip").read_bytes()


def view_bundle(run: Path, name: str, folder: Path) -> Files:
    out = folder / f"{name}.zip"
    ran("bundle", run / "views" / name, "--out", out, "--overwrite", *WORD)
    return read(out)


def test_the_data_package_is_of_tables_whose_keys_lead_to_one_another(files: Files) -> None:
    package = json.loads(files[PACKAGE])
    resources = {item["path"]: item for item in package["resources"]}
    assert set(resources) == set(files) - {PACKAGE}
    for name, item in resources.items():
        assert (item["bytes"], item["hash"]) == (len(files[name]), f"sha256:{digest(files[name])}")
    assert len({item["name"] for item in package["resources"]}) == len(resources)
    assert {n for n, item in resources.items() if item["type"] == "table"} == {
        "patients.csv",
        "stays.csv",
    }
    patients, stays = (resources[f"{name}.csv"]["schema"] for name in VIEWS)
    assert patients["primaryKey"] == ["pid"]
    (leads,) = stays["foreignKeys"]
    assert leads == {
        "fields": ["pid"],
        "reference": {"resource": resources["patients.csv"]["name"], "fields": ["pid"]},
    }
    keys = set[str]()
    for path, schema in (("patients.csv", patients), ("stays.csv", stays)):
        header, *rows = (line.split(",") for line in files[path].decode().splitlines())
        assert header == [field["name"] for field in schema["fields"]]
        for field, cells in zip(schema["fields"], zip(*rows, strict=True), strict=True):
            limits = field.get("constraints", {})
            assert all(cells) or not limits.get("required")
            there = {cell for cell in cells if cell}
            assert there <= set(limits.get("enum", there))
            if field["type"] in ("integer", "number") and "minimum" in limits:
                assert all(limits["minimum"] <= float(c) <= limits["maximum"] for c in there)
        own = [row[0] for row in rows]
        if path == "patients.csv":
            assert len(set(own)) == len(own)
            keys = set(own)
        assert set(own) <= keys


def test_what_is_drawn_and_asked_is_the_same_from_the_bundle_and_from_the_folder(
    place: Path, tmp_path: Path
) -> None:
    drawn = []
    for source in ("run", "run.zip"):
        out = tmp_path / source
        where = ("--where", "stays.number > 1", "--seed", 3)
        ran("data", "sample", place / source, "-n", 30, "--out", out, *where)
        drawn.append([(out / f"{name}.csv").read_bytes() for name in VIEWS])
    assert drawn[0] == drawn[1]
    asked = [
        ran("data", "estimate", place / source, "mean(stays.number) by patients.sex")
        for source in ("run", "run.zip")
    ]
    assert asked[0] == asked[1]
    whole, loaded = (syncret.load_tables(place / source) for source in ("run", "run.zip"))
    for name in VIEWS:
        assert whole.tables[name].equals(loaded.tables[name])
        assert loaded.views[name].sample(5, seed=1).equals(whole.views[name].sample(5, seed=1))
    assert loaded.sample(5, seed=1)["stays"].equals(whole.sample(5, seed=1)["stays"])
    assert loaded.report["seed"] == whole.report["seed"]
    folder = loaded.folder
    del loaded
    assert not folder.exists()
    with pytest.raises(StoreError, match=r"expected syncret\.load_tables"):
        syncret.load(place / "run.zip")


# What is not public.


def reals(value: object, path: tuple[str, ...]) -> Iterator[float]:
    """Numbers at a place of a report."""
    if path:
        for _, inner in _inner(value, path[0]):
            yield from reals(inner, path[1:])
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from reals(each, ())
    elif isinstance(value, float):
        yield value


def secrets_of(place: Path) -> list[str]:
    """Texts of the run's real tables: keys, rows without them, and figures with many digits."""
    found = [
        pid
        for name in VIEWS
        for pid in read_text(TableSource(str(place / f"{name}.csv"))).columns["pid"]
    ]
    lines = (place / "stays.csv").read_text(encoding="utf-8").splitlines()[1:]
    found += [line.partition(",")[2] for line in lines]
    run = place / "run"
    report = json.loads((run / "report.json").read_text())
    figures = list(reals(report, ("figures", "real")))
    alike = {*reals(report, ("figures", "synthetic"))}
    for name in VIEWS:
        report = json.loads((run / "views" / name / "report.json").read_text())
        figures += (number for where in REAL_FIGURES for number in reals(report, _steps(where)))
    # A share of few rows can be that of synthetic ones, too.
    figures = [each for each in figures if each not in alike]
    exact = {repr(each) for each in figures if not _is_share(each)}
    assert len(exact) > 30
    return [*found, *exact]


def _is_share(number: float) -> bool:
    """True for a share of few rows, whatever its last digit, which synthetic ones can have, too."""
    return abs(float(Fraction(number).limit_denominator(999)) - number) < 1e-12


def told(files: Files, secrets: list[str]) -> set[str]:
    texts = [data.decode("latin-1") for data in files.values()]
    return {secret for secret in secrets if any(secret in text for text in texts)}


def test_nothing_of_the_real_tables_is_in_a_bundle(place: Path, run: Path, files: Files) -> None:
    secrets = secrets_of(place)
    assert told(files, secrets) == set()
    assert not re.search(rb"person-\d", b"".join(files.values()))
    assert "figures.real" in json.loads(files["report.json"])["left_out"]
    assert json.loads(files["report.json"])["figures"]["real"] is None
    assert b"and are not private" not in files["report.html"]
    assert b"was taken out of report.json" in files["model-card.md"]
    # The control: the same search in a bundle that has them, in which rows and keys are none either.
    out = run.with_suffix(".real.zip")
    ran("bundle", run, "--out", out, "--real-figures", *WORD)
    found = told(read(out), secrets)
    assert len(found) > 30
    assert all(re.fullmatch(r"-?[\d.e-]+", secret) for secret in found)
    assert b"hold figures that were computed from the real tables" in read(out)["model-card.md"]


def test_no_path_and_no_work_file_is_in_a_bundle(run: Path) -> None:
    study = run / "study.toml"
    study.write_text(
        '[tls]\nca = "HIDDEN-ca.crt"\ncert = "HIDDEN.crt"\nkey = "HIDDEN.key"\n'
        + study.read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    (run / "notes.txt").write_text("HIDDEN")
    (run / "views" / "stays" / "owner.key").write_text("HIDDEN")
    (run / "views" / "others").mkdir()
    (run / "views" / "others" / "config.toml").write_text("HIDDEN")
    out = run.with_suffix(".zip")
    ran("bundle", run, "--out", out, *WORD)
    found = read(out)
    assert not any("HIDDEN" in name or "others" in name or "notes" in name for name in found)
    assert not any(b"HIDDEN" in data for data in found.values())
    for word in ("tables.sealed", "run.json", "parties"):
        assert not any(word in name for name in found)


# Who pays.


class Maker:
    """The maker of bundles of a run, with a budget."""

    def __init__(self, run: Path, place: Path) -> None:
        self.run, self.place = run, place
        self.out, self.budget = run.with_suffix(".zip"), run.with_suffix(".budget")

    def bundle(self, *options: object, of: str = "") -> int:
        run = self.run / "views" / of if of else self.run
        arguments = ["bundle", run, "--out", self.out, "--overwrite", "--budget", self.budget]
        return run_command_line(cli, [str(each) for each in (*arguments, *options)])

    @property
    def tables(self) -> list[str]:
        return [f"--table={name}={self.place / name}.csv" for name in VIEWS]

    @property
    def charged(self) -> dict[str, list[str]]:
        found = OwnerBudget(self.budget).datasets() if self.budget.exists() else []
        return {item.name: [each.release.run for each in item.spending] for item in found}


@pytest.fixture
def maker(run: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    # The key beside the usual budget opens the run's record of its tables.
    monkeypatch.setenv("SYNCRET_BUDGET", str(place / USUAL))
    return Maker(run, place)


BOTH = ["study-patients", "study-stays"]


def test_all_views_are_charged_once_to_the_people_of_the_tables(
    maker: Maker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert maker.bundle() == Status.CONFIG
    assert maker.bundle("--uncharged", " ") == Status.CONFIG
    assert not maker.out.exists()
    assert not maker.budget.exists()
    capsys.readouterr()
    for options in (maker.tables, maker.tables, []):
        maker.out.unlink(missing_ok=True)
        assert maker.bundle(*options) == Status.DONE
        assert "study-patients and study-stays are charged" in capsys.readouterr().err
        assert maker.out.exists()
        assert maker.charged == {"patients": BOTH}
    dataset = OwnerBudget(maker.budget).dataset("patients")
    assert (dataset.epsilon, dataset.delta) == (4.0, 1e-5)
    assert 3.9 < dataset.epsilon_with() <= 4.0
    assert {each.state for each in dataset.spending} == {ChargeState.RELEASED}
    # A bundle of a view is of the same release.
    assert maker.bundle(of="stays") == Status.DONE
    assert "is charged already" in capsys.readouterr().err
    assert maker.charged == {"patients": BOTH}
    # Another run of the study is another release, which the limit does not cover.
    for name in VIEWS:
        (maker.run / "views" / name / "model" / "model.json").write_bytes(
            (maker.run / "views" / name / "model" / "model.json").read_bytes() + b"\n"
        )
    maker.out.unlink()
    assert maker.bundle(*maker.tables) == Status.BUDGET
    assert not maker.out.exists()
    assert maker.charged == {"patients": BOTH}


def test_a_view_that_was_charged_before_is_not_charged_again(maker: Maker) -> None:
    assert maker.bundle("--new-population", "people", of="patients") == Status.DONE
    maker.out.unlink()
    # The first release has set the limit at its own share.
    assert maker.bundle("--population", "people") == Status.BUDGET
    assert not maker.out.exists()
    assert maker.charged == {"people": BOTH[:1]}
    OwnerBudget(maker.budget).set_limit("people", 4.0, 1e-5, why="the study")
    assert maker.bundle("--population", "people") == Status.DONE
    assert maker.charged == {"people": BOTH}


def test_nothing_is_charged_where_the_second_charge_does_not_come_about(
    maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = owner_budget._insert

    def breaks_off(db: sqlite3.Connection, name: str, release: Any, submission: str) -> None:
        if release.run == BOTH[1]:
            raise KeyboardInterrupt
        real(db, name, release, submission)

    with monkeypatch.context() as patch:
        patch.setattr(owner_budget, "_insert", breaks_off)
        with pytest.raises(KeyboardInterrupt):
            ran_by(maker)
    assert maker.charged == {}
    assert not maker.out.exists()
    # A bundle that breaks off after the charge is made again for nothing.
    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "open", breaking)
        assert maker.bundle(*maker.tables) != Status.DONE
    assert maker.charged == {"patients": BOTH}
    assert not maker.out.exists()
    assert maker.bundle() == Status.DONE
    assert maker.charged == {"patients": BOTH}


def ran_by(maker: Maker) -> None:
    given = {name: maker.place / f"{name}.csv" for name in VIEWS}
    syncret.load_tables(maker.run).save(maker.out, tables=given, budget=maker.budget)


def breaking(*_: object, **__: object) -> object:
    raise OSError("the disk is full")


def test_other_peoples_tables_and_damaged_views_cost_nothing(maker: Maker, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name, columns in office(60, seed=2, most=4).items():
        own = read_text(TableSource(str(maker.place / f"{name}.csv"))).columns
        columns["pid"] = [pid.replace("P", "Q") for pid in columns["pid"]]
        for column in ("born", "day", "weight"):
            if column in columns:
                least, most = min(own[column], key=_number), max(own[column], key=_number)
                columns[column] = [
                    sorted((least, cell, most), key=_number)[1] for cell in columns[column]
                ]
        lines = [",".join(columns), *map(",".join, zip(*columns.values(), strict=True))]
        (other / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    given = [f"--table={name}={other / name}.csv" for name in VIEWS]
    assert maker.bundle(*given) == Status.CONFIG
    assert maker.bundle(maker.tables[0]) != Status.DONE
    (maker.run / "views" / "stays" / "report.json").write_text("[]")
    assert maker.bundle(*maker.tables) == Status.STORAGE
    shutil.rmtree(maker.run / "views" / "stays")
    assert maker.bundle(*maker.tables) == Status.STORAGE
    assert maker.charged == {}
    assert not maker.out.exists()


def _number(cell: str) -> float:
    return float(cell.replace("-", ""))


def test_python_charges_and_copies_as_well(run: Path, place: Path, tmp_path: Path) -> None:
    whole = syncret.load_tables(run)
    budget = tmp_path / "budget"
    given = {name: place / f"{name}.csv" for name in VIEWS}
    out = whole.save(tmp_path / "run.zip", tables=given, budget=budget)
    assert whole.account is not None
    assert "charged to population patients" in whole.account
    assert syncret.load_tables(out).tables["stays"].equals(whole.tables["stays"])
    copy = whole.save(tmp_path / "copy")
    assert (copy / "study.toml").exists()
    with pytest.raises(StoreError, match="is there already"):
        whole.save(copy)


def test_options_for_one_table_say_what_a_run_of_several_takes(place: Path) -> None:
    out = ("--out", place / "x.zip")
    table = place / "patients.csv"
    for option in ("--data", "--config", "--certificates"):
        found = syncret_command("bundle", place / "run", *out, option, table)
        assert "give --table NAME=TABLE" in found.output
    found = syncret_command("bundle", place / "run/views/stays", *out, "--table", f"a={table}")
    assert "of one table give --data" in found.output
    found = syncret_command("bundle", place / "run", *out, *[f"--table=a={table}"] * 2)
    assert "a name stands twice" in found.output
    found = syncret_command("bundle", place / "run", *out, f"--table=a={table}")
    assert "no such [[table]]" in str(found.exception)


# Archives of others.


def opened(files: Mapping[str, bytes], folder: Path) -> tuple[set[str], set[str]]:
    """Files that are unpacked of an archive, and those that are left out."""
    with unpacked_run(packed(folder / "archive.zip", files)) as found:
        return {
            path.relative_to(found.folder).as_posix()
            for path in found.folder.rglob("*")
            if path.is_file()
        }, set(found.left_out)


@pytest.mark.parametrize("above", ["", "./", "study/"])
def test_files_in_the_known_places_alone_are_unpacked(
    files: Files, tmp_path: Path, above: str
) -> None:
    others = {
        *("notes.txt", "others.csv", "views/notes.txt", "views/others/config.toml"),
        *("views/others/model/model.json", "views/stays/owner.key", "views/stays/a/b/model.json"),
        *("views/stays/parties/0/result.json", "more/study.txt", "synthetic.csv", "config.toml"),
        "views/stays/stays/config.toml",
    }
    found, left_out = opened(
        {f"{above}{name}": data for name, data in (files | dict.fromkeys(others, b"x")).items()},
        tmp_path,
    )
    assert found == set(files)
    assert left_out == others


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ({"views/../../x.csv": b""}, "leads out of it"),
        ({"/views/stays/config.toml": b""}, "leads out of it"),
        ({"views/stays/model\\x.npz": b""}, "leads out of it"),
        ({"Stays.csv": b""}, "'Stays.csv' twice"),
        ({"views/STAYS/config.toml": b""}, "twice"),
        ({"views": b""}, "cannot be"),
        ({"other/study.toml": b"", "other/views/a/config.toml": b""}, "several runs"),
        ({f"notes/{n}": b"" for n in range(30)}, "more than 40 files"),
        ({"views/stays/more.csv": b"", "stays.tsv": bytes(4_000_000)}, "more than 3000000 bytes"),
        ({"study.toml": b"[run]"}, "names no tables with keys"),
        ({"study.toml": b"table = 1"}, "names no tables with keys"),
        ({"study.toml": b"\xff"}, "names no tables with keys"),
    ],
)
def test_other_archives_are_refused(
    files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    added: Files,
    said: str,
) -> None:
    monkeypatch.setattr(archives, "MAX_FILES", 40)
    monkeypatch.setattr(archives, "MAX_BYTES", 3_000_000)
    assert len(files) < 40
    assert opened(files, tmp_path)
    with pytest.raises(StoreError, match=said):
        opened({**files, **added}, tmp_path)


def test_a_link_is_refused(files: Files, tmp_path: Path) -> None:
    entry = zipfile.ZipInfo("views/stays/model/other.npz")
    entry.external_attr = 0o120777 << 16
    path = packed(tmp_path / "archive.zip", files)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(StoreError, match="a link or device"), unpacked_run(path):
        pass


# What an audit finds.


def checks(files: Mapping[str, bytes], folder: Path, *, all_of_them: bool) -> list[Check] | None:
    """Checks on what all views make together; None for an archive that is refused."""
    try:
        with unpacked_run(packed(folder / "changed.zip", files)) as found:
            return checks_of(found, all_of_them=all_of_them)
    except PartyError:
        return None


def checks_of(found: UnpackedRun, *, all_of_them: bool) -> list[Check]:
    folder = KeyedFolder.of(found.folder)
    whole = KeyedContents(folder, folder.study, found.left_out)
    made = [make_check("contents", whole.check_files)]
    if all_of_them and made[0].status != FAIL:
        made.append(make_check("tables", whole.check_tables))
        made.append(make_check("report", whole.check_report))
    return made


def is_told(change: Change, found: list[Check] | None) -> bool:
    """A check fails, or the sentence on files names this one as not checked, or as not there."""
    if found is None or any(check.status == FAIL for check in found):
        return True
    said = found[0].detail.partition("Not checked: ")[2]
    return change.name in said or change.name.partition("/")[0] == "views"


def test_an_unchanged_bundle_passes_and_says_what_nobody_can_check(
    files: Files, tmp_path: Path
) -> None:
    found = checks(files, tmp_path, all_of_them=True)
    assert found is not None
    assert {check.status for check in found} == {"pass"}
    said = found[0].detail.partition("Not checked: ")[2]
    assert "report.json (time and left_out)" in said or "report.json (time, left_out)" in said
    assert "study.toml (" in said
    assert "what no view has: keys, order, formats, conditions of summaries" in said


def test_every_change_to_a_bundle_is_found(files: Files, tmp_path: Path) -> None:
    """The data package lists the files of views as well: no member can differ, be lacking, or be added."""
    draw = random.Random(7)
    made = list(changes(files, draw))
    chosen = [change for change in made if change.done in ("flipped", "taken away")]
    assert len(chosen) == 2 * len(files)
    chosen += draw.sample([change for change in made if change not in chosen], 30)
    wrong = [
        f"{change.name}: {change.done}"
        for change in chosen
        if (found := checks(change.files, tmp_path, all_of_them=False)) is not None
        and not any(check.status == FAIL for check in found)
    ]
    assert wrong == []


def test_changes_with_a_data_package_that_fits_are_found_too(
    place: Path, files: Files, tmp_path: Path
) -> None:
    draw = random.Random(8)
    own = {name: data for name, data in files.items() if name in TOP - {PACKAGE}}
    study = KeyedFolder.of(place / "run").study
    by_file = dict[str, list[Change]]()
    for change in changes(own, draw):
        if "below" not in change.done:
            by_file.setdefault(change.name, []).append(change)
    wrong = []
    for each in by_file.values():
        for change in draw.sample(each, min(FORGED, len(each))):
            rest = {n: d for n, d in files.items() if n not in own and n != PACKAGE}
            whole = {**rest, **change.files}
            sizes = [BundledFile(n, len(d), digest(d)) for n, d in whole.items()]
            whole[PACKAGE] = keyed_package(study, sizes)
            if not is_told(change, checks(whole, tmp_path, all_of_them=True)):
                wrong.append(f"{change.name}: {change.done}")
    assert wrong == []


def test_other_tables_reports_and_budgets_are_found(
    files: Files, place: Path, tmp_path: Path
) -> None:
    study = KeyedFolder.of(place / "run").study
    report = json.loads(files["report.json"])

    def failing(changed: Files) -> set[str]:
        whole = {**files, **changed}
        del whole[PACKAGE]
        own = study
        if "study.toml" in changed:
            (tmp_path / "study.toml").write_bytes(changed["study.toml"])
            own = load_keyed_study(tmp_path / "study.toml")
        sizes = [BundledFile(n, len(d), digest(d)) for n, d in whole.items()]
        whole[PACKAGE] = keyed_package(own, sizes)
        found = checks(whole, tmp_path, all_of_them=True)
        assert found is not None
        return {check.name for check in found if check.status == FAIL}

    assert failing({}) == set()
    rows = files["stays.csv"].splitlines(keepends=True)
    assert failing({"stays.csv": b"".join([*rows[:-1], rows[-2]])}) == {"tables"}
    lies: tuple[dict[str, object], ...] = (
        {"privacy": {**report["privacy"], "epsilon": 0.1}},
        {"estimates": report["estimates"][1:]},
        {"not_measured": {"stays": []}},
        {"method": "magic"},
        {"run": "other"},
        {"more": 1},
        {"left_out": ["all"]},
    )
    for change in lies:
        text = json.dumps({**report, **change}).encode()
        # The page and the card follow from the report: whoever forges it makes them anew.
        assert failing({"report.json": text} | pages(study, text)) & {"report", "contents"}, change
    less = files["study.toml"].replace(b"epsilon = 4.0", b"epsilon = 1.0")
    cheaper = {**report, "privacy": {**report["privacy"], "epsilon": 1.0}}
    text = json.dumps(cheaper).encode()
    lie = {"study.toml": less, "report.json": text}
    (tmp_path / "study.toml").write_bytes(less)
    lie |= pages(load_keyed_study(tmp_path / "study.toml"), text)
    assert "contents" in failing(lie)
    # Terms that no view's run has, with a file of them that fits.
    agreed = files["study.toml"].replace(b"[run]\n", b'[run]\nterms = "none"\n')
    assert agreed != files["study.toml"]
    (tmp_path / "study.toml").write_bytes(agreed)
    other = load_keyed_study(tmp_path / "study.toml")
    forged = {"study.toml": agreed} | pages(other, files["report.json"])
    assert "contents" in failing(forged)


def test_tables_other_than_the_agreed_ones_are_found_and_texts_of_another_edition_named(
    files: Files, tmp_path: Path
) -> None:
    """A summary is part of the agreed study and of no view that an audit opens."""
    (tmp_path / "agreed.toml").write_bytes(files["study.toml"] + SUMMARY)
    agreed = load_keyed_study(tmp_path / "agreed.toml")
    with unpacked_run(packed(tmp_path / "same.zip", files)) as found:
        folder = KeyedFolder.of(found.folder)
        whole = KeyedContents(folder, agreed, found.left_out)
        check = make_check("contents", whole.check_files)
        assert check.status == FAIL
        assert not whole.notice()
        path = found.folder / PACKAGE
        path.write_text(json.dumps(json.loads(path.read_text()) | {"edition": 6}))
        assert "NOT CHECKED" in KeyedContents(folder, folder.study, found.left_out).notice()


def pages(study: KeyedStudy, report: bytes) -> Files:
    document = json.loads(report)
    try:
        made = keyed_documents(study, document)
        return {**made, "report.html": keyed_page(document).encode()}
    except (LookupError, TypeError, ValueError):
        return {}


def test_an_audit_of_central_aim_says_that_there_is_nothing_to_audit(place: Path) -> None:
    for source in ("run", "run.zip"):
        found = syncret_command("audit", place / source)
        assert "expected a run's transcripts" in str(found.exception)
    assert "are for one run" in syncret_command("audit", place / "run.zip", "--html", "x").output


@pytest.mark.slow
def test_a_bundle_of_three_servers_is_audited_whole(tmp_path: Path) -> None:
    path, options = study_of(tmp_path)
    run, out = tmp_path / "run", tmp_path / "run.zip"
    ran("run", path, *options, "--clients", 3, "--out", run)
    ran("bundle", run, "--out", out, *options, "--budget", tmp_path / "budget")
    audited = json.loads(ran("audit", out, "--json"))
    assert [check["status"] for check in audited["checks"]] == ["pass"] * 5
    assert not any("audit.html" in name for name in read(out))
    assert sorted(each.name for each in tmp_path.glob("run.*.audit.html")) == [
        "run.patients.audit.html",
        "run.stays.audit.html",
    ]
    assert syncret.audit(out).passed
    found = told(read(out), secrets_of(tmp_path))
    assert found == set()

    # A view whose model is another one, in documents that fit.
    files = read(out)
    study = KeyedFolder.of(run).study
    model = "views/stays/model/model.json"
    files[model] += b"\n"
    package = "views/stays/datapackage.json"
    files[package] = refitted(files[package], "model/model.json", files[model])
    del files[PACKAGE]
    sizes = [BundledFile(n, len(d), digest(d)) for n, d in files.items()]
    files[PACKAGE] = keyed_package(study, sizes)
    refused = syncret_command("audit", packed(out, files))
    assert isinstance(refused.exception, AuditFailed)
    assert "stays: " in str(refused.exception)


def refitted(package: bytes, name: str, data: bytes) -> bytes:
    document = json.loads(package)
    for each in document["resources"]:
        if each["path"] == name:
            each |= {"bytes": len(data), "hash": f"sha256:{digest(data)}"}
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
