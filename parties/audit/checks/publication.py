"""Checks ``published``, ``table`` and ``model``: the published files are those that the servers computed.

The lead sends the others the digests of table and model, and all three seal them (`parties.session.result_digests`).
The table has to be rows drawn from the model, and the model a fit of the released measurements. The auditor fits a
model itself, from the same openings in the same order with as many iterations, and compares misfits
(``mechanisms.pgm.misfit``) and the answers to all queries. All values here are public. Known limits: the lead decides
which of the possible tables it draws from the model, and the model's answers beyond the workload's queries; TOLERANCE,
``_MAX_DISTANCE`` and ``_CHANCE`` limit its freedom.
"""

import math

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import MechanismError
from mechanisms.model import Model
from mechanisms.pgm import misfit
from mechanisms.text_table import and_list
from mechanisms.workload import Workload, count_marginals
from parties.audit.checks.model_fit import fits_of
from parties.audit.checks.privacy import RunTerms
from parties.audit.checks.released import released_measurements
from parties.audit.evidence import Evidence, ServerTranscript
from parties.audit.findings import CheckFailure, NotApplicable, require
from parties.config import Config
from parties.foundation.errors import PartyError
from parties.report.from_result import read_synthetic
from parties.session.model_files import MAX_MODEL_BYTES, unpacked_bytes
from parties.session.result_digests import (
    MODEL_FOLDER,
    NOTE,
    TABLE_FILE,
    ResultDigests,
    model_digest,
    table_digest,
)
from parties.session.study import Study

TOLERANCE = 0.05
"""Maximum excess of a published model's misfit over the auditor's own fit: a twentieth of that of noise alone.

On the machine of the run the two are the same computation and the same numbers. On another one sums are rounded in
another order: with inputs off by 10^-10 of their size, the largest difference of 300 fits was 0.014, all others below
0.003. Fits of another run's openings of the same data were worse by 0.35 or more with 15 cells, 0.8 with thousands.
"""
_MAX_DISTANCE = 0.1
"""Maximum L1 distance of a query's answer from that of the auditor's own fit: a twentieth of the rows moved.

The fits above, with inputs off by 10^-10, answered all queries alike up to 10^-6.
"""
_SPREAD = 2.0 + 1e-6
"""Bound on ``Model.sampling_error`` of the rows that ``Model.sample`` draws, which is below 2."""
_CHANCE = 1e-9
"""Maximum probability that an honest table is taken for one with rearranged rows."""


def published(evidence: Evidence) -> str:
    """Verifies that all servers sealed the same digests at the end, and that the files in the folder have them."""
    said, found = sealed_digests(evidence), []
    for name, shown, digest, wanted in (
        (TABLE_FILE, TABLE_FILE, table_digest, said.table),
        (MODEL_FOLDER, f"{MODEL_FOLDER}/", model_digest, said.model),
    ):
        path = evidence.directory / name
        if path.exists():
            try:
                there = digest(path)
            except PartyError as error:
                raise CheckFailure(f"{shown} cannot be read") from error
            require(there == wanted, f"{shown} is not what was made at the end of the run")
            found.append(shown)
    if not found:
        raise NotApplicable(f"There is neither {TABLE_FILE} nor {MODEL_FOLDER}/ in the folder.")
    who = "All three servers" if len(evidence.transcripts) > 1 else "The server"
    return f"{who} sealed the digests of {and_list(found)} at the end of the run."


def sealed_digests(evidence: Evidence) -> ResultDigests:
    """Returns the digests that the servers sealed. Raises CheckFailure if they differ."""
    said = [_sealed_digests_of(transcript) for transcript in evidence.transcripts]
    for transcript, one in zip(evidence.transcripts, said, strict=True):
        who = f"servers 0 and {transcript.pid} sealed different digests of what was published"
        require(one == said[0], who)
    return said[0]


def _sealed_digests_of(transcript: ServerTranscript) -> ResultDigests:
    notes = transcript.last.notes(NOTE)
    require(
        len(notes) == 1,
        f"server {transcript.pid}'s transcript does not say once what was published",
    )
    return ResultDigests(notes[0].text("table"), notes[0].text("model"), notes[0].number("rows"))


def table(evidence: Evidence, study: Study) -> str:
    """Verifies that the table has the sealed number of rows, and that they are drawn from the model."""
    if not (evidence.directory / TABLE_FILE).exists():
        raise NotApplicable(f"There is no {TABLE_FILE} in the folder.")
    try:
        codes = read_synthetic(study.config, evidence.directory)
    except (PartyError, MechanismError) as error:
        raise CheckFailure(f"{TABLE_FILE} is no table of the configuration's columns") from error
    rows = sealed_digests(evidence).rows
    require(len(codes) == rows, f"{TABLE_FILE} has {len(codes)} rows; {rows} were made")
    model = published_model(evidence, study.config)
    worst = model.sampling_error(codes)
    require(
        worst < _SPREAD,
        f"{TABLE_FILE} is not drawn from {MODEL_FOLDER}/: a count is {worst:.1f} rows off, where less than 2 can be",
    )
    query = implausible_query(codes, model, study.workload)
    require(
        query is None,
        f"{TABLE_FILE} is not drawn from {MODEL_FOLDER}/: its counts of ({', '.join(query or ())}) are no chance",
    )
    return f"{TABLE_FILE} has {rows} rows, whose counts are those of rows drawn from the model."


def implausible_query(
    codes: NDArray[np.int32], model: Model, workload: Workload
) -> tuple[str, ...] | None:
    """Returns a query whose counts in a table are not those of rows drawn from the model; None if there is none.

    Within the model's cliques counts hardly vary (``Model.sampling_error``); between cliques no more than those of
    independent rows. By Bernstein's inequality a count with the mean e is off by t with a probability of at most 2
    exp(-t^2 / (2 e + 2 t / 3)), and this is at most 2 exp(-s) for t = sqrt(2 e s) + s.
    """
    counts = count_marginals(codes, workload).astype(np.float64)
    s = math.log(2 * len(counts) / _CHANCE)
    answers = model.answers(workload.maximal)
    ends = workload.maximal_offsets[1:]
    for query, answer, start, end in zip(
        workload.maximal, answers, workload.maximal_offsets, ends, strict=False
    ):
        mean = len(codes) * np.maximum(answer.reshape(-1), 0.0)
        off = np.abs(counts[start:end] - mean)
        if not (off <= np.sqrt(2 * mean * s) + s).all():
            return query
    return None


def published_model(evidence: Evidence, config: Config) -> Model:
    """Returns the published model.

    Raises NotApplicable if there is none, CheckFailure if it is damaged or of other columns.
    """
    folder = evidence.directory / MODEL_FOLDER
    if not folder.is_dir():
        raise NotApplicable(f"There is no {MODEL_FOLDER}/ in the folder.")
    try:
        require(
            unpacked_bytes(folder) <= MAX_MODEL_BYTES,
            f"{MODEL_FOLDER}/ is too large to be looked at",
        )
        model = Model.load(folder)
    except (MechanismError, OSError, ValueError, MemoryError) as error:
        raise CheckFailure(f"{MODEL_FOLDER}/ is no model that can be read") from error
    same = model.domain == config.domain
    require(same, f"{MODEL_FOLDER}/ is a model of other columns than the configuration's")
    return model


def model(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that the model fits the opened noisy counts as well as the auditor's own fit, with the same answers."""
    given = published_model(evidence, terms.released)
    opened = released_measurements(evidence, terms)
    try:
        said = misfit(terms.workload, opened.measurements, given)
        fits = [each.final for each in fits_of(evidence, terms)]
        own = max(misfit(terms.workload, opened.measurements, fitted) for fitted in fits)
    except MechanismError as error:
        raise CheckFailure(f"no model can be fitted to what was opened: {error}") from error
    require(
        said <= own + TOLERANCE,
        f"the model is not one of what was opened: its misfit is {said:.3g} times that of noise, a fit's {own:.3g}",
    )
    apart = [_largest_distance(terms.workload, given, fitted) for fitted in fits]
    require(
        any(distance <= _MAX_DISTANCE for distance in apart),
        f"the model is not one of what was opened: it answers a query otherwise than a fit, by {min(apart):.2g} in L1",
    )
    return (
        f"The model's misfit to the {len(opened.measurements)} noisy marginals that were opened is {said:.3g} times "
        f"that of noise, and the auditor's own fit's {own:.3g}; their answers to all queries are the same up to "
        f"{min(apart):.1g} in L1."
    )


def _largest_distance(workload: Workload, one: Model, other: Model) -> float:
    """Returns the largest L1 distance between two models' answers to a query of the workload."""
    pairs = zip(one.answers(workload.maximal), other.answers(workload.maximal), strict=True)
    return float(np.max([np.abs(left - right).sum() for left, right in pairs]))
