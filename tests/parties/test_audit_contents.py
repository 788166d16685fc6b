"""Changed bundles and run folders: the audit fails, or its headline names the file, whatever is changed in it."""

import io
import json
import random
import re
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from parties.audit.bundle import unpacked_run
from parties.audit.checks import contents
from parties.audit.checks.contents import FileFinding
from parties.audit.checks.documents import BundledFile, datapackage, documents
from parties.audit.runner import Audit, audit_folder
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles, load_config
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import Status
from parties.foundation.version import TEXT_EDITION
from parties.mpc.estimation import make_estimator
from parties.report.model import REAL_FIGURES
from parties.report.public import public_page, public_report, real_figures, without_real
from tests.golden.archives import RUNS, SUFFIX, unpack
from tests.parties.audit_runs import copy_run, make_run
from tests.parties.support import make_config
from tests.parties.tampering import failed

Files = dict[str, bytes]
SAMPLE = 12
"""Number of changes to each bundle in a usual test run; `make test-slow` makes all of them."""
PACKAGE, CARD, PAGE, REPORT = "datapackage.json", "model-card.md", "report.html", "report.json"
SCHEMA = "schema.json"
MADE_UP = ("--uncharged", "rows of nobody")
_NUMBER = re.compile(rb"(?<![0-9a-f])\d(?![0-9a-f])")


@dataclass(frozen=True, slots=True)
class Change:
    """Files after a change to the file ``name``, with a word for what was done to it."""

    name: str
    done: str
    files: Files


def packed(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def read(bundle: Path) -> Files:
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def audited(files: Mapping[str, bytes], folder: Path) -> Audit | None:
    """The audit of an archive of these files, or of a folder if they are no bundle; None if it is refused."""
    if PACKAGE not in files and "parties/server/result.json" in files:
        try:
            return audit_folder(unpacked(folder / "changed", files))
        except StoreError:
            return None
    path = packed(folder / "changed.zip", files)
    try:
        with unpacked_run(path) as run:
            return audit_folder(run.folder, left_out=run.left_out)
    except StoreError:
        return None


def unpacked(folder: Path, files: Mapping[str, bytes]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def is_told(change: Change, audit: Audit | None) -> bool:
    """The property: the audit fails, or the headline names the file that is not as it was made."""
    if audit is None or not audit.ok:
        return True
    names = {change.name, *(name for name in change.files if name.startswith(change.name))}
    headline = audit.headline.partition("holds. ")[2]
    if change.name in (CARD, PAGE, SCHEMA, PACKAGE) and audit.headline.startswith("Everything"):
        return change.name not in change.files
    return any(name in headline or f"{name.partition('/')[0]}/," in headline for name in names)


def changes(files: Files, draw: random.Random) -> Iterator[Change]:
    """Each file is damaged, edited, taken away, renamed, doubled, and added to."""
    for name, data in files.items():
        others = {other: content for other, content in files.items() if other != name}
        if data:
            at = draw.randrange(len(data))
            flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            yield Change(name, "flipped", {**others, name: flipped})
        for found in draw.sample(list(_NUMBER.finditer(data)), min(2, len(_NUMBER.findall(data)))):
            digit = b"%d" % ((int(found[0]) + 1) % 10)
            edited = data[: found.start()] + digit + data[found.end() :]
            yield Change(name, f"number at {found.start()}", {**others, name: edited})
        yield Change(name, "longer", {**others, name: data + b"\n# epsilon = 0.1\n"})
        if name.partition("/")[0] not in contents.WORK:
            # A run works with these, and its folder is whole without them.
            yield Change(name, "taken away", others)
        yield Change(name, "renamed", {**others, f"{name}.txt": data})
        yield Change(name, "capitals", {**others, name.upper(): data})
        yield Change(f"copy-of-{name.replace('/', '-')}", "doubled", {
            **files, f"copy-of-{name.replace('/', '-')}": data,
        })  # fmt: skip
        yield Change(f"more/{name}", "doubled below", {**files, f"more/{name}": data})


def fitted(change: Change) -> Change:
    """The same change, and datapackage.json made anew to fit it."""
    files = dict(change.files)
    if change.name == PACKAGE or "config.toml" not in files or PACKAGE not in files:
        return change
    package = json.loads(files[PACKAGE])
    listed = {item["path"]: item for item in package["resources"]}
    package["resources"] = [
        listed.get(name, {"path": name}) | {"bytes": len(data), "hash": f"sha256:{digest(data)}"}
        for name, data in files.items()
        if name != PACKAGE
    ]
    files[PACKAGE] = (json.dumps(package, indent=2, ensure_ascii=False) + "\n").encode()
    return Change(change.name, f"{change.done}, package fitted", files)


def digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def own(
    tmp_path_factory: pytest.TempPathFactory, certificates: dict[str, CertificateFiles]
) -> Path:
    """The folder of a run by this program, as an auditor gets it: with a model and quality."""
    return make_run(
        tmp_path_factory.mktemp("own"),
        certificates,
        {"run.rounds": 1, "run.final_iterations": 50, "run.rows": 200},
        estimator=make_estimator,
    )


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory, own: Path) -> Mapping[str, Files]:
    """Files of bundles, and of folders of runs between silos, by name."""
    folder = tmp_path_factory.mktemp("bundles")
    found = {}
    recorded = {n: unpack(RUNS / f"{n}{SUFFIX}", folder / n) for n in ("counts", "flaim")}
    for name, run in {**recorded, "own": own}.items():
        out = folder / f"{name}.zip"
        word = [] if name == "own" else MADE_UP
        assert run_command_line(cli, ["bundle", str(run), "--out", str(out), *word]) == Status.DONE
        found[name] = read(out)
    for name in ("tda", "mtl"):
        run = unpack(RUNS / f"{name}{SUFFIX}", folder / name)
        paths = sorted(path for path in run.rglob("*") if path.is_file())
        found[name] = {path.relative_to(run).as_posix(): path.read_bytes() for path in paths}
    return found


NAMES = ("own", "counts", "flaim", "tda", "mtl")


@pytest.mark.parametrize("name", NAMES)
def test_audit_of_an_unchanged_bundle_passes(
    name: str, bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    audit = audited(bundles[name], tmp_path)
    assert audit is not None
    assert failed(audit) == set(), audit.checks
    assert {file.name.partition("/")[0] for file in audit.files} == {
        file.partition("/")[0] + ("" if "/" in file or "/" not in file else "/")
        for file in bundles[name]
    }
    if PACKAGE in bundles[name]:
        unchecked = {file.name: file.unchecked for file in audit.files if file.unchecked}
        assert unchecked.keys() == {"certificates/ca.crt", "config.toml", REPORT}
        # Of FLAIM no quality is held, and of texts of an earlier edition nobody knows the words.
        older = "about.edition" in unchecked[REPORT]
        assert ("quality" in unchecked[REPORT]) == (name == "flaim" or older)
        assert not {"trust", "notes"} & set(unchecked[REPORT]) or name != "own"


def wrong(name: str, bundles: Mapping[str, Files], folder: Path, most: int | None) -> list[str]:
    """Changes that the audit does not tell: none, or the property is broken."""
    draw = random.Random(f"{name} 1")
    made = list(changes(bundles[name], draw))
    made += [fitted(change) for change in made if PACKAGE in bundles[name]]
    chosen = made if most is None else draw.sample(made, most)
    return [
        f"{change.name} {change.done}"
        for change in chosen
        if change.files != bundles[name] and not is_told(change, audited(change.files, folder))
    ]


@pytest.mark.parametrize("name", NAMES)
def test_changed_file_fails_or_is_named(
    name: str, bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    assert wrong(name, bundles, tmp_path, SAMPLE) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_every_change_fails_or_is_named(
    name: str, bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    assert wrong(name, bundles, tmp_path, None) == []


def test_changes_are_not_told_by_an_audit_that_believes_every_file(
    bundles: Mapping[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same changes to a bundle pass an audit without this check."""
    monkeypatch.setattr(
        contents.Contents, "findings", lambda self: iter([FileFinding("x", contents.SEALED)])
    )
    believed = {CARD, "schema.json", "terms.txt", PAGE, PACKAGE}
    found = set()
    for change in changes(bundles["flaim"], random.Random(1)):
        if change.name in believed and not is_told(change, audited(change.files, tmp_path)):
            found.add(change.name)
    assert found == believed


@pytest.mark.parametrize("edited", [CARD, PAGE, "schema.json", "terms.txt"])
@pytest.mark.parametrize("fit", [False, True])
def test_smaller_epsilon_in_a_document_fails(
    edited: str, fit: bool, bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    files = bundles["own"]
    text = files[edited].decode()
    said = text.replace("epsilon = 1", "epsilon = 0.1")
    if said == text:
        said = text.replace('"', '" epsilon = 0.1 ', 1) if '"' in text else f"{text}epsilon = 0.1\n"
    change = Change(edited, "epsilon", {**files, edited: said.encode()})
    audit = audited((fitted(change) if fit else change).files, tmp_path)
    assert audit is not None
    if edited == "terms.txt" and fit:
        # Nobody has agreed on terms: these are the bundle's maker's.
        assert failed(audit) == {"contents"} or edited in audit.headline
    else:
        assert failed(audit) == {"contents"}


def test_package_made_anew_over_changed_files_fails(
    bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    """The attack: everything that follows from a forged report is made with this program."""
    files = dict(bundles["own"])
    report = json.loads(files[REPORT])
    report["trust"] = ["Whatever the servers do, nobody learns anything."]
    files[REPORT] = json.dumps(report).encode()
    (tmp_path / "config.toml").write_bytes(files["config.toml"])
    config = load_config(tmp_path / "config.toml")
    files |= documents(config, report)
    page = public_page(config, unpacked(tmp_path / "all", files), report)
    assert page is not None
    files[PAGE] = page.encode()
    listed = [BundledFile(n, len(d), digest(d)) for n, d in files.items() if n != PACKAGE]
    files[PACKAGE] = datapackage(config, report, listed)
    audit = audited(files, tmp_path)
    assert audit is not None
    assert failed(audit) == {"contents"}
    assert "has other trust than those of this run" in audit.checks[-1].detail


def test_a_text_beside_the_certificates_fails(bundles: Mapping[str, Files], tmp_path: Path) -> None:
    files = {**bundles["own"], "certificates/notes.txt": b"epsilon is 0.1"}
    audit = audited(fitted(Change("certificates/notes.txt", "added", files)).files, tmp_path)
    assert audit is None or failed(audit) == {"contents"}


def test_documents_of_another_edition_are_named(
    bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    files = dict(bundles["own"])
    package = json.loads(files[PACKAGE])
    assert package["edition"] == TEXT_EDITION
    package["edition"] = TEXT_EDITION + 1
    files[CARD] = files[CARD].replace(b"epsilon = 1", b"epsilon = 0.1")
    files[PACKAGE] = json.dumps(package).encode()
    change = fitted(Change(CARD, "older", files))
    audit = audited(change.files, tmp_path)
    assert audit is not None
    assert failed(audit) == set(), audit.checks[-1]
    named = {file.name for file in audit.files if file.status == contents.UNCHECKED}
    assert named == {"certificates/ca.crt", CARD, PACKAGE}


@pytest.mark.parametrize("edition", [1, TEXT_EDITION - 1, TEXT_EDITION + 1, "4", None])
@pytest.mark.parametrize("name", [CARD, PAGE, SCHEMA, REPORT])
@pytest.mark.parametrize("bundle", ["own", "counts"])
def test_a_forger_of_another_edition_gets_no_headline_that_reads_as_passed(
    bundle: str, name: str, edition: object, bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    """Files may state any edition to escape the comparison: the headline then opens with what was not checked."""
    files = dict(bundles[bundle])
    report, package = json.loads(files[REPORT]), json.loads(files[PACKAGE])
    report["about"]["edition"] = package["edition"] = edition
    if name == REPORT:
        report["trust"] = ["Nothing of anybody can come out."]
    files[REPORT] = json.dumps(report).encode()
    files[PACKAGE] = json.dumps(package).encode()
    if name != REPORT:
        files[name] = b"epsilon = 0.001: nobody is in here"
    audit = audited(fitted(Change(name, "forged", files)).files, tmp_path)
    assert audit is not None
    if audit.ok:
        assert audit.headline.startswith("What the servers signed holds. Texts for people")
        verdict, _, why = audit.headline.partition(" They state another edition")
        assert "NOT CHECKED" in verdict
        assert (f"the sentences of {REPORT}" if name == REPORT else name) in verdict
        assert "as a forger can" in why


def test_the_headline_of_an_honest_bundle_says_that_all_holds(
    bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    audit = audited(bundles["own"], tmp_path)
    assert audit is not None
    assert audit.headline.startswith("Everything that can be checked holds. Not checked: cert")


def changed(value: object) -> Iterator[object]:
    """Other values in the place of one of report.json."""
    if isinstance(value, dict):
        yield {**value, "more": "epsilon = 0.1"}
        for key, inner in value.items():
            yield {other: item for other, item in value.items() if other != key}
            yield from ({**value, key: other} for other in list(changed(inner))[:3])
    elif isinstance(value, list):
        yield [*value, "epsilon = 0.1"]
        yield value[:-1] if value else [1]
        if value:
            yield from ([other, *value[1:]] for other in list(changed(value[0]))[:3])
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value * 2 + 1
        yield "less"
    else:
        yield f"{value} or less"


@pytest.mark.slow
def test_every_part_of_a_report_fails_or_is_named(own: Path, tmp_path: Path) -> None:
    run = copy_run(own, tmp_path)
    path = run / REPORT
    report = json.loads(path.read_text())
    draw = random.Random(3)
    untold = []
    for key, value in [*report.items(), ("more", None)]:
        others = list(changed(value))
        for other in draw.sample(others, min(len(others), 5)):
            path.write_text(json.dumps({**report, key: other}))
            audit = audit_folder(run)
            (found,) = (
                (file for file in audit.files if file.name == REPORT) if audit.ok else (None,)
            )
            words = (key, "figures of the real table" if key == "utility" else key)
            named = found is not None and any(p.startswith(words) for p in found.unchecked)
            if audit.ok and not named:
                untold.append((key, other))
    assert untold == [], untold


def test_report_that_says_a_key_twice_fails(own: Path, tmp_path: Path) -> None:
    run = copy_run(own, tmp_path)
    text = (run / REPORT).read_text()
    (run / REPORT).write_text('{"epsilon": 0.1, "epsilon": 1, ' + text[1:])
    assert "contents" in failed(audit_folder(run))
    (run / REPORT).write_text(text.replace('"delta":', '"epsilon": 0.1, "delta":', 1))
    audit = audit_folder(run)
    assert "contents" in failed(audit)


def test_bundle_of_a_trial_has_nothing_of_the_real_table(tmp_path: Path) -> None:
    run = unpack(RUNS / f"counts{SUFFIX}", tmp_path / "run")
    report = json.loads((run / REPORT).read_text())
    assert set(real_figures(report)) == set(report["not_private"])
    assert set(real_figures(report)) <= set(REAL_FIGURES)
    out = tmp_path / "out.zip"
    assert run_command_line(cli, ["bundle", str(run), "--out", str(out), *MADE_UP]) == Status.DONE
    public = json.loads(read(out)[REPORT])
    assert real_figures(public) == ()
    assert public["left_out"] == list(real_figures(report))
    text = json.dumps({key: value for key, value in public.items() if key != "left_out"})
    assert not any(word in text for word in ('"real"', "true_error", '"truth"', "workload_error"))
    assert b"not differentially private" not in read(out)[PAGE]
    # The report is otherwise the same, but for the columns' lists of values, which a real table decides on.
    left = {key for key in report if public.get(key) != without_real(report).get(key)}
    assert left <= {"columns", "not_private", "left_out", "account"}


def test_bundle_with_real_figures_is_asked_for_and_named(tmp_path: Path) -> None:
    run = unpack(RUNS / f"counts{SUFFIX}", tmp_path / "run")
    (run / PAGE).write_text("a page with real columns")
    out = tmp_path / "out.zip"
    arguments = ["bundle", str(run), "--out", str(out), "--real-figures", *MADE_UP]
    assert run_command_line(cli, arguments) == Status.DONE
    files = read(out)
    said = json.loads(files[REPORT])
    assert said.pop("account") == {"charged": False, "why": MADE_UP[1]}
    assert said == json.loads((run / REPORT).read_text())
    assert files[PAGE] == b"a page with real columns"
    audit = audited(files, tmp_path)
    assert audit is not None
    assert failed(audit) == set(), audit.checks[-1]
    assert "report.html" in audit.headline
    assert "figures of the real table" in audit.headline


def test_bundle_does_not_replace_a_file_unasked(own: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    out.write_text("mine")
    arguments = ["bundle", str(own), "--out", str(out)]
    assert run_command_line(cli, arguments) == Status.STORAGE
    assert out.read_text() == "mine"
    assert run_command_line(cli, [*arguments, "--overwrite"]) == Status.DONE
    assert zipfile.is_zipfile(out)


def test_public_report_of_a_table_alone_is_itself(own: Path) -> None:
    config = make_config({"run.rounds": 1, "run.final_iterations": 50, "run.rows": 200})
    report = json.loads((own / REPORT).read_text())
    assert public_report(config, own, report) == report
    page = public_page(config, own, report)
    assert page == public_page(config, own, report)


def entries(files: Files, *more: tuple[zipfile.ZipInfo, bytes]) -> bytes:
    """A zip file of these files, and of further entries as they are."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        for entry, data in more:
            archive.writestr(entry, data)
    return made.getvalue()


def link() -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo("notes")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


FORGED = b"epsilon = 0.1"
HOSTILE: Mapping[str, Callable[[Files], bytes]] = {
    "extra file": lambda f: entries(f, (zipfile.ZipInfo("README.md"), FORGED)),
    "extra file in model": lambda f: entries(f, (zipfile.ZipInfo("model/README.md"), FORGED)),
    "extra file in model of a kind that is read": lambda f: entries(
        f, (zipfile.ZipInfo("model/more.json"), FORGED)
    ),
    "extra transcript": lambda f: entries(f, (zipfile.ZipInfo("transcripts/x.jsonl"), FORGED)),
    "work file in a bundle": lambda f: entries(f, (zipfile.ZipInfo("run.json"), FORGED)),
    "the same path": lambda f: entries(f, (zipfile.ZipInfo(f"./{CARD}"), FORGED)),
    "other capitals": lambda f: entries(f, (zipfile.ZipInfo("Model-Card.md"), FORGED)),
    "through a folder": lambda f: entries(f, (zipfile.ZipInfo(f"model/../{CARD}"), FORGED)),
    "link": lambda f: entries(f, (link(), b"/etc/passwd")),
    "before the first file": lambda f: entries({CARD: FORGED}) + entries(f),
    "behind a zero byte": lambda f: entries(f, (zipfile.ZipInfo("READ.md"), FORGED)).replace(
        b"READ.md", b"READ\0md"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_zip_file_that_others_read_differently_fails(
    name: str, bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(HOSTILE[name](bundles["own"]))
    try:
        with unpacked_run(path) as run:
            audit = audit_folder(run.folder, left_out=run.left_out)
    except StoreError:
        return
    assert "contents" in failed(audit) or "published" in failed(audit), audit.headline


def test_link_in_a_folder_fails(own: Path, tmp_path: Path) -> None:
    run = copy_run(own, tmp_path)
    (tmp_path / "elsewhere.html").write_text("epsilon = 0.1")
    (run / PAGE).symlink_to(tmp_path / "elsewhere.html")
    audit = audit_folder(run)
    assert failed(audit) == {"contents"}
    assert "is a link" in audit.checks[-1].detail


def test_table_and_transcript_of_another_run_fail(
    bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    files, others = bundles["own"], bundles["counts"]
    for name in ("synthetic.csv", "transcripts/party-1.jsonl"):
        change = fitted(Change(name, "swapped", {**files, name: others[name]}))
        audit = audited(change.files, tmp_path)
        assert audit is not None
        assert not audit.ok


def test_a_bundle_that_somebody_unpacked_is_audited_twice(
    bundles: Mapping[str, Files], tmp_path: Path
) -> None:
    """The page of the first audit is no file of the bundle; in an archive it is one too many (the control)."""
    folder = unpacked(tmp_path / "own", bundles["own"])
    (folder / "audit.html").write_text("all is well\n", encoding="utf-8")
    audit = audit_folder(folder)
    assert failed(audit) == set()
    (page,) = (file for file in audit.files if file.name == "audit.html")
    assert page.unchecked
    forged = audited({**bundles["own"], "audit.html": b"all is well\n"}, tmp_path)
    assert forged is None or failed(forged) == {"contents"}
