"""`syncret bench attacks`: what a server that deviates can do, in both security modes."""

import json
import sys
from collections import Counter

import click

from bench.attacks.deviations import GENERIC, STRUCTURED
from bench.attacks.judge import (
    ABORTED,
    MALICIOUS,
    RIGHTFUL,
    SEMI_HONEST,
    Result,
    generic,
    structured,
    without_control,
)
from bench.attacks.programs import TARGETS
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
    type=click.Choice(tuple(TARGETS)),
    help="Whose messages are changed; may be given several times [all].",
)
@click.option(
    "--messages",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Of each step, for each kind of change: how many, by one party after the other.",
)
@click.option("--all", "everything", is_flag=True, help="Every message of every party: hours.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def attacks(
    attacks: tuple[str, ...],
    programs: tuple[str, ...],
    messages: int,
    *,
    everything: bool,
    as_json: bool,
) -> None:
    """Let one of three parties deviate, in one process, and see what the two others open.

    All is tried in both modes. In malicious mode every attack has to end the run, and nothing is opened but what an
    honest run opens. In semi-honest mode the same attacks are the controls: structured ones have to succeed, and of
    changed messages some in every program that computes on shares. The exit status is 1 where anything else comes out.
    """
    most = None if everything else messages
    aimed = [name for name in attacks or STRUCTURED if name in STRUCTURED]
    kinds = [name for name in attacks or GENERIC if name in GENERIC]
    results: list[Result] = list(structured(aimed, most)) if aimed else []
    if kinds:
        for name in programs or TARGETS:
            found = list(generic([name], kinds, most, (SEMI_HONEST, MALICIOUS)))
            results += found
            click.echo(f"{name}: {_counts(found)}", err=True)
    wrong = [result for result in results if not result.as_it_should_be]
    tame = without_control(results) if not attacks else []
    if as_json:
        document = {"ok": not wrong and not tame, "attacks": [r.to_dict() for r in results]}
        click.echo(json.dumps(document | {"without_control": tame}))
    else:
        click.echo(summary(results))
        for name in tame:
            click.echo(f"{name}: no change of a message succeeds in semi-honest mode")
        click.echo(f"{len(results)} attacks, {len(wrong)} that came out otherwise than they should")
    if wrong or tame:
        sys.exit(1)


def _counts(results: list[Result]) -> str:
    return "; ".join(
        f"{security}: {_outcomes([r for r in results if r.security == security])}"
        for security in (SEMI_HONEST, MALICIOUS)
    )


def _outcomes(results: list[Result]) -> str:
    counted = Counter(result.outcome for result in results)
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(counted.items())) or "none"


def summary(results: list[Result]) -> str:
    """A line for each attack: what came of it in either mode, and an example of what was said."""
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
    return markdown_table(head, rows, right=())
