"""Glossary of a report: words that readers may not know, their meanings, and the places in a text that link to them.

``Words`` finds the first mention of each word after every heading, so that a text has few links. All values here are
public. Known limit: English alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_WORDS = (
    (
        "atom",
        r"atoms?",
        "A single value with a cell of its own, such as 0 or 9999, since many rows have it.",
    ),
    (
        "basis",
        r"basis",
        "The reason for a bound: the counts were measured, or those of a wider marginal; or "
        "another query was chosen, which is unlikely where this one is far off. Without any "
        "of these there is no bound.",
    ),
    (
        "bin",
        r"bins?",
        "A range of numbers or dates whose rows are counted together. Values within it are"
        " not told apart.",
    ),
    (
        "cell",
        r"cells?",
        "One place in a table of counts: a value or a bin, or one of each of several columns.",
    ),
    (
        "charge",
        r"charges?",
        "A part of the privacy budget that one noisy count, or one choice, has used.",
    ),
    (
        "Cram\N{LATIN SMALL LETTER E WITH ACUTE}r's V",
        "Cram\N{LATIN SMALL LETTER E WITH ACUTE}r's V",
        "The strength of the relation of two columns, from 0 for none to 1 where one column "
        "determines the other.",
    ),
    (
        "data owner",
        r"data owners?",
        "An organisation or person whose rows took part.",
    ),
    (
        "delta",
        r"delta",
        "The chance that the promise of epsilon does not hold. It has to be far below 1 in "
        "the number of rows.",
    ),
    (
        "domain",
        r"domain",
        "The names, kinds, categories and bounds of the columns, which are published with the"
        " table.",
    ),
    (
        "epsilon",
        r"epsilon",
        "A limit on the influence of one row or person on the result: the smaller, the more "
        "private. The section Privacy says what an attacker can find.",
    ),
    (
        "L1 error",
        r"L1 (?:error|distance)",
        "The sum of the differences between two tables of shares, from 0 to 2: twice the "
        "share of the rows that would have to move.",
    ),
    (
        "marginal",
        r"marginals?",
        "A table of counts: how many rows have each value, or each combination of values, of "
        "some columns.",
    ),
    (
        "measured",
        r"measured",
        "Counted over all owners' rows, and published with noise.",
    ),
    (
        "noise",
        r"noise",
        "A random number that is added to a count before it is published. It protects the rows.",
    ),
    (
        "off",
        r"off",
        "The share of the rows that are in a wrong cell: 5 % off means that 5 of 100 rows "
        "would have to move.",
    ),
    (
        "opened",
        r"opened|openings?",
        "Published by the run. Where servers hold secret shares, all other values stay split: "
        "the shares of one server alone reveal nothing.",
    ),
    (
        "query",
        r"quer(?:y|ies)",
        "A marginal that the study asked for.",
    ),
    (
        "rho",
        r"rho",
        "The privacy budget in the unit that a run adds up (zCDP). Epsilon and delta follow "
        "from it.",
    ),
    (
        "shuffled",
        r"shuffled",
        "With the values of each column in a random order: single columns stay right, their "
        "relations are lost.",
    ),
    (
        "synthetic",
        r"synthetic",
        "Drawn from a model of the noisy counts. No row stands for a person.",
    ),
    (
        "trusted party",
        r"trusted party",
        "A party to which all owners would give their rows. It knows which pairs are worth "
        "measuring, and spends the same privacy budget on these alone.",
    ),
    (
        "zCDP",
        r"zCDP",
        "A way to add up privacy losses (zero-concentrated differential privacy).",
    ),
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word, the ``anchor`` of its entry, and its ``meaning`` in one or two sentences."""

    name: str
    anchor: str
    meaning: str


def _anchor(name: str) -> str:
    return "word-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


GLOSSARY = tuple(Word(name, _anchor(name), meaning) for name, _, meaning in _WORDS)
_PATTERN = re.compile(
    r"(?<![\w-])(?:" + "|".join(f"({pattern})" for _, pattern, _ in _WORDS) + r")(?![\w-])",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Words:
    """The glossary for one page, and the words that were linked since the last heading."""

    glossary: tuple[Word, ...] = GLOSSARY
    _linked: set[str] = field(default_factory=set)

    def begin(self) -> str:
        """Begins a section, whose first mentions are links again; returns no text."""
        self._linked.clear()
        return ""

    def parts(self, text: object) -> Iterator[tuple[str, Word | None]]:
        """Yields the parts of a text in order, those that are to be links with their word."""
        shown, at = str(text), 0
        for found in _PATTERN.finditer(shown):
            word = self.glossary[(found.lastindex or 1) - 1]
            if word.name not in self._linked:
                self._linked.add(word.name)
                yield shown[at : found.start()], None
                yield found.group(), word
                at = found.end()
        yield shown[at:], None
