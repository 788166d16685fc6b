"""Retry policy for an attempt at a study that ended in an error: pure functions, without I/O or clock.

``RetryState`` is the state between attempts, and ``decide_retry`` the decision. An obstacle that one operator can cure
alone, or that passes by itself, is retried at growing intervals for as long as the study lives; a defect is retried a
few times; an obstacle that needs a new decision is not retried. An error about a certificate's dates or a deadline is
believed only if the clock is right by the two other servers' clocks (`parties.observability.clocks`). All values here
are public.
"""

from dataclasses import dataclass, replace

from parties.observability.clocks import Clocks
from parties.observability.failure_causes import CURES, Cause, Cure, Obstacle

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
MAX_FAILURES = 5
"""Maximum number of failures in a row, without progress, that are unlikely to pass by themselves."""


@dataclass(frozen=True, slots=True)
class RetryState:
    """Number of failures in a row that are unlikely to pass, and the pause before the next attempt in seconds."""

    failures: int = 0
    pause_s: float = FIRST_PAUSE_S

    def after_pause(self) -> "RetryState":
        """Returns the state after a pause: the next pause is longer, up to a ceiling."""
        return replace(self, pause_s=min(2 * self.pause_s, LONGEST_PAUSE_S))


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Decision after an attempt: next retry state ``tries``, ``obstacle`` to show, ``over`` if the study ends."""

    tries: RetryState
    obstacle: Obstacle
    over: bool = False


def decide_retry(tries: RetryState, obstacle: Obstacle, clocks: Clocks) -> RetryDecision:
    """Returns the decision on an attempt that ended with ``obstacle``."""
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
