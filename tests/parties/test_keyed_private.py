"""Tables with keys whose categories and bins noisy counts choose, of so few persons that noise leaves few."""

from pathlib import Path

import pytest

from tests.mechanisms.test_keyed import drafted, office

syncret = pytest.importorskip("syncret")


def private_study(folder: Path, persons: int) -> tuple[dict[str, object], Path]:
    import pandas as pd
    import tomli_w

    of = office(persons, seed=3)
    parent, child = drafted(of).tables.to_dict()
    for column in [*parent["column"], *child["column"]]:  # type: ignore[misc]
        if column["name"] in ("ward", "note"):
            column.pop("categories")
            column |= {"values": "private", "candidates": ["surgery", "internal", "x", "y", "z"]}
            column.pop("from", None)
        elif column["name"] in ("born", "crp"):
            column.pop("edges", None)
            column |= {"bins": "private", "low": 0, "high": 3000}
            for key in ("atoms", "within", "scale", "endings"):
                column.pop(key, None)
    run = {"epsilon": 0.5, "delta": 1e-5, "iterations": 20, "final_iterations": 30}
    clients = {"expected": 3, "rows_per_client": 1000}
    config = folder / "study.toml"
    config.write_text(tomli_w.dumps({"run": run, "clients": clients, "table": [parent, child]}))
    tables = {name: pd.DataFrame(columns) for name, columns in of.items()}
    return tables, config


@pytest.mark.parametrize("persons", [30, 90])
def test_few_persons_come_through_though_noise_leaves_no_category(
    persons: int, tmp_path: Path
) -> None:
    tables, config = private_study(tmp_path, persons)
    run = syncret.synthesize_tables(tables, config, method="aim", out=tmp_path / "run")
    assert set(run.tables) == {"patients", "stays"}
    assert set(run.tables["stays"]["note"].dropna()) <= {
        "x",
        "y",
        "z",
        "surgery",
        "internal",
        "other",
    }
    said = run.report["not_measured"]["stays"]
    assert set(said) <= {"ward", "note", "crp", "weight", "day"}
