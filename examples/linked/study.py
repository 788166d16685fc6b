"""Three hospitals and a registry: invented tables of the same people, and DistAIM on their join.

    python examples/linked/study.py              tables and the run, in a temporary folder
    python examples/linked/study.py FOLDER       the same in FOLDER, which stays
    python examples/linked/study.py tables FOLDER     the tables alone: FOLDER/north.csv, ..., registry.csv

The hospitals write national numbers and dates in their own ways, and the registry in another one; keys are brought to
one spelling where they are made. The trial has the four tables in one place and splits the hospitals' one among three
owners; in earnest each owner submits its own (README.md).
"""

import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from mechanisms.sampling import public_generator

HERE = Path(__file__).parent
PEOPLE, OF_HOSPITALS, OF_REGISTRY = 2400, 1500, 1500
HOSPITALS = ("north", "south", "east")
DIAGNOSES = ("heart", "lung", "stroke", "fracture")
MORTALITY = {"heart": 0.3, "lung": 0.35, "stroke": 0.4, "fracture": 0.05}
STAYS = ("national_number", "born", "sex", "age", "diagnosis", "days")
DEATHS = ("number", "date_of_birth", "died", "cause")


def tables(folder: Path, seed: int = 7) -> None:
    """Writes the hospitals' tables, all of them in hospitals.csv, and the registry's. All people are invented."""
    draw = public_generator(seed)
    order = draw.permutation(PEOPLE)
    # Of 2,400 people 1,500 were in a hospital, and 1,500, not the same, are in the registry.
    patients, registered = {*order[:OF_HOSPITALS]}, {*order[PEOPLE - OF_REGISTRY :]}
    stays: dict[str, list[Sequence[object]]] = {name: [] for name in HOSPITALS}
    deaths: list[Sequence[object]] = []
    for person in range(PEOPLE):
        age = int(min(99, max(20, draw.normal(62, 17))))
        year, month, day = 2024 - age, int(draw.integers(1, 13)), int(draw.integers(1, 29))
        number, diagnosis = f"{person * 37 % 100_000:05d}", DIAGNOSES[int(draw.integers(4))]
        risk = MORTALITY[diagnosis] * (age / 62) ** 2
        died = (
            "no"
            if draw.random() > risk
            else ("within a month", "within a year")[int(draw.integers(2))]
        )
        if person in patients:
            hospital = HOSPITALS[person % 3]
            born = f"{year}-{month:02d}-{day:02d}"
            days = int(min(30, 1 + draw.exponential(8 if diagnosis != "fracture" else 4)))
            sex = "f" if draw.random() < 0.5 else "m"
            stays[hospital].append((f" {number}", born, sex, age, diagnosis, days))
        if person in registered:
            natural = {"heart": "heart", "stroke": "heart", "lung": "lung"}.get(diagnosis, "other")
            cause = "none" if died == "no" else natural
            deaths.append((number, f"{day:02d}.{month:02d}.{year}", died, cause))
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in stays.items():
        _write(folder / f"{name}.csv", STAYS, rows)
    _write(folder / "hospitals.csv", STAYS, [row for rows in stays.values() for row in rows])
    _write(folder / "registry.csv", DEATHS, deaths)


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def run(folder: Path) -> int:
    """Makes the tables and runs the trial; returns its exit status."""
    tables(folder)
    command = [sys.executable, "-m", "parties", "run", str(HERE / "linked.toml")]
    for source in ("hospitals", "registry"):
        command += ["--source", f"{source}={folder / source}.csv"]
    return subprocess.run([*command, "--out", str(folder / "run")], check=False).returncode


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["tables"] and len(arguments) == 2:
        tables(Path(arguments[1]))
    elif arguments in (["--help"], ["-h"], ["tables"]) or len(arguments) > 1:
        sys.stdout.write(str(__doc__))
    elif arguments:
        sys.exit(run(Path(arguments[0])))
    else:
        with tempfile.TemporaryDirectory(prefix="syncret-linked-") as temporary:
            sys.exit(run(Path(temporary)))
