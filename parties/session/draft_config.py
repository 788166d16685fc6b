"""A draft of a domain as a config in TOML, with marks beside the values read from the table.

Secret until the owner has replaced or confirmed the marked values: they were read from the table.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import starmap

import tomli_w

from mechanisms.columns import private_of
from mechanisms.domain import Domain
from mechanisms.draft import KNOWN_MISSING, Draft
from mechanisms.linked_draft import SourceDraft
from mechanisms.provenance import TABLE

_MARK = "# READ FROM THE DATA: replace or confirm"
_READ = (
    "categories",
    "low",
    "high",
    "atoms",
    "scale",
    "decimals",
    "digits",
    "unit",
    "format",
    "marks",
    "prefix",
    "other",
    "endings",
)
"""Keys of a column with values from the table."""
DRAFTED_DELTA = 1e-5
"""Delta of every draft, which says nothing of how many rows a table has."""
_FEW_COLUMNS = 5
"""Maximum number of columns for a workload of all triples; more columns get a workload of pairs."""
_MOST_PAIRS = 8000
"""Maximum number of drafted pairs. A choice is among at most 2^13 - 1 candidates, single columns included."""
_OWNERS_OF_A_SOURCE = 4


def draft_text(
    name: str, draft: Draft, remarks: Sequence[str] = (), sources: Sequence[SourceDraft] = ()
) -> str:
    """Returns a draft as a config in TOML, with marks beside the values read from the table called ``name``.

    ``remarks`` are comments on the bound on rows; ``sources`` describe the tables of a draft of several tables.
    """
    drafted = draft.domain
    ignored = tomli_w.dumps({"ignore": list(drafted.ignore)}) if drafted.ignore else ""
    return f"""\
# A draft from {json.dumps(name)}, read as {draft.read_as}.
{_private_head(draft) if draft.private else _head(draft)}{ignored}
[run]
epsilon = 1.0
delta = 1e-5
# Without rounds the budget says how many there are, and they become finer as the model learns. rounds = 10: ten alike.
# Where noise would drown the pairs of columns, fallback measures single columns alone.
fallback = "columns"
{_person(draft)}
{_workload(drafted)}

[clients]
expected = {_OWNERS_OF_A_SOURCE * len(sources) or 10:<14}# how many data owners at most
rows_per_client = 100000 # public bound on the rows of one owner
{_comments(remarks)}
{_sources(sources)}[missing]
{_missing_mark(draft)}{tomli_w.dumps({"values": list(drafted.missing_values)})}
{_format(drafted)}{_splits(draft)}{_columns(draft)}{_constraints(draft)}"""


def _head(draft: Draft) -> str:
    """The warning, and the notes on the values read from the table."""
    return f"""\
{_comments(draft.skipped)}\
# WARNING: the following was READ FROM THE DATA, and a domain is published with the result. Replace or confirm each of
# these from public knowledge before a run in earnest, and write from = "public: " and its name (a code book, say)
# instead of from = "table". A trial runs without that; founding a study, and sending it a table, do not.
{_free(draft.domain)}{_comments(draft.notes)}
{_questions(draft)}{_left_out(draft)}"""


def _free(drafted: Domain) -> str:
    """The promise of a draft with private numbers and dates."""
    private = map(private_of, drafted.columns)
    if not any(each is not None and each.free for each in private):
        return ""
    return '# With values = "private" no number or date of the table is here: the run finds them by noisy counts.\n'


def _private_head(draft: Draft) -> str:
    """The promise of a private draft, and a template for each column of categories."""
    text = """\
# No value of the table is in this file: only names, kinds, decimals, units and formats of its columns, and how the file
# is written. With values = "private" the run finds bounds, bins and values that heap up by noisy counts. Bounds from
# public knowledge make finer cells: low and high, with bins = "private". Texts among numbers, such as "refused", are
# values, too: list them in marks of their column, and of its [[split]].
"""
    if not draft.to_list:
        return text
    text += """\
# TO BE LISTED from a code book: columns that are ignored until they are described here and taken out. Of a long list,
# such as all codes of a classification, a run keeps the frequent ones by noisy counts: values = "private" and
# candidates = "codes.txt", a file with a code on each line, instead of categories.
"""
    for unlisted in draft.unlisted:
        for table, keys in unlisted.tables:
            text += _comments([f"[[{table}]]", *starmap(_short_line, keys.items())])
        text += "\n"
    return text


def _person(draft: Draft) -> str:
    """The unit of privacy where a column identifies persons with several rows."""
    found = draft.person
    if found is None:
        return ""
    note = f"There are {found.note}, which"
    if draft.private:
        note = f"{found.column} seems to identify persons with several rows, and"
    bound = f"rows_per_person = {found.most}"
    if draft.private:
        bound = "# rows_per_person = ...   # public bound on the rows of a person; without it 1"
    else:
        bound = f"{_MARK}\n{bound}"
    return (
        f"# {note} is not modelled: all rows of a person are protected together, and noise\n"
        "# grows with rows_per_person. An owner's program refuses a table in which somebody has more rows, or leaves\n"
        '# the others out with more_rows = "sample". For each row by itself: unit = "row", without person.\n'
        f'unit = "person"\n{tomli_w.dumps({"person": [found.column]})}{bound}\n'
    )


def _missing_mark(draft: Draft) -> str:
    """The mark above spellings of a missing value, unless they are the usual ones of any table."""
    usual = draft.private or draft.domain.missing_values == KNOWN_MISSING
    return "" if usual else f"{_MARK}\n"


def _workload(drafted: Domain) -> str:
    """The drafted workload: all pairs of columns, or all triples if there are few columns."""
    columns = len(drafted.columns)
    degree = min(columns, 3 if columns <= _FEW_COLUMNS else 2)
    pairs = columns * (columns - 1) // 2
    count = f"{_MOST_PAIRS} # of {pairs:,} pairs, at random" if pairs > _MOST_PAIRS else '"all"'
    return f"[workload]\ndegree = {degree}\ncount = {count}"


def _comments(notes: Sequence[str]) -> str:
    return "".join(f"#   {note}\n" for note in notes)


def _questions(draft: Draft) -> str:
    if not draft.questions:
        return ""
    return (
        "# TO BE ASKED: what can be read in two ways, and how it was read here:\n"
        f"{_comments(draft.questions)}\n"
    )


def _left_out(draft: Draft) -> str:
    if not draft.left_out:
        return ""
    return (
        "# LEFT OUT, and ignored in every owner's table; none of their values is in this file:\n"
        f"{_comments(draft.left_out)}"
    )


def _sources(sources: Sequence[SourceDraft]) -> str:
    """The [[source]] tables, one after another."""
    tables = [
        "[[source]]\n"
        + tomli_w.dumps({"name": source.name, "columns": list(source.columns)})
        + "# Guessed: by which columns a person is known. They are shared as hashes, and in no result.\n"
        + tomli_w.dumps({"key": list(source.key)})
        for source in sources
    ]
    return "\n".join([*tables, ""]) if tables else ""


def _format(drafted: Domain) -> str:
    """[format], if the table's format differs from the default of synthetic tables."""
    said = drafted.format.to_dict()
    if not said:
        return ""
    return (
        "[format]\n# How the table is written, and synthetic.csv will be; without this UTF-8, commas and points.\n"
        f"{tomli_w.dumps(said)}\n"
    )


def _splits(draft: Draft) -> str:
    """The [[split]] tables, with a mark above what was read from the data."""
    tables = []
    for split in draft.domain.splits:
        marked = () if draft.private else ("pattern", "answers")
        lines = [
            f"{_MARK}\n{_line(key, value)}" if key in marked else _line(key, value)
            for key, value in split.to_dict().items()
        ]
        tables.append("\n".join(["[[split]]", *lines, ""]))
    return "\n".join([*tables, ""]) if tables else ""


def _constraints(draft: Draft) -> str:
    """The constraints that the table shows, as comments, each with its number of exceptions."""
    if not draft.proposals:
        return ""
    text = """
# TO BE ASKED: constraints that the table shows. Is one of them a rule? Without the signs # every synthetic row
# satisfies it, and an owner's program refuses a table with a row that does not; violations = "repair" beside it leaves
# such rows out, or computes the column anew. docs/constraints.md has all kinds.
"""
    for proposal in draft.proposals:
        text += f"#   {proposal.exceptions:,} of {proposal.rows:,} rows contradict it:\n"
        for name, table in (("column", proposal.column), ("constraint", proposal.table)):
            if table is not None:
                lines = (_short_line(key, value) for key, value in table.items())
                text += "".join(f"# {line}\n" for line in (f"[[{name}]]", *lines))
    return text


def _line(key: str, value: object) -> str:
    """A key and its value in TOML.

    A table stays on the key's own line, since the lines after a header would belong to it.
    """
    if not isinstance(value, Mapping):
        return tomli_w.dumps({key: value}).rstrip("\n")
    entries = (tomli_w.dumps({str(k): v}).rstrip("\n") for k, v in value.items())
    return f"{key} = {{ {', '.join(entries)} }}"


def _short_line(key: str, value: object) -> str:
    """A key and its value in one line of TOML."""
    if not isinstance(value, list):
        return _line(key, value)
    return f"{key} = [{', '.join(json.dumps(each, ensure_ascii=False) for each in value)}]"


def _columns(draft: Draft) -> str:
    """The [[column]] tables, with a mark above each value from the data.

    One key a line, unlike `tomli_w`'s short tables.
    """
    drafted, tables = draft.domain, []
    said = {each.column: each for each in drafted.provenance}
    for column in drafted.columns:
        of = said.get(column.name)
        keys = column.to_dict() | ({"from": of.to_config()} if of else {})
        lines = [
            f"{_MARK}\n{line}" if key in _READ and of and of.of(key) == TABLE else line
            for key, value in keys.items()
            for line in [_line(key, value)]
        ]
        tables.append("\n".join(["[[column]]", *lines, ""]))
    return "\n".join(tables)
