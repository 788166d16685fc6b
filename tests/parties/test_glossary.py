"""A glossary: the first mention of a word after a heading is a link to its meaning, and no text is lost."""

from hypothesis import given
from hypothesis import strategies as st

from parties.report.glossary import GLOSSARY, Words

NAMES = [word.name for word in GLOSSARY]
TEXTS = st.lists(st.sampled_from([*NAMES, "cells", "Queries", "and", "<b>", "cellar"])).map(
    " ".join
)


@given(st.lists(TEXTS))
def test_parts_are_the_text_and_each_word_is_linked_once(texts: list[str]) -> None:
    words, linked = Words(), []
    for text in texts:
        parts = list(words.parts(text))
        assert "".join(part for part, _ in parts) == text
        linked += [word.name for _, word in parts if word is not None]
    assert len(linked) == len(set(linked))


def test_each_word_is_found_by_its_name_in_capitals_and_plural() -> None:
    for name in NAMES:
        for text in (name, name.capitalize()):
            assert [word.name for _, word in Words().parts(f"The {text}.") if word] == [name]
    found = [
        word.name for _, word in Words().parts("Cells, bins, atoms; queries. Openings") if word
    ]
    assert found == ["cell", "bin", "atom", "query", "opened"]


def test_words_within_others_are_none_and_a_section_begins_anew() -> None:
    words = Words()
    assert [w for _, w in words.parts("cellar, off-line, column_cell") if w] == []
    assert [w.name for _, w in words.parts("a cell") if w] == ["cell"]
    assert [w for _, w in words.parts("a cell") if w] == []
    assert words.begin() == ""
    assert [w.name for _, w in words.parts("a cell") if w] == ["cell"]


def test_words_have_meanings_in_sentences_and_anchors_of_their_own() -> None:
    assert {"atom", "cell", "opened", "rho", "basis"} <= set(NAMES)
    assert sorted(NAMES, key=str.lower) == NAMES
    assert len({word.anchor for word in GLOSSARY}) == len(GLOSSARY)
    assert all(word.meaning.endswith(".") for word in GLOSSARY)
