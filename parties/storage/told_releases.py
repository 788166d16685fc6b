"""Earlier releases of an owner's key, as servers have told them: what a budget lacks that was put back or begun anew.

All values here are public.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mechanisms.text_table import and_list
from parties.storage.population_budget import Release


@dataclass(frozen=True, slots=True)
class EarlierRelease:
    """A ``release`` with the owner's ``submission``, as ``servers`` tell, and the ``mark`` that the owner signed."""

    release: Release
    submission: str
    servers: tuple[str, ...]
    mark: str = ""

    @property
    def text(self) -> str:
        """Text for people."""
        said, found = and_list(self.servers), self.release
        return f"run {found.run} (configuration {found.config[:12]}), which {said} released"

    def entered_text(self, budget: Path, names: str, *, known: bool) -> str:
        """Returns the sentence on its charge to populations, ``known`` from its mark."""
        doubt = "" if known else "; nothing tells whether it was of these people"
        return (
            f"{budget} had no charge for {self.text} with your key; it is charged to {names}{doubt}"
        )


@dataclass(frozen=True, slots=True)
class ToldReleases:
    """Releases that a budget lacks, by the servers that have ``answered``; ``problems`` are those of the others."""

    missing: tuple[EarlierRelease, ...]
    answered: tuple[str, ...]
    problems: Mapping[str, str]
