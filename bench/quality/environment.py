"""The environment of the third parties' packages, and how its programs are asked.

Provides `python_of`, `ask` and `ThirdPartyError`. The packages pin other versions than this project, hence processes of
another interpreter, with CSV files and JSON between. Public.
"""

import json
import os
import resource
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.children import last_word
from bench.networks import ROOT

VARIABLE: Final = "SYNCRET_QUALITY_PYTHON"
"""Names another interpreter than that of .venv-quality."""
SCORE, SMARTNOISE = "score.py", "smartnoise.py"


class ThirdPartyError(Exception):
    """A third party's program is not there, failed, or did not end in time."""


def python_of() -> Path:
    """The interpreter that has the third parties' packages. Raises ThirdPartyError."""
    given = os.environ.get(VARIABLE)
    python = Path(given) if given else ROOT / ".venv-quality" / "bin" / "python"
    if not python.exists():
        raise ThirdPartyError(
            f"{python} is not there; expected an environment with SDMetrics: `make bench-quality` makes one, or name"
            f" its interpreter in {VARIABLE}"
        )
    return python


def ask(script: str, request: Mapping[str, object], *, limit_s: float) -> dict[str, object]:
    """What `script` of this folder answers. Raises ThirdPartyError with its last word."""
    before = _children_s()
    command = [str(python_of()), str(Path(__file__).with_name(script))]
    try:
        done = subprocess.run(
            command, input=json.dumps(request), capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired as error:
        busy = _children_s() - before
        raise ThirdPartyError(
            f"{script} did not end within {limit_s:g} s ({busy:.0f} s of processor time)"
        ) from error
    if done.returncode != 0:
        raise ThirdPartyError(f"{script} failed: {last_word(done.stderr)}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    if not isinstance(answer, dict):
        raise ThirdPartyError(f"{script} answered {answer!r}; expected an object")
    return answer


def _children_s() -> float:
    """Processor seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
