"""What messages, steps and openings of sums between silos are called in transcripts and reports: "silos.request".

Provides ``STEPS`` (a name for every kind of message), ``step_of``, which knows SecAgg's as well, and the names of what
a server does and opens. All public.
"""

from collections.abc import Mapping

from parties.flaim.messages import MessageKind, is_secagg
from parties.secagg import steps as secagg

STEPS: Mapping[MessageKind, str] = {kind: f"silos.{kind.name.lower()}" for kind in MessageKind}
SUM, FINISH = "sum", "finish"
OPENED = "silos.sum"
"""What is opened, in the step SUM."""

_KIND_AT = 5


def step_of(message: bytes) -> str:
    """The name of a message on a silo's connection; its kind alone is looked at."""
    if is_secagg(message):
        return secagg.step_of(message)
    try:
        return STEPS[MessageKind(message[_KIND_AT])]
    except (ValueError, IndexError):
        return secagg.UNKNOWN
