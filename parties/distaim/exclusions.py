"""Why a data owner is not counted: the only reasons that there are, on the wire, in transcripts and in reports.

Provides ``Exclusion``, with a sentence for people. Public: who was excluded, and why.
"""

import enum


class Exclusion(enum.StrEnum):
    """A reason. ``INCOMPLETE`` is none before the end of a run: until then such an owner is waited for."""

    COMPONENTS_DIFFER = "components differ"
    UNUSABLE = "unusable"
    OUT_OF_BOUNDS = "out of bounds"
    INCOMPLETE = "incomplete"

    @property
    def sentence(self) -> str:
        """For people, after the owner's name."""
        return _SENTENCES[self]


_SENTENCES = {
    Exclusion.COMPONENTS_DIFFER: "the two holders of a component say that they have different ones",
    Exclusion.UNUSABLE: "a server says that its part of the submission cannot be used",
    Exclusion.OUT_OF_BOUNDS: "its counts are not those of a table within the agreed number of rows",
    Exclusion.INCOMPLETE: "its submission was not at all three servers in time",
}
