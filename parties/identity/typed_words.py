"""Twelve words as people type them: which of them is wrong, and which was meant. All values here are public."""

import difflib
import re

from parties.foundation.errors import PartyError
from parties.identity.join_documents import are_words, word_list

_COUNT = 12
_PREFIX = 4
"""Number of letters that tell any two words of the list apart (BIP 39)."""
_HEX = re.compile(r"[0-9a-f]+")


class WrongWords(PartyError):
    """Typed words that stand for nothing at all; the message names the wrong ones."""


def read_words(text: str) -> str:
    """Returns typed words, or hex digits, in lower case with single spaces.

    Raises WrongWords for words that no digest has: a word that is none of the list, with the one that was meant;
    another number than twelve; or twelve that do not belong together.
    """
    given = text.lower().split()
    if len(given) == 1 and _HEX.fullmatch(given[0]):
        return given[0]
    known = word_list()
    wrong = [
        f"word {number}, {word[:40]}, is no such word{_meant(word, known)}"
        for number, word in enumerate(given, 1)
        if word not in known
    ]
    if wrong:
        raise WrongWords(f"{'; '.join(wrong)}; expected words of the list, as they were read out")
    if len(given) != _COUNT:
        raise WrongWords(f"these are {len(given)} words; expected all twelve")
    if not are_words(given):
        raise WrongWords(
            "each word is one of the list, and the twelve do not belong together; expected the words that were read "
            "out, in their order: one is another, or two are exchanged"
        )
    return " ".join(given)


def _meant(word: str, known: frozenset[str]) -> str:
    """Returns the word that was probably meant, as ": pretty?"; "" if there is none."""
    begins = [each for each in known if len(word) >= _PREFIX and each.startswith(word[:_PREFIX])]
    near = difflib.get_close_matches(word, sorted(known), 1)
    found = (begins if len(begins) == 1 else []) or near
    return f": {found[0]}?" if found else ""
