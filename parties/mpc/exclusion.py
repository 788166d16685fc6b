"""Reasons for not counting a participant: the only ones, on the wire, in transcripts and in reports.

Public: the excluded participants and the reasons.
"""

import enum
from collections.abc import Sequence

from mechanisms.text_table import and_list


class Exclusion(enum.StrEnum):
    """Reason for an exclusion. ``INCOMPLETE`` applies only at the end of a run: until then the servers wait."""

    COMPONENTS_DIFFER = "components differ"
    OUT_OF_BOUNDS = "out of bounds"
    INCOMPLETE = "incomplete"
    WITHDRAWN = "withdrawn"
    REVOKED = "revoked"

    def sentence(self, by: Sequence[int]) -> str:
        """Sentence for people, after the owner's name; ``by`` are servers that say so, or lack the submission."""
        servers = and_list(map(str, by))
        return f"{_SENTENCES[self]} (server {servers})" if by else _SENTENCES[self]


_SENTENCES = {
    Exclusion.COMPONENTS_DIFFER: "the two holders of a component show different ones",
    Exclusion.OUT_OF_BOUNDS: "its counts are not those of a table within the agreed number of rows",
    Exclusion.INCOMPLETE: "its submission was not at all three servers",
    Exclusion.WITHDRAWN: "it has withdrawn its submission",
    Exclusion.REVOKED: "the operators of all three servers have revoked it",
}
