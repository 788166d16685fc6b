"""`python -m tests.robustness kills`: cases drawn by a seed, played one after the other, kept as they come."""

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bench.experiment.commands import failures, json_object_option, output_option
from bench.experiment.lines import Lines
from bench.experiment.markdown import markdown_table
from bench.experiment.progress import progress_bar
from bench.fetch import DatasetError
from tests.robustness import page
from tests.robustness.fuzzing.cli import corpus_folder
from tests.robustness.fuzzing.corpus import Corpus
from tests.robustness.kills import services
from tests.robustness.kills.case import count_points, play
from tests.robustness.kills.outcome import CANCELLED, FINISHED, RUNS, Case, Outcome
from tests.robustness.kills.points import FAULTS, OF_SERVICES

_COMMAND, _SERVICES = "python -m tests.robustness kills", "services"
_EXAMPLE = "Example: python -m tests.robustness kills --cases 1000 --seed 1 --results kills.jsonl"


def cases_of(counts: Mapping[str, Sequence[int]], faults: Sequence[str], seed: int) -> list[Case]:
    """Returns all cases of servers with these numbers of points, in an order drawn by ``seed``: faults take turns."""
    draw = random.Random(seed)  # to be the same again
    by_fault = []
    for fault in faults:
        every = [
            Case(fault, pid, n + 1, of)
            for of, points in counts.items()
            for pid in range(3)
            for n in range(points[pid])
        ]
        draw.shuffle(every)
        by_fault.append(every)
    return [case for turn in zip(*by_fault, strict=True) for case in turn]


def known(results: Path | None, commit: str) -> dict[Case, Outcome]:
    """Reads a file's outcomes of this commit; none if the sources are modified or unknown, and so may have differed."""
    found: dict[Case, Outcome] = {}
    if results is None or not re.fullmatch("[0-9a-f]+", commit):
        return found

    def take(row: Any) -> None:
        of, outcome = Outcome.of_row(row)
        if of == commit:
            found[outcome.case] = outcome

    Lines(results, _COMMAND).read(take)
    return found


def outcomes_of(
    cases: Sequence[Case],
    corpus: Corpus,
    folder: Path,
    *,
    jobs: int = 1,
    results: Path | None = None,
    commit: str,
) -> Iterator[Outcome]:
    """Yields the outcomes of ``cases``: first those of this commit in ``results``, then new ones, added there."""
    there = known(results, commit)
    yield from (there[case] for case in cases if case in there)
    left = [case for case in cases if case not in there]
    for outcome in play_all(left, corpus, folder, jobs):
        if results is not None:
            Lines(results, _COMMAND).append([outcome.to_row(commit)])
        yield outcome


def play_all(cases: Sequence[Case], corpus: Corpus, folder: Path, jobs: int) -> Iterator[Outcome]:
    """Yields the outcomes as they come, with ``jobs`` cases under way at once."""
    _ = corpus.config, corpus.workload, corpus.certificates
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(
            lambda case: _played(
                case, corpus, folder / f"{case.of}-{case.fault}-{case.victim}-{case.number}"
            ),
            cases,
        )


def _played(case: Case, corpus: Corpus, folder: Path) -> Outcome:
    return play(case, corpus, folder) if case.of == RUNS else services.play(case, folder)


def _counts(of: str, corpus: Corpus, folder: Path) -> dict[str, list[int]]:
    """Counts the points that each server passes without a fault."""
    if of == RUNS:
        return {RUNS: [count_points(corpus, folder / f"count-{pid}", pid) for pid in range(3)]}
    return {
        end: [services.count_points(folder / f"count-{end}-{pid}", pid, end) for pid in range(3)]
        for end in (FINISHED, CANCELLED)
    }


@click.command(epilog=_EXAMPLE)
@click.option(
    "--of",
    type=click.Choice((RUNS, _SERVICES)),
    default=RUNS,
    show_default=True,
    help="Three servers of one run, or three `syncret serve` that are given a study.",
)
@click.option("--cases", type=click.IntRange(1), default=20, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Draws the same cases again.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice(tuple(FAULTS)),
    help="Only these; may be given several times.",
)
@click.option("--jobs", type=click.IntRange(1, 16), default=1, show_default=True)
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keeps each outcome as a line of JSON; those of the same commit are not played again.",
)
@output_option("Also put the table into robustness.json and robustness.md in this folder.")
@json_object_option
def kills(
    of: str,
    cases: int,
    seed: int,
    faults: tuple[str, ...],
    jobs: int,
    results: Path | None,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Let something happen to a server at any point of its work, give the same commands again, audit what comes out.

    Three servers and three owners on this machine. Killed, stopped, out of disk, hours off, or cut off, a server ends
    in its own error or goes on; the run is then finished, the ledgers are alike and within the budget, and the audit
    passes. Of services, a study is finished or cancelled, and no process, port, key or share of it is left behind. The
    exit status is 1 where that is not so.
    """
    outcomes = []
    with corpus_folder() as place:
        corpus = Corpus(Path(place) / "corpus")
        counts = _counts(of, corpus, Path(place))
        drawn = cases_of(counts, faults or tuple(FAULTS), seed)[:cases]
        with progress_bar(len(drawn), "cases") as bar:
            for outcome in outcomes_of(
                drawn, corpus, Path(place), jobs=jobs, results=results, commit=page.sources()
            ):
                outcomes.append(outcome)
                bar.done()
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    if output is not None:
        command = _COMMAND + ("" if of == RUNS else f" --of {of}")
        command += f" --cases {cases} --seed {seed}"
        command += "".join(f" --fault {fault}" for fault in faults)
        with failures(DatasetError):
            page.add(output, page.KILLS, command, {"heads": HEADS, "rows": table_rows(outcomes)})
    if as_json:
        document = {"ok": not wrong, "points": counts, "cases": [asdict(o) for o in outcomes]}
        click.echo(json.dumps(document))
    else:
        click.echo(markdown_table(HEADS, table_rows(outcomes)))
        for outcome in wrong:
            click.echo(f"{outcome.case} at {outcome.at!r}: {outcome.wrong}")
        click.echo(f"{len(outcomes)} cases, {len(wrong)} that came out otherwise than they should")
    if wrong:
        sys.exit(1)


HEADS = (
    "fault | what happens | cases | points | not reached | went on | failed first | finished | ends by status | "
    "otherwise than it should"
)


def table_rows(outcomes: Sequence[Outcome]) -> list[tuple[str | int, ...]]:
    """Returns a row for each fault: numbers of cases and of kinds of points, and the outcomes."""
    rows: list[tuple[str | int, ...]] = []
    for fault, what in FAULTS.items():
        found = [outcome for outcome in outcomes if outcome.case.fault == fault]
        if not found:
            continue
        went_on = sum(outcome.ended == (0, 0, 0) for outcome in found)
        statuses = Counter(code for outcome in found for code in outcome.ended if code)
        rows.append(
            (
                fault,
                what if found[0].case.of == RUNS else OF_SERVICES.get(fault, what),
                len(found),
                len({outcome.at for outcome in found} - {""}),
                sum(not outcome.at for outcome in found),
                went_on,
                sum(outcome.failed for outcome in found),
                sum(outcome.tries > 0 and not outcome.wrong for outcome in found),
                ", ".join(f"{code}: {n}" for code, n in sorted(statuses.items())),
                sum(bool(outcome.wrong) for outcome in found),
            )
        )
    return rows
