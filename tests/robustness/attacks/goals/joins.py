"""Goals of a server in a join of rows: bend the join, or link an owner to a row with an accomplice's help.

All values here are public.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from mechanisms.text_table import TextTable
from mechanisms.workload import count_marginals
from parties.config import Config
from parties.mpc.records import RunningTotal
from parties.mpc.storage.totals import TotalStore
from parties.session.owner import source_codes
from protocols import shuffle
from protocols.context import Payload, StepCost
from protocols.runtime import PartyRuntime
from protocols.steps import LINK_JOIN, LINK_SORT, OF_COUNTING, OF_LINKING
from tests.robustness.attacks.goals.attacker import Attacker, changed
from tests.robustness.attacks.goals.restarts import DEVIATING
from tests.robustness.attacks.goals.results import BOTH, Goal, Got, Way
from tests.robustness.attacks.goals.study import OWNERS, AttackedStudy, make_config
from tests.robustness.attacks.judge import MALICIOUS, SEMI_HONEST

CLINIC, ACCOMPLICE, REGISTRY = OWNERS
_SOURCES = [
    {"name": "clinics", "columns": ["sex", "ward"], "key": ["id"], "owners": [CLINIC, ACCOMPLICE]},
    {"name": "registry", "columns": ["stage"], "key": ["id"], "owners": [REGISTRY]},
]
_CHANGES: Mapping[str, object] = {
    "run.input": "rows",
    "run.noise": "box-muller",
    "run.rounds": 1,
    "run.epsilon": 5.0,
    "source": _SOURCES,
    "column": [
        {"name": "sex", "kind": "categorical", "categories": ["0", "1"]},
        {"name": "ward", "kind": "categorical", "categories": ["0", "1", "2"]},
        {"name": "stage", "kind": "categorical", "categories": ["0", "1", "2", "3"]},
    ],
    "timeouts.receive_s": 30.0,
}
_CAPACITIES = {CLINIC: 12, ACCOMPLICE: 4, REGISTRY: 12}
MARKER = "P-marker"


def _rows(*, match: bool) -> dict[str, dict[str, list[str]]]:
    """Returns the owners' columns; with ``match`` the registry has the accomplice's marker, else another person."""
    people = [f"P-{n:02}" for n in range(10)]
    known = [f"P-{n:02}" for n in range(0, 20, 2)]
    known[-1] = MARKER if match else "P-other"
    return {
        CLINIC: {"id": people, "sex": ["0", "1"] * 5, "ward": ["0", "1"] * 5},
        # Ward 2, which no other owner has.
        ACCOMPLICE: {"id": [MARKER], "sex": ["0"], "ward": ["2"]},
        REGISTRY: {"id": known, "stage": ["0", "1", "2", "3", "0"] * 2},
    }


def _codes(
    config: Config, rows: Mapping[str, Mapping[str, list[str]]]
) -> dict[str, NDArray[np.int32]]:
    return {
        owner: source_codes(
            config,
            config.source_of(owner),
            TextTable(dict(columns), range(2, 2 + len(columns["id"]))),
            where=owner,
            ignore_extra=False,
        )
        for owner, columns in rows.items()
    }


def _joined(rows: Mapping[str, Mapping[str, list[str]]]) -> NDArray[np.int32]:
    """Computes the join in the clear."""
    stages = dict(zip(rows[REGISTRY]["id"], rows[REGISTRY]["stage"], strict=True))
    found = [
        (int(sex), int(ward), int(stages[key]))
        for owner in (CLINIC, ACCOMPLICE)
        for key, sex, ward in zip(*(rows[owner][c] for c in ("id", "sex", "ward")), strict=True)
        if key in stages
    ]
    return np.array(found, np.int32)


@contextmanager
def _totals() -> Iterator[dict[str, RunningTotal]]:
    """Yields the last running totals by server, which the servers delete at the end of the run."""
    kept: dict[str, RunningTotal] = {}
    save = TotalStore.save

    def saved(store: TotalStore, total: RunningTotal) -> None:
        kept[store.directory.parent.name] = total
        save(store, total)

    with patch.object(TotalStore, "save", saved):
        yield kept


# Goal: bend a join.


class _Bending(Attacker):
    """Inverts the first message of a step in place, and so computes with the inverted values."""

    def __init__(self, step: str) -> None:
        self._step = step

    def sends(self, step: StepCost, payload: Payload) -> Payload:
        """See ``Attacker.sends``."""
        if step.step == self._step and step.messages == 0 and payload.flags.writeable:
            payload ^= 0xFF
        return payload


def _other_order() -> AbstractContextManager[object]:
    """Gives the deviating server another order of rows than its partner in the shuffle."""
    other: AbstractContextManager[object] = changed(
        shuffle, "_uniform", lambda honest, *arguments: honest(*arguments)[::-1]
    )
    return other


def bend(
    attacker: Attacker,
    mode: str,
    deviation: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Got:
    """Runs a study of two sources with ``attacker`` as server 1, and compares honest servers' counts with the join."""
    config, rows = make_config(mode, _CHANGES), _rows(match=True)
    tables = _codes(config, rows)
    with (
        AttackedStudy.make(tables=tables, capacities=_CAPACITIES, config=config) as study,
        _totals() as totals,
        deviation(),
    ):
        ended = study.start(attacker, DEVIATING)
        charges = len(study.held(0).charges) + len(study.held(2).charges)
    right = count_marginals(_joined(rows), config.build_workload())
    counted = [total.share.own for total in totals.values()]
    bent = ended.finished and not np.array_equal(sum(counted, np.zeros_like(right)), right)
    got = f"honest servers charged {charges} openings"
    got = "counts of another join were released" if bent else got
    reached = bent or bool(ended.unnamed(DEVIATING)) or (charges > 0 and not ended.finished)
    return Got(reached, got, ended.noticed(DEVIATING))


BEND = Goal(
    "counts of another join than that of the owners' rows",
    {
        "order": Way(lambda mode: bend(Attacker(), mode, _other_order), reaches=(SEMI_HONEST,)),
        # In semi-honest mode comparisons that contradict one another depend on chance.
        "sort": Way(lambda mode: bend(_Bending(LINK_SORT.name), mode), (MALICIOUS,)),
        "join": Way(lambda mode: bend(_Bending(LINK_JOIN.name), mode), reaches=(SEMI_HONEST,)),
    },
)


# Goal: link an owner to a row.


@dataclass(slots=True)
class View:
    """Messages that a server receives while rows are joined and counted: sizes by step and sender, byte counts."""

    sizes: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))

    @property
    def deviation(self) -> float:
        """Distance of the bytes from uniform: chi-square with 255 degrees of freedom, in deviations from its mean."""
        mean = self.counts.sum() / 256
        return float((((self.counts - mean) ** 2 / mean).sum() - 255) / np.sqrt(510))


_LARGEST = 6.0
"""Largest accepted ``View.deviation``: uniform bytes exceed it in fewer than one view in 10^6."""


@contextmanager
def _seen(view: View) -> Iterator[None]:
    steps = {step.name for step in (*OF_LINKING, *OF_COUNTING)}

    async def fetched(
        honest: Callable[..., Awaitable[Payload]],
        runtime: PartyRuntime,
        peer: int,
        label: int,
        cost: StepCost,
        limit: int,
    ) -> Payload:
        payload = await honest(runtime, peer, label, cost, limit)
        if cost.step in steps:
            view.counts += np.bincount(payload, minlength=256)
            # The sort follows comparisons of rows in a random order, so its sizes vary.
            if cost.step != LINK_SORT.name:
                view.sizes[cost.step, peer, payload.size] += 1
        return payload

    with changed(PartyRuntime, "fetch", fetched):
        yield


def link(mode: str) -> Got:
    """Runs a study with and without the marked person, and compares the views of the accomplice's server."""
    views = []
    for match in (True, False):
        config, view = make_config(mode, _CHANGES), View()
        tables = _codes(config, _rows(match=match))
        with (
            AttackedStudy.make(tables=tables, capacities=_CAPACITIES, config=config) as study,
            _seen(view),
        ):
            ended = study.start(Attacker(), DEVIATING)
        if not ended.finished:
            return Got(True, f"the study does not end: {ended.noticed(-1)}", "")
        views.append(view)
    there, away = views
    far = [view.deviation for view in views]
    got = f"{there.counts.sum():,} and {away.counts.sum():,} bytes with and without the person, "
    got += "messages of the same sizes" if there.sizes == away.sizes else "other sizes"
    got += f", {far[0]:+.1f} and {far[1]:+.1f} deviations from uniform"
    return Got(
        there.sizes != away.sizes or max(far) > _LARGEST, got, "nothing: it deviates from nothing"
    )


LINK = Goal(
    "with an owner's marked row: whether the registry has its person, beside what is released",
    {"marker": Way(link, BOTH)},
)
