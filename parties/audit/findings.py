"""Results of an audit: named checks, each with a status and one sentence.

A check function returns the sentence of a pass. It raises ``CheckFailure`` if the check fails, and ``NotApplicable`` if
it cannot be made. All values here are public.
"""

from collections.abc import Callable
from dataclasses import dataclass

from parties.foundation.errors import PartyError

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"

CONTRADICTIONS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    OSError,
    PartyError,
)

_KEY_HOLDERS = (
    "The audit shows what was signed with the keys in the configuration. It cannot know which configuration was agreed "
    "on: give it yours (--config), or compare the digest. It cannot know either whether different people had these "
    "keys: only the report says whether a run was a trial on one machine."
)
_COMPUTED = (
    "It cannot show that a server computed its messages as the protocol says. For that the server has to record a "
    "replay (record_replay) and show it, with its keys and inputs, to an auditor who may see that server's share."
)
LIMITS = (
    "The audit shows what the servers' transcripts say, and that they say the same. A message that one server leaves "
    "out of its transcript is still in that of the other server.",
    _KEY_HOLDERS,
    "It cannot show what happens without a message between the servers. Two servers that combine their shares see "
    "everything, and two can agree on false records; neither leaves a trace here. At most one corrupted server is "
    "assumed.",
    _COMPUTED,
    "It cannot show that data owners told the truth about their rows, nor what became of copies outside the protocol.",
)
"""Limits of any audit of transcripts, stated in every audit of three servers."""
_PROVED = (
    "Each server proved to the two others, before anything was opened, that it computed its messages as the protocol "
    "says. The audit shows that these two recorded so, each in its own transcript."
)
PROVED_LIMITS = tuple(_PROVED if sentence is _COMPUTED else sentence for sentence in LIMITS)
"""Limits of the audit of a run with run.security = "malicious"."""
SERVER_LIMITS = (
    "One server wrote this transcript, and its clients keep none. The audit shows that the transcript was not changed "
    "since it was signed and that its records follow the rules, not that it has everything.",
    _KEY_HOLDERS,
    "It cannot show what the server did besides: with noise that the server adds, it saw every sum before the noise.",
    "It cannot show that the model is a fit of the sums; it shows which model was made, and that the table was drawn "
    "from it.",
    "Each client keeps a privacy ledger of its own and takes part in nothing that its ledger does not cover; a client "
    "can compare it with the ledger here.",
    LIMITS[-1],
)
"""Limits of the audit of the one server of FLAIM or SecAgg.

`parties.audit.checks.federation.limits_of` returns those of a server of silos.
"""


class CheckFailure(Exception):
    """Raised by a check that does not hold; the sentence says what is wrong and where."""


class NotApplicable(Exception):
    """Raised by a check that has nothing to judge; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: ``status`` is "pass", "fail" or "not applicable", ``detail`` is one sentence."""

    name: str
    status: str
    detail: str


def make_check(name: str, check: Callable[[], str]) -> Check:
    """Returns the result of ``check``, which returns the sentence of a pass."""
    try:
        return Check(name, PASS, _printable(check()))
    except CheckFailure as problem:
        return Check(name, FAIL, _printable(str(problem)))
    except NotApplicable as reason:
        return Check(name, NOT_APPLICABLE, _printable(str(reason)))
    except CONTRADICTIONS as error:
        # Well-formed records contradict one another, so that the check could compute nothing from them.
        detail = f"the transcripts contradict themselves: {type(error).__name__}: {error}"
        return Check(name, FAIL, _printable(detail[:300]))


def _printable(sentence: str) -> str:
    """Returns a sentence without characters that move a terminal's cursor; names in it are not trusted."""
    return "".join(c if c.isprintable() else " " for c in sentence)


def skipped_check(name: str, because: str) -> Check:
    """Returns the result of a check that cannot be made after another one failed."""
    return Check(name, NOT_APPLICABLE, f"cannot be judged while {because!r} fails")


def require(condition: bool, sentence: str) -> None:
    """Raises CheckFailure with the sentence unless the condition holds."""
    if not condition:
        raise CheckFailure(sentence)
