"""Studies of tables with keys: one configuration, and one of each view, which any method runs.

A configuration has [[table]] in place of [[column]] (`mechanisms.keyed.declared`), and [run], [clients] and others as
any. Its epsilon and delta are for a person, over all tables. ``load_keyed_study`` divides the budget among the views.

All values here are public. Composition: costs of views add up in the accountant's currency (`mechanisms.accounting`);
statistical distances of discrete noise add up, too. FLAIM counts in zCDP whatever the configuration says, so that its
views are divided in it.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tomli_w

from mechanisms.accounting import ZCDP, epsilon_from_rho, rho_from_epsilon_delta
from mechanisms.errors import DomainError
from mechanisms.gaussian_privacy import GAUSSIAN, gaussian_budget, gaussian_epsilon
from mechanisms.keyed.declared import KeyedTables
from mechanisms.keyed.views import KEY, View, views_of
from mechanisms.text_table import and_list
from parties.config import PERSON, SAMPLE, Config, FlaimSection
from parties.config.config import apply_overrides, config_from_dict
from parties.config.files import read_document
from parties.config.named_files import read_named_files
from parties.foundation.errors import ConfigError
from parties.methods.registry import method_of
from parties.mpc.planning.budget import unit_loss
from parties.session.study import Study

TABLE = "table"
_OWN = ("unit", "rows_per_person", "person", "more_rows")
"""Keys of [run] that follow from the tables."""
FLAIM = FlaimSection.KEY
"""Method with one server, and its section, that runs on views beside DistAIM and central AIM."""
_SECTIONS = (
    "run",
    "clients",
    "workload",
    "timeouts",
    "compute",
    "network",
    "party",
    "tls",
    FLAIM,
    TABLE,
)
_STEPS_WEIGHT = 2.0
"""Rows of a person that count in a view of steps, over those of a person on average; in that of persons 1."""
_ALMOST = 1 - 2.0**-12
_TRIES = 8


@dataclass(frozen=True)
class KeyedStudy:
    """Tables with keys, and the configuration of each view, by its name."""

    tables: KeyedTables
    configs: Mapping[str, Config]
    source: str
    id: str
    document: Mapping[str, object]

    @property
    def epsilon(self) -> float:
        """Epsilon of a person, over all views."""
        return _number(self.document, "epsilon")

    @property
    def delta(self) -> float:
        """Delta of a person, over all views."""
        return _number(self.document, "delta")

    @property
    def method(self) -> str | None:
        """FLAIM if the views are divided for it, None for DistAIM and central AIM."""
        return FLAIM if FLAIM in self.document else None

    @property
    def seed(self) -> int | None:
        """Public seed of the drawn tables; None for another one each time."""
        return next(iter(self.configs.values())).run.seed

    @property
    def terms(self) -> str | None:
        """Terms of use of the tables, if all agreed on some."""
        return next(iter(self.configs.values())).run.terms

    @property
    def unit_text(self) -> str:
        """The unit of privacy in words."""
        rows = (f"up to {child.rows} of {child.name}" for child in self.tables.children)
        return f"a person with all of its rows, of which {and_list(rows)} count"

    @cached_property
    def views(self) -> Mapping[str, View]:
        """Views by name."""
        return {view.name: view for view in views_of(self.tables)}


def study_text(study: KeyedStudy) -> str:
    """Returns the configuration of a study as its run's folder has it, in TOML."""
    return tomli_w.dumps(dict(study.document))


def is_keyed_config(path: Path) -> bool:
    """Returns whether a configuration is of tables with keys; False for a file that cannot be read."""
    try:
        return TABLE in read_document(path)
    except ConfigError:
        return False


def load_keyed_study(
    path: Path, overrides: Mapping[str, object] | None = None, *, method: str | None = None
) -> KeyedStudy:
    """Returns the study of the configuration ``path``, after ``overrides`` by dotted key were applied.

    ``method`` is FLAIM or another; None: that of the configuration, FLAIM if it has its section. Raises ConfigError.
    """
    document = read_document(path)
    apply_overrides(document, overrides or {})
    if method == FLAIM:
        document.setdefault(FLAIM, {})
    elif method is not None:
        document.pop(FLAIM, None)
    source = str(path)
    if unknown := [name for name in document if name not in _SECTIONS]:
        raise ConfigError(
            source,
            unknown[0],
            f"stands beside [[table]]; expected one of {', '.join(_SECTIONS)}, and what describes a table within it, "
            f"as in [[table.{unknown[0]}]]",
        )
    run = document.get("run")
    if not isinstance(run, dict):
        raise ConfigError(source, "run", "is missing; expected [run]")
    if own := [name for name in _OWN if name in run]:
        raise ConfigError(
            source,
            f"run.{own[0]}",
            "follows from [[table]]; expected none: the guarantee is for a person",
        )
    described = document[TABLE]
    for table in described if isinstance(described, list) else ():
        if isinstance(table, dict):
            read_named_files(table, path)
    try:
        tables = KeyedTables.from_list(described)
    except DomainError as error:
        raise ConfigError(source, TABLE, str(error)) from error
    if FLAIM in document:
        _check_flaim(document, tables, source)
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._") or "run"
    run.setdefault("id", stem)
    base = path.resolve().parent
    views = views_of(tables)
    whole = {view.name: _config(document, view, source=source, base=base) for view in views}
    shares = _shares(views)
    configs = _divided(whole, shares)
    return KeyedStudy(tables, configs, source, str(run["id"]), document)


def _check_flaim(document: Mapping[str, object], tables: KeyedTables, source: str) -> None:
    """Raises ConfigError for what FLAIM does not do with tables with keys."""
    if tables.parent.linked:
        raise ConfigError(
            source,
            f"{TABLE}.linked",
            f"is {tables.parent.linked!r} beside FLAIM, whose clients have persons with all of their rows; expected "
            "none, or DistAIM, whose servers link rows",
        )
    section = document[FLAIM]
    if isinstance(section, Mapping) and section.get("variant") == "oracle":
        raise ConfigError(
            source,
            f"{FLAIM}.variant",
            "is 'oracle', which is not private; expected another one for tables with keys",
        )


def _number(document: Mapping[str, object], key: str) -> float:
    run = document["run"]
    value = run.get(key) if isinstance(run, Mapping) else None
    if not isinstance(value, int | float):
        raise TypeError(f"run.{key} was checked to be a number")
    return float(value)


def _config(document: Mapping[str, object], view: View, *, source: str, base: Path) -> Config:
    """Returns the configuration of a view, with the whole budget."""
    run = document["run"]
    clients = document.get("clients", {})
    if not isinstance(run, dict) or not isinstance(clients, dict):
        raise ConfigError(source, "clients", "is no table; expected [clients]")
    own = {name: value for name, value in document.items() if name != TABLE} | view.domain.to_dict()
    unit: dict[str, object] = {"unit": PERSON, "rows_per_person": view.rows, "person": [KEY]}
    unit |= {"more_rows": SAMPLE} if view.target else {}
    if view.sources:
        # Servers count a person's rows on shares.
        unit = {"unit": PERSON}
        own["source"] = [
            {
                "name": source.name,
                "columns": list(source.columns),
                "key": [KEY],
                "rows_per_person": source.rows,
            }
            for source in view.sources
        ]
    own["run"] = run | unit | {"id": f"{run['id']}-{view.name}"}
    bound = clients.get("rows_per_client")
    own["clients"] = clients | (
        {"rows_per_client": bound * view.rows} if isinstance(bound, int) else {}
    )
    if view.target:
        workload = document.get("workload", {"degree": 2, "count": "all"})
        own["workload"] = (
            workload | {"target": list(view.target)} if isinstance(workload, dict) else workload
        )
    else:
        own.setdefault("workload", {"degree": 2, "count": "all"})
    return config_from_dict(own, source=source, base=base)


def _shares(views: tuple[View, ...]) -> dict[str, float]:
    """Returns each view's share of the budget.

    A view's error is in proportion to its noise for each row, rho^-1/2 times a weight: the number of a person's rows
    that count over that of a person's rows on average. The sum of errors is least where shares are weights^2/3.
    """
    weights = {view.name: (1.0 if not view.target else _STEPS_WEIGHT) ** (2 / 3) for view in views}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def person_epsilon(configs: Iterable[Config], delta: float) -> float:
    """Returns an epsilon that a person has, at ``delta``, by the releases of all ``configs`` together, rounded up."""
    losses = [_loss(config) for config in configs]
    cost, distance = sum(loss for _, loss, _ in losses), sum(apart for _, _, apart in losses)
    # What costs so much in the Gaussian's currency costs no more in zCDP.
    if all(accountant == GAUSSIAN for accountant, _, _ in losses):
        return gaussian_epsilon(cost, delta, distance=distance)
    return epsilon_from_rho(cost, delta, distance=distance)


def _loss(config: Config) -> tuple[str, float, float]:
    """Returns the accountant of a view's run, the cost of a person in its currency, and the distance of its samples."""
    if method_of(config) != FLAIM:
        return unit_loss(Study.of(config))
    # Imported on demand: DistAIM does not need what federations need.
    from parties.methods.flaim.settings import flaim_release

    return ZCDP.name, flaim_release(config).rho, 0.0


def _divided(configs: Mapping[str, Config], shares: Mapping[str, float]) -> dict[str, Config]:
    """Returns the configurations with epsilons and deltas that together cost a person the study's budget."""
    first = next(iter(configs.values()))
    if len(configs) == 1:
        return dict(configs)
    run = first.run
    by_gaussian = run.accountant == GAUSSIAN and method_of(first) != FLAIM
    whole = gaussian_budget if by_gaussian else rho_from_epsilon_delta
    own = gaussian_epsilon if by_gaussian else epsilon_from_rho
    # Distances of samples count (1 + e^epsilon) times, at the study's epsilon as well.
    delta = run.delta * 2 / (1 + math.exp(run.epsilon))
    budget = whole(run.epsilon, run.delta) * _ALMOST
    for _ in range(_TRIES):
        found = {
            name: config.override(
                {"run.epsilon": own(budget * shares[name], delta), "run.delta": delta}
            )
            for name, config in configs.items()
        }
        spent = person_epsilon(found.values(), run.delta)
        if spent <= run.epsilon:
            return found
        if math.isinf(spent):
            delta /= 2**6
            continue
        budget *= _ALMOST * whole(run.epsilon, run.delta) / whole(spent, run.delta)
    raise ConfigError(
        first.source,
        "run.epsilon",
        f"is {run.epsilon:g}, which {len(configs)} views cannot share; expected a larger one, or a larger delta",
    )
