"""Joins in transcripts: costs of joining a batch of several sources, and verification of its opened comparisons.

The openings of a sort may show an order alone. All values here are public: capacities, and the order of rows that were
shuffled in secret. Source: `protocols.link`, `protocols.sort`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parties.audit.evidence import TranscriptAttempt, TranscriptEntry, record_table
from parties.audit.findings import CheckFailure, require
from parties.config import Config
from parties.mpc.inputs.linked import LINKED, SourceLink
from parties.mpc.transcript_schema import COUNTING, RECOUNTING
from protocols.bitslice import to_bits, words_for
from protocols.errors import CheckFailed
from protocols.sort import Parts
from protocols.steps import COMPARISONS, Aligned, Linked


def capacities_of(note: TranscriptEntry) -> Mapping[str, int]:
    """Returns the maximum number of rows of each owner in a batch. Raises CheckFailure."""
    capacities = record_table(note.record["capacities"])
    rows = {client: value for client, value in capacities.items() if type(value) is int}
    right = bool(rows) and len(rows) == len(capacities) and min(rows.values()) > 0
    require(right, f"line {note.line}: a batch does not say how many rows its owners may have")
    return rows


def is_linked(entry: TranscriptEntry) -> bool:
    """True for the note of a batch of several sources."""
    batch = entry.is_note(COUNTING.what) or entry.is_note(RECOUNTING.what)
    return batch and entry.text("form") == LINKED


def linked_facts(
    note: TranscriptEntry, attempt: TranscriptAttempt, config: Config
) -> tuple[Linked | Aligned, int]:
    """Returns the facts of joining a batch, and the maximum number of joined rows."""
    link, declared = SourceLink(config), capacities_of(note)
    if not link.by_key:
        rows = link.rows(declared)[0]
        return Aligned(rows, len(config.sources)), rows
    facts, levels = link.linking(declared), list[int]()
    for entry in attempt.events:
        if entry.line <= note.line:
            continue
        if is_linked(entry):
            break
        if entry.kind == "opened" and entry.record["what"] == COMPARISONS.what:
            levels.append(entry.number("count"))
    return Linked(facts, tuple(levels)), facts.candidates


@dataclass(slots=True)
class Sorting:
    """State of a join's sort, which verifies that each opening is of the comparisons that the earlier ones leave."""

    config: Config
    _parts: Parts | None = None

    def begin(self, note: TranscriptEntry) -> None:
        """Begins the join of a batch of several sources."""
        link = SourceLink(self.config)
        self._parts = None
        if link.by_key:
            facts = link.linking(capacities_of(note))
            self._parts = Parts.of(facts.total if facts.candidates else 0)

    def size(self, entry: TranscriptEntry, where: str) -> int:
        """Returns the number of words of an opening of comparisons, and updates the state. Raises CheckFailure."""
        if self._parts is None or not self._parts.unsorted:
            raise CheckFailure(f"{where}: comparisons are opened where no rows are sorted")
        left, right = self._parts.pairs()
        words = np.frombuffer(entry.bytes("value"), "<u8").astype(np.uint64)
        expected = words_for(len(left))
        require(
            words.size == expected, f"{where}: {words.size} words of comparisons, not {expected}"
        )
        bits = to_bits(words, expected * 64).astype(np.bool_)
        require(not bits[len(left) :].any(), f"{where}: bits that are no comparison are opened")
        try:
            self._parts = self._parts.split(left, right, bits[: len(left)])
        except CheckFailed as error:
            raise CheckFailure(f"{where}: {error}") from error
        return expected
