"""Whose data were counted: the same owners at all three servers, each once, none exchanged after something was opened.

Provides the check ``clients``. Public: owners' names and the digests of their uploads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parties.audit.evidence import Attempt, Evidence, Session, table
from parties.audit.findings import require
from parties.audit.privacy import Terms, finished_rounds
from parties.distaim.notes import COUNTED, FINISHED, ROUND
from protocols.steps import CHOICE, COUNTS


def clients(evidence: Evidence, terms: Terms) -> str:
    """The three counted the same data owners, each once, in the numbers that they say and the configuration allows."""
    expected, minimum = terms.config.clients.expected, terms.config.clients.minimum
    owners, ever = _Owners(), 0
    for session in evidence.sessions:
        lists = [
            [
                entry.values("client", "digest", "round", "accepted", "reason")
                for entry in attempt.of("client")
            ]
            for attempt in session.present
        ]
        _same_clients(lists, session)
        after = [_counted(attempt, owners) for attempt in session.present]
        ever = max([ever, *(len(each.here) for each in after)])
        owners = owners.with_all(after)
    require(
        ever <= expected,
        f"{ever} data owners were counted; the configuration expects {expected} at most",
    )
    finished = evidence.transcripts[0].last.notes(FINISHED.what)
    most = _most_clients(evidence)
    counted = finished[-1].number("clients") if finished else most
    require(
        counted == most,
        f"{counted} data owners are said to be counted in the end; the transcripts show {most}",
    )
    require(
        most >= minimum, f"{most} data owners were counted; the configuration asks for {minimum}"
    )
    return f"All three counted the same {most} data owners, each once, of {minimum} to {expected} that were expected."


def _most_clients(evidence: Evidence) -> int:
    """How many were counted in the finished rounds: those of a round that was lost are in no result."""
    rounds = [e for s in evidence.sessions for a in s.present for e in a.notes(ROUND.what)]
    last = finished_rounds(evidence)
    return max((e.number("clients") for e in rounds if e.number("round") <= last), default=0)


def _same_clients(lists: Sequence[Sequence[tuple[object, ...]]], session: Session) -> None:
    longest = max(lists, key=len, default=[])
    for attempt, own in zip(session.present, lists, strict=True):
        same = list(own) == list(longest[: len(own)])
        require(
            same, f"server {attempt.pid} accepted or dropped other data owners than another one"
        )
        require(
            len(own) == len(longest) or not session.clean,
            f"server {attempt.pid} lacks data owners that another one lists",
        )


@dataclass(frozen=True, slots=True)
class _Owners:
    """Who is counted ``here``, in one mesh; the last upload ``accepted`` of each; of whom something was ``opened``."""

    here: frozenset[str] = frozenset()
    accepted: Mapping[str, str] = field(default_factory=dict)
    opened: frozenset[str] = frozenset()

    def with_all(self, after: Sequence["_Owners"]) -> "_Owners":
        """What is known before the next mesh, by what came ``after`` each server's part in this one."""
        accepted = dict(self.accepted)
        for each in sorted(after, key=lambda each: len(each.accepted)):
            accepted |= each.accepted
        return _Owners(frozenset(), accepted, self.opened.union(*(e.opened for e in after)))


def _counted(attempt: Attempt, before: _Owners) -> _Owners:
    """Whom an attempt counted in the end.

    Once something was opened of an owner, its upload is the same throughout the run, and nothing of it is taken back.
    """
    here, accepted, opened = set[str](), dict(before.accepted), set(before.opened)
    where = f"of server {attempt.pid}'s transcript"
    for entry in attempt.entries:
        line = f"line {entry.line} {where}"
        if entry.is_note(COUNTED.what):
            names = [str(name) for name in entry.items("clients")]
            known_all = len(set(names)) == len(names) and accepted.keys() >= set(names)
            require(known_all, f"{line} lists an owner that no mesh accepted")
            here = set(names)
        elif entry.takes_back:
            for name in table(entry.record["clients"]):
                require(
                    name not in opened, f"{line}: {name!r} is taken back, of whom was opened before"
                )
                here.discard(name)
        elif entry.kind == "client" and entry.record["accepted"]:
            name, digest = entry.text("client"), entry.text("digest")
            require(name not in here, f"{line} counts {name!r} twice")
            same = name not in opened or accepted.get(name) == digest
            require(same, f"{line}: {name!r} has two submissions")
            here.add(name)
            accepted[name] = digest
        elif entry.is_note(ROUND.what):
            said = entry.number("clients")
            require(
                said == len(here),
                f"{line} says that {said} data owners are counted; the list has {len(here)}",
            )
        elif entry.kind == "opened" and entry.record["what"] in (CHOICE.what, COUNTS.what):
            opened |= here
    return _Owners(frozenset(here), accepted, frozenset(opened))
