"""The page's Table 3: bytes and ratios at the T of the lowest workload error. Provides ``table3``. Public."""

from collections.abc import Sequence

from bench.overhead.client_tables import is_papers_population
from bench.overhead.markdown import RATIO_HEADS, listed, markdown_table, mb, ratios, results_of
from bench.overhead.record import Record
from bench.overhead.utility import UTILITY_COMMAND, Best


def table3(records: Sequence[Record], best: Sequence[Best]) -> str:
    """The section, or nothing without utility."""
    if not best:
        return ""
    rows = [
        (
            one.dataset,
            "DistAIM" if one.method == "distaim" else f"FLAIM {one.method}",
            f"{one.rounds}",
            ", ".join(map(str, one.tried)),
            f"{one.repeats}",
            f"{one.workload_error:.3f}",
            f"{one.nll:.2f}",
        )
        for one in best
    ]
    heads = (
        "table", "method", "T at lowest error", "of T", "repeats", "workload error", "NLL",
    )  # fmt: skip
    return (
        "## At the best T (Table 3)\n\nUtility is that of the clustering partition, K = 100, participation 0.1, "
        f"epsilon = 1, means over repeats at that T, from `bench/results/utility.jsonl` (`{UTILITY_COMMAND}`)."
        f"{_left_out(records, best)}\n\n" + markdown_table(heads, rows) + _bytes(records, best)
    )


def _left_out(records: Sequence[Record], best: Sequence[Best]) -> str:
    known = {one.dataset for one in best}
    names = [str(r.document["dataset"]) for r in records if r.document["rows"] == "generated"]
    without = [name for name in dict.fromkeys(names) if name not in known]
    if not without:
        return ""
    return (
        f" Not in these tables: {listed(without)}, whose rows are not at hand; generated rows have the right sizes, "
        "but no utility."
    )


def _bytes(records: Sequence[Record], best: Sequence[Best]) -> str:
    """What a client moves at FLAIM's best T, by form and grouping, and the ratios; an upload is the same at any T."""
    moved, over, commands = [], [], []
    for one in best:
        record = None if one.method == "distaim" else _record(records, one)
        if record is None:
            continue
        found = record.document
        plain, seeded = (
            results_of(found, "distaim", form, one.rounds)[0] for form in ("plain", "seeded")
        )
        union, query = (
            results_of(found, "flaim", grouping, one.rounds)[0] for grouping in ("union", "query")
        )
        at = one.dataset, f"{one.rounds}"
        figures = (plain["wire_mb"], seeded["wire_mb"], union["formula_mb"])
        rest = (union["wire_mb"], query["wire_mb"])
        moved.append((*at, *map(mb, (plain["formula_mb"], *figures, *rest))))
        over.append((*at, *ratios(plain, seeded, union, query)))
        commands.append(f"- `{record.command}`")
    if not moved:
        return ""
    heads = (
        "table", "FLAIM's T", "DistAIM formula, MB", "plain wire", "seeded wire", "FLAIM formula, MB", "union wire",
        "query wire",
    )  # fmt: skip
    return (
        "\n\nWhat a client moves for it, DistAIM's by one upload whatever T is, FLAIM's at its best T:\n\n"
        + "\n".join(commands)
        + "\n\n"
        + markdown_table(heads, moved)
        + "\n\nDistAIM over FLAIM, each at its best T:\n\n"
        + markdown_table(("table", "FLAIM's T", *RATIO_HEADS), over)
    )


def _record(records: Sequence[Record], best: Best) -> Record | None:
    """The measured record of the paper's population at the best T."""
    for record in records:
        found = record.document
        if found["dataset"] == best.dataset and is_papers_population(found):
            results = results_of(found, "flaim", "union", best.rounds)
            if results and results[0]["wire_mb"] is not None:
                return record
    return None
