"""Draft of a domain for the tables of several sources, and of the columns that link their rows.

As in `mechanisms.draft`, everything was read from the tables and is for their owners' eyes; of a key's columns a draft
has only the names. The tables are secret. Limits: keys are guessed from names, or from columns that look like
identifiers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mechanisms.domain import Domain
from mechanisms.draft import Draft, draft_of
from mechanisms.errors import DataError
from mechanisms.text_table import TextTable, and_list


@dataclass(frozen=True, slots=True)
class SourceDraft:
    """A source: its ``columns`` of the domain, and the columns of its ``key``."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table that was read, its place, and its recognised dialect."""

    table: TextTable
    where: str
    read_as: str


def draft_sources(
    tables: Mapping[str, TableRead], *, private_bins: bool = False
) -> tuple[Draft, tuple[SourceDraft, ...]]:
    """Returns one domain for all tables, by the sources' names, with each source's columns and key.

    The key has the columns that all tables have, else each table's identifier. Raises ``DataError`` as ``draft_of``,
    for a column of some tables but not all, and if no key is found.
    """
    common = _common(tables)
    drafts, sources = list[Draft](), list[SourceDraft]()
    for name, read in tables.items():
        kept = {c: values for c, values in read.table.columns.items() if c not in common}
        table = replace(read.table, columns=kept)
        draft = draft_of(table, read.where, read.read_as, private_bins=private_bins)
        key = common or draft.domain.ignore[:1]
        if not key:
            raise DataError(
                f"{read.where}: by what are its rows linked? No column stands in all tables, and none of its looks "
                "like an identifier; call the columns of the key alike in all of them"
            )
        drafts.append(draft)
        sources.append(SourceDraft(name, draft.domain.names, tuple(key)))
    return _merged(drafts, sources), tuple(sources)


def _common(tables: Mapping[str, TableRead]) -> tuple[str, ...]:
    """Returns the columns that all tables have, in the first one's order. Raises ``DataError`` for a column of some."""
    names = [tuple(read.table.columns) for read in tables.values()]
    for column in dict.fromkeys(name for each in names for name in each):
        having = [source for source, each in zip(tables, names, strict=True) if column in each]
        if 1 < len(having) < len(names):
            raise DataError(
                f"column {column!r} stands in {and_list(having)}: in a study it is of one source, or in the key of "
                "all; leave it out of the others, or call it otherwise there"
            )
    return (
        tuple(name for name in names[0] if all(name in each for each in names)) if names[1:] else ()
    )


def _merged(drafts: Sequence[Draft], sources: Sequence[SourceDraft]) -> Draft:
    keys = {name for source in sources for name in source.key}
    domain = Domain(
        tuple(column for draft in drafts for column in draft.domain.columns),
        tuple(dict.fromkeys(v for draft in drafts for v in draft.domain.missing_values)),
        ignore=tuple(n for draft in drafts for n in draft.domain.ignore if n not in keys),
        provenance=tuple(said for draft in drafts for said in draft.domain.provenance),
        splits=tuple(split for draft in drafts for split in draft.domain.splits),
    )
    return Draft(
        domain,
        tuple(note for draft in drafts for note in draft.notes),
        tuple(note for draft in drafts for note in draft.left_out),
        "; ".join(dict.fromkeys(draft.read_as for draft in drafts)),
        tuple(question for draft in drafts for question in draft.questions),
        tuple(note for draft in drafts for note in draft.skipped),
        proposals=tuple(proposal for draft in drafts for proposal in draft.proposals),
    )
