"""Pages: every value is text in a report and in an audit, none is missing, and the markup is in templates alone."""

import re
from collections.abc import Callable
from pathlib import Path

import jinja2
import pytest

import parties
from parties.audit import html as audit_page
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from parties.report import html as report_page
from parties.report.model import ReportFigures
from parties.report.render import HtmlTable, page_templates
from tests.parties.audit_runs import make_run
from tests.parties.support import document
from tests.parties.test_report import example

NAME, ESCAPED = "<script>", "&lt;script&gt;"
ROOT = Path(parties.__file__).parent


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, certificates: dict[str, CertificateFiles]
) -> Path:
    """A run whose columns are named like tags, so that whatever a round chooses is."""
    columns = [
        {**column, "name": name}
        for column, name in zip(document()["column"], (NAME, f"{NAME}2", f"{NAME}3"), strict=True)
    ]
    folder = tmp_path_factory.mktemp("hostile")
    return make_run(folder, certificates, {"column": columns, "run.rounds": 1})


def report_of(run: Path) -> str:
    return report_page.render_html(example(NAME).to_dict(), ReportFigures())


def audit_of(run: Path) -> str:
    return audit_page.render_audit(audit_folder(run))


@pytest.mark.parametrize(
    ("module", "rendered"), [(report_page, report_of), (audit_page, audit_of)], ids=["report", "audit"]
)  # fmt: skip
def test_column_named_like_a_tag_is_text(
    module: object, rendered: Callable[[Path], str], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = rendered(run)
    assert ESCAPED in page
    assert NAME not in page
    # A control: without the environment's escaping the same page has the tag.
    unescaped = module._PAGES.overlay(autoescape=False)  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "_PAGES", unescaped)
    assert NAME in rendered(run)


def test_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        page_templates(report_page.__file__).get_template("page.html").render()


def test_table_shows_numbers_to_six_digits_at_the_right() -> None:
    template = page_templates(report_page.__file__).from_string(
        '{% from "parts.html" import table %}{{ table(content) }}'
    )
    page = template.render(content=HtmlTable(("of", "n"), [("a & b", 1 / 3)]))
    assert '<th>of</th><th class="n">n</th>' in page
    assert '<td>a &amp; b</td><td class="n">0.333333</td>' in page
    assert 'class="scroll"' in page
    assert "scroll" not in template.render(content=HtmlTable(("of",), [], whole=True))


def test_markup_is_in_templates_alone_and_no_value_is_marked_as_safe() -> None:
    tag = re.compile(r"<(?:!doctype|html|table|tr|td|h[1-6]|div|p|ul|svg|iframe)\b[^<]*>", re.I)
    assert [path for path in ROOT.rglob("*.py") if tag.search(path.read_text())] == []
    for path in [*ROOT.rglob("*.html"), *ROOT.rglob("*.py")]:
        assert not re.search(r"\|\s*safe\b|\bMarkup\(|autoescape\s+false", path.read_text()), path
