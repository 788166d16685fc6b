"""The demo's table: inside its domain, repeatable, with missing values and dependence worth synthesising."""

import json
import tomllib
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from mechanisms.domain import Categorical, Domain, Integer, Real
from mechanisms.reading import read_text
from mechanisms.table import encode
from parties.cli.main import cli
from parties.config import load_config
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import Status
from parties.local.demo_data import DEMO_CLIENTS, DEMO_CONFIG, DEMO_ROWS, demo_table, invented_table

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def domain() -> Domain:
    tables = tomllib.loads(DEMO_CONFIG)
    return Domain.from_dict({key: tables[key] for key in ("column", "missing")})


def test_demo_config_describes_eight_columns_of_all_kinds() -> None:
    columns = domain().columns
    assert len(columns) == 8
    assert {type(column) for column in columns} == {Categorical, Integer, Real}
    assert tomllib.loads(DEMO_CONFIG)["clients"]["expected"] == DEMO_CLIENTS


def test_demo_table_fits_its_domain_for_several_seeds() -> None:
    for seed in range(5):
        frame = demo_table(2000, seed=seed)
        assert tuple(frame.columns) == domain().names
        for column in domain().columns:
            values = set(frame[column.name])
            assert ("" in values) == column.missing
            assert all(column.code_of(value) is not None for value in values - {""})


def test_demo_table_uses_every_category() -> None:
    frame = demo_table()
    assert len(frame) == DEMO_ROWS
    for column in domain().columns:
        if isinstance(column, Categorical):
            assert set(frame[column.name]) - {""} == set(column.categories)


def test_demo_table_repeats_itself_for_the_same_seed_only() -> None:
    pd.testing.assert_frame_equal(demo_table(300, seed=4), demo_table(300, seed=4))
    assert not demo_table(300, seed=4).equals(demo_table(300, seed=5))


def cramers_v(frame: pd.DataFrame, first: str, second: str) -> float:
    """Strength of dependence, 0 to 1."""
    counts = pd.crosstab(frame[first], frame[second]).to_numpy(dtype=float)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    chi2 = ((counts - expected) ** 2 / expected).sum()
    return float(np.sqrt(chi2 / counts.sum() / (min(counts.shape) - 1)))


def test_demo_table_columns_depend_on_one_another() -> None:
    frame = demo_table()
    numbers = frame[["age", "systolic_mmhg", "stay_days"]].apply(pd.to_numeric)
    correlations = numbers.corr()
    assert correlations.loc["age", "systolic_mmhg"] > 0.5
    assert correlations.loc["age", "stay_days"] > 0.2
    assert cramers_v(frame, "diagnosis", "ward") > 0.4
    assert cramers_v(frame, "smoker", "diagnosis") > 0.15
    stays = numbers["stay_days"].groupby(frame["readmitted"]).mean()
    assert stays["yes"] > 1.3 * stays["no"]
    # The control: the same columns shuffled independently show none of it.
    rng = np.random.default_rng(0)
    shuffled = frame.apply(lambda column: column.to_numpy()[rng.permutation(len(frame))])
    assert all(
        cramers_v(shuffled, *pair) < 0.1 for pair in combinations(("ward", "diagnosis", "sex"), 2)
    )


def test_demo_table_may_be_empty() -> None:
    assert demo_table(0).shape == (0, 8)


def test_demo_table_refuses_a_negative_number_of_rows() -> None:
    with pytest.raises(ValueError, match="-1 rows"):
        demo_table(-1)


def test_invented_table_fits_any_configuration_and_repeats_itself(tmp_path: Path) -> None:
    domain = load_config(EXAMPLES / "adult-shaped.toml").domain
    frame = invented_table(domain, 400, seed=3)
    path = tmp_path / "invented.csv"
    frame.to_csv(path, index=False)
    assert encode(domain, read_text(path), source="invented.csv").shape == (400, len(domain.names))
    pd.testing.assert_frame_equal(frame, invented_table(domain, 400, seed=3))
    assert not frame.equals(invented_table(domain, 400, seed=4))


def test_demo_writes_a_table_alone_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "stays.csv"
    arguments = ["demo", "--table", str(path), "--rows", "50"]
    done = CliRunner().invoke(cli, [*arguments, "--json"])
    assert json.loads(done.output) == {"table": str(path), "rows": 50, "seed": 1}
    pd.testing.assert_frame_equal(
        pd.read_csv(path, dtype=str, keep_default_na=False), demo_table(50)
    )
    again = CliRunner().invoke(cli, arguments)
    assert isinstance(again.exception, StoreError)
    assert "is there already" in str(again.exception)
    alone = CliRunner().invoke(cli, ["demo", "--config", "study.toml"])
    assert alone.exit_code == Status.USAGE
    assert "goes with --table" in alone.output
