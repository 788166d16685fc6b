"""Check ``contents``: each file of a run's folder or bundle is sealed, made anew and compared, or called unchecked.

The servers' seals bind transcripts, table and model, and the configuration by its digest. From these the check makes
the texts of report.json, the page report.html and a bundle's documents anew, and compares them to the last letter. What
it cannot hold against the seals it names (``FileFinding.unchecked``), for the headline of the audit. A file in no list
fails, and so does one that a bundle's data package does not list as it is. Known limit: texts of another edition
(`parties.foundation.version.TEXT_EDITION`) and pictures that another library drew are unchecked. No value here is
secret.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from mechanisms.text_table import and_list
from parties.audit.bundle import (
    CARD,
    CERTIFICATE_SUFFIXES,
    CERTIFICATES,
    CONFIG_FILE,
    DOCUMENTS,
    PACKAGE,
    PAGE_FILE,
    SCHEMA,
    TERMS,
)
from parties.audit.checks.documents import BundledFile, datapackage, documents
from parties.audit.checks.identity import AUTHORITY
from parties.audit.checks.report import REPORT_FILE, read_report
from parties.audit.checks.report_parts import ReportParts, edition_of, unchecked_parts
from parties.audit.evidence import Evidence
from parties.audit.findings import CheckFailure, require
from parties.config import Config, agreed_config, load_config
from parties.foundation.untrusted_text import certificate_from_pem, parse_json
from parties.foundation.version import TEXT_EDITION
from parties.report.public import without_pictures
from parties.session.result_digests import MODEL_FOLDER, TABLE_FILE
from protocols.mesh import key_hash

SEALED, MADE_ANEW, UNCHECKED = "sealed", "made anew", "not checked"
EVERYTHING = "all of it"
AUDIT_PAGE = "audit.html"
"""Page that each audit of a folder writes anew."""
WORK = (
    "parties",
    "owners",
    "silos",
    "replay",
    "run.json",
    "tables.sealed",
    "silos.json",
    "store",
    "rounds",
    "transcript.jsonl",
    "result.json",
    "costs.json",
    "quality.json",
    "register.sqlite",
    "removed.json",
    "admin.sock",
    "log.txt",
    "WARNING.txt",
    AUDIT_PAGE,
)
"""Files and folders at the top of a run's folder, or of a server's own, that are for work and not for publication."""


@dataclass(frozen=True, slots=True)
class FileFinding:
    """A file by its ``name`` in the folder: its ``status``, and the parts of it that are ``unchecked``."""

    name: str
    status: str
    unchecked: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Name with the parts that are not checked, for a headline."""
        parts = [part for part in self.unchecked if part != EVERYTHING]
        return f"{self.name} ({', '.join(parts)})" if parts else self.name


@dataclass(frozen=True, slots=True)
class MethodFiles:
    """Files that a method makes: those of the servers' seals, with their ``transcripts``, and its report.

    ``released`` is the configuration with what the run chose. ``sealed`` names files, or folders with a slash at the
    end. ``report_parts`` computes the parts of a report,
    None if another check refused it.
    ``page`` makes report.html anew from a report; None if it cannot be made.
    """

    config: Config
    released: Config
    transcripts: Sequence[str]
    sealed: Sequence[str]
    report_parts: Callable[[Mapping[str, object]], ReportParts | None]
    page: Callable[[Mapping[str, object]], str | None]


class Contents:
    """All files of a run folder, and an archive's files that were left out of it."""

    def __init__(self, evidence: Evidence, method: MethodFiles, left_out: Sequence[str]) -> None:
        self._evidence = evidence
        self._method = method
        self._left_out = left_out
        self._folder = evidence.directory

    def findings(self) -> Iterator[FileFinding]:
        """Yields a finding for each file. Raises CheckFailure for one in no list, or that is not what it has to be."""
        names = list(file_names(self._folder))
        if self._is_bundle:
            # An unpacked bundle that was audited before has the page of that audit; no archive has one.
            self._check_package([name for name in names if name != AUDIT_PAGE])
        else:
            found = next((name for name in (SCHEMA, CARD, TERMS) if name in names), None)
            require(found is None, f"{found} is in no {PACKAGE}")
        for name in self._left_out:
            require(is_work(name) and not self._is_bundle, unknown_file(name))
        for name in dict.fromkeys(map(_work_name, [*names, *self._left_out])):
            yield self._finding(name)

    @cached_property
    def _package(self) -> Mapping[str, object]:
        document = read_json(self._folder / PACKAGE)
        require(isinstance(document, dict), f"{PACKAGE} is no data package")
        return document if isinstance(document, dict) else {}

    @property
    def _is_bundle(self) -> bool:
        return (self._folder / PACKAGE).exists()

    @cached_property
    def _report(self) -> Mapping[str, object] | None:
        path = self._folder / REPORT_FILE
        if not path.exists():
            return None
        read_json(path)
        return read_report(self._evidence)

    @cached_property
    def _documents(self) -> Mapping[str, bytes]:
        return documents(self._method.config, self._report, domain=self._method.released.domain)

    @property
    def _ours(self) -> bool:
        """True if pages and documents are of this program's edition."""
        return edition_of(self._package if self._is_bundle else self._report or {}) == TEXT_EDITION

    def _finding(self, name: str) -> FileFinding:
        folder = name.partition("/")[0]
        made: Mapping[str, Callable[[], Iterable[str]]] = {
            CONFIG_FILE: self._configuration,
            REPORT_FILE: self._report_parts,
            PAGE_FILE: self._page,
            TERMS: self._terms,
            SCHEMA: lambda: self._document(SCHEMA),
            CARD: lambda: self._document(CARD),
            PACKAGE: lambda: () if self._ours else (EVERYTHING,),
        }
        if name in made:
            unchecked = tuple(made[name]())
            status = UNCHECKED if EVERYTHING in unchecked else MADE_ANEW
            return FileFinding(name, status, unchecked)
        if name in self._method.transcripts or self._is_sealed(name):
            return FileFinding(name, SEALED)
        if folder == CERTIFICATES and name.count("/") == 1 and name.endswith(CERTIFICATE_SUFFIXES):
            pinned = self._is_pinned(self._folder / name)
            return FileFinding(
                name, SEALED if pinned else UNCHECKED, () if pinned else (EVERYTHING,)
            )
        require(is_work(name), unknown_file(name))
        return FileFinding(name, UNCHECKED, (EVERYTHING,))

    def _is_sealed(self, name: str) -> bool:
        return any(
            name.startswith(sealed) if sealed.endswith("/") else name == sealed
            for sealed in self._method.sealed
        )

    def _is_pinned(self, path: Path) -> bool:
        """True for a certificate with a server's pinned key and nothing around it."""
        if path.name == AUTHORITY:
            return False
        data = path.read_bytes()
        try:
            certificate = certificate_from_pem(data)
        except ValueError:
            return False
        plain = certificate.public_bytes(Encoding.PEM) == data.replace(b"\r\n", b"\n")
        return plain and key_hash(certificate) in _pinned_keys(self._method.config)

    def _configuration(self) -> Iterator[str]:
        """Yields the parts of config.toml beyond its digest: comments, and sections that nobody agrees on."""
        path = self._folder / CONFIG_FILE
        there = load_config(path)
        agreed = agreed_config(self._method.config.agreed())
        if path.read_text(encoding="utf-8") != there.resolved_toml():
            yield "comments"
        if there.to_dict() != agreed.to_dict():
            yield "addresses and times"

    def _report_parts(self) -> Iterator[str]:
        report = self._report or {}
        parts = self._method.report_parts(report)
        yield from (EVERYTHING,) if parts is None else unchecked_parts(report, parts)

    def _page(self) -> Iterator[str]:
        report = self._report
        try:
            made = None if report is None else self._method.page(report)
        except ImportError:
            made = None
        if made is None:
            yield EVERYTHING
            return
        said = (self._folder / PAGE_FILE).read_bytes().decode()
        same = without_pictures(said) == without_pictures(made)
        require(same or not self._ours, f"{PAGE_FILE} is not the page of {REPORT_FILE}")
        if not same:
            yield EVERYTHING
        elif said != made:
            yield "pictures"

    def _document(self, name: str) -> Iterator[str]:
        same = (self._folder / name).read_bytes() == self._documents[name]
        require(same or not self._ours, f"{name} does not follow from configuration and report")
        if not same:
            yield EVERYTHING

    def _terms(self) -> Iterator[str]:
        same = (self._folder / TERMS).read_bytes() == self._documents[TERMS]
        agreed = self._method.config.run.terms is not None
        require(same or not agreed, f"{TERMS} has not the terms that all agreed on")
        if not same:
            yield EVERYTHING

    def _check_package(self, names: Sequence[str]) -> None:
        """Raises CheckFailure unless datapackage.json follows, and lists the files that are there, each as it is."""
        files = check_package(self._folder, names, self._package)
        if self._ours:
            made = datapackage(self._method.config, self._report, files)
            same = (self._folder / PACKAGE).read_bytes() == made
            require(same, f"{PACKAGE} does not follow from configuration, report and files")


def check_package(
    folder: Path, names: Sequence[str], package: Mapping[str, object]
) -> list[BundledFile]:
    """Returns the files of a bundle in ``folder``, but for its data package.

    Raises CheckFailure unless that lists exactly these, each as it is.
    """
    files = [_bundled(folder, name) for name in names if name != PACKAGE]
    resources = package.get("resources")
    listed = {
        str(item.get("path")): (item.get("bytes"), item.get("hash"))
        for item in (resources if isinstance(resources, list) else [])
        if isinstance(item, dict)
    }
    for file in files:
        require(file.name in listed, f"{file.name[:60]} is not in {PACKAGE}")
        same = listed[file.name] == (file.size, f"sha256:{file.digest}")
        require(same, f"{file.name} is not the file that {PACKAGE} lists")
    lacking = sorted(listed.keys() - set(names))
    require(not lacking, f"{', '.join(lacking)[:200]} is missing, which {PACKAGE} lists")
    return files


_FOR_PEOPLE = (PAGE_FILE, CARD, SCHEMA, PACKAGE)
"""Files that people go by, besides the sentences of report.json."""
_EDITION = "about.edition"


def verdict(files: Sequence[FileFinding], *, ok: bool) -> str:
    """Returns the first sentences of a headline, which say that all holds only if texts for people were checked."""
    if not ok:
        return "Not everything holds."
    other = any(_EDITION in f.unchecked for f in files if f.name == REPORT_FILE)
    other |= any(f.name == PACKAGE and f.unchecked for f in files)
    unread = [f.name for f in files if f.name in _FOR_PEOPLE and f.status == UNCHECKED]
    unread += [f"the sentences of {REPORT_FILE}"] if other else []
    if not unread:
        return "Everything that can be checked holds."
    why = (
        " They state another edition of texts than this program's, as a forger can: audit them with the version "
        "of Syncret that wrote them."
        if other
        else ""
    )
    return f"What the servers signed holds. Texts for people were NOT CHECKED: {and_list(unread)}.{why}"


def headline(files: Sequence[FileFinding], missing: Sequence[str]) -> str:
    """Returns the sentence on all that was not checked, and on usual files that are not there; "" for neither."""
    unchecked = [file.said for file in files if file.unchecked]
    said = [f"Not checked: {', '.join(unchecked)}."] if unchecked else []
    repeating = [f.name for f in files if f.name in (PAGE_FILE, CARD) and f.status == MADE_ANEW]
    if repeating and any(file.name == REPORT_FILE and file.unchecked for file in files):
        verb = "repeats" if len(repeating) == 1 else "repeat"
        said.append(f"{and_list(repeating)} {verb} what {REPORT_FILE} says.")
    if missing:
        said.append(f"Not there: {', '.join(missing)}.")
    return " ".join(said)


def file_names(folder: Path) -> Iterator[str]:
    """Yields the names of all files below a folder, one name for each work folder. Raises CheckFailure for a link."""
    for path in sorted(folder.iterdir()):
        yield from _names_below(path, path.name)


def _names_below(path: Path, name: str) -> Iterator[str]:
    if name in WORK:
        yield f"{name}/" if path.is_dir() else name
        return
    require(not path.is_symlink(), f"{name[:60]} is a link; expected plain files alone")
    if not path.is_dir():
        yield name
    else:
        for inner in sorted(path.iterdir()):
            yield from _names_below(inner, f"{name}/{inner.name}")


TABLE_AND_MODEL = (TABLE_FILE, MODEL_FOLDER)
"""Results of a run that makes a table."""


def missing_files(folder: Path, results: Sequence[str] = TABLE_AND_MODEL) -> tuple[str, ...]:
    """Returns the usual files of a run or bundle, ``results`` among them, that are not in its folder."""
    documents_of_bundle = DOCUMENTS if (folder / PACKAGE).exists() else ()
    usual = (CONFIG_FILE, *results, REPORT_FILE, PAGE_FILE, *documents_of_bundle)
    return tuple(name for name in usual if not (folder / name).exists())


def read_json(path: Path) -> object:
    """Returns the value of a JSON file. Raises CheckFailure for one that is none, or that says a key twice."""
    text = path.read_bytes()
    try:
        value: object = parse_json(text)
        json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise CheckFailure(f"{path.name} is no JSON: {type(error).__name__}") from error
    return value


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise CheckFailure("a JSON file says a key twice: programs differ in which one counts")
    return found


def _bundled(folder: Path, name: str) -> BundledFile:
    with (folder / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return BundledFile(name, (folder / name).stat().st_size, digest)


def _pinned_keys(config: Config) -> set[str | None]:
    sections = [section for section in (config.flaim, config.silos) if section is not None]
    return {*(party.key for party in config.parties), *(section.key for section in sections)}


def _work_name(name: str) -> str:
    """Returns the name of the work folder that a file is in, else the file's own."""
    folder, slash, _ = name.partition("/")
    return f"{folder}/" if slash and folder in WORK else name


def is_work(name: str) -> bool:
    """Returns whether a file is one of those that a run leaves in its own folder, and no bundle has."""
    return name.partition("/")[0] in WORK


def unknown_file(name: str) -> str:
    """Returns the sentence on a file that belongs to no run."""
    return f"{name[:60]!r} is none of the files of a run: nobody can check it"
