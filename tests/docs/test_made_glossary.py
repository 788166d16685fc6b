"""The page of words has those of a report, as it explains them, and those that the guides use besides."""

import re

import pytest

from parties.report.glossary import GLOSSARY
from tests.docs.guides import DOCS, ROOT
from tests.docs.made import module

made = module("made_glossary")
PAGE = "\n".join(made.glossary())
GUIDES = [*DOCS.glob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("[!.]*/README.md")]
TEXT = " ".join(" ".join(path.read_text(encoding="utf-8").split()) for path in GUIDES).casefold()
SENTENCES = re.compile(r"[A-Z].*\.")


def test_glossary_has_the_words_of_a_report_with_their_meanings() -> None:
    shown = dict(made.entries())
    assert [shown[word.name] for word in GLOSSARY] == [word.meaning for word in GLOSSARY]
    assert not {word.name for word in GLOSSARY} & {*made.WORDS}, "a word has one meaning"


def test_glossary_shows_every_word_once_in_order() -> None:
    names = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    assert names == sorted({*names}, key=str.casefold)
    assert len(names) == len(GLOSSARY) + len(made.WORDS)


@pytest.mark.parametrize("word", made.WORDS)
def test_words_are_explained_in_sentences_and_used(word: str) -> None:
    assert SENTENCES.fullmatch(made.WORDS[word])
    assert re.search(rf"(?<!\w){re.escape(word.casefold())}", TEXT), "no guide has it"
