"""Prints an invented table of hospital stays, with the columns of examples/three-hosts/study.toml."""

import csv
import secrets
import sys

ROWS = 500
below = secrets.randbelow
table = csv.writer(sys.stdout)
table.writerow(("age", "sex", "admission", "systolic_mmhg", "stay_days", "outcome"))
for _ in range(ROWS):
    age = min(below(100), 20 + below(90))
    old = age > 60
    table.writerow(
        (
            age,
            secrets.choice(("female", "male", "")),
            secrets.choice(("planned", "emergency", "emergency" if old else "planned", "transfer")),
            round(105 + age / 3 + below(400) / 10, 1) if below(20) else "",
            min(below(8) + below(10 + 20 * old), 365),
            secrets.choice(("home", "home", "care" if old else "home", "transferred", "died")),
        )
    )
