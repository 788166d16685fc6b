"""The utility page beside the paper: verdicts, smoothed likelihoods, reasons, claims of figures, scope and summary."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.experiment.sweeps import settings_of
from bench.experiment.verdicts import (
    Compared,
    Kind,
    Verdict,
    compared,
    counted,
    judged,
    smoothed,
)
from bench.fetch import DatasetError
from bench.methods.settings import Settings
from bench.papers.gan.outcomes import Outcome
from bench.papers.utility import claims, sizes
from bench.papers.utility.beside_paper import Sources, beside_paper
from bench.papers.utility.figures import COLOURS
from bench.papers.utility.grid import (
    CREDIT,
    SWEEPS,
    as_theirs,
    default,
    with_annealing,
)
from bench.papers.utility.plots import Plot, figure_of
from bench.papers.utility.reasons import REASONS, differences_section, reason_of
from bench.papers.utility.report import write_report
from bench.papers.utility.runs import Result
from bench.papers.utility.scope import ADULT_REPEATS, REPEATS, whole_grid
from bench.papers.utility.sizes import TableSize, measure_sizes, read_sizes
from bench.papers.utility.smoothing import Gaps, smoothing_section
from bench.papers.utility.stopping import stopping_section
from bench.papers.utility.store import Entry, open_store
from tests.bench.pages import whole
from tests.bench.papers.test_utility import Dataset, small

__all__ = ["small"]
RESULT = Result(0.5, 0.4, 0.45, 20.0, 0.7, 60.0, 10, 100, 0.1)


def test_judged_agrees_within_the_papers_digits_and_a_twentieth() -> None:
    assert judged(0.06, [0.0551, 0.0552]).kind is Kind.AGREE
    assert judged(20.0, [20.9]).kind is Kind.AGREE
    assert judged(20.0, []).text() == "not run"
    assert judged(20.0, [22.0]).text() == "one run, worse, +10%"
    assert judged(0.42, [0.344, 0.344, 0.344]).text() == "better, -18%"
    assert judged(2587.5, [274.0, 275.0, 276.0]).kind is Kind.BETTER
    assert counted(10.0, 100.0).text("less", "more") == "more, +900%"
    assert counted(10.0, 110.0).text("less", "more") == "more, 11 times"
    assert counted(10.0, 10.9, slack=1.0).kind is Kind.AGREE


def test_what_scatters_is_no_agreement_and_more_runs_decide() -> None:
    assert judged(20.0, [20.0, 24.0, 22.5]).text() == "within spread, +11%"
    ten = [20.0, 24.0, 22.5, 21.0, 23.0, 22.0, 22.5, 21.5, 22.5, 22.7]
    assert judged(20.0, ten).text() == "worse, +11%"
    # Three runs of deviation 1 are known to 4.303 sqrt(1/3 + 1/10) = 2.83, whatever the paper's figure.
    assert compared(20.0, 22.8, 1.0, 3).kind is Kind.WITHIN
    assert compared(20.0, 22.9, 1.0, 3).kind is Kind.WORSE


def test_judged_rarely_calls_equal_methods_different() -> None:
    """Draws of means of ten and of n from one normal law, 4,000 of each n: more than 5 % have a verdict less often.

    A share of 0.05 is known to 0.0034; at most 0.064 is four deviations off. Of means that differ by four deviations
    of a run, nearly all are called so, but by three runs, whose deviation is hardly known.
    """
    rng = np.random.default_rng(0)
    for runs, least in ((3, 0.6), (10, 0.99)):
        papers = rng.normal(1.0, 1.0, (4000, 10)).mean(axis=1) + 100.0
        ours = rng.normal(1.0, 1.0, (4000, runs)) + 100.0
        wrong = np.mean([_decided(p, o) for p, o in zip(papers, ours, strict=True)])
        assert wrong < 0.064
        seen = np.mean([_decided(p, o + 4.0) for p, o in zip(papers, ours, strict=True)])
        assert seen > least


def _decided(printed: float, values: np.ndarray) -> bool:
    found = compared(printed, values.mean(), values.std(ddof=1), len(values), slack=0.0)
    return found.kind in (Kind.BETTER, Kind.WORSE)


def test_smoothed_likelihoods_are_judged_only_as_far_as_they_can_be() -> None:
    worse, below, near = [24.2, 24.3, 24.4], [15.0, 15.1, 15.2], [20.1, 20.2, 20.3]
    assert smoothed(20.0, worse, []).kind is Kind.WORSE
    assert smoothed(20.0, below, [2.0]).kind is Kind.SMOOTHED
    assert smoothed(20.0, near, [2.0]).kind is Kind.SMOOTHED
    assert smoothed(20.0, near, []).kind is Kind.SMOOTHED
    # Where smoothing is known to do nothing, they are as good as raw ones.
    assert smoothed(20.0, near, [0.0, 0.1]).kind is Kind.AGREE
    assert smoothed(20.0, below, [0.0, 0.1]).kind is Kind.BETTER
    assert smoothed(20.0, [], [0.0]).kind is Kind.MISSING


def test_gaps_are_by_table_and_method_or_of_the_method_elsewhere(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    for dataset, method, repeat, raw in (
        ("magic", "naive", 0, 26.5),
        ("magic", "naive", 1, 20.25),
        ("magic", "naive", 2, 20.5),
        ("adult", "naive", 0, 21.0),
        ("adult", "aim", 0, 20.0 - 1e-7),
        ("adult", "oracle", 0, None),
    ):
        chosen = Settings(dataset=dataset, method=method)
        store.add([Entry(chosen, repeat, replace(RESULT, nll_raw=raw))])
    gaps = Gaps.of(store)
    assert gaps.of_method("magic", "naive") == [6.5, 0.25, 0.5]
    # One run says too little of a table.
    assert sorted(gaps.of_method("adult", "naive")) == [0.25, 0.5, 1.0, 6.5]
    assert sorted(gaps.of_method("census", "naive")) == [0.25, 0.5, 1.0, 6.5]
    assert gaps.of_method("census", "aim") == [0.0]
    assert gaps.of_method("adult", "oracle") == []
    section = smoothing_section(gaps, 3)
    assert "| magic | naive | 3 | 20.00 | 0.50 | 0.25 to 6.50 |" in section
    assert "3 cells have no verdict" in section


def test_everything_in_a_store_comes_back_with_its_settings(tmp_path: Path) -> None:
    """Records have the settings that matter: central AIM's lack the partition, also on SynthFS, which has its own."""
    chosen = [
        Settings(dataset="synthfs", method="aim", partition="natural"),
        Settings(dataset="adult", method="distaim", first="fresh", estimator="authors"),
        with_annealing("magic", "private", 2.0),
    ]
    store = open_store(tmp_path / "results.jsonl")
    store.add(Entry(settings, 1, RESULT) for settings in chosen)
    found = list(open_store(tmp_path / "results.jsonl").everything())
    assert [entry.settings.digest() for entry in found] == [s.digest() for s in chosen]
    assert {entry.repeat for entry in found} == {1}


def test_likelihoods_are_raw_where_some_runs_have_them_so(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    ours, theirs = default("magic", "naive"), as_theirs("magic", "naive", 1.0)
    store.add(
        Entry(ours, repeat, replace(RESULT, workload_error=1.6, nll=40.0, nll_raw=raw))
        for repeat, raw in enumerate((2500.0, None, 2600.0))
    )
    store.add([Entry(theirs, 0, replace(RESULT, workload_error=1.65, nll=40.0))])
    page = beside_paper(store, Sources())
    row = next(
        line for line in page.text.splitlines() if line.startswith("| magic | naive | 1.64 ")
    )
    assert row == (
        "| magic | naive | 1.64 | 1.600 ± 0.000 (3) | agree | 1.650 (1) | agree | 2587.5 | 2550.00 ± 70.71 (2) | agree"
        " | 40.00 (1) smoothed | cannot be compared: smoothed |"
    )


@pytest.mark.parametrize(
    ("raws", "says"),
    [
        # The paper has 11 %; smoothed ones are 25 % apart, and raw ones 10 %.
        ((18.0, 18.0), "| 11% | 10% ± 0% | agree |"),
        ((18.0, None), "| 11% | 25% ± 0% smoothed | cannot be compared: smoothed |"),
    ],
)
def test_gains_in_likelihood_are_raw_or_not_compared(
    tmp_path: Path, raws: tuple[float | None, float | None], says: str
) -> None:
    store = open_store(tmp_path / "results.jsonl")
    for rounds, error in ((4, 0.6), (32, 0.4)):
        for repeat, raw in enumerate(raws):
            best = replace(RESULT, workload_error=error / 2, nll=15.0, nll_raw=raw)
            other = replace(RESULT, workload_error=error, nll=20.0, nll_raw=20.0)
            for method, result in (("distaim", best), ("private", other)):
                chosen = Settings(dataset="adult", method=method, rounds=rounds)
                store.add([Entry(chosen, repeat, result)])
    found = beside_paper(store, Sources())
    row = next(line for line in found.text.splitlines() if "1 (32/32)" in line)
    assert says in row
    (cell,) = [
        c for c in found.cells if (c.where, c.dataset, c.measure) == ("3", "adult", "NLL gain")
    ]
    assert str(cell.verdict.kind) in says


def test_every_cell_is_counted_once_and_the_summary_adds_up(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    cells = beside_paper(store, Sources()).cells
    by_table = {where: sum(cell.where == where for cell in cells) for where in "1234567"}
    # Both ways of 15 methods and 6 GANs; of 35 rows errors and likelihoods; seven tables' four figures, and so on.
    assert by_table == {"1": 36, "2": 140, "3": 28, "4": 8, "5": 8, "6": 40, "7": 21}
    assert {cell.verdict.kind for cell in cells} == {Kind.MISSING, Kind.NO_TABLE}
    assert {cell.dataset for cell in cells if cell.verdict.kind is Kind.NO_TABLE} == {"credit"}
    write_report(store, tmp_path)
    page = whole(tmp_path / "utility.md")
    assert "Of 0 figures of the paper's tables that were run and can be compared, 0 agree" in page
    assert "| 6: ranks, annealed T | ours |  |  |  |  |  |  |  |  | 40 |" in page
    assert "0 worse or higher, 0 of these bytes" in " ".join(page.split())
    assert " | better or lower | worse or higher | " in page
    store.add(
        Entry(chosen, repeat, RESULT)
        for chosen in settings_of(SWEEPS, ["all"])
        for repeat in (0, 1)
    )
    write_report(store, tmp_path)
    page = whole(tmp_path / "utility.md")
    assert "| naive is the worst at every epsilon | does not agree | 0 of 8 |" in page
    assert "**DistAIM weighs by rows** (" in page
    assert "**Unexplained**" not in page


@pytest.mark.parametrize(("narrow", "says"), [(0, "better, -15%"), (2, str(Kind.NARROW))])
def test_a_gan_with_narrow_columns_cannot_be_compared(
    tmp_path: Path, narrow: int, says: str
) -> None:
    runs = [
        Outcome("adult", "federated", 5.0, number, 0.4, nll, 0.7, 60.0, columns, nll, None)
        for number, (nll, columns) in enumerate(((31.5, 0), (31.6, narrow)))
    ]
    found = beside_paper(open_store(tmp_path / "results.jsonl"), Sources(gans=runs))
    assert f"| adult | federated DP-CTGAN | 37.1 | 31.55 ± 0.07 (2) | {says} |" in found.text


@pytest.mark.parametrize(
    ("where", "dataset", "method", "measure", "name"),
    [
        ("1", "adult", "central DP-CTGAN", "NLL", "A GAN's kernel density"),
        ("1", "adult", "random", "NLL", "Random and FedNaiveBayes are other baselines"),
        ("2", "magic", "oracle", "NLL", "FLAIM's likelihood depends on where fitting stops"),
        ("2", "magic", "oracle", "error", "FLAIM's errors: no reason was found"),
        ("2", "intrusion", "naive", "error", "Other rows or another coding"),
        ("2", "intrusion", "distaim", "NLL", "Other rows or another coding"),
        ("2", "census", "distaim", "NLL", "DistAIM weighs by rows"),
        ("2", "marketing", "aim", "error", "Other rows or another coding"),
        ("8", "marketing", "aim", "error", "Unexplained"),
    ],
)
def test_every_difference_has_one_reason(
    where: str, dataset: str, method: str, measure: str, name: str
) -> None:
    cell = Compared(where, dataset, method, measure, "ours", Verdict(Kind.WORSE, 0.25))
    assert reason_of(cell).name == name
    same = replace(cell, verdict=Verdict(Kind.WITHIN, 0.25))
    section = differences_section([cell, same])
    alone = replace(cell, verdict=Verdict(Kind.ONE, 0.25))
    assert reason_of(alone).name == (name if "GAN" in name else "Single runs")
    assert section.count(f"**{name}** (1 cells)") == 1
    assert sum(reason.name in section for reason in REASONS) <= 1


def _plot(errors: dict[str, dict[float, list[float]]], **levels: list[float]) -> Plot:
    def entries(values: list[float]) -> list[Entry]:
        chosen = Settings(dataset="adult", method="aim")
        return [Entry(chosen, i, replace(RESULT, workload_error=v)) for i, v in enumerate(values)]

    lines = [(name, [(x, entries(v)) for x, v in of.items()]) for name, of in errors.items()]
    return Plot("adult", "T", lines, levels={name: entries(v) for name, v in levels.items()})


def test_a_rise_is_one_that_chance_does_not_make() -> None:
    look = claims.rises(["naive", "private"], since=10, least=50)
    noisy = {10.0: [0.5, 0.6, 0.7], 100.0: [0.6, 0.7, 0.8]}
    sure = {10.0: [0.59, 0.6, 0.61], 100.0: [0.69, 0.7, 0.71]}
    found = look([_plot({"naive": noisy, "private": sure})])
    assert (found.holds, found.of, found.verdict) == (1, 2, "agrees at 1 of 2")
    assert "naive +0.100 from 10 to 100 (standard error 0.082)" in found.shown
    # Nothing is said of lines that end early, and single runs are no rise.
    assert look([_plot({"naive": {10.0: [0.5], 20.0: [0.9]}})]).verdict == "not run"
    assert look([_plot({"naive": {10.0: [0.5], 100.0: [0.9]}})]).verdict == "does not agree"


def test_likelihoods_as_theirs_have_a_reason_of_their_own() -> None:
    cell = Compared("2", "magic", "oracle", "NLL", "as theirs", Verdict(Kind.WORSE, 0.25))
    assert reason_of(cell).name == "FLAIM's likelihood as theirs: a few rows"


def test_runs_vary_more_where_they_deviate_more() -> None:
    look = claims.varies(["naive", "private", "oracle"], since=10, least=100)
    wide, close = [0.4, 0.6], [0.49, 0.51]
    lines = {"naive": {10.0: close, 100.0: wide}, "private": {10.0: wide, 100.0: close}}
    found = look([_plot({**lines, "oracle": {10.0: close, 50.0: wide, 100.0: [0.5]}})])
    assert found[:2] == (1, 2)
    assert "naive ± 0.014 at 10, 0.141 at 100" in found.shown
    assert look([_plot({"naive": {10.0: close, 50.0: wide}})]).verdict == "not run"


def test_a_picture_has_one_legend_of_all_its_lines_beside_its_axes() -> None:
    plots = [_plot({"aim": {1.0: [0.2], 2.0: [0.1]}}), _plot({"naive": {1.0: [0.2], 2.0: [0.1]}})]
    figure = figure_of(plots, COLOURS)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["aim", "naive"]
    assert all(axes.get_legend() is None for axes in figure.axes)


def test_claims_are_looked_for_where_lines_were_run() -> None:
    plot = _plot(
        {
            "aim": {0.1: [0.2], 0.5: [0.2], 1.0: [0.2]},
            "distaim": {0.1: [0.4], 0.5: [0.24], 1.0: [0.21]},
            "private": {0.5: [0.3], 1.0: [0.29]},
        },
        aim=[0.22],
        private=[0.5],
    )
    assert claims.near("distaim", "aim", within=0.25, least=0.5)([plot])[:2] == (2, 2)
    assert claims.near("distaim", "aim", within=0.25)([plot])[:2] == (2, 3)
    assert claims.flattens("private", least=0.5)([plot])[:2] == (1, 1)
    assert claims.flattens("distaim", least=0.1)([plot])[:2] == (0, 1)
    assert claims.falls(["distaim", "private"])([plot])[:2] == (2, 2)
    assert claims.worst("private")([plot])[:2] == (2, 2)
    assert claims.below("aim", "private")([plot]).shown == "adult: aim below private everywhere"
    assert claims.not_below("aim", "distaim")([plot])[:2] == (1, 3)
    assert claims.lowest("aim", ["distaim", "private"])([plot])[:2] == (3, 3)
    assert claims.alike("distaim", "aim", most=1.0)([plot])[:2] == (1, 3)
    assert claims.struggles(["distaim", "aim"], under=0.5)([plot])[:2] == (1, 2)
    assert claims.good_between(["distaim", "private"], 0.5, 1.0)([plot])[:2] == (1, 1)
    assert claims.good_annealed("aim", within=0.25)([plot])[:2] == (1, 1)
    assert claims.poor_annealed(["private", "distaim"], within=0.25)([plot])[:2] == (1, 1)
    both = claims.together(claims.below("aim", "private"), claims.worst("distaim"))([plot])
    assert both[:2] == (3, 5)
    assert claims.measured("auc", claims.worst("private"))([plot]).verdict == "not run"
    assert claims.on("p", claims.worst("private"))([plot]).verdict == "not run"


def test_the_whole_grid_takes_what_its_runs_did_and_for_others_what_their_kind_did(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path / "results.jsonl")
    grid = {s.digest(): s for s in settings_of(SWEEPS, ["all"])}.values()
    # Few have Credit: none of its runs is wanted unless some are there.
    credit = sum(REPEATS for s in grid if s.dataset == CREDIT)
    wanted = sum(ADULT_REPEATS if s.dataset == "adult" else REPEATS for s in grid) - credit
    nothing = whole_grid(store)
    assert (nothing.runs, nothing.done, nothing.seconds, nothing.guessed) == (
        wanted,
        0,
        0.0,
        wanted,
    )
    # A repeat beyond those that are wanted is not of the grid, and tells what others take.
    store.add([Entry(default("census", "aim"), REPEATS, RESULT)])
    census = sum(REPEATS for s in grid if s.dataset == "census")
    assert whole_grid(store).seconds == census * RESULT.seconds
    assert whole_grid(store).done == 0
    store.add([Entry(default(CREDIT, "aim"), 0, RESULT)])
    assert (whole_grid(store).runs, whole_grid(store).done) == (wanted + credit, 1)
    assert credit > 0


def test_credit_is_compared_where_it_was_run(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    near = replace(RESULT, workload_error=0.07, nll=15.6, nll_raw=15.6)
    store.add(Entry(default(CREDIT, "aim"), repeat, near) for repeat in range(3))
    text = beside_paper(store, Sources()).text
    none = "cannot be compared: no table"
    assert f"| credit | aim | 0.07 | 0.070 ± 0.000 (3) | agree |  | {none} | 15.62 | 15.60" in text
    assert f"| credit | naive | 0.42 |  | {none} |" in text


@pytest.mark.parametrize(
    ("rounds", "verdict"), [((10, 5), "agree"), ((20, 5), "agree"), ((32, 5), "higher")]
)
def test_ratios_of_t_agree_within_a_factor(
    tmp_path: Path, rounds: tuple[int, int], verdict: str
) -> None:
    """The paper has twice as many rounds on Adult."""
    store = open_store(tmp_path / "results.jsonl")
    for method, best in zip(("distaim", "private"), rounds, strict=True):
        for number, error in ((best, 0.2), (100, 0.3)):
            chosen = Settings(dataset="adult", method=method, rounds=number)
            store.add([Entry(chosen, 0, replace(RESULT, workload_error=error))])
    text = beside_paper(store, Sources()).text
    ratio = f"{rounds[0] / rounds[1]:.3g} ({rounds[0]}/{rounds[1]})"
    assert f"| adult | 2 | {ratio} | {verdict} | 1,300 | not measured at this T | not run |" in text


def test_fitting_to_the_end_and_to_the_noise_are_beside_each_other(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    assert "Not run." in stopping_section(store)
    chosen = default("magic", "private")
    for settings, error in ((chosen, 0.5), (replace(chosen, estimator="stopping"), 0.4)):
        raw = replace(RESULT, workload_error=error, nll_raw=40 * error)
        store.add(Entry(settings, repeat, raw) for repeat in range(2))
    text = stopping_section(store)
    assert (
        "| magic | private | 0.500 ± 0.000 | 0.400 ± 0.000 | 20.00 ± 0.00 | 16.00 ± 0.00 |" in text
    )
    assert "Of 1 means of errors 1 are lower by it and 0 higher." in " ".join(text.split())


def test_sizes_are_measured_once_and_stand_beside_table_4(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> Dataset:
        if name != "magic":
            raise DatasetError("nowhere")
        return small

    monkeypatch.setattr(sizes, "load", load)
    path, said = tmp_path / "sizes.json", []
    measure_sizes(path, progress=said.append)
    assert len(said) == 7
    (size,) = read_sizes(path)
    assert size == TableSize("magic", len(small.train) + len(small.test), len(small.train), 4, 2)
    page = beside_paper(open_store(tmp_path / "none.jsonl"), Sources(sizes=[size])).text
    assert f"| magic | 17,118 | 11 | 2 | {size.rows} | {size.train} | 4 | 2 | fewer, " in page
    assert "| credit | 284,807 | 30 | 2 |  |  |  |  | cannot be compared: no table |" in page
    path.write_text(json.dumps([{"a": 1}]), encoding="utf-8")
    with pytest.raises(DatasetError, match="cannot be used"):
        read_sizes(path)
