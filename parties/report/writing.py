"""A report's two files: `report.json` and `report.html`, each complete or not there.

Provides `write_report`. Secret: nothing may come in; see `parties.report.model`.

The last of a deployment's report: what its published table shows, where no real table is at hand.

Provides ``write_report_without_real``. Public: everything.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mechanisms.workload import Workload
from parties.config import Config
from parties.report.claims import column_claims
from parties.report.columns import column_summaries
from parties.report.comparison import compare_tables
from parties.report.from_result import read_table_of
from parties.report.model import ReportFigures, RunReport, check_report
from parties.report.quality import read_quality
from parties.report.verdict import verdict
from parties.storage.files import write_atomic


def write_report(
    run_dir: Path, report: Mapping[str, object], *, pictures: ReportFigures
) -> tuple[Path, Path]:
    """Write `report.json` and `report.html` into `run_dir`, each complete or not at all; returns both paths.

    `report` is what `RunReport.to_dict` gives. Raises ValueError for a report with a key missing or a number that
    JSON does not have, StoreError where the folder cannot be written.
    """
    # Drawing takes a second to import, which nothing else in the command needs.
    from parties.report.html import render_html

    check_report(report)
    text = json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    page = render_html(report, pictures)
    paths = run_dir / "report.json", run_dir / "report.html"
    for path, content in zip(paths, (text, page), strict=True):
        write_atomic(path, content)
    return paths


def write_report_without_real(
    config: Config, workload: Workload, directory: Path, report: RunReport
) -> None:
    """Add the synthetic table's own columns to a report and write its two files. Raises StoreError, DataError."""
    table = read_table_of(config, directory)
    quality = read_quality(directory)
    if quality is not None:
        quality["columns"] = column_claims(quality, config.domain, table.codes, table.values)
        quality["verdict"] = verdict(quality, config.domain)
    whole = replace(
        report,
        columns=column_summaries(config.domain, table.values),
        quality=quality,
    )
    shown = compare_tables(workload, table.codes)
    write_report(directory, whole.to_dict(), pictures=shown)
