"""From the file to the verdict with every kind of column that a draft may have, several of each in one table."""

import csv
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from parties.cli.main import cli

ROWS = 1200
Write = Callable[[random.Random], str]


def half_day(draw: random.Random) -> str:
    return f"{draw.randint(1, 12)}:{draw.randint(0, 59):02d} {draw.choice(['AM', 'PM'])}"


def sometimes(value: Write, other: str, share: float) -> Write:
    return lambda draw: other if draw.random() < share else value(draw)


def whole(draw: random.Random) -> str:
    return str(int(draw.lognormvariate(5, 1)))


def pressure(draw: random.Random) -> str:
    systolic = round(draw.gauss(130, 15))
    return f"{systolic}/{systolic * 2 // 3 + draw.randint(0, 9)}"


def answers(draw: random.Random) -> str:
    return "; ".join(drug for drug in ("iron", "zinc", *"abcdefgh") if draw.random() < 0.4)


COLUMNS: Mapping[str, Write] = {
    "marked": sometimes(sometimes(whole, "<5", 0.1), "refused", 0.05),
    "marked, missing": sometimes(sometimes(whole, "n.k.", 0.1), "", 0.1),
    "marked cents": sometimes(lambda d: f"{d.uniform(0, 90):.2f}", ">90", 0.08),
    "marked days": sometimes(lambda d: f"2021-{d.randint(1, 12):02d}-11", "unknown", 0.1),
    "sentinel": sometimes(whole, "-99", 0.03),
    "far date": sometimes(lambda d: f"{d.randint(1, 28):02d}.03.2022", "31.12.9999", 0.03),
    "money": lambda d: f"${d.randint(1, 99_999) / 100:,.2f}",
    "per cent": lambda d: f"{d.uniform(0, 100):.1f}%",
    "time": half_day,
    "wait": lambda d: f"PT{d.randint(0, 3)}H{d.randint(1, 59)}M",
    "rare": lambda d: "north" if d.random() < 0.6 else d.choice(["south", "east", "e.d."]),
    "rarer": lambda d: f"ward {int(d.expovariate(0.9))}",
    "code": lambda d: f"{d.choice('ABCD')}{int(d.betavariate(1, 4) * 80):02d}.{d.randint(0, 9)}",
    "month": lambda d: f"20{d.randint(19, 23)}{d.randint(1, 12):02d}",
    "quarter": lambda d: f"20{d.randint(19, 23)}-Q{d.randint(1, 4)}",
    "exact": lambda d: repr(d.lognormvariate(3, 1)),
    "zeros": sometimes(lambda d: repr(d.lognormvariate(3, 1)), "0", 0.6),
    "zip": lambda d: f"0{d.randint(1000, 1080)}",
    "pressure": sometimes(pressure, "", 0.1),
    "place": lambda d: f"{d.gauss(52, 1):.4f}, {d.gauss(13, 1):.4f}",
    "drugs": answers,
}
TABLES = [tuple(COLUMNS)[place::3] for place in range(3)]


@pytest.mark.parametrize("names", TABLES, ids=lambda names: names[0])
def test_every_kind_of_column_comes_through_a_trial_and_claims_no_more_than_is_true(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    draw = random.Random(names[0])
    path, config, out = (tmp_path / name for name in ("table.csv", "draft.toml", "out"))
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows([COLUMNS[name](draw) for name in names] for _ in range(ROWS))

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, list(arguments))
        assert done.exit_code == 0, done.output + repr(done.exception)
        return done.stdout

    config.write_text(run("domain", str(path)))
    run(
        "run",
        str(config),
        "--data",
        str(path),
        "--method",
        "aim",
        "--epsilon",
        "4",
        "--out",
        str(out),
    )
    written = pd.read_csv(out / "synthetic.csv", dtype=str, keep_default_na=False)
    assert list(written.columns) == list(names)
    report = json.loads((out / "report.json").read_text())
    wrong = {c["column"]: c["wrong"] for c in report["quality"]["columns"] if c["wrong"]}
    assert wrong == {}
    real = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name in names:
        # What is written often in the real table is written in the synthetic one, and about as often.
        for value, rows in real[name].value_counts().items():
            if rows >= ROWS / 20 and name != "code":
                assert abs((written[name] == value).mean() - rows / ROWS) < 0.05, (name, value)
