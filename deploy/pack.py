"""Packages to hand on: wheels for builds without a network, owners' one file, and their bundle of wheels.

    python deploy/pack.py wheels                # wheels/: both images and what follows are made of these
    python deploy/pack.py zipapp                # dist/syncret.pyz, by pex
    python deploy/pack.py bundle                # dist/syncret-owner-VERSION-PLATFORM.zip

Only `wheels` asks an index, as pip is configured (PIP_INDEX_URL, PIP_CERT); the others take its folder. Versions are
those of constraints.txt. Syncret's own wheel is for all systems: it has no `bench`, and not what `setup.py` compiles,
which servers alone use. All else is for the Python and the kind of system that run this; wheels and bundles for another
one have `--python-version 3.12 --platform macosx_14_0_arm64`, as pip has them.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from sysconfig import get_platform
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))

from sbom import normalised, text

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ("pyproject.toml", "README.md", "syncret.py")
PACKAGES = ("protocols", "secagg", "mechanisms", "parties")
BUILD = ("setuptools", "wheel")
"""Wheels that building Syncret's own takes, in pip's isolated environment."""
OWNER = "tables,sql"
IMAGES = f"server,oidc,traces,{OWNER}"
"""Extras of an owner's image, file and bundle, and of both images."""
HOW_TO = """Syncret for data owners, with all that it needs. No network is asked, and no package of the system changes.

  python3 -m venv syncret
  syncret/bin/pip install --no-index --find-links wheels --require-hashes -r requirements.txt
  syncret/bin/syncret --version

requirements.txt has the SHA-256 of each wheel; sbom.cdx.json (CycloneDX) names and licenses of all packages.
"""


def run(*command: str | Path) -> None:
    """Runs a command; what it says is shown. Ends this program where it fails."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(f"pack.py: {' '.join(map(str, command[:6]))} ... ended with {done.returncode}")


def own_wheel(out: Path) -> Path:
    """Builds Syncret's wheel of the packages alone, and returns its path."""
    with TemporaryDirectory() as folder:
        for name in SOURCE:
            shutil.copy(ROOT / name, folder)
        for name in PACKAGES:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=ignored)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", out, folder)
    (wheel,) = out.glob("syncret-*.whl")
    return wheel


def wheels(out: Path, target: list[str]) -> None:
    """Fills ``out`` with the wheels of both images, Syncret's own and those of its build among them."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    wheel = own_wheel(out)
    pip = (sys.executable, "-m", "pip", "download", "-q", "--dest", out, "--only-binary", ":all:")
    run(*pip, *target, "-c", "constraints.txt", f"{wheel}[{IMAGES}]", *BUILD)
    print(f"{out}: {len(list(out.glob('*.whl')))} wheels")


def chosen(source: Path, out: Path, target: list[str]) -> list[Path]:
    """Copies the wheels that an owner takes to ``out``, by pip's own choice, and returns them."""
    pip = (sys.executable, "-m", "pip", "download", "-q", "--dest", out, "--only-binary", ":all:")
    run(*pip, *target, "--no-index", "--find-links", source, f"syncret[{OWNER}]")
    return sorted(out.glob("*.whl"))


def zipapp(source: Path, out: Path) -> None:
    """Makes the owners' one file. Where it runs first it unpacks itself below the user's cache, once."""
    pex = (sys.executable, "-m", "pex", "--no-pypi", "--find-links", source, f"syncret[{OWNER}]")
    path = out / "syncret.pyz"
    run(*pex, "--console-script", "syncret", "--venv", "prepend", "--output-file", path)
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


def requirements(found: list[Path]) -> str:
    """Returns the packages with their versions and SHA-256, as `pip install --require-hashes` reads them."""
    lines = []
    for path in found:
        name, version = path.name.split("-")[:2]
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{normalised(name)}=={version} --hash=sha256:{digest}")
    return "\n".join([*lines, ""])


def bundle(source: Path, out: Path, target: list[str]) -> None:
    """Makes one zip file of an owner's wheels, their hashes, their bill of materials and how to install them."""
    with TemporaryDirectory() as folder:
        found = chosen(source, Path(folder), target)
        (own,) = (path for path in found if path.name.startswith("syncret-"))
        system = (
            "-".join(target[1::2])
            or f"{sys.version_info.major}.{sys.version_info.minor}-{get_platform()}"
        )
        path = out / f"syncret-owner-{own.name.split('-')[1]}-python{system}.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for wheel in found:
                packed.write(wheel, f"wheels/{wheel.name}", zipfile.ZIP_STORED)
            packed.writestr("requirements.txt", requirements(found))
            packed.writestr("sbom.cdx.json", text(map(str, found)))
            packed.writestr("README.txt", HOW_TO)
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


def main() -> None:
    """Reads the command line, and makes what it names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("wheels", "zipapp", "bundle"))
    parser.add_argument("--wheels", type=Path, default=ROOT / "wheels", help="default: wheels")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--python-version", help="of wheels and bundles, such as 3.12")
    parser.add_argument("--platform", action="append", default=[], help="the same; may be repeated")
    given = parser.parse_args()
    target = ["--python-version", given.python_version] if given.python_version else []
    for name in given.platform:
        target += ["--platform", name]
    source, out = given.wheels.resolve(), given.out.resolve()
    if given.what == "wheels":
        wheels(source, target)
        return
    if not list(source.glob("syncret-*.whl")):
        sys.exit(f"pack.py: {source} has no wheel of Syncret; expected those of `pack.py wheels`")
    out.mkdir(parents=True, exist_ok=True)
    if given.what == "bundle":
        bundle(source, out, target)
    elif target:
        sys.exit("pack.py: a zipapp is for the Python that makes it; run pack.py by that one")
    else:
        zipapp(source, out)


if __name__ == "__main__":
    main()
