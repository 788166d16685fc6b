"""report.html in a real browser: no text is cut at three widths, in print and in the dark, and axe finds nothing.

Needs the system's chromium, and for the rules of accessibility axe-core, which the package axe-playwright-python has.
"""

import asyncio
import base64
import importlib.util
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.column_values import column_values
from mechanisms.sampling import public_generator
from mechanisms.table import decode
from parties.config import Config
from parties.mpc.planning.budget import noise_kind
from parties.report.accuracy import report_figures
from parties.report.claims import column_claims
from parties.report.columns import column_summaries
from parties.report.html import render_html
from parties.report.quality import aim_quality, with_truth
from parties.report.verdict import verdict
from tests.browser import browser, needs_browser, playwright
from tests.parties.support import make_config
from tests.parties.test_quality import run_small
from tests.parties.test_report import example

__all__ = ["browser"]
pytestmark = [pytest.mark.slow, needs_browser]
WIDTHS = (360, 768, 1280)
LONG = "contact_details_of_the_policy_holder_or_of_whoever_pays"
COLUMNS: list[dict[str, object]] = [
    {"name": "claimed", "kind": "date", "low": "2019-03-01", "high": "2024-09-01", "unit": "day", "bins": 10},
    {"name": "amount", "kind": "real", "decimals": 2, "edges": [0, 150, 400, 900, 2000, 37000]},
    {"name": LONG, "kind": "categorical", "categories": ["Example Insurance, branch of Sankt Gallen", "b" * 60, "c"]},
    {"name": "fraud", "kind": "integer", "low": 0, "high": 1},
    # As wide a matrix as that of a usual table.
    *({"name": f"indicator_{i}", "kind": "categorical", "categories": ["no", "yes"]} for i in range(8)),
]  # fmt: skip
AXE = importlib.util.find_spec("axe_playwright_python")
_OVERFLOWS = """() => {
  const found = [];
  const wide = document.documentElement.clientWidth;
  for (const e of document.querySelectorAll('main *')) {
    if (!e.checkVisibility({contentVisibilityAuto: true}) || e.closest('.tasks thead')) continue;
    const box = e.getBoundingClientRect(), said = e.textContent.slice(0, 60);
    const scroll = e.closest('.scroll');
    // Within a window that scrolls, the window has to fit.
    if (!scroll || e === scroll) {
      if (box.left < -0.5 || box.right > wide + 0.5) found.push(['beyond the page', e.tagName, said]);
    }
    const style = getComputedStyle(e);
    const hides = style.overflowX !== 'visible' && !e.matches('.scroll');
    if (hides && e.scrollWidth > e.clientWidth + 1) found.push(['cut', e.tagName, said]);
    const inner = e.parentElement.getBoundingClientRect();
    const inline = style.display === 'inline' || e.closest('.matrix');
    const part = !inline && !e.matches('td, th, tr, thead, tbody, table');
    if (part && (box.right > inner.right + 1 || box.left < inner.left - 1))
      found.push(['beyond its part', e.tagName, said]);
    // Text of a cell that is wider or higher than the cell.
    if (e.matches('td, th') && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1))
      found.push(['cut in its cell', e.tagName, said]);
  }
  if (document.documentElement.scrollWidth > wide) found.push(['the page scrolls sideways']);
  return found;
}"""
"""Script that returns all that is cut, or overflows the page or its part."""
_OUTSIDE = """() => {
  const svg = document.querySelector('svg'), frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1
      || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
  }).map(e => e.textContent);
}"""
"""Script that returns the texts of a picture that its edges cut."""
_MOVE = """() => {
  const svg = document.querySelector('svg'), box = svg.viewBox.baseVal;
  svg.setAttribute('viewBox', [box.width / 2, 0, box.width, box.height].join(' '));
}"""
_PRINTED = """() => [...document.querySelectorAll('table')].filter(t => !t.closest('main > section details')).map(t => [
  t.getBoundingClientRect().height > 0, getComputedStyle(t.rows[0]).breakInside,
  t.parentElement.scrollWidth - t.parentElement.clientWidth,
])"""
"""Script that returns for each table if it is shown, how its rows break, and how far it is wider than its part."""
_PICTURE = re.compile(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)")


def rows(config: Config, count: int, *, seed: int) -> NDArray[np.int32]:
    """Rows whose columns go together, skewed, some of them rare."""
    generator = np.random.default_rng(seed)
    at = generator.beta(2, 1.5, count)
    sizes = config.domain.sizes(config.domain.names)
    moved = [np.clip(at + generator.normal(0, 0.1, count), 0, 0.999) for _ in sizes]
    return np.stack([m * n for m, n in zip(moved, sizes, strict=True)], axis=1).astype(np.int32)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of a run, and of a trial, with dates, amounts and long names."""
    config = make_config({"column": COLUMNS})
    made, real = (rows(config, 2000, seed=seed) for seed in (1, 2))
    # The browser's own loop runs in this thread.
    with ThreadPoolExecutor(1) as pool:
        workload, result, model = pool.submit(asyncio.run, run_small(config, real)).result()
    quality: dict[str, Any] = aim_quality(
        config.run, workload, result, noise=noise_kind(config), model=model, codes=made
    )
    values, beside = (
        column_values(config.domain, decode(config.domain, codes, public_generator(0)))
        for codes in (made, real)
    )
    quality["columns"] = column_claims(quality, config.domain, made, values)
    for pair in quality["shuffling"]["each"]:
        pair["independent"] = 0.3
    quality["shuffling"] |= {"independent": 0.3, "better": True}
    quality["verdict"] = verdict(quality, config.domain)
    of_trial = with_truth(quality, workload, made, real, values=(values, beside))
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, section, there in (("run", quality, None), ("trial", of_trial, real)):
        document = {
            **example().to_dict(),
            "quality": section,
            "columns": list(column_summaries(config.domain, values, None if there is None else beside)),
        }  # fmt: skip
        if there is None:
            document["utility"] = {}
        figures = report_figures(document, workload, made, real=there)
        assert figures.accuracy is not None
        found[name] = folder / f"{name}.html"
        found[name].write_text(render_html(document, figures))
    return found


@pytest.fixture
def opened(browser: playwright.Browser) -> Iterator[Any]:
    """Opens a page at a width, with all folded parts open."""
    contexts = []

    def open_(path: Path, width: int, **settings: Any) -> playwright.Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        page.evaluate("Promise.all([...document.images].map(i => i.decode()))")
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        return page

    yield open_
    for context in contexts:
        context.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["run", "trial"])
def test_no_text_is_cut_or_overflows(
    opened: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    page = opened(pages[name], width)
    assert page.evaluate(_OVERFLOWS) == []
    # A control: a digest that no line may break.
    page.evaluate(
        "document.querySelector('main p').innerHTML = '<b class=matrix>' + 'a1'.repeat(400) + '</b>'"
    )
    page.add_style_tag(content="b.matrix { white-space: nowrap }")
    assert page.evaluate(_OVERFLOWS) != []


@pytest.mark.parametrize("width", WIDTHS)
def test_pictures_are_as_wide_as_their_part_or_narrower_and_their_letters_can_be_read(
    opened: Any, pages: dict[str, Path], width: int
) -> None:
    page = opened(pages["trial"], width)
    shown = page.evaluate(
        "[...document.images].map(i => [i.clientWidth / i.naturalWidth, i.parentElement.clientWidth - i.clientWidth])"
    )
    assert len(shown) > len(COLUMNS)
    # Letters of 8 points, 10.7 pixels, have at least seven tenths of their size on a telephone.
    assert all(scale >= 0.7 and left >= -1 for scale, left in shown), shown


def test_no_text_of_a_picture_is_cut_at_its_edge(opened: Any, pages: dict[str, Path]) -> None:
    page = opened(pages["trial"], 1280)
    pictures = _PICTURE.findall(pages["trial"].read_text())
    assert pictures
    for picture in pictures:
        svg = base64.b64decode(picture).decode()
        page.set_content(svg[svg.index("<svg") :])
        assert page.evaluate(_OUTSIDE) == []
        # A control: the same picture, moved to the left by half of its width.
        page.evaluate(_MOVE)
        assert page.evaluate(_OUTSIDE) != []


@pytest.mark.skipif(AXE is None, reason="no axe-core: axe-playwright-python is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing(opened: Any, pages: dict[str, Path], width: int, scheme: str) -> None:
    assert AXE is not None
    assert AXE.origin is not None
    script = Path(AXE.origin).with_name("axe.min.js").read_text()
    # The page forbids scripts; those of the test run in spite of that.
    page = opened(pages["trial"], width, bypass_csp=True, color_scheme=scheme)
    page.evaluate(script)
    found = page.evaluate("axe.run()")["violations"]
    said = [(rule["id"], [node["html"][:200] for node in rule["nodes"]][:3]) for rule in found]
    assert said == [], json.dumps(said, indent=1)
    page.evaluate("document.querySelector('img').removeAttribute('alt')")
    assert [rule["id"] for rule in page.evaluate("axe.run()")["violations"]] == ["image-alt"]


def test_dark_and_print_have_grounds_of_their_own(opened: Any, pages: dict[str, Path]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page = opened(pages["run"], 1280, color_scheme="dark")
    assert page.evaluate(ground) == "rgb(21, 25, 30)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.images[0]).filter") == "none"


def test_print_shows_folded_parts_and_keeps_rows_whole(opened: Any, pages: dict[str, Path]) -> None:
    # As wide as A4 between margins of a centimetre.
    page = opened(pages["trial"], 720)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = false)")
    page.emulate_media(media="print")
    tables = page.evaluate(_PRINTED)
    assert tables
    assert all(whole == [True, "avoid"] and beyond <= 1 for *whole, beyond in tables), tables
    # What is for auditors stays folded.
    hidden = page.locator("main > section details table")
    assert hidden.count()
    assert not any(table.is_visible() for table in hidden.all())
    assert page.pdf(format="A4")[:5] == b"%PDF-"


def test_words_lead_to_their_meanings(opened: Any, pages: dict[str, Path]) -> None:
    page = opened(pages["run"], 360)
    for word in ("epsilon", "off", "rho"):
        link = page.locator(f"a.word[href='#word-{word}']").first
        assert len(link.get_attribute("title")) > 20
        link.click()
        assert page.evaluate("document.querySelector(':target').textContent") == word
        assert page.locator(":target").is_visible()
