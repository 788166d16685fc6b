"""Goals against one owner or server: exclude an owner, or make an honest server look guilty.

All values here are public.
"""

import base64
import json
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from parties.audit.findings import FAIL, Check
from parties.audit.runner import audit_folder
from parties.mpc.exclusion import Exclusion
from parties.mpc.steps import (
    AGREE,
    CLIENTS_AGREE,
    CLIENTS_COMPARE,
    CLIENTS_RESUME,
    COMMIT,
    DIGEST_BYTES,
)
from protocols.context import Payload, StepCost
from protocols.errors import ProtocolViolation
from protocols.steps import CHOICE, SELECT_CHOOSE
from tests.robustness.attacks.goals.attacker import Attacker
from tests.robustness.attacks.goals.restarts import DEVIATING, Document, Rushing, finished_wrongly
from tests.robustness.attacks.goals.results import BOTH, Goal, Got, Way
from tests.robustness.attacks.goals.study import OWNERS, SERVERS, AttackedStudy, Ended

VICTIM = OWNERS[0]


def at_restart(study: AttackedStudy) -> None:
    """Leaves the study's three servers stopped in round 1."""
    study.start(Rushing(CHOICE.what, 1), DEVIATING)


# Goal: exclude an owner.


class _Excluding(Attacker):
    """Lies about finalized submissions, totals and the list of participants."""

    def __init__(
        self, resumes: Callable[[Document], Document], lists: Callable[[Document], Document]
    ) -> None:
        self._resumes, self._lists = resumes, lists

    def says(self, step: StepCost, payload: bytes) -> bytes:
        """See ``Attacker.says``."""
        if step.step == CLIENTS_RESUME.name and payload.startswith(b'{"totals"'):
            return json.dumps(self._resumes(json.loads(payload))).encode()
        if step.step == CLIENTS_AGREE.name and payload.startswith(b'{"ready"'):
            return json.dumps(self._lists(json.loads(payload))).encode()
        return payload


def _as_it_is(document: Document) -> Document:
    return document


def _without_final(document: Document) -> Document:
    return document | {"final": [item for item in document["final"] if item[0] != VICTIM]}


def _without_totals(document: Document) -> Document:
    return _without_final(document) | {"totals": []}


def _unlisted(document: Document) -> Document:
    return document | {"clients": [item for item in document["clients"] if item[0] != VICTIM]}


def _withdrawn(document: Document) -> Document:
    made_up = base64.b64encode(b"its owner's").decode()
    shown = {"client": VICTIM, "version": 1, "signature": made_up, "certificate": made_up}
    return document | {"withdrawn": [shown]}


def _exclude(
    resumes: Callable[[Document], Document],
    lists: Callable[[Document], Document],
    mode: str,
    *,
    first: bool = False,
) -> Got:
    with AttackedStudy.make(mode) as study:
        # An owner that is counted again must not be the last one any more.
        study.late = VICTIM
        if not first:
            at_restart(study)
        ended = study.start(_Excluding(resumes, lists), DEVIATING)
        last = ended if ended.finished else study.start()
        wrong = finished_wrongly(study, last)
        counted = [VICTIM in study.held(pid).counted for pid in range(3)]
        with study.store(0) as store:
            standing = store.records.find(VICTIM)
    got = f"{VICTIM} is {'counted' if all(counted) else 'not counted'}"
    seen = ended.noticed(DEVIATING)
    if standing is not None and standing.excluded is Exclusion.INCOMPLETE:
        seen = f"{VICTIM}'s upload is not at {', '.join(SERVERS[pid] for pid in standing.by)}"
    return Got(not all(counted) or bool(wrong), f"{got}; {wrong}" if wrong else got, seen)


EXCLUDE = Goal(
    f"a study without {VICTIM}, which is at all three servers",
    {
        "not-final": Way(partial(_exclude, _without_final, _unlisted)),
        "no-totals": Way(partial(_exclude, _without_totals, _unlisted)),
        "withdrawn": Way(partial(_exclude, _as_it_is, _withdrawn, first=True)),
        # A server that lost the upload is enough, and the others see which server lost it.
        "never-arrived": Way(partial(_exclude, _as_it_is, _unlisted, first=True), reaches=BOTH),
    },
)


# Goal: make an honest server look guilty.


class _OtherState(Attacker):
    """Sends the next server another encoding of the same state."""

    def tells_next(self, step: StepCost, payload: bytes) -> bytes:
        """See ``Attacker.tells_next``."""
        return payload + b" " if step.step == AGREE.name and payload.endswith(b"}") else payload


class _OtherInputs(Attacker):
    """Commits to another digest of a round's inputs, towards the next server or towards both."""

    def __init__(self, *, both: bool) -> None:
        self._both = both

    def says(self, step: StepCost, payload: bytes) -> bytes:
        """See ``Attacker.says``."""
        return self._other(step, payload) if self._both else payload

    def tells_next(self, step: StepCost, payload: bytes) -> bytes:
        """See ``Attacker.tells_next``."""
        return payload if self._both else self._other(step, payload)

    def _other(self, step: StepCost, payload: bytes) -> bytes:
        return bytes(len(payload)) if step.step == COMMIT.name else payload


class _Accusing(Attacker):
    """Claims that its component of an owner differs from the previous server's; with ``shows`` presents a false one."""

    def __init__(self, *, shows: bool) -> None:
        self._shows = shows

    def says(self, step: StepCost, payload: bytes) -> bytes:
        """See ``Attacker.says``."""
        if step.step != CLIENTS_COMPARE.name or len(payload) == 3 * DIGEST_BYTES:
            return payload
        if payload == b"{}":
            return json.dumps({VICTIM: Exclusion.COMPONENTS_DIFFER}).encode()
        return json.dumps(["00" * DIGEST_BYTES]).encode() if self._shows else payload


class _Silent(Attacker):
    """Sends nothing more from the choice on: the others run into their timeouts, and leave first."""

    def sends(self, step: StepCost, payload: Payload) -> Payload | None:
        """See ``Attacker.sends``."""
        return None if step.step == SELECT_CHOOSE.name else payload


def _collected(study: AttackedStudy) -> Path:
    """Returns the folder that an auditor gets of the three servers."""
    out = study.folder / "run"
    (out / "transcripts").mkdir(parents=True)
    (out / "certificates").mkdir()
    for pid, name in enumerate(SERVERS):
        transcript = study.directory(pid) / "transcript.jsonl"
        shutil.copyfile(transcript, out / "transcripts" / f"party-{pid}.jsonl")
        files = study.files(pid)
        shutil.copyfile(files.cert, out / "certificates" / f"{name}.crt")
        shutil.copyfile(files.ca, out / "certificates" / "ca.crt")
    (out / "config.toml").write_text(study.config.resolved_toml())
    return out


def blamed(checks: Sequence[Check], *, ended: bool) -> set[int]:
    """Returns the servers that an audit names in a text that does not name the deviating one.

    Failed checks count for a study that has ended; claims, and charges that were never opened, count always.
    """
    told = [check.detail for check in checks if check.status == FAIL] if ended else []
    claims = r"Nothing was opened.*?(?:\. |\.$)|Server \d claimed.*?\."
    told += [text for check in checks for text in re.findall(claims, check.detail)]
    named = [set(map(int, re.findall(r"(?:erver|arty) (\d)", text))) for text in told]
    return set[int]().union(*(pids for pids in named if DEVIATING not in pids))


def _accused(ended: Ended) -> set[int]:
    """Returns the servers that honest servers accuse of a protocol violation."""
    errors = [e for pid, e in enumerate(ended.errors) if pid != DEVIATING]
    return {e.pid for e in errors if isinstance(e, ProtocolViolation) and e.pid is not None}


def _frame(attacker: Callable[[], Attacker], mode: str, *, restart: bool, ends: bool = True) -> Got:
    with AttackedStudy.make(mode, {} if ends else {"timeouts.receive_s": 2.0}) as study:
        if restart:
            at_restart(study)
        ended = study.start(attacker(), DEVIATING)
        wrong = ""
        if ends:
            wrong = finished_wrongly(study, ended if ended.finished else study.start())
        checks = audit_folder(_collected(study)).checks
    accused, named = _accused(ended) - {DEVIATING}, blamed(checks, ended=ends)
    failed = [f"{check.name}: {check.detail}" for check in checks if check.status == FAIL]
    found = [
        f"{who} {' and '.join(SERVERS[pid] for pid in sorted(pids))}"
        for who, pids in (("servers accuse", accused), ("the audit names", named))
        if pids
    ]
    got = "; ".join(found) or "no honest server is named, by the others or by the audit"
    seen = ended.noticed(DEVIATING) or "; ".join(failed)
    return Got(bool(found or wrong), f"{got}; {wrong}" if wrong else got, seen)


GUILTY = Goal(
    "an honest server that is named for what this one did",
    {
        "two-states": Way(partial(_frame, _OtherState, restart=True)),
        "two-commitments": Way(partial(_frame, partial(_OtherInputs, both=False), restart=False)),
        "other-inputs": Way(partial(_frame, partial(_OtherInputs, both=True), restart=True)),
        "accuses": Way(partial(_frame, partial(_Accusing, shows=False), restart=False)),
        "accuses-and-shows": Way(partial(_frame, partial(_Accusing, shows=True), restart=False)),
        "silent": Way(partial(_frame, _Silent, restart=False, ends=False)),
    },
)
