"""Words that people type: which is wrong, and what was meant."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.identity.join_documents import fingerprint_words, word_list
from parties.identity.typed_words import WrongWords, read_words

WORDS = fingerprint_words(hashlib.sha256(b"a study").hexdigest()).split()


@given(st.binary(min_size=32, max_size=32), st.sampled_from(["", " ", "\t\n"]))
def test_read_words_takes_every_fingerprints_words_however_they_are_spaced(
    digest: bytes, more: str
) -> None:
    words = fingerprint_words(digest.hex())
    assert read_words(f"{more}{words.upper().replace(' ', '  ')}{more}") == words
    assert read_words(digest.hex().upper()) == digest.hex()


def test_read_words_names_a_wrong_word_and_the_one_that_was_meant() -> None:
    eleven = " ".join(WORDS[:11])
    with pytest.raises(WrongWords, match=r"^word 12, prety, is no such word: pretty\?;"):
        read_words(f"{eleven} prety")
    with pytest.raises(
        WrongWords, match=r"word 1, abandn, .*: abandon\?; word 12, qqq, is no such word;"
    ):
        read_words(f"abandn {' '.join(WORDS[1:11])} qqq")


@given(st.sampled_from(sorted(word_list())), st.data())
def test_read_words_finds_the_word_of_a_slip_of_the_hand(word: str, data: st.DataObject) -> None:
    """A letter after the fourth that is another: the first four tell the words of the list apart."""
    if len(word) < 5:
        return
    place = data.draw(st.integers(4, len(word) - 1))
    slipped = word[:place] + "~" + word[place + 1 :]
    with pytest.raises(WrongWords) as said:
        read_words(" ".join([slipped, *WORDS[1:]]))
    assert f"word 1, {slipped}, is no such word: {word}?" in str(said.value)


@pytest.mark.parametrize("number", [0, 1, 11, 13, 24])
def test_read_words_wants_all_twelve(number: int) -> None:
    with pytest.raises(WrongWords, match=f"these are {number} words; expected all twelve"):
        read_words(" ".join((WORDS * 2)[:number]))


def test_read_words_finds_words_that_are_exchanged() -> None:
    """The last word has four bits that check the others: fifteen of sixteen exchanges are found."""
    found = 0
    for i in range(11):
        swapped = list(WORDS)
        swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
        try:
            read_words(" ".join(swapped))
        except WrongWords as error:
            found += "do not belong together" in str(error)
    assert found >= 8
