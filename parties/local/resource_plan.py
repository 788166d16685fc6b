"""Plan of a run: its resources and noise, before anything is sent, charged or computed. All of it is public."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from mechanisms.column_parts import PRIVATE
from mechanisms.columns import Categorical
from mechanisms.discretising import widest_width
from mechanisms.domain import Domain
from mechanisms.errors import DataError
from mechanisms.events import noise_deviation
from mechanisms.origins import origins
from mechanisms.private_bins import FOUND
from mechanisms.private_categories import threshold
from mechanisms.provenance import TABLE
from mechanisms.workload import Workload
from parties.config import ANNEALED, Config
from parties.foundation.errors import ConfigError
from parties.methods.distaim import attacker_on
from parties.methods.flaim.report import attacker_on as flaim_attacker
from parties.methods.flaim.settings import check_flaim, flaim_noise
from parties.mpc.inputs.own import capacity_for, declared_capacity
from parties.mpc.planning.budget import composed_epsilon, distaim_release, zcdp_epsilon
from parties.mpc.planning.counting_cost import counting_cost_text, max_joined_rows
from parties.mpc.planning.resources import (
    BASIS,
    CellNoise,
    NetworkAssumptions,
    ResourceEstimate,
    cell_noise,
    estimate_resources,
    server_memory,
    usual_workload,
)
from parties.mpc.planning.validation import check_memory, gigabytes_text, validate_run
from parties.observability.heartbeat import duration_text
from parties.report.attacker import AttackerBound, delta_text, percent, weakness_text
from parties.report.privacy_text import NOT_PRIVATE_TEXT
from parties.session.draft_config import DRAFTED_DELTA
from parties.session.study import Study
from parties.storage.population_budget import Dataset
from parties.storage.refresh import A_YEAR

_MOST_ROWS = 10**12
"""Most rows that a plan is made for."""
_SUBMIT_BITS_S = 10e6
"""Bandwidth in bit/s: an upload that needs more than this to finish in time gets a warning."""
_WIDE_CELL_SHARE = 0.5
"""Share of a column's range: a cell that covers more of it gets a warning."""
_GRID_CELLS = 960
"""Fine cells of private values, about (`mechanisms.scale_free`)."""
_QUIET_SHARE = 0.5
"""Share of timeouts.receive_s: a server that computes alone for longer gets a warning."""
_QUIET_S_A_CELL = 150e-9


@dataclass(frozen=True, slots=True)
class MethodNoise:
    """Noise of one method: its cells with the noise in them. A sum is over ``members`` clients."""

    method: str
    members: int
    cells: Sequence[CellNoise]

    @property
    def columns(self) -> Sequence[CellNoise]:
        """Cells of single columns."""
        return [cell for cell in self.cells if len(cell.query) == 1]

    @property
    def queries(self) -> Sequence[CellNoise]:
        """Cells of queries of several columns, or of single columns if there are none."""
        return [cell for cell in self.cells if len(cell.query) > 1] or self.columns


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """All results of a plan."""

    config: Config
    workload: Workload
    rows: int
    rows_given: bool
    capacity: int
    needs: ResourceEstimate
    counting: str | None
    noise: Sequence[MethodNoise]
    warnings: Sequence[str]
    tree_rounds: int
    composed: float | None
    plain: float | None
    attacker: AttackerBound | None
    year: float | None
    """Epsilon of four such runs together, one each quarter, for a unit that is in all of them; None if none holds."""


def make_resource_plan(
    config: Config,
    *,
    rows: int | None,
    capacity: int | None,
    memory: int | None,
    network: NetworkAssumptions,
) -> ResourcePlan:
    """Checks the configuration and computes the plan.

    Args:
        rows: rows of all owners together; by default as many as there may be.
        capacity: number of rows that owners declare; by default their even part of ``rows``.
        memory: memory of a compute server in bytes; None if it is not known.

    Raises ConfigError, also for a method between silos; DataError for a capacity or rows beyond their bound.
    """
    if config.algorithm is not None:
        raise ConfigError(
            config.source,
            config.algorithm[0],
            "is of a run between silos; expected one of DistAIM or FLAIM. What it takes is in the report of syncret "
            f"run with a table like the silos' (syncret demo --config {config.source} --table FILE invents one)",
        )
    if rows is not None and rows > _MOST_ROWS:
        raise DataError(f"a table of {rows} rows; expected at most {_MOST_ROWS:,}")
    study = Study.of(config)
    workload, schedule = study.workload, validate_run(study)
    check_memory(config, server_memory(study, 0), "compute server 0", memory=memory)
    # Owners send, and servers count, the declared capacity.
    if capacity is None and rows is not None and not config.sources:
        even = -(-rows // config.clients.expected)
        capacity = capacity_for(even, config.clients.rows_per_client)
    declares = declared_capacity(config, capacity)
    declared = config.override({"clients.rows_per_client": declares})
    most = max_joined_rows(declared) if config.sources else declared.max_rows
    total = most if rows is None else rows
    usual = usual_workload(study, schedule, total)
    needs = estimate_resources(Study(declared, workload), schedule, usual=usual, network=network)
    first = noise_deviation(schedule.noise, schedule.initial_sigma)
    cells = cell_noise(usual, total, schedule.noise_sigma, initial_sigma=first)
    noise = [MethodNoise("distaim", 0, cells)]
    if config.flaim is not None:
        check_flaim(study)
        noise.append(MethodNoise("flaim", *flaim_noise(study, total)))
    warnings = [
        *_delta_warnings(config, rows),
        *_columns_alone(config, noise[0].queries),
        *_noise_warnings(noise),
        *_wide_cells(config.domain),
        *_unseen_values(config.domain, total, first),
        *_warnings(study, needs, memory),
    ]
    counting = counting_cost_text(Study(declared, workload))
    given = rows is not None
    joining = schedule.tree_rounds
    by_zcdp = zcdp_epsilon(study)
    # A large epsilon by zCDP is none where delta does not cover the distance of samples at it.
    plain = by_zcdp if by_zcdp is not None and math.isfinite(by_zcdp) else None
    epsilons = composed_epsilon(study), plain
    flaim_alone = config.flaim is not None and not config.parties
    attacker = flaim_attacker(config) if flaim_alone else attacker_on(study, schedule.rho)
    return ResourcePlan(
        config,
        workload,
        total,
        given,
        declares,
        needs,
        counting,
        noise,
        warnings,
        joining,
        *epsilons,
        attacker,
        None if flaim_alone else _year(study),
    )


def _delta_warnings(config: Config, rows: int | None) -> list[str]:
    """Returns a warning for a delta that is large for ``rows``, or, if it was chosen by hand, for as many as may come.

    That of every draft is not small enough for as many as may come.
    """
    delta = config.run.delta
    drafted = delta == DRAFTED_DELTA
    said = delta_text(delta, config.max_rows if rows is None and not drafted else rows)
    draft = f" It is the one that every draft has: run.delta = 1e-{len(str(rows))}, say."
    return [said + (draft if drafted else "")] if said else []


def _noise_warnings(noise: Sequence[MethodNoise]) -> list[str]:
    """Returns warnings for noise that is larger than the counts."""
    found = []
    for each in noise:
        drowned = [cell for cell in each.queries if cell.drowned]
        where = f"{each.method}: " if len(noise) > 1 else ""
        if len(drowned) == len(each.queries):
            found.append(
                f"{where}the noise (deviation {drowned[0].sigma:.3g}) drowns every query whose counts are even: "
                "a larger run.epsilon, fewer run.rounds, fewer bins or queries of fewer columns, or more rows"
            )
        elif 2 * len(drowned) > len(each.queries):
            found.append(
                f"{where}the noise drowns {len(drowned)} of {len(each.queries)} queries if their counts are even; such "
                "ones will be modelled by smaller sets of columns"
            )
        if lost := [cell.query[0] for cell in each.columns if cell.drowned]:
            found.append(
                f"{where}the noise drowns even columns: {', '.join(lost)}; fewer bins, or edges where the values are"
            )
    return found


def _columns_alone(config: Config, queries: Sequence[CellNoise]) -> list[str]:
    """Returns a warning if a run with even counts would measure single columns alone (``mechanisms.choosing``)."""
    pairs = [cell for cell in queries if len(cell.query) > 1]
    if not config.run.may_fall_back or not pairs:
        return []
    # Of at most 2 for each, on average.
    if sum(cell.left for cell in pairs) < len(pairs):
        return []
    return [
        "the noise drowns what joins the columns, if counts are even: the run then measures single columns alone, and "
        "the table is as if each column were shuffled; more rows, a larger run.epsilon, fewer columns or fewer cells "
        "would help"
    ]


def _wide_cells(domain: Domain) -> list[str]:
    """Returns warnings for numeric and date columns with one bin over most of the range, which hides values."""
    drafted = {
        each.column for each in origins(domain) if each.key == "edges" and each.origin == TABLE
    }
    wide = [
        column.name
        for column in domain.columns
        if not isinstance(column, Categorical)
        and len(column.cells.bins) > 1
        and widest_width(column.cells.ranges) > _WIDE_CELL_SHARE
    ]
    found = []
    if others := [name for name in wide if name not in drafted]:
        found.append(
            f"one cell has most of the range of {', '.join(others)}: rows in it come out anywhere between its ends; "
            "expected closer bounds, or atoms for values that stand for something else, unless few rows are there"
        )
    if tails := [name for name in wide if name in drafted]:
        found.append(
            f"one cell has most of the range of {', '.join(tails)}: the draft made it of the table's few farthest "
            "values, which come out anywhere between its ends, so that means are rough; closer bounds from a code "
            "book, if there are any, would help"
        )
    return found


def _unseen_values(domain: Domain, rows: float, deviation: float) -> list[str]:
    """Returns warnings for private values of which noise of ``deviation`` in round 0 may show none."""
    found = []
    free = [column for column in domain.columns if column.private and column.private.free]
    least = math.ceil(FOUND * math.sqrt(_GRID_CELLS) * deviation)
    numbers = [column.name for column in free if not isinstance(column, Categorical)]
    if numbers and rows < least:
        found.append(
            f"noise may hide where the values of {', '.join(numbers)} lie: some {least:,} rows are seen wherever they "
            "are, and of fewer many come out elsewhere; expected low and high from a code book "
            f'beside bins = "{PRIVATE}", more rows or a larger run.epsilon'
        )
    for column in free:
        if isinstance(column, Categorical):
            kept = threshold(len(column.categories), deviation)
            if rows < 2 * kept:
                found.append(
                    f"a value of {column.name} needs {kept:,} rows to be told from noise, all others come out as "
                    f"{column.other!r}; expected fewer candidates, more rows or a larger run.epsilon"
                )
    return found


def _warnings(study: Study, needs: ResourceEstimate, memory: int | None) -> list[str]:
    found, model = [], needs.model
    if never := model.queries - model.fit_ever:
        found.append(
            f"{never} of {model.queries} queries can never be in the model, which has at most {model.limit_mb:g} MB: "
            f"({', '.join(model.largest)}) takes {model.largest_mb:.3g}; expected a larger run.max_model_mb, or "
            "smaller queries"
        )
    bits_s = 8 * needs.owner_sent_bytes[needs.owner_form] / study.config.timeouts.submit_s
    if bits_s > _SUBMIT_BITS_S:
        found.append(
            f"an upload needs a line of {bits_s / 1e6:.0f} Mbit/s to be through in timeouts.submit_s = "
            f"{study.config.timeouts.submit_s:g}: a larger one for slower lines"
        )
    quiet_s = study.workload.cells * _QUIET_S_A_CELL
    if quiet_s > _QUIET_SHARE * study.config.timeouts.receive_s:
        found.append(
            f"a server may compute for {duration_text(quiet_s)} without a message: timeouts.receive_s = "
            f"{study.config.timeouts.receive_s:g} is too short for that"
        )
    largest = needs.server_memory_bytes[0] + needs.model_memory_bytes
    if memory is not None and largest > memory:
        found.append(
            f"party 0 may need {gigabytes_text(largest)} of memory where there are "
            f"{gigabytes_text(memory)}, if the model grows "
            "to its limit: a smaller run.max_model_mb"
        )
    return found


def document_of(made: ResourcePlan) -> dict[str, object]:
    """Returns the document for --json."""
    workload, config = made.workload, made.config
    return {
        "run": config.run.id,
        "config": config.digest(),
        "rows": made.rows,
        "rows_given": made.rows_given,
        "capacity": made.capacity,
        "tree_rounds": made.tree_rounds,
        "epsilon_composed": made.composed,
        "epsilon_zcdp": made.plain,
        "epsilon_in_a_year": made.year,
        "attacker": None if made.attacker is None else made.attacker.to_dict(),
        "workload": {
            "queries": len(workload.queries),
            "candidates": len(workload.candidates),
            "cells": workload.cells,
            "maximal_queries": len(workload.maximal),
            "maximal_cells": workload.maximal_cells,
            "largest": list(made.needs.model.largest),
            "largest_cells": workload.domain.size(made.needs.model.largest),
        },
        "needs": asdict(made.needs),
        "basis": BASIS,
        "noise": [
            {"method": each.method, "cells": [asdict(cell) for cell in each.cells]}
            for each in made.noise
        ],
        "warnings": list(made.warnings),
    }


def lines_of(made: ResourcePlan) -> list[str]:
    """Returns the lines of text."""
    config, workload, needs = made.config, made.workload, made.needs
    largest, run = needs.model.largest, config.run
    sent = " + ".join(gigabytes_text(size) for size in needs.server_sent_bytes)
    memory = ", ".join(gigabytes_text(size) for size in needs.server_memory_bytes)
    bound = "about" if run.schedule == ANNEALED else "at most"
    lines = [
        (
            "run",
            f"{run.id}: {_rounds(made)}, epsilon {run.epsilon:g}{_other_accounting(made)}, delta {run.delta:g}",
        ),
        ("", _attacker(made)),
        *_year_lines(made),
        (
            "cells",
            f"{workload.maximal_cells:,} in {len(workload.maximal)} queries that are in no other",
        ),
        ("", f"{workload.cells:,} in {len(workload.candidates)} sets of columns to choose from"),
        ("largest query", f"{', '.join(largest)}: {workload.domain.size(largest):,} cells"),
        ("an owner sends", _sends(config, needs)),
        ("", f"and needs {gigabytes_text(needs.owner_memory_bytes)} of memory beside its table"),
        ("", f"and declares {made.capacity:,} rows at most (join --capacity)"),
        ("servers send", f"{bound} {sent}, in {needs.rounds_of_messages:,} rounds of messages"),
        (
            "",
            f"and {gigabytes_text(needs.passed_on_bytes)} of uploads that they pass on to one another",
        ),
        ("servers need", f"{memory} of memory, {gigabytes_text(needs.server_disk_bytes)} on disk"),
        (
            "",
            f"party 0 about {gigabytes_text(needs.usual_model_bytes)} more for a model that grows as most do, up to "
            f"{gigabytes_text(needs.model_memory_bytes)}",
        ),
        *([("counting", made.counting)] if made.counting else []),
        ("time", _times(needs)),
        ("model", _model(needs)),
        *(line for each in made.noise for line in _noise_lines(each, made)),
        ("basis", BASIS),
        *(("WARNING", text) for text in made.warnings),
    ]
    return [f"{name:<16}{text}" for name, text in lines]


def _year_lines(made: ResourcePlan) -> list[tuple[str, str]]:
    """Returns what a run in each quarter of a year costs, and whether it starts from an earlier model."""
    lines = []
    if made.year is not None:
        lines.append(
            (
                "four quarters",
                f"four such runs, one each quarter, cost a {made.config.run.unit} that is in all of them epsilon "
                f"{math.ceil(1000 * made.year) / 1000:g}, delta {made.config.run.delta:g} together",
            )
        )
    if made.config.refresh is not None:
        lines.append(
            (
                "",
                "this run starts from an earlier run's model, which is public and costs nothing again",
            )
        )
    return lines


def _year(study: Study) -> float | None:
    """Returns epsilon of four runs like this one together, at its delta; None without a guarantee."""
    run = study.config.run
    try:
        release = distaim_release(study)
        together = Dataset(run.id, release.rho, run.epsilon, run.delta, ())
        epsilon = together.epsilon_with(*[release] * A_YEAR)
    except ValueError:
        return None
    return epsilon if math.isfinite(epsilon) else None


def _attacker(made: ResourcePlan) -> str:
    """Returns what the best attacker on the run finds, in short."""
    if made.attacker is None:
        return NOT_PRIVATE_TEXT
    one, ten = (percent(made.attacker.found_at_most(share)) for share in (0.01, 0.1))
    who = made.config.run.unit
    said = (
        f"an attacker who falsely suspects 1 % of the absent finds at most {one} of the present; with 10 %, {ten} "
        f"(present: a {who})"
    )
    return ". ".join(filter(None, [said, weakness_text(made.attacker, who)]))


def _other_accounting(made: ResourcePlan) -> str:
    """Returns the epsilon of the same release by the other accounting, in words."""
    for epsilon, counted in ((made.plain, "by zCDP"), (made.composed, "composed numerically")):
        if epsilon is not None:
            return f" ({math.ceil(1000 * epsilon) / 1000:g} {counted})"
    return ""


def _rounds(made: ResourcePlan) -> str:
    """Returns the number of rounds, and the purpose of the first ones."""
    if not made.tree_rounds:
        return f"at most {made.config.run.rounds} rounds"
    return f"{made.tree_rounds} rounds that join the columns by pairs, then finer ones while the budget lasts"


def _sends(config: Config, needs: ResourceEstimate) -> str:
    """Returns the upload size of an owner, or of an owner of each source."""
    if not config.sources:
        return _forms(needs.owner_sent_bytes, needs.owner_form)
    names = (source.name for source in config.sources)
    sizes = (gigabytes_text(size) for size in needs.owner_sent_bytes.values())
    each = ", ".join(f"{size} of {name}" for size, name in zip(sizes, names, strict=True))
    return f"its rows: {each}; once, whatever its table has"


def _forms(sizes: Mapping[str, int], form: str) -> str:
    others = [f"{gigabytes_text(size)} as {name}" for name, size in sizes.items() if name != form]
    beside = f" ({', '.join(others)})" if others else ""
    return f"{gigabytes_text(sizes[form])} as {form}{beside}, once, whatever its table has"


def _times(needs: ResourceEstimate) -> str:
    # Rounded up one by one, short parts would come to more than the whole.
    parts = ", ".join(
        f"{name} {duration_text(seconds) if seconds >= 1 else 'under 1 s'}"
        for name, seconds in needs.seconds.items()
    )
    total = sum(needs.seconds.values())
    most = total - needs.seconds["estimate"] + needs.estimate_most_s
    return f"about {duration_text(total)} ({parts}); up to {duration_text(most)} if the model grows to its limit"


def _model(needs: ResourceEstimate) -> str:
    model = needs.model
    text = f"at most {model.limit_mb:g} MB, {model.least_mb:.2g} with single columns alone; "
    if not model.queries:
        return text + "no query has several columns"
    return text + (
        f"of {model.queries} queries {model.fit_first} fit in the first round and {model.fit_ever} in the last, the "
        f"largest with {model.largest_mb:.3g} MB"
    )


def _noise_lines(noise: MethodNoise, made: ResourcePlan) -> list[tuple[str, str]]:
    subject = (
        f"{made.rows:,} rows"
        if made.rows_given
        else f"as many rows as there may be, {made.rows:,} (--rows says how many there are)"
    )
    over = f", in sums over {noise.members} clients" if noise.members else ""
    lines = [
        (
            f"noise {noise.method}",
            f"in a cell, deviation {_sigmas(noise, made.config)}; with {subject}{over}, if counts are even, it leaves",
        )
    ]
    for name, cells in (("columns", noise.columns), ("queries", noise.queries)):
        ranked = sorted(cells, key=lambda cell: cell.left)
        best, middle, worst = ranked[0], ranked[len(ranked) // 2], ranked[-1]
        lines.append(
            (
                "",
                f"of {len(cells)} {name} an error of {middle.left:.3f} in the middle, {best.left:.3f} "
                f"({', '.join(best.query)}) to {worst.left:.3f} ({', '.join(worst.query)}), of at most 2",
            )
        )
    return lines


def _sigmas(noise: MethodNoise, config: Config) -> str:
    """Returns the deviations of single columns and of others."""
    first, other = noise.columns[0].sigma, noise.queries[0].sigma
    finer = " at first" if config.run.schedule == ANNEALED and noise.method == "distaim" else ""
    if first == other:
        return f"{first:.4g}{finer}"
    return f"{first:.4g} of single columns, {other:.4g} of others{finer}"
