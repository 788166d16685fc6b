"""FLAIM over our connections and Flower's: a small run of ours, the page, and what is said without Flower."""

import asyncio
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from bench import flower
from bench.cli import bench
from parties.config import config_from_dict
from tests.parties.support import document


def test_measure_own_has_the_error_and_bytes_of_a_run(tmp_path: Path) -> None:
    table = document()
    table.pop("party")
    table["run"] |= {"iterations": 5, "final_iterations": 5}
    (tmp_path / "small.toml").write_text(
        config_from_dict(table, source="small.toml", base=Path()).resolved_toml()
    )
    rows = "".join(f"{('f', 'm')[n % 2]},{'xyz'[n % 3]},{n % 10}\n" for n in range(90))
    (tmp_path / "small.csv").write_text("sex,ward,age\n" + rows)
    (tmp_path / "run").mkdir()
    own = flower.study(
        tmp_path / "small.toml",
        tmp_path / "small.csv",
        tmp_path / "run",
        clients=6,
        rounds=1,
        security="malicious",
    )
    run = asyncio.run(flower.measure_own(own))
    assert run.rounds == 1
    assert 0 < run.error <= 2
    assert run.sent_bytes > 0 < run.received_bytes
    made = {
        "command": "syncret bench flower",
        "commit": "0a1b",
        "date": "",
        "machine": {"cores": 2},
    }
    text = flower.page(made, [run, run], 6)
    assert "`syncret bench flower`, commit 0a1b, ; cores 2. Adult among 6 clients" in text
    assert f"| {flower.OWN} | malicious |" in text


def test_bench_flower_says_how_to_get_flower(tmp_path: Path) -> None:
    with mock.patch.object(flower.sys, "executable", str(tmp_path / "python")):
        result = CliRunner().invoke(bench, ["flower"])
    assert result.exit_code == 1
    assert "pip install -c constraints-flower.txt -e '.[flower]'" in result.output
