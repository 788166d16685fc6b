"""Studies of other servers: how many are taken that nobody wants in the end."""

import datetime
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parties.foundation.errors import PartyError
from parties.service.reconcile import FetchStudy
from parties.service.studies import utc_now
from parties.service.study_fetcher import _MAX_CANCELLED, StudyFetcher
from parties.service.study_record import StudyRecord, StudyState


def test_server_whose_studies_are_all_cancelled_has_no_further_one_taken_today() -> None:
    now = utc_now()
    over = StudyRecord("", "distaim", "stays", "beta", now, StudyState.CANCELLED, now)
    studies = {str(number): over for number in range(_MAX_CANCELLED)}
    identity = SimpleNamespace(own=SimpleNamespace(name="alpha"))
    fetcher = StudyFetcher(cast("Any", identity), cast("Any", studies), {})
    fetcher._taken = dict.fromkeys(studies, 1)
    with pytest.raises(PartyError, match="50 studies of beta were cancelled within a day"):
        fetcher._check_cancelled(FetchStudy("new", 1), "beta")
    assert "new" in fetcher.not_now()
    # What another server says of beta counts for neither.
    fetcher._check_cancelled(FetchStudy("new", 2), "beta")
    fetcher._check_cancelled(FetchStudy("new", 1), "gamma")
    for other in (
        replace(over, changed_at=now - datetime.timedelta(days=2)),
        replace(over, approvals=frozenset({"alpha"})),
        replace(over, state=StudyState.PROPOSED),
    ):
        studies["0"] = other
        fetcher._check_cancelled(FetchStudy("new", 1), "beta")
