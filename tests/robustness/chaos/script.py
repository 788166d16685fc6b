"""Script of a chaos study: the eight faults in an order, with a victim and a moment each, drawn by a seed.

The same seed draws the same script. A moment is a stage of the study, which waits before the next stage until the
faults of this one have begun; a fault is cured some time after that, while others may be under way. All values here
are public.
"""

import random
from dataclasses import dataclass

KILL_SERVICE, KILL_WORKER, KILL_OWNER = "kill-service", "kill-worker", "kill-owner"
CUT, CLOCK, FULL, RESTORE, SLOW_OWNER = "cut", "clock", "full", "restore", "slow-owner"
FAULTS = {
    KILL_SERVICE: "SIGKILL of `syncret serve`, which a supervisor starts again",
    KILL_WORKER: "SIGKILL of a study's process",
    KILL_OWNER: "SIGKILL of an owner's command, which its owner repeats",
    CUT: "no connection to one server, or among all, for some ten seconds",
    CLOCK: "a host's clock ten minutes off, until its operator has seen and set it",
    FULL: "no file of one server grows for some seconds",
    RESTORE: "a server's folder is lost, and restored from a backup of an earlier stage",
    SLOW_OWNER: "an owner whose upload comes in drops",
}
"""Description of each fault, by name."""
PROPOSED, APPROVED, RUNNING, ONE_OWNER, TWO_OWNERS = range(5)
ROUNDS = 8
"""Rounds of the study; a stage from 5 on is the end of a round."""
FIRST_ROUND = 5
_STAGES = (PROPOSED, APPROVED, RUNNING, ONE_OWNER, TWO_OWNERS)
_OWNERS, _SERVERS = 3, 3


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the ``kind`` at the ``stage``, some ``pause_s`` after the one before, cured after ``lasts_s``.

    ``victim`` is the number of a server, or of an owner; of a cut -1 for all servers. ``amount`` is a clock's offset in
    seconds, or the number of bytes that a slow owner sends at a time; ``backup`` the stage of a restored folder.
    """

    kind: str
    victim: int
    stage: int
    pause_s: float
    lasts_s: float
    amount: float = 0.0
    backup: int = -1

    def __str__(self) -> str:
        of = f" from {stage_text(self.backup)}" if self.kind == RESTORE else ""
        return f"{self.kind} {self.victim}{of} at {stage_text(self.stage)}"


def stage_text(stage: int) -> str:
    """Returns a stage in words."""
    names = ("proposed", "approved", "running", "one owner", "two owners")
    return names[stage] if stage < FIRST_ROUND else f"round {stage - FIRST_ROUND + 1}"


def drawn(seed: int) -> list[Fault]:
    """Returns the script of a seed: each fault once, in the order in which they begin."""
    draw = random.Random(seed)  # to be the same again
    kinds = list(FAULTS)
    draw.shuffle(kinds)
    rounds = [FIRST_ROUND + number for number in range(ROUNDS - 1)]
    stages = sorted(draw.choice((*_STAGES, *draw.sample(rounds, len(_STAGES)))) for _ in kinds)
    return sorted((_fault(kind, s, draw) for kind, s in zip(kinds, stages, strict=True)), key=_at)


def _at(fault: Fault) -> int:
    return fault.stage


def _fault(kind: str, stage: int, draw: random.Random) -> Fault:
    """Returns a fault at a stage, or at the next one at which it can happen: owners send once, and late.

    A server's folder is restored from a backup that is not older than the proposal: without the keys of its card, which
    are made for it, a server has no part in a study. In the rounds it is from the rounds: shares of owners who are
    counted for good come back from nowhere else, and such a study waits, with words, for a decision to cancel it.
    """
    victim, pause, lasts = draw.randrange(_SERVERS), draw.uniform(0, 3), 0.0
    amount, backup = 0.0, -1
    match kind:
        case "cut":
            victim, lasts = draw.randrange(-1, _SERVERS), draw.uniform(8, 12)
        case "clock":
            amount, lasts = draw.choice((-1, 1)) * draw.uniform(580, 640), draw.uniform(5, 15)
        case "full":
            lasts = draw.uniform(3, 8)
        case "restore":
            lasts = draw.uniform(0.5, 3)
            backup = draw.randint(FIRST_ROUND if stage >= FIRST_ROUND else PROPOSED, stage)
        case "kill-worker":
            stage = max(stage, RUNNING)
        case "kill-owner" | "slow-owner":
            # Owner n sends at the stages RUNNING + n.
            stage = min(max(stage, RUNNING), TWO_OWNERS)
            victim, amount = stage - RUNNING, draw.choice((40.0, 200.0, 1000.0))
            lasts = draw.uniform(0.2, 4)
    return Fault(kind, victim, stage, pause, lasts, amount, backup)
