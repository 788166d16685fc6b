"""Writing of a report's two files, `report.json` and `report.html`, each complete or absent.

No secret value may come in; see `parties.report.model`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from parties.report.accuracy import report_figures
from parties.report.claims import column_claims
from parties.report.columns import column_summaries
from parties.report.from_result import read_table_of
from parties.report.model import ReportFigures, RunReport, check_report
from parties.report.quality import read_quality
from parties.report.verdict import verdict
from parties.session.study import Study
from parties.storage.files import write_atomic


def write_report(
    run_dir: Path, report: Mapping[str, object], *, pictures: ReportFigures
) -> tuple[Path, Path]:
    """Writes `report.json` and `report.html` into `run_dir`, each complete or not at all, and returns both paths.

    `report` is the result of `RunReport.to_dict`. Raises ValueError for a report with a key missing or a number that
    JSON does not have, StoreError if the folder cannot be written.
    """
    return write_report_files(run_dir, report, drawn_page(report, pictures))


def drawn_page(report: Mapping[str, object], pictures: ReportFigures) -> str:
    """Returns the content of `report.html`. Raises ValueError for a report with a key missing."""
    # The import of the drawing takes a second, and the rest of the command does not need it.
    from parties.report.html import render_html

    check_report(report)
    return render_html(report, pictures)


def write_report_files(run_dir: Path, report: Mapping[str, object], page: str) -> tuple[Path, Path]:
    """Writes a report and its page; see ``write_report``."""
    check_report(report)
    text = json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    paths = run_dir / "report.json", run_dir / "report.html"
    for path, content in zip(paths, (text, page), strict=True):
        write_atomic(path, content)
    return paths


def write_report_without_real(study: Study, directory: Path, report: RunReport) -> None:
    """Adds the synthetic table's own columns to the report of a run without a real table, and writes its files.

    Raises StoreError, DataError.
    """
    table = read_table_of(study.config, directory)
    quality = read_quality(directory)
    if quality is not None:
        quality["columns"] = column_claims(quality, study.config.domain, table.codes, table.values)
        quality["verdict"] = verdict(quality, study.config.domain)
    whole = replace(
        report,
        columns=column_summaries(study.config.domain, table.values),
        quality=quality,
    )
    document = whole.to_dict()
    shown = report_figures(document, study.workload, table.codes)
    write_report(directory, document, pictures=shown)
