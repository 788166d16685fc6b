"""`syncret bench mtl` on a small School of its own: what it prints and keeps."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.datasets import DATA_VARIABLE
from bench.papers.mtl.cli import mtl
from bench.papers.mtl.page import DATA, PAGE, RUNS
from bench.papers.mtl.school import (
    CHOSEN,
    DITTO,
    FEDAVG,
    FINETUNING,
    IFCA,
    IFCA_NEAR,
    LOCAL,
    MR_MTL,
    STARTS,
    Result,
    load_school,
    silos_of,
)


@pytest.fixture
def school(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four schools of 60 pupils, three features."""
    draw = np.random.default_rng(1)
    lines = ["school,x0,x1,x2,score"]
    for number in range(4):
        for a, b in draw.integers(0, 9, (60, 2)):
            score = 10 + 3 * a + number * b + draw.integers(0, 5)
            lines.append(f"{number},{a},{b},1,{min(70, score)}")
    (tmp_path / "school.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))


def test_mtl_prints_a_row_for_each_method_lambda_and_epsilon(school: None) -> None:
    arguments = "--method fedavg,local,mr-mtl,chosen,finetuning,ditto,ifca,ifca-near"
    arguments += " --lambda 0.5,2 --epsilon 4 --splits 2"
    arguments += " --rounds 4 --tuning-rounds 1 --json"
    result = CliRunner().invoke(mtl, arguments.split(), catch_exceptions=False)
    assert result.exit_code == 0
    rows = json.loads(result.stdout)["results"]
    assert [(row["method"], row["lambda"]) for row in rows] == [
        (FEDAVG, "inf"),
        (LOCAL, 0.0),
        (MR_MTL, 0.5),
        (MR_MTL, 2.0),
        (CHOSEN, None),
        (FINETUNING, None),
        (DITTO, 0.5),
        (DITTO, 2.0),
        (IFCA, None),
        (IFCA_NEAR, None),
    ]
    for row in rows:
        assert (row["epsilon"], row["splits"]) == (4.0, 2)
        # IFCA starts at random, where scores of all sizes within the bound of 4 on four weights are predicted.
        assert 0 < row["mse"] < (300 if row["method"] in STARTS else 1)
        assert row["std"] > 0
    assert len(rows[4]["chosen"]) == 2


@pytest.mark.parametrize("scaling", ["public", "silo"])
def test_silos_of_deals_every_pupil_to_one_part(school: None, scaling: str) -> None:
    table = load_school()
    silos = silos_of(table, 1, scaling=scaling, held_out=0.25)
    for rows in silos:
        assert [len(part[1]) for part in (rows.train, rows.held_out, rows.test)] == [36, 12, 12]
    assert sum(part[1].sum() for r in silos for part in (r.train, r.held_out, r.test)) == (
        pytest.approx(table.y.sum())
    )
    # The constant feature stays finite, and the intercept is there.
    assert all(np.isfinite(rows.train[0]).all() for rows in silos)
    assert silos[0].train[0].shape[1] == 4


def test_page_keeps_runs_and_replaces_those_that_come_again(tmp_path: Path) -> None:
    runs = [
        Result(FEDAVG, math.inf, 6.0, 1, 0.025, "silo"),
        Result(LOCAL, 0.0, 6.0, 1, 0.026, "silo"),
        Result(CHOSEN, 1.0, 6.0, 1, 0.024, "silo"),
        *(Result(IFCA, math.inf, 6.0, split, 0.027, "silo") for split in (1, 2, 3)),
    ]
    RUNS.add(tmp_path, runs)
    RUNS.add(tmp_path, [Result(CHOSEN, 3.0, 6.0, 1, 0.023, "silo")])
    assert {run.mse for run in RUNS.read(tmp_path)} == {0.025, 0.026, 0.023, 0.027}
    assert '"lambda_": "inf"' in (tmp_path / DATA).read_text()
    page = (tmp_path / PAGE).read_text()
    assert "| fedavg | ∞ | 250.0 (1) | 256.4 |" in page
    assert "by votes | 230.0" in page
    assert "| ifca |  | 270.0 ± 0.0 |  |" in page


@pytest.mark.parametrize(
    "arguments", ["--method forest", "--lambda 0", "--epsilon x", "--rounds 5 --output there"]
)
def test_mtl_refuses_what_it_does_not_know(school: None, arguments: str) -> None:
    result = CliRunner().invoke(mtl, arguments.split())
    assert result.exit_code == 2
    assert "--" in result.stderr


def test_mtl_without_its_table_says_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    result = CliRunner().invoke(mtl, ["--json"])
    assert result.exit_code == 1
    assert "school.csv.gz" in result.stderr
