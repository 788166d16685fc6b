"""Archives of the golden masters: the module packs them without times and owners, and unpacks them for a test."""

import tarfile
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
RUNS = HERE / "runs"
SUFFIX = ".tar.xz"
_MODE = 0o644


def pack(folder: Path, archive: Path, files: Iterable[Path]) -> None:
    """The ``archive`` gets these ``files`` of ``folder``, named relative to it: the same files make the same bytes."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(files):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size, member.mode = path.stat().st_size, _MODE
            with path.open("rb") as file:
                tar.addfile(member, file)


def unpack(archive: Path, folder: Path) -> Path:
    """The function unpacks ``archive`` into a new ``folder``, which is its owner's alone, and returns the folder."""
    folder.mkdir(mode=0o700)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder
