"""The run folder of a trial: what a failure leaves in it, and that the same request takes it up."""

from pathlib import Path

import pytest

from parties.errors import StoreError
from parties.trial.folder import Folder
from tests.parties.support import file_size_limit


def test_folder_that_could_not_be_made_can_be_opened_by_the_same_request(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with file_size_limit(5), pytest.raises(StoreError, match="cannot be written"):
        Folder(place).open("f" * 64)
    assert list(place.iterdir()) == []
    (place / "owners").touch()
    with pytest.raises(StoreError, match="is not empty and not a run"):
        Folder(place).open("f" * 64)
    (place / "owners").unlink()
    again = Folder(place)
    again.open("f" * 64)
    assert not again.resumed
    (place / "owners").rmdir()
    (place / "owners").touch()
    with pytest.raises(StoreError, match="cannot be made: File exists"):
        Folder(place).open("f" * 64)
    (place / "owners").unlink()
    last = Folder(place)
    last.open("f" * 64)
    assert last.resumed
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in (last.owners, *last.parties))


def test_folder_of_another_request_is_left_alone(tmp_path: Path) -> None:
    Folder(tmp_path).open("f" * 64)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match="an unfinished run of another config"):
        Folder(tmp_path).open("e" * 64)
    assert sorted(tmp_path.rglob("*")) == before
