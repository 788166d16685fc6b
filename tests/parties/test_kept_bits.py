"""Bits of the total between selections: when they are made, what becomes of them at a restart, what the audit wants."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechanisms.domain import Domain, Integer
from mechanisms.workload import Workload
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from parties.mpc.aim_backend import BitCache
from protocols.context import Context
from protocols.costs import Cost
from protocols.ring import R32
from protocols.select_spec import integer_bits
from protocols.steps import SELECT_BITS, Selection
from tests.parties.audit_runs import make_run, read_lines, write_lines
from tests.parties.support import PARTIES
from tests.protocols.local import components, reconstruct, run_parties, share_of

WORKLOAD = Workload(
    Domain((Integer("a", 0, 99, 100), Integer("b", 0, 199, 200), Integer("c", 0, 1, 2))),
    (("a", "b"), ("b", "c")),
)
CANDIDATES = tuple(range(len(WORKLOAD.candidates)))
COLUMNS = [
    {"name": "ward", "kind": "categorical", "categories": ["x", "y", "z"]},
    {"name": "age", "kind": "integer", "low": 0, "high": 99},
    {"name": "zone", "kind": "integer", "low": 0, "high": 59},
]


def facts(candidates: tuple[int, ...] = CANDIDATES, error_bits: int = 20) -> Selection:
    sizes = [WORKLOAD.offsets[i + 1] - WORKLOAD.offsets[i] for i in candidates]
    return Selection(sizes, error_bits, 40, len(sizes))


def test_bits_are_made_once_where_nobody_new_is_counted_in() -> None:
    async def program(ctx: Context) -> list[tuple[bool, int, Cost]]:
        counts = share_of(ctx, components(R32, np.arange(WORKLOAD.cells)), R32)
        kept, chosen = BitCache(WORKLOAD), []
        for uploads in ("one", "one", "one", "two", "two"):
            kept.begin_round(uploads)
            selection, missing = kept.choose(CANDIDATES, facts(), rounds_left=4)
            await kept.make(ctx, counts, missing, integer_bits(20))
            chosen.append((selection.kept, len(missing), SELECT_BITS.of(selection)))
        held = kept.of(CANDIDATES[1:3], 9)
        assert held.bits == 9
        assert held.words == 4 + 1
        return chosen

    outcome = run_parties(program)
    assert outcome.results[0] == outcome.results[1] == outcome.results[2]
    kept, made, costs = zip(*outcome.results[0], strict=True)
    # The total of the first round is taken to change again; so is one that has just changed.
    assert kept == (False, True, True, False, True)
    assert made == (0, len(CANDIDATES), 0, 0, len(CANDIDATES))
    steps = [[s.sent_bytes for s in party.costs.steps] for party in outcome.parties]
    assert [list(cost.sent) for cost in costs if cost != Cost()] == np.transpose(steps).tolist()


def test_bits_of_some_candidates_are_made_for_those_alone() -> None:
    async def program(ctx: Context) -> Any:
        counts = share_of(ctx, components(R32, np.arange(WORKLOAD.cells)), R32)
        kept = BitCache(WORKLOAD)
        kept.begin_round("")
        kept.begin_round("")
        _, first = kept.choose(CANDIDATES[:4], facts(CANDIDATES[:4]), rounds_left=8)
        await kept.make(ctx, counts, first, integer_bits(20))
        _, second = kept.choose(CANDIDATES, facts(), rounds_left=7)
        await kept.make(ctx, counts, second, integer_bits(20))
        _, wider = kept.choose(CANDIDATES, facts(error_bits=22), rounds_left=6)
        assert (first, second, wider) == ([0, 1, 2, 3], [4], [0, 1, 2, 3, 4])
        return kept.of((4,), 14).planes

    planes = reconstruct(run_parties(program).results)
    cells = WORKLOAD.slice(4)
    assert planes[0, 0] == sum(1 << i for i in range(64) if (cells.start + i) & 1)


@pytest.mark.parametrize(
    ("candidates", "rounds_left"),
    [(CANDIDATES, 1), (CANDIDATES, 3), ((2,), 4)],
    ids=["last round", "last three rounds", "few cells"],
)
def test_bits_are_not_made_where_they_cost_more(
    candidates: tuple[int, ...], rounds_left: int
) -> None:
    kept = BitCache(WORKLOAD)
    kept.begin_round("")
    kept.begin_round("")
    direct = facts(candidates)
    assert kept.choose(candidates, direct, rounds_left=rounds_left) == (direct, [])
    # All candidates' cells, in four rounds, are worth it.
    assert kept.choose(CANDIDATES, facts(), rounds_left=4)[0].kept


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, certificates: Mapping[str, CertificateFiles]
) -> Path:
    """A run in which a server is killed in round 2. By the papers' rule each choice is among all candidates."""
    folder = tmp_path_factory.mktemp("kept")
    changes = {
        "column": COLUMNS,
        "run.rounds": 12,
        "run.rule": "aim",
        "clients.rows_per_client": 30,
    }
    return make_run(folder, certificates, changes, kill=(1, "round", 3))


def selections(run: Path) -> list[tuple[int, bool, bool]]:
    notes = [record for record in read_lines(run, 0) if record.get("what") == "selecting"]
    return [(n["round"], n["kept"], int(n["made"], 16) > 0) for n in notes]


def test_a_run_makes_bits_again_after_a_restart_and_passes_the_audit(run: Path) -> None:
    # The first selection after the restart does not know yet whether the total stays; that of round 3 is repeated.
    found = selections(run)
    # Server 1 dies as round 3 begins: the others may have got as far as to note their choice, or not.
    assert [one for one in found if one != (3, True, False)] == [
        (1, True, True),
        (2, True, False),
        (3, False, False),
        (4, True, True),
        *((number, True, False) for number in range(5, 13)),
    ]
    assert {c.name: c.detail for c in audit_folder(run).checks if c.status == "fail"} == {}


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [("made", "00", "costs"), ("kept", False, "costs")],
    ids=["not made", "not kept"],
)
def test_audit_wants_the_bits_that_a_selection_goes_by(
    run: Path,
    field: str,
    value: object,
    check: str,
    certificates: Mapping[str, CertificateFiles],
) -> None:
    before = [read_lines(run, pid) for pid in range(3)]
    for pid, lines in enumerate(before):
        changed = json.loads(json.dumps(lines))
        next(r for r in changed if r.get("what") == "selecting")[field] = value
        write_lines(run, pid, changed, certificates[PARTIES[pid]])
    try:
        failed = {c.name for c in audit_folder(run).checks if c.status == "fail"}
    finally:
        for pid, lines in enumerate(before):
            write_lines(run, pid, lines, certificates[PARTIES[pid]])
    assert failed == {check}
