"""Command `budget`: the privacy budget that a data owner's tables have spent, and its limits."""

import json
from pathlib import Path

import click

from parties.cli.options import budget_option
from parties.cli.runtime import common_options
from parties.storage.owner_budget import (
    REPLACED,
    ROW,
    UNOPENED,
    Dataset,
    OwnerBudget,
    ReleaseCharge,
)
from parties.storage.user_paths import budget_path


@click.group(invoke_without_command=True, epilog="Example: syncret budget")
@budget_option
@common_options
@click.pass_context
def budget(ctx: click.Context, budget: Path | None, as_json: bool) -> None:
    """Show what each of your tables has spent, in which runs, and what is left.

    The first run of a table sets its lifetime limit; `syncret budget set` changes it, and nothing else does. There is
    no command that forgets a run: what was released stays released. Keep the file, and keep a copy of it.
    """
    if ctx.invoked_subcommand is not None:
        return
    path = budget_path(budget)
    datasets, intended = [], []
    if path.exists():
        found = OwnerBudget(path)
        datasets, intended = found.datasets(), found.intended()
    if as_json:
        document = {
            "datasets": [dataset.to_dict() for dataset in datasets],
            "intended": [item.to_dict() for item in intended],
        }
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(f"{path}{'' if datasets else ': nothing was released yet'}")
    for dataset in datasets:
        click.echo(
            "\n".join([f"{dataset.name}: {budget_state_text(dataset)}", *map(_line, dataset.runs)])
        )
    for item in intended:
        click.echo(
            f"{item.dataset}: run {item.run} ({item.method}) is intended since {item.when}: nothing of it was sent or "
            "is spent"
        )


@budget.command("set", epilog="Example: syncret budget set stays --epsilon 2 --delta 1e-6")
@click.argument("name")
@click.option("--epsilon", type=float, required=True, help="Of all releases together, ever.")
@click.option("--delta", type=float, required=True, help="Of all releases together, ever.")
@budget_option
@common_options
def set_limit(name: str, epsilon: float, delta: float, budget: Path | None, as_json: bool) -> None:
    """Set what all releases of dataset NAME together, past and to come, may reveal of a row: (epsilon, delta).

    That is a promise to the people in the table. What is spent stays spent; a limit below it ends all further runs.
    """
    path = budget_path(budget)
    try:
        before, after = OwnerBudget(path).set_limit(name, epsilon, delta)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(after.to_dict(), indent=2))
        return
    click.echo(
        f"{name}: all releases together, past and to come, may reveal of any one row no more than (epsilon = "
        f"{epsilon:g}, delta = {delta:g})-differential privacy allows; before, that was epsilon = {before.epsilon:g}, "
        f"delta = {before.delta:g}.\n{budget_state_text(after)}"
    )


def budget_state_text(dataset: Dataset) -> str:
    """Returns the spent and remaining budget in words."""
    left = f"{dataset.left:.4g} is left" if dataset.left else "nothing is left"
    return (
        f"rho {float(dataset.spent):.4g} of {dataset.rho_limit:.4g} is spent, epsilon {dataset.epsilon_with():.4g} of "
        f"{dataset.epsilon:g} at delta {dataset.delta:g}; {left}"
    )


def _state_text(run: ReleaseCharge) -> str:
    if run.returned is None:
        return "  released" if run.released else ""
    if run.returned == REPLACED:
        return "  replaced by another submission: not spent"
    if run.returned == UNOPENED:
        return "  given back, as its server has signed that nothing was opened: not spent"
    return "  given back, as servers have signed that nothing of it was counted: not spent"


def _line(run: ReleaseCharge) -> str:
    release = run.release
    unit = "" if release.unit == ROW else f", protecting a {release.unit}"
    return (
        f"  {run.when}  run {release.run} ({release.method})  rho {release.rho:.4g}  "
        f"epsilon {release.epsilon:g}, delta {release.delta:g}{unit}  configuration "
        f"{release.config[:12]}{_state_text(run)}"
    )
