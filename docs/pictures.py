"""The pictures in the guides, of real pages in the system's chromium: `make pictures`.

python docs/pictures.py report RUN     docs/report.png, the first page of a run's report
"""

import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

DOCS = Path(__file__).resolve().parent
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_COLOURS = 96
"""Of a picture: pages of text need no more, and the file is a third."""


@contextmanager
def system_browser() -> Iterator[Browser]:
    """The system's chromium, without a window."""
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit(f"no browser: expected one of {', '.join(_BROWSERS)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def save(picture: bytes, path: Path) -> None:
    """A screenshot as a small PNG."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def report(run: Path) -> None:
    """The top of a run's report."""
    with system_browser() as browser:
        page = browser.new_page(viewport={"width": 1000, "height": 900}, device_scale_factor=1.0)
        page.goto((run / "report.html").resolve().as_uri())
        save(page.screenshot(), DOCS / "report.png")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["report", run]:
            report(Path(run))
        case _:
            raise SystemExit(__doc__)
