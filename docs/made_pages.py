"""Pages of the site that are made from the code: commands, keys, Python, glossary and so on.

``PAGES`` has a function for each, which yields lines of Markdown.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click
from made_glossary import glossary  # MkDocs puts the folder of a hook on the path.
from made_keys import keys
from made_operations import metrics, statuses

import syncret
from parties.cli.main import cli

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("parties", "protocols", "secagg", "mechanisms")
_WIDTH = 100


def commands() -> Iterator[str]:
    """Yields every command with its help, but those that only the launcher calls."""
    yield "# Commands\n\nWhat `--help` says of each command.\n"
    yield from _commands(cli, _context(cli, "syncret", None))


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"\n## {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
    if not isinstance(command, click.Group):
        return
    for name in sorted(command.list_commands(context)):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from _commands(below, _context(below, name, context))


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(
        command, parent, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH
    )


def python() -> Iterator[str]:
    """Yields the public names of the package, with their signatures and docstrings."""
    yield f"# Python\n\n{_as_code(inspect.getdoc(syncret) or '')}\n"
    for name in sorted(syncret.__all__, key=str.casefold):
        yield from _described(name, getattr(syncret, name))


def _described(name: str, thing: object) -> Iterator[str]:
    yield f"\n## {name}\n"
    if not isinstance(thing, type):
        yield _signature(name, thing)
        yield _as_code(inspect.getdoc(thing) or "")
        return
    yield _as_code(inspect.getdoc(thing) or "")
    for member, value in vars(thing).items():
        if member.startswith("_") or not (callable(value) or isinstance(value, property)):
            continue
        of = value.fget if isinstance(value, property) else value
        said = inspect.getdoc(of) or ""
        shown = f"{name}.{member}" if isinstance(value, property) else ""
        yield f"\n### {name}.{member}\n"
        yield f"```python\n{shown}\n```" if shown else _signature(f"{name}.{member}", of)
        yield _as_code(said)


def _signature(name: str, function: object) -> str:
    """Returns a block with a function's call; types that are long to read are written by their own names."""
    if not callable(function):
        return ""
    signature = inspect.signature(function)
    mine = [p for p in signature.parameters.values() if p.name != "self"]
    call = ",\n    ".join(str(p) for p in mine)
    call = f"\n    {call},\n" if len(mine) > 1 else call
    back = signature.return_annotation
    returned = "" if back is inspect.Signature.empty else f" -> {back}"
    return f"```python\n{name}({call}){returned}\n```"


def _as_code(text: str) -> str:
    """Returns a docstring as Markdown: literals by one sign, parts such as ``Args`` as they stand."""
    first, *rest = text.split("\n\n")
    parts = [first.replace("``", "`")]
    for part in rest:
        block = part.startswith((" ", "Args:", "Raises:", "Returns:"))
        parts.append(f"```text\n{part}\n```" if block else part.replace("``", "`"))
    return "\n\n".join(parts)


def modules() -> Iterator[str]:
    """Yields all modules, each with the first sentence of its docstring."""
    yield "# Modules"
    for package in _PACKAGES:
        for folder in sorted({path.parent for path in (_ROOT / package).rglob("*.py")}):
            name = folder.relative_to(_ROOT).as_posix()
            yield f"\n## {name}\n\n{_summary(folder / '__init__.py')}\n\n| module | |\n| --- | --- |"
            for path in sorted(folder.glob("*.py")):
                if path.stem != "__init__":
                    yield f"| `{path.stem}` | {_summary(path)} |"


def decisions() -> Iterator[str]:
    """Yields the titles of the records in docs/decisions, by number."""
    yield "# Decisions\n\nEach record says what had to be answered, what was chosen, and what else was possible.\n"
    for path in sorted((_ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        yield f"- [{title}](decisions/{path.name})"


def _summary(path: Path) -> str:
    """The first paragraph of a module's docstring, in one line of a table."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    line = " ".join(text.split("\n\n")[0].split())
    return line.replace("``", "`").replace("|", "\\|").replace("<", "&lt;")


PAGES: Mapping[str, Callable[[], Iterator[str]]] = {
    "commands.md": commands,
    "keys.md": keys,
    "python.md": python,
    "statuses.md": statuses,
    "metrics.md": metrics,
    "modules.md": modules,
    "decisions.md": decisions,
    "glossary.md": glossary,
}
"""Pages by the name of their file."""
