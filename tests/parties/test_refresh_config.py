"""[refresh]: the earlier run's model is bound by its digest, and refused for other columns."""

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechanisms.domain import Categorical, Domain, Integer
from mechanisms.model import Model
from mechanisms.provenance import Provenance
from parties.config import START_FOLDER, bound_text, earlier_model, load_config, named_files
from parties.foundation.errors import ConfigError
from parties.session.result_digests import model_digest

DOMAIN = Domain(
    (
        Categorical("ward", ("A", "B"), missing=True),
        Integer("age", 0, 99, 10),
        Categorical("y", ("0", "1")),
    )
)
TEXT = """[run]
id = "q4"
epsilon = 1.0
delta = 1e-6

[clients]
expected = 2
rows_per_client = 100

[[column]]
name = "ward"
kind = "categorical"
categories = ["A", "B"]
missing = true

[[column]]
name = "age"
kind = "integer"
low = 0
high = 99
bins = 10

[[column]]
name = "y"
kind = "categorical"
categories = ["0", "1"]

[refresh]
model = "q3.zip"   # of the third quarter
"""


def save(folder: Path, domain: Domain = DOMAIN) -> Path:
    """A run's folder with a model of independent columns."""
    shares = tuple(np.full(size, 1 / size) for size in domain.shape)
    Model(domain, tuple((n,) for n in domain.names), (-1,) * len(shares), shares).save(
        folder / "model"
    )
    return folder


def study(tmp_path: Path, domain: Domain = DOMAIN, text: str = TEXT) -> Path:
    """A configuration beside a bundle with a model of ``domain``."""
    run = save(tmp_path / "run", domain)
    with zipfile.ZipFile(tmp_path / "q3.zip", "w") as archive:
        for path in (run / "model").iterdir():
            archive.write(path, f"model/{path.name}")
    (tmp_path / "q4.toml").write_text(text, encoding="utf-8")
    return tmp_path / "q4.toml"


def test_the_digest_is_the_one_that_the_earlier_servers_sealed(tmp_path: Path) -> None:
    config = load_config(study(tmp_path))
    assert config.refresh is not None
    assert config.refresh.digest == model_digest(tmp_path / "run" / "model")
    assert config.agreed()["refresh"] == {"digest": config.refresh.digest}
    # The same from the run's folder, and from the model's.
    for named in ("run", "run/model"):
        other = load_config(study(tmp_path, text=TEXT.replace("q3.zip", named)))
        assert other.digest() == config.digest()
    (tmp_path / "plain.toml").write_text(TEXT.partition("[refresh]")[0].replace('"q4"', '"q4"'))
    assert load_config(tmp_path / "plain.toml").digest() != config.digest()


def test_the_resolved_configuration_is_the_same_from_any_folder(tmp_path: Path) -> None:
    config = load_config(study(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text(config.resolved_toml())
    again = load_config(elsewhere / "config.toml")
    assert again.digest() == config.digest()
    found = earlier_model(again)
    assert found is not None
    assert found.model().domain == DOMAIN


def test_a_refresh_measures_pairs_however_noisy(tmp_path: Path) -> None:
    text = TEXT.replace("delta = 1e-6", 'delta = 1e-6\nfallback = "columns"')
    assert not load_config(study(tmp_path, text=text)).run.may_fall_back
    (tmp_path / "plain.toml").write_text(text.partition("[refresh]")[0])
    assert load_config(tmp_path / "plain.toml").run.may_fall_back


def test_a_refresh_is_fitted_by_our_own_code(tmp_path: Path) -> None:
    text = TEXT.replace("delta = 1e-6", 'delta = 1e-6\nestimator = "mbi"')
    with pytest.raises(ConfigError, match=r"run\.estimator: is 'mbi' beside refresh"):
        load_config(study(tmp_path, text=text))
    (tmp_path / "plain.toml").write_text(text.partition("[refresh]")[0])
    assert load_config(tmp_path / "plain.toml").run.estimator == "mbi"


def test_a_configuration_with_the_digest_alone_needs_the_model_only_where_it_is_used(
    tmp_path: Path,
) -> None:
    config = load_config(study(tmp_path)).override({"refresh.model": None})
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "config.toml").write_text(config.resolved_toml())
    loaded = load_config(alone / "config.toml")
    assert loaded.digest() == config.digest()
    with pytest.raises(ConfigError, match=f"no folder {START_FOLDER} beside the config"):
        earlier_model(loaded)
    (tmp_path / "run" / "model").rename(alone / START_FOLDER)
    assert earlier_model(load_config(alone / "config.toml")) is not None


COLUMNS = DOMAIN.columns


def with_columns(*columns: Any) -> Domain:
    return replace(DOMAIN, columns=columns)


@pytest.mark.parametrize(
    ("domain", "named"),
    [
        (
            with_columns(COLUMNS[0], replace(COLUMNS[1], bins=20), COLUMNS[2]),
            "'age' has other values or cells .bins.",
        ),
        (
            with_columns(COLUMNS[0], replace(COLUMNS[1], high=98), COLUMNS[2]),
            "'age' has other values or cells .high.",
        ),
        (
            with_columns(replace(COLUMNS[0], categories=("B", "A")), *COLUMNS[1:]),
            "'ward' has .* .categories.",
        ),
        (with_columns(replace(COLUMNS[0], missing=False), *COLUMNS[1:]), "'ward' has .* .missing."),
        (with_columns(*COLUMNS[:2], replace(COLUMNS[2], name="z")), "'y' stands where .* 'z'"),
        (with_columns(COLUMNS[1], COLUMNS[0], COLUMNS[2]), "'ward' stands where .* 'age'"),
        (with_columns(*COLUMNS[:2]), "'y' is in one of the two runs alone"),
        (with_columns(*COLUMNS, Categorical("z", ("0",))), "'z' is in one of the two runs alone"),
        (replace(DOMAIN, missing_values=("none",)), "missing_values: differs"),
    ],
)
def test_a_model_of_other_columns_is_refused_with_the_column(
    tmp_path: Path, domain: Domain, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        load_config(study(tmp_path, domain))


def test_the_origin_of_values_and_the_form_of_tables_may_differ(tmp_path: Path) -> None:
    domain = replace(
        DOMAIN, ignore=("id",), provenance=(Provenance("age", (("low", "public: 2026"),)),)
    )
    assert load_config(study(tmp_path, domain)).refresh is not None


def _another(path: Path) -> None:
    save(path.parent / "other", with_columns(*COLUMNS[:2]))
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("model.json", "marginals.npz"):
            archive.write(path.parent / "other" / "model" / name, f"model/{name}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_another, "another model than the one agreed on"),
        (lambda path: path.write_bytes(b"nothing"), "without a model that can be read"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:200]),
            "without a model that can be read",
        ),
    ],
)
def test_another_file_under_the_name_is_refused(
    tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    path = study(tmp_path)
    path.write_text(bound_text(TEXT, path))
    load_config(path)
    change(tmp_path / "q3.zip")
    with pytest.raises(ConfigError, match=said):
        load_config(path)


def test_a_founded_study_has_the_digest_and_takes_the_bundle_along(tmp_path: Path) -> None:
    path = study(tmp_path)
    text = bound_text(TEXT, path)
    digest = model_digest(tmp_path / "run" / "model")
    assert f'model = "q3.zip"   # of the third quarter\ndigest = "{digest}"\n' in text
    assert bound_text(text, path) == text
    assert named_files(path) == (tmp_path.resolve() / "q3.zip",)
    folder = TEXT.replace("q3.zip", "run")
    path.write_text(folder)
    for make in (lambda: bound_text(folder, path), lambda: named_files(path)):
        with pytest.raises(ConfigError, match="expected the name of a bundle"):
            make()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("q3.zip", "q2.zip"), "which is not there"),
        (TEXT + 'digest = "12"\n', "expected 12"),
        (TEXT.replace("model = ", 'digest = "12"\n#'), "expected the 64 hex digits"),
        (TEXT + "share = 1\n", "unknown key"),
        (TEXT + "\n[flaim]\n", "only DistAIM and central AIM"),
        (TEXT.replace("bins = 10", 'bins = "private"'), "'age' has cells still to be measured"),
    ],
)
def test_what_cannot_be_a_refresh_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(study(tmp_path, text=text))
