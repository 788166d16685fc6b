"""Pages that a test has made."""

from pathlib import Path

from bench.experiment.appendix import appendix_of


def whole(page: Path) -> str:
    """Returns a page with its appendix, where there is one."""
    files = (page, page.with_name(appendix_of(page.name)))
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())
