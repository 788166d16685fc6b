"""Differentially private synthetic tables from data that several owners hold and may not pool, from Python.

    import syncret

    config = syncret.draft(df)                          # marked values were read from the data: replace or confirm them
    print(syncret.plan(config, rows=len(df)))           # what the run takes, and what its noise leaves
    run = syncret.synthesize(df, config, clients=20)    # three servers and 20 owners, as processes on this machine
    run.table, run.report, run.quality                  # the table, and how far it may be off
    run.estimate("mean(income) by sex where age >= 65")  # a figure with an interval
    run.sample(10_000, where="age >= 65")               # rows under a condition
    run.evaluate(df)                                    # for the table's owner alone: not private
    syncret.load(run.save("stays.zip", data=df))        # a bundle, charged to the budget of the people in df

    run = syncret.synthesize_tables({"patients": patients, "stays": stays}, "study.toml")   # tables with keys
    run.tables["stays"], run.sample(1000, where="stays.number > 2")
    syncret.load_tables(run.save("tables.zip", tables={"patients": patients, "stays": stays}))

``submit`` and ``preview`` are for a data owner that takes part in a study. ``load``, ``load_tables`` and ``audit`` read
the files that a run has left. All functions do the same as the command `syncret`. The errors below say what is wrong,
where, and what would be right. Nothing here reads from a terminal or writes to one, so all functions work in a
notebook.

``syncret.mpyc`` (``from syncret import mpyc`` as well) calls the protocols behind a run on the secure types of an MPyC
program, and is loaded by its first use.

``synthesize`` and DataFrames need ``pip install 'syncret[server]'``; the rest does without.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from mechanisms.errors import BudgetExceeded, ConditionError, DataError, MechanismError
from mechanisms.estimate import Estimate
from mechanisms.source import TableSource
from parties.api.audit import AuditResult, audit
from parties.api.config import Draft, draft, draft_from_schema
from parties.api.demo import demo_table
from parties.api.estimates import Estimates
from parties.api.keyed import KeyedRun, draft_tables, load_tables, synthesize_tables
from parties.api.owner import preview, submit
from parties.api.plan import Plan, plan
from parties.api.run import Report, Run, load, synthesize
from parties.config import Config, load_config
from parties.foundation.errors import (
    CertificateError,
    ConfigError,
    ExtraMissing,
    PartyError,
    StoreError,
    SubmitError,
)
from parties.foundation.exit_codes import ChildFailed
from parties.foundation.version import version
from parties.mpc.submission.preview import Preview
from parties.mpc.submission.submit import Submitted
from parties.report.evaluation import Evaluation

__version__ = version()

__all__ = [
    "AuditResult",
    "BudgetExceeded",
    "CertificateError",
    "ChildFailed",
    "ConditionError",
    "Config",
    "ConfigError",
    "DataError",
    "Draft",
    "Estimate",
    "Estimates",
    "Evaluation",
    "ExtraMissing",
    "KeyedRun",
    "MechanismError",
    "PartyError",
    "Plan",
    "Preview",
    "Report",
    "Run",
    "StoreError",
    "SubmitError",
    "Submitted",
    "TableSource",
    "audit",
    "demo_table",
    "draft",
    "draft_from_schema",
    "draft_tables",
    "load",
    "load_config",
    "load_tables",
    "plan",
    "preview",
    "submit",
    "synthesize",
    "synthesize_tables",
]

if TYPE_CHECKING:
    from protocols import mpyc_bridge as mpyc  # noqa: F401  # For programs that are type-checked.
else:

    def __getattr__(name: str) -> ModuleType:
        """Returns ``mpyc``, the bridge from MPyC programs, loaded by its first use: most programs do without."""
        if name == "mpyc":
            return import_module("protocols.mpyc_bridge")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
