"""What messages, steps and openings of sums between silos are called in transcripts and reports: "silos.request".

Provides ``STEPS`` (a name for every kind of message), ``step_of``, which knows SecAgg's as well, and the names of what
a server does and opens. All public.
"""

from collections.abc import Mapping

from parties.flaim.messages import MessageKind
from parties.flaim.steps import namer

STEPS: Mapping[MessageKind, str] = {kind: f"silos.{kind.name.lower()}" for kind in MessageKind}
SUM, FINISH = "sum", "finish"
OPENED = "silos.sum"
"""What is opened, in the step SUM."""

step_of = namer(STEPS)
"""The name of a message on a silo's connection, its own or SecAgg's; its kind alone is looked at."""
