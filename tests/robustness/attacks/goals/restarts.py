"""Goals of a server that lies, learns or leaves at restarts.

The goals: burn the budget, pick the query, learn first, keep a study from ending. All values here are public.
"""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mechanisms.accounting import Accountant, LedgerEntry
from mechanisms.events import event_from_dict
from parties.mpc import agreement, aim_backend
from parties.mpc.estimation import ModelCache
from parties.mpc.openings import Openings
from parties.mpc.planning.budget import make_plan, security_bits
from parties.mpc.steps import AGREE
from parties.session.study import Study
from protocols.context import Payload, StepCost
from protocols.measure import noise_of
from protocols.ring import R32, RingArray
from protocols.select_spec import chosen_index
from protocols.steps import CHOICE, COUNTS, SELECT
from tests.robustness.attacks.goals.attacker import Attacker, Left, changed
from tests.robustness.attacks.goals.results import Goal, Got, Way
from tests.robustness.attacks.goals.study import ROUNDS, SERVERS, AttackedStudy, Ended

DEVIATING = 1
RESTARTS = 9
CLAIMS = 60
Document = dict[str, Any]


class AtAgreement(Attacker):
    """States other holdings at agreement; with ``leaves`` the server leaves right after that."""

    def __init__(self, other: Callable[[Document], Document], *, leaves: bool = False) -> None:
        self._other, self._leaves = other, leaves

    def says(self, step: StepCost, payload: bytes) -> bytes:
        """See ``Attacker.says``."""
        if step.step != AGREE.name or not payload.startswith(b'{"identity"'):
            return payload
        return json.dumps(self._other(json.loads(payload))).encode()

    def sends(self, step: StepCost, payload: Payload) -> Payload:
        """See ``Attacker.sends``."""
        if self._leaves and step.step != AGREE.name:
            raise Left("it has said what it wanted to")
        return payload


class Rushing(Attacker):
    """Opens ``what`` of ``round`` before the others do, and leaves unless ``wants`` accepts the opened value."""

    def __init__(
        self, what: str, round: int, wants: Callable[[RingArray], bool] = lambda value: False
    ) -> None:
        self.seen = list[RingArray]()
        self._what, self._round, self._wants = what, round, wants

    def learns(self, step: StepCost, what: str, value: RingArray) -> None:
        """See ``Attacker.learns``."""
        if (what, step.round) == (self._what, self._round):
            self.seen.append(value)
            if not self._wants(value):
                raise Left("it has seen what it wanted to")


def finished_wrongly(study: AttackedStudy, ended: Ended) -> str:
    """Describes a study's defects at its end; empty if all rounds ran, each opening charged once, within the plan."""
    if not ended.finished:
        return f"the study does not end: {ended.noticed(-1)}"
    plan = make_plan(Study.of(study.config))
    for pid in range(3):
        held = study.held(pid)
        rounds = max(round for round, _ in held.releases)
        if rounds < ROUNDS:
            return f"{SERVERS[pid]} has {rounds} of {ROUNDS} rounds"
        if len(held.charges) != len(held.releases) + ROUNDS:
            return f"{SERVERS[pid]} has {len(held.charges)} charges for {len(held.releases) + ROUNDS} openings"
        if sum(entry.rho for entry in held.charges) > plan.rho * (1 + 1e-9):
            return f"{SERVERS[pid]} has charged more than the plan has"
    return ""


def spent(entries: Sequence[LedgerEntry]) -> float:
    """Sum of the charges, in rho."""
    return sum(entry.rho for entry in entries)


# Goal: burn the budget.


def _claims(kind: str, accountant: Accountant, document: Document) -> Document:
    """Returns the document with 60 invented charges."""
    known = document["ledger"][0]
    names = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(CLAIMS)]
    if kind == "within":
        event = json.loads(known["event"]) | {"sigma": 1e4}
        known = known | {"event": json.dumps(event), "rho": accountant.cost(event_from_dict(event))}
    if kind == "for-no-opening":
        names = [""] * CLAIMS
    if kind == "twice":
        names = names[:1] * CLAIMS
    document["ledger"] += [known | {"opening": name} for name in names]
    return document


def _burn(kind: str, mode: str) -> Got:
    with AttackedStudy.make(mode) as study:
        accountant = make_plan(Study.of(study.config)).accountant
        study.start(Rushing(CHOICE.what, 1), DEVIATING)
        honest = [pid for pid in range(3) if pid != DEVIATING]
        before = [study.held(pid).charges for pid in honest]
        lying = AtAgreement(partial(_claims, kind, accountant), leaves=True)
        # The attacker accepts its own claims.
        believing = changed(
            agreement,
            "parse_reported_state",
            lambda read, *where, rounds, **_: read(*where, rounds=rounds),
        )
        with believing:
            ended = study.start(lying, DEVIATING)
        after = [study.held(pid).charges for pid in honest]
        last = study.start()
        wrong = finished_wrongly(study, last)
    unnamed = [*ended.unnamed(DEVIATING), *last.unnamed(None)]
    changes = [len(a) - len(b) for a, b in zip(after, before, strict=True)]
    moved = max(abs(spent(a) - spent(b)) for a, b in zip(after, before, strict=True))
    got = f"honest ledgers have {changes[0]} and {changes[1]} entries more, rho {moved:.4g}"
    got += f"; then {wrong}" if wrong else f"; then all {ROUNDS} rounds"
    shown = [text for text in ended.said[honest[0]] if "says that it has charged" in text]
    return Got(
        bool(any(changes) or wrong or unnamed),
        "; ".join([got, *unnamed]),
        shown[0] if shown else ended.noticed(DEVIATING),
    )


BURN = Goal(
    "charges in the others' ledgers that nobody has made, for good",
    {kind: Way(partial(_burn, kind)) for kind in ("within", "above", "for-no-opening", "twice")},
)


# Goal: pick the query.


def _without_keys(document: Document) -> Document:
    document["noise"]["kept"] = None
    return document


def _without_record(document: Document) -> Document:
    """Returns the document of a server that never came to round 1."""
    ledger = [entry for entry in document["ledger"] if entry["step"] != SELECT.name]
    return document | {"inputs": [], "models": {}, "selections": {}, "ledger": ledger}


def _as_it_is(document: Document) -> Document:
    return document


class _Picking(Rushing, AtAgreement):
    """Leaves at each choice of round 1 that equals the first one seen, so that another is published."""

    def __init__(self, other: Callable[[Document], Document]) -> None:
        Rushing.__init__(self, CHOICE.what, 1, lambda _: self.draws[-1] != self.draws[0])
        AtAgreement.__init__(self, other)

    @property
    def draws(self) -> list[int]:
        """Choices seen so far."""
        return [chosen_index(value) for value in self.seen]


def _forgetful_lead() -> AbstractContextManager[object]:
    """Lets a lead estimate anew and take part, whatever was recorded."""

    def committed(
        commit: Callable[..., object],
        ctx: object,
        store: object,
        openings: Openings,
        **options: object,
    ) -> object:
        return commit(ctx, store, replace(openings, recorded={}, problem=""), **options)

    stack = ExitStack()
    for name in ("everywhere", "own"):
        stack.enter_context(changed(ModelCache, name, lambda *_: None))
    stack.enter_context(changed(aim_backend, "commit_inputs", committed))
    return stack


def _pick(
    other: Callable[[Document], Document],
    mode: str,
    *,
    pid: int = DEVIATING,
    deviation: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Got:
    with AttackedStudy.make(mode) as study:
        picking = _Picking(_as_it_is)
        ended = [study.start(picking, pid)]
        with deviation():
            for turn in range(RESTARTS):
                if ended[-1].finished:
                    break
                again = _Picking(other)
                again.seen, again.turn = picking.seen, turn + 1
                ended.append(study.start(again, pid))
        last = ended[-1] if ended[-1].finished else study.start()
        wrong = finished_wrongly(study, last)
        held = study.held((pid + 1) % 3)
    charges = Counter((e.round, e.step) for e in held.charges)[1, SELECT.name]
    published = [candidate for round, candidate in held.releases if round == 1]
    draws = picking.draws
    got = f"draws {' '.join(map(str, draws))} in {len(ended)} starts, charged {charges} times"
    got += f"; then {wrong}" if wrong else f"; then all {ROUNDS} rounds"
    return Got(
        len(set(draws)) > 1 or charges != 1 or len(published) != 1 or bool(wrong),
        got,
        ended[1].noticed(pid) if len(ended) > 1 else "",
    )


PICK = Goal(
    "another draw of round 1's choice, after it has seen the first",
    {
        "leaves": Way(partial(_pick, _as_it_is)),
        "lost-keys": Way(partial(_pick, _without_keys)),
        "lost-record": Way(partial(_pick, _without_record)),
        "another-model": Way(partial(_pick, _without_record, pid=0, deviation=_forgetful_lead)),
    },
)


# Goal: learn first.


def _learn(round: int, mode: str) -> Got:
    with AttackedStudy.make(mode) as study:
        learning = Rushing(COUNTS.what, round)
        ended = study.start(learning, DEVIATING)
        others = [study.held(pid).releases for pid in range(3) if pid != DEVIATING]
        last = study.start()
        wrong = finished_wrongly(study, last)
        releases = [study.held(pid).releases for pid in range(3)]
        bits = security_bits(Study.of(study.config))
        noise = noise_of(study.config.run.noise, bits)
    (value,) = learning.seen
    known = np.ldexp(R32.decode(value).astype(np.float64), -noise.fraction_bits)
    first = [min((where for where in held if where[0] == round), default=None) for held in releases]
    same = all(
        where is not None and held[where] == known.tobytes()
        for where, held in zip(first, releases, strict=True)
    )
    early = any(where[0] == round for held in others for where in held)
    got = f"{value.size} counts of round {round} that the others had not; they got "
    got += "the same after a restart" if same else "others after a restart"
    return Got(
        not same or early or bool(wrong),
        f"{got}; then {wrong}" if wrong else f"{got}, charged once",
        ended.noticed(DEVIATING),
    )


LEARN = Goal(
    "a release that the others never see, and another one after it",
    {"round-0": Way(partial(_learn, 0)), "round-1": Way(partial(_learn, 1))},
)


# Goal: keep a study from ending.


class _Leaving(Attacker):
    """Leaves at its message of the given number."""

    def __init__(self, after: int) -> None:
        self._left = after

    def sends(self, step: StepCost, payload: Payload) -> Payload:
        """See ``Attacker.sends``."""
        self._left -= 1
        if self._left < 0:
            raise Left("its operator stops it")
        return payload


class _Counting(Attacker):
    """Counts its own messages."""

    def __init__(self) -> None:
        self.messages = 0

    def sends(self, step: StepCost, payload: Payload) -> Payload:
        """See ``Attacker.sends``."""
        self.messages += 1
        return payload


def _keep_from_ending(mode: str, *, seed: int = 1) -> Got:
    with AttackedStudy.make(mode) as study:
        counting = _Counting()
        study.start(counting, DEVIATING)
    draw = random.Random(seed)
    with AttackedStudy.make(mode) as study:
        ended = list[Ended]()
        while len(ended) < RESTARTS and not (ended and ended[-1].finished):
            ended.append(study.start(_Leaving(draw.randrange(counting.messages)), DEVIATING))
        last = study.start()
        wrong = finished_wrongly(study, last)
        charges = study.held(0).charges
    unnamed = [text for one in ended for text in one.unnamed(DEVIATING)]
    got = f"{len(ended)} starts that did not end; {len(charges)} charges, rho {spent(charges):.4g}"
    got += f"; then {wrong}" if wrong else f"; then all {ROUNDS} rounds, within the plan"
    return Got(bool(wrong or unnamed), "; ".join([got, *unnamed]), ended[-1].noticed(DEVIATING))


END = Goal(
    "a study that never ends, or has spent its budget for nothing when it does",
    {"leaves": Way(_keep_from_ending)},
)
