"""A data owner's participation in a run of DistAIM, for the command `join`, and its texts for people.

Secret: a preview, which is for the screen of the table's owner.
"""

import json
import sys
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

import click

from mechanisms.summary import ColumnSummary
from mechanisms.text_table import and_list
from parties.cli.budget import budget_state_text, cost_text
from parties.cli.consent import consent_text
from parties.cli.runtime import command_progress, run_supervised
from parties.config.provenance import check_confirmed
from parties.foundation.errors import SubmitError
from parties.foundation.exit_codes import Status, Stopped
from parties.local.processes import Supervision
from parties.mpc.planning.budget import distaim_release
from parties.mpc.planning.validation import validate_owner
from parties.mpc.submission.earlier_releases import ask_earlier_releases
from parties.mpc.submission.participation import (
    other_states,
    preview_rows,
    refunds_of,
    replace_rows,
    restoration_of,
    state_path,
    submit_rows,
)
from parties.mpc.submission.preview import Preview
from parties.mpc.submission.resubmit import (
    Replacement,
    complete_replacement,
    fetch_return,
    saved_submission,
    withdraw,
)
from parties.mpc.submission.state import (
    WithdrawnSubmissions,
    completed_receipt_of,
    load_withdrawn,
)
from parties.mpc.submission.status import (
    ServerAnswer,
    SubmissionStatus,
    ask_servers,
    counted_text,
    due_round_text,
    submission_statuses,
)
from parties.mpc.submission.submit import Submitted, previous_submission, refresh_receipts
from parties.mpc.submission.withdrawal_client import WithdrawalProgress
from parties.session.owner import DataOwner
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import BudgetQuote, OwnerBudget
from parties.storage.told_releases import ToldReleases

_WIDTH = 40


def preview_text(found: Preview) -> str:
    """Returns the text of --check."""
    width = max((len(column.name) for column in found.columns), default=0)
    lines = [f"{_many(found.rows)}; the columns, for your eyes only:"]
    lines += [f"  {column.name:<{width}}  {column_text(column)}" for column in found.columns]
    lines += [f"to run {found.run}, as {found.client}: {sending_text(found)}", *_cost(found)]
    lines += [f"{s.party} at {s.address}: {s.says}" for s in found.servers]
    return "\n".join([*lines, "nothing was sent, and nothing was charged"])


def question_text(found: Preview) -> str:
    """Returns a short description of the upload, for the owner's confirmation."""
    lines = [f"run {found.run}, as {found.client}: {_many(found.rows)}; {sending_text(found)}"]
    away = [server for server in found.servers if not server.takes]
    lines += [*_cost(found), *(f"{s.party} at {s.address}: {s.says}" for s in away)]
    return "\n".join(lines)


def column_text(column: ColumnSummary) -> str:
    """Returns the summary of a column's values."""
    parts = [column.kind]
    if column.low is not None:
        parts.append(f"{column.low} to {column.high}")
    if column.frequent:
        parts.append(", ".join(f"{_cut(value)} {count:,}" for value, count in column.frequent))
        more = column.distinct - len(column.frequent)
        parts += [f"and {more} more"] if more > 0 else []
    parts += [f"{column.missing:,} missing"] if column.missing else []
    return "; ".join(parts)


def sending_text(found: Preview) -> str:
    """Returns the description of the upload and its recipients."""
    if found.earlier:
        return "this submission was made before; its missing parts are sent, and nothing is charged"
    others = "".join(
        f"; by {form} it would be {size:,}"
        for form, size in found.sent_bytes_by_form.items()
        if form != found.form
    )
    return (
        f"{found.sent_bytes:,} bytes to one of {len(found.servers)} servers, sealed for each (form {found.form}, "
        f"{found.cells:,} cells; as many for every table of at most {found.capacity:,} rows{others})"
    )


def _cost(found: Preview) -> list[str]:
    return cost_lines(found.cost, epsilon=found.epsilon, delta=found.delta)


def cost_lines(cost: BudgetQuote, *, epsilon: float, delta: float) -> list[str]:
    """Returns sentences on what a run takes of a table's budget, and what is left of it."""
    if not cost.rho:
        return [
            f"population {cost.dataset}: the run is charged already; further parts of it cost nothing"
        ]
    released = (
        f"takes of your table's privacy epsilon {epsilon:g}, delta {delta:g} (rho {cost.rho:.4g})"
    )
    return [released, _left(cost)]


def _left(cost: BudgetQuote) -> str:
    if cost.new:
        return f"population {cost.dataset}: new; this release sets its lifetime limit, and uses all of it"
    spent = f"population {cost.dataset}: rho {cost.spent:.4g} of {cost.limit:.4g} is spent"
    if not cost.covered:
        return f"{spent}; {cost.left:.4g} is left, which DOES NOT COVER this release: see syncret budget"
    return f"{spent}; {cost.left:.4g} is left, and {max(0.0, cost.left - cost.rho):.4g} after this release"


def _cut(value: str) -> str:
    shown = repr(value) if not value.isprintable() or value != value.strip() or not value else value
    return shown if len(shown) <= _WIDTH else shown[: _WIDTH - 3] + "..."


def status_text(answers: Sequence[SubmissionStatus]) -> str:
    """Returns the status of the submission by each server."""
    if not answers:
        return (
            "no server answers whether it is counted; after the run's end its result.json and transcripts have the "
            "digest"
        )
    return "\n".join(f"{each.party} says: {each.text}" for each in answers)


def withdrawn_text(found: WithdrawalProgress, run: str) -> str:
    """Returns the progress of a withdrawal."""
    if found.complete and found.void:
        return (
            f"run {run} is over. {_signed(found)} that nothing of the submission of {found.client} was opened, or ever "
            "will be, and that their shares are deleted"
        )
    if found.complete:
        return (
            f"run {run}: the submission of {found.client} is withdrawn, or was ended by the servers' operators: "
            f"{_signed(found)} that nothing of it was counted, or ever will be, and that their shares are deleted"
        )
    return (
        f"run {run}: the withdrawal of {found.client} is on its way: {_progress_text(found)}. It takes effect when "
        "the servers agree on it, unless a round begins with the rows before that. The charge is given back once two "
        "of three servers have signed. Run the same command again to ask"
    )


def _signed(found: WithdrawalProgress) -> str:
    return f"{and_list(sorted(found.confirmed))} have signed"


def returned_text(populations: Sequence[str], budget: Path, digest: str) -> str:
    """Returns the charges for configuration ``digest`` that came back, and what is spent of each budget now."""
    found = OwnerBudget(budget)
    if not populations:
        left = [
            f"population {population.name} is still charged for this study ({cost_text(run.release)})"
            for population in (found.datasets() if budget.exists() else ())
            for run in population.runs
            if run.release.config == digest and not run.returned
        ]
        if not left:
            return f"nothing of it is charged in {budget}"
        return f"{budget}: {'; '.join(left)}. It comes back with --state and the file of the submission that was sent"
    lines = []
    for name in dict.fromkeys(populations):
        population = found.dataset(name)
        back = [run for run in population.runs if run.returned and run.release.config == digest]
        cost = f" ({cost_text(back[-1].release)})" if back else ""
        lines.append(
            f"its charge{cost} is given back to population {name}: {budget_state_text(population)}"
        )
    return "\n".join(lines)


def replaced_text(found: WithdrawalProgress) -> str:
    """Returns the progress of a replacement."""
    if found.complete:
        return (
            f"the former submission is replaced: {_signed(found)} that nothing of it was counted, and that their "
            "shares are deleted"
        )
    return (
        f"the former submission is not gone yet: {_progress_text(found)}. The new one takes its place when the "
        "servers agree on it, unless a round begins with the former one before that: ask later with --status"
    )


def _progress_text(found: WithdrawalProgress) -> str:
    heard = (
        (found.confirmed, "has signed", "have signed"),
        (found.waiting, "knows of it", "know of it"),
        (found.counted, "says that it is counted", "say that it is counted"),
    )
    parts = [
        f"{and_list(sorted(who))} {one if len(who) == 1 else more}"
        for who, one, more in heard
        if who
    ]
    known = found.counted.keys()
    parts += [f"{n}: {why}" for n, why in sorted(found.problems.items()) if n not in known]
    return "; ".join(parts)


def submitted_text(found: Submitted, answers: Sequence[SubmissionStatus] = ()) -> str:
    """Returns the result of a submission; ``status_text`` describes later ``answers`` of servers."""
    if found.first_round is None:
        return f"{found.client} was not drawn for any round of run {found.run}; nothing was sent"
    lines = ["sent before; nothing was sent now"] if found.earlier else []
    lines += [
        f"run {found.run}: the submission of {found.client} {_where(found, answers)}",
        f"{_rows(found)}{_round(found, answers)}",
        f"{found.cells} cells, form {found.form}, {found.traffic.sent_bytes} bytes sent in "
        f"{found.seconds:.1f} s",
        f"digest {found.upload}",
    ]
    names = ", ".join(receipt.party for receipt in found.receipts)
    return "\n".join([*lines, f"receipts signed by {names}"])


def _rows(found: Submitted) -> str:
    return "" if found.rows is None else f"{_many(found.rows)}, "


def _many(rows: int) -> str:
    return f"{rows:,} row{'s' * (rows != 1)}"


def _round(found: Submitted, answers: Sequence[SubmissionStatus]) -> str:
    """Returns the round from which the rows count, as far as servers have said so."""
    counted = {each.round for each in answers if each.counted and each.upload == found.upload}
    if counted:
        return " or ".join(counted_text(number) for number in sorted(counted, key=str))
    if any(each.excluded is not None or each.counted_from is None for each in answers):
        return (
            "not counted, as the servers say below; --withdraw takes back what no round has counted"
        )
    if found.counted_from is None:
        return f"due in round {found.first_round} at the earliest; --status says when it is counted"
    return f"{due_round_text(found.counted_from)}; --status says whether it is counted"


def _where(found: Submitted, answers: Sequence[SubmissionStatus]) -> str:
    lacking = [each.party for each in answers if each.upload != found.upload]
    if lacking:
        return f"is not, or not any more, at {and_list(lacking)}, as they say"
    if found.complete:
        return "is at all three servers"
    has = and_list(receipt.party for receipt in found.receipts)
    if not found.kept_for:
        return f"is at {has}; no other server confirms it. Send it again: what is there is kept"
    away = and_list(found.kept_for)
    verb = "is" if len(found.kept_for) == 1 else "are"
    return (
        f"is at {has} and, as {found.via} says, kept for {away}, who {verb} away. It counts when three receipts are "
        "there: ask later with --status"
    )


def participate(
    owner: DataOwner,
    capacity: int | None,
    state: Path | None,
    *,
    checks: bool,
    asks: bool,
    replaces: bool,
    withdraws: bool,
    yes: bool,
    as_json: bool,
    invited: bool = False,
) -> Submitted | None:
    """Participates in a run of DistAIM, or asks about, replaces or withdraws a submission. Prints the outcome.

    An ``invited`` owner sees what it agrees to in sentences. Returns what was sent, if anything; it is then printed as
    text, and JSON is left to the caller of an invited owner.
    """
    if asks + withdraws + (checks or replaces) > 1:
        raise click.UsageError(
            "give one of --check, --replace, --withdraw and --status; --check may stand beside --replace"
        )
    path, may_ask = state_path(owner, state), not yes and in_terminal()
    if not (asks or withdraws):
        check_confirmed(owner.config)
        validate_owner(owner.study)
    if asks:
        _ask(owner, path, as_json=as_json)
    elif withdraws:
        _withdraw(owner, path, asks=may_ask, as_json=as_json)
    elif checks:
        _check(owner, path, capacity, replaces=replaces, as_json=as_json)
    elif replaces:
        _replace(owner, path, capacity, asks=may_ask, as_json=as_json)
    else:
        found = _send(owner, path, capacity, asks=may_ask, invited=invited)
        if not (as_json and invited):
            click.echo(json.dumps(found.to_dict(), indent=2) if as_json else submitted_text(found))
        return found
    return None


def in_terminal() -> bool:
    """Returns true if questions, which go to standard error, reach a user."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(owner: DataOwner, path: Path, *, as_json: bool) -> None:
    async def ask(supervision: Supervision) -> None:
        await show_status(owner, path, as_json=as_json)

    run_supervised(ask, watch_stdin=False, events=None)


async def show_status(owner: DataOwner, path: Path, *, as_json: bool) -> None:
    """Prints the status of the submission in a state file, and fetches the charge that servers have signed back."""
    config, files = owner.config, owner.files
    gone = load_withdrawn(path, config.digest(), owner.name)
    heard = await ask_servers(config, files)
    answers = submission_statuses(heard)
    datasets: list[str] = []
    refunds = refunds_of(owner, datasets)
    closed = [each for each in heard if each.status == HTTPStatus.GONE]
    # One server alone does not end a study that another still answers for.
    over = len(closed) > 1 or (bool(closed) and not answers)
    if over or sum(bool(each.settled) for each in answers) >= 2:
        found = await fetch_return(config, files, state=path, give_back=refunds)
        returned = found if found is not None and found.complete else None
        if over or returned is not None:
            if returned is None and gone is None:
                _adopt_sent(owner, path)
            _show_over(owner, (returned, datasets), heard, gone=gone, as_json=as_json)
            return
    former = await complete_replacement(
        config,
        files,
        state=path,
        statuses=answers,
        give_back=refunds,
        restore=restoration_of(owner),
    )
    made: Submitted | None = None
    if gone is None:
        made = await refresh_receipts(config, files, path)
        document, text = made.to_dict(), submitted_text(made, answers)
    else:
        signed = WithdrawalProgress.from_proof(gone.proof, gone.version)
        document, text = signed.to_dict(), withdrawn_text(signed, config.run.id)
    if former is not None:
        document = document | {"former": former.to_dict()}
        text = f"{text}\n{replaced_text(former)}"
    document = {**document, "standings": [each.to_dict() for each in answers]}
    text = "\n".join(
        [
            text,
            status_text(answers),
            *(f"{each.party.name} alone {each.problem}" for each in closed),
        ]
    )
    click.echo(json.dumps(document, indent=2) if as_json else text)
    if made is not None and made.digest is not None:
        _adopt_counted(owner, made.digest, [a for a in answers if a.upload == made.upload])


def _adopt_counted(owner: DataOwner, submission: str, answers: Sequence[SubmissionStatus]) -> None:
    """Charges a submission that servers say is counted, and that the budget does not have: an older copy of it.

    Raises StoreError if nobody can tell whose table it is.
    """
    if counting := [answer.party for answer in answers if answer.counted]:
        why = f"which is counted, as {and_list(counting)} said"
        _adopt(owner, submission, why, sure=len(counting) >= 2)


def _adopt_sent(owner: DataOwner, path: Path) -> None:
    """Charges a submission that all three servers had, of a study that is over and has signed nothing back.

    Raises StoreError if nobody can tell whose table it is.
    """
    if completed_receipt_of(path, owner.config.digest(), owner.name) is None:
        return
    made = saved_submission(owner.config, owner.name, path)
    if made is not None and made.submission is not None:
        _adopt(owner, made.submission, "which all three servers had", sure=False)


def _adopt(owner: DataOwner, submission: str, why: str, *, sure: bool) -> None:
    """Enters a charge that the budget does not have, because it was put back from an older copy."""
    state = None
    if owner.budget.exists():
        state = OwnerBudget(owner.budget).state(owner.config.digest(), submission)
    if state in (ChargeState.CHARGED, ChargeState.RELEASED):
        return
    if names := owner.account(distaim_release(owner.study)).adopt(submission, sure=sure):
        click.echo(
            f"{owner.budget} had no charge for this submission, {why}; it is charged to {names} now",
            err=True,
        )


def _show_over(
    owner: DataOwner,
    returned: tuple[WithdrawalProgress | None, list[str]],
    heard: Sequence[ServerAnswer],
    *,
    gone: WithdrawnSubmissions | None,
    as_json: bool,
) -> None:
    """Prints the status of a submission that servers have settled, or whose study is over as one of them says."""
    (found, datasets), run = returned, owner.config.run.id
    statuses = {each.party: each.text for each in submission_statuses(heard)}
    said = {each.party.name: statuses.get(each.party.name) or each.problem for each in heard}
    document: dict[str, object] = {"run": run, "over": said, "given_back_to": datasets}
    answers = "\n".join(f"{name}: {why}" for name, why in said.items())
    if found is None and gone is not None:
        found = WithdrawalProgress.from_proof(gone.proof, gone.version)
    if found is not None:
        document["void"] = found.to_dict()
        text = f"{withdrawn_text(found, run)}\n{returned_text(datasets, owner.budget, owner.config.digest())}"
    else:
        ended = [each.party.name for each in heard if each.status == HTTPStatus.GONE]
        say = "says" if len(ended) == 1 else "say"
        text = (
            f"run {run} is over, as {and_list(ended)} {say}: what was charged stays charged, since no two servers have "
            "signed that nothing of it was opened"
        )
    click.echo(json.dumps(document, indent=2) if as_json else f"{text}\n{answers}")


def _withdraw(owner: DataOwner, path: Path, *, asks: bool, as_json: bool) -> None:
    config = owner.config
    if asks:
        confirm(f"Withdraw the submission of {owner.name} from run {config.run.id}?")

    datasets: list[str] = []
    give_back = refunds_of(owner, datasets)

    async def take(supervision: Supervision) -> WithdrawalProgress:
        others = other_states(owner, path)
        return await withdraw(config, owner.files, state=path, give_back=give_back, others=others)

    found = run_supervised(take, watch_stdin=False, events=None)
    document = {"run": config.run.id, **found.to_dict(), "given_back_to": datasets}
    text = withdrawn_text(found, config.run.id)
    if found.complete:
        text += f"\n{returned_text(datasets, owner.budget, owner.config.digest())}"
    click.echo(json.dumps(document, indent=2) if as_json else text)


def confirm(question: str) -> None:
    """Asks the question. Raises Stopped if the answer is no."""
    if not click.confirm(question, err=True):
        raise Stopped("not confirmed: nothing was sent or charged", Status.INTERRUPTED)


def _check(
    owner: DataOwner, path: Path, capacity: int | None, *, replaces: bool, as_json: bool
) -> None:
    """Shows the preview, and fails where a submission would."""
    config = owner.config
    codes, columns = owner.codes_and_summaries()
    config.check_rows(len(codes), capacity)
    if replaces:
        made, before = saved_submission(config, owner.name, path), None
        paid = None if made is None else made.submission
    else:
        before = previous_submission(config, codes, owner.name, path, capacity=capacity)
        paid = before[0] if before else None
    found = _preview(owner, len(codes), capacity, columns, paid, earlier=before is not None)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else preview_text(found))
    for line in _unknown_releases(owner) if found.there else ():
        click.echo(line, err=True)
    if not found.cost.covered:
        owner.account(distaim_release(owner.study)).require()
    if not found.there:
        raise SubmitError("no server would take the submission now; what each says is above")


def _unknown_releases(owner: DataOwner) -> list[str]:
    """Returns a sentence for each earlier release that the servers tell and the budget lacks; charges nothing."""

    async def ask(supervision: Supervision) -> ToldReleases:
        return await ask_earlier_releases(owner.config, owner.files, owner.budget)

    found = run_supervised(ask, watch_stdin=False, events=None)
    return [
        f"{owner.budget} has no charge for {item.text} with your key; without --check that is charged first"
        for item in found.missing
    ]


def _preview(
    owner: DataOwner,
    rows: int,
    capacity: int | None,
    columns: Sequence[ColumnSummary],
    paid: str | None,
    *,
    earlier: bool = False,
) -> Preview:
    """Returns the preview of an upload; ``paid`` is an earlier submission with a charge that covers this one."""

    async def look(supervision: Supervision) -> Preview:
        return await preview_rows(
            owner, rows, columns, capacity=capacity, paid=paid, earlier=earlier
        )

    return run_supervised(look, watch_stdin=False, events=None)


def _send(
    owner: DataOwner, path: Path, capacity: int | None, *, asks: bool, invited: bool
) -> Submitted:
    config, progress = owner.config, command_progress()
    codes, columns = owner.codes_and_summaries()
    config.check_rows(len(codes), capacity)
    # A submission that was confirmed before is only sent again.
    if (asks or invited) and previous_submission(
        config, codes, owner.name, path, capacity=capacity
    ) is None:
        found = _preview(owner, len(codes), capacity, columns, None)
        text = consent_text(owner.study, found, _cost(found)) if invited else question_text(found)
        click.echo(text, err=True)
        if asks:
            confirm("Did you hear these words, and do you agree?" if invited else "Send it?")

    async def send(supervision: Supervision) -> Submitted:
        return await submit_rows(owner, codes, capacity=capacity, state=path, progress=progress)

    return run_supervised(send, watch_stdin=False, events=None)


def _replace(
    owner: DataOwner, path: Path, capacity: int | None, *, asks: bool, as_json: bool
) -> None:
    config, progress = owner.config, command_progress()
    codes, columns = owner.codes_and_summaries()
    config.check_rows(len(codes), capacity)
    if asks:
        made = saved_submission(config, owner.name, path)
        paid = None if made is None else made.submission
        click.echo(question_text(_preview(owner, len(codes), capacity, columns, paid)), err=True)
        confirm("Send it in the place of the former submission?")

    async def send(supervision: Supervision) -> Replacement:
        return await replace_rows(owner, codes, capacity=capacity, state=path, progress=progress)

    found = run_supervised(send, watch_stdin=False, events=None)
    document, text = found.submitted.to_dict(), submitted_text(found.submitted)
    if found.former is not None:
        document = document | {"former": found.former.to_dict()}
        text = f"{text}\n{replaced_text(found.former)}"
    elif found.submitted.earlier:
        text = f"the servers have this table already: nothing was replaced\n{text}"
    click.echo(json.dumps(document, indent=2) if as_json else text)
