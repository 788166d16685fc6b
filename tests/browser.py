"""The system's chromium for tests of pages, where it is installed."""

import shutil
from collections.abc import Iterator

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATH = next((path for name in NAMES if (path := shutil.which(name))), None)

needs_browser = pytest.mark.skipif(PATH is None, reason=f"no browser: none of {', '.join(NAMES)}")


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    """One browser for the tests of a file; each test makes a context of its own."""
    with playwright.sync_playwright() as started:
        # Containers have no namespaces for its sandbox; it opens this test's pages alone.
        found = started.chromium.launch(executable_path=PATH, args=["--no-sandbox"])
        yield found
        found.close()
