"""The folder of a run of tables with keys by its files, which an installation without server packages knows, too."""

from pathlib import Path

STUDY_FILE = "study.toml"
VIEWS = "views"
REPORT = "report.json"
OF_VIEWS = "runs of views"
"""Method of tables that were drawn from runs which had ended before."""


def is_keyed_run(path: Path) -> bool:
    """Returns whether ``path`` is the folder of a run of tables with keys, whose views are runs."""
    return (path / STUDY_FILE).exists() and (path / VIEWS).is_dir()
