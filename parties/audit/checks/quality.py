"""Check ``quality``: the quality in report.json follows from the opened values.

The auditor computes every interval and estimate anew, with its own models, derives claims and verdict from the report's
figures by the same rules, and takes the columns' figures from the table. For FLAIM only verdict, claims and columns are
verified. All values here are public. Known limits: a bound may be wider than necessary; ``TOLERANCE`` is the lead's
freedom; figures that need a trial's real table are not verified.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mechanisms.aim import AimResult, Chosen, Estimate, estimated_total
from mechanisms.choosing import choice_spec
from mechanisms.column_values import ColumnValues
from mechanisms.domain import Domain
from mechanisms.errors import MechanismError
from mechanisms.pgm import allowed_now
from parties.audit.checks.columns_alone import plans_of
from parties.audit.checks.model_fit import FittedModel, ModelFits, fits_of, refresh_of
from parties.audit.checks.privacy import RunTerms
from parties.audit.checks.released import ReleasedMeasurements, released_measurements
from parties.audit.checks.report import REPORT_FILE, read_report
from parties.audit.checks.report_parts import edition_of
from parties.audit.evidence import Evidence
from parties.audit.findings import CheckFailure, NotApplicable, require
from parties.config import Config
from parties.foundation.errors import PartyError
from parties.foundation.version import TEXT_EDITION
from parties.mpc.planning.budget import noise_kind, rule_of
from parties.report.claims import column_claims
from parties.report.columns import column_summaries
from parties.report.from_result import SyntheticTable, read_table_of
from parties.report.public import without_real
from parties.report.quality import NOISE, aim_quality
from parties.report.verdict import verdict
from parties.session.result_digests import MODEL_FOLDER, TABLE_FILE

TOLERANCE = 1e-3
"""Maximum L1 distance of a bound below the auditor's own.

Models are the same on the machine of the run; on another one their answers differ by some 10^-6.
"""


def quality(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that no interval is narrower than the openings allow, and that the verdict follows from the figures."""
    document = read_report(evidence)
    said = document.get("quality")
    if not isinstance(said, Mapping):
        raise NotApplicable(f"{REPORT_FILE} says nothing of quality.")
    check_verdict(said, terms.released.domain)
    table = written_table(terms.released, evidence.directory)
    if table is None or not (evidence.directory / MODEL_FOLDER).is_dir():
        raise NotApplicable(f"There is no {TABLE_FILE} or no {MODEL_FOLDER}/ in the folder.")
    try:
        fits = fits_of(evidence, terms)
    except MechanismError as error:
        raise CheckFailure(f"no model can be fitted to what was opened: {error}") from error
    check_columns(document, terms.released.domain, table.values)
    opened = released_measurements(evidence, terms)
    # Reports of an earlier edition judge a refresh as if there were no earlier model.
    of_edition = "earlier" in said or edition_of(document) == TEXT_EDITION
    refresh = refresh_of(evidence, terms.config) if of_edition else None
    problems, models = [], []
    for each in fits:
        # After a restart there are several possible fits, and some of them exclude the choice that was made.
        try:
            result = _result(opened, evidence, terms, each)
        except CheckFailure as failure:
            problems.append(str(failure))
            continue
        own = aim_quality(
            terms.config.run,
            terms.workload,
            result,
            noise=noise_kind(terms.config),
            model=each.final,
            codes=table.codes,
            earlier=None if refresh is None else refresh.model,
        )
        problems.append(next(_differences(said, own), ""))
        if not problems[-1]:
            models.append(own)
    require("" in problems, problems[0])
    check_claims(said, terms.released.domain, table)
    if edition_of(document) == TEXT_EDITION:
        follows: dict[str, object] = {"verdict": said["verdict"]}
        if "columns" in said:
            follows["columns"] = column_claims(
                said, terms.released.domain, table.codes, table.values
            )
        shown = without_real({"quality": said})["quality"]
        _require_words_of_one(shown, [{**own, **follows} for own in models])
    return (
        f"No interval of {len(said['marginals'])} marginals is narrower than what follows from the openings; expected "
        "and likely errors, dependencies, the verdict and the columns' figures follow, too. True errors, which only a "
        "trial knows, are not judged."
    )


def _require_words_of_one(said: object, possible: Sequence[object]) -> None:
    """Raises CheckFailure unless the words are those of one of the ``possible`` reports.

    After a restart the lead may have lost its last choice: it has wider intervals then, on other grounds.
    """
    failures = []
    for follows in possible:
        try:
            _require_words(said, follows, "quality")
        except CheckFailure as failure:
            failures.append(failure)
        else:
            return
    raise failures[0]


def _require_words(said: object, follows: object, where: str) -> None:
    """Raises CheckFailure unless a part has exactly the keys, texts and truth values that follow, whatever numbers."""
    if isinstance(follows, Mapping) and isinstance(said, Mapping):
        require(
            said.keys() == follows.keys(), f"{REPORT_FILE} has other parts in {where} than follow"
        )
        for key, value in follows.items():
            _require_words(said[key], value, f"{where}.{key}")
    elif isinstance(follows, list | tuple) and isinstance(said, list | tuple):
        require(len(said) == len(follows), f"{REPORT_FILE} has another number of {where}")
        for one, other in zip(said, follows, strict=True):
            _require_words(one, other, where)
    elif isinstance(follows, int | float) and not isinstance(follows, bool):
        require(
            isinstance(said, int | float) and not isinstance(said, bool),
            f"{REPORT_FILE} has no number in {where}",
        )
    else:
        require(said == follows, f"{REPORT_FILE} says otherwise in {where} than follows")


def written_table(config: Config, directory: Path) -> SyntheticTable | None:
    """Returns the synthetic table in a run's folder; None if there is none. Raises CheckFailure."""
    if not (directory / TABLE_FILE).exists():
        return None
    try:
        return read_table_of(config, directory)
    except (PartyError, MechanismError) as error:
        raise CheckFailure(f"{TABLE_FILE} is no table of the configuration's columns") from error


def check_verdict(said: Mapping[str, Any], domain: Domain) -> None:
    """Raises CheckFailure unless the verdict follows from the figures by the rules."""
    require(
        said.get("verdict") == verdict(said, domain),
        f"{REPORT_FILE} has a verdict that does not follow from its own figures",
    )


def check_claims(said: Mapping[str, Any], domain: Domain, table: SyntheticTable) -> None:
    """Raises CheckFailure unless the claims on each column follow from the report's intervals and the table."""
    claims = said.get("columns")
    if claims is None:
        return
    own = column_claims(said, domain, table.codes, table.values)
    require(len(claims) == len(own), f"{REPORT_FILE} has not exactly one claim for each column")
    for claimed, figures in zip(claims, own, strict=True):
        # Reports of earlier versions do not say which ends bound nothing, nor how far most values reach.
        later = {"open", "moved_of_middle"} - claimed.keys()
        follows = {key: value for key, value in figures.items() if key not in later}
        require(
            _is_consistent(claimed, follows),
            f"{REPORT_FILE} claims something else of the column {follows['column']} than follows from its intervals",
        )


def check_columns(
    document: Mapping[str, Any], domain: Domain, values: Sequence[ColumnValues]
) -> None:
    """Raises CheckFailure unless a report's figures of the synthetic columns are those of the table."""
    said = document.get("columns")
    if said is None:
        return
    own = column_summaries(domain, values)
    require(len(said) == len(own), f"{REPORT_FILE} has not exactly the columns of {TABLE_FILE}")
    for claimed, follows in zip(said, own, strict=True):
        shown = _synthetic(claimed)
        for key, value in _synthetic(follows).items():
            require(
                _is_equal(shown.get(key), value),
                f"{REPORT_FILE} has another {key} of the column {follows['column']} than {TABLE_FILE}",
            )


def _synthetic(column: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a column's figures of the synthetic table, without single values, whose list depends on a real table."""
    figures = {"name": column["column"]}
    for key in ("missing", "zeros", "atoms", "mean"):
        figures |= {key: column[key]["synthetic"]} if key in column else {}
    quantiles = column.get("quantiles", {})
    return figures | {f"quantile {q}": both["synthetic"] for q, both in quantiles.items()}


def _result(
    opened: ReleasedMeasurements, evidence: Evidence, terms: RunTerms, fits: ModelFits
) -> AimResult:
    """Returns the run as in the transcripts, with the last choice if the model for that choice is known."""
    measurements = opened.measurements
    rounds, clients = measurements[-1].round, max(m.clients for m in measurements)
    total = estimated_total(measurements, clients, terms.config.max_rows)
    last = None
    if rounds > 0 and fits.last is not None:
        last = _last_choice(opened, evidence, terms, fits.last)
    nothing = Estimate(np.zeros(0, np.bool_), np.zeros(0, np.uint32))
    return AimResult(measurements, nothing, rounds, clients, total, last)


def _last_choice(
    opened: ReleasedMeasurements, evidence: Evidence, terms: RunTerms, estimated: FittedModel
) -> Chosen:
    """Returns the last round's choice with its candidates, as in ``mechanisms.aim.run_aim``. Raises CheckFailure."""
    config, workload, measured = terms.config, terms.workload, opened.measurements[-1]
    before, plan = plans_of(evidence, terms, measured.round)
    spent = before.spent_after(measured.round) / before.rho
    allowed = allowed_now(
        workload,
        estimated.model,
        estimated.potentials,
        max_model_mb=config.run.max_model_mb,
        spent=spent,
        refresh=refresh_of(evidence, config),
    )
    until = [m for m in opened.measurements if m.round < measured.round]
    spec = choice_spec(
        workload,
        plan,
        estimated.model.answers_q32(workload.candidates),
        allowed,
        measured=[m.candidate for m in until],
        round=measured.round,
        total=estimated_total(until, measured.clients, config.max_rows),
        max_rows=config.max_rows,
        rule=rule_of(config),
    )
    require(
        measured.candidate in spec.candidates,
        f"round {measured.round} chose a query that was not to be chosen from",
    )
    return Chosen(spec, spec.candidates.index(measured.candidate), measured)


def _differences(said: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """Yields the claims of ``said`` beyond ``own``, in sentences."""
    if said["confidence"] != own["confidence"]:
        yield f"{REPORT_FILE} claims another confidence than {own['confidence']}"
    if "likely" in said and said["likely"] != own["likely"]:
        yield (
            f"{REPORT_FILE} claims that another share of the marginals is below what is likely, or "
            f"other tables for it"
        )
    if said["dependencies"] != own["dependencies"]:
        yield f"{REPORT_FILE} has other dependencies than those of what was measured"
    if not _is_consistent(said.get("fine", []), own["fine"]):
        yield f"{REPORT_FILE} has other bounds on fine cells than those that follow from the openings"
    if not _is_consistent(said.get("earlier"), own.get("earlier")):
        yield f"{REPORT_FILE} compares the run with the earlier model otherwise than what was opened does"
    if not _is_consistent(said.get("shuffling"), own["shuffling"]):
        yield f"{REPORT_FILE} compares the pairs with independent columns otherwise than what was opened does"
    if len(said["marginals"]) != len(own["marginals"]):
        yield f"{REPORT_FILE} has not exactly one interval for each marginal"
    for claimed, follows in zip(said["marginals"], own["marginals"], strict=False):
        where = f"the marginal of {', '.join(follows['columns'])}"
        if any(claimed[key] != follows[key] for key in ("columns", "query", "cells")):
            yield f"{REPORT_FILE} has another marginal in the place of {where}"
        if not _is_equal(claimed["noise"], follows["noise"]):
            yield f"{REPORT_FILE} has another noise for {where}"
        if not _is_wider(claimed, follows):
            yield f"{REPORT_FILE} has a narrower interval for {where} than what follows from the openings"
        if _expects_less(claimed, follows):
            yield f"{REPORT_FILE} expects another error of {where} than what follows from the openings"
        if _claims_less_likely(claimed, follows):
            yield f"{REPORT_FILE} says of {where} that less is likely than what follows from the openings"


def _is_wider(claimed: Mapping[str, Any], follows: Mapping[str, Any]) -> bool:
    return bool(
        0 <= claimed["low"] <= follows["low"] + TOLERANCE
        and claimed["high"] >= follows["high"] - TOLERANCE
    )


def _expects_less(claimed: Mapping[str, Any], follows: Mapping[str, Any]) -> bool:
    """True if an estimate differs, or a likely maximum is smaller; it may be larger if the last choice was lost."""
    if claimed["expected_is"] != follows["expected_is"]:
        return True
    if claimed["expected_is"] == NOISE:
        return not _is_equal(claimed["expected"], follows["expected"])
    return bool(claimed["expected"] < follows["expected"] - TOLERANCE)


def _claims_less_likely(claimed: Mapping[str, Any], follows: Mapping[str, Any]) -> bool:
    """True if a likely error is smaller than follows; reports of earlier versions have none."""
    return "likely" in claimed and not claimed["likely"] >= follows["likely"] - TOLERANCE


def _is_consistent(claimed: object, follows: object) -> bool:
    """True if a claim has all parts of ``follows``; further parts, which only a trial knows, are not verified."""
    if isinstance(follows, Mapping):
        return isinstance(claimed, Mapping) and all(
            _is_consistent(claimed.get(key), value) for key, value in follows.items()
        )
    if isinstance(follows, list):
        if not isinstance(claimed, list) or len(claimed) != len(follows):
            return False
        return all(map(_is_consistent, claimed, follows))
    return _is_equal(claimed, follows)


def _is_equal(one: object, other: object) -> bool:
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-6)
    return one == other
