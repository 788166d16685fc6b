"""Validation of a configuration: the rules with which `run`, `serve study`, `join` and `plan` all begin.

``validate_run`` refuses a run before anything is sent, charged or computed, and names the key to change.
``check_memory`` refuses it if the host lacks memory; ``validate_owner`` does both at a participant. All rules use only
the configuration and the host. All values here are public. Known limits: an annealed run is judged by the finest round
that it may reach.
"""

from collections.abc import Sequence

import numpy as np

from mechanisms.accounting import Schedule
from mechanisms.column_parts import PRIVATE
from mechanisms.columns import private_of
from mechanisms.domain import Clique
from mechanisms.resolving import unmeasured
from mechanisms.scores import AIM, score_gain, score_offset
from mechanisms.workload import Workload
from parties.config import CELLS, COUNTS_INPUT, ROWS_INPUT, Config
from parties.foundation.errors import ConfigError
from parties.foundation.process import memory_bytes
from parties.mpc.inputs import input_forms
from parties.mpc.planning.budget import make_plan
from parties.mpc.planning.upload_size import UploadSize
from parties.mpc.submission.sealed_upload import UploadSizes
from parties.session.study import Study
from protocols.row_plan import MAX_CELLS
from protocols.select_spec import FRACTION_BITS, widths

MAX_BOX_BYTES = 2**31 - 1
"""Maximum content of a box in bytes (`parties.crypto.hpke`)."""
OWNER_BYTES, OWNER_BYTES_A_BYTE, OWNER_BYTES_MORE = 90e6, 5, 2
"""Memory of a participant in bytes: the base, for each byte of its upload, and for each byte of further uploads.

Further uploads wait in the same process. Measured with uploads of 36 to 120 MB.
"""
MODULUS = 2**32
"""Modulus of shared counts."""
FEWER_CELLS = (
    "queries of fewer columns (workload.degree), or fewer of them, or fewer bins or categories"
)
"""Remedy for most of these problems."""


def validate_run(study: Study) -> Schedule:
    """Division of the run's budget, if no rule forbids the run. Raises ConfigError, by key."""
    plan = make_plan(study)
    _check_private(study.config)
    _check_sizes(study)
    _check_scores(study, plan)
    _check_bounded_cells(study)
    _check_counting(study)
    _check_boxes(study)
    return plan


def check_memory(config: Config, needed: int, role: str, *, memory: int | None = None) -> None:
    """Raises ConfigError if ``role`` needs more than the host's memory (or ``memory``); ``needed`` is in bytes."""
    there = memory_bytes() if memory is None else memory
    if there is not None and needed > there:
        raise ConfigError(
            config.source,
            "workload",
            f"needs about {gigabytes_text(needed)} of memory for {role}, of {gigabytes_text(there)} that there are; "
            f"expected {FEWER_CELLS}, or a host with more",
        ) from MemoryError()


def validate_owner(study: Study) -> None:
    """Validation at the start of a participant's command. Raises ConfigError if run or participation is infeasible."""
    validate_run(study)
    check_memory(study.config, owner_memory(study), "a data owner")


def owner_memory(study: Study, *, at_once: int = 1) -> int:
    """Peak memory in bytes of a process of ``at_once`` participants, beside their tables, by their upload sizes."""
    offer = UploadSize.of(study)
    a_byte = OWNER_BYTES_A_BYTE + OWNER_BYTES_MORE * (at_once - 1)
    return int(OWNER_BYTES + a_byte * offer.sent_bytes[offer.form])


def gigabytes_text(size: float) -> str:
    """Size for people."""
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} KB"


def selectable_candidates(workload: Workload) -> list[int]:
    """Candidates that a query contains: all that a selection may choose from."""
    return [i for i, weight in enumerate(workload.weights) if weight > 0]


def sizes_of(workload: Workload, candidates: Sequence[int]) -> list[int]:
    """Numbers of cells of ``candidates``."""
    return [workload.offsets[i + 1] - workload.offsets[i] for i in candidates]


def largest_query(workload: Workload) -> Clique:
    """Query with the most cells."""
    return max(workload.maximal, key=workload.domain.size)


def selection_bounds(study: Study, plan: Schedule) -> tuple[int, int]:
    """Bits of errors and scores of a selection among all candidates, in the finest round. Raises ValueError."""
    candidates = selectable_candidates(study.workload)
    sizes = sizes_of(study.workload, candidates)
    weights = [study.workload.weights[i] for i in candidates]
    sharpest, most = plan.sharpest, max(weights)
    gains = [score_gain(sharpest, weight, most) for weight in weights]
    # A round with k times the epsilon has 1/k of the deviation.
    sigma = plan.noise_sigma * plan.epsilon / sharpest
    offsets = [score_offset(gain, sigma, size) for gain, size in zip(gains, sizes, strict=True)]
    if study.config.run.rule != AIM:
        # No error that is left is larger than what two tables can differ by.
        offsets = [0] * len(sizes)
    return widths(np.array(sizes, np.int64), study.config.max_rows << FRACTION_BITS, gains, offsets)


def _check_private(config: Config) -> None:
    """Raises ConfigError if participants would have to count cells that round 0 chooses."""
    if config.run.input == COUNTS_INPUT and (private := unmeasured(config.domain)):
        raise ConfigError(
            config.source,
            "run.input",
            f'is "{COUNTS_INPUT}" beside {_private_key(config, private[0])} = "{PRIVATE}" in column '
            f"{config.domain.names[private[0]]!r}, which are chosen after owners have sent; expected "
            f'"{ROWS_INPUT}", or low and high, or categories, that are public',
        )


def _private_key(config: Config, position: int) -> str:
    private = private_of(config.domain.columns[position])
    return "values" if private is not None and private.free else "bins"


def _check_sizes(study: Study) -> None:
    """Raises ConfigError unless a marginal's errors, 2^6 times its rows twice and one a cell, stay below 2^31."""
    query = largest_query(study.workload)
    room = 2**31 - 1 - 2 * (study.config.max_rows << FRACTION_BITS)
    if study.workload.domain.size(query) > room:
        raise ConfigError(
            study.config.source,
            "workload",
            f"has a query ({', '.join(query)}) of {study.workload.domain.size(query)} cells; expected "
            f"at most {room} with "
            f"clients.expected times clients.rows_per_client = {study.config.max_rows} rows: {FEWER_CELLS}",
        )


def _check_scores(study: Study, plan: Schedule) -> None:
    try:
        selection_bounds(study, plan)
    except ValueError as problem:
        raise ConfigError(
            study.config.source,
            "run.epsilon",
            f"is {study.config.run.epsilon}, with which a query cannot be selected: {problem}; "
            "expected a smaller one, a "
            "smaller clients.rows_per_client, or more run.rounds",
        ) from problem


def _check_bounded_cells(study: Study) -> None:
    """Raises ConfigError if a sum of bounded cells can wrap, since it then proves nothing of the rows.

    Source: protocols README, section 2.
    """
    if study.config.run.check != CELLS:
        return
    query, room = (
        largest_query(study.workload),
        MODULUS // (study.config.clients.rows_per_client + 1),
    )
    if study.workload.domain.size(query) > room:
        raise ConfigError(
            study.config.source,
            "run.check",
            f'is "{CELLS}", which proves nothing of query ({", ".join(query)}): it has '
            f"{study.workload.domain.size(query)} "
            f"cells, and with clients.rows_per_client = {study.config.clients.rows_per_client} a sum "
            f"of more than {room} "
            f'can wrap; expected check = "totals", a smaller bound, or {FEWER_CELLS}',
        )


def _check_counting(study: Study) -> None:
    """Raises ConfigError for more cells than servers can count at once."""
    cells = study.workload.maximal_cells
    private = bool(unmeasured(study.config.domain))
    if cells > MAX_CELLS and (private or study.config.run.input == ROWS_INPUT):
        # Owners cannot count cells that round 0 chooses.
        remedy = f"a smaller coarse, or {FEWER_CELLS}" if private else f'input = "{COUNTS_INPUT}"'
        raise ConfigError(
            study.config.source,
            "run.input",
            f'is "{study.config.run.input}", which has servers count {cells} cells; expected at most {MAX_CELLS}, or '
            f"{remedy}",
        )


def _check_boxes(study: Study) -> None:
    """Raises ConfigError if a box is too large: a box is sealed as one."""
    for name, form in input_forms(study).items():
        box = max(UploadSizes.of(form, study.config.clients.rows_per_client).boxes)
        if box > MAX_BOX_BYTES:
            raise ConfigError(
                study.config.source,
                "run.upload",
                f'is "{name}", which puts {gigabytes_text(box)} into a box for one server; expected at most '
                f'{gigabytes_text(MAX_BOX_BYTES)}: upload = "seeded", or {FEWER_CELLS}',
            )
