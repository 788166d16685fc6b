"""An image's packages without what nobody uses there; run in the build stage, by the environment's own Python.

    /opt/syncret/bin/python slim.py

Four steps: tests, headers and sources in C go; so do libraries in ``UNUSED``; symbols go, by binutils' strip; and
all modules of Syncret are imported, which shows that the rest is whole and writes the bytecode of what they import.
No other bytecode is in the image: all of it would be a fifth of its size, and most is never read.
"""

import importlib
import importlib.util
import pkgutil
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection
from pathlib import Path

OURS = ("protocols", "secagg", "mechanisms", "parties")
SOURCES = {".a", ".c", ".cc", ".h", ".hpp", ".pxd", ".pxi", ".pyi", ".pyx"}
UNUSED = {
    "pyarrow": ("*flight*", "*s3*", "libarrow_python.so", "libarrow_python.so.*.*"),
    "PIL": ("_avif.*",),
    "pillow.libs": ("libavif*",),
}
"""Files by folder: clients of Flight and of S3, and second and third copies of a library, in wheels without links; what
reads and writes AVIF pictures."""
OPTIONAL = ("distributed", "flwr")
"""Packages of extras that no image has."""
LATE = (
    "openpyxl",
    "psycopg",
    "pyarrow.feather",
    "pyarrow.parquet",
    "python_calamine",
    "sqlalchemy.dialects",
)
"""Packages of tables and databases, which Syncret imports when it needs them."""


def leave_out(site: Path) -> None:
    """Deletes tests, compiled ones too (numpy's _simd is for its own), sources, and what is ``UNUSED``."""
    for tests in [path for path in site.rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests, ignore_errors=True)
    for path in site.rglob("*"):
        if path.is_file() and (
            path.suffix in SOURCES or path.match("*_tests.*") or path.match("_simd.*")
        ):
            path.unlink()
    for folder, patterns in UNUSED.items():
        for path in [path for pattern in patterns for path in (site / folder).glob(pattern)]:
            path.unlink()


def strip(site: Path) -> None:
    """Takes the symbols out of compiled modules.

    Libraries in ``*.libs`` stay as they are: their headers were moved when the wheel was made, and strip breaks them.
    """
    found = [
        path for path in site.rglob("*.so*") if path.is_file() and ".libs" not in str(path.parent)
    ]
    subprocess.run(["strip", "--strip-unneeded", *map(str, found)], check=True)


def import_all(missing: Collection[str]) -> None:
    """Imports all of Syncret, with bytecode, and what it imports late, without, since few need that.

    A package that is not there has to be in ``missing``.
    """
    sys.dont_write_bytecode = False
    for top in OURS:
        package = importlib.import_module(top)
        for module in pkgutil.walk_packages(package.__path__, f"{top}."):
            if not module.name.endswith("__main__"):
                _import(module.name, missing)
    sys.dont_write_bytecode = True
    for name in LATE:
        _import(name, missing)


def _import(name: str, missing: Collection[str]) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in missing:
            raise


def main() -> None:
    """Slims the environment whose Python runs this."""
    site = Path(sysconfig.get_path("purelib"))
    leave_out(site)
    strip(site)
    # Syncret itself says what an owner's image does not have.
    from parties.foundation.process import SERVER_PACKAGES

    a_server = importlib.util.find_spec("numba") is not None
    late = {name.partition(".")[0] for name in LATE}
    import_all({*OPTIONAL, *late, *(() if a_server else SERVER_PACKAGES)})


if __name__ == "__main__":
    main()
