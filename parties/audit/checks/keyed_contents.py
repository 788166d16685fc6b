"""Checks of what all views of tables with keys make together: tables, report, and every file beside the views.

Tables are drawn again from the models, which the servers have sealed, and are the same to the byte. The report is made
anew from models and tables, and its page and a bundle's documents from the report. What nobody can check is named, as
`parties.audit.checks.contents` does for the files of one view; a file in no list fails. No value here is secret.
"""

import contextlib
import filecmp
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mechanisms.keyed.conditions import PersonsWanted
from mechanisms.text_table import TextTable, and_list
from parties.audit.bundle import CARD, PACKAGE, PAGE_FILE, REPORT_FILE, TERMS
from parties.audit.checks.contents import (
    AUDIT_PAGE,
    EVERYTHING,
    check_package,
    file_names,
    is_work,
    read_json,
    unknown_file,
)
from parties.audit.checks.keyed_documents import keyed_documents, keyed_package
from parties.audit.checks.report import require_same
from parties.audit.checks.report_parts import edition_of
from parties.audit.findings import CheckFailure, NotApplicable, require
from parties.config import load_config
from parties.foundation.errors import PartyError
from parties.foundation.version import TEXT_EDITION
from parties.local.keyed import MARK, KeyedFolder, read_report, report_of, write_tables
from parties.local.keyed_run import OF_VIEWS, STUDY_FILE, VIEWS
from parties.methods.keyed_study import KeyedStudy, study_text
from parties.report.keyed import REAL, Draw, keyed_page
from parties.report.public import LEFT_OUT
from parties.session.model_files import MOST_ROWS

_CLAIMED = ("time", LEFT_OUT)
"""Parts of a report that are its writer's word."""
_EDITION = "edition"
_CONFIG = "config.toml"
_OWN = ("party", "tls", "compute", "network")
_SAID = ("epsilon", "delta", "terms")
"""Keys of [run] that documents tell, and the runs of all views have sealed."""
"""Sections of a view's run that the study does not have: its servers."""


class KeyedContents:
    """Files of a run of tables with keys in ``folder``, and the names of an archive's files that were left out of it.

    Tables and report have to be those of the ``study``, as the auditor knows it.
    """

    def __init__(self, folder: KeyedFolder, study: KeyedStudy, left_out: Sequence[str]) -> None:
        self._folder = folder
        self._agreed = KeyedFolder(folder.path, study)
        self._left_out = left_out

    def check_tables(self) -> str:
        """Draws the tables again from the models, and compares them to the byte. Raises CheckFailure."""
        names = self._agreed.study.tables.names
        with tempfile.TemporaryDirectory(prefix="syncret-audit-") as again:
            self._draw(Path(again))
            for name in names:
                own = self._folder.path / f"{name}.csv"
                require(own.is_file(), f"{own.name} is not there")
                require(
                    filecmp.cmp(own, Path(again) / own.name, shallow=False),
                    f"{own.name} is not what the models of the views draw",
                )
        files = ", ".join(f"{name}.csv" for name in names)
        return f"{files}: drawn again from the models of the views, they are the same to the byte."

    def _draw(self, folder: Path) -> Mapping[str, TextTable]:
        drawn = self._drawn
        persons = self._agreed.draw(PersonsWanted(drawn.persons, seed=drawn.seed))
        return write_tables(folder, self._agreed.study.tables, persons)

    @cached_property
    def _report(self) -> Mapping[str, Any]:
        path = self._folder.path / REPORT_FILE
        document = read_report(self._folder.path)
        read_json(path)
        return document

    @cached_property
    def _drawn(self) -> Draw:
        """The draw that the report says. Raises NotApplicable, CheckFailure."""
        persons, seed = self._report.get("persons"), self._report.get("seed")
        if not isinstance(persons, int) or not isinstance(seed, int):
            raise NotApplicable("report.json does not say with which seed the tables were drawn.")
        require(0 < persons <= MOST_ROWS, f"report.json says {persons} persons")
        return Draw(persons, seed)

    def check_report(self) -> str:
        """Makes the report anew from models and tables. Raises CheckFailure."""
        said = self._report
        with tempfile.TemporaryDirectory(prefix="syncret-audit-") as again:
            texts = self._draw(Path(again))
        method = said.get("method")
        # A view of FLAIM names the variant, too, as in flaim-pairs.
        ran = (read_report(self._folder.view(name)).get("method") for name in self._views)
        known = {str(each).partition("-")[0] for each in ran}
        require(method in (*known, OF_VIEWS), f"{REPORT_FILE} says the method {str(method)[:40]!r}")
        made = report_of(self._agreed, texts, method=str(method), drawn=self._drawn)
        figures = said.get("figures")
        if not isinstance(figures, dict):
            raise CheckFailure(f"{REPORT_FILE} has no figures")
        own = {key: value for key, value in said.items() if key not in (*_CLAIMED, _EDITION)}
        own["figures"] = {**figures, "real": None}
        made_again = {
            key: value for key, value in json.loads(json.dumps(made)).items() if key != _EDITION
        }
        require_same(own, made_again, "the report")
        left_out = said.get(LEFT_OUT, [REAL])
        require(left_out == [REAL], f"{REPORT_FILE} lists in {LEFT_OUT} what no report has")
        require(
            LEFT_OUT not in said or figures.get("real") is None,
            f"{REPORT_FILE} has figures of the real tables, and says it has none",
        )
        real = "" if figures.get("real") is None else " and figures of the real tables"
        return f"report.json has the figures that models and tables make; its seconds{real} are its writer's word."

    @cached_property
    def _views(self) -> tuple[str, ...]:
        return tuple(self._folder.study.configs)

    def check_files(self) -> str:
        """Verifies that each file beside those of the views is known, and what it has to be. Raises CheckFailure."""
        folder = self._folder.path
        names = [name for name in file_names(folder) if not self._is_page(name)]
        if self._is_bundle:
            files = check_package(folder, names, self._package)
            if self._ours:
                made = keyed_package(self._folder.study, files)
                require(
                    (folder / PACKAGE).read_bytes() == made,
                    f"{PACKAGE} does not follow from configuration and files",
                )
        unchecked = dict[str, Sequence[str]]()
        for name in (*names, *self._left_out):
            if not self.view_of(name) and (parts := tuple(self._parts(name))):
                unchecked[name] = parts
        said = [
            name if EVERYTHING in parts else f"{name} ({', '.join(parts)})"
            for name, parts in unchecked.items()
        ]
        sentence = f" Not checked: {and_list(said)}." if said else ""
        missing = [name for name in self._usual if not (folder / name).is_file()]
        sentence += f" Not there: {and_list(missing)}." if missing else ""
        return f"Each file follows from the views, whose own files are theirs to check.{sentence}"

    def notice(self) -> str:
        """Returns a sentence for the headline if nobody has checked what people read; "" otherwise."""
        with contextlib.suppress(CheckFailure, PartyError):
            if not self._ours:
                return (
                    "Texts for people on all tables together were NOT CHECKED: report.html, a bundle's card and data "
                    "package. They state another edition of texts than this program's, as a forger can: audit them "
                    "with the version of Syncret that wrote them."
                )
        return ""

    def view_of(self, name: str) -> str | None:
        """Returns the view whose file ``name`` is, None for one beside the views."""
        parts = name.split("/")
        return (
            parts[1] if len(parts) > 2 and parts[0] == VIEWS and parts[1] in self._views else None
        )

    def left_out_of(self, view: str) -> tuple[str, ...]:
        """Returns the names that an archive's left out files have in the folder of a view."""
        within = f"{VIEWS}/{view}/"
        return tuple(
            name.removeprefix(within) for name in self._left_out if self.view_of(name) == view
        )

    def _is_page(self, name: str) -> bool:
        """True for the page of an audit, which each audit writes anew."""
        of = self.view_of(name)
        return name == (AUDIT_PAGE if of is None else f"{VIEWS}/{of}/{AUDIT_PAGE}")

    @property
    def _is_bundle(self) -> bool:
        return (self._folder.path / PACKAGE).exists()

    @cached_property
    def _package(self) -> Mapping[str, object]:
        package = read_json(self._folder.path / PACKAGE)
        if not isinstance(package, dict):
            raise CheckFailure(f"{PACKAGE} is no data package")
        return package

    @property
    def _usual(self) -> tuple[str, ...]:
        return (PAGE_FILE, *((CARD, TERMS) if self._is_bundle else ()))

    @property
    def _ours(self) -> bool:
        """True if page and documents are of this program's edition."""
        return edition_of(self._package if self._is_bundle else self._report) == TEXT_EDITION

    def _parts(self, name: str) -> Iterator[str]:
        """Yields the parts of a file that nobody can check. Raises CheckFailure for one that is not as it has to be."""
        made: Mapping[str, Callable[[], Iterable[str]]] = {
            STUDY_FILE: self._study,
            REPORT_FILE: self._claimed,
            PAGE_FILE: lambda: self._text(PAGE_FILE, keyed_page(self._report).encode()),
            CARD: lambda: self._text(CARD, self._documents[CARD]),
            TERMS: self._terms,
            PACKAGE: lambda: () if self._ours else (EVERYTHING,),
        }
        if name in made and (self._is_bundle or name not in (CARD, TERMS)):
            yield from made[name]()
            return
        if name in {f"{table}.csv" for table in self._folder.study.tables.names}:
            return
        require((is_work(name) or name == MARK) and not self._is_bundle, unknown_file(name))
        yield EVERYTHING

    @cached_property
    def _documents(self) -> Mapping[str, bytes]:
        return keyed_documents(self._folder.study, self._report)

    def _study(self) -> Iterator[str]:
        """Yields what of study.toml no view was held against."""
        study, text = self._folder.study, (self._folder.path / STUDY_FILE).read_bytes()
        if text != study_text(study).encode():
            require(not self._is_bundle, f"{STUDY_FILE} is not as a bundle has it")
            yield "comments"
        differing = set[str]()
        for name, config in study.configs.items():
            ran = load_config(self._folder.view(name) / _CONFIG)
            for key in _SAID:
                of_study, of_run = getattr(config.run, key), getattr(ran.run, key)
                require(
                    of_study == of_run, f"{STUDY_FILE} has another run.{key} than the run of {name}"
                )
            one, other = config.to_dict(), ran.to_dict()
            differing |= {key for key in {**one, **other} if one.get(key) != other.get(key)}
        yield from sorted(differing.difference(_OWN))
        # No view has these parts, so that only the agreed study tells whether they are its own.
        agreed = self._agreed.study
        if agreed is study:
            yield "what no view has: keys, order, formats, conditions of summaries"
        else:
            same = agreed.tables.to_dict() == study.tables.to_dict()
            require(same, f"{STUDY_FILE} describes other tables than the agreed configuration")

    def _claimed(self) -> Iterator[str]:
        yield from (key for key in _CLAIMED if key in self._report)
        if self._report["figures"]["real"] is not None:
            yield "figures of the real tables"
        if edition_of(self._report) != TEXT_EDITION:
            yield _EDITION

    def _text(self, name: str, made: bytes) -> Iterator[str]:
        same = (self._folder.path / name).read_bytes() == made
        require(same or not self._ours, f"{name} does not follow from {REPORT_FILE}")
        if not same:
            yield EVERYTHING

    def _terms(self) -> Iterator[str]:
        same = (self._folder.path / TERMS).read_bytes() == self._documents[TERMS]
        agreed = self._folder.study.terms is not None
        require(same or not agreed, f"{TERMS} has not the terms that all agreed on")
        if not same:
            yield EVERYTHING
