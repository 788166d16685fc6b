"""Ugly columns through a draft and central AIM at epsilon 4: the synthetic file reads back, and shares are kept.

Three columns a table; `tests/mechanisms/test_ugly_columns.py` has all spellings without noise.
"""

import asyncio
import csv
import io
import tomllib
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

from mechanisms.draft import draft_domain
from mechanisms.errors import DataError
from mechanisms.private_draft import private_draft
from mechanisms.reading import read_drawn
from mechanisms.source import TableSource
from mechanisms.table import encode
from parties.config import Config, config_from_dict
from parties.local.assemble import finish_trial
from parties.local.methods import open_method_folder, run_method, trial_from_tables
from parties.local.request import TrialRequest
from parties.observability.events import Progress, TextLines
from parties.report.document import optional, tables
from parties.session.draft_config import draft_text
from parties.session.owner import Table
from tests.mechanisms.office_columns import LEFT_OUT, OFFICE
from tests.mechanisms.ugly_columns import MARKS, SPELLINGS, table_of

ROWS, COLUMNS = 400, 3


OFFICES = [name for name, of in OFFICE.items() if of.kind != LEFT_OUT]


def office_table(path: Path, names: Sequence[str]) -> None:
    """Writes a table of columns of offices."""
    rng = np.random.default_rng(len(names[0]))
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=";")
    writer.writerow([f"c{i}" for i in range(len(names))])
    writer.writerows(zip(*(OFFICE[name].write(rng, ROWS) for name in names), strict=True))
    path.write_text(out.getvalue())


def ugly_table(path: Path, seed: int, *, marked: bool) -> None:
    """Writes a table of three columns, each with another spelling and other marks."""
    rng = np.random.default_rng(seed)
    names = rng.choice([*SPELLINGS], COLUMNS, replace=False)
    marks = [str(rng.choice([*MARKS])) if marked else "none" for _ in names]
    made = [
        table_of(name, mark, rows=ROWS, seed=seed) for name, mark in zip(names, marks, strict=True)
    ]
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=";")
    writer.writerow([f"c{i}" for i in range(COLUMNS)])
    writer.writerows(zip(*(table.cells for table in made), strict=True))
    path.write_text(out.getvalue())


def config_of(source: TableSource, folder: Path, *, private: bool) -> Config:
    draft = draft_domain(source)
    text = draft_text("t.csv", private_draft(draft) if private else draft)
    document = tomllib.loads(text)
    document["run"] |= {"id": "t", "epsilon": 4.0, "iterations": 30, "final_iterations": 60}
    return config_from_dict(document, source="t.toml", base=folder)


def check_run(
    folder: Path, seed: int, *, private: bool = False, offices: Sequence[str] = ()
) -> None:
    """Raises AssertionError unless the synthetic table is one of its domain, with about the shares of the real one.

    No claim of the report is wrong. The columns are those of ``offices``, if there are any.
    """
    path = folder / "t.csv"
    if offices:
        office_table(path, offices)
    else:
        # A private draft has no values, and so no marks.
        ugly_table(path, seed, marked=not private)
    source = TableSource(str(path))
    config = config_of(source, folder, private=private)
    request = TrialRequest("aim", "ugly", 3, "iid", None, seed)
    trial = trial_from_tables(Table(source, private), config, request)
    run = open_method_folder(trial, folder / "run")
    report = asyncio.run(run_method(trial, run, Progress(TextLines(stream=io.StringIO()))))
    drawn = read_drawn(run.path / "synthetic.csv", config.domain)
    codes = encode(config.domain, drawn)
    assert len(codes) == pytest.approx(ROWS, abs=60)
    document = finish_trial(trial, run, report)
    assert "read_s" not in document["time"]  # type: ignore[operator]
    claims = tables(optional(document, "quality")["columns"])
    wrong = {claim["column"]: claim["wrong"] for claim in claims}
    assert {*wrong} == {*config.domain.names}
    assert not any(wrong.values()), wrong
    if private:
        return
    for place, column in enumerate(config.domain.columns):
        shares = [
            np.bincount(of[:, place], minlength=column.size) / len(of)
            for of in (trial.codes, codes)
        ]
        assert np.abs(shares[0] - shares[1]).sum() / 2 < 0.2, (seed, column.name)


@pytest.mark.parametrize("seed", [1, 2])
def test_ugly_tables_run_and_read_back(seed: int, tmp_path: Path) -> None:
    check_run(tmp_path, seed)


def test_private_drafts_of_ugly_tables_run_and_read_back(tmp_path: Path) -> None:
    check_run(tmp_path, 3, private=True)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10, 130, 20))
def test_120_ugly_tables_run_and_read_back(start: int, tmp_path: Path) -> None:
    for seed in range(start, start + 20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check_run(folder, seed)


def test_columns_of_offices_run_and_read_back(tmp_path: Path) -> None:
    check_run(
        tmp_path, 4, offices=("KiB", "Swiss, whole", "degrees, minutes, seconds", "day of year")
    )


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(OFFICES), 12))
def test_all_columns_of_offices_run_and_read_back(start: int, tmp_path: Path) -> None:
    for first in range(start, min(start + 12, len(OFFICES)), COLUMNS):
        for private in (False, True):
            folder = tmp_path / f"{first}-{private}"
            folder.mkdir()
            names = OFFICES[first : first + COLUMNS]
            # Categories alone have no private draft.
            with suppress(DataError) if private else nullcontext():
                check_run(folder, first, private=private, offices=names)
