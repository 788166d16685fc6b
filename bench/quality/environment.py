"""The environments of the third parties' packages, and requests to their programs.

The packages pin other versions than this project, hence processes of another interpreter, with CSV files and JSON
between. Limits are of processor time, so that a machine with other work gives the same answer as an idle one.
"""

import json
import math
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.children import last_word
from bench.networks import ROOT

VARIABLE: Final = "SYNCRET_QUALITY_PYTHON"
"""Names another interpreter than that of .venv-quality."""
PAR_VARIABLE: Final = "SYNCRET_PAR_PYTHON"
"""Names another interpreter than that of .venv-par."""
_WAITING: Final = 20
"""Seconds of the clock for each of processor time: only a program that waits for something reaches them."""
SCORE, SMARTNOISE, COPULA, HMA = "score.py", "smartnoise.py", "copula.py", "hma.py"
KEYED_SCORE, PAR = "keyed_score.py", "par.py"
PRIVATE_PGM: Final = "private_pgm.py"
PGM_VARIABLE: Final = "SYNCRET_PRIVATE_PGM"
"""Names the folder of a copy of private-pgm's repository, whose AIM is in no package."""


class ThirdPartyError(Exception):
    """A third party's program is missing, failed, or did not end in time."""


class NotWithinError(ThirdPartyError):
    """The program did not end within its processor time."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Packages of third parties in a ``folder`` of their own, which ``target`` makes.

    ``variable`` names another interpreter with the same ``content``.
    """

    folder: str
    variable: str
    content: str
    target: str

    @property
    def there(self) -> bool:
        """True if the interpreter is there."""
        return self._interpreter.exists()

    @property
    def _interpreter(self) -> Path:
        given = os.environ.get(self.variable)
        return Path(given) if given else ROOT / self.folder / "bin" / "python"

    def python(self) -> Path:
        """Returns the interpreter that has the packages. Raises ThirdPartyError."""
        python = self._interpreter
        if not self.there:
            raise ThirdPartyError(
                f"{python} is not there; expected an environment with {self.content}: `make {self.target}` makes one,"
                f" or name its interpreter in {self.variable}"
            )
        return python


QUALITY = Environment(".venv-quality", VARIABLE, "SDMetrics", "bench-quality")
WITH_TORCH = Environment(".venv-par", PAR_VARIABLE, "SDV's PAR and torch", "bench-par")


def private_pgm() -> str:
    """Returns the folder of private-pgm's repository. Raises ThirdPartyError."""
    given = os.environ.get(PGM_VARIABLE, "")
    if not (Path(given) / "mechanisms" / "aim.py").is_file():
        raise ThirdPartyError(
            f"{PGM_VARIABLE}={given!r} has no mechanisms/aim.py; expected the folder of a copy of the repository"
            " private-pgm"
        )
    return given


def ask(
    script: str,
    request: Mapping[str, object],
    *,
    limit_s: float,
    environment: Environment = QUALITY,
) -> dict[str, object]:
    """Returns the answer of `script` of this folder, within `limit_s` of processor time, rounded up to whole seconds.

    Raises ThirdPartyError with the last line of its errors, NotWithinError.
    """
    # The shell sets the limit on itself and then becomes the program, which SIGXCPU ends without a watcher.
    limited = ["sh", "-c", 'ulimit -S -t "$0"; exec "$@"', str(math.ceil(limit_s))]
    command = [*limited, str(environment.python()), str(Path(__file__).with_name(script))]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_WAITING * limit_s,
        )
    except subprocess.TimeoutExpired as error:
        raise NotWithinError(
            f"{script} did not end within {_WAITING * limit_s:g} s of the clock"
        ) from error
    if done.returncode == -signal.SIGXCPU:
        raise NotWithinError(f"{script} did not end within {limit_s:g} s of processor time")
    if done.returncode != 0:
        raise ThirdPartyError(f"{script} failed: {last_word(done.stderr)}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    if not isinstance(answer, dict):
        raise ThirdPartyError(f"{script} answered {answer!r}; expected an object")
    return answer
