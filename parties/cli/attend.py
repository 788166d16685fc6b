"""A participant's part in a study of FLAIM or between silos, for the command `join`: until the server's goodbye.

An invited participant sees what it agrees to in sentences, and its command outlives the server: whoever is away, or is
stopped, is waited for. What is final ends it: another configuration, another key, a study that is over, a budget that
is spent. The participant's ledger, its folder and the table's budget are on disk, so that the command goes on after a
kill. Secret: the table, and its number of rows, which are for the screen of its owner.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import click

from mechanisms.accounting import Ledger
from parties.cli.consent import federation_consent
from parties.cli.runtime import (
    command_progress,
    make_private,
    print_json,
    print_lines,
    run_supervised,
)
from parties.cli.submit import column_text, confirm, cost_lines
from parties.config import Config
from parties.config.provenance import check_confirmed
from parties.federation.client import (
    ParticipantReport,
    Participation,
    run_participant,
    with_epsilon,
)
from parties.federation.client_session import SumSession
from parties.federation.method import ServedMethod
from parties.foundation.errors import FrameConnectError, FrameTransportError, PartyError, ServerAway
from parties.foundation.exit_codes import FederationRefused, NotYet, Status
from parties.local.processes import Supervision
from parties.mpc.submission.repetition import Repetition
from parties.mpc.submission.result import is_over
from parties.observability.events import Event, Progress
from parties.session.owner import DataOwner
from parties.storage.files import disk_errors, write_atomic
from parties.storage.owner_budget import BudgetAccount
from parties.storage.population_budget import Release

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_PASSING = (Status.NETWORK, Status.NOT_ENROLLED)
"""Statuses of a refusal that says nothing about the participant: the server stops, or the study is over."""
_CONSENT = "consent"
"""File of the digest that the owner has agreed to, beside the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationPart:
    """The part of ``owner`` in a run with one server, checked with its table.

    ``folder`` has its ledger; ``epsilon`` is its own, where the method lets it choose.
    """

    owner: DataOwner
    part: Participation[SumSession]
    folder: Path
    epsilon: float | None

    @classmethod
    def of(
        cls,
        owner: DataOwner,
        served: ServedMethod,
        directory: Path | None,
        *,
        epsilon: float | None,
        not_private: bool,
    ) -> "FederationPart":
        """Checks the table, and that the participant has allowed what the run is. Raises UsageError, DataError."""
        config = owner.config
        check_confirmed(config)
        part = served.participation(config, owner.table)
        if not part.private and not not_private:
            raise click.UsageError(
                f"{' '.join(part.guarantee(Ledger(0.0)))} Say --not-private to take part all the same, or ask for a "
                "run with noise."
            )
        if epsilon is not None and not part.own_epsilon:
            raise click.UsageError(
                f"--epsilon is for algorithms with each silo's own noise; here all silos have run.epsilon, "
                f"{config.run.epsilon:g}"
            )
        folder = directory or owner.beside(served.key)
        return cls(owner=owner, part=part, folder=folder, epsilon=epsilon)

    @property
    def release(self) -> Release:
        """Maximum release of the participation."""
        found = self.part.release
        return found if self.epsilon is None else with_epsilon(found, self.epsilon)

    @property
    def agreed(self) -> bool:
        """True if the owner has agreed to this study before; another study of the same name is asked about anew."""
        path = self.folder / _CONSENT
        with disk_errors(path, "read"):
            return path.is_file() and path.read_bytes() == self.owner.config.digest().encode()

    def keep_agreement(self) -> None:
        """Records that the owner agrees to this study. Raises StoreError."""
        make_private(self.folder)
        write_atomic(self.folder / _CONSENT, self.owner.config.digest(), durable=True)

    def consent(self) -> str:
        """Returns what the participant agrees to."""
        release = self.release
        quote = self.owner.quote(release)
        cost = cost_lines(quote, epsilon=release.epsilon, delta=release.delta)
        if not self.part.private:
            cost = ["No epsilon holds for the people in your table afterwards."]
        return federation_consent(
            self.owner.study,
            self.owner.name,
            rows=len(self.owner.table.text(self.owner.config)),
            guarantee=self.part.guarantee(Ledger(0.0)),
            private=self.part.private,
            cost=cost,
        )

    async def take_part(self, account: BudgetAccount, progress: Progress) -> ParticipantReport:
        """Takes part until the server's goodbye. Raises as ``run_participant``."""
        return await run_participant(
            self.owner.config,
            self.part,
            self.owner.files,
            self.folder,
            progress=progress,
            account=account,
            epsilon=self.epsilon,
        )


def show_check(found: FederationPart, *, as_json: bool) -> None:
    """Shows what the participant would agree to, and what it costs; sends, makes and charges nothing.

    Raises BudgetExceeded if the run could not be charged.
    """
    owner, release = found.owner, found.release
    codes, columns = owner.codes_and_summaries()
    if as_json:
        print_json(
            {
                "run": owner.config.run.id,
                "client": owner.name,
                "rows": len(codes),
                "columns": [column.to_dict() for column in columns],
                "guarantee": list(found.part.guarantee(Ledger(0.0))),
                "cost": owner.quote(release).to_dict(),
            }
        )
    else:
        width = max((len(column.name) for column in columns), default=0)
        lines = [f"  {column.name:<{width}}  {column_text(column)}" for column in columns]
        print_lines(["the columns, for your eyes only:", *lines, *found.consent().splitlines()])
        print_lines(["nothing was sent, and nothing was charged; syncret doctor asks the server"])
    if not owner.quote(release).covered:
        owner.account(release).require()


def attend(found: FederationPart) -> ParticipantReport:
    """Takes part by a configuration; a server that is away ends it."""
    account = _opened(found)

    async def take_part(supervision: Supervision) -> ParticipantReport:
        return await found.take_part(account, command_progress())

    return run_supervised(take_part, watch_stdin=False, events=None)


def attend_invited(found: FederationPart, *, wait_s: float, asks: bool) -> ParticipantReport | None:
    """Takes part by an invitation, from consent to the server's goodbye; returns None if the study was over before.

    An owner that has agreed to the study is not asked again. Raises NotYet if the server is away for ``wait_s`` s.
    """
    found.owner.account(found.release).require()
    if not found.agreed:
        click.echo(found.consent(), err=True)
        if asks:
            confirm("Did you hear these words, and do you agree?")
        found.keep_agreement()
    account, owner = _opened(found), found.owner

    async def take_part(supervision: Supervision) -> ParticipantReport | None:
        return await until_over(
            lambda progress: found.take_part(account, progress),
            lambda: is_over(owner.config, owner.files),
            wait_s=wait_s,
            progress=command_progress(),
        )

    again = "the same command goes on"
    return run_supervised(take_part, watch_stdin=False, events=None, again=again)


def _opened(found: FederationPart) -> BudgetAccount:
    if found.part.keeps_secrets:
        make_private(found.folder)
    return found.owner.account(found.release)


class _Joined:
    """Sink that notes whether the server has welcomed the participant."""

    def __init__(self) -> None:
        self.seen = False

    def take(self, event: Event) -> None:
        self.seen = self.seen or event.name == "joined"


async def until_over(
    attempt: Callable[[Progress], Awaitable[ParticipantReport]],
    over: Callable[[], Awaitable[bool]],
    *,
    wait_s: float,
    progress: Progress,
) -> ParticipantReport | None:
    """Attempts to take part until it succeeds; returns None once the study is ``over``.

    A server that is away, stops or fails is tried again, until it has not welcomed the participant for ``wait_s``
    seconds. Raises NotYet then, and at once whatever is final.
    """
    waits: Repetition | None = None
    while True:
        joined = _Joined()
        error: PartyError
        try:
            return await attempt(progress.also(joined))
        except FederationRefused as refused:
            if refused.status not in _PASSING:
                raise
            error = refused
        except FrameTransportError as lost:
            # A server without the pinned key, or a proxy that refuses, does not change.
            if isinstance(lost, FrameConnectError) and not isinstance(lost, ServerAway):
                raise
            error = lost
        if await over():
            return None
        if isinstance(error, FederationRefused) and error.status is Status.NOT_ENROLLED:
            raise error
        if waits is None or joined.seen:
            waits = Repetition(
                wait_s,
                first_s=_FIRST_PAUSE_S,
                longest_s=_LONGEST_PAUSE_S,
                event="waiting-for-server",
                progress=progress,
            )
        if not await waits.again(str(error)):
            raise NotYet(f"{error}; the same command goes on") from error


def attendance_text(report: ParticipantReport, config: Config) -> str:
    """Returns a participant's report for people."""
    rounds = f"{report.facts['rounds']} rounds and " if "rounds" in report.facts else ""
    spent = f"rho {report.rho_spent:.6g} of {report.rho_total:.6g} spent by its own ledger"
    return "\n".join(
        (
            f"run {config.run.id}: {report.client} took part in {rounds}{report.sums} sums, {report.given_up} of them "
            "given up",
            *([spent] if report.rho_total else []),
            *report.guarantee,
            f"{report.sent_bytes} bytes sent, {report.received_bytes} received in {report.seconds:.1f} s",
        )
    )
