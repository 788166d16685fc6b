"""`python -m tests.robustness attacks`: attacks of a deviating server, in both security modes."""

import json
import sys
from collections import Counter

import click

from bench.experiment.commands import json_object_option
from bench.experiment.markdown import markdown_table
from tests.robustness.attacks.deviations import GENERIC, STRUCTURED
from tests.robustness.attacks.goals.catalogue import GOALS
from tests.robustness.attacks.goals.results import Try, tried
from tests.robustness.attacks.judge import (
    ABORTED,
    MALICIOUS,
    RIGHTFUL,
    SEMI_HONEST,
    Result,
    generic,
    structured,
    without_control,
)
from tests.robustness.attacks.programs import TARGETS

_EXAMPLE = "Example: python -m tests.robustness attacks --attack A-below --attack flip --program carries --json"


@click.command(epilog=_EXAMPLE)
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    type=click.Choice((*STRUCTURED, *GENERIC)),
    help="A structured attack, or a change of messages; may be given several times [all].",
)
@click.option(
    "--program",
    "programs",
    multiple=True,
    type=click.Choice(tuple(TARGETS)),
    help="Whose messages are changed; may be given several times [all].",
)
@click.option(
    "--goal",
    "goals",
    multiple=True,
    type=click.Choice(tuple(GOALS)),
    help="What a server wants of a whole study, over restarts; may be given several times [all].",
)
@click.option(
    "--messages",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Of each step, for each kind of change: how many, by one party after the other.",
)
@click.option("--all", "everything", is_flag=True, help="Every message of every party: hours.")
@json_object_option
def attacks(
    attacks: tuple[str, ...],
    programs: tuple[str, ...],
    goals: tuple[str, ...],
    messages: int,
    *,
    everything: bool,
    as_json: bool,
) -> None:
    """Let one of three parties deviate, in one process, and see what the two others open.

    All is tried in both modes. In malicious mode every attack has to end the run, and nothing is opened but what an
    honest run opens. In semi-honest mode the same attacks are the controls: structured ones have to succeed, and of
    changed messages some in every program that computes on shares. Goals are pursued in whole studies of real servers:
    what was wanted, what the server got, what the others saw. The exit status is 1 where anything else comes out.
    With --goal alone, nothing else is tried; nor are goals with --attack or --program.
    """
    most = None if everything else messages
    changed = bool(attacks or programs or not goals)
    aimed = [name for name in attacks or STRUCTURED if name in STRUCTURED and changed]
    kinds = [name for name in attacks or GENERIC if name in GENERIC and changed]
    pursued = goals if goals or attacks or programs else tuple(GOALS)
    results: list[Result] = list(structured(aimed, most)) if aimed else []
    if kinds:
        for name in programs or TARGETS:
            found = list(generic([name], kinds, most, (SEMI_HONEST, MALICIOUS)))
            results += found
            click.echo(f"{name}: {_counts(found)}", err=True)
    tries = [result for name in pursued for result in tried(name, GOALS[name])]
    tame = without_control(results) if not attacks else []
    (_echo_json if as_json else _echo_text)(results, tries, tame)
    if tame or not all(_right(results, tries)):
        sys.exit(1)


def _right(results: list[Result], tries: list[Try]) -> list[bool]:
    """Expected outcome or not, for each result and each try."""
    return [r.as_it_should_be for r in results] + [t.as_it_should_be for t in tries]


def _echo_json(results: list[Result], tries: list[Try], tame: list[str]) -> None:
    document = {
        "ok": all(_right(results, tries)) and not tame,
        "attacks": [result.to_dict() for result in results],
        "goals": [result.to_dict() for result in tries],
        "without_control": tame,
    }
    click.echo(json.dumps(document))


def _echo_text(results: list[Result], tries: list[Try], tame: list[str]) -> None:
    for table in filter(None, (summary(results), goals_summary(tries))):
        click.echo(table)
    for name in tame:
        click.echo(f"{name}: no change of a message succeeds in semi-honest mode")
    right = _right(results, tries)
    wrong = right.count(False)
    click.echo(f"{len(right)} attacks, {wrong} that came out otherwise than they should")


def _counts(results: list[Result]) -> str:
    return "; ".join(
        f"{security}: {_outcomes([r for r in results if r.security == security])}"
        for security in (SEMI_HONEST, MALICIOUS)
    )


def _outcomes(results: list[Result]) -> str:
    counted = Counter(result.outcome for result in results)
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(counted.items())) or "none"


def goals_summary(tries: list[Try]) -> str:
    """Returns a Markdown table of tries: the server's aim, its gain, and the other servers' observation."""
    rows = [
        (t.goal, t.way, t.mode, t.wanted, "yes" if t.reached else "no", t.got, t.seen[:120])
        for t in tries
    ]
    head = "goal | way | mode | wanted | reached | got | the others saw"
    return markdown_table(head, rows, right=()) if rows else ""


def summary(results: list[Result]) -> str:
    """Returns a Markdown table of attacks: the outcome in each mode, and an example of an error message."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.attack, result.program), []).append(result)
    rows = []
    for (attack, program), found in groups.items():
        modes = [[r for r in found if r.security == s] for s in (SEMI_HONEST, MALICIOUS)]
        late = sum(r.opened == RIGHTFUL for r in modes[1])
        said = next((r.noticed for r in modes[1] if r.outcome == ABORTED), "")
        outcomes = [_outcomes(mode) for mode in modes]
        rows.append((attack, program, *outcomes, str(late) if late else "", said[:70]))
    head = "attack | on, or after | semi-honest | malicious | after a right opening | noticed"
    return markdown_table(head, rows, right=()) if rows else ""
