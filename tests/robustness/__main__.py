"""Command `python -m tests.robustness`."""

from parties.cli.runtime import exit_now, run_command_line
from tests.robustness.cli import robustness

if __name__ == "__main__":
    exit_now(run_command_line(robustness))
