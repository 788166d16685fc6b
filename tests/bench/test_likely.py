"""`syncret bench likely` counts what is below likely errors, on tables of three laws."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from bench.likely import GENERATED, GENERATED_ROWS, generated, likely, measure


@pytest.mark.parametrize("seed", range(3))
def test_generated_tables_have_codes_of_their_domain_and_come_again(seed: int) -> None:
    domain, codes = generated(seed)
    assert codes.shape == (GENERATED_ROWS, len(domain.columns))
    assert (codes >= 0).all()
    assert (codes < np.array(domain.shape)).all()
    assert np.array_equal(generated(seed)[1], codes)


def test_measure_tells_what_was_measured_from_what_was_not() -> None:
    found = measure(GENERATED, (1.0,), 500, 1, rounds=2)
    assert [one.measured for one in found] == [True, False]
    columns = len(generated(0)[0].columns)
    assert sum(one.marginals for one in found) == columns * (columns + 1) // 2
    for one in found:
        assert 0 <= one.below <= one.held == 1
        assert one.likely <= one.proven


def test_likely_prints_a_line_for_each_kind_or_json() -> None:
    arguments = ["--dataset", GENERATED, "--epsilon", "1", "--rows", "500", "--rounds", "1"]
    said = CliRunner().invoke(likely, arguments)
    assert said.exit_code == 0
    assert "not measured" in said.stdout
    found = json.loads(CliRunner().invoke(likely, [*arguments, "--json"]).stdout)
    assert [one["dataset"] for one in found["tables"]] == [GENERATED, GENERATED]
