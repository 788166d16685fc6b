"""The last of a deployment's report: what its published table shows, where no real table is at hand.

Provides ``write_without_real``. Public: everything.
"""

from dataclasses import replace
from pathlib import Path

from mechanisms.workload import Workload
from parties.config import Config
from parties.report.claims import column_claims
from parties.report.columns import column_summaries
from parties.report.comparison import compare_tables
from parties.report.content import RunReport
from parties.report.quality import read_quality
from parties.report.result import read_table_of
from parties.report.verdict import verdict
from parties.report.writing import write_report


def write_without_real(
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
