"""Whom a run's epsilon is for, in words: a row, or a person with its rows in one table or in several sources.

Provides ``unit_in_words``, ``unit_trust`` (what follows from it), ``link_trust`` and ``ROW_OF_ALL``. Public: all.
Source: `mechanisms` README, "Units of privacy".
"""

from parties.config import BY_KEY, PERSON, Config

ROW_OF_ALL = "one row added to or removed from the whole table"
"""Whom the guarantee of DistAIM and central AIM is for, where nothing else is said."""
LINKED_TRUST = (
    "Rows were linked on shares. What that opened is the order of rows that had been shuffled in secret: not "
    "which rows match, not how many do, and nothing of a linking key. A key is in no query and in no result.",
)
ALIGNED_TRUST = (
    "Rows of the sources were taken together by their order, as the owners say they lie: row by row the same people.",
)


def unit_in_words(config: Config) -> str:
    """For whom a run's guarantee is."""
    rows, names = config.rows_of_unit, [source.name for source in config.sources]
    if config.run.unit == PERSON and names:
        several = [source for source in config.sources if source.rows_per_person > 1]
        having = f"; in {several[0].name} up to {rows}" if several else ""
        if len(names) == 1:
            return f"one person added or removed with all of its rows, which are at most {rows}"
        key = "the rows that share a linking key" if config.run.link == BY_KEY else "a row's place"
        return (
            f"one person added or removed with all of its rows ({key}: one in each source{having})"
        )
    if config.run.unit == PERSON:
        return f"one person added or removed with all of its rows, which are at most {rows} in the whole table"
    if names and config.run.link != BY_KEY:
        # A row that is missing in one source alone would move all rows behind it beside other ones.
        return f"one place added or removed: its rows in all of the sources {', '.join(names)}"
    if names:
        return f"one row added to or removed from one of the sources {', '.join(names)}"
    return ROW_OF_ALL


def link_trust(config: Config) -> tuple[str, ...]:
    """What joining sources on shares shows, where there are any."""
    if not config.sources:
        return ()
    return LINKED_TRUST if config.run.link == BY_KEY else ALIGNED_TRUST


def unit_trust(config: Config) -> tuple[str, ...]:
    """Whom the guarantee is for, and what follows from that."""
    rows, said = config.rows_of_unit, f"The privacy guarantee is for {unit_in_words(config)}."
    if config.sources and config.run.link == BY_KEY:
        said += f" {_of_sources(config)}"
    elif config.run.unit == PERSON and not config.sources:
        said += (
            f" That a person has at most {rows} rows is the owners' word: nobody can see from shares whose rows they "
            "are, and a person with more is protected less."
        )
    elif config.sources:
        said += (
            " That a person has one place, the same in all sources, is the owners' word: nobody can see from shares "
            "whose rows lie there, and a person with more is protected less."
        )
    if rows == 1:
        return (said,)
    scaled = (
        f"Budget and ledger count what a row costs; a person of {rows} rows costs {rows * rows} times as much. So "
        f"the noise is {rows} times as large as for one row, and choices depend {rows} times less on each."
    )
    return said, scaled


def _of_sources(config: Config) -> str:
    """Why whatever owners send, a unit makes or unmakes no more joined rows than was budgeted for."""
    if len(config.sources) == 1:
        return (
            f"A key that stands in more than {_rows(config.rows_of_unit)} counts for nothing, whoever sent these rows: "
            f"so a person is {_rows(config.rows_of_unit)} at most, whatever owners send."
        )
    several = [source.name for source in config.sources if source.rows_per_person > 1]
    where = f", in {several[0]} in more than {config.rows_of_unit}" if several else ""
    return (
        f"A key that stands in more than one row of a source{where}, joins nothing, whoever sent these rows: so a row, "
        f"and a person with all of its rows, makes or unmakes {_rows(config.rows_of_unit, 'joined row')} at most."
    )


def _rows(rows: int, what: str = "row") -> str:
    return f"one {what}" if rows == 1 else f"{rows} {what}s"
