"""Scope of the runs within the FLAIM paper's grids: omissions, progress, and time.

Seconds are those of the records, of single processes.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.experiment.markdown import filled, listed, markdown_table
from bench.experiment.sweeps import settings_of
from bench.methods.settings import Settings
from bench.papers.utility import grid
from bench.papers.utility.paper import GRIDS
from bench.papers.utility.store import Store

REPEATS, ADULT_REPEATS = 3, 10
"""Number of runs of each setting in `make bench-utility`, and of those on Adult."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a grid: runs, runs done, and seconds of all runs, `guessed` of them by runs of their kind."""

    runs: int
    done: int
    seconds: float
    guessed: int


def whole_grid(store: Store) -> Progress:
    """Counts all sweeps with their repeats. A missing run takes the time of the others of its setting, or of its kind.

    Kinds: table, method and estimator; else the table. Credit counts if any of its runs exists.
    """
    known: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for entry in store.everything():
        for kind in _kinds(entry.settings):
            known[kind].append(entry.result.seconds)
    runs = done = guessed = 0
    seconds = 0.0
    credit = has_credit(store)
    for settings in {s.digest(): s for s in settings_of(grid.SWEEPS, ["all"])}.values():
        if settings.dataset == grid.CREDIT and not credit:
            continue
        repeats = ADULT_REPEATS if settings.dataset == "adult" else REPEATS
        entries = [e for e in store.all_of(settings) if e.repeat < repeats]
        runs, done = runs + repeats, done + len(entries)
        seconds += sum(entry.result.seconds for entry in entries)
        if lacking := repeats - len(entries):
            own = [entry.result.seconds for entry in entries]
            likely = own or next((known[k] for k in _kinds(settings) if known[k]), [])
            guessed += lacking
            seconds += lacking * (fmean(likely) if likely else 0.0)
    return Progress(runs, done, seconds, guessed)


def has_credit(store: Store) -> bool:
    """Returns True if any run is of the table that few have."""
    return any(entry.settings.dataset == grid.CREDIT for entry in store.everything())


def _kinds(settings: Settings) -> tuple[tuple[str, ...], ...]:
    return (
        (settings.dataset, settings.method, settings.estimator),
        (settings.dataset, settings.method),
        (settings.dataset,),
    )


def scope_section(store: Store) -> str:
    """Returns the grids beside the paper's, and the time of running them."""
    progress = whole_grid(store)
    rows = [(_AXES[axis], papers, *_ours(axis)) for axis, papers in GRIDS.items()]
    heads = "axis | the authors' values | ours on Adult | on other tables"
    prose = f"""
    The paper has ten runs of each on seven tables. Here Adult has {ADULT_REPEATS}, the others {REPEATS}, and Credit,
    which is run where it can be had, {REPEATS if has_credit(store) else "none"}. The other tables of Figures 6 to 11
    are {listed(grid.FIGURE_TABLES)}: Covtype, Census, Intrusion and Credit have no Figures 6, 8, 9, 10 and 11, and in
    Figure 7 DistAIM and private alone, at the T of Table 3.
    Figure 2 is of {listed(grid.FIGURE2_TABLES)} at T = {_list(grid.FIGURE2_ROUNDS)}, Figure 1 of skews
    {_list(grid.SKEWS)}, Table 3 of T = {_list(grid.TABLE3_ROUNDS)} on {listed(grid.TABLE3_TABLES)}, of T =
    {_list(grid.ROUNDS)} on Adult, too, and of Figure 7's on Magic and Marketing. Figures 3e, 3f, 10 and 11 are one
    picture. DP-CTGAN, which takes up to 25 minutes, is run ten times each way on Adult and
    three times on Covtype.
    """
    others = (
        f" and, for the {progress.guessed:,} that are not there, by those of others of their kind"
    )
    took = f"""
    Of {progress.runs:,} runs {progress.done:,} are there. All of them take {progress.seconds / 3600:.0f} hours of one
    processor, by the seconds of the records{others if progress.guessed else ""}; half of that with `--jobs 2`. Records
    that were made beside other work have too many seconds.
    """
    table = markdown_table(heads, rows)
    return f"## What is run and what is left out\n\n{table}\n\n{filled(prose)}\n\n{filled(took)}\n"


_AXES = {
    "epsilon": "epsilon",
    "rounds": "T",
    "participation": "p",
    "beta": "beta",
    "local_rounds": "s and T",
}


def _ours(axis: str) -> tuple[str, str]:
    if axis == "local_rounds":
        both = f"s of {_list(grid.LOCAL)} by T of {_list(grid.LOCAL_T)}"
        return both, both
    also = " and annealed" if axis == "rounds" else ""
    return _list(grid.PANELS[axis].values) + also, _list(grid.THINNED[axis])


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
