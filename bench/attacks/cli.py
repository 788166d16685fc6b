"""`syncret bench attacks`: what a server that deviates can do, in both security modes."""

import json
import sys
from collections import Counter

import click

from bench.attacks.deviations import GENERIC, STRUCTURED
from bench.attacks.judge import ABORTED, Result, generic, structured
from bench.attacks.programs import PROGRAMS
from bench.markdown import markdown_table

_EXAMPLE = "Example: syncret bench attacks --attack A-below --attack flip --program carries --json"


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
    type=click.Choice(tuple(PROGRAMS)),
    help="Whose messages are changed; may be given several times [all].",
)
@click.option(
    "--messages",
    type=click.IntRange(1),
    default=6,
    show_default=True,
    help="Of each party and program: how many, spread from the first to the last.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def attacks(
    attacks: tuple[str, ...], programs: tuple[str, ...], messages: int, *, as_json: bool
) -> None:
    """Let one of three parties deviate, in one process, and see what the two others open.

    Structured attacks are carried out in semi-honest mode, where they succeed, and in malicious mode, where they have
    to end the run before an opening. Changes of messages are tried in malicious mode, message after message. The exit
    status is 1 where anything else comes out.
    """
    results: list[Result] = []
    aimed = [name for name in attacks or STRUCTURED if name in STRUCTURED]
    kinds = [name for name in attacks or GENERIC if name in GENERIC]
    if aimed:
        results += structured(aimed, messages)
    if kinds:
        for name in programs or PROGRAMS:
            results += generic([name], kinds, messages)
            click.echo(f"{name}: {_count(results, name)}", err=True)
    wrong = [result for result in results if not result.as_it_should_be]
    if as_json:
        click.echo(json.dumps({"ok": not wrong, "attacks": [r.to_dict() for r in results]}))
    else:
        click.echo(_table(results))
        click.echo(f"{len(results)} attacks, {len(wrong)} that came out otherwise than they should")
    if wrong:
        sys.exit(1)


def _count(results: list[Result], program: str) -> str:
    outcomes = Counter(result.outcome for result in results if result.program == program)
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))


def _table(results: list[Result]) -> str:
    """A line for each attack, program and mode: what became of how many, and an example of what was said."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.attack, result.program, result.security), []).append(result)
    rows = []
    for (attack, program, security), found in groups.items():
        outcomes = Counter(result.outcome for result in found)
        counted = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
        said = next((r.noticed for r in found if r.outcome == ABORTED), "")
        rows.append((attack, program, security, counted, said[:90]))
    return markdown_table("attack | on, or after | security | outcome | noticed", rows, right=())
