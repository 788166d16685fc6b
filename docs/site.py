"""MkDocs' hooks: pages outside of docs/ that the guides link to become pages of the site, and every link is checked.

In the repository `../protocols/README.md` is a file, on the site a page; other files (configurations, pictures of
measurements) are copied as they are. Pages linked from those pages are included in turn; others are made from the code
(`made_pages`). A guide names such a page with the command that makes it, *Commands* (`make docs`), since the repository
has no such file; on the site that is a link.
"""

import posixpath
import re
from pathlib import Path

from made_pages import PAGES  # MkDocs puts the folder of a hook on the path.
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
_OUTSIDE = "repository"
"""Folder of the site that has all these pages, under their own paths."""
_MADE: dict[str, str] = {}
"""Names of the files of made pages, by their titles."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Includes the files outside of docs/ that the guides link to, and the files linked from those."""
    texts = {path: path.read_text("utf-8") for path in Path(config.docs_dir).rglob("*.md")}
    waiting = list(texts)
    while waiting:
        path = waiting.pop()
        for target in _targets(path, texts[path]):
            if target in texts or _inside(target) or not target.is_file():
                continue
            name = _name(target)
            if target.suffix == ".md":
                texts[target] = target.read_text("utf-8")
                waiting.append(target)
                file = File.generated(config, name, content=_rewritten(target, texts[target]))
                file.inclusion = file.inclusion.NOT_IN_NAV
            else:
                texts[target] = ""
                file = File.generated(config, name, abs_src_path=str(target))
            if files.get_file_from_path(name) is None:
                files.append(file)
    for name, lines in PAGES.items():
        text = "\n".join(lines())
        title = text.partition("\n")[0].removeprefix("# ")
        _MADE[title] = name
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links of the guides that lead out of docs/ to those pages."""
    if page.file.src_uri.startswith(_OUTSIDE):
        return markdown
    for title, name in _MADE.items():
        markdown = markdown.replace(f"*{title}* (`make docs`)", f"[{title}]({name})")
    return _rewritten(Path(config.docs_dir) / page.file.src_uri, markdown)


def _inside(path: Path) -> bool:
    return path.is_relative_to(_ROOT / "docs")


def _name(target: Path) -> str:
    """Returns the path of `target` in the site's sources."""
    if _inside(target):
        return target.relative_to(_ROOT / "docs").as_posix()
    # MkDocs would take a README for the index of its folder, which may have files of its own.
    return f"{_OUTSIDE}/{target.relative_to(_ROOT).as_posix()}"


def _targets(path: Path, text: str) -> list[Path]:
    return [
        (path.parent / found[2]).resolve()
        for found in _LINK.finditer(_CODE.sub("", text))
        if "://" not in found[2] and not found[2].startswith("mailto:")
    ]


def _rewritten(path: Path, text: str) -> str:
    """Returns the text with its relative links as the site needs them; code stays as it is."""
    own = posixpath.dirname(_name(path))

    def link(found: re.Match[str]) -> str:
        target = (path.parent / found[2]).resolve()
        if "://" in found[2] or not target.is_relative_to(_ROOT) or not target.is_file():
            return found[0]
        return f"{found[1]}{posixpath.relpath(_name(target), own)}{found[3] or ''}{found[4]}"

    parts = _CODE.split(text)
    return "".join(p if i % 2 else _LINK.sub(link, p) for i, p in enumerate(parts))
