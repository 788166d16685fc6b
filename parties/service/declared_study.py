"""Study as a file declares it, and what is to be done so that it is so at one server (`syncret study apply`).

The file names the study, and says what its operator wants of it. ``plan`` compares that with the documents of the
server's admin API, and returns commands; it sends none. Its result for a study that is as declared is empty: applying a
file twice is applying it once.

Nothing but a proposal happens without the study's words, typed into the file by somebody who has compared them with the
other operators: neither file nor program computes them. A study that has failed, or that somebody has ended, is a new
decision, which no file takes. Everything here is public.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parties.config import NAME_PATTERN, Config, bound_text, config_from_dict, load_config
from parties.config.diff import differences
from parties.config.limits import check, check_number
from parties.foundation.errors import ConfigError, PartyError
from parties.foundation.untrusted_text import parse_toml
from parties.identity.typed_words import WrongWords, read_words
from parties.service.study_record import ACTIVE, ENDED, StudyState
from parties.storage.files import disk_errors

_TEXTS = ("config", "run", "words", "state", "reason", "authority", "out")
_KEYS = (*_TEXTS, "revoked", "days")
_MAX_DAYS = 36_500
_SHOWN = 8


class Wanted(enum.StrEnum):
    """State that an operator wants of a study, as the service calls it."""

    RUNNING = "running"
    CLOSED = "closed"
    FINISHED = "finished"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class DeclaredStudy:
    """Study that a file declares.

    Attributes:
        run: Name of the study.
        config: The configuration to propose, if no study of this name is known; None: somebody else proposes it.
        words: The twelve words that its operator has compared; "" before that.
        state: State that is wanted, and ``revoked``, the data owners that are turned away.
        reason: What the others are told if the study is cancelled.
        authority: Folder of the authority, ``out`` folder of the study's files, ``days`` validity of certificates: of a
            proposal without servers.
    """

    run: str
    config: Path | None = None
    words: str = ""
    state: Wanted = Wanted.RUNNING
    revoked: tuple[str, ...] = ()
    reason: str = ""
    authority: Path = Path("authority")
    out: Path = Path("study")
    days: float = 365

    def __post_init__(self) -> None:
        check(
            NAME_PATTERN.fullmatch(self.run) is not None, "run", f"is {self.run!r}; expected a name"
        )
        check_number("days", self.days, low=0, high=_MAX_DAYS)
        for owner in self.revoked:
            named = NAME_PATTERN.fullmatch(owner) is not None
            check(named, "revoked", f"has {owner!r}; expected names, as in certificates")
        ends = self.state is Wanted.CANCELLED
        check(ends or not self.reason, "reason", 'is for state = "cancelled"; expected none')
        quiet = not (self.revoked or self.state is not Wanted.RUNNING)
        what = "is missing; expected the twelve words that all operators have compared, for state and revoked"
        check(bool(self.words) or quiet, "words", what)


def load_declared_study(path: Path) -> DeclaredStudy:
    """Returns the study that the file declares; paths in it are relative to its folder.

    Raises ConfigError, StoreError.
    """
    with disk_errors(path, "read"):
        data = path.read_bytes()
    try:
        return _declared(parse_toml(data.decode()), path.parent)
    except WrongWords as error:
        raise ConfigError(str(path), "words", str(error)) from error
    except ValueError as error:
        raise ConfigError(str(path), "", f"is not valid TOML: {error}") from error
    except ConfigError as error:
        if error.source:
            raise
        message = str(error).removeprefix(f": {error.key}: ")
        raise ConfigError(str(path), error.key, message) from error


def _declared(document: Mapping[str, Any], base: Path) -> DeclaredStudy:
    for key, value in document.items():
        check(key in _KEYS, key, f"is unknown; expected {', '.join(_KEYS)}")
        if key in _TEXTS:
            check(isinstance(value, str) and value != "", key, f"is {value!r}; expected text")
    values = dict(document)
    names = values.pop("revoked", [])
    listed = isinstance(names, list) and all(isinstance(name, str) for name in names)
    check(listed, "revoked", f"is {names!r}; expected a list of data owners' names")
    if "config" in values:
        values["config"] = base / values["config"]
    values["authority"] = base / values.get("authority", "authority")
    values["out"] = base / values.get("out", "study")
    if "config" in values:
        run = load_config(values["config"]).run.id
        check(
            values.setdefault("run", run) == run,
            "run",
            f"is {values['run']!r}; expected {run!r}, as in config",
        )
    check("run" in values, "run", "is missing; expected the study's name, or config")
    if "words" in values:
        values["words"] = read_words(values["words"])
        check(
            " " in values["words"],
            "words",
            "are digits; expected the twelve words that were read out",
        )
    state = values.get("state", Wanted.RUNNING.value)
    check(state in list(Wanted), "state", f"is {state!r}; expected {', '.join(Wanted)}")
    return DeclaredStudy(**values | {"state": Wanted(state), "revoked": tuple(names)})


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a study at this server: ``what`` of it, and its values ``before`` and ``after``.

    ``command`` is the route below the study, with its body; None for the proposal.
    """

    what: str
    before: str
    after: str
    command: tuple[str, Mapping[str, object]] | None = None

    def to_dict(self) -> dict[str, str]:
        """Returns the JSON form."""
        return {"what": self.what, "before": self.before, "after": self.after}

    def __str__(self) -> str:
        return f"{self.what}: {self.before} -> {self.after}"


class DecisionNeeded(PartyError):
    """The study is not as declared, and no file decides what is to be done."""


class WordsOfAnother(PartyError):
    """The declared words are of no study of the declared name here."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """Changes that make a study as declared, and what ``waits`` to be possible.

    ``digest`` is the study's; None before its proposal.
    """

    digest: str | None
    changes: tuple[Change, ...] = ()
    waits: tuple[str, ...] = ()


def find_study(
    declared: DeclaredStudy, studies: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Returns the declared study's document; None if there is none yet. Raises WordsOfAnother, DecisionNeeded."""
    named = [study for study in studies if study["run"] == declared.run]
    if declared.words:
        found = [study for study in studies if study["words"] == declared.words]
        if found and found[0]["run"] == declared.run:
            return found[0]
        if found or named:
            raise WordsOfAnother(
                f"THE WORDS ARE NOT THOSE OF {declared.run} HERE, and nothing was done. Other words mean another "
                "budget, other columns or other servers. Expected the words that all three operators read out: compare "
                "them again (`syncret study show`), and ask whether it was the other operator who read them to you"
            )
        return None
    if len(named) > 1:
        text = f"{len(named)} studies here are called {declared.run}; expected the words of one in the file"
        raise DecisionNeeded(text)
    return named[0] if named else None


def check_same(declared: DeclaredStudy, study: Mapping[str, Any]) -> None:
    """Compares the declared configuration with that of the ``study``. Raises DecisionNeeded, ConfigError."""
    theirs = config_from_dict(parse_toml(study["config"]), source="the study", base=Path())
    if found := _differences(declared, theirs):
        raise DecisionNeeded(
            f"{declared.config} is not the study {declared.run} that is {study['state']} here; expected a new run.id "
            f"for another study, since this one stays as it is: {'; '.join(found)}"
        )


def proposed_before(declared: DeclaredStudy) -> Path | None:
    """Returns the configuration with servers that a former attempt has made; None if there is none.

    Raises DecisionNeeded if it is of another study; ConfigError, StoreError.
    """
    if declared.config is None or not (made := declared.out / declared.config.name).exists():
        return None
    if found := _differences(declared, load_config(made)):
        raise DecisionNeeded(
            f"{made} is of another study than {declared.config}; expected another folder (out) for this one: "
            f"{'; '.join(found)}"
        )
    return made


def _differences(declared: DeclaredStudy, theirs: Config) -> list[str]:
    """Returns the first differences of a configuration from the declared one, but for the servers' cards."""
    if declared.config is None:
        return []
    ours = bound_config(declared.config)
    left_out = _servers_keys(ours)
    return [
        f"{item.key} is {item.ours or 'nothing'} in the file, {item.theirs or 'nothing'} in the study"
        for item in differences(ours.agreed(), theirs.agreed())
        if not item.key.startswith(left_out)
    ][:_SHOWN]


def bound_config(path: Path) -> Config:
    """Returns a configuration as a proposal would have it, with the digests of the files that it names."""
    with disk_errors(path, "read"):
        text = path.read_text(encoding="utf-8")
    return config_from_dict(parse_toml(bound_text(text, path)), source=str(path), base=path.parent)


def _servers_keys(config: Config) -> tuple[str, ...]:
    """Returns the keys that servers' cards add to a configuration without servers."""
    if config.parties:
        return ()
    section = config.federation
    if section is not None:
        return (f"{section.KEY}.server", f"{section.KEY}.key") if section.key is None else ()
    return ("party",)


def plan(
    declared: DeclaredStudy,
    study: Mapping[str, Any] | None,
    given: Mapping[str, Any] | None,
    *,
    server: str,
    four_eyes: str = "",
) -> StudyPlan:
    """Returns what makes the ``study`` at ``server`` as declared. Raises DecisionNeeded.

    ``given`` are the commands that this server's operator has given to the study's process; None if none answers.
    ``four_eyes`` is the operator's name in the history where two have to approve; "" where one does.
    """
    if study is None:
        if declared.config is None or declared.words:
            return StudyPlan(None, waits=(f"{declared.run} is not known here yet",))
        return StudyPlan(None, (Change("proposal", "none", str(declared.config)),))
    if not declared.words:
        if study["state"] in (StudyState.FAILED, StudyState.CANCELLED):
            raise DecisionNeeded(_ended_text(study))
        return StudyPlan(study["digest"])
    return _transition(declared, study, given, server=server, four_eyes=four_eyes)


def _ended_text(study: Mapping[str, Any]) -> str:
    again = (
        "expected a decision of all three: syncret study approve, or cancel"
        if study["state"] == StudyState.FAILED
        else "that is for good; expected a new run.id"
    )
    return f"{study['run']} is {study['state']} ({study['reason']}): {again}"


def _transition(
    declared: DeclaredStudy,
    study: Mapping[str, Any],
    given: Mapping[str, Any] | None,
    *,
    server: str,
    four_eyes: str,
) -> StudyPlan:
    state, digest = StudyState(study["state"]), study["digest"]
    if declared.state is Wanted.CANCELLED:
        if state is StudyState.FINISHED:
            raise DecisionNeeded(f"{declared.run} is finished; expected one that is not over")
        end = Change("state", state, StudyState.CANCELLED, ("cancel", {"reason": declared.reason}))
        return StudyPlan(digest, () if state is StudyState.CANCELLED else (end,))
    if state in (StudyState.FAILED, StudyState.CANCELLED):
        raise DecisionNeeded(_ended_text(study))
    changes, waits = list[Change](), list[str]()
    if state is StudyState.PROPOSED:
        approval = ("approve", {"digest": declared.words})
        first = study["approved_first"] if four_eyes else None
        alone = bool(four_eyes) and first in (None, four_eyes)
        if first is None or not alone:
            after = "by one of two" if alone else "yes"
            changes.append(Change(f"approved by {server}", "no", after, approval))
        if alone:
            who = first or four_eyes
            waits.append(f"a second approver is needed at {server}, beside {who}")
    orders = [] if state in ENDED else _orders(declared, given or {})
    if orders and (state not in ACTIVE or given is None):
        waits += [f"{each.what} is asked once the study runs" for each in orders]
    else:
        changes += orders
    return StudyPlan(digest, tuple(changes), tuple(waits))


def _orders(declared: DeclaredStudy, given: Mapping[str, Any]) -> list[Change]:
    """Returns the commands to the study's process that the declaration has and that were not given yet."""
    orders = {Wanted.CLOSED: ("closing", "close"), Wanted.FINISHED: ("finishing", "finish")}
    found = []
    if declared.state in orders:
        what, order = orders[declared.state]
        if not given.get(order):
            found.append(Change(what, "not asked", "asked", (order, {})))
    revoked = given.get("revoked", ())
    found += [
        Change(f"turning {owner} away", "not asked", "asked", ("revoke", {"owner": owner}))
        for owner in declared.revoked
        if owner not in revoked
    ]
    return found
