"""Making of bundles: everything public of a run's folder, with the documents for its readers, in one zip file.

`parties.audit.bundle` has the form of the file. All of it is public, unless figures of a real table are asked for.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from parties.audit.bundle import PACKAGE, check_bundle_path, public_files, write_bundle
from parties.audit.checks.contents import is_work
from parties.audit.checks.documents import BundledFile, datapackage, documents
from parties.config import START_FOLDER, Config, check_terms, earlier_model, load_config
from parties.foundation.errors import ConfigError, StoreError
from parties.local.publication import LocalPublication, PublishersWord, is_local_run
from parties.methods.federated_report import render as render_silos
from parties.report.document import read_document
from parties.report.model import check_report
from parties.report.privacy_text import ACCOUNT
from parties.report.public import (
    LEFT_OUT,
    measured_config,
    public_page,
    public_report,
    without_real,
)
from parties.storage.files import disk_errors

_CONFIG, _REPORT, _PAGE = "config.toml", "report.json", "report.html"


class PackedRun(NamedTuple):
    """The ``names`` of a bundle's files; ``entered`` is a sentence on the charge of a run on one machine, else ""."""

    names: list[str]
    entered: str


class PreparedBundle(NamedTuple):
    """Everything that a bundle of a run is made of: ``files`` and ``texts`` by name, texts in the place of files.

    ``publication`` is what has to be charged before it leaves this machine, None if nothing has to be.
    """

    files: Mapping[str, Path]
    texts: Mapping[str, bytes]
    publication: LocalPublication | None


def pack_run(
    run: Path,
    out: Path,
    *,
    config: Path | None = None,
    terms: Path | None = None,
    certificates: Path | None = None,
    real_figures: bool = False,
    overwrite: bool = False,
    said: PublishersWord | None = None,
    fetched: bool = False,
) -> PackedRun:
    """Writes the public files of the run in folder ``run`` to the zip file ``out``.

    Args:
        config: configuration of the study; by default the run folder's.
        terms: text of the terms of use, a file; by default those of the configuration, or this program's.
        certificates: folder of the certificates; by default the run folder's.
        real_figures: leaves in what a trial computed from its real table without noise: such a bundle is not private,
            and costs everything.
        said: what its maker says of the people in the table, of a run on one machine, whose budget pays.
        fetched: True for files that three servers gave: that is no run on one machine, whatever its report says.

    A run between silos has no schema, card, terms and data package. Raises ConfigError without the word that a run on
    one machine needs, and with one that another run does not need; StoreError if something is missing, ``out`` exists
    (unless ``overwrite``) or nobody can tell who pays; BudgetExceeded.
    """
    check_bundle_path(out, overwrite=overwrite)
    files, texts, publication = prepare_bundle(
        run,
        config=config,
        terms=terms,
        certificates=certificates,
        real_figures=real_figures,
        said=said,
        fetched=fetched,
    )
    # The charge comes before anything can leave the machine.
    entered = "" if publication is None else publication.enter()
    return PackedRun(write_bundle(files, out, documents=texts, overwrite=overwrite), entered)


def prepare_bundle(
    run: Path,
    *,
    config: Path | None = None,
    terms: Path | None = None,
    certificates: Path | None = None,
    real_figures: bool = False,
    said: PublishersWord | None = None,
    fetched: bool = False,
) -> PreparedBundle:
    """Returns what ``pack_run`` writes, and charges nothing. Arguments and errors are those of ``pack_run``."""
    loaded = load_config(config or _config_of(run))
    report = read_document(run / _REPORT, "report")
    files = public_files(run, certificates=certificates, one_server=_has_one_server(loaded))
    publication = None
    if not fetched:
        publication = _publication(run, loaded, report, said=said, exact=real_figures)
    if publication is not None and report is not None:
        report = {**report, ACCOUNT: publication.account}
    if loaded.silos is not None:
        if terms is not None:
            raise ConfigError(
                loaded.source, "silos", f"is of a run between silos; expected no --terms {terms}"
            )
        files |= _results_of_silos(run, report)
        texts = _texts_of_silos(run, loaded, report or {}, real_figures=real_figures)
        return PreparedBundle(files, texts, publication)
    published = {}
    if report and not real_figures:
        published = dict(_public_report(loaded, run, report))
    elif report and ACCOUNT in report:
        published[_REPORT] = _json(report)
    if _REPORT in published and not real_figures:
        report = json.loads(published[_REPORT])
        # A page that cannot be drawn here shows the real table.
        files.pop(_PAGE, None)
    released = measured_config(loaded, run).domain
    made = documents(loaded, report, terms=terms_text(terms, loaded), domain=released)
    texts = published | made | _public_config(run, loaded)
    texts[PACKAGE] = datapackage(loaded, report, bundled_files(run, files, texts))
    return PreparedBundle(files, texts, publication)


def bundled_files(
    run: Path, files: Mapping[str, Path], texts: Mapping[str, bytes]
) -> list[BundledFile]:
    """Returns sizes and digests of ``texts``, and of the ``files`` of a run without one. Raises StoreError."""
    packed = [
        BundledFile(name, len(text), hashlib.sha256(text).hexdigest())
        for name, text in texts.items()
    ]
    with disk_errors(run, "read"):
        packed += [
            BundledFile(name, path.stat().st_size, _digest(path))
            for name, path in files.items()
            if name not in texts
        ]
    return packed


def _public_config(run: Path, config: Config) -> dict[str, bytes]:
    """Returns config.toml for publication, and the files of the earlier model that it names."""
    # Paths of keys and certificates, a server's cluster and an owner's proxy are not for publication.
    own: dict[str, object] = {"tls": None, "compute": None, "network": None}
    texts = dict[str, bytes]()
    # What the servers gave lies beside it; the digest is the configuration's.
    given = (run / START_FOLDER).is_dir()
    earlier = earlier_model(replace(config, base=run.resolve()) if given else config)
    if earlier is not None:
        own["refresh.model"] = None
        texts |= {f"{START_FOLDER}/{name}": data for name, data in earlier.files.items()}
    texts[_CONFIG] = config.override(own).resolved_toml().encode()
    return texts


def _results_of_silos(run: Path, report: Mapping[str, object] | None) -> dict[str, Path]:
    """Returns the files that the server of silos made, by name. Raises StoreError if one is not there."""
    listed = None if report is None else report.get("files")
    if not isinstance(listed, list):
        raise StoreError(run / _REPORT, "lists no files; expected what a run between silos wrote")
    found = {str(name): run / str(name) for name in listed}
    for name, path in found.items():
        if path.parent != run or is_work(name) or not path.is_file():
            raise StoreError(path, f"is no result of this run; expected what {_REPORT} lists")
    return found


def _texts_of_silos(
    run: Path, config: Config, report: Mapping[str, object], *, real_figures: bool
) -> dict[str, bytes]:
    """Returns the configuration, report and page of a run between silos, as they are published."""
    published = report if real_figures else without_real(report)
    page = render_silos(published).encode()
    return {_REPORT: _json(published), _PAGE: page, **_public_config(run, config)}


def _publication(
    run: Path,
    config: Config,
    report: Mapping[str, object] | None,
    *,
    said: PublishersWord | None,
    exact: bool,
) -> LocalPublication | None:
    """Returns the publication of a run on one machine, None for another one. Raises ConfigError."""
    if is_local_run(run, config, report or {}):
        own = run / _CONFIG
        if own.is_file() and load_config(own).digest() != config.digest():
            raise ConfigError(
                config.source, "", f"is not the configuration of this run; expected {own}"
            )
        word = said or PublishersWord()
        return LocalPublication.of(run, config, report or {}, said=word, exact=exact)
    if said is not None and (said.table or said.word or said.uncharged):
        raise ConfigError(
            str(run),
            "budget",
            "is that of the run's data owners, who have charged it themselves: it was between machines; expected no "
            "table, no population and no --uncharged",
        )
    return None


def _public_report(
    config: Config, run: Path, report: Mapping[str, object]
) -> Iterator[tuple[str, bytes]]:
    """Yields the report's files without the figures of a real table; the page if it can be drawn."""
    try:
        check_report(report)
    except ValueError as error:
        raise StoreError(
            run / _REPORT, f"is no report: {error}; expected what the run wrote"
        ) from error
    released = measured_config(config, run)
    public = public_report(released, run, report)
    if LEFT_OUT in public or ACCOUNT in public:
        yield _REPORT, _json(public)
    with contextlib.suppress(ImportError):
        page = public_page(released, run, public)
        if page is not None:
            yield _PAGE, page.encode()


def _json(report: Mapping[str, object]) -> bytes:
    return (json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _config_of(run: Path) -> Path:
    """Returns the path of the run's configuration. Raises StoreError."""
    if not (run / _CONFIG).is_file():
        raise StoreError(
            run,
            f"has no {_CONFIG}; expected a run's folder, or the study's file with --config",
        )
    return run / _CONFIG


def _has_one_server(config: Config) -> bool:
    return config.federation is not None and not config.parties


def terms_text(path: Path | None, config: Config) -> str | None:
    """Returns the terms in a file. Raises StoreError, and ConfigError if the configuration has terms already."""
    if path is None:
        return None
    if config.run.terms is not None:
        raise ConfigError(
            config.source,
            "run.terms",
            f"has the terms that all agreed on; expected no --terms {path}",
        )
    with disk_errors(path, "read"):
        data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise StoreError(path, "is not UTF-8 text; expected terms of use") from error
    check_terms(text, str(path))
    return text


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
