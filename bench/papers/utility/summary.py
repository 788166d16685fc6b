"""The top of the utility page: counts of the paper's figures that ours agree with, and reasons for the others.

All counts are made from the runs; reasons are those of `bench.papers.utility.reasons`.
"""

from collections.abc import Sequence
from itertools import groupby

from bench.experiment.markdown import filled, markdown_table
from bench.experiment.verdicts import DECIDED, NEAR, PAPERS_RUNS, Compared, Kind, tally
from bench.papers.utility.figures import PICTURES
from bench.papers.utility.reasons import differences_section, differs
from bench.papers.utility.store import Store

_TITLES = {
    "1": "1: NLL, epsilon = 5",
    "2": "2: error and NLL, epsilon = 1",
    "3": "3: the best T",
    "4": "4: the tables",
    "5": "5: heterogeneity",
    "6": "6: ranks, annealed T",
    "7": "7: bytes",
}
_RULE = f"""
`agree`: within {NEAR:.0%} of the paper's figure, or what its two digits leave open (ranks, shares and bytes: as said
there). `within spread`: further apart, but by no more than chance does to means of so many of our runs and of
{PAPERS_RUNS} of the paper's, which prints no deviations, if they scatter as ours do (Student's t, 95 %): no statement.
`one run`: further apart, by a single run. `better or lower` and `worse or higher`: further apart than that; Tables 3
to 7 have figures that are only lower or higher. A cell is one figure of the paper by one of our ways: `ours`, or
`as theirs`, as in the authors' public code but for what is named under the tables.
"""
_HEADS = {Kind.BETTER: "better or lower", Kind.WORSE: "worse or higher"}
_BEYOND = (
    """
    **Everybody takes part**: an owner sends its rows once, in KB, so that DistAIM needs no tenth of the clients (p = 1)
    and has central AIM's error, for about what a client of private FLAIM moves (*Rows* in the appendix).
    """,
    """
    **DistAIM is a protocol**, three servers over TLS with transcripts and an audit, semi-honest or malicious. The runs
    of this page are its loop on counts in the clear, which chooses and measures the same from the same randomness (a
    test holds that); `--mpc` runs the servers.
    """,
    """
    **Noise is exact**: discrete Gaussians within a stated distance, drawn so that no server knows them. FLAIM's sums go
    through a SecAgg that is run, with dropouts.
    """,
    """
    **Bytes are counted on the wire** (Tables 3 and 7, `overhead.md`), beside the formula that the paper counts by.
    """,
    """
    **Epsilon says for which neighbours it is**: the paper's is for clients whose sizes are public. FLAIM's default here
    estimates them (`--sizes estimated`).
    """,
    """
    **Persons with several rows** (the paper's future work) can be what epsilon is for: `run.unit = "person"` with
    `rows_per_person` m takes m times the noise (`mechanisms/README.md`).
    """,
    """
    **DistMWEM**, what DistAIM succeeds, is run by three servers, too (in the appendix).
    """,
)


def summary(store: Store, cells: Sequence[Compared]) -> str:
    """Returns counts by table and by figure, then every difference with its reason, then results beyond the paper."""
    return "\n".join((_tables(cells), _figures(store), differences_section(cells), _beyond()))


def _beyond() -> str:
    points = "\n".join(filled(f"- {point}", "  ") for point in _BEYOND)
    return f"## Where Syncret goes beyond the paper\n\n{points}\n"


def _tables(cells: Sequence[Compared]) -> str:
    rows = []
    for (where, column), group in groupby(
        sorted(cells, key=lambda cell: (cell.where, cell.column)),
        key=lambda cell: (cell.where, cell.column),
    ):
        counts = tally(group)
        rows.append((_TITLES[where], column, *(str(counts[kind] or "") for kind in Kind)))
    total = tally(cells)
    rows.append(("all", "", *(str(total[kind]) for kind in Kind)))
    heads = " | ".join(("table", "way", *(_HEADS.get(kind, str(kind)) for kind in Kind)))
    bytes_ = tally(cell for cell in cells if cell.measure == "throughput")
    compared = sum(total[kind] for kind in (Kind.AGREE, Kind.WITHIN, Kind.ONE, *DECIDED))
    first = f"""
    Of {compared} figures of the paper's tables that were run and can be compared, {total[Kind.AGREE]} agree,
    {total[Kind.BETTER]} are better or lower, {total[Kind.WORSE]} worse or higher, {bytes_[Kind.WORSE]} of these
    bytes (Tables 3 and 7), where our FLAIM moves less; nothing can be said of the rest. Each
    that differs ({sum(map(differs, cells))}, single runs among them) has its reason in the appendix.
    """
    table = markdown_table(heads, rows)
    return f"## In short\n\n{filled(first)}\n\n{filled(_RULE)}\n\n{table}\n"


def _figures(store: Store) -> str:
    rows = []
    for of in PICTURES.values():
        title = of.title.split(":")[0]
        for claim, finding in of.findings(store):
            places = f"{finding.holds} of {finding.of}" if finding.of else ""
            rows.append((title, claim.says, finding.verdict, places))
    agree = sum(row[2] == "agrees" for row in rows)
    seen = sum(row[2] != "not run" for row in rows)
    said = f"""
    The paper prints no values for its figures: they are {len(rows)} claims here, of which {seen} were run; {agree}
    agree at every place (a table and a value of the axis, or a table and a method). Figures 4 and 5 show tables.
    """
    table = markdown_table("figure | the paper shows that | ours | places", rows)
    return f"{filled(said)}\n\n{table}\n"
