"""Bundles of tables with keys: the bundle of every view below views/NAME/, and the tables with their documents.

    study.toml, TABLE.csv, report.json, report.html, model-card.md, terms.txt, datapackage.json
    views/NAME/         what a bundle of that view has

All of it is public, unless figures of the real tables are asked for. A run on one machine is charged for all of its
views at once, or for none (`parties.local.publication.enter_together`), before anything is written.
`parties.audit.bundle` reads such files, and `parties.audit.keyed` audits them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from mechanisms.accounting import ZCDP, round_up
from mechanisms.errors import DataError
from parties.audit.bundle import PACKAGE, PAGE_FILE, REPORT_FILE, check_bundle_path, write_bundle
from parties.audit.checks.keyed_documents import keyed_documents, keyed_package, study_digest
from parties.audit.packing import PackedRun, bundled_files, prepare_bundle, terms_text
from parties.foundation.errors import StoreError
from parties.local.keyed import KeyedFolder, Rows, keyed_rows, read_report
from parties.local.keyed_run import STUDY_FILE, VIEWS
from parties.local.publication import LocalPublication, PublishersWord, enter_together
from parties.methods.keyed_study import KeyedStudy, study_text
from parties.report.keyed import keyed_page, report_text, without_real
from parties.session.owner import Table
from parties.storage.population_budget import Release

_NOT_PUBLIC = ("tls", "compute", "network")
"""Sections with paths of keys, a server's cluster and an owner's proxy."""


@dataclass(frozen=True, slots=True)
class KeyedWord:
    """Statement of a bundle's maker on the people in a local run's ``tables``, by name; ``said`` is the rest of it."""

    tables: Mapping[str, Table]
    said: PublishersWord

    def of_views(self, study: KeyedStudy) -> dict[str, PublishersWord]:
        """Returns the statement for each view, on the rows that it has of the tables. Raises DataError."""
        if not self.tables:
            return dict.fromkeys(study.configs, self.said)
        rows, _ = keyed_rows(study, self.tables)
        persons = self.tables.get(study.tables.parent.name) or next(iter(self.tables.values()))
        path = Path(persons.source.location)
        made_of = path if persons.read is None and path.is_file() else None
        return {
            name: replace(self.said, table=_of_persons(study, rows[name]), made_of=made_of)
            for name in study.configs
        }


def pack_keyed(
    run: Path,
    out: Path,
    *,
    word: KeyedWord,
    terms: Path | None = None,
    real_figures: bool = False,
    overwrite: bool = False,
) -> PackedRun:
    """Writes the public files of the run of tables with keys in folder ``run`` to the zip file ``out``.

    Arguments and errors are those of `parties.audit.packing.pack_run`. Nothing is charged unless everything is there.
    """
    check_bundle_path(out, overwrite=overwrite)
    folder = KeyedFolder.of(run)
    study = _public_study(folder)
    words = word.of_views(folder.study)
    files, texts = dict[str, Path](), dict[str, bytes]()
    publications = list[LocalPublication]()
    for name in study.configs:
        prepared = prepare_bundle(
            folder.view(name), terms=terms, real_figures=real_figures, said=words[name]
        )
        within = f"{VIEWS}/{name}"
        files |= {f"{within}/{file}": path for file, path in prepared.files.items()}
        texts |= {f"{within}/{file}": text for file, text in prepared.texts.items()}
        if prepared.publication is not None:
            publications.append(prepared.publication)
    files |= _tables(folder)
    report: Mapping[str, Any] = read_report(run)
    try:
        report = report if real_figures else without_real(report)
        said = terms_text(terms, next(iter(study.configs.values())))
        texts |= keyed_documents(study, report, terms=said)
        texts |= {
            STUDY_FILE: study_text(study).encode(),
            REPORT_FILE: report_text(report).encode(),
            PAGE_FILE: keyed_page(report).encode(),
        }
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            run / REPORT_FILE,
            f"is no report of tables with keys: {error}; expected what the run wrote",
        ) from error
    texts[PACKAGE] = keyed_package(study, bundled_files(run, files, texts))
    entered = ""
    if publications:
        # The charge comes before anything can leave the machine.
        entered = enter_together(publications, whole=_whole(study, publications))
    return PackedRun(write_bundle(files, out, documents=texts, overwrite=overwrite), entered)


def _public_study(folder: KeyedFolder) -> KeyedStudy:
    """Returns the study as it is published. Raises StoreError for tables whose files not every system tells apart."""
    study = folder.study
    names = [name.casefold() for name in study.tables.by_name]
    if len(set(names)) < len(names):
        raise StoreError(
            folder.path / STUDY_FILE,
            f"has tables {', '.join(study.tables.by_name)}, which not every system tells apart; expected names that "
            "differ by more than capitals",
        )
    document = {name: part for name, part in study.document.items() if name not in _NOT_PUBLIC}
    return replace(study, document=document)


def _tables(folder: KeyedFolder) -> dict[str, Path]:
    found = {f"{name}.csv": folder.path / f"{name}.csv" for name in folder.study.tables.names}
    for path in found.values():
        if not path.is_file():
            raise StoreError(path, "is not there; expected a finished run")
    return found


def _of_persons(study: KeyedStudy, rows: Rows) -> Table:
    """Returns the rows of a view by which its persons are known: of several sources those of persons."""
    if isinstance(rows, Table):
        return rows
    of_persons = rows.get(study.tables.parent.name) or next(iter(rows.values()), None)
    if of_persons is None:
        raise DataError(
            f"--table is not given for all of {', '.join(study.tables.names)}; expected every table of the study"
        )
    return of_persons


def _whole(study: KeyedStudy, publications: Sequence[LocalPublication]) -> Release:
    """Returns the release of all views together: what the study's epsilon and delta are for."""
    releases = [each.release for each in publications]
    first = releases[0]
    if any(release.not_private for release in releases):
        return replace(first, rho=float("inf"), epsilon=float("inf"))
    accountants = {release.accountant for release in releases}
    return Release(
        config=study_digest(study),
        run=study.id,
        method=first.method,
        rho=round_up(sum((Fraction(release.rho) for release in releases), Fraction(0))),
        epsilon=study.epsilon,
        delta=study.delta,
        distance=sum(release.distance for release in releases),
        unit=first.unit,
        accountant=accountants.pop() if len(accountants) == 1 else ZCDP.name,
    )
