"""Command `budget`: the privacy budget that the people in a data owner's tables have spent, and its limits."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from mechanisms.text_table import and_list
from parties.cli.options import (
    budget_option,
    by_option,
    certificate_options,
    population_options,
)
from parties.cli.runtime import common_options, run_supervised
from parties.config import load_config
from parties.federation.release_question import TOLD_FILE, ask_server_releases, read_told
from parties.foundation.errors import SubmitError
from parties.foundation.times import iso_time
from parties.local.processes import Supervision
from parties.mpc.submission.earlier_releases import ask_earlier_releases
from parties.session.owner import owner_files
from parties.storage.owner_budget import OwnerBudget
from parties.storage.population_budget import (
    REPLACED,
    ROW,
    UNOPENED,
    Dataset,
    Release,
    ReleaseCharge,
)
from parties.storage.populations import (
    OwnersWord,
    RecordedWord,
    TableIdentity,
    owners_word,
    this_user,
)
from parties.storage.refresh import Refreshes, forecast_refreshes
from parties.storage.told_releases import EarlierRelease, ToldReleases
from parties.storage.user_paths import budget_path

_LEAST_DIGITS = 8


@click.group(invoke_without_command=True, epilog="Example: syncret budget")
@budget_option
@common_options
@click.pass_context
def budget(ctx: click.Context, budget: Path | None, as_json: bool) -> None:
    """Show what was spent of each population, in which runs, all together, what is left, and what refreshes would cost.

    A population is the people in tables that resemble one another. A table is charged to its population, wherever the
    file lies, or as you say with --population and --new-population. The first run sets the lifetime limit;
    `syncret budget set` changes it, and nothing else does. There is no command that forgets a run: what was released
    stays released. Keep the file and its key beside it (FILE.key), and keep copies of both.
    """
    if ctx.invoked_subcommand is not None:
        return
    path = budget_path(budget)
    datasets, intended, declined = [], [], []
    if path.exists():
        found = OwnerBudget(path)
        datasets, intended, declined = found.datasets(), found.intended(), found.declined()
    if as_json:
        document = {
            "datasets": [_document(dataset) for dataset in datasets],
            "intended": [item.to_dict() for item in intended],
            "declined": [item.to_dict() for item in declined],
        }
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(f"{path}{'' if datasets else ': nothing was released yet'}")
    for dataset in datasets:
        click.echo("\n".join(_lines(dataset)))
    for item in intended:
        click.echo(
            f"{item.dataset}: run {item.run} ({item.method}) is intended since {item.when}: nothing is sent or "
            "spent"
        )
    for said in declined:
        click.echo(
            f"run {said.run} ({said.method}), published from one machine, is charged to nobody: {said.by} said so "
            f"({iso_time(said.at)}): {said.why}"
        )


@budget.command("set", epilog="Example: syncret budget set stays --epsilon 2 --delta 1e-6")
@click.argument("name")
@click.option("--epsilon", type=float, default=None, help="Of all releases together, ever.")
@click.option("--delta", type=float, default=None, help="Of all releases together, ever.")
@click.option("--unlimited", is_flag=True, help="No limit, after a release that was not private.")
@click.option(
    "--why", default=None, metavar="TEXT", help="The reason, which raising a limit needs."
)
@by_option
@budget_option
@common_options
def set_limit(
    name: str,
    epsilon: float | None,
    delta: float | None,
    unlimited: bool,
    why: str | None,
    by: str | None,
    budget: Path | None,
    as_json: bool,
) -> None:
    """Set what all releases of population NAME together, past and to come, may reveal of a row: (epsilon, delta).

    That is a promise to the people in the table. What is spent stays spent; a limit below it ends all further runs. Who
    changed it, when and why is kept.
    """
    path = budget_path(budget)
    try:
        epsilon, delta = _limit(path, name, epsilon=epsilon, delta=delta, unlimited=unlimited)
        why = _reason(OwnerBudget(path).dataset(name), epsilon, delta, why=why)
        before, after = OwnerBudget(path).set_limit(
            name, epsilon, delta, by=by or this_user(), why=why
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(after.to_dict(), indent=2))
        return
    if unlimited:
        click.echo(f"{name}: there is no limit any more\n{budget_state_text(after)}")
        return
    click.echo(
        f"{name}: all releases together, past and to come, may reveal of any one row no more than (epsilon = "
        f"{epsilon:g}, delta = {delta:g})-differential privacy allows; before, that was epsilon = {before.epsilon:g}, "
        f"delta = {before.delta:g}.\n{budget_state_text(after)}"
    )


@budget.command("reconcile", epilog="Example: syncret budget reconcile study/stays.toml")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--run",
    default=None,
    metavar="NAME",
    help="Enter this run alone; a name, or the first digits of a configuration.",
)
@click.option(
    "--told",
    "answer",
    type=click.Path(path_type=Path),
    default=None,
    help=f"Ask nobody: enter what a Flower node was told, by its {TOLD_FILE}.",
)
@population_options
@certificate_options
@common_options
def reconcile(
    config: Path,
    run: str | None,
    answer: Path | None,
    *,
    population: str | None,
    new_population: str | None,
    by: str | None,
    budget: Path | None,
    as_json: bool,
    **files: Path | None,
) -> None:
    """Ask the servers of CONFIG what they have released with your key, in all studies, and enter what is missing here.

    For a budget that was put back from a copy, or begun anew. Servers show what you signed then, so that none of them
    can invent a study or a cost. With several populations, say whose table a run had; `join` asks the servers as well.
    The one server of FLAIM and of silos answers while it runs a study, a service also after it. A Flower node asks by
    itself before it joins, and leaves the answer in its folder (--told) if it cannot tell whose table an earlier run
    had.
    """
    if population is not None and new_population is not None:
        raise click.UsageError("give one of --population and --new-population")
    word, path = owners_word(population, new_population, by), budget_path(budget)
    loaded = load_config(config)
    if loaded.federation is None:
        loaded.require_parties()
    own = owner_files(loaded, **files)

    async def ask(supervision: Supervision) -> ToldReleases:
        ask_servers = ask_earlier_releases if loaded.federation is None else ask_server_releases
        return await ask_servers(loaded, own, path)

    if answer is None:
        answers = run_supervised(ask, watch_stdin=False, events=None)
    else:
        answers = read_told(loaded, own, answer, budget=path)
    if not answers.answered:
        raise SubmitError(f"no server answers: {_problems_text(answers)}; nothing was entered")
    missing = _of_run(answers.missing, run)
    entered = _enter_earlier(path, missing, word=word)
    if as_json:
        document = {
            "answered": list(answers.answered),
            "problems": dict(answers.problems),
            "entered": [
                {**asdict(item), "release": asdict(item.release), "charged_to": name}
                for item, name in entered
            ],
        }
        click.echo(json.dumps(document, indent=2))
        return
    for item, name in entered:
        click.echo(f"{item.text}: {cost_text(item.release)} is charged to {name}")
    left = [item for item in answers.missing if item not in missing]
    for item in left:
        click.echo(f"{item.text}: is not entered, and this budget does not have it")
    known = "nothing else" if entered or left else "nothing that this budget does not have"
    click.echo(f"{and_list(answers.answered)} told {known}")
    if answers.problems:
        click.echo(_problems_text(answers))


def _of_run(found: Sequence[EarlierRelease], run: str | None) -> list[EarlierRelease]:
    """Returns the releases of one run, or all. Raises UsageError for several of one name, which its maker chose."""
    if run is None:
        return list(found)
    named = [item for item in found if item.release.run == run]
    if len({item.release.config for item in named}) > 1:
        raise click.UsageError(
            f"{'; '.join(item.text for item in named)}: these have one name; expected --run with the digits of one "
            "configuration"
        )
    digits = len(run) >= _LEAST_DIGITS
    return named or [item for item in found if digits and item.release.config.startswith(run)]


def _problems_text(answers: ToldReleases) -> str:
    return "; ".join(f"{name}: {problem}" for name, problem in answers.problems.items())


def _enter_earlier(
    path: Path, missing: Sequence[EarlierRelease], *, word: OwnersWord | None
) -> list[tuple[EarlierRelease, str]]:
    """Charges earlier releases to the population that was named, or that of their marks, or the only one.

    Raises UsageError without one.
    """
    if not missing:
        return []
    found, entered = OwnerBudget(path), []
    if word is None:
        marked = [item for item in missing if found.reads_mark(item.release.config, item.mark)]
        missing = [item for item in missing if item not in marked]
        for item in marked:
            name = found.adopt_earlier(
                item.release,
                item.submission,
                TableIdentity(None, path="told"),
                sure=len(item.servers) > 1,
                of_source=False,
                mark=item.mark,
            )
            entered.append((item, name))
        if not missing:
            return entered
        names = [dataset.name for dataset in found.datasets()]
        if len(names) != 1:
            raise click.UsageError(
                f"{'; '.join(item.text for item in missing)}: this budget does not have that, and "
                f"{'has no population yet' if not names else f'has the populations {and_list(names)}'}; expected "
                "--population or --new-population, and --run for one run alone"
            )
        word = OwnersWord(names[0], False, this_user())
    for item in missing:
        sure, table = len(item.servers) > 1, TableIdentity(None, word=word)
        name = found.adopt_earlier(item.release, item.submission, table, sure=sure, of_source=True)
        entered.append((item, name))
        # A new population is there from its first release on.
        word = OwnersWord(word.population, False, word.by)
    return entered


def _limit(
    path: Path, name: str, *, epsilon: float | None, delta: float | None, unlimited: bool
) -> tuple[float, float]:
    """Returns the limit that was asked for. Raises UsageError."""
    if unlimited == (epsilon is not None) or (delta is None) != unlimited:
        raise click.UsageError("give --epsilon and --delta, or --unlimited")
    if epsilon is None or delta is None:
        return math.inf, OwnerBudget(path).dataset(name).delta
    return epsilon, delta


def _reason(before: Dataset, epsilon: float, delta: float, *, why: str | None) -> str:
    """Returns the reason of a change, asked for in a terminal where a limit is raised. Raises UsageError without."""
    if why is None and (epsilon > before.epsilon or delta > before.delta):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError(
                f"raises the limit of {before.name} from epsilon {before.epsilon:g}, delta {before.delta:g}; expected "
                "--why, with the reason, which is kept"
            )
        why = click.prompt(f"The limit of {before.name} is raised; why", err=True)
    if why is not None and not why.strip():
        raise click.UsageError("--why is empty; expected the reason, which is kept")
    return (why or "").strip()


def _document(dataset: Dataset) -> dict[str, object]:
    refreshes = forecast_refreshes(dataset)
    return {**dataset.to_dict(), "refreshes": None if refreshes is None else refreshes.to_dict()}


def _lines(dataset: Dataset) -> list[str]:
    """Returns the lines about one population."""
    lines = [f"{dataset.name}: {budget_state_text(dataset)}", *map(_line, dataset.runs)]
    if (refreshes := forecast_refreshes(dataset)) is not None:
        lines.append(f"  {_refreshes_text(refreshes)}")
    lines += [
        f"  {change.when}  limit epsilon {change.before[0]:g}, delta {change.before[1]:g} became epsilon "
        f"{change.after[0]:g}, delta {change.after[1]:g}"
        f"{f' by {change.by}' if change.by else ''}{f': {change.why}' if change.why else ''}"
        for change in dataset.changes
    ]
    return lines + [f"  {_word_text(word)}" for word in dataset.words]


def _refreshes_text(found: Refreshes) -> str:
    """Returns the forecast in words."""
    year, five = (
        f"{epsilon:.3g}" if math.isfinite(epsilon) else "more than delta covers"
        for epsilon in (found.in_a_year, found.in_five_years)
    )
    grows = f"in a year epsilon would be {year}, in five years {five}"
    head = f"a refresh each quarter like run {found.run} costs rho {found.rho:.4g}: {grows}"
    if found.number is None:
        return head
    if not found.number:
        return f"{head}; the limit covers none"
    return f"{head}; the limit covers {found.number}, the last in {found.last}"


def _word_text(said: RecordedWord) -> str:
    like = said.resembled or "nothing known"
    when = said.to_dict()["when"]
    return (
        f"{when}  run {said.run}: {said.word.by} said {said.word.option} {said.word.population}, of a table that "
        f"resembles {like}"
    )


def budget_state_text(dataset: Dataset) -> str:
    """Returns the spent and remaining budget in words."""
    if dataset.not_private:
        runs = and_list(dict.fromkeys(run.release.run for run in dataset.not_private))
        limit = (
            "no limit" if math.isinf(dataset.epsilon) else f"a limit of epsilon {dataset.epsilon:g}"
        )
        return (
            f"run {runs} was not private, so that no epsilon holds for all together (rho and epsilon are infinite; "
            f"without it, rho {float(dataset.spent):.4g} is spent); {limit}"
        )
    if math.isinf(dataset.epsilon):
        return (
            f"rho {float(dataset.spent):.4g} is spent, epsilon {dataset.epsilon_with():.4g} at delta "
            f"{dataset.delta:g}; no limit"
        )
    if dataset.approximate:
        return (
            f"epsilon {dataset.epsilon_with():.4g} of {dataset.epsilon:g} at delta {dataset.delta:g} is spent, "
            f"by releases with epsilon and delta alone among others; rho {dataset.left:.4g} is left"
        )
    left = f"{dataset.left:.4g} is left" if dataset.left else "nothing is left"
    spent, most = float(dataset.spent), dataset.limit_with()
    return (
        f"rho {spent:.4g} of {most:.4g} is spent, epsilon {dataset.epsilon_with():.4g} of {dataset.epsilon:g} at "
        f"delta {dataset.delta:g}; {left}"
    )


def _state_text(run: ReleaseCharge) -> str:
    if run.returned is None:
        return "  released" if run.released else ""
    if run.returned == REPLACED:
        return "  replaced by another submission: not spent"
    if run.returned == UNOPENED:
        return "  given back, as its server has signed that nothing was opened: not spent"
    return "  given back, as servers have signed that nothing of it was counted: not spent"


def cost_text(release: Release) -> str:
    """Returns the cost of a release."""
    if release.not_private:
        return "NOT PRIVATE"
    return f"rho {release.rho:.4g}  epsilon {release.epsilon:g}, delta {release.delta:g}"


def _line(run: ReleaseCharge) -> str:
    release = run.release
    unit = "" if release.unit == ROW else f", protecting a {release.unit}"
    return (
        f"  {run.when}  run {release.run} ({release.method})  {cost_text(release)}{unit}  configuration "
        f"{release.config[:12]}{_state_text(run)}"
    )
