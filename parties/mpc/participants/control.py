"""Decisions from outside on the participants of one attempt: the end of the wait, and the operators' commands.

All values here are public.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from parties.observability.status import RunStatus
from parties.session.operator_commands import OperatorCommands


@dataclass(frozen=True, slots=True, eq=False)
class AdmissionControl:
    """``closed`` is set once no more participants will come; ``commands`` are the operators' commands."""

    closed: asyncio.Event
    commands: OperatorCommands = field(default_factory=OperatorCommands)

    def observe(self, status: RunStatus, names: Sequence[str]) -> None:
        """Makes ``status`` show the commands from now on; ``names`` are the three servers'."""
        status.sources.asked = lambda: self.commands.shown(names)
        self.commands.on_change = status.touch
