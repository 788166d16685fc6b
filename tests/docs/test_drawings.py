"""The drawings of docs/how.md: files are those that the script draws, and the page shows each with words for it."""

import re
from xml.etree import ElementTree

import pytest

from tests.docs.guides import DOCS
from tests.docs.made import module

drawings = module("drawings")
SHOWN = re.compile(r"!\[([^\]]+)\]\(([\w-]+)\.svg\)")
PAGE = (DOCS / "how.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_drawing_is_the_one_that_the_script_makes(name: str) -> None:
    assert (DOCS / f"{name}.svg").read_text(encoding="utf-8") == drawings.DRAWINGS[name]()


def test_page_shows_every_drawing_with_words_in_its_place() -> None:
    shown = SHOWN.findall(PAGE)
    assert [name for _, name in shown] == [*drawings.DRAWINGS]
    assert all(text.endswith(".") and len(text) > 80 for text, _ in shown)


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_drawing_is_legible_on_a_phone(name: str) -> None:
    svg = ElementTree.fromstring(drawings.DRAWINGS[name]())
    space = "{http://www.w3.org/2000/svg}"
    assert svg.attrib["viewBox"].split()[2] == str(drawings.WIDTH) == "480"
    assert all(float(text.attrib["font-size"]) >= 16 for text in svg.iter(f"{space}text"))
