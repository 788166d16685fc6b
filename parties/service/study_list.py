"""Selection of studies for a list: filter, order and page of a query. All values here are public."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from parties.foundation.errors import PartyError
from parties.service.study_record import ENDED, StudyRecord, StudyState

MAX_LIMIT = 500
"""Maximum number of studies of a page."""
_GROUPS: Mapping[str, tuple[StudyState, ...]] = {
    "open": tuple(state for state in StudyState if state not in ENDED),
    "ended": ENDED,
}
FILTERS = (*_GROUPS, *(state.value for state in StudyState))
"""Values of the filter ``state``: a state, or a group of them."""
SORTS: Mapping[str, Callable[[StudyRecord], tuple[object, ...]]] = {
    "proposed": lambda study: (study.proposed_at, study.digest),
    "changed": lambda study: (study.changed_at, study.digest),
    "name": lambda study: (study.run.casefold(), study.proposed_at),
    "state": lambda study: (list(StudyState).index(study.state), study.proposed_at),
    "proposer": lambda study: (study.proposer, study.proposed_at),
}
"""Keys of each order, by its name."""


LIST_QUERY = (
    ("state", "Only studies in this state, or of this group: open, ended."),
    ("q", "Only studies with this text in their name, or at the begin of their digest."),
    ("sort", "proposed, changed, name, state or proposer."),
    ("order", "asc or desc."),
    ("limit", f"Number of studies of a page, {MAX_LIMIT} at most."),
    ("offset", "Number of studies before the page."),
)
"""Names of the query's parameters, with their meanings."""


class WrongQuery(PartyError):
    """A query of a list has a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class StudyQuery:
    """Query of a list: ``text`` is a part of a name, or the begin of a digest; without ``limit`` there is one page."""

    state: str = ""
    text: str = ""
    sort: str = "proposed"
    descending: bool = False
    limit: int | None = None
    offset: int = 0

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "StudyQuery":
        """Returns the query of an address: state, q, sort, order, limit, offset. Raises WrongQuery."""
        return cls(
            _one_of(query, "state", ("", *FILTERS)),
            query.get("q", "")[:64].strip(),
            _one_of(query, "sort", tuple(SORTS), default="proposed"),
            _one_of(query, "order", ("asc", "desc"), default="asc") == "desc",
            _number(query, "limit", low=1, high=MAX_LIMIT),
            _number(query, "offset", low=0, high=1 << 31) or 0,
        )

    def select(self, studies: Iterable[StudyRecord]) -> tuple[list[StudyRecord], int]:
        """Returns the studies of the page in their order, and the number of those on all pages."""
        states = _GROUPS.get(self.state, (self.state,))
        text = self.text.casefold()
        found = [
            study
            for study in studies
            if (not self.state or study.state in states)
            and (text in study.run.casefold() or study.digest.startswith(text))
        ]
        found.sort(key=SORTS[self.sort], reverse=self.descending)
        end = None if self.limit is None else self.offset + self.limit
        return found[self.offset : end], len(found)


def _one_of(
    query: Mapping[str, str], key: str, known: tuple[str, ...], *, default: str = ""
) -> str:
    value = query.get(key, default)
    if value not in known:
        expected = ", ".join(one for one in known if one)
        raise WrongQuery(f"no {key} is called {value[:40]!r}; expected {expected}")
    return value


def _number(query: Mapping[str, str], key: str, *, low: int, high: int) -> int | None:
    text = query.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):
        raise WrongQuery(f"{key} is {text[:40]!r}; expected a number from {low} to {high}")
    return int(text)
