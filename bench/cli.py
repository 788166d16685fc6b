"""`syncret bench`: measurements that anyone can repeat, one module for each command.

SIGTERM ends a command as Ctrl-C does: its child processes are stopped, too.
"""

import click

from bench.groups import CommandsOnDemand, FormerNames, TerminableGroup

_ENTRIES = {
    "What Syncret costs": {
        "engine": ("bench.engine.cli", "The engine: three processes on a task at a time."),
        "secagg": ("bench.secagg.cli", "Secure aggregation: whole rounds in one process."),
        "overhead": ("bench.overhead.cli", "What a data owner sends and receives."),
        "intake": ("bench.intake", "Submissions of many owners at three servers."),
        "link": ("bench.link", "Joins of two sources on shares, beside pandas."),
        "flower": ("bench.flower", "FLAIM over our own connections and on Flower."),
        "load": ("bench.load.cli", "The limits of servers: load, garbage, long runs."),
    },
    "What its tables are worth": {
        "quality": ("bench.quality.cli", "Synthetic tables by a third party's score."),
        "tables": ("bench.tables.cli", "Persons and their rows, beside the same table flattened."),
        "likely": ("bench.likely", "Marginals within a report's likely and proven errors."),
        "link-utility": ("bench.linked_utility", "Tables joined on shares, beside central AIM."),
    },
    "Papers repeated (extra: papers)": {
        "utility": ("bench.papers.utility.cli", "AIM, DistAIM, FLAIM's variants and baselines."),
        "mwem": ("bench.papers.mwem.cli", "DistMWEM by three servers, beside MWEM and AIM."),
        "gan": ("bench.papers.gan.cli", "DP-CTGAN, central and federated."),
        "tda": ("bench.papers.tda.cli", "Fed-TDA: classifiers of silos with other labels."),
        "mtl": ("bench.papers.mtl.cli", "MR-MTL: silos' own models, over lambda and epsilon."),
    },
}


class _Bench(TerminableGroup, FormerNames, CommandsOnDemand):
    """All three kinds of group."""


@click.group(
    cls=_Bench,
    entries=_ENTRIES,
    missing="repeats a paper, which this installation has no code for; in a checkout of the source: "
    "pip install -c constraints.txt -e '.[papers]'",
    former={"attacks": "python -m tests.robustness attacks"},
    epilog="Example: syncret bench engine --task abs_error --size 1000000. "
    "Each command's --help has one of its own.",
)
def bench() -> None:
    """Measure Syncret on this machine."""
