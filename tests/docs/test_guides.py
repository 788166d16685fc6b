"""The guides under docs/: every command in them runs, in order; every link leads somewhere; the site builds."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import syncret
from parties.cli.main import cli
from tests.docs.guides import (
    DOCS,
    GUIDES,
    ROOT,
    Block,
    blocks_of,
    has_command,
    sessions,
    shown_commands,
)
from tests.docs.session import Session

PAGES = sorted([*GUIDES, *ROOT.glob("*.md"), *ROOT.glob("[!.]*/README.md")])
# Sessions that start so many processes that only `make test-slow` runs them; packages' own tests have such studies too.
LONG = {"study", "hub", "silohub", "keys", "firstowner", "firstcoordinator", "firstoperator"}
_TABLES = os.environ.get("SYNCRET_DATA_DIR")


def _run(name: str, blocks: list[Block], folder: Path) -> None:
    session = Session(folder, Path(_TABLES) if _TABLES else None)
    try:
        for block in blocks:
            session.run(block)
    finally:
        session.end()


def _fast() -> list[str]:
    return [
        name
        for name, blocks in sessions().items()
        if name not in LONG and not all("slow" in block.options for block in blocks)
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", _fast())
def test_guides_commands_run_in_their_order(name: str, tmp_path: Path) -> None:
    _run(name, [b for b in sessions()[name] if "slow" not in b.options], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    [n for n, bs in sessions().items() if n in LONG or any("slow" in b.options for b in bs)],
)
def test_guides_long_commands_run(name: str, tmp_path: Path) -> None:
    blocks = sessions()[name]
    for table in {block.needs for block in blocks} - {None}:
        if _TABLES is None or not (Path(_TABLES) / str(table)).exists():
            pytest.skip(f"SYNCRET_DATA_DIR has no {table}")
    _run(name, blocks, tmp_path)


@pytest.mark.parametrize("line", sorted({line for _, line in shown_commands()}))
def test_guides_show_commands_that_there_are(line: str) -> None:
    """Also those that are not run."""
    arguments = shlex.split(line, comments=True)[1:]
    for sign in (">", "||"):
        if sign in arguments:
            arguments = arguments[: arguments.index(sign)]
    command: click.Command = cli
    while has_command(command, arguments):
        assert isinstance(command, click.Group)
        name, found, arguments = command.resolve_command(click.Context(command), arguments)
        assert found is not None, name
        command = found
    assert command.make_context("syncret", arguments).params


def test_blocks_of_refuses_a_block_that_nobody_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nsyncret demo\n```\n")
    with pytest.raises(ValueError, match="neither runs nor says why not"):
        list(blocks_of(page))
    page.write_text("<!-- run: trial 1 sideways -->\n```sh\nsyncret demo\n```\n")
    with pytest.raises(ValueError, match="unknown 'sideways'"):
        list(blocks_of(page))


def test_session_finds_a_command_that_fails_and_one_that_prints_something_else(
    tmp_path: Path,
) -> None:
    block = Block("page.md", "s", 1, "sh", "echo 12 rows\n", prints=("7 rows",))
    (tmp_path / "good").mkdir()
    _run("s", [block], tmp_path / "good")
    for number, code in enumerate(("false\n", "echo 12 columns\n")):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(AssertionError):
            _run("s", [Block("page.md", "s", 1, "sh", code, prints=("7 rows",))], folder)


def test_three_hosts_stand_in_the_order_in_which_they_work() -> None:
    """The session runs by the numbers of its steps, a reader goes down the page."""
    page = ROOT / "examples" / "three-hosts" / "README.md"
    steps = [block.step for block in blocks_of(page)]
    assert steps == sorted(steps)
    text = page.read_text(encoding="utf-8")
    typed = ["syncret join ", "syncret study requests", "syncret study admit", "study approve"]
    assert sorted(map(text.index, typed)) == list(map(text.index, typed))
    roles = text[: text.index("\n## ")]
    for folder in ("/var/lib/syncret", "`authority`", "`study`", "`tls`", "`stays-2026`"):
        assert folder in roles


_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")


def _anchors(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    for target in _LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in _anchors(found), f"{page.name}: {target}"


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def _built(folder: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    """`make docs` of a folder; not --quiet, which strict mode takes for an order to see no warnings."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_site_builds_without_a_warning_and_asks_nobody_else(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = _built(ROOT, site)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(site.rglob("*.html"))
    assert {f"{path.stem}.html" for path in DOCS.glob("*.md")} <= {page.name for page in pages}
    made = {
        name: (site / f"{name}.html").read_text(encoding="utf-8") for name in ("commands", "python")
    }
    assert all(f">syncret {name}<" in made["commands"] for name in ("run", "bundle", "data sample"))
    assert all(f'id="{name.lower()}"' in made["python"] for name in syncret.__all__)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//', text)


def test_a_site_with_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    """The control: a repository's page may have it, a site has no such page."""
    docs = tmp_path / "docs"
    (docs / "folder").mkdir(parents=True)
    (tmp_path / "mkdocs.yml").write_text("site_name: one\nvalidation: {unrecognized_links: warn}\n")
    (docs / "index.md").write_text("[a folder](folder)\n")
    assert "unrecognized relative link" in _built(tmp_path, tmp_path / "site").stderr
    assert _built(tmp_path, tmp_path / "site").returncode != 0
    (docs / "index.md").write_text("a folder\n")
    assert _built(tmp_path, tmp_path / "site").returncode == 0
