"""Check of the decision of a run to measure single columns alone, from the transcripts.

A run with ``run.fallback`` decides once, after round 0, from what was opened then. The lead sends the model by which
all three decide, so that the auditor makes it anew. No value here is secret.
"""

import copy

from mechanisms.accounting import Schedule
from mechanisms.aim import estimated_total
from mechanisms.choosing import drowned
from mechanisms.pgm import allowed_now, fit
from parties.audit.checks.model_fit import refresh_of
from parties.audit.checks.privacy import RunTerms, rounds_of
from parties.audit.checks.released import released_measurements
from parties.audit.evidence import Evidence
from parties.audit.findings import NotApplicable, require
from parties.mpc.planning.budget import make_plan

_TOLERANCE = 1e-3
"""Relative difference of the noise within which either decision is allowed: models differ from machine to machine."""
_AMONG_DROWNED = "the run chose among pairs of columns that noise drowns"


def check_columns_alone(evidence: Evidence, terms: RunTerms) -> None:
    """Raises CheckFailure unless single columns alone were measured exactly where noise would drown the pairs.

    As in ``mechanisms.aim.run_aim``, with the auditor's own model of round 0.
    """
    run, workload = terms.config.run, terms.workload
    plan = make_plan(terms.study)
    if not run.may_fall_back:
        return
    opened = released_measurements(evidence, terms)
    second = next((m for m in opened.measurements if m.round == 1), None)
    if second is None:
        return
    before, then = plans_of(evidence, terms, 1)
    first = [m for m in opened.measurements if m.round == 0]
    try:
        refresh = refresh_of(evidence, terms.config)
    except NotApplicable:
        # Without the earlier model nobody can tell; the check `model` says that it is missing.
        return
    model, potentials = fit(workload, first, iterations=run.iterations, refresh=refresh)
    allowed = allowed_now(
        workload,
        model,
        potentials,
        max_model_mb=run.max_model_mb,
        spent=plan.spent_after(1) / plan.rho,
        refresh=refresh,
    )
    answers = model.answers_q32(workload.candidates)
    total = estimated_total(first, first[-1].clients, terms.config.max_rows)
    follows = [
        drowned(
            workload,
            answers,
            allowed,
            total=total,
            sigma=plan.noise_sigma * factor,
        )
        for factor in (1 - _TOLERANCE, 1 + _TOLERANCE)
    ]
    possible = []
    for settled in follows:
        possible.append(copy.deepcopy(before))
        possible[-1].advance(1, settled=settled)
    alone = [each.columns_alone for each in possible]
    if then.rounds == 1:
        # The noise of a last round does not say which it was, and a column may have been chosen among all.
        is_column = len(workload.candidates[second.candidate]) == 1
        require(is_column or not all(alone), _AMONG_DROWNED)
        return
    require(
        then.columns_alone in alone,
        "the run measured single columns alone, where noise leaves enough of the pairs"
        if then.columns_alone
        else _AMONG_DROWNED,
    )


def plans_of(evidence: Evidence, terms: RunTerms, number: int) -> tuple[Schedule, Schedule]:
    """Returns the schedule at the time of a round's model, and the schedule in that round."""
    plans = {0: make_plan(terms.study)}
    for session in evidence.sessions:
        for attempt in session.present:
            plans |= {n: plan for n, _, plan in rounds_of(attempt, terms)}
    return plans.get(number - 1, plans[0]), plans[number]
