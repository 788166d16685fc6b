"""A report's two files: `report.json` and `report.html`, each complete or not there.

Provides `write_report`. Secret: nothing may come in; see `parties.report.content`.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from parties.files import write_whole
from parties.report.content import ReportPictures, check_report


def write_report(
    run_dir: Path, report: Mapping[str, object], *, pictures: ReportPictures
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
        write_whole(path, content)
    return paths
