"""A data owner's part in a run: to look at what would be sent, and to send it, with the whole run charged before.

Provides ``look`` and ``take_part``. Secret: the owner's table, and what a preview shows of its columns.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.summary import ColumnSummary
from parties.distaim.feasible import check_owner
from parties.distaim.planning import release_of
from parties.distaim.preview import Preview, preview
from parties.distaim.submit import Submitted, made_before, submit
from parties.enrolment import check_enrolled
from parties.owner import Owner
from parties.progress import Progress


def state_of(owner: Owner, given: Path | None) -> Path:
    """The state file of its submission; by default beside the table."""
    return given or owner.beside("submission")


async def look(owner: Owner, *, capacity: int | None, state: Path | None) -> Preview:
    """What would be sent, what it costs, and who is there to take it; nothing is sent, charged or written.

    Raises ConfigError, DataError, StoreError, CertificateError.
    """
    check_owner(owner.config, owner.config.build_workload())
    codes, columns = owner.table.looked_at(owner.config.domain)
    owner.config.check_rows(len(codes), capacity)
    path = state_of(owner, state)
    before = made_before(owner.config, codes, owner.name, path, capacity=capacity)
    paid = before[0] if before else None
    return await look_at(
        owner, len(codes), columns, capacity=capacity, paid=paid, earlier=before is not None
    )


async def look_at(
    owner: Owner,
    rows: int,
    columns: Sequence[ColumnSummary],
    *,
    capacity: int | None,
    paid: str | None,
    earlier: bool,
) -> Preview:
    """As ``look``, of a table that was read; ``paid`` is the submission whose charge is for this one, too.

    ``earlier``: this one was made before, and is only sent on.
    """
    config = owner.config
    return await preview(
        config,
        owner.files,
        columns,
        owner.quote(release_of(config, config.build_workload()), paid),
        client=owner.name,
        rows=rows,
        capacity=capacity,
        earlier=earlier,
    )


async def take_part(
    owner: Owner, *, capacity: int | None, state: Path | None, progress: Progress
) -> Submitted:
    """Read the table and send it; see ``send_rows``. Raises DataError as well."""
    check_owner(owner.config, owner.config.build_workload())
    codes = owner.table.codes(owner.config.domain)
    return await send_rows(owner, codes, capacity=capacity, state=state, progress=progress)


async def send_rows(
    owner: Owner,
    codes: NDArray[np.int32],
    *,
    capacity: int | None,
    state: Path | None,
    progress: Progress,
) -> Submitted:
    """Submit coded rows (rows, columns), which are charged to the owner's budget before anything is sent.

    Raises as `parties.distaim.submit.submit`, BudgetExceeded.
    """
    config = owner.config
    config.check_rows(len(codes), capacity)
    if not state_of(owner, state).exists():
        # What was made before may be at a server already, which has it whatever the time is.
        check_enrolled(config, owner.name)

    def spend(submission: str) -> None:
        owner.account(release_of(config, config.build_workload())).spend(submission)

    return await submit(
        config,
        codes,
        owner.files,
        capacity=capacity,
        state=state_of(owner, state),
        spend=spend,
        on_retry=lambda text: progress.event("retry", text),
    )
