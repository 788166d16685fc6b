"""A report's figures of quality follow from the opened values; true values stand beside them in trials, marked."""

import json
import secrets
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from mechanisms.accounting import Ledger
from mechanisms.aim import AimResult, run_aim
from mechanisms.column_values import column_values
from mechanisms.domain import Categorical, Domain, Integer
from mechanisms.flaim import FlaimMeasurement, FlaimResult, FlaimRound, Participant
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.independence import PairGain
from mechanisms.intervals import LARGEST, MEASURED, SELECTION
from mechanisms.metrics import table_answers
from mechanisms.model import Model
from mechanisms.pgm import PgmEstimator
from mechanisms.plaintext import PlaintextBackend
from mechanisms.private_bins import PrivateBins
from mechanisms.sampling import public_generator
from mechanisms.table import decode
from mechanisms.workload import Workload, draw_workload
from parties.config import Config
from parties.foundation.errors import StoreError
from parties.local.flaim_simulation import simulate
from parties.mpc.planning.budget import make_plan, noise_kind
from parties.report.accuracy import report_figures
from parties.report.claims import claims_with_truth, column_claims, truth_text
from parties.report.html import render_html
from parties.report.model import NOT_PRIVATE, ReportFigures
from parties.report.public import real_figures, without_real
from parties.report.quality import (
    QUALITY,
    aim_quality,
    dependencies,
    flaim_quality,
    read_quality,
    with_truth,
    write_quality,
)
from parties.report.shuffling import shuffling, with_released
from parties.report.verdict import verdict
from parties.session.study import Study
from tests.mechanisms.tables import domain_of, random_codes
from tests.parties.support import make_codes, make_config
from tests.parties.test_report import Page, example


async def run_small(
    config: Config, codes: NDArray[np.int32] | None = None
) -> tuple[Workload, AimResult, Model]:
    workload = config.build_workload()
    plan = make_plan(Study(config, workload))
    backend = PlaintextBackend.pooled(
        workload,
        plan,
        codes=make_codes(2000) if codes is None else codes,
        ledger=Ledger(plan.rho),
        random_bytes=secrets.token_bytes,
    )
    estimator = PgmEstimator(workload, plan, iterations=5, final_iterations=10)
    result = await run_aim(workload, plan, backend, estimator, max_rows=config.max_rows)
    assert estimator.model is not None
    return workload, result, estimator.model


async def test_aim_quality_has_an_interval_for_every_marginal() -> None:
    config = make_config()
    workload, result, model = await run_small(config)
    synthetic = make_codes(2000, seed=4)
    quality = aim_quality(
        config.run, workload, result, noise=noise_kind(config), model=model, codes=synthetic
    )
    marginals = quality["marginals"]
    assert isinstance(marginals, list)
    assert [tuple(m["columns"]) for m in marginals] == list(workload.candidates)
    assert {tuple(m["columns"]) for m in marginals if m["query"]} == set(workload.queries)
    for marginal in marginals:
        assert 0 <= marginal["low"] <= marginal["high"] <= LARGEST
        measured = marginal["noise"] is not None
        assert measured or marginal["basis"] != MEASURED
        assert (marginal["expected_is"] == "noise") == measured
    pairs = quality["dependencies"]
    assert isinstance(pairs, dict)
    columns = len(config.domain.columns)
    assert sum(map(len, pairs.values())) == columns * (columns - 1) // 2
    # Where the last choice was made before an interruption, nothing follows from it.
    without = aim_quality(
        config.run,
        workload,
        replace(result, last=None),
        noise=noise_kind(config),
        model=model,
        codes=synthetic,
    )
    assert not any(m["basis"] == SELECTION for m in without["marginals"])  # type: ignore[attr-defined]


async def test_with_truth_adds_errors_and_counts_what_held() -> None:
    config = make_config()
    workload, result, model = await run_small(config)
    synthetic, real = make_codes(2000, seed=4), make_codes(2000)
    quality = aim_quality(
        config.run, workload, result, noise=noise_kind(config), model=model, codes=synthetic
    )
    found = with_truth(quality, workload, synthetic, real)
    held = found["held"]
    assert held["intervals"] == held["held"] == len(workload.candidates) >= held["likely"]
    first = workload.slice(0)
    shares = [table_answers(workload, t)[first] / 2000 for t in (synthetic, real)]
    error = float(np.abs(shares[0] - shares[1]).sum())
    assert found["marginals"][0]["true_error"] == pytest.approx(error)
    # What cannot be true does not hold.
    lies = {**quality, "marginals": [{**m, "high": 0.0} for m in found["marginals"]]}
    assert with_truth(lies, workload, synthetic, real)["held"]["held"] < len(workload.candidates)


async def test_all_that_a_trial_adds_is_listed_and_taken_out_of_what_is_published() -> None:
    config = make_config()
    workload, result, model = await run_small(config)
    synthetic, real = make_codes(2000, seed=4), make_codes(2000)
    made, beside = (
        column_values(config.domain, decode(config.domain, codes, public_generator(0)))
        for codes in (synthetic, real)
    )
    quality = aim_quality(
        config.run, workload, result, noise=noise_kind(config), model=model, codes=synthetic
    )
    quality["columns"] = column_claims(quality, config.domain, synthetic, made)
    quality["verdict"] = verdict(quality, config.domain)
    found = with_truth(quality, workload, synthetic, real, values=(made, beside))
    pairs = found["shuffling"]["each"]
    assert pairs
    for pair in pairs:
        cells = workload.slice(workload.candidates.index(tuple(pair["columns"])))
        one, other = (table_answers(workload, t)[cells] / 2000 for t in (synthetic, real))
        assert pair["true"]["off"] == pytest.approx(np.abs(one - other).sum() / 2)
        assert 0 <= pair["true"]["independent"] <= 1
    of_trial = replace(example(), quality=found).to_dict()
    assert set(of_trial["not_private"]) == set(real_figures(of_trial))  # type: ignore[call-overload]
    assert "quality.shuffling.each[].true" in real_figures(of_trial)
    # Whatever a trial adds and nobody lists, stays in what is published, and differs from a report without it.
    public = without_real(of_trial)
    assert public["quality"] == json.loads(json.dumps(quality))
    deployed = replace(example(), quality=quality, utility=None).to_dict()
    pages = [
        render_html(report, report_figures(report, workload, synthetic))
        for report in (public, deployed)
    ]
    assert pages[0] == pages[1]
    assert NOT_PRIVATE not in pages[0]
    page = render_html(of_trial, report_figures(of_trial, workload, synthetic, real=real))
    assert "in truth (not private)" in page
    assert page.count(NOT_PRIVATE) > 2


def flaim_result(
    workload: Workload, model: Model, contributors: tuple[int, ...], share: float
) -> FlaimResult:
    """One-way sums over both clients, and a pair's over ``contributors``, who have a share; hardly any noise."""
    answers = table_answers(workload, make_codes(2000))
    pair = next(i for i, q in enumerate(workload.candidates) if len(q) == 2)
    sums = [
        FlaimMeasurement(0, i, answers[workload.slice(i)], 1e-6, (0, 1), True)
        for i in workload.one_way
    ]
    counts = answers[workload.slice(pair)] * share
    chosen = FlaimMeasurement(1, pair, counts, 1e-6, contributors, False)
    rounds = (
        FlaimRound(0, (0, 1), {}, tuple(sums), lost=False),
        FlaimRound(1, (0, 1), {pair: contributors}, (chosen,), lost=False),
    )
    return FlaimResult(model, rounds, 2000, 1, (), 1, 0, "", (Participant(0), Participant(1)))


@pytest.mark.parametrize(("contributors", "share"), [((0, 1), 1.0), ((1,), 0.25)])
def test_flaim_quality_bounds_what_was_measured_and_leaves_room_for_other_clients(
    contributors: tuple[int, ...], share: float
) -> None:
    workload = make_config().build_workload()
    names = workload.domain.names
    tables = tuple(np.full(size, 1 / size) for size in workload.domain.shape)
    model = Model(workload.domain, tuple((n,) for n in names), (-1,) * len(names), tables)
    result = flaim_result(workload, model, contributors, share)
    quality = flaim_quality(workload, result, rounds=1, codes=make_codes(2000, seed=4))
    # What is likely was calibrated on other models.
    assert "likely" not in quality
    marginals = quality["marginals"]
    assert isinstance(marginals, list)
    pair = next(m for m in marginals if len(m["columns"]) == 2)
    assert all(m["basis"] == MEASURED for m in marginals if len(m["columns"]) == 1)
    assert pair["basis"] == MEASURED
    assert 2 * (1 - share) <= pair["high"] < 2 * (1 - share) + 0.3
    assert (pair["noise"] is None) == (share < 1)
    # No choice says anything here.
    assert all(m["high"] == LARGEST for m in marginals if len(m["columns"]) > 1 and m is not pair)


def test_dependencies_tell_three_kinds_of_pairs() -> None:
    measured = [("a",), ("a", "b"), ("b", "c"), ("d", "e")]
    # d x e was measured and did not fit into the model; a x c is in a clique of it and nobody has measured it.
    found = dependencies(("a", "b", "c", "d", "e"), measured, [("a", "b", "c"), ("d",), ("e",)])
    assert found == {
        "measured": [["a", "b"], ["b", "c"]],
        "through_others": [["a", "c"]],
        "independent": [[x, y] for x, y in ("ad", "ae", "bd", "be", "cd", "ce", "de")],
    }


def test_read_quality_reads_what_was_kept(tmp_path: Path) -> None:
    assert read_quality(tmp_path) is None
    write_quality(tmp_path, {"confidence": 0.95, "marginals": []})
    assert read_quality(tmp_path) == {"confidence": 0.95, "marginals": []}
    (tmp_path / QUALITY).write_text("{", encoding="utf-8")
    with pytest.raises(StoreError, match=r"quality\.json: cannot be read"):
        read_quality(tmp_path)


DOMAIN = Domain((Categorical("sex", ("f", "m")), Integer("age", 0, 99), Integer("few", 0, 3)))


def test_dependencies_of_a_refresh_tell_what_it_has_from_the_earlier_model() -> None:
    measured = [("a",), ("a", "b")]
    cliques = [("a", "b", "c"), ("c", "d"), ("e",)]
    found = dependencies(
        ("a", "b", "c", "d", "e"), measured, cliques, earlier=[("a", "b"), ("b", "c"), ("c", "d")]
    )
    assert found["measured"] == [["a", "b"]]
    assert found["taken_over"] == [["b", "c"], ["c", "d"]]
    assert found["through_others"] == [["a", "c"], ["a", "d"], ["b", "d"]]
    assert found["independent"] == [[x, "e"] for x in "abcd"]
    # Without an earlier model the kinds are three.
    assert "taken_over" not in dependencies(("a", "b"), measured, [("a", "b")])


def marginal(columns: str, high: float, *, noise: float | None = None) -> dict[str, object]:
    names = columns.split()
    return {
        "columns": names,
        "query": len(names) > 1,
        "cells": 4,
        "low": 0.0,
        "high": high,
        "basis": MEASURED if noise else SELECTION,
        "noise": noise,
        "expected": high / 3,
        "expected_is": "noise" if noise else "at most",
    }


def claim(column: str, off: float, lost: float, **more: object) -> dict[str, object]:
    return {"column": column, "kind": "integer", "off": off, "lost": lost, "bin_lost": lost, **more}


def section(*marginals: dict[str, object], **pairs: list[list[str]]) -> dict[str, object]:
    kinds = {"measured": [], "through_others": [], "independent": [], **pairs}
    return {"confidence": 0.95, "marginals": list(marginals), "dependencies": kinds}


def test_verdict_says_what_is_close_rough_and_without_a_promise() -> None:
    said = section(
        marginal("sex", 0.02, noise=12.0),
        marginal("age", 0.02, noise=12.0),
        marginal("sex age", 0.2),
        marginal("sex few", 0.4, noise=40.0),
        measured=[["sex", "few"]],
        through_others=[["sex", "age"]],
        independent=[["age", "few"]],
    )
    found = verdict({**said, "columns": [claim("age", 0.045, 0.035)]}, DOMAIN)
    assert found["good_for"] == [
        "Shares in single columns: all 2 are off by no more than 4.5% of the rows.",
        "Rough shares in pairs of columns: 1 of 2 (sex × age) is off by no more than 13.5% of the rows.",
        "Relations between columns that were measured together: 1 of 3 pairs, sex and few.",
    ]
    bad = found["not_for"]
    assert bad[0] == (
        "Shares in pairs of columns: 1 of 2 (sex × few) may be off by more than 15% of the rows. 1 of these was "
        "measured, with too much noise."
    )
    assert "1 pair has only what follows through other columns; 1 pair has no relation" in bad[1]
    assert bad[2].startswith("Groups of fewer than about 24 rows")
    assert bad[3].startswith("Differences within a bin of age:")
    assert bad[4].startswith("Single rows")
    assert found["confidence"] == ["Bounds hold with 95% confidence, all of them at once."]


@pytest.mark.parametrize("changed", [0, 1])
def test_verdict_of_a_refresh_says_what_is_the_earlier_models(changed: int) -> None:
    pairs = [{"columns": ["sex", "age"], "changed": n < changed} for n in range(2)]
    said = section(
        marginal("sex age", 0.1, noise=12.0),
        measured=[["sex", "age"]],
        taken_over=[["sex", "few"]],
        through_others=[["age", "few"]],
    )
    found = verdict({**said, "earlier": {"marginals": pairs}}, DOMAIN)
    (sentence,) = [s for k in ("good_for", "not_for") for s in found[k] if "taken over" in s]
    assert "not measured now: 1 of 3 pairs, sex and few." in sentence
    assert (sentence in found["good_for"]) == (not changed)
    assert sentence.endswith(
        "1 of 2 measured pairs differs from the earlier model by more than noise explains."
        if changed
        else "none of the 2 measured pairs differs from the earlier model by more than noise explains."
    )
    others = next(s for s in found["not_for"] if s.startswith("Other relations"))
    assert "1 pair has only what follows through other columns" in others


def test_verdict_counts_what_is_lost_within_cells() -> None:
    """A column that noise hardly touches, in cells that are too wide: neither it nor a pair with it is good."""
    said = section(marginal("age", 0.02), marginal("few", 0.02), marginal("age few", 0.06))
    narrow = verdict({**said, "columns": [claim("age", 0.04, 0.03)]}, DOMAIN)
    assert narrow["good_for"][0].startswith("Shares in single columns: all 2 are")
    assert narrow["good_for"][1].startswith(
        "Rough shares in pairs of columns: the only one is off by no more than 6.0%"
    )
    # Fine cells tell values apart in the column by itself alone.
    fine = verdict({**said, "columns": [claim("age", 0.04, 0.03, bin_lost=0.13)]}, DOMAIN)
    assert fine["good_for"] == narrow["good_for"][:1]
    wide = verdict({**said, "columns": [claim("age", 0.21, 0.2)]}, DOMAIN)
    assert wide["good_for"] == [
        "Shares in single columns: 1 of 2 (few) is off by no more than 1.0% of the rows."
    ]
    assert wide["not_for"][0] == (
        "Shares in single columns: 1 of 2 (age) may be off by more than 15% of the rows. Of 1 the cells are closer, "
        "but bins are too wide to tell values in them apart."
    )
    # Without a claim nothing is known of values in bins.
    assert verdict(said, DOMAIN)["good_for"] == wide["good_for"]


def test_verdict_trusts_no_column_of_which_one_cell_is_most() -> None:
    said = section(marginal("age", 0.02), marginal("few", 0.02))
    bin_ = {"low": 3, "high": 99}
    for more, why in (
        ({"heaviest": bin_, "widest": {**bin_, "of_range": 0.97}}, "is 97% of the range"),
        ({"heaviest": bin_, "widest": {**bin_, "of_range": 0.3}}, ""),
    ):
        found = verdict({**said, "columns": [claim("age", 0.03, 0.02, **more)]}, DOMAIN)
        assert ("all 2" in found["good_for"][0]) == (not why)
        assert any(why in line and "one bin, 3 to 99" in line for line in found["not_for"]) == bool(
            why
        )
    found = verdict({**said, "columns": [claim("age", 0.85, 0.8, heaviest=bin_)]}, DOMAIN)
    assert "has 80% of the rows" in found["not_for"][1]
    assert "private bins would help" in found["not_for"][1]
    sex, _, few = DOMAIN.columns
    private = Domain((sex, Integer("age", 0, 99, private=PrivateBins()), few))
    found = verdict({**said, "columns": [claim("age", 0.85, 0.8, heaviest=bin_)]}, private)
    assert "private bins more cells" in found["not_for"][1]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-(10**15), 71, "one bin, all up to 71, has"),
        (80, 10**15, "one bin, all from 80 on, has"),
        (-(10**15), 10**15, "one bin, all values, has"),
        (71, 80, "one bin, 71 to 80, has"),
    ],
)
def test_verdict_names_no_bound_where_a_public_grid_ends(low: int, high: int, said: str) -> None:
    age = Integer("age", -(10**15), 10**15, private=PrivateBins(free=True))
    found = verdict(
        {
            **section(marginal("age", 0.02)),
            "columns": [claim("age", 0.4, 0.3, heaviest={"low": low, "high": high})],
        },
        Domain((age,)),
    )
    assert any(said in line for line in found["not_for"])


def test_verdict_tells_pairs_in_the_model_from_those_that_were_measured() -> None:
    """FLAIM measures all pairs, of which the model takes some."""
    said = section(marginal("sex", 0.02), marginal("sex age", 0.5), measured=[["sex", "age"]])
    gain = PairGain(("sex", "age"), 0.04, 0.3, seen=True, proven=False)
    good = verdict({**said, "shuffling": with_released(shuffling([gain], 3), 3)}, DOMAIN)[
        "good_for"
    ]
    assert good[1].startswith(
        "Pairs of columns beyond what columns drawn independently would show: 1 of 1 in the model (3 were measured). "
        "The pairs in the model are expected to be off by 2.0% of the rows"
    )
    assert good[2].startswith("Relations between columns that are together in the model: 1 of 1")
    unseen = verdict(
        {**said, "shuffling": with_released(shuffling([replace(gain, seen=False)], 3), 3)}, DOMAIN
    )
    assert (
        "noise alone could explain how the columns of the 1 pairs in the model go together"
        in (unseen["not_for"][0])
    )
    # Where all that was measured is in the model, words and figures are as they were.
    assert with_released(shuffling([gain], 3), 1) == shuffling([gain], 3)


def test_verdict_says_where_a_run_is_not_better_than_independent_columns() -> None:
    said = section(marginal("sex", 0.02), marginal("sex age", 0.5), measured=[["sex", "age"]])
    gain = PairGain(("sex", "age"), 0.04, 0.3, seen=True, proven=False)
    good = verdict({**said, "shuffling": shuffling([gain], 3)}, DOMAIN)
    assert good["good_for"][1] == (
        "Pairs of columns beyond what columns drawn independently would show: 1 of 1 that were measured. The measured "
        "pairs are expected to be off by 2.0% of the rows on average, independent columns by 15.0%."
    )
    assert "Relations between columns" in good["good_for"][2]
    for gains, why in (
        ([], "no measurement of a pair of columns says anything above the noise"),
        (
            [replace(gain, seen=False)],
            "noise alone could explain how the columns of the 1 measured",
        ),
        (
            [gain, replace(gain, expected=0.9, seen=False)],
            "are expected to be off by 23.5% of the rows",
        ),
    ):
        found = verdict({**said, "shuffling": shuffling(gains, 3)}, DOMAIN)
        first = found["not_for"][0]
        assert first.startswith(
            "This run is not shown to be better than columns drawn independently: "
        )
        assert why in first
        assert first.endswith("fewer cells in each would help.")
        assert not any("columns" in line and "Relations" in line for line in found["good_for"])
    # One column has no pairs.
    assert verdict({**said, "shuffling": shuffling([], 0)}, DOMAIN) == verdict(said, DOMAIN)


def test_claims_with_truth_say_which_of_them_are_wrong() -> None:
    """Of a table of ages and of one in which nearly all are older than was claimed."""
    column = Integer("age", 0, 99, 100)
    domain = Domain((column,))
    codes = np.repeat(np.arange(20, 40, dtype=np.int32), 5)[:, None]
    made, near, far = (
        column_values(domain, pd.DataFrame({"age": [str(n + more) for n in codes[:, 0]]}))
        for more in (0, 1, 40)
    )
    quality = {"marginals": [marginal("age", 0.2)]}
    claims = column_claims(quality, domain, codes, made)
    (right,) = claims_with_truth(claims, domain, made, near)
    assert right["wrong"] == []
    assert right["true"]["off"] == pytest.approx(0.05)
    assert right["true"]["moved"] == pytest.approx(1)
    (wrong,) = claims_with_truth(claims, domain, made, far)
    assert {"how far it is off", "10% quantile", "50% quantile"} <= set(wrong["wrong"])
    assert truth_text([right]) == ["Compared with the real table, no claim on one column is wrong."]
    (said,) = truth_text([wrong])
    assert said.startswith(
        "Compared with the real table, claims on age are wrong: how far it is off"
    )
    assert said.endswith("Off is 100.0% where at most 10.0% was claimed.")
    # The page has them, and marks them.
    pairs = {**shuffling([], 3), "true": {"synthetic": 0.2, "shuffled": 0.1, "real_shuffled": 0.1}}
    of_trial = {**section(), "held": {"intervals": 0, "held": 0}, "columns": [wrong]}
    of_trial |= {"truth": [said], "shuffling": pairs}
    document = replace(example(), utility=None, quality=of_trial).to_dict()
    assert {"quality.truth", "quality.columns[].true", "quality.shuffling.true"} <= set(
        document["not_private"]  # type: ignore[call-overload]
    )
    text = Page(render_html(document, ReportFigures())).text
    assert said in text
    assert "no better than columns drawn independently" in text
    assert "27 to 32" in text
    assert NOT_PRIVATE in text


def test_verdict_does_not_look_at_true_errors() -> None:
    said = section(marginal("sex", 0.02), marginal("age", 2.0))
    marginals = [{**m, "true_error": 1.9} for m in said["marginals"]]  # type: ignore[attr-defined]
    assert verdict(said, DOMAIN) == verdict({**said, "marginals": marginals}, DOMAIN)


def test_page_shows_verdict_and_marks_true_errors() -> None:
    said = section(marginal("sex", 0.02, noise=3.0), marginal("sex age", 0.5))
    said["verdict"] = verdict(said, DOMAIN)
    report = replace(example(), utility=None, quality=said)
    text = Page(render_html(report.to_dict(), ReportFigures())).text
    assert "Good for" in text
    assert "may be off by more than 15% of the rows" in text
    assert "another query was chosen" in text
    assert "up to 8.33 %" in text
    assert NOT_PRIVATE not in text
    marginals = [{**m, "true_error": 0.75, "held": False} for m in said["marginals"]]  # type: ignore[attr-defined]
    of_trial = {**said, "marginals": marginals, "held": {"intervals": 2, "held": 0}}
    document = replace(example(), utility=None, quality=of_trial).to_dict()
    assert document["not_private"] == [
        "quality.held",
        "quality.marginals[].true_error",
        "quality.marginals[].held",
    ]
    text = Page(render_html(document, ReportFigures())).text
    assert "0 of 2 intervals hold" in text
    assert "37.5 %, outside" in text
    assert NOT_PRIVATE in text


@pytest.mark.slow
async def test_flaim_intervals_hold_in_every_repeat_with_clients_that_differ() -> None:
    """60 runs with 6 clients whose rows are sorted by a column: in all of them all intervals hold.

    With a coverage below 95 % this would happen with a chance below 0.95^60 = 5 %. The control: choosers' sums taken
    for everybody's do not hold in half of the runs.
    """
    domain = domain_of(3, 4, 2, 5)
    workload = draw_workload(domain, 2, None)
    codes = random_codes(domain, 3000, 1)
    tables = np.array_split(codes[np.argsort(codes[:, 0], kind="stable")], 6)
    held = mistaken = 0
    for seed in range(60):
        sizes = ("estimated", "public")[seed % 2]
        settings = FlaimSettings.preset(
            "private", rho=0.3, rounds=3, participation=1.0, sizes=sizes, min_participants=3
        )
        result = (await simulate(tables, workload, settings, seed=seed)).result
        made = result.model.sample(3000, public_generator(seed))
        everybody = tuple(p.client for p in result.population)
        rounds = tuple(
            replace(
                done,
                measurements=tuple(
                    replace(m, noisy=m.noisy * (3000 / m.noisy.sum()), contributors=everybody)
                    for m in done.measurements
                ),
            )
            for done in result.rounds
        )
        for of in (result, replace(result, rounds=rounds)):
            quality = flaim_quality(workload, of, rounds=3, codes=made)
            found = with_truth(quality, workload, made, codes)["held"]
            holds = found["held"] == found["intervals"]
            held, mistaken = (held + holds, mistaken) if of is result else (held, mistaken + holds)
    assert held == 60
    assert mistaken < 30
