"""Checks ``clients`` and ``limits``: the owners that were counted, and the reasons for those that were not.

``clients`` verifies that all three servers counted the same owners, each once, and exchanged none after an opening.
``limits`` verifies that an owner's opened bit decides if it is counted, and that other exclusions have a reason on
record. A server that wants to drop an owner has to state one of the possible reasons, in all three transcripts: for
differing components both holders have to have shown different digests, and for a withdrawal the owner's own signature
is on record. ``excluded`` returns the uncounted owners for the report. All values here are public: owners' names and
the digests of their uploads.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from parties.audit.checks.identity import AUTHORITY
from parties.audit.checks.linkage import capacities_of
from parties.audit.checks.privacy import RunTerms, finished_rounds
from parties.audit.evidence import (
    Evidence,
    MeshSession,
    TranscriptAttempt,
    TranscriptEntry,
    record_table,
)
from parties.audit.findings import CheckFailure, require
from parties.config import NO_CHECK
from parties.foundation.errors import CertificateError
from parties.identity.signing import Issuer
from parties.methods.distaim import excluded_owner
from parties.mpc.exclusion import Exclusion
from parties.mpc.inputs import input_forms
from parties.mpc.steps import PASSED
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.mpc.transcript_schema import (
    ACCUSED,
    COUNTED,
    COUNTING,
    FINISHED,
    INCOMPLETE,
    RECOUNTING,
    REPLACED,
    REVOKED,
    ROUND,
    WITHDRAWN,
)
from parties.report.model import ExcludedOwner
from protocols.steps import CHOICE, COUNTS


def clients(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that all three counted the same owners, each once, in the stated number, within the configuration."""
    expected, minimum = terms.config.clients.expected, terms.config.clients.minimum
    owners, ever = _CountedOwners(), 0
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
    """Returns the number of owners counted in the finished rounds; a lost round is in no result."""
    rounds = [e for s in evidence.sessions for a in s.present for e in a.notes(ROUND.what)]
    last = finished_rounds(evidence)
    return max((e.number("clients") for e in rounds if e.number("round") <= last), default=0)


def _same_clients(lists: Sequence[Sequence[tuple[object, ...]]], session: MeshSession) -> None:
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
class _CountedOwners:
    """Owners counted ``here``, in one mesh; last ``accepted`` upload of each; owners in something ``opened``."""

    here: frozenset[str] = frozenset()
    accepted: Mapping[str, str] = field(default_factory=dict)
    opened: frozenset[str] = frozenset()

    def with_all(self, after: Sequence["_CountedOwners"]) -> "_CountedOwners":
        """Returns the state before the next mesh, from the states ``after`` each server's attempt in this one."""
        accepted = dict(self.accepted)
        for each in sorted(after, key=lambda each: len(each.accepted)):
            accepted |= each.accepted
        return _CountedOwners(frozenset(), accepted, self.opened.union(*(e.opened for e in after)))


def _counted(attempt: TranscriptAttempt, before: _CountedOwners) -> _CountedOwners:
    """Returns the owners that an attempt counted in the end.

    After an opening with an owner's data, its upload stays the same throughout the run, and is never taken back.
    """
    here, accepted, opened = set[str](), dict(before.accepted), set(before.opened)
    where = f"of server {attempt.pid}'s transcript"
    for entry in attempt.events:
        line = f"line {entry.line} {where}"
        if entry.is_note(COUNTED.what):
            names = [str(name) for name in entry.items("clients")]
            known_all = len(set(names)) == len(names) and accepted.keys() >= set(names)
            require(known_all, f"{line} lists an owner that no mesh accepted")
            here = set(names)
        elif entry.is_removal:
            for name in record_table(entry.record["clients"]):
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
    return _CountedOwners(frozenset(here), accepted, frozenset(opened))


_CHECKED = ("", Exclusion.OUT_OF_BOUNDS)
"""Reasons, including none, between which an opened bit decides."""


def limits(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that each owner was counted or excluded by its bit, and that other exclusions match the servers' claims.

    An owner that sent rows has no bit: its weight is bounded by its capacity, whatever it sent.
    """
    bits = excluded = withdrawn = 0
    rows: dict[str, int] = {}
    for session in evidence.sessions:
        _check_alike(session, [list(attempt.of("opened")) for attempt in session.present])
        for note in (ACCUSED, COUNTING, RECOUNTING, WITHDRAWN, REPLACED, REVOKED):
            _check_alike(session, [list(attempt.notes(note.what)) for attempt in session.present])
        withdrawn += len(_withdrawn(session, evidence))
        counts = [_follow(attempt, terms) for attempt in session.present]
        bits += max(bits for bits, _ in counts)
        excluded += max(dropped for _, dropped in counts)
        rows |= rows_capacities(session.present[0])
    what = f"{bits} owners were checked, each before it was counted, and counted as its bit says"
    if terms.config.run.check == NO_CHECK:
        what = "Nobody's counts were checked, as the configuration has it"
    if rows:
        what += f"; {len(rows)} owners sent rows, {sum(rows.values())} at most"
    gone = f"; {withdrawn} have withdrawn, as they have signed" if withdrawn else ""
    return f"{what}; {excluded} were excluded, for reasons that are shown{gone}."


def _withdrawn(session: MeshSession, evidence: Evidence) -> set[str]:
    """Returns the owners that withdrew, by their own signature, with a certificate of the run's authority."""
    found: set[str] = set()
    for attempt in session.present:
        header = evidence.transcripts[attempt.pid].header
        run, config = header.text("run"), header.text("config_sha256")
        for entry in attempt.notes(WITHDRAWN.what):
            for client, said in record_table(entry.record["clients"]).items():
                try:
                    signed = SignedWithdrawal.from_dict(
                        {"client": client, **record_table(said)}, run, config
                    )
                    signed.check(_authority(evidence), run, config)
                except (ValueError, CertificateError) as error:
                    where = f"line {entry.line} of server {attempt.pid}'s transcript"
                    raise CheckFailure(
                        f"{where}: {client!r} has not signed its withdrawal"
                    ) from error
                found.add(client)
    return found


def _authority(evidence: Evidence) -> Issuer:
    try:
        return Issuer.load(evidence.certificates / AUTHORITY)
    except CertificateError as error:
        raise CheckFailure(
            f"{AUTHORITY} cannot be used: expected an X.509 certificate, PEM"
        ) from error


def excluded(evidence: Evidence) -> tuple[ExcludedOwner, ...]:
    """Returns the owners that were not counted in the end, by the first server's transcript, as for the report."""
    left: dict[str, ExcludedOwner] = {}
    for attempt in evidence.transcripts[0].attempts:
        if not attempt.notes(ROUND.what):
            continue
        # After a restart the servers judge uncounted submissions anew, or wait for them again.
        decided: dict[str, ExcludedOwner] = {}
        waiting: dict[str, ExcludedOwner] = {}
        noted: dict[str, ExcludedOwner] = {}
        accused: dict[str, list[int]] = {}
        for entry in attempt.events:
            number = entry.number("round") if "round" in entry.record else -1
            if entry.is_note(ACCUSED.what):
                shown = record_table(entry.record["shown"])
                accused[entry.text("client")] = sorted(map(int, shown))
            elif entry.is_note(WITHDRAWN.what):
                for client in record_table(entry.record["clients"]):
                    decided[client] = excluded_owner(client, number, Exclusion.WITHDRAWN, [])
            elif entry.is_note(REVOKED.what):
                for client, upload in record_table(entry.record["clients"]).items():
                    if upload:
                        decided[client] = excluded_owner(client, number, Exclusion.REVOKED, [])
            elif entry.kind == "client" and entry.record["accepted"]:
                decided.pop(entry.text("client"), None)
            elif entry.kind == "client":
                client, reason = entry.text("client"), Exclusion(entry.text("reason"))
                decided[client] = excluded_owner(client, number, reason, accused.get(client, []))
            elif entry.is_note(INCOMPLETE.what):
                noted = {
                    client: excluded_owner(client, number, Exclusion.INCOMPLETE, _numbers(servers))
                    for client, servers in record_table(entry.record["clients"]).items()
                }
            elif entry.is_note(ROUND.what):
                waiting, noted = noted, {}
        left = decided | waiting
    return tuple(left[client] for client in sorted(left))


def counted_capacities(evidence: Evidence) -> dict[str, int]:
    """Returns the maximum number of rows of each owner whose rows were counted in the end, by the first server."""
    counted, capacities = _counted_in_the_end(evidence)
    return {client: capacities[client] for client in counted if client in capacities}


def counted_owners(evidence: Evidence) -> set[str]:
    """Returns the owners that were counted in the end, by the first server's transcript."""
    return _counted_in_the_end(evidence)[0]


def _counted_in_the_end(evidence: Evidence) -> tuple[set[str], dict[str, int]]:
    """Returns the owners that were counted, and the maximum number of rows of all that sent rows."""
    capacities: dict[str, int] = {}
    counted: set[str] = set()
    for attempt in evidence.transcripts[0].attempts:
        if attempt.notes(ROUND.what):
            counted = set()
        for entry in attempt.events:
            if entry.is_note(COUNTED.what):
                counted = {str(name) for name in entry.items("clients")}
            elif entry.is_removal:
                counted -= record_table(entry.record["clients"]).keys()
            elif entry.kind == "client" and entry.record["accepted"]:
                counted.add(entry.text("client"))
        capacities |= rows_capacities(attempt)
    return counted, capacities


def rows_capacities(attempt: TranscriptAttempt) -> dict[str, int]:
    """Returns the maximum number of rows of each owner whose rows an attempt counted."""
    found: dict[str, int] = {}
    for _, capacities, again in _counted_batches(attempt):
        for client, rows in capacities.items():
            if again:
                found.pop(client, None)
            else:
                found[client] = rows
    return found


def _counted_batches(
    attempt: TranscriptAttempt,
) -> Iterator[tuple[TranscriptEntry, Mapping[str, int], bool]]:
    """Yields the batches that servers counted, with a flag for batches counted again to subtract them from the total.

    The flagged batches have the rows of owners that withdrew or replaced them, or were revoked, just before.
    """
    batch: Mapping[str, int] = {}
    inside, leaving = set[str](), set[str]()
    is_recount, first, resumed = set[str](), set[str](), set[str]()
    for entry in attempt.events:
        if entry.is_removal:
            leaving |= record_table(entry.record["clients"]).keys() & inside
        elif entry.is_note(COUNTING.what):
            capacities = capacities_of(entry)
            again = capacities.keys() <= leaving
            yield entry, capacities, again
            if again:
                inside -= capacities.keys()
                leaving -= capacities.keys()
            batch = {} if again else capacities
        elif entry.kind == "client" and entry.record["accepted"]:
            inside |= {entry.text("client")} & batch.keys()
        elif entry.is_note(COUNTED.what):
            resumed |= {str(client) for client in entry.items("clients")}
        elif entry.is_note(RECOUNTING.what):
            where = f"line {entry.line} of server {attempt.pid}'s transcript"
            known = capacities_of(entry).keys() <= inside | resumed
            require(known, f"{where}: owners are counted again who were not counted before")
            is_recount |= capacities_of(entry).keys()
        elif entry.is_note(ROUND.what):
            where = f"line {entry.line} of server {attempt.pid}'s transcript"
            all_anew = not is_recount or is_recount == first
            require(all_anew, f"{where}: {len(first - is_recount)} owners are not counted again")
            is_recount, first = set(), inside | resumed
            require(not leaving, f"{where}: {len(leaving)} owners' rows are still in the total")


def _check_alike(session: MeshSession, lists: Sequence[Sequence[TranscriptEntry]]) -> None:
    """Verifies that the servers of a mesh agree on owners; in a broken mesh one server may lack the last records."""
    lists_by_server = [
        [
            tuple(str(value) for name, value in entry.record.items() if name != "t")
            for entry in entries
            if entry.kind == "note" or entry.record["what"] == PASSED.what
        ]
        for entries in lists
    ]
    longest = max(lists_by_server, key=len)
    for attempt, own in zip(session.present, lists_by_server, strict=True):
        same = own == longest[: len(own)] and (len(own) == len(longest) or not session.clean)
        require(same, f"server {attempt.pid} and another one tell differently of data owners")


def _follow(attempt: TranscriptAttempt, terms: RunTerms) -> tuple[int, int]:
    """Verifies each owner of an attempt, and returns the numbers of opened bits and of excluded owners."""
    bits: deque[bool] = deque()
    accused: dict[str, TranscriptEntry] = {}
    by_rows: set[str] = set()
    again = {entry.line for entry, _, repeated in _counted_batches(attempt) if repeated}
    opened = excluded = 0
    for entry in attempt.events:
        where = f"line {entry.line} of server {attempt.pid}'s transcript"
        if entry.kind == "opened" and entry.record["what"] == PASSED.what:
            require(
                terms.config.run.check != NO_CHECK and not bits,
                f"{where}: bits of owners are opened that are not to be checked now",
            )
            bits.extend(_bits(entry, where))
            opened += len(bits)
        elif entry.is_note(ACCUSED.what):
            accused[entry.text("client")] = entry
        elif entry.is_note(COUNTING.what) and entry.line in again:
            _batch(entry, terms, where)
        elif entry.is_note(COUNTING.what):
            require(
                not by_rows, f"{where}: a batch begins before the owners of the last are listed"
            )
            by_rows = _batch(entry, terms, where)
        elif entry.is_note(ROUND.what):
            require(not by_rows, f"{where}: {len(by_rows)} owners sent rows and are not listed")
            require(not bits, f"{where}: {len(bits)} owners were checked and are not listed")
        elif entry.kind == "client":
            reason = entry.text("reason")
            excluded += bool(reason)
            same = bool(reason) != entry.record["accepted"]
            require(same, f"{where}: an owner is counted, and excluded as {reason!r}")
            if entry.text("client") in by_rows:
                by_rows.remove(entry.text("client"))
                require(not reason, f"{where}: excluded as {reason!r} after its rows were counted")
            elif reason in _CHECKED:
                _counts_may_come(terms, where)
                _check_bit_reason(reason, bits, terms, where)
            else:
                _check_shown_reason(reason, accused.pop(entry.text("client"), None), where)
    return opened, excluded


def _batch(entry: TranscriptEntry, terms: RunTerms, where: str) -> set[str]:
    """Returns the owners of a counted batch. Raises CheckFailure unless the run takes such inputs from them."""
    forms = input_forms(terms.study)
    name, bound = entry.text("form"), terms.config.clients.rows_per_client
    allowed = any(form.together == name and form.by_capacity for form in forms.values())
    require(
        allowed, f"{where}: input of the form {name[:40]!r} is counted, which the run does not take"
    )
    capacities = capacities_of(entry)
    largest = max(capacities.values())
    require(
        largest <= bound, f"{where}: an owner of {largest} rows, where the run has at most {bound}"
    )
    return set(capacities)


def _counts_may_come(terms: RunTerms, where: str) -> None:
    """Raises CheckFailure if owners have to send rows."""
    forms = input_forms(terms.study).values()
    allowed = not all(form.by_capacity for form in forms)
    require(allowed, f"{where}: an owner is counted that did not send rows")


def _bits(entry: TranscriptEntry, where: str) -> list[bool]:
    words = entry.bytes("value")
    size = PASSED.itemsize
    values = [
        int.from_bytes(words[start : start + size], "little")
        for start in range(0, len(words), size)
    ]
    require(len(values) > 0 and max(values) <= 1, f"{where}: not a bit an owner")
    return [value == 1 for value in values]


def _check_bit_reason(reason: str, bits: deque[bool], terms: RunTerms, where: str) -> None:
    if terms.config.run.check == NO_CHECK:
        require(not reason, f"{where}: excluded as {reason!r}, which nobody checks")
        return
    require(bool(bits), f"{where}: an owner is decided on without a bit of its own")
    passed = bits.popleft()
    require(
        passed != bool(reason),
        f"{where}: an owner's bit is {int(passed)}; it was treated otherwise",
    )


def _check_shown_reason(reason: str, note: TranscriptEntry | None, where: str) -> None:
    """Verifies an exclusion that rests on the servers' own statements."""
    if note is None:
        raise CheckFailure(f"{where}: an owner is excluded as {reason!r} and no server says so")
    require(
        reason == Exclusion.COMPONENTS_DIFFER,
        f"{where}: an owner is excluded as {reason!r}, which no server may state",
    )
    shown = record_table(note.record["shown"])
    require(bool(shown), f"{where}: an owner is excluded as {reason!r} and nothing is shown")
    for accuser, by_holder in shown.items():
        digests = record_table(by_holder)
        holders = {str(pid) for pid in range(3) if accuser in (str(pid), str((pid + 1) % 3))}
        require(
            digests.keys() == holders and len({str(d) for d in digests.values()}) == len(holders),
            f"{where}: the two holders of component {accuser[:9]} do not show different ones",
        )


def _numbers(value: object) -> list[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []
