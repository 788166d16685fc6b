"""The pictures in the guides, of real pages in the system's chromium: `make pictures`.

python docs/pictures.py report RUN         docs/report.png, the first page of a run's report
python docs/pictures.py console FOLDER     docs/console-*.png, of the study that the guides have, run in FOLDER
"""

import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

DOCS = Path(__file__).resolve().parent
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_COLOURS = 96
"""Number of colours of a picture: pages of text need no more, and the file is a third."""
_PHONE = {"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True}
_APPROVED, _LAST_OWNER, _LAST_ADMITTED = 65, 140, 142
"""Steps of the guides' study at which pictures are taken."""
_DESK = {"viewport": {"width": 1000, "height": 800}}


@contextmanager
def system_browser() -> Iterator[Browser]:
    """Opens the system's chromium, without a window."""
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit(f"no browser: expected one of {', '.join(_BROWSERS)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def save(page: Page, name: str) -> None:
    """Saves the visible part of a page, as a small PNG."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    small = image.quantize(_COLOURS, dither=Image.Dither.NONE)
    small.save(DOCS / f"{name}.png", optimize=True)
    print(DOCS / f"{name}.png")


def report(run: Path) -> None:
    """Takes the picture of the top of a run's report."""
    with system_browser() as browser:
        page = browser.new_page(viewport={"width": 1000, "height": 1175})
        page.goto((run / "report.html").resolve().as_uri())
        save(page, "report")


def console(folder: Path) -> None:
    """Takes the pictures of a study from start to end, as its first server's operator sees it."""
    sys.path.insert(0, str(DOCS.parent))
    from tests.docs.guides import sessions
    from tests.docs.session import Session

    folder.mkdir(parents=True)
    session = Session(folder, None)
    blocks = [block for block in sessions()["study"] if "console" not in block.code]
    running: list[subprocess.Popen[str]] = []
    with system_browser() as browser:
        try:
            _study(session, blocks, folder / "alpha" / "service", browser, running)
        finally:
            session.end()
            for process in running:
                process.terminate()


def _study(session, blocks, service: Path, browser: Browser, running: list) -> None:  # type: ignore
    """Runs the study's blocks one after the other, with pictures in between."""
    page = browser.new_page(**_DESK)
    page.set_default_timeout(90_000)
    for block in blocks:
        if block.step == _APPROVED:
            page.goto(_address(service, running))
            _proposed(page)
        if block.step == _LAST_OWNER:
            page.get_by_role("row", name="south").wait_for()
            save(page, "console-2-waiting")
        session.run(block)
        if block.step == _LAST_ADMITTED:
            page.locator("progress[aria-label='Rounds done']:not([value='0'])").wait_for()
            page.evaluate("scrollTo(0, 0)")
            save(page, "console-3-rounds")
            _finished(page, browser)


def _proposed(page: Page) -> None:
    page.get_by_role("link", name="Look and approve").wait_for()
    save(page, "console-0-studies")
    page.get_by_role("link", name="Look and approve").click()
    page.get_by_role("button", name="Approve").wait_for()
    save(page, "console-1-approve")
    page.goto(page.url.removesuffix("/approve"))


def _finished(page: Page, browser: Browser) -> None:
    page.locator("iframe").wait_for()
    page.frame_locator("iframe").get_by_text("Privacy").first.wait_for()
    page.evaluate("scrollTo(0, 0)")
    time.sleep(0.5)
    save(page, "console-4-finished")
    phone = browser.new_context(**_PHONE, storage_state=page.context.storage_state()).new_page()
    phone.goto(page.url)
    phone.get_by_role("heading", name="Owners").scroll_into_view_if_needed()
    time.sleep(0.5)
    save(phone, "console-5-phone")


def _address(server: Path, running: list[subprocess.Popen[str]]) -> str:
    """Starts a console of the server's folder and returns its address."""
    command = [sys.executable, "-m", "parties", "console", str(server), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    running.append(process)
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["address"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["report", run]:
            report(Path(run))
        case ["console", folder]:
            # Homes of the people in it are absolute paths.
            console(Path(folder).resolve())
        case _:
            raise SystemExit(__doc__)
