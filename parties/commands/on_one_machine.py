"""The common parts of `run`, `demo` and `flaim`: a run folder, progress while it runs, a report, closing lines.

Provides ``run_in_folder`` and ``print_result``, and the closing lines that all of them have (``budget_line``,
``error_line``, ``likely_lines``, ``verdict_lines``, ``time_line``; ``section`` for the others). Secret: the table.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

import click

from parties.commands.display import Display
from parties.commands.running import run_supervised
from parties.progress import Progress
from parties.report.content import RunReport
from parties.report.likely import likely_in_words
from parties.report.parts import optional
from parties.trial.assemble import finish_trial
from parties.trial.folder import Folder
from parties.trial.processes import Supervision
from parties.trial.request import Trial

_SENTENCES = 3
"""Of a verdict on the terminal, of each kind at most."""


def run_in_folder(
    trial: Trial,
    folder: Folder,
    method: Callable[[Progress], Awaitable[RunReport]],
    *,
    rounds: int,
    goes_on: bool,
) -> Mapping[str, object]:
    """Run ``method``, which has at most ``rounds`` rounds, write the report and tidy up; returns report.json.

    ``goes_on``: whether it keeps its finished rounds for the same command on the same folder.
    """
    display = Display(clients=trial.partition.clients, rounds=rounds)

    async def work(supervision: Supervision) -> Mapping[str, object]:
        with display:
            beginning = "going on with the run in" if folder.resumed else "run folder"
            display.event("folder", f"{beginning} {folder.path}")
            return finish_trial(trial, folder, await method(display))

    then = "goes on after the last finished round" if goes_on else "begins anew"
    again = f"the same command with --out {folder.path} {then}"
    return run_supervised(work, watch_stdin=False, events=None, again=again)


def print_result(
    report: Mapping[str, object],
    folder: Folder,
    lines: Callable[[Mapping[str, object]], Sequence[tuple[str, str]]],
    *,
    as_json: bool,
) -> None:
    """The report as JSON; or, for people, the names and texts that ``lines`` makes of it, and where the files are."""
    if as_json:
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    for name, text in lines(report):
        click.echo(f"{name:<16}{text}")
    for name in ("synthetic.csv", "report.html", "report.json"):
        click.echo(f"{'':<16}{folder.path / name}")


def section(document: Mapping[str, object], name: str) -> Mapping[str, float]:
    """A table of a report; an empty one where there is none."""
    value = document[name]
    return value if isinstance(value, Mapping) else {}


def budget_line(report: Mapping[str, object]) -> tuple[str, str]:
    """The budget that was asked for, and the part of it that was spent."""
    asked, privacy = section(report, "parameters"), section(report, "privacy")
    return (
        "privacy",
        f"epsilon = {asked['epsilon']:g}, delta = {asked['delta']:g}; "
        f"rho {privacy['rho_spent']:.4g} of {privacy['rho_total']:.4g} spent",
    )


def error_line(report: Mapping[str, object]) -> tuple[str, str]:
    """The distance of the synthetic table from the real one, which a trial has."""
    error = section(report, "utility").get("workload_error", float("nan"))
    return "workload error", f"{error:.3f} (0 to 2; from the real table)"


def likely_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """What most marginals are expected to be off by at most; nothing where that was not estimated."""
    said = likely_in_words(optional(report, "quality"))
    return [("likely errors", said)] if said else []


def verdict_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """The purposes that the table is good for and not for, as the report says; the first of many sentences."""
    quality = report.get("quality")
    verdict = quality.get("verdict") if isinstance(quality, Mapping) else None
    if not isinstance(verdict, Mapping):
        return []
    lines = []
    for key, name in (("good_for", "good for"), ("not_for", "not for")):
        sentences = [str(sentence) for sentence in verdict.get(key, [])]
        more = [f"{len(sentences) - _SENTENCES} more in report.html"]
        shown = sentences[:_SENTENCES] + (more if len(sentences) > _SENTENCES else [])
        lines += [(name if not i else "", sentence) for i, sentence in enumerate(shown)]
    return lines


def time_line(report: Mapping[str, object], phases: Sequence[str]) -> tuple[str, str]:
    """Seconds in all and in those of the ``phases`` that were timed."""
    times = section(report, "time")
    shown = [f"{name} {times[f'{name}_s']:.1f} s" for name in phases if f"{name}_s" in times]
    return "time", f"{times['total_s']:.1f} s: {', '.join(shown)}"
