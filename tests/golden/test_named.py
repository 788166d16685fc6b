"""Each option, configuration key and exit status is named by a test: what nobody names, nobody would miss."""

import re
from collections import defaultdict
from functools import cache

from tests.docs.guides import sessions
from tests.golden.texts import path_of

_HELP = re.compile(r"^\$ syncret ([^\n]+) --help\n(.*?)(?=^\$ |\Z)", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"^  (?:-\w, )?(--[\w-]+)(?: / (--[\w-]+))?(.*(?:\n {5}.*)*)", re.MULTILINE)
_WORD = re.compile(r"--[\w-]+|[\w-]*\w")
_TESTS = path_of("").parent
_OWN = ("golden", "mutants")
"""Folders of tests that read all names from the code."""
_EVERYWHERE = {"--help", "--version"}


@cache
def words() -> dict[str, frozenset[str]]:
    """The words of each file of tests, and of each session of commands of the guides."""
    texts = {
        str(path.relative_to(_TESTS)): path.read_text(encoding="utf-8")
        for path in _TESTS.rglob("*.py")
        if path.relative_to(_TESTS).parts[0] not in _OWN
    }
    for name, blocks in sessions().items():
        texts[f"guides, {name}"] = "\n".join(block.code for block in blocks)
    return {name: frozenset(_WORD.findall(text)) for name, text in texts.items()}


def named_together(*names: str) -> bool:
    """True if some file has all of these words."""
    return any(found.issuperset(names) for found in words().values())


def options() -> dict[tuple[str, ...], list[str]]:
    """The commands that have an option, by its spellings and its help: an option of many is named once.

    Without those of `bench`, which are the benchmarks' own.
    """
    found = defaultdict(list)
    for command, text in _HELP.findall(path_of("help.txt").read_text(encoding="utf-8")):
        if command.split()[0] != "bench":
            for name, other, said in _OPTION.findall(text):
                found[name, other, "".join(said.split())].append(command)
    return {key: at for key, at in found.items() if key[0] not in _EVERYWHERE}


def test_every_option_is_named_with_a_command_of_it_by_a_test() -> None:
    assert len(options()) > 150
    unnamed = [
        f"{name} of {', '.join(at)}"
        for (name, other, _), at in options().items()
        if not any(
            named_together(spelt, command.split()[-1])
            for command in at
            for spelt in (name, other)
            if spelt
        )
    ]
    assert not unnamed, f"no test names these options: {'; '.join(unnamed)}"


def test_every_key_is_named_with_its_section_by_a_test() -> None:
    unnamed = [
        f"[{section}] {line.split()[0]}"
        for section, *lines in (
            part.splitlines()
            for part in path_of("keys.txt").read_text(encoding="utf-8").strip().split("\n\n")
        )
        for line in lines
        if not named_together(section.strip("[]"), line.split()[0])
    ]
    assert not unnamed, f"no test names these keys: {'; '.join(unnamed)}"


def test_every_exit_status_is_named_by_a_test() -> None:
    names = [line.split()[1] for line in path_of("statuses.txt").read_text().splitlines()]
    unnamed = [name for name in names if not named_together("Status", name)]
    assert not unnamed, f"no test names these exit statuses: {'; '.join(unnamed)}"


def test_name_that_no_test_has_is_found() -> None:
    assert named_together("plan", "--bandwidth")
    assert not named_together("plan", "--" + "bandwidths")
