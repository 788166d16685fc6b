"""Attacks carried out one after the other, and what became of each.

Provides ``Result``, ``generic`` and ``structured``. Public: everything.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

from bench.attacks.deviations import GENERIC, STRUCTURED, AtMessage, Attack
from bench.attacks.mesh import Outcome, Program, run
from bench.attacks.programs import PROGRAMS

ABORTED, WAITING, HARMLESS, SUCCEEDED = "aborted", "waiting", "harmless", "succeeded"
"""An honest party ended it; waiting for a message until the deadline; all ended, as ever; something else was opened."""
SEMI_HONEST, MALICIOUS = "semi-honest", "malicious"


@dataclass(frozen=True, slots=True)
class Result:
    """An attack by party ``deviating``: on which ``program``, by what, and what came of it.

    ``step`` and ``message``: which of its messages it changed; None where it computed with other numbers. ``noticed``:
    by whom, and in whose words. ``opened``: whether an honest party opened anything.
    """

    attack: str
    security: str
    program: str
    deviating: int
    step: str | None
    message: int | None
    outcome: str
    noticed: str = ""
    opened: bool = False

    @property
    def as_it_should_be(self) -> bool:
        """Every attack ends the run in malicious mode; those that are controls succeed in the other one.

        What is harmless in malicious mode was not carried out, or not noticed: neither shows that anything is proved.
        """
        if self.security == SEMI_HONEST:
            return self.outcome == SUCCEEDED
        return self.outcome in (ABORTED, WAITING)

    def to_dict(self) -> dict[str, object]:
        """For JSON, with what is asked of an attack in one word each."""
        return asdict(self) | {
            "name": self.attack,
            "mode": self.security,
            "aborted": self.outcome in (ABORTED, WAITING),
            "before_opening": self.outcome in (ABORTED, WAITING) and not self.opened,
            "learnt": self.outcome == SUCCEEDED,
        }


def judged(outcome: Outcome, honest: Outcome) -> str:
    """What an outcome is beside that of the honest run."""
    # All three open the same.
    right = next(iter(honest.opened.values()))
    if any(values != right[: len(values)] for values in outcome.opened.values()):
        return SUCCEEDED
    if outcome.finished:
        return HARMLESS
    told = [error for error in outcome.errors.values() if isinstance(error, Exception)]
    return ABORTED if told else WAITING


def _noticed(outcome: Outcome) -> str:
    return "; ".join(
        f"{error} (said at party {pid})"
        for pid, error in outcome.errors.items()
        if isinstance(error, Exception)
    )


def generic(programs: Sequence[str], kinds: Sequence[str], messages: int) -> Iterator[Result]:
    """Each kind of change at so many messages of each party, spread over a program, in malicious mode."""
    for name in programs:
        honest = run(PROGRAMS[name], malicious=True)
        for pid in range(3):
            sent = _sent_by(PROGRAMS[name], pid)
            for number in spread(len(sent), messages):
                for kind in kinds or GENERIC:
                    deviation = AtMessage(kind, number)
                    outcome = run(
                        PROGRAMS[name], malicious=True, deviating=pid, deviation=deviation
                    )
                    if deviation.done:
                        yield _result(
                            kind, MALICIOUS, name, pid, sent[number][0], number, outcome, honest
                        )


def _result(
    attack: str,
    security: str,
    program: str,
    pid: int,
    step: str | None,
    number: int | None,
    outcome: Outcome,
    honest: Outcome,
) -> Result:
    found = judged(outcome, honest)
    opened = any(outcome.opened.values())
    return Result(attack, security, program, pid, step, number, found, _noticed(outcome), opened)


def _sent_by(program: Program, pid: int, *, malicious: bool = True) -> list[tuple[str, int]]:
    return run(program, malicious=malicious, deviating=pid).sent


def spread(count: int, most: int) -> list[int]:
    """At most so many of ``count`` numbers, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)}) if most > 1 else [0]


def structured(names: Sequence[str], messages: int) -> Iterator[Result]:
    """Attacks that are after something: in semi-honest mode, as controls, and in malicious mode."""
    for name in names or STRUCTURED:
        attack = STRUCTURED[name]
        if attack.other_numbers is not None:
            yield from (_computed(name, attack, attack.other_numbers, m) for m in (False, True))
        else:
            yield from _changed(name, attack, messages)


def _computed(
    name: str, attack: Attack, other: Callable[[], AbstractContextManager[None]], malicious: bool
) -> Result:
    honest = run(attack.program, malicious=malicious)
    with other():
        outcome = run(attack.program, malicious=malicious)
    security = MALICIOUS if malicious else SEMI_HONEST
    if attack.wanted is not None and not malicious:
        # What it is after is what it says, whatever an honest run would have chosen.
        got = all(v == [attack.wanted] for v in outcome.opened.values()) and outcome.finished
        found = SUCCEEDED if got else HARMLESS
        return Result(name, security, attack.aim, 0, None, None, found, opened=outcome.finished)
    return _result(name, security, attack.aim, 0, None, None, outcome, honest)


def _changed(name: str, attack: Attack, messages: int) -> Iterator[Result]:
    """The first message of the step by which it succeeds where nothing is proved; the step's messages where all is."""
    for malicious in (False, True):
        honest = run(attack.program, malicious=malicious)
        security, tried = (MALICIOUS if malicious else SEMI_HONEST), list[Result]()
        for pid in range(3):
            sent = _sent_by(attack.program, pid, malicious=malicious)
            of_step = [n for n, (step, size) in enumerate(sent) if step == attack.step and size]
            for number in spread(len(of_step), messages) if malicious else range(len(of_step)):
                at = of_step[number]
                outcome = run(
                    attack.program,
                    malicious=malicious,
                    deviating=pid,
                    deviation=AtMessage(attack.kind, at),
                )
                tried.append(
                    _result(name, security, attack.aim, pid, attack.step, at, outcome, honest)
                )
                if not malicious and tried[-1].outcome == SUCCEEDED:
                    break
            if not malicious and tried and tried[-1].outcome == SUCCEEDED:
                break
        yield from tried if malicious else tried[-1:]
