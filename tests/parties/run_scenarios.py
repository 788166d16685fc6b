"""Runs of three servers that between them take each form of input, schedule, noise and security."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.resolving import coarse_codes
from parties.config import CertificateFiles, Config
from parties.mpc.estimation import make_estimator
from tests.parties import (
    audit_runs,
    test_annealed_run,
    test_linked_run,
    test_private_bins_run,
    test_private_values_run,
)
from tests.parties.audit_runs import Finished
from tests.parties.mesh import EVERYONE, make_uniform
from tests.parties.support import make_codes, make_config

Codes = NDArray[np.int32]
ROWS = 20
LATE: Mapping[str, object] = {"run.rounds": 3, "clients.participation": 0.5, "clients.minimum": 1}
MALICIOUS: Mapping[str, object] = {"run.security": "malicious", "run.rounds": 2}
SMALL: Mapping[str, object] = {"run.rounds": 2, "run.noise": "distributed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A run in which a server is killed, and what it should have counted.

    Attributes:
        changes: Keys of the small configuration that differ.
        kill: Server, event and round at which it is killed.
        capacities: Rows that owners declare; those without send counts, where they may.
        first_rounds: Rounds from which owners take part, if not from the first.
        shared: Owners' inputs by the configuration; without it random rows of three columns.
        counted: Rows of the finished run, coded by its configuration.
        estimator: In place of the servers' own.
    """

    changes: Mapping[str, object]
    kill: tuple[int, str, int | None]
    owners: Sequence[str] = EVERYONE
    capacities: Mapping[str, int] = field(default_factory=dict)
    first_rounds: Mapping[str, int] = field(default_factory=dict)
    shared: Callable[[Config], Mapping[str, Codes]] | None = None
    counted: Callable[[Config], Codes] = lambda config: rows_of_everybody()
    estimator: Callable[..., object] = make_uniform

    def run(self, folder: Path, certificates: Mapping[str, CertificateFiles]) -> Finished:
        """Returns the finished run, recorded for a replay."""
        return audit_runs.finish(
            folder,
            certificates,
            {**self.changes, "run.record_replay": True},
            kill=self.kill,
            owners=self.owners,
            capacities=self.capacities,
            first_rounds=self.first_rounds,
            rows=ROWS,
            tables=self.shared,
            estimator=self.estimator,
        )


def rows_of_everybody() -> Codes:
    return np.concatenate([make_codes(ROWS, seed) for seed in range(len(EVERYONE))])


def in_private_bins(config: Config) -> Codes:
    before = make_config(test_private_bins_run.PRIVATE).domain
    return coarse_codes(before, config.domain, rows_of_everybody())


_BESIDE = np.random.default_rng(5).integers(0, (2, 3, 10), (25, 3)).astype(np.int32)
"""Rows of which one owner has two columns and another the third."""

SCENARIOS = {
    "counts": Scenario(changes=SMALL, kill=(0, "selected", 1)),
    "plain uploads, exact noise": Scenario(
        changes={**SMALL, "run.noise": "discrete-gaussian", "run.upload": "plain"},
        kill=(2, "round", 2),
    ),
    "rows": Scenario(
        changes={"run.rounds": 2, "run.noise": "box-muller", "run.input": "rows"},
        kill=(1, "counting", None),
    ),
    "rows and counts": Scenario(
        changes={**SMALL, "run.input": "auto", "clients.rows_per_client": 1000},
        capacities={EVERYONE[0]: 40, EVERYONE[2]: 25},
        kill=(1, "counting", None),
    ),
    "an owner that comes late": Scenario(
        changes={**SMALL, **LATE, "run.input": "auto", "clients.rows_per_client": 1000},
        capacities={EVERYONE[0]: 40, EVERYONE[2]: 25},
        first_rounds={EVERYONE[2]: 2},
        kill=(2, "round", 1),
    ),
    "linked by a key": Scenario(
        changes=test_linked_run.LINKED,
        owners=test_linked_run.OWNERS,
        capacities=test_linked_run.CAPACITIES,
        shared=test_linked_run.tables,
        counted=test_linked_run.joined,
        kill=(1, "counting", None),
    ),
    "linked by order": Scenario(
        changes={
            **test_linked_run.LINKED,
            "source": [
                {"name": "clinics", "columns": ["age", "sex"], "owners": ["clinic-a"]},
                {"name": "registry", "columns": ["ward"], "owners": ["clinic-c"]},
            ],
            "run.link": "order",
            "clients.expected": 2,
            "clients.minimum": 2,
        },
        owners=("clinic-a", "clinic-c"),
        capacities={"clinic-a": 30, "clinic-c": 40},
        shared=lambda config: {"clinic-a": _BESIDE[:, [2, 0]], "clinic-c": _BESIDE[:, [1]]},
        counted=lambda config: _BESIDE,
        kill=(0, "round", 1),
    ),
    "private bins": Scenario(
        changes=test_private_bins_run.PRIVATE,
        capacities=test_private_bins_run.CAPACITIES,
        counted=in_private_bins,
        estimator=make_estimator,
        kill=(2, "round", 1),
    ),
    "private values": Scenario(
        changes=test_private_values_run.PRIVATE,
        capacities=test_private_values_run.CAPACITIES,
        shared=test_private_values_run.tables,
        counted=test_private_values_run.counted,
        estimator=make_estimator,
        kill=(1, "round", 1),
    ),
    "annealed": Scenario(
        changes=test_annealed_run.ANNEALED,
        estimator=test_annealed_run.make_last_measured,
        kill=(2, "round", 3),
    ),
    "malicious, counts": Scenario(changes=MALICIOUS, kill=(1, "selected", 1)),
    "malicious, rows": Scenario(
        changes={**MALICIOUS, "run.rounds": 1, "run.input": "rows"}, kill=(0, "round", 1)
    ),
    "malicious, private values": Scenario(
        changes={
            **test_private_values_run.PRIVATE,
            "run.security": "malicious",
            "run.noise": "discrete-gaussian",
        },
        capacities=test_private_values_run.CAPACITIES,
        shared=test_private_values_run.tables,
        counted=test_private_values_run.counted,
        estimator=make_estimator,
        kill=(0, "round", 1),
    ),
}
