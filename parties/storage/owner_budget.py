"""Lifetime privacy budgets of a data owner's tables, across runs and methods, in one file of the owner.

``OwnerBudget`` is the file, ``TableIdentity`` identifies a table, ``Release`` bounds a run's release, and
``BudgetAccount`` combines the three; it is charged before anything of the table is sent, and `charge_state` has the
states of a charge. The first release of a dataset sets its lifetime limit; only ``set_limit`` changes it. A submission
to a configuration is charged once, however often it is sent; another submission to the same configuration is another
release.

A dataset is recognised by its table's path or content: a copy elsewhere and an edited file are the same dataset. A name
given by the owner takes precedence, unless the table's content is known under another one.

Secret: digests of tables, which are in the file (mode 0600) only. The owner may show all the rest. Costs are in rho of
zCDP. Releases that are each at most a Gaussian of their rho (`mechanisms.gaussian_privacy`) together are one Gaussian,
with a larger limit, also if later ones were chosen by results of earlier ones. Sums are compared with the limit as
exact rationals. Known limits: people who are in two datasets are protected by the sum of both, which is not computed; a
table that was edited and moved at once is a new one; without the file, the spent budget is forgotten.
"""

import contextlib
import gzip
import hashlib
import math
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path

from mechanisms.accounting import ZCDP, epsilon_from_rho, rho_from_epsilon_delta, round_up
from mechanisms.errors import BudgetExceeded
from mechanisms.gaussian_privacy import GAUSSIAN, gaussian_budget, gaussian_epsilon
from parties.config.limits import check_name
from parties.foundation.errors import StoreError
from parties.storage import charge_state
from parties.storage.charge_state import ChargeState, IntendedRelease
from parties.storage.files import disk_errors
from parties.storage.shared_database import SharedDatabase

_KIND = b"SYNB"
_SCHEMA = (
    """CREATE TABLE dataset (
    name TEXT PRIMARY KEY, rho_limit REAL NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL) STRICT""",
    """CREATE TABLE known (
    dataset TEXT NOT NULL, kind TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, value, dataset)) STRICT""",
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
)
"""``returned`` has refunded releases, which will not take place and are not spent; ``charged_as`` those with rho of
another accountant than zCDP's, each of which implies zCDP. Older files have neither, and get both when they are opened.
"""
_PATH, _CONTENT = "path", "content"
ROW = "row"
"""Default privacy unit: presence of a row in the table."""
ROW_OF_KNOWN = "row of a table whose size is known"
"""Privacy unit of FLAIM with declared sizes: content of a row, in a table with a public number of rows."""
WITHDRAWN, REPLACED, UNOPENED = "withdrawn", "replaced", "unopened"
"""Reasons for a refund: servers have signed that nothing was counted, or that nothing of the study was opened; or
another submission of the same run replaces it.
"""
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_STEM = 56
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Release:
    """Upper bound on the release of one run of configuration ``config`` about one table: ``rho``, for (epsilon, delta).

    Attributes:
        distance: Bound on the statistical distance of the samples from the distribution that rho is for.
        unit: Privacy unit, the difference between neighbouring tables.
        accountant: Name of the accountant of rho; rho is a cost in zCDP in any case.
    """

    config: str
    run: str
    method: str
    rho: float
    epsilon: float
    delta: float
    distance: float = 0.0
    unit: str = ROW
    accountant: str = ZCDP.name


@dataclass(frozen=True, slots=True)
class ReleaseCharge:
    """A charged release, its ``submission``, and its time in seconds since the epoch.

    ``returned`` is the reason of a refund, after which it is not spent: WITHDRAWN, REPLACED or UNOPENED. A charge that
    is ``released`` is never refunded.
    """

    release: Release
    submission: str
    at: float
    returned: str | None = None
    released: bool = False

    @property
    def state(self) -> ChargeState:
        """State of the charge."""
        if self.returned is not None:
            return ChargeState.RETURNED
        return ChargeState.RELEASED if self.released else ChargeState.CHARGED

    @property
    def when(self) -> str:
        """Time of the charge in ISO 8601, UTC."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.at))

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        release = self.release
        return {
            "config": release.config,
            "run": release.run,
            "method": release.method,
            "rho": release.rho,
            "when": self.when,
            "epsilon": release.epsilon,
            "delta": release.delta,
            "unit": release.unit,
            "accountant": release.accountant,
            "returned": self.returned,
            "state": self.state,
        }


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset: its lifetime limit, as rho and as (``epsilon``, ``delta``), and all of its charges.

    ``rho_limit`` is in zCDP; see ``limit_with``.
    """

    name: str
    rho_limit: float
    epsilon: float
    delta: float
    runs: tuple[ReleaseCharge, ...]

    @property
    def spent(self) -> Fraction:
        """Exact sum of the rho of all spent releases."""
        return sum((Fraction(run.release.rho) for run in self.spending), Fraction(0))

    @property
    def spending(self) -> tuple[ReleaseCharge, ...]:
        """Releases that are not refunded."""
        return tuple(run for run in self.runs if run.returned is None)

    def limit_with(self, *more: Release) -> float:
        """Returns the limit on the rho of all releases and ``more``: ``rho_limit``, or more if all are Gaussians."""
        releases = [*(run.release for run in self.spending), *more]
        if not _are_gaussian(releases):
            return self.rho_limit
        distance = sum(release.distance for release in releases)
        try:
            return max(self.rho_limit, gaussian_budget(self.epsilon, self.delta, distance=distance))
        except ValueError:
            return self.rho_limit

    @property
    def left(self) -> float:
        """Remaining rho."""
        return max(0.0, float(Fraction(self.limit_with()) - self.spent))

    def has(self, config: str, submission: str) -> bool:
        """Returns true if this submission to this configuration was charged."""
        key = (config, submission)
        return any((run.release.config, run.submission) == key for run in self.spending)

    def epsilon_with(self, *more: Release) -> float:
        """Returns the total epsilon of all releases and ``more``, at this limit's delta."""
        releases = [*(run.release for run in self.spending), *more]
        rho = sum((Fraction(release.rho) for release in releases), Fraction(0))
        distance = sum(release.distance for release in releases)
        if _are_gaussian(releases):
            return gaussian_epsilon(round_up(rho), self.delta, distance=distance)
        return epsilon_from_rho(round_up(rho), self.delta, distance=distance)

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {
            "name": self.name,
            "rho_limit": self.limit_with(),
            "rho_spent": float(self.spent),
            "rho_left": self.left,
            "epsilon_limit": self.epsilon,
            "epsilon_spent": self.epsilon_with(),
            "delta": self.delta,
            "runs": [run.to_dict() for run in self.runs],
        }


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """Identity of a table: the ``name`` given by its owner, if any, its ``path``, and the digest of its ``content``.

    A trial's owners have a name only. Raises ConfigError for an invalid name.
    """

    name: str | None
    path: str | None = None
    content: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("--dataset", self.name)
        elif self.path is None:
            raise ValueError("a table has a name or a path")

    @classmethod
    def of_file(cls, table: Path, name: str | None = None) -> "TableIdentity":
        """Identifies the table in a file, compressed or not. Raises StoreError if it is unreadable."""
        digest = hashlib.sha256()
        with disk_errors(table, "read"), table.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with gzip.open(raw) if packed else contextlib.nullcontext(raw) as file:
                try:
                    while chunk := file.read(_CHUNK):
                        digest.update(chunk)
                except EOFError as error:
                    raise StoreError(table, "breaks off; expected a whole file") from error
        return cls(name, str(table.resolve()), digest.hexdigest())

    @property
    def marks(self) -> list[tuple[str, str]]:
        """Path and content digest, by which the dataset is recognised."""
        marks = ((_PATH, self.path), (_CONTENT, self.content))
        return [(kind, value) for kind, value in marks if value is not None]


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
    ) -> str:
        """Charges ``release``, durably, unless this ``submission`` was charged already; returns the dataset's name.

        The charge replaces those of the same dataset for the submissions that it ``replaces``, of which the servers
        count only one. Raises BudgetExceeded, and charges nothing, if the limit does not cover it; StoreError if the
        dataset is ambiguous.
        """
        with self._shared.transaction() as db:
            name = _find_dataset(db, source, self.path) or _new_name(db, source)
            dataset = _load(db, name)
            if dataset is None:
                # The owner agreed to the first release; all others are in addition to it.
                limit = _first_limit(release)
                dataset = Dataset(name, limit, release.epsilon, release.delta, ())
                values = (name, limit, release.epsilon, release.delta)
                db.execute("INSERT INTO dataset VALUES (?, ?, ?, ?)", values)
            for kind, value in source.marks:
                db.execute("INSERT OR IGNORE INTO known VALUES (?, ?, ?)", (name, kind, value))
            if not dataset.has(release.config, submission):
                for former in replaces:
                    _refund(db, release.config, former, REPLACED, dataset=name)
                self._require(_load(db, name) or dataset, release)
                _insert(db, name, release, submission)
            charge_state.drop(db, name, release.config)
        return name

    def intend(self, source: TableIdentity, release: Release, submission: str | None = None) -> str:
        """Records that ``release`` is about to be charged, which costs nothing; returns the dataset's name.

        A ``submission`` that is charged already is not recorded. Raises as ``charge``.
        """
        with self._shared.transaction() as db:
            found = _find_dataset(db, source, self.path)
            dataset = None if found is None else _load(db, found)
            name = found or _new_name(db, source)
            if submission is not None and dataset and dataset.has(release.config, submission):
                return name
            if dataset is not None:
                self._require(dataset, release)
            facts = (release.config, release.run, release.method, release.rho)
            charge_state.intend(db, IntendedRelease(name, *facts, time.time()))
        return name

    def drop(self, dataset: str, config: str) -> None:
        """Drops an intended release, if there is one."""
        with self._shared.transaction() as db:
            charge_state.drop(db, dataset, config)

    def release(self, config: str, submission: str) -> None:
        """Records that an opening with a charged submission can no longer be ruled out: ``give_back`` leaves it."""
        with self._shared.transaction() as db:
            charge_state.release(db, config, submission)

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
        """Refunds the charges for ``submissions`` to ``config``; returns the datasets concerned. May be repeated.

        ``proof`` is the servers' signed statement that nothing of them was or will be counted or, by ``how``, opened.
        Released ones stay. All or nothing, durable on return.
        """
        with self._shared.transaction() as db:
            found = [_refund(db, config, item, how, proof=proof) for item in submissions]
        return sorted({name for names in found for name in names})

    def _require(self, dataset: Dataset, release: Release) -> None:
        limit = dataset.limit_with(release)
        if dataset.spent + Fraction(release.rho) <= Fraction(limit):
            return
        spending, more = dataset.spending, release.run
        last = spending[-1] if spending else None
        problem = f"; last by run {last.release.run} ({last.when})" if last else ""
        again = next((run for run in spending if run.release.config == release.config), None)
        if again is not None:
            more += (
                f", with this very configuration, took a submission of it already ({again.when}), which its state file "
                f"sends again for nothing; another one"
            )
        together = dataset.epsilon_with(release)
        enough = math.ceil(together * 100 + 1e-6) / 100
        raise BudgetExceeded(
            f"the budget of dataset {dataset.name} ({self.path}) does not cover this release, and nothing was sent: "
            f"{float(dataset.spent):.6g} of rho {limit:.6g} (epsilon {dataset.epsilon:g}, delta "
            f"{dataset.delta:g}) is spent{problem}. Run {more} costs rho {release.rho:.6g}; together that is epsilon "
            f"{together:.4g}. Expected a run that fits, or, if the people in the table are to be protected by no more "
            f"than that: syncret budget set {dataset.name} --epsilon {enough:g} --delta {dataset.delta:g}"
        )

    def quote(
        self, source: TableIdentity, release: Release, submission: str | None = None
    ) -> "BudgetQuote":
        """Returns the effect of ``charge`` without a charge. Raises StoreError as ``charge`` does."""
        with self._shared.reading() as db:
            name = _find_dataset(db, source, self.path)
            dataset = None if name is None else _load(db, name)
        return BudgetQuote.of(dataset, source, release, submission)

    def require(self, source: TableIdentity, release: Release) -> None:
        """Raises BudgetExceeded if ``charge`` would, without a charge. Raises StoreError as ``charge`` does."""
        with self._shared.reading() as db:
            name = _find_dataset(db, source, self.path)
            dataset = None if name is None else _load(db, name)
        if dataset is not None:
            self._require(dataset, release)

    def set_limit(self, name: str, epsilon: float, delta: float) -> tuple[Dataset, Dataset]:
        """Sets the limit on all releases of ``name`` together to (epsilon, delta); returns the old and new dataset.

        Raises StoreError for an unknown dataset, ValueError for an invalid epsilon or delta.
        """
        rho = rho_from_epsilon_delta(epsilon, delta)
        with self._shared.transaction() as db:
            before = _load(db, name)
            if before is None:
                names = ", ".join(_names(db)) or "none yet: the first release makes one"
                raise StoreError(self.path, f"has no dataset {name!r}; expected one of: {names}")
            db.execute(
                "UPDATE dataset SET rho_limit = ?, epsilon = ?, delta = ? WHERE name = ?",
                (rho, epsilon, delta, name),
            )
        return before, Dataset(name, rho, epsilon, delta, before.runs)

    def datasets(self) -> list[Dataset]:
        """Returns all datasets, by name."""
        with self._shared.transaction() as db:
            found = [_load(db, name) for name in _names(db)]
        return [dataset for dataset in found if dataset is not None]


@dataclass(frozen=True, slots=True)
class BudgetQuote:
    """Cost of a release for ``dataset``: ``rho`` of the ``left`` of its ``limit``; 0 if it is charged already.

    ``new`` is true for an unknown dataset, whose first release sets the limit.
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
        dataset: Dataset | None,
        source: TableIdentity,
        release: Release,
        submission: str | None,
    ) -> "BudgetQuote":
        """Returns the quote for a dataset, None for an unknown one."""
        if dataset is None:
            name = source.name or _stem(source)
            return cls(name, release.rho, 0.0, release.rho, release.rho, True)
        paid = submission is not None and dataset.has(release.config, submission)
        rho = 0.0 if paid else release.rho
        limit = dataset.limit_with(*() if paid else (release,))
        left = max(0.0, float(Fraction(limit) - dataset.spent))
        return cls(dataset.name, rho, float(dataset.spent), limit, left, False)

    @property
    def covered(self) -> bool:
        """True if the limit covers the cost."""
        return Fraction(self.spent) + Fraction(self.rho) <= Fraction(self.limit)

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {**asdict(self), "covered": self.covered}


@dataclass(frozen=True, slots=True)
class BudgetAccount:
    """Account of one table for one run: the cost of participation and the budget that pays for it."""

    budget: OwnerBudget
    source: TableIdentity
    release: Release

    def spend(self, submission: str, replaces: Sequence[str] = ()) -> str:
        """Charges the release for ``submission``, which distinguishes participations; see ``OwnerBudget.charge``."""
        return self.budget.charge(self.source, self.release, submission, replaces=replaces)

    def require(self) -> None:
        """See ``OwnerBudget.require``."""
        self.budget.require(self.source, self.release)

    def intend(self, submission: str | None = None) -> str:
        """See ``OwnerBudget.intend``."""
        return self.budget.intend(self.source, self.release, submission)

    def quote(self, submission: str | None = None) -> BudgetQuote:
        """Returns the cost of ``spend``; see ``OwnerBudget.quote``."""
        return self.budget.quote(self.source, self.release, submission)


def _are_gaussian(releases: Sequence[Release]) -> bool:
    return all(release.accountant == GAUSSIAN for release in releases)


def _first_limit(release: Release) -> float:
    """Returns the zCDP limit set by a dataset's first release: its cost, or less if its (epsilon, delta) allow less."""
    if release.accountant == ZCDP.name:
        return release.rho
    allowed = rho_from_epsilon_delta(release.epsilon, release.delta, distance=release.distance)
    return min(allowed, release.rho)


def _find_dataset(db: sqlite3.Connection, source: TableIdentity, where: Path) -> str | None:
    """Returns the name of a known dataset, None for an unknown one. Raises StoreError if the dataset is ambiguous."""
    found = {kind: _dataset_by_mark(db, kind, value) for kind, value in source.marks}
    of_path, of_content = found.get(_PATH, set()), found.get(_CONTENT, set())
    if source.name is not None:
        if of_content and source.name not in of_content:
            raise StoreError(
                where,
                f"knows the content of {source.path} as dataset {_quoted_names(of_content)}; expected that name, or "
                "none, after --dataset: the same rows have one budget",
            )
        return source.name
    both = of_path & of_content if of_path and of_content else of_path | of_content
    if len(both) > 1 or (not both and of_path | of_content):
        raise StoreError(
            where,
            f"knows {source.path} as dataset {_quoted_names(of_path | of_content)}, by its place and by its content; "
            "expected --dataset with one of them",
        )
    return next(iter(both), None)


def _quoted_names(names: set[str]) -> str:
    return " and ".join(sorted(names))


def _dataset_by_mark(db: sqlite3.Connection, kind: str, value: str) -> set[str]:
    rows = db.execute("SELECT dataset FROM known WHERE kind = ? AND value = ?", (kind, value))
    return {row[0] for row in rows}


def _new_name(db: sqlite3.Connection, source: TableIdentity) -> str:
    """Returns a new dataset's name: that of its file, with a number if the name is taken."""
    name = base = _stem(source)
    names, number = set(_names(db)), 1
    while name in names:
        number += 1
        name = f"{base}-{number}"
    return name


def _stem(source: TableIdentity) -> str:
    stem = Path(source.path or "").name.split(".")[0]
    return _UNFIT.sub("-", stem)[:_LONGEST_STEM].strip("-_") or "table"


def _names(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT name FROM dataset ORDER BY name")]


def _load(db: sqlite3.Connection, name: str) -> Dataset | None:
    query = "SELECT rho_limit, epsilon, delta FROM dataset WHERE name = ?"
    row = db.execute(query, (name,)).fetchone()
    if row is None:
        return None
    rho_limit, epsilon, delta = row
    return Dataset(name, rho_limit, epsilon, delta, tuple(_runs(db, name)))


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
    """Refunds the charges for a submission, of ``dataset`` or of any, that are not released; returns the datasets."""
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
