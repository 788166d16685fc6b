"""Provenance of a column's values: public knowledge, a run's noisy counts, or a table that was read in the clear.

``Provenance`` is a column's ``from`` key. All values here are public. A provenance is a claim of the study's author,
inside the configuration's digest, and nothing checks it. A list (``categories``, ``edges``) has one provenance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mechanisms.errors import DomainError

PUBLIC, PRIVATE, TABLE = "public", "private", "table"
WHOLE = ""
"""Key of the provenance of all values of a column that no other key names."""
NAMING = frozenset({"name", "kind", "implied_by"})
"""Keys that name a column and have no provenance."""
_MOST_WORDS = 200


@dataclass(frozen=True, slots=True)
class Provenance:
    """Provenance of a column's values: pairs of a key of its table (``WHOLE``: the rest) and a text.

    A text is ``public``, ``private`` or ``table``, optionally with a colon and the source in words: ``public: ICD-10-GM
    2026``. Raises ``DomainError`` for other texts.
    """

    column: str
    said: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        for key, text in self.said:
            origin, colon, word = text.partition(":")
            where = f"column {self.column!r}: from{f'.{key}' if key else ''} = {text!r}"
            if origin.strip() not in (PUBLIC, PRIVATE, TABLE) or (colon and not word.strip()):
                raise DomainError(
                    f'{where}; expected "public", "private" or "table", or "public: " and in words where from'
                )
            if len(text) > _MOST_WORDS or not text.isprintable():
                raise DomainError(f"{where}; expected one line of at most {_MOST_WORDS} characters")

    def of(self, key: str) -> str:
        """Returns the text for a key, "" if there is none."""
        said = dict(self.said)
        return said.get(key, said.get(WHOLE, ""))

    def to_config(self) -> str | dict[str, str]:
        """Returns the value of ``from`` in the ``[[column]]`` table."""
        said = dict(self.said)
        return said[WHOLE] if set(said) == {WHOLE} else said

    @classmethod
    def read(cls, column: str, value: object, keys: Mapping[str, object]) -> Provenance:
        """Reads the ``from`` value of a column with these keys. Raises ``DomainError``."""
        if isinstance(value, str):
            return cls(column, ((WHOLE, value),))
        if not isinstance(value, Mapping) or not value:
            raise DomainError(
                f'column {column!r}: from = {value!r}; expected a text such as "public: the code book", or a table of '
                'them by key, such as {low = "public", atoms = "table"}'
            )
        named = sorted(set(keys) - NAMING - {"from"})
        for key, text in value.items():
            if key not in named:
                raise DomainError(
                    f"column {column!r}: from.{key}; the column has no such key, but {', '.join(named)}"
                )
            if not isinstance(text, str):
                raise DomainError(f"column {column!r}: from.{key} = {text!r}; expected a text")
        return cls(column, tuple(sorted(value.items())))
