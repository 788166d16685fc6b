"""The sentences that an invited owner agrees to: columns, queries, budget and who, all of the configuration."""

import pytest

from parties.cli.consent import consent_text
from parties.config import Config
from parties.identity.join_documents import fingerprint_words
from parties.mpc.submission.preview import Preview, ServerAvailability
from parties.session.study import Study
from parties.storage.owner_budget import BudgetQuote
from tests.parties.support import make_config


def text_of(config: Config, rows: int = 1234) -> str:
    servers = tuple(
        ServerAvailability(party.name, str(party.ingest), pid != 1, "is away")
        for pid, party in enumerate(config.parties)
    )
    found = Preview(
        "run", "north", rows, (), "rows", 1, rows, 1, {}, 1.0, 1e-6,
        BudgetQuote("stays", 0.1, 0.0, 0.1, 0.1, True), servers, False,
    )  # fmt: skip
    return consent_text(Study.of(config), found, ["takes rho 0.1", "nothing is left"])


def test_consent_names_columns_queries_budget_and_who() -> None:
    config = make_config()
    said = " ".join(text_of(config).split())
    for name in config.domain.names:
        assert name in said
    for query in Study.of(config).workload.queries:
        assert " with ".join(query) in said
    for party in config.parties:
        assert f"{party.name} ({party.ingest.host})" in said
    assert f"epsilon {config.run.epsilon:g} and delta {config.run.delta:g}" in said
    assert "for each row of your table" in said
    assert "1,234 rows" in said
    assert "takes rho 0.1 nothing is left" in said
    assert fingerprint_words(config.digest()).split()[0] in said
    away = config.parties[1]
    assert f"{away.name} at {away.ingest}: is away" in said


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run.epsilon", 0.77),
        ("run.delta", 3e-9),
        ("run.unit", "person"),
        ("run.terms", "for research alone"),
        ("clients.names", ["north", "south", "west"]),
        ("clients.closes", "2030-01-01T00:00:00Z"),
        ("clients.rows_per_client", 77),
    ],
)
def test_what_changes_the_study_changes_the_consent(key: str, value: object) -> None:
    """Not in the words alone."""
    config = make_config()
    changed = config.override({key: value})
    before, after = (text_of(each).partition("These words")[0] for each in (config, changed))
    assert before != after
