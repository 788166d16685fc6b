"""Notices to a server's operator about the admission of participants: waiting, counting, and the end of enrollment.

All values here are public.
"""

import math
import time
from dataclasses import replace

from parties.mpc.inputs import OnCountingProgress, SubmissionBatch
from parties.mpc.inputs.linked import SourceLink
from parties.mpc.participants.waiting_text import OverdueUploads, WaitStatus, waiting_text
from parties.mpc.planning.counting_cost import CountingCost
from parties.mpc.storage.store import Store
from parties.observability.events import WORKING, Progress
from parties.observability.heartbeat import LONGEST_GATHERING_S, Throttle
from parties.session.enrollment import close_enrollment
from parties.session.study import Study
from protocols.products import KERNELS

_COUNTING_NOTICE_S = 2.0
"""Minimum interval between progress messages while rows are counted, in seconds."""
_WAITING_NOTICE_S = 1.0
"""Minimum interval between 'waiting' messages, in seconds."""


class OperatorNotices:
    """``AdmissionObserver`` of server ``pid``: reports to ``progress``, and closes the enrollment in ``store``."""

    def __init__(self, study: Study, pid: int, store: Store, progress: Progress) -> None:
        self._study = study
        self._pid = pid
        self._store = store
        self._progress = progress
        self._throttle = Throttle(longest_s=LONGEST_GATHERING_S)
        self._overdue = OverdueUploads()
        self._last_notice = -math.inf

    def waiting(self, state: WaitStatus) -> None:
        """See ``WaitObserver.waiting``."""
        if time.monotonic() < self._last_notice + _WAITING_NOTICE_S:
            return
        config = self._study.config
        state = replace(state, incomplete=self._overdue.settled(state.incomplete))
        said = (state.stored, state.complete, tuple(state.incomplete), state.commands)
        if self._throttle.due(repr(said)):
            self._last_notice = time.monotonic()
            text = waiting_text(
                config, self._pid, state, self._store.submissions.missing(config.owners)
            )
            left = round(state.left_s, 1)
            self._progress.event("waiting", text, done=state.stored, closing_s=left)

    def counting(self, batch: SubmissionBatch) -> OnCountingProgress:
        """See ``CountingObserver.counting``: reports the cost of counting the batch, and then its progress."""
        config, owners, rows = self._study.config, len(batch.clients), batch.rows
        linking = ""
        if config.sources:
            declared = {s.submission.client: s.submission.capacity for s in batch.submissions}
            linking = f"linking {rows:,} rows, then "
            rows = SourceLink(config).candidates(declared)
        effort = CountingCost.of(self._study.workload, rows, config.run.security)
        text = f"{linking}counting rows of {owners} data owners, at most {effort}"
        self._progress.event("counting", text, kernel=KERNELS[0])
        notified_at = time.monotonic()

        def on_part(done: int, of: int) -> None:
            nonlocal notified_at
            if done == of or time.monotonic() - notified_at > _COUNTING_NOTICE_S:
                notified_at = time.monotonic()
                text = f"counting rows, {done} of {of} parts"
                self._progress.event(WORKING, text, done=done, of=of)

        return on_part

    def closed(self) -> None:
        """See ``AdmissionObserver.closed``."""
        close_enrollment(self._store)
        self._progress.event(
            "closed", "closed: data owners that have not submitted yet come too late"
        )
