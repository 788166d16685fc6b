"""Invented tables with keys: patients, and their stays in hospital.

    python examples/patients.py FOLDER [PATIENTS]

Writes patients.csv and stays.csv. A patient has none to six stays; weight changes little from stay to stay, wards and
diagnoses often stay as they are, and the sex of a patient stands in both tables.
"""

import csv
import datetime
import sys
from pathlib import Path

from mechanisms.sampling import PublicGenerator, public_generator

WARDS = ("cardiology", "surgery", "oncology", "neurology", "internal")
DIAGNOSES = ("I10", "I50", "C34", "G20", "K35", "E11")


def main(folder: Path, patients: int) -> None:
    """Writes the two tables."""
    chance = public_generator(1)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "patients.csv").open("w", newline="") as one,
        (folder / "stays.csv").open("w", newline="") as two,
    ):
        persons, rows = csv.writer(one), csv.writer(two)
        persons.writerow(["patient_id", "sex", "birth_year", "smoker"])
        rows.writerow(["patient_id", "sex", "admitted", "ward", "diagnosis", "weight", "days"])
        for number in range(patients):
            key, sex, year = (
                f"P{number:06}",
                chance.choice(["f", "m"]),
                int(chance.integers(1935, 2005)),
            )
            smoker = chance.random() < 0.25
            persons.writerow([key, sex, year, "yes" if smoker else "no"])
            for stay in stays(chance, sex, year, smoker=smoker):
                rows.writerow([key, sex, *stay])


def stays(
    chance: PublicGenerator, sex: str, year: int, *, smoker: bool
) -> list[tuple[str, str, str, str, int]]:
    """Returns the stays of a patient, in their order."""
    found = list[tuple[str, str, str, str, int]]()
    day = datetime.date(2019, 1, 1) + datetime.timedelta(int(chance.integers(900)))
    weight = chance.normal(82 if sex == "m" else 69, 11)
    ward, diagnosis = (
        chance.choice(WARDS),
        "C34" if smoker and chance.random() < 0.4 else chance.choice(DIAGNOSES),
    )
    going = 0.5 + 0.15 * (year < 1960) + 0.1 * smoker
    while len(found) < 6 and chance.random() < going:
        days = 1 + int(chance.exponential(3 + 3 * (diagnosis == "C34")))
        found.append((day.isoformat(), ward, diagnosis, f"{weight:.1f}", days))
        day += datetime.timedelta(days + 1 + int(chance.exponential(120)))
        weight += chance.normal(0, 0.9) - 0.7 * (diagnosis == "C34")
        if chance.random() < 0.3:
            ward = chance.choice(WARDS)
        if chance.random() < 0.25:
            diagnosis = chance.choice(DIAGNOSES)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000)
