"""Lifetime privacy budgets of the people in a data owner's tables, across runs and methods, in one file of the owner.

``OwnerBudget`` is the file, and ``BudgetAccount`` combines it with a table and a release; it is charged before anything
of the table is sent, and `charge_state` has the states of a charge. The first release of a population sets its lifetime
limit; only ``set_limit`` changes it. A submission to a configuration is charged once, however often it is sent; another
submission to the same configuration is another release.

A budget belongs to people: a ``Dataset`` is the budget of one population (`parties.storage.population_budget`), and
`parties.storage.populations` says which populations pay for a table. A release without a guarantee enters with infinite
rho and epsilon; after it no finite limit covers anything.

Secret: digests and sketches of tables, which are in the file (mode 0600) only. The owner may show all the rest. Known
limits: people who are in two populations are protected by the sum of both, which is not computed; without the file, the
spent budget is forgotten, but for what servers say of submissions (``adopt``).
"""

import math
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

from mechanisms.accounting import ZCDP, rho_from_epsilon_delta
from mechanisms.errors import BudgetExceeded
from mechanisms.text_table import and_list
from parties.foundation.errors import StoreError
from parties.foundation.times import iso_time
from parties.storage import charge_state
from parties.storage.charge_state import ChargeState, IntendedRelease
from parties.storage.limit_history import LIMIT_TABLE, LimitChange, changes_of, remember_change
from parties.storage.population_budget import (
    APPROXIMATE,
    REPLACED,
    WITHDRAWN,
    Dataset,
    Release,
    ReleaseCharge,
    first_limit,
    json_number,
    left_of,
)
from parties.storage.population_mark import (
    MARK_BYTES,
    SALT_BYTES,
    empty_mark,
    make_mark,
    population_tag,
    read_mark,
)
from parties.storage.populations import (
    POPULATION_TABLES,
    TableIdentity,
    find_populations,
    new_name,
    population_names,
    remember_table,
    remember_word,
    resembled_text,
    words_of,
)
from parties.storage.shared_database import SharedDatabase
from parties.storage.table_sketch import SketchKey

_KIND = b"SYNB"
_SCHEMA = (
    """CREATE TABLE dataset (
    name TEXT PRIMARY KEY, rho_limit REAL NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL) STRICT""",
    *POPULATION_TABLES,
    LIMIT_TABLE,
    """CREATE TABLE release (
    entry INTEGER PRIMARY KEY, dataset TEXT NOT NULL, config TEXT NOT NULL, submission TEXT NOT NULL,
    run TEXT NOT NULL, method TEXT NOT NULL, rho REAL NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL,
    distance REAL NOT NULL, unit TEXT NOT NULL, charged_at REAL NOT NULL,
    UNIQUE (dataset, config, submission)) STRICT""",
    """CREATE TABLE IF NOT EXISTS returned (
    entry INTEGER PRIMARY KEY, how TEXT NOT NULL, proof TEXT NOT NULL, returned_at REAL NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS charged_as (
    entry INTEGER PRIMARY KEY, accountant TEXT NOT NULL) STRICT""",
    *charge_state.TABLES,
    """CREATE TABLE IF NOT EXISTS declined (
    config TEXT NOT NULL, submission TEXT NOT NULL, run TEXT NOT NULL, method TEXT NOT NULL, by TEXT NOT NULL,
    why TEXT NOT NULL, said_at REAL NOT NULL, PRIMARY KEY (config, submission, why)) STRICT""",
)
"""``returned`` has refunded releases, which will not take place and are not spent; ``charged_as`` those with rho of
another accountant than zCDP's, each of which implies zCDP; ``declined`` has releases that were to cost nobody anything.
Older files have none of them, and get them when they are opened.
"""
_JOIN = " and "
MARKED = "told-"
"""Start of the name of a population that this file knows by a mark alone."""
NOTHING_SENT = "nothing was sent"
"""Truth about a release that a limit does not cover, unless its program says otherwise."""


@dataclass(frozen=True, slots=True)
class DeclinedRelease:
    """A release that was charged to nobody, by the person ``by``, for the reason ``why``."""

    config: str
    run: str
    method: str
    by: str
    why: str
    at: float

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        values = asdict(self)
        del values["at"]
        return {**values, "when": iso_time(self.at)}


class OwnerBudget:
    """Budget file at ``path``. All methods may be called from any thread and process; all may raise StoreError."""

    def __init__(self, path: Path) -> None:
        """Opens or makes the file. Raises StoreError: unwritable, damaged."""
        self.path = path
        self._shared = SharedDatabase(path, _KIND, _SCHEMA)

    def charge(
        self,
        source: TableIdentity,
        release: Release,
        submission: str,
        *,
        replaces: Sequence[str] = (),
        refused: str = NOTHING_SENT,
    ) -> str:
        """Charges ``release``, durably, unless this ``submission`` was charged already; returns the population's name.

        A table that resembles tables of several populations is charged to each, and the names are joined. The charge
        replaces those of the same population for the submissions that it ``replaces``, of which the servers count only
        one. Raises BudgetExceeded, which says what was ``refused``, and charges nothing, if a limit does not cover it;
        StoreError if nobody can tell
        whose table it is, or the submission was charged with another epsilon or delta.
        """
        return self.charge_together(
            source, [(release, submission)], whole=release, replaces=replaces, refused=refused
        )

    def charge_together(
        self,
        source: TableIdentity,
        releases: Sequence[tuple[Release, str]],
        *,
        whole: Release,
        replaces: Sequence[str] = (),
        refused: str = NOTHING_SENT,
    ) -> str:
        """Charges several releases of one table, each with its submission, as ``charge`` does: all of them or none.

        ``whole`` is what they are together, by which a new population's limit is set.
        """
        with self._shared.transaction() as db:
            names = find_populations(db, source, self.path)
            resembled = resembled_text(db, source)
            names = names or [_begin(db, source, whole)]
            for release, submission in releases:
                fresh = False
                for name in names:
                    dataset = _load(db, name) or _begin_named(db, name, whole)
                    remember_table(db, name, source)
                    if not self._paid(dataset, release, submission):
                        for former in replaces:
                            _refund(db, release.config, former, REPLACED, dataset=name)
                        self._require(_load(db, name) or dataset, release, refused)
                        _insert(db, name, release, submission)
                        fresh = True
                    charge_state.drop(db, name, release.config)
                if fresh:
                    remember_word(db, source, run=release.run, resembled=resembled)
        return _JOIN.join(names)

    def adopt(self, source: TableIdentity, release: Release, submission: str, *, sure: bool) -> str:
        """Charges a release that took place, as servers say, whatever the limit; returns the populations' names, if so.

        That is for a budget that was put back from an older copy. A charge that two servers have returned is charged
        again only if the answer is ``sure``: of two servers. Raises StoreError as ``charge`` does.
        """
        with self._shared.transaction() as db:
            back = _to_adopt(db, release.config, submission, sure=sure)
            if back is None:
                return ""
            names = back or find_populations(db, source, self.path)
            names = names or [_begin(db, source, release)]
            for name in names:
                remember_table(db, name, source)
                _insert(db, name, release, submission)
        return _JOIN.join(names)

    def lacks(self, config: str, submission: str, *, sure: bool) -> bool:
        """Returns true if ``adopt`` would charge this submission."""
        with self._shared.reading() as db:
            return _to_adopt(db, config, submission, sure=sure) is not None

    def adopt_earlier(
        self,
        release: Release,
        submission: str,
        source: TableIdentity,
        *,
        sure: bool,
        of_source: bool,
        mark: str = "",
    ) -> str:
        """Charges a release of an earlier study, of which no table is at hand; returns the populations' names, if so.

        With ``of_source``, ``source`` is the earlier table, by its owner's word. Otherwise it is another table of this
        owner. If a key of this budget reads the ``mark`` of the release, the marked population pays, under a name of
        its own if this file does not have it. Else the table's populations pay if there are no others. Raises
        StoreError if there are: nobody can tell whose the earlier table was.
        """
        with self._shared.transaction() as db:
            back = _to_adopt(db, release.config, submission, sure=sure)
            if back is None:
                return ""
            marked = (
                None
                if back or of_source
                else self._marked(db, release.config, mark=mark, source=source)
            )
            if marked is not None:
                if _load(db, marked) is None:
                    # Without a table: nobody can tell whether the one at hand is of these people.
                    _begin_named(db, marked, release)
                _insert(db, marked, release, submission)
                return marked
            names = back or find_populations(db, source, self.path)
            others = sorted(set(population_names(db)) - set(names))
            if others and not (back or of_source):
                raise StoreError(
                    self.path,
                    f"lacks run {release.run}, configuration {release.config[:12]}, which servers have released with "
                    f"your key, and has several populations ({and_list(sorted({*names, *others}))}). Expected, before "
                    f"anything else: syncret budget reconcile CONFIG --run {release.run} with --population NAME, whose "
                    "table that run had, or --new-population NAME",
                )
            names = names or [_begin(db, source, release)]
            for name in names:
                if not of_source:
                    remember_table(db, name, source)
                _insert(db, name, release, submission)
            if of_source:
                remember_word(db, source, run=release.run, resembled="")
        return _JOIN.join(names)

    def reads_mark(self, config: str, mark: str) -> bool:
        """Returns true if this budget's key has made the mark of a release of the study ``config``."""
        key = SketchKey.of_existing(self.path)
        return key is not None and read_mark(key, config, mark) is not None

    def _marked(
        self, db: sqlite3.Connection, config: str, *, mark: str, source: TableIdentity
    ) -> str | None:
        """Returns the name of the population that a mark is of; None if this budget's key does not read it.

        For a population that this file does not have, that is the name that the table ``source`` would get, if the mark
        is of that name, else one made of the mark. Other people's table may have the same file name.
        """
        key = SketchKey.of_existing(self.path)
        tag = None if key is None else read_mark(key, config, mark)
        if key is None or tag is None:
            return None
        names = population_names(db)
        found = next((name for name in names if population_tag(key, name) == tag), None)
        if found is not None:
            return found
        fresh = new_name(db, source)
        return fresh if population_tag(key, fresh) == tag else f"{MARKED}{tag.hex()}"

    def populations(self, source: TableIdentity) -> list[str]:
        """Returns the names of the populations that pay for a table, also that of a new one. Raises StoreError."""
        with self._shared.reading() as db:
            return find_populations(db, source, self.path) or [new_name(db, source)]

    def intend(self, source: TableIdentity, release: Release, submission: str | None = None) -> str:
        """Records that ``release`` is about to be charged, which costs nothing; returns the name as ``charge`` does.

        A ``submission`` that is charged already is not recorded. Raises as ``charge``.
        """
        with self._shared.transaction() as db:
            names = find_populations(db, source, self.path) or [new_name(db, source)]
            for name in names:
                dataset = _load(db, name)
                if submission is not None and dataset and self._paid(dataset, release, submission):
                    continue
                if dataset is not None:
                    self._require(dataset, release)
                facts = (release.config, release.run, release.method, release.rho)
                charge_state.intend(db, IntendedRelease(name, *facts, time.time()))
        return _JOIN.join(names)

    def drop(self, dataset: str, config: str) -> None:
        """Drops an intended release of the populations that ``intend`` has named, if there is one."""
        with self._shared.transaction() as db:
            for name in dataset.split(_JOIN):
                charge_state.drop(db, name, config)

    def release(self, config: str, submission: str) -> None:
        """Records that an opening with a charged submission can no longer be ruled out: ``give_back`` leaves it."""
        with self._shared.transaction() as db:
            charge_state.release(db, config, submission)

    def note_answered(self, config: str, submission: str, charges: int, *, since: int) -> int:
        """Records the number of ``charges`` of a submission's ledger, before an answer that they pay for.

        Returns the number before, and records nothing if that is more than ``since``, the caller's last one.
        """
        with self._shared.transaction() as db:
            before = charge_state.answered(db, config, submission)
            if before <= since:
                charge_state.note_answered(db, config, submission, charges=charges)
            return before

    def answered(self, config: str, submission: str) -> int:
        """Returns the largest number of charges that ``note_answered`` has recorded for a submission, 0 without one."""
        with self._shared.reading() as db:
            return charge_state.answered(db, config, submission)

    def state(self, config: str, submission: str) -> ChargeState | None:
        """Returns the state of a submission's charge, None without one."""
        query = "SELECT DISTINCT dataset FROM release WHERE config = ? AND submission = ?"
        with self._shared.transaction() as db:
            names = [row[0] for row in db.execute(query, (config, submission))]
            runs = [run for name in names for run in _runs(db, name)]
        key = (config, submission)
        return next((r.state for r in runs if (r.release.config, r.submission) == key), None)

    def intended(self) -> list[IntendedRelease]:
        """Returns the releases that are about to be charged, or whose program was killed before."""
        with self._shared.reading() as db:
            return list(charge_state.intended(db))

    def give_back(
        self, config: str, submissions: Iterable[str], proof: str, *, how: str = WITHDRAWN
    ) -> list[str]:
        """Refunds the charges for ``submissions`` to ``config``; returns the populations concerned. May be repeated.

        ``proof`` is the servers' signed statement that nothing of them was or will be counted or, by ``how``, opened.
        Released ones stay. All or nothing, durable on return.
        """
        with self._shared.transaction() as db:
            found = [_refund(db, config, item, how, proof=proof) for item in submissions]
        return sorted({name for names in found for name in names})

    def restore(self, config: str, submission: str, replaced_by: Sequence[str]) -> None:
        """Moves a charge back to a ``submission`` that could not be replaced any more; durable on return.

        It had moved to one of ``replaced_by``. May be repeated; a charge that did not move stays where it is.
        """
        query = (
            "SELECT entry, dataset FROM release JOIN returned USING (entry) "
            "WHERE config = ? AND submission = ? AND how = ?"
        )
        with self._shared.transaction() as db:
            for entry, name in db.execute(query, (config, submission, REPLACED)).fetchall():
                back = [_refund(db, config, one, REPLACED, dataset=name) for one in replaced_by]
                if any(back):
                    db.execute("DELETE FROM returned WHERE entry = ?", (entry,))

    def _paid(self, dataset: Dataset, release: Release, submission: str) -> bool:
        """Returns true if this submission is charged. Raises StoreError if it was for another epsilon or delta."""
        key = (release.config, submission)
        runs = (run for run in dataset.runs if (run.release.config, run.submission) == key)
        if (paid := next(runs, None)) is None:
            return False
        was = paid.release
        if (was.epsilon, was.delta) != (release.epsilon, release.delta):
            raise StoreError(
                self.path,
                f"has this participation in run {release.run} with epsilon {was.epsilon:g}, delta {was.delta:g}; now "
                f"it is for epsilon {release.epsilon:g}, delta {release.delta:g}. Expected the epsilon that was "
                "charged, or another folder for the run, which is charged anew",
            )
        return paid.returned is None

    def _require(self, dataset: Dataset, release: Release, refused: str = NOTHING_SENT) -> None:
        if dataset.covers(release):
            return
        if dataset.not_private:
            raise BudgetExceeded(
                _without_limit_text(dataset, release, where=self.path, refused=refused)
            )
        limit = dataset.limit_with(release)
        spending, more = dataset.spending, release.run
        last = spending[-1] if spending else None
        problem = f"; last by run {last.release.run} ({last.when})" if last else ""
        again = next((run for run in spending if run.release.config == release.config), None)
        if again is not None:
            more += (
                f", with this very configuration, took a submission of it already ({again.when}), which its state file "
                f"sends again for nothing; another one"
            )
        together, delta = dataset.epsilon_with(release), dataset.delta
        if math.isinf(together):
            # Deltas of releases that have no finer account add up.
            releases = [*(run.release for run in dataset.spending), release]
            alone = [item.delta for item in releases if item.accountant == APPROXIMATE]
            delta = sum(alone) + (dataset.delta if len(alone) < len(releases) else 0.0)
        wider = replace(dataset, delta=delta).epsilon_with(release)
        sum_text = (
            f"epsilon {together:.4g}" if math.isfinite(together) else "more than delta covers"
        )
        enough = math.ceil(wider * 100 + 1e-6) / 100 if math.isfinite(wider) else wider
        raise BudgetExceeded(
            f"the budget of population {dataset.name} ({self.path}) does not cover this release, and {refused}: "
            f"{float(dataset.spent):.6g} of rho {limit:.6g} (epsilon {dataset.epsilon:g}, delta "
            f"{dataset.delta:g}) is spent{problem}. Run {more} costs rho {release.rho:.6g}; together that is "
            f"{sum_text}. Expected a run that fits, or, if the people in the table are to be protected by no more "
            f"than that: syncret budget set {dataset.name} --epsilon {enough:g} --delta {delta:g} --why REASON"
        )

    def quote(
        self, source: TableIdentity, release: Release, submission: str | None = None
    ) -> "BudgetQuote":
        """Returns the effect of ``charge`` without a charge. Raises StoreError as ``charge`` does."""
        return BudgetQuote.of(self._paying(source), source, release, submission)

    def require(self, source: TableIdentity, release: Release) -> None:
        """Raises BudgetExceeded if ``charge`` would, without a charge. Raises StoreError as ``charge`` does."""
        for dataset in self._paying(source):
            self._require(dataset, release)

    def _paying(self, source: TableIdentity) -> list[Dataset]:
        with self._shared.reading() as db:
            found = [_load(db, name) for name in find_populations(db, source, self.path)]
        return [dataset for dataset in found if dataset is not None]

    def dataset(self, name: str) -> Dataset:
        """Returns the budget of population ``name``. Raises StoreError if there is none."""
        with self._shared.transaction() as db:
            return self._named(db, name)

    def _named(self, db: sqlite3.Connection, name: str) -> Dataset:
        found = _load(db, name)
        if found is None:
            names = ", ".join(population_names(db)) or "none yet: the first release makes one"
            raise StoreError(self.path, f"has no population {name!r}; expected one of: {names}")
        return found

    def decline(self, release: Release, submission: str, *, by: str, why: str) -> None:
        """Records that a release is charged to nobody: who said so, when and why. May be repeated."""
        values = (release.config, submission, release.run, release.method, by, why, time.time())
        with self._shared.transaction() as db:
            db.execute("INSERT OR IGNORE INTO declined VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def declined(self) -> list[DeclinedRelease]:
        """Returns the releases that were charged to nobody, oldest first."""
        query = "SELECT config, run, method, by, why, said_at FROM declined ORDER BY said_at"
        with self._shared.reading() as db:
            return [DeclinedRelease(*row) for row in db.execute(query)]

    def set_limit(
        self, name: str, epsilon: float, delta: float, *, by: str = "", why: str = ""
    ) -> tuple[Dataset, Dataset]:
        """Sets the limit on all releases of ``name`` together to (epsilon, delta); returns the old and new budget.

        An infinite epsilon is no limit. The change is recorded, with its author and reason. Raises StoreError for an
        unknown population, ValueError for an invalid epsilon or delta.
        """
        rho = math.inf if epsilon == math.inf else rho_from_epsilon_delta(epsilon, delta)
        with self._shared.transaction() as db:
            before = self._named(db, name)
            change = LimitChange(
                (before.epsilon, before.delta), (epsilon, delta), by, why, time.time()
            )
            remember_change(db, name, change)
            db.execute(
                "UPDATE dataset SET rho_limit = ?, epsilon = ?, delta = ? WHERE name = ?",
                (rho, epsilon, delta, name),
            )
            return before, self._named(db, name)

    def datasets(self) -> list[Dataset]:
        """Returns the budgets of all populations, by name."""
        with self._shared.transaction() as db:
            found = [_load(db, name) for name in population_names(db)]
        return [dataset for dataset in found if dataset is not None]


@dataclass(frozen=True, slots=True)
class BudgetQuote:
    """Cost of a release for population ``dataset``: ``rho`` of the ``left`` of its ``limit``; 0 if charged already.

    ``new`` is true for an unknown population, whose first release sets the limit. If several pay, the figures are of
    the one that covers it least.
    """

    dataset: str
    rho: float
    spent: float
    limit: float
    left: float
    new: bool

    @classmethod
    def of(
        cls,
        paying: Sequence[Dataset],
        source: TableIdentity,
        release: Release,
        submission: str | None,
    ) -> "BudgetQuote":
        """Returns the quote for the populations that pay, none for a new one."""
        if not paying:
            return cls(source.stem, release.rho, 0.0, release.rho, release.rho, True)
        quotes = [cls._of(dataset, release, submission) for dataset in paying]
        tightest = min(quotes, key=lambda quote: (quote.covered, quote.left - quote.rho))
        return replace(tightest, dataset=_JOIN.join(dataset.name for dataset in paying))

    @classmethod
    def _of(cls, dataset: Dataset, release: Release, submission: str | None) -> "BudgetQuote":
        paid = submission is not None and dataset.has(release.config, submission)
        more = () if paid else (release,)
        limit = dataset.limit_with(*more)
        spent = math.inf if dataset.not_private else float(dataset.spent)
        rho = 0.0 if paid else release.rho
        return cls(dataset.name, rho, spent, limit, left_of(dataset, limit), False)

    @property
    def covered(self) -> bool:
        """True if the limit covers the cost."""
        if math.isinf(self.limit) or math.isinf(self.rho):
            return True
        return self.rho == 0 or (
            math.isfinite(self.spent)
            and Fraction(self.spent) + Fraction(self.rho) <= Fraction(self.limit)
        )

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        figures = {
            name: json_number(getattr(self, name)) for name in ("rho", "spent", "limit", "left")
        }
        return {**asdict(self), **figures, "covered": self.covered}


@dataclass(frozen=True, slots=True)
class BudgetAccount:
    """Account of one table for one run: the cost of participation and the budget that pays for it."""

    budget: OwnerBudget
    source: TableIdentity
    release: Release

    def spend(self, submission: str, replaces: Sequence[str] = ()) -> str:
        """Charges the release for ``submission``, which distinguishes participations; see ``OwnerBudget.charge``."""
        return self.budget.charge(self.source, self.release, submission, replaces=replaces)

    def adopt(self, submission: str, *, sure: bool) -> str:
        """See ``OwnerBudget.adopt``."""
        return self.budget.adopt(self.source, self.release, submission, sure=sure)

    def mark(self, salt: bytes | None = None) -> str:
        """Returns a mark of the population that pays; one that says nothing where there are several, or no key.

        To others both look alike. The ``salt`` is random unless it is given.
        """
        names, key = self.budget.populations(self.source), SketchKey.of_existing(self.budget.path)
        salt = salt or secrets.token_bytes(SALT_BYTES)
        if key is None:
            return secrets.token_hex(MARK_BYTES)
        if len(names) != 1:
            return empty_mark(key, self.release.config, salt=salt)
        return make_mark(key, self.release.config, names[0], salt=salt)

    def is_marked(self, mark: str) -> bool:
        """Returns true if a mark is of the population that pays, in this study."""
        names, key = self.budget.populations(self.source), SketchKey.of_existing(self.budget.path)
        tag = None if key is None else read_mark(key, self.release.config, mark)
        return key is not None and [tag] == [population_tag(key, name) for name in names]

    def require(self) -> None:
        """See ``OwnerBudget.require``."""
        self.budget.require(self.source, self.release)

    def intend(self, submission: str | None = None) -> str:
        """See ``OwnerBudget.intend``."""
        return self.budget.intend(self.source, self.release, submission)

    def quote(self, submission: str | None = None) -> BudgetQuote:
        """Returns the cost of ``spend``; see ``OwnerBudget.quote``."""
        return self.budget.quote(self.source, self.release, submission)


def _to_adopt(
    db: sqlite3.Connection, config: str, submission: str, *, sure: bool
) -> list[str] | None:
    """Returns the populations whose refunded charge is entered again, [] for a charge that is new; None for neither."""
    query = "SELECT entry, dataset FROM release WHERE config = ? AND submission = ?"
    returned = "SELECT how FROM returned WHERE entry = ?"
    entries = db.execute(query, (config, submission)).fetchall()
    back = [name for entry, name in entries if db.execute(returned, (entry,)).fetchone()]
    return back if not entries or (sure and len(back) == len(entries)) else None


def _without_limit_text(dataset: Dataset, release: Release, *, where: Path, refused: str) -> str:
    last = dataset.not_private[-1]
    return (
        f"the budget of population {dataset.name} ({where}) does not cover this release, and {refused}: run "
        f"{last.release.run} ({last.when}) was not private, so that with run {release.run} or without it no epsilon "
        f"holds. Expected another population, or, if that is to be so: syncret budget set {dataset.name} --unlimited "
        "--why REASON"
    )


def _begin(db: sqlite3.Connection, source: TableIdentity, release: Release) -> str:
    """Makes a population for a table that is of none; returns its name."""
    return _begin_named(db, new_name(db, source), release).name


def _begin_named(db: sqlite3.Connection, name: str, release: Release) -> Dataset:
    """Makes a population whose limit its first release sets: the owner agreed to that one."""
    values = (name, first_limit(release), release.epsilon, release.delta)
    db.execute("INSERT INTO dataset VALUES (?, ?, ?, ?)", values)
    return Dataset(*values, ())


def _load(db: sqlite3.Connection, name: str) -> Dataset | None:
    query = "SELECT rho_limit, epsilon, delta FROM dataset WHERE name = ?"
    row = db.execute(query, (name,)).fetchone()
    if row is None:
        return None
    rho_limit, epsilon, delta = row
    changes, words = tuple(changes_of(db, name)), tuple(words_of(db, name))
    return Dataset(name, rho_limit, epsilon, delta, tuple(_runs(db, name)), changes, words)


def _runs(db: sqlite3.Connection, name: str) -> Iterator[ReleaseCharge]:
    accountant = "(SELECT accountant FROM charged_as WHERE charged_as.entry = release.entry)"
    columns = "config, run, method, rho, epsilon, delta, distance, unit"
    columns += f", coalesce({accountant}, '{ZCDP.name}'), submission, charged_at"
    how = "(SELECT how FROM returned WHERE returned.entry = release.entry)"
    released = "entry IN (SELECT entry FROM released)"
    query = f"SELECT {columns}, {how}, {released} FROM release WHERE dataset = ? ORDER BY entry"  # noqa: S608
    for *release, submission, at, returned, is_released in db.execute(query, (name,)):
        yield ReleaseCharge(Release(*release), submission, at, returned, bool(is_released))


def _refund(
    db: sqlite3.Connection,
    config: str,
    submission: str,
    how: str,
    *,
    proof: str = "",
    dataset: str | None = None,
) -> list[str]:
    """Refunds the charges for a submission, of population ``dataset`` or of any, that are not released.

    Returns the populations.
    """
    query = "SELECT entry, dataset FROM release WHERE config = ? AND submission = ?"
    rows = [row for row in db.execute(query, (config, submission)) if dataset in (None, row[1])]
    rows = [row for row in rows if not charge_state.is_released(db, row[0])]
    db.executemany(
        "INSERT INTO returned VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET proof = ?3 "
        "WHERE proof = ''",
        [(entry, how, proof, time.time()) for entry, _ in rows],
    )
    return [name for _, name in rows]


def _insert(db: sqlite3.Connection, name: str, release: Release, submission: str) -> None:
    # A refunded submission that is sent again is spent again.
    again = "SELECT entry FROM release WHERE dataset = ? AND config = ? AND submission = ?"
    if (row := db.execute(again, (name, release.config, submission)).fetchone()) is not None:
        db.execute("DELETE FROM returned WHERE entry = ?", row)
        return
    values = {**asdict(release), "dataset": name, "submission": submission, "at": time.time()}
    found = db.execute(
        "INSERT INTO release VALUES (NULL, :dataset, :config, :submission, :run, :method, :rho, :epsilon, :delta, "
        ":distance, :unit, :at)",
        values,
    )
    if release.accountant != ZCDP.name:
        db.execute("INSERT INTO charged_as VALUES (?, ?)", (found.lastrowid, release.accountant))
