"""What the command `submit` says to people. Secret: a preview, which is for the screen of the table's owner."""

from collections.abc import Sequence
from pathlib import Path

from mechanisms.summary import ColumnSummary
from parties.budget import Quote
from parties.distaim.preview import Preview
from parties.distaim.standing import Told, counted_text, due_text
from parties.distaim.submit import Submitted
from parties.distaim.taking_back import TakenBack

_WIDTH = 40


def preview_text(found: Preview) -> str:
    """All that --check shows."""
    width = max((len(column.name) for column in found.columns), default=0)
    lines = [f"{_many(found.rows)}; the columns, for your eyes only:"]
    lines += [f"  {column.name:<{width}}  {column_text(column)}" for column in found.columns]
    lines += [f"to run {found.run}, as {found.client}: {sending_text(found)}", *_cost(found)]
    lines += [f"{s.party} at {s.address}: {s.says}" for s in found.servers]
    return "\n".join([*lines, "nothing was sent, and nothing was charged"])


def question_text(found: Preview) -> str:
    """In short, what is about to be sent, before the owner is asked."""
    lines = [f"run {found.run}, as {found.client}: {_many(found.rows)}; {sending_text(found)}"]
    away = [server for server in found.servers if not server.takes]
    lines += [*_cost(found), *(f"{s.party} at {s.address}: {s.says}" for s in away)]
    return "\n".join(lines)


def column_text(column: ColumnSummary) -> str:
    """What is in a column."""
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
    """What is sent to whom."""
    if found.earlier:
        return "this submission was made before; what is missing of it is sent, and nothing charged"
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
    cost = found.cost
    if not cost.rho:
        return [
            f"dataset {cost.dataset}: the run is charged already, and once for all that you send of it"
        ]
    released = f"takes of your table's privacy epsilon {found.epsilon:g}, delta {found.delta:g} (rho {cost.rho:.4g})"
    return [released, _left(cost)]


def _left(cost: Quote) -> str:
    if cost.new:
        return f"dataset {cost.dataset}: new; this release sets its lifetime limit, and nothing is left of it then"
    spent = f"dataset {cost.dataset}: rho {cost.spent:.4g} of {cost.limit:.4g} is spent"
    if not cost.covered:
        return f"{spent}; {cost.left:.4g} is left, which DOES NOT COVER this release: see syncret budget"
    return f"{spent}; {cost.left:.4g} is left before, {max(0.0, cost.left - cost.rho):.4g} after this release"


def _cut(value: str) -> str:
    shown = repr(value) if not value.isprintable() or value != value.strip() or not value else value
    return shown if len(shown) <= _WIDTH else shown[: _WIDTH - 3] + "..."


def standings_text(told: Sequence[Told]) -> str:
    """What each server says became of the submission."""
    if not told:
        return (
            "no server answers whether it is counted; after the run's end its result.json and transcripts have the "
            "digest"
        )
    return "\n".join(f"{each.party} says: {each.text}" for each in told)


def withdrawn_text(found: TakenBack, run: str) -> str:
    """How far it is that a submission is withdrawn."""
    if found.complete:
        return (
            f"run {run}: the submission of {found.client} is withdrawn. All three servers have signed that nothing of "
            "it was counted, or ever will be, and that their shares are deleted"
        )
    return (
        f"run {run}: the withdrawal of {found.client} is on its way: {_far(found)}. It takes effect when the servers "
        "meet over it, unless a round begins with the rows before; nothing is given back until all three have signed. "
        "Run the same command again to ask"
    )


def returned_text(datasets: Sequence[str], budget: Path) -> str:
    """Whose budget got back what was charged."""
    if not datasets:
        return f"{budget} has no charge for it: nothing was given back"
    return f"what was charged for it is given back to dataset {' and '.join(datasets)}"


def former_text(found: TakenBack) -> str:
    """How far it is that a former submission is replaced."""
    if found.complete:
        return (
            "the former submission is replaced: all three servers have signed that nothing of it was counted, and that "
            "their shares are deleted"
        )
    return (
        f"the former submission is not gone yet: {_far(found)}. The new one takes its place when the servers meet over "
        "it, unless a round begins with the former one before: ask later with --status"
    )


def _far(found: TakenBack) -> str:
    heard = (
        (found.confirmed, "has signed", "have signed"),
        (found.waiting, "knows of it", "know of it"),
        (found.counted, "says that it is counted", "say that it is counted"),
    )
    parts = [
        f"{' and '.join(sorted(who))} {one if len(who) == 1 else more}"
        for who, one, more in heard
        if who
    ]
    known = found.counted.keys()
    parts += [f"{n}: {why}" for n, why in sorted(found.problems.items()) if n not in known]
    return "; ".join(parts)


def submitted_text(found: Submitted, told: Sequence[Told] = ()) -> str:
    """What became of a submission; what servers have ``told`` of it since is left to ``standings_text``."""
    if found.first_round is None:
        return f"{found.client} was not drawn for any round of run {found.run}; nothing was sent"
    lines = ["sent before; nothing was sent now"] if found.earlier else []
    lines += [
        f"run {found.run}: the submission of {found.client} {_where(found)}",
        f"{_rows(found)}{_round(found, told)}",
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


def _round(found: Submitted, told: Sequence[Told]) -> str:
    """From which round its rows count, as far as servers have said so."""
    counted = {each.round for each in told if each.counted and each.upload == found.upload}
    if counted:
        return " or ".join(counted_text(number) for number in sorted(counted, key=str))
    if found.counted_from is None:
        return f"due in round {found.first_round} at the earliest; --status says when it is counted"
    return f"{due_text(found.counted_from)}; --status says whether it is counted"


def _where(found: Submitted) -> str:
    if found.complete:
        return "is at all three servers"
    has = " and ".join(receipt.party for receipt in found.receipts)
    if not found.kept_for:
        return f"is at {has}; no other server confirms it. Send it again: what is there is kept"
    away = " and ".join(found.kept_for)
    verb = "is" if len(found.kept_for) == 1 else "are"
    return (
        f"is at {has} and, as {found.via} says, kept for {away}, who {verb} away. It counts when three receipts are "
        "there: ask later with --status"
    )
