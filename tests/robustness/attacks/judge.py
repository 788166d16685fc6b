"""Attacks carried out one after the other, and a verdict on each.

All values here are public.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace

import numpy as np

from protocols.errors import PeerClosed
from protocols.select_spec import chosen_index
from tests.robustness.attacks.deviations import STRUCTURED, AtMessage, Attack, applies
from tests.robustness.attacks.mesh import Outcome, Sent, run
from tests.robustness.attacks.programs import SAME_IN_BOTH, TARGETS, Target

ABORTED, WAITING, HARMLESS, SUCCEEDED = "aborted", "waiting", "harmless", "succeeded"
"""Verdicts: an honest party ended the run; waits until the deadline; all ended as ever; a wrong value was opened."""
SEMI_HONEST, MALICIOUS = "semi-honest", "malicious"
NOTHING, RIGHTFUL, WRONG = "nothing", "rightful", "wrong"
"""Values that honest parties opened after the lie: none, those of an honest run, or others."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one attack by party ``deviating`` on ``program``.

    ``step`` and ``message`` name the changed message; both are None where the party computed with other numbers.
    ``noticed`` holds the honest parties' error texts. ``opened`` tells what honest parties opened afterwards.
    """

    attack: str
    security: str
    program: str
    deviating: int
    step: str | None
    message: int | None
    outcome: str
    noticed: str = ""
    opened: str = NOTHING

    @property
    def aborted(self) -> bool:
        """True if an honest party ended the run, or waits until its deadline ends it."""
        return self.outcome in (ABORTED, WAITING)

    @property
    def as_it_should_be(self) -> bool:
        """True if the attack ends the run in malicious mode, or, as a structured attack, succeeds in semi-honest mode.

        A harmless attack in malicious mode was not carried out or not noticed: neither shows that anything is proved.
        """
        if self.security == SEMI_HONEST:
            return self.attack not in STRUCTURED or self.outcome == SUCCEEDED
        return self.aborted

    def to_dict(self) -> dict[str, object]:
        """Returns the fields for JSON, with the verdicts on an attack as single words and flags."""
        return asdict(self) | {
            "name": self.attack,
            "mode": self.security,
            "aborted": self.aborted,
            "before_opening": self.aborted and self.opened != WRONG,
            "learnt": self.outcome == SUCCEEDED,
        }


@dataclass(frozen=True, slots=True)
class _Carried:
    """An attack that was carried out in a program, with the honest run of the same program."""

    attack: str
    security: str
    program: str
    honest: Outcome

    def result(
        self, outcome: Outcome, pid: int, step: str | None = None, message: int | None = None
    ) -> Result:
        """Returns the result for an outcome of the attack."""
        return Result(
            self.attack,
            self.security,
            self.program,
            pid,
            step,
            message,
            judged(outcome, self.honest),
            _noticed(outcome),
            opened(outcome, self.honest),
        )


def opened(outcome: Outcome, honest: Outcome) -> str:
    """Classifies the values that honest parties opened after the lie, compared with the honest run."""
    for pid, values in outcome.opened.items():
        if values != honest.opened[pid][: len(values)]:
            return WRONG
    return RIGHTFUL if outcome.opened_since else NOTHING


def judged(outcome: Outcome, honest: Outcome) -> str:
    """Classifies an outcome, compared with that of the honest run."""
    if opened(outcome, honest) == WRONG:
        return SUCCEEDED
    if outcome.finished:
        return HARMLESS
    told = [error for error in outcome.errors.values() if isinstance(error, Exception)]
    return ABORTED if told else WAITING


def _noticed(outcome: Outcome) -> str:
    """Joins the error texts of honest parties; lost connections count only where there is no other error."""
    told = {pid: e for pid, e in outcome.errors.items() if isinstance(e, Exception)}
    noticed = {pid: e for pid, e in told.items() if not isinstance(e, PeerClosed)}
    return "; ".join(f"{e} (said at party {pid})" for pid, e in (noticed or told).items())


def without_control(results: Sequence[Result]) -> list[str]:
    """Returns the programs without a success in semi-honest mode: for these, malicious mode shows nothing."""
    tried = {r.program for r in results if r.security == SEMI_HONEST}
    return sorted(tried - {r.program for r in results if r.outcome == SUCCEEDED} - SAME_IN_BOTH)


def generic(
    programs: Sequence[str],
    kinds: Sequence[str],
    messages: int | None,
    securities: Sequence[str] = (MALICIOUS,),
) -> Iterator[Result]:
    """Changes messages: ``messages`` of each step for each kind, or all of all parties where that is None.

    The results in semi-honest mode are controls: proofs have to prevent what succeeds there.
    """
    for name in programs:
        target = TARGETS[name]
        for security in securities:
            malicious = security == MALICIOUS
            if target.before is not None:
                target.before(malicious)
            honest = run(target.program, malicious=malicious)
            if not honest.finished:
                raise RuntimeError(f"{name} does not end, {security}, where nobody deviates")
            for kind, pid, step, number in chosen(target, honest.sent, kinds, messages):
                deviation = AtMessage(kind, step, number)
                outcome = run(
                    target.program, malicious=malicious, deviating=pid, deviation=deviation
                )
                if deviation.done:
                    yield _Carried(kind, security, name, honest).result(outcome, pid, step, number)


def chosen(
    target: Target,
    sent: Mapping[int, Sequence[Sent]],
    kinds: Sequence[str],
    messages: int | None,
) -> Iterator[tuple[str, int, str, int]]:
    """Yields the deviations to try: kind of change, party, step, and number of the party's message in the step.

    Each kind has ``messages`` messages of each step, spread over the step, half as many in whole runs. Parties take
    turns, and the next kind takes other messages. None means all messages of all three parties.
    """
    if messages is not None and target.whole:
        messages = -(-messages // 2)
    steps = list(dict.fromkeys(s.step for s in sent[0] if target.has(s.step)))
    for place, step in enumerate(steps):
        for turn, kind in enumerate(kinds):
            for count in range(3 if messages is None else min(messages, 3)):
                pid = (place + turn + count) % 3
                said = [message for message in sent[pid] if message.step == step]
                of_step = [i for i, message in enumerate(said) if applies(kind, message)]
                most = len(of_step) if messages is None else -(-(messages - count) // 3)
                for at in spread(len(of_step), most, turn + count):
                    yield kind, pid, step, of_step[at]


def spread(count: int, most: int, turn: int = 0) -> list[int]:
    """Returns at most ``most`` of ``count`` numbers, evenly spread; each ``turn`` gives others."""
    if count <= most:
        return list(range(count))
    # The start moves by the golden section each turn, so that few turns cover all numbers.
    start = int(turn * 0.618 * count)
    return sorted({(start + i * count // most) % count for i in range(most)})


def structured(names: Sequence[str], messages: int | None) -> Iterator[Result]:
    """Carries out structured attacks in semi-honest mode, as controls, and in malicious mode."""
    for name in names or STRUCTURED:
        attack = STRUCTURED[name]
        for security in (SEMI_HONEST, MALICIOUS):
            honest = run(attack.program, malicious=security == MALICIOUS)
            carried = _Carried(name, security, attack.aim, honest)
            if attack.other_numbers is not None:
                yield _computed(carried, attack, attack.other_numbers)
            elif security == SEMI_HONEST:
                yield _first_success(carried, attack)
            else:
                yield from _changed(carried, attack, messages)


def _computed(
    carried: _Carried, attack: Attack, other: Callable[[], AbstractContextManager[None]]
) -> Result:
    malicious = carried.security == MALICIOUS
    with other():
        outcome = run(attack.program, malicious=malicious, deviating=0)
    found = carried.result(outcome, 0)
    if attack.wanted is None or malicious:
        return found
    # The attack succeeds if its wanted index is opened, whatever an honest run would have chosen.
    words = [[np.frombuffer(v, "<u8") for v in values] for values in outcome.opened.values()]
    chosen = [[chosen_index(w) for w in opened] for opened in words]
    got = all(indices == [attack.wanted] for indices in chosen) and outcome.finished
    return replace(found, outcome=SUCCEEDED if got else HARMLESS, opened=WRONG if got else RIGHTFUL)


def _first_success(carried: _Carried, attack: Attack) -> Result:
    """Returns the result of the first message of the step whose change succeeds in semi-honest mode."""
    tried = None
    for tried in _changed(carried, attack, None):
        if tried.outcome == SUCCEEDED:
            break
    if tried is None:
        raise RuntimeError(f"there is no message in step {attack.step} to change")
    return tried


def _changed(carried: _Carried, attack: Attack, messages: int | None) -> Iterator[Result]:
    """Changes one message of the step after the other, at most ``messages`` of each party."""
    for pid, sent in carried.honest.sent.items():
        count = sum(s.step == attack.step for s in sent)
        for at in spread(count, count if messages is None else messages, pid):
            outcome = run(
                attack.program,
                malicious=carried.security == MALICIOUS,
                deviating=pid,
                deviation=AtMessage(attack.kind, attack.step, at),
            )
            yield carried.result(outcome, pid, attack.step, at)
