"""What FLAIM's messages, steps and openings are called in transcripts and reports: "flaim.brief".

Provides ``STEPS`` (a name for every kind of `parties.flaim.messages`), ``step_of``, which knows SecAgg's as well, and
the names of what a server does and opens. All public.
"""

from collections.abc import Callable, Mapping

from parties.flaim.messages import MessageKind, is_secagg
from parties.secagg import steps as secagg

STEPS: Mapping[MessageKind, str] = {kind: f"flaim.{kind.name.lower()}" for kind in MessageKind}
CHOOSE, AGGREGATE = "choose", "aggregate"
CHOICES, SUMS = "flaim.choices", "flaim.sums"
OPENED: Mapping[str, str] = {CHOICES: CHOOSE, SUMS: AGGREGATE}
"""What may be opened, and in which step."""

_KIND_AT = 5


def namer(steps: Mapping[MessageKind, str]) -> Callable[[bytes], str]:
    """What names a message by ``steps``, or as SecAgg's; its kind alone is looked at."""

    def step_of(message: bytes) -> str:
        if is_secagg(message):
            return secagg.step_of(message)
        try:
            return steps[MessageKind(message[_KIND_AT])]
        except (ValueError, IndexError):
            return secagg.UNKNOWN

    return step_of


step_of = namer(STEPS)
"""The name of a message on a client's connection, FLAIM's own or SecAgg's."""
