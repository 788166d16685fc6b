"""The run folder of a trial: what a failure leaves in it, and that the same request takes it up."""

import io
import json
from pathlib import Path

import pytest

from mechanisms.model import Model
from mechanisms.reading import read_table
from parties.config import load_config
from parties.foundation.errors import ConfigError, StoreError
from parties.local.assemble import finish_trial
from parties.local.folder import RunFolder
from parties.local.jobs import OwnersJob
from parties.local.launcher import prepare
from parties.local.methods import open_method_folder, run_method
from parties.local.participants import trial_capacity
from parties.local.request import Trial, TrialRequest, load_trial
from parties.methods.flaim.settings import settings_of
from parties.observability.events import Progress, TextLines
from parties.session.model_files import SampleOptions, write_samples
from tests.parties.small import write_small
from tests.parties.support import file_size_limit


def test_folder_that_could_not_be_made_can_be_opened_by_the_same_request(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with file_size_limit(5), pytest.raises(StoreError, match="cannot be written"):
        RunFolder(place).open("f" * 64)
    assert list(place.iterdir()) == []
    (place / "owners").touch()
    with pytest.raises(StoreError, match="is not empty and not a run"):
        RunFolder(place).open("f" * 64)
    (place / "owners").unlink()
    again = RunFolder(place)
    again.open("f" * 64)
    assert not again.resumed
    (place / "owners").rmdir()
    (place / "owners").touch()
    with pytest.raises(StoreError, match="cannot be made: File exists"):
        RunFolder(place).open("f" * 64)
    (place / "owners").unlink()
    last = RunFolder(place)
    last.open("f" * 64)
    assert last.resumed
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in (last.owners, *last.parties))


def test_folder_of_another_request_is_left_alone(tmp_path: Path) -> None:
    RunFolder(tmp_path).open("f" * 64)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match="an unfinished run of another config"):
        RunFolder(tmp_path).open("e" * 64)
    assert sorted(tmp_path.rglob("*")) == before


def test_prepare_takes_up_a_run_in_which_a_server_had_ended(tmp_path: Path) -> None:
    """It has deleted its sealing key by then; the configuration, which owners have charged, stays the same."""
    path, data = write_small(tmp_path)
    request = TrialRequest("distaim", "small", None, "iid", None, 0)
    trial = load_trial(load_config(path), read_table(data), request, source=str(data))
    first, again = RunFolder(tmp_path / "out"), RunFolder(tmp_path / "out")
    first.open(trial.fingerprint)
    digest = prepare(trial, first).digest()
    (first.certificates / "party-1.seal").unlink()
    again.open(trial.fingerprint)
    assert prepare(trial, again).digest() == digest


@pytest.mark.parametrize(
    ("rows", "declared", "bound", "capacity"),
    [
        (0, None, 1000, 1),
        (9, None, 1000, 9),
        (99, None, 1000, 99),
        (100, None, 1000, 100),
        (439, None, 1000, 440),
        (1234, None, 5000, 1300),
        (991, None, 995, 995),
        (20, 500, 1000, 500),
    ],
)
def test_trial_capacity_is_some_more_than_the_rows(
    rows: int, declared: int | None, bound: int, capacity: int
) -> None:
    assert trial_capacity(rows, declared, bound) == capacity


def test_load_trial_takes_a_capacity_that_all_parts_fit_into(tmp_path: Path) -> None:
    path, data = write_small(tmp_path)
    config, table = load_config(path), read_table(data)

    def asked(capacity: int | None) -> Trial:
        request = TrialRequest("distaim", "small", None, "iid", None, 0, capacity)
        return load_trial(config, table, request, source=str(data))

    assert len({asked(capacity).fingerprint for capacity in (None, 100, 1000)}) == 3
    for wrong in (99, 1001):
        with pytest.raises(ConfigError, match=f"capacity: is {wrong}; expected 100, .* to 1000"):
            asked(wrong)
    folder = RunFolder(tmp_path / "out")
    folder.open(asked(120).fingerprint)
    prepare(asked(120), folder)
    assert OwnersJob.read(folder.owners / "job.json").capacity == 120


def with_private_bins(config: Path) -> Path:
    """The same configuration with private bins in its last column, age."""
    config.write_text(config.read_text() + 'bins = "private"\ncoarse = 4\n')
    return config


async def test_central_aim_measures_private_bins_and_its_report_is_of_them(tmp_path: Path) -> None:
    path, data = write_small(tmp_path)
    config = load_config(with_private_bins(path))
    request = TrialRequest("aim", "small", None, "iid", None, 0)
    trial = load_trial(config, read_table(data), request, source=str(data))
    folder = open_method_folder(trial, tmp_path / "out")
    report = await run_method(trial, folder, Progress(TextLines(stream=io.StringIO())))
    assert [entry.round for entry in report.privacy.ledger[:3]] == [0, 0, 0]
    assert sum(entry.rho for entry in report.privacy.ledger) <= report.privacy.rho_total
    assert [opened.count for opened in report.opened if opened.round == 0] == [10, 2, 3]
    document = finish_trial(trial, folder, report, read_s=2.0)
    assert json.loads((folder.path / "report.json").read_text()) == document
    seconds = dict(document["time"])  # type: ignore[call-overload]
    total = seconds.pop("total_s")
    assert {"read_s", "estimate_s", "report_s", "other_s"} <= seconds.keys()
    assert seconds["read_s"] == 2.0 < total == pytest.approx(sum(seconds.values()))
    model = Model.load(folder.path / "model")
    assert model.domain.shape == (2, 3, 4)
    assert document["utility"]["workload_error"] < 2  # type: ignore[index]
    write_samples(model, SampleOptions(20), tmp_path / "more.csv", seed=1, overwrite=False)
    ages = {line.split(",")[2] for line in (tmp_path / "more.csv").read_text().split()[1:]}
    assert ages <= {str(age) for age in range(10)}


def test_flaim_refuses_private_bins(tmp_path: Path) -> None:
    path, _ = write_small(tmp_path)
    config = load_config(with_private_bins(path))
    with pytest.raises(ConfigError, match="'age', which DistAIM and central AIM measure"):
        settings_of(config)
