"""Attempts at a run by several versions of the program, and by leads that were restarted: what an audit takes."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parties.audit.checks.identity import agreement
from parties.audit.checks.quality import _require_words_of_one
from parties.audit.checks.report_parts import header_of
from parties.audit.evidence import Evidence
from parties.audit.findings import CheckFailure
from parties.foundation.errors import StoreIncompatible
from parties.mpc.server_folder import open_transcript
from parties.observability.failure_causes import CURES, Cure, cause_of
from tests.parties.support import make_config

SAME = {"run": "r", "config_sha256": "c", "workload_sha256": "w", "plan": "p", "protocol": "x"}


def attempt(pid: int, wire: int, *, releases: bool, session: str | None = None) -> Any:
    record = {**SAME, "config": {}, "wire": wire, "version": f"0.{wire}"}
    opening = SimpleNamespace(record=record, text=lambda key: record[key])
    return SimpleNamespace(pid=pid, opening=opening, releases=releases, session=session)


def evidence(*servers: list[Any]) -> Any:
    transcripts = [
        SimpleNamespace(pid=pid, attempts=attempts, header=attempts[0].opening)
        for pid, attempts in enumerate(servers)
    ]
    return Evidence(Path(), cast("Any", tuple(transcripts)), Path())


def test_attempts_of_before_an_upgrade_may_have_released_nothing_alone() -> None:
    """One server met nobody before it; all that was charged and opened is of one version."""
    waits = [attempt(pid, 17, releases=False, session="before") for pid in range(3)]
    works = [attempt(pid, 18, releases=True, session="after") for pid in range(3)]
    alone = attempt(2, 16, releases=False)
    upgraded = evidence([waits[0], works[0]], [waits[1], works[1]], [waits[2], alone, works[2]])
    assert "version 0.18 of syncret" in agreement(upgraded)
    assert header_of(upgraded, {"unit": "row"}) == {"unit": "row", "version": "0.18"}
    charged = attempt(1, 17, releases=True, session="before")
    with pytest.raises(CheckFailure, match="another version of syncret"):
        agreement(evidence([waits[0], works[0]], [charged, works[1]], [waits[2], works[2]]))


def test_servers_of_one_mesh_have_one_version() -> None:
    waits = [attempt(pid, 17 + (pid == 1), releases=False, session="before") for pid in range(3)]
    works = [attempt(pid, 18, releases=True, session="after") for pid in range(3)]
    with pytest.raises(CheckFailure, match="another version of syncret"):
        agreement(evidence(*([waits[pid], works[pid]] for pid in range(3))))


def _opened(folder: Path, lines: list[Mapping[str, object]], wire: int) -> None:
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)
    (folder / "transcript.jsonl").write_text(text + '{"kind":"resumed","wi')
    identity = SimpleNamespace(run="r", config="c", workload="w", wire=wire, plan="p")

    def reached(*_: object, **__: object) -> None:
        raise KeyError("reached")

    open_transcript(
        folder,
        cast("Any", SimpleNamespace(key=folder / "no.key")),
        cast("Any", identity),
        config=make_config(),
        pid=0,
        effects=cast("Any", SimpleNamespace(transcript=reached)),
    )


def test_a_server_goes_on_with_no_charges_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit would refuse the run in the end; the version before can finish it, and that is the operator's to do."""
    monkeypatch.setattr("parties.mpc.server_folder.signer", lambda files: None)
    waits, charges = {"kind": "header", "wire": 17}, {"kind": "ledger", "round": 0}
    again = {"kind": "resumed", "wire": 18}
    with pytest.raises(
        StoreIncompatible, match="messages of version 17, and this program has 18"
    ) as refused:
        _opened(tmp_path, [waits, charges, again], 18)
    assert CURES[cause_of(refused.value).cause] is Cure.OPERATOR
    for lines, wire in (
        ([waits, again, charges], 18),
        ([waits, charges], 17),
        ([waits], 18),
        ([], 18),
    ):
        with pytest.raises(KeyError, match="reached"):
            _opened(tmp_path, lines, wire)


def test_words_are_those_of_one_possible_report() -> None:
    """A lead that lost its last choice has wider intervals, on other grounds than the auditor's first fit."""
    measured, chosen = {"basis": "measured", "high": 0.2}, {"basis": "selection", "high": 0.1}
    _require_words_of_one(measured, [chosen, measured])
    _require_words_of_one(chosen, [chosen, measured])
    with pytest.raises(CheckFailure, match=r"quality\.basis"):
        _require_words_of_one({"basis": "other", "high": 0.3}, [chosen, measured])
