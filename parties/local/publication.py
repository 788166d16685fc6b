"""Publication of a run on one machine: what leaves the machine is a release, and enters a budget of the people in it.

A run itself is free: its owner holds the whole table. ``LocalPublication`` charges the population of the table when a
bundle is made of the run, by the table's rows or its owner's word, and once for a run, however many bundles are made.
A table is held against the record of the run (`parties.local.recorded_tables`).
To charge nothing takes a reason in so many words, which the bundle and the budget's file keep. Secret: the table, if it
is given. Known limits: whoever copies files out of the run's folder is not asked; a wrong word is trusted.
"""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mechanisms.text_table import and_list
from parties.config import Config
from parties.federation.client import silo_release
from parties.foundation.errors import ConfigError
from parties.local.recorded_tables import check_recorded
from parties.methods.federated_report import SILOS_TRIAL_TRUST
from parties.methods.flaim.settings import flaim_release
from parties.methods.registry import plan_of
from parties.mpc.planning.budget import distaim_release
from parties.report.model import TRIAL_TRUST
from parties.report.privacy_text import is_private
from parties.session.owner import Table
from parties.session.result_digests import MODEL_FOLDER, TABLE_FILE, model_digest, table_digest
from parties.session.study import Study
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import OwnerBudget
from parties.storage.population_budget import Release
from parties.storage.populations import OwnersWord, TableIdentity, this_user
from parties.storage.table_sketch import KeyedSketch, SketchKey, make_sketch
from parties.storage.user_paths import budget_path

_LABEL = b"syncret local run 1\n"
_EXACT_LABEL = b"syncret local run with real figures 1\n"
_MARK = "run.json"
_NOTHING_PUBLISHED = "nothing was published"
_SILOS_TRANSCRIPT = Path("transcripts") / "server.jsonl"


@dataclass(frozen=True, slots=True)
class PublishersWord:
    """Statement of a bundle's maker on the people in a local run's table.

    Attributes:
        table: The table that the run was of, recognised by its rows.
        word: The population that pays, explicitly.
        uncharged: The reason why nothing is charged.
        not_private: True if a run without a guarantee may be published.
        made_of: The owner's file that the table was made of, by which the people are known, too.
    """

    table: Table | None = field(default=None, repr=False)
    word: OwnersWord | None = None
    uncharged: str | None = None
    not_private: bool = False
    by: str | None = None
    budget: Path | None = None
    made_of: Path | None = None


def is_local_run(run: Path, config: Config, report: Mapping[str, object]) -> bool:
    """True for the folder of a run on one machine, by its mark or its report."""
    trust, silos = report.get("trust"), config.silos is not None
    sentence = SILOS_TRIAL_TRUST if silos else TRIAL_TRUST
    # Each run between silos lists its parts without a guarantee there.
    figures = "utility" if silos else "not_private"
    listed = figures in report and (not silos or bool(report[figures]))
    says = listed or (isinstance(trust, list) and sentence in trust)
    return says or (run / _MARK).is_file()


@dataclass(frozen=True, slots=True)
class LocalPublication:
    """A ``release`` of the local run of ``config`` in a folder, known as ``submission``, and its maker's word."""

    run: Path
    config: Config
    release: Release
    submission: str
    said: PublishersWord

    @classmethod
    def of(
        cls,
        run: Path,
        config: Config,
        report: Mapping[str, object],
        *,
        said: PublishersWord,
        exact: bool = False,
    ) -> "LocalPublication":
        """Returns the publication of the run in folder ``run``; an ``exact`` one has figures of the real table.

        Raises ConfigError if its maker does not say who pays, or that a run without a guarantee may be published.
        """
        release, submission = local_release(config, report), local_submission(run, config, exact)
        found = cls(run, config, release, submission, said)
        charged_whole = exact and said.uncharged is None
        if (found.release.not_private or charged_whole) and not said.not_private:
            raise ConfigError(
                str(run),
                "method",
                "has no privacy guarantee, and with --real-figures no run has; expected --not-private to publish it "
                "all the same, after which no epsilon holds for the people in it",
            )
        if exact:
            found = replace(found, release=_without_guarantee(release))
        if said.uncharged is not None and not said.uncharged.strip():
            raise ConfigError(
                str(run), "--uncharged", "is empty; expected the reason, which the bundle has"
            )
        if not (said.table or said.word or said.uncharged or found.is_charged):
            raise ConfigError(
                str(run),
                "budget",
                "is nobody's: the run was made on one machine, and to publish it spends the privacy of the people in "
                "its table like any release. Expected one of: --data, the table, whose people are recognised by its "
                "rows; --population or --new-population, whose budget pays; or --uncharged with the reason, such as "
                "that the table is public",
            )
        return found

    @property
    def is_charged(self) -> bool:
        """True if the budget has a charge for this run."""
        path = budget_path(self.said.budget)
        if not path.exists():
            return False
        state = OwnerBudget(path).state(self.release.config, self.submission)
        return state in (ChargeState.CHARGED, ChargeState.RELEASED)

    @property
    def charges(self) -> bool:
        """True if a budget pays, or has paid."""
        return self.said.uncharged is None or self.is_charged

    @property
    def account(self) -> dict[str, object]:
        """Statement for the report: a budget pays, or the reason why none does. Names no population."""
        return {"charged": True} if self.charges else {"charged": False, "why": self.said.uncharged}

    def enter(self) -> str:
        """Charges the population, or records that nothing is charged; returns a sentence. May be repeated.

        Raises BudgetExceeded; ConfigError for a table of another run; StoreError if nobody can tell whose table it is;
        DataError if it cannot be read.
        """
        return enter_together([self])

    @property
    def _person(self) -> Sequence[str]:
        return self.config.run.person or ()

    def source(self, path: Path) -> TableIdentity:
        """Returns who is in the table, for the budget in the file ``path``."""
        table, word = self.said.table, self.said.word
        if table is None:
            return TableIdentity(None, word=word)
        key = SketchKey.beside(path)
        sketch = KeyedSketch(key, make_sketch(table.as_written(), key, self._person))
        if table.read is not None:
            made_of = self.said.made_of
            path_of = None if made_of is None else str(made_of.resolve())
            return TableIdentity(None, path_of, sketch=sketch, word=word)
        return replace(TableIdentity.of_file(Path(table.source.location), word=word), sketch=sketch)


def enter_together(
    publications: Sequence[LocalPublication], *, whole: Release | None = None
) -> str:
    """Charges several runs of the same people, all of them or none; returns a sentence. May be repeated.

    The first one's table says who pays. ``whole`` is what all are together, which sets the limit of a new population;
    by default the first one's release. Raises as ``LocalPublication.enter``.
    """
    charged = [each for each in publications if each.charges]
    said = []
    if charged:
        subject = "the run is"
        if len(publications) > 1:
            runs = [each.release.run for each in charged]
            subject = f"{and_list(runs)} {'is' if len(runs) == 1 else 'are'}"
        said.append(_charged(charged, whole or charged[0].release, subject=subject))
    if declined := [each for each in publications if each not in charged]:
        said.append(_declined(declined))
    return "; ".join(said)


def _declined(publications: Sequence[LocalPublication]) -> str:
    word = publications[0].said
    path, why = budget_path(word.budget), word.uncharged or ""
    for each in publications:
        OwnerBudget(path).decline(each.release, each.submission, by=word.by or this_user(), why=why)
    return f"nothing is charged in {path}, which keeps the reason: {why}"


def _charged(publications: Sequence[LocalPublication], whole: Release, *, subject: str) -> str:
    first = publications[0]
    path = budget_path(first.said.budget)
    budget = OwnerBudget(path)
    if first.said.table is None and first.said.word is None:
        return f"{subject} charged already in {path}"
    known = {each.name for each in budget.datasets()} if path.exists() else set()
    unknown = ""
    for each in publications:
        if each.said.table is not None:
            unknown = check_recorded(each.run, each.config, each.said.table, budget=path) or unknown
    name = budget.charge_together(
        first.source(path),
        [(each.release, each.submission) for each in publications],
        whole=whole,
        refused=_NOTHING_PUBLISHED,
    )
    for each in publications:
        budget.release(each.release.config, each.submission)
    limits = "".join(
        f"; that is their first release, and sets their lifetime limit at epsilon {each.epsilon:g}, delta "
        f"{each.delta:g}: syncret budget set {shlex.quote(each.name)} sets another"
        for each in budget.datasets()
        if each.name not in known
    )
    cost = "" if whole.not_private else f" with epsilon {whole.epsilon:g}, delta {whole.delta:g}"
    them = "it" if len(publications) == 1 else "them"
    return (
        f"{subject} charged to population {name} in {path}{cost}, once for all bundles of {them}; `syncret budget` "
        f"shows what is left{limits}{f'; {unknown}' if unknown else ''}"
    )


def local_release(config: Config, report: Mapping[str, object]) -> Release:
    """Returns the release of a run on one machine, in full: the whole run. Raises ConfigError."""
    if config.silos is not None:
        whole = silo_release(config, plan_of(config))
    elif config.flaim is not None and not config.parties:
        whole = flaim_release(config)
    else:
        whole = distaim_release(Study.of(config))
    whole = replace(whole, method=str(report.get("method", whole.method)))
    return whole if is_private(report) else _without_guarantee(whole)


def _without_guarantee(release: Release) -> Release:
    return replace(release, rho=float("inf"), epsilon=float("inf"))


def local_submission(run: Path, config: Config, exact: bool = False) -> str:
    """Returns the name of a run by its result: its model or, without one, its table. Raises StoreError.

    A run between silos is known by its transcript, which has the digests of its results. With ``exact`` figures it is
    another release.
    """
    model = run / MODEL_FOLDER
    if config.silos is not None:
        result = table_digest(run / _SILOS_TRANSCRIPT)
    else:
        result = model_digest(model) if model.is_dir() else table_digest(run / TABLE_FILE)
    label = _EXACT_LABEL if exact else _LABEL
    return hashlib.sha256(label + bytes.fromhex(config.digest() + result)).hexdigest()
