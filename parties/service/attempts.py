"""What follows when an attempt at a study has ended in an error: pure, without I/O and without a clock.

Provides ``RetryState``, what is remembered of the attempts so far, and ``decide_retry``. What one operator can cure
alone, and what passes by itself, is tried again for as long as the study lives, at growing intervals; a defect some
times; what needs a new decision not again. What a certificate or a deadline says is believed of a clock that is right,
by the two other servers' (`parties.observability.clocks`). Public: everything.
"""

from dataclasses import dataclass, replace

from parties.observability.clocks import Clocks
from parties.observability.failure_causes import CURES, Cause, Cure, Obstacle

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
MAX_FAILURES = 5
"""Of those that hardly pass, one after the other without any progress."""


@dataclass(frozen=True, slots=True)
class RetryState:
    """The failures in a row that hardly pass, and the pause before the next attempt."""

    failures: int = 0
    pause_s: float = FIRST_PAUSE_S

    def after_pause(self) -> "RetryState":
        """After a pause: the next one is longer, up to a ceiling."""
        return replace(self, pause_s=min(2 * self.pause_s, LONGEST_PAUSE_S))


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The ``tries`` from now on, the ``obstacle`` as it is shown, and whether the study is ``over``."""

    tries: RetryState
    obstacle: Obstacle
    over: bool = False


def decide_retry(tries: RetryState, obstacle: Obstacle, clocks: Clocks) -> RetryDecision:
    """The verdict on an attempt that ended with ``obstacle``."""
    match CURES[obstacle.cause]:
        case Cure.OPERATOR | Cure.ITSELF:
            return RetryDecision(tries, obstacle)
        case Cure.CLOCK if clocks.own_off_s is not None:
            return RetryDecision(tries, Obstacle(Cause.CLOCK))
        case Cure.CLOCK if obstacle.cause is Cause.EXPIRED and not clocks.known:
            return RetryDecision(tries, obstacle)
        case Cure.RARELY:
            counted = replace(tries, failures=tries.failures + 1)
            return RetryDecision(counted, obstacle, over=counted.failures > MAX_FAILURES)
    return RetryDecision(tries, obstacle, over=True)
