"""Commands of the guides under docs/, as tests run them.

A block of commands (```sh or ```python) stands behind a comment that the reader of the page does not see:

    <!-- run: SESSION STEP [as it is] [at PLACE, PLACE ...] [OPTIONS] -->
    <!-- not run: why -->
    <!-- behind: SESSION STEP [after PLACE, PLACE ...]
    commands of what happens between the hosts, such as mail, in the folder of all places
    -->
    <!-- prints -->                 before a ```text block: lines that the commands before it print, but for numbers

OPTIONS are: in the background [until 'TEXT'] is printed; slow; needs TABLE, of SYNCRET_DATA_DIR; in the repository.

Blocks of a session run in the order of their steps, whatever page they are on, each in the folder of its place. At
several places the block is the same with the first place's name replaced, unless it is to be as it is.
ALPHA.example.org:PORT and 127.0.0.1:PORT are free ports of this machine, /var/lib/syncret is a folder of the place's
own, TWELVE WORDS are those of the study that is there, or after `serve rotate NAME` those of the key that NAME
announces, or of the file's.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GUIDES = sorted([*DOCS.rglob("*.md"), *(ROOT / "examples").glob("*/README.md")])

_BLOCK = re.compile(
    r"<!--\s*behind:(?P<behind>.*?)-->"
    r"|(?:<!--(?P<mark>[^\n]*?)-->\n)?```(?P<kind>sh|python|text)[^\n]*\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
_RUN = re.compile(
    r"(?P<session>\w+) (?P<step>\d+)(?P<same> as it is)?(?: (?:at|after) (?P<places>\w+(?:, \w+)*))?(?P<options>.*)"
)
AS_IT_IS = "as it is"
_OPTIONS = re.compile(r"in the background|slow|needs [\w.-]+|in the repository|until '[^']+'")


@dataclass(frozen=True, slots=True)
class Block:
    """Commands of a guide: ``code`` of ``kind`` sh, python or behind, at ``places``, and what they print."""

    guide: str
    session: str
    step: int
    kind: str
    code: str
    places: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    prints: tuple[str, ...] = ()

    @property
    def needs(self) -> str | None:
        """The published table that it reads."""
        return next((o.removeprefix("needs ") for o in self.options if "needs" in o), None)

    @property
    def until(self) -> str | None:
        """Output of a background command that is ready."""
        return next((o.split("'")[1] for o in self.options if o.startswith("until")), None)


def blocks_of(path: Path) -> Iterator[Block]:
    """All blocks of a guide that run. Raises ValueError for one that neither runs nor says why not."""
    last: Block | None = None
    for found in _BLOCK.finditer(path.read_text(encoding="utf-8")):
        mark = (found["mark"] or "").strip()
        if found["kind"] == "text":
            if mark == "prints" and last is not None:
                lines = tuple(line for line in found["code"].splitlines() if line.strip())
                last = Block(*_fields(last)[:-1], prints=lines)
            continue
        if last is not None:
            yield last
        last = None
        if found["behind"] is not None:
            head, _, code = found["behind"].strip().partition("\n")
            last = _block(path, head, "behind", code)
        elif mark.startswith("run: "):
            last = _block(path, mark.removeprefix("run: "), found["kind"], found["code"])
        elif not mark.startswith("not run: "):
            raise ValueError(f"{path.name}: neither runs nor says why not: {found['code']!r}")
    if last is not None:
        yield last


def _fields(block: Block) -> tuple[object, ...]:
    return tuple(getattr(block, name) for name in Block.__slots__)


def _block(path: Path, head: str, kind: str, code: str) -> Block:
    found = _RUN.fullmatch(head)
    if found is None:
        raise ValueError(f"{path.name}: {head!r}; expected SESSION STEP and so on")
    rest = _OPTIONS.sub("", found["options"]).replace(",", "").strip()
    if rest:
        raise ValueError(f"{path.name}: {head!r}: unknown {rest!r}")
    places = tuple((found["places"] or "").split(", ")) if found["places"] else ()
    options = tuple(_OPTIONS.findall(found["options"]))
    options += (AS_IT_IS,) if found["same"] else ()
    return Block(path.name, found["session"], int(found["step"]), kind, code, places, options)


def sessions() -> dict[str, list[Block]]:
    """The blocks of all guides, by session, in order."""
    every: dict[str, list[Block]] = {}
    for path in GUIDES:
        for block in blocks_of(path):
            every.setdefault(block.session, []).append(block)
    return {name: sorted(blocks, key=lambda b: b.step) for name, blocks in sorted(every.items())}


def shown_commands() -> list[tuple[str, str]]:
    """Every line of the guides that is one `syncret` command, with its page, also where it is not run."""
    found = []
    for path in [*GUIDES, ROOT / "README.md"]:
        for block in re.finditer(r"^```sh\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
            lines = block[1].replace("\\\n", " ").splitlines()
            found += [(path.name, line) for line in lines if line.startswith("syncret ")]
    return found


def has_command(command: click.Command, arguments: Sequence[str]) -> bool:
    """Returns True if the next of the arguments names a command of this group."""
    if not isinstance(command, click.Group) or not arguments:
        return False
    return not (command.invoke_without_command and arguments[0].startswith("-"))
