"""Pages that are made from the code are on the site, and guides name them as the site makes links of."""

import re

import yaml

from tests.docs.guides import DOCS, ROOT
from tests.docs.made import module

PAGES = module("made_pages").PAGES
TITLES = {
    name: next(iter(lines())).partition("\n")[0].removeprefix("# ") for name, lines in PAGES.items()
}
_NAMED = re.compile(r"\*([^*]+)\*\s\(`make\sdocs`\)")


def test_made_pages_are_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(re.split(r"^nav:", text, flags=re.MULTILINE)[1].join(["nav:", ""]))
    assert {*PAGES} <= set(re.findall(r"[\w-]+\.md", str(nav)))
    assert len({*TITLES.values()}) == len(TITLES)


def test_guides_name_made_pages_by_their_titles() -> None:
    named = {
        path.name: found
        for path in DOCS.glob("*.md")
        if (found := list(_NAMED.finditer(path.read_text(encoding="utf-8"))))
    }
    assert {"configuration.md", "monitoring.md", "alerts.md", "operator.md"} <= {*named}
    for found in named.values():
        for each in found:
            assert each[1] in TITLES.values()
            assert "\n" not in each[0], "the site finds it in one line"
