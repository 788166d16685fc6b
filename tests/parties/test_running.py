import contextlib
import signal
from pathlib import Path

import pytest

from parties.commands.running import make_private, postponed
from parties.errors import StoreError


def test_make_private_makes_a_folder_that_only_its_owner_may_enter(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "party-0"
    for _ in range(2):
        make_private(place)
        assert place.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_make_private_refuses_a_folder_that_is_open_to_others(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(StoreError, match=f"mode {mode:o}.*chmod 700"):
        make_private(tmp_path)
    # A user's folder is not changed without asking.
    assert tmp_path.stat().st_mode & 0o777 == mode


def test_make_private_names_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made"):
        make_private(tmp_path / "file")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("fails", [False, True])
def test_postponed_lets_a_signal_take_effect_at_the_end(number: int, *, fails: bool) -> None:
    steps = []
    before = signal.signal(number, lambda *_: steps.append("signal"))
    try:
        with contextlib.suppress(OSError), postponed():
            signal.raise_signal(number)
            steps.append("started")
            if fails:
                raise OSError
    finally:
        signal.signal(number, before)
    assert steps == ["started", "signal"]
