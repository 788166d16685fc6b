"""Draft of tables with keys as a configuration in TOML, with its notes as comments.

Secret until the owner has replaced or confirmed the marked values: they were read from the tables.
"""

import tomli_w

from mechanisms.keyed.drafting import KeyedDraft


def keyed_draft_text(draft: KeyedDraft) -> str:
    """Returns a draft of tables with keys as a config in TOML."""
    lines = [
        "# WARNING: categories, bounds, changes and numbers of rows were READ FROM THE DATA, and the description of",
        "# tables is published with the result. Replace or confirm each from public knowledge before a run in earnest,",
        '# and write from = "public: " and its name instead of from = "table".',
        *(f"#   {note}" for note in draft.notes),
    ]
    for name, each in draft.drafts.items():
        lines += [f"#   {name}: {note}" for note in (*each.notes, *each.questions)]
        lines += [f"#   {name}: LEFT OUT: {reason}" for reason in each.left_out]
    head = "\n".join(lines)
    run = """
[run]
epsilon = 1.0             # of a person, over all tables
delta = 1e-5
fallback = "columns"

[clients]
expected = 10             # how many data owners at most
rows_per_client = 100000  # public bound on the persons of one owner

# rows: so many rows of a person count, and the privacy guarantee covers them; most: of a synthetic person.
# constant: the same in all rows of a person; copied: as in the person's own row; [[table.change]]: by how much numbers
# and dates differ from the row before. [[table.summary]], which nothing drafts, adds a summary of a person's rows to
# the questions that can be asked: kind = "last" or "mean" of a column, or "any" with name and where = "ward = surgery".
"""
    return f"{head}\n{run}{tomli_w.dumps({'table': draft.tables.to_dict()})}"
