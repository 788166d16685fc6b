"""A run on this machine as commands show it: its folder, progress, report and closing lines.

Secret: the table.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from parties.cli.display import Display
from parties.cli.runtime import run_supervised
from parties.local.assemble import finish_trial
from parties.local.folder import RunFolder
from parties.local.processes import Supervision
from parties.local.request import Trial
from parties.observability.events import Progress
from parties.report.document import optional
from parties.report.likely import likely_error_text
from parties.report.model import RunReport
from parties.report.privacy_text import NOT_PRIVATE_TEXT, is_private

_SENTENCES = 3
"""Maximum number of sentences of a verdict on the terminal, of each kind."""


def run_in_folder(
    folder: RunFolder,
    work: Callable[[Progress], Awaitable[Mapping[str, Any]]],
    *,
    clients: int,
    rounds: int,
    then: str,
    again_in: Path | None = None,
) -> Mapping[str, Any]:
    """Does ``work`` in ``folder``, with ``clients`` participants and ``rounds`` at most; returns its report.json.

    ``then`` is the effect of the same command on the folder of an interrupted run, or on ``again_in``, in which it is.
    """
    display = Display(clients=clients, rounds=rounds)

    async def main(supervision: Supervision) -> Mapping[str, Any]:
        with display:
            beginning = "going on with the run in" if folder.resumed else "run folder"
            progress = Progress(display)
            progress.event("folder", f"{beginning} {folder.path}")
            return await work(progress)

    again = f"the same command with --out {again_in or folder.path} {then}"
    return run_supervised(main, watch_stdin=False, events=None, again=again)


def run_trial_in_folder(
    trial: Trial,
    folder: RunFolder,
    method: Callable[[Progress], Awaitable[RunReport]],
    *,
    rounds: int,
    goes_on: bool,
    read_s: float,
    again_in: Path | None = None,
) -> Mapping[str, Any]:
    """Runs ``method``, which has at most ``rounds`` rounds, writes the report and tidies up; returns report.json.

    ``read_s`` are the seconds in which the table was read. ``goes_on``: the method keeps finished rounds, and the same
    command on the same folder continues; ``again_in`` is the folder that the command was given, if the run's folder is
    within it.
    """

    async def work(progress: Progress) -> Mapping[str, Any]:
        return finish_trial(trial, folder, await method(progress), read_s=read_s)

    then = "goes on after the last finished round" if goes_on else "begins anew"
    return run_in_folder(
        folder,
        work,
        clients=trial.partition.clients,
        rounds=rounds,
        then=then,
        again_in=again_in,
    )


def print_result(
    report: Mapping[str, Any],
    folder: RunFolder,
    lines: Callable[[Mapping[str, Any]], Sequence[tuple[str, str]]],
    *,
    files: Sequence[str] = ("synthetic.csv",),
    as_json: bool,
) -> None:
    """Prints the report as JSON, or the names and texts that ``lines`` makes of it, and the paths of the files."""
    if as_json:
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    for name, text in lines(report):
        click.echo(f"{name:<16}{text}")
    for name in (*files, "report.html", "report.json"):
        click.echo(f"{'':<16}{folder.path / name}")


def section(document: Mapping[str, object], name: str) -> Mapping[str, float]:
    """Returns a table of a report, or an empty one if it is missing."""
    value = document[name]
    return value if isinstance(value, Mapping) else {}


def budget_line(report: Mapping[str, object]) -> tuple[str, str]:
    """Returns the requested budget, and the spent part of it."""
    asked, privacy = section(report, "parameters"), section(report, "privacy")
    if not is_private(report):
        return "privacy", NOT_PRIVATE_TEXT
    return (
        "privacy",
        f"epsilon = {asked['epsilon']:g}, delta = {asked['delta']:g}; "
        f"rho {privacy['rho_spent']:.4g} of {privacy['rho_total']:.4g} spent",
    )


def error_line(report: Mapping[str, object]) -> tuple[str, str]:
    """Returns the distance of the synthetic table from the real one, which a trial has."""
    error = section(report, "utility").get("workload_error", float("nan"))
    return "workload error", f"{error:.3f} (0 to 2; from the real table)"


def expected_error_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns the likely bound on the error of most marginals; empty if it was not estimated."""
    said = likely_error_text(optional(report, "quality"))
    return [("likely errors", said)] if said else []


def verdict_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns the first sentences of the report's verdict: purposes that the table is good for and not for."""
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
    """Returns the seconds in all and in the timed ``phases``; what is left of them as "other"."""
    times = section(report, "time")
    named = ["read", *phases, "write", "other", "report"]
    shown = [f"{name} {times[f'{name}_s']:.1f} s" for name in named if f"{name}_s" in times]
    return "time", f"{times['total_s']:.1f} s: {', '.join(shown)}"
