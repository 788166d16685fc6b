"""The waits of tests for other processes, and that what they wait for is not there at once."""

from pathlib import Path

import pytest

from tests.until import becoming, count_of, later, nothing_runs, process_of, processes, until


def test_a_process_is_found_once_it_is_what_it_execs(tmp_path: Path) -> None:
    """The control: who looks at once finds nothing."""
    with becoming(f"{tmp_path}/one") as first, becoming(f"{tmp_path}/two") as second:
        assert processes(tmp_path) == {}
        assert first.stdin is not None
        later(first.stdin.close)
        assert process_of(tmp_path, "/one") == first.pid
        assert len(processes(tmp_path)) == 1
        assert second.stdin is not None
        later(second.stdin.close)
        assert count_of(tmp_path, "", 2) == 2
    nothing_runs(tmp_path)


def test_one_process_is_wanted_and_not_two(tmp_path: Path) -> None:
    with becoming(f"{tmp_path}/one") as first, becoming(f"{tmp_path}/two") as second:
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.close()
        assert count_of(tmp_path, "", 2) == 2
        later(second.kill)
        assert process_of(tmp_path, str(tmp_path)) == first.pid


def test_a_wait_ends_at_its_deadline_and_says_for_what() -> None:
    with pytest.raises(AssertionError, match="pigs fly; found 0"):
        until(lambda: 0, "pigs fly", within_s=0.1)
