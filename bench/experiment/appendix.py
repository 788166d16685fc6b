"""Short pages: what a reader needs first, and an appendix beside it that has the rest."""

import re
from collections.abc import Sequence
from pathlib import PurePath

LINES = 200
"""Most lines of a page; an appendix may have more."""
SHORT = "In short"
"""Title of the section that every page has."""


def appendix_of(name: str) -> str:
    """Returns the name of a page's appendix."""
    return f"{PurePath(name).stem}-appendix.md"


def parted(name: str, text: str, front: Sequence[str]) -> dict[str, str]:
    """Returns the files of the page ``name`` with ``text``, by name.

    The page keeps its head and the sections whose titles begin with one of ``front``, and ends with the titles of the
    others, which are its appendix. A page whose sections are all of ``front`` has no appendix; neither has one without
    ``front``.
    """
    head, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    kept = [one for one in sections if not front or _title(one).startswith((SHORT, *front))]
    others = [one for one in sections if one not in kept]
    if not others:
        return {name: text}
    beside = appendix_of(name)
    subject = head.splitlines()[0].removeprefix("# ")
    titles = [f"- {_title(one)}" for one in others]
    listed = "\n".join(["## Appendix", "", f"[The appendix]({beside}) has:", "", *titles, ""])
    opening = f"# {subject}: appendix\n\nWhat the words mean is on [the page]({name})."
    return {
        name: "\n\n".join([part.rstrip("\n") for part in (head, *kept)] + [listed]),
        beside: "\n\n".join(part.rstrip("\n") for part in (opening, *others)) + "\n",
    }


def _title(section: str) -> str:
    return section.splitlines()[0].removeprefix("## ")
