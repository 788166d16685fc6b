"""The page on Fed-TDA: the paper's tables beside our runs, each method's traffic, and its figures.

Every figure of ours is computed from the stored runs; missing runs are marked.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.experiment.appendix import parted
from bench.experiment.documents import publish
from bench.experiment.markdown import filled, markdown_table, mb, spread
from bench.experiment.means import values_of
from bench.fetch import DatasetError
from bench.papers.tda import grid, paper
from bench.papers.tda.grid import PAGE, PAPER_BETA, run_of
from bench.papers.tda.settings import (
    DISTAIM,
    DP_FED_GAN,
    FED_GAN,
    FEDAVG,
    FEDMIX,
    GAN_EPOCHS,
    GAN_ROUNDS,
    IID,
    PAPER,
    PAPER_ROUNDS,
    TDA,
    Settings,
)
from bench.papers.tda.store import Entry, Store
from bench.papers.tda.tables import NAMES
from parties.foundation.errors import StoreError
from parties.storage.files import disk_errors

PICTURE = "tda.png"
_TOGETHER = f"{TDA}+{FEDAVG}"
_AS_PAPER = f"{PAPER}+{FEDAVG}"
FRONT = ("Scores",)
"""Sections of the page that are not for its appendix."""
_VERDICT = 5
"""Place of the verdict in a row of scores."""
_COLOURS = {FEDAVG: "#c8553d", _TOGETHER: "#1b6ca8"}


def write_page(store: Store, folder: Path) -> None:
    """Writes tda.md and tda.png into `folder`. Raises DatasetError if that cannot be written."""
    parts = [
        make(store) for make in (_head, _short, _scores, _similarity, _costs, _epsilon, _choice)
    ]
    figure = _figure(store)
    try:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if figure is not None:
                figure.savefig(folder / PICTURE, dpi=110)
        parts.append(_figures(store, drawn=figure is not None))
        publish(folder, parted(PAGE, "\n".join(parts), FRONT))
    except StoreError as error:
        raise DatasetError(str(error)) from error


def _head(store: Store) -> str:
    rows = []
    for name in NAMES:
        how, runs = (
            grid.THINNED[name],
            [e for e in store.everything() if e.settings.dataset == name],
        )
        known = {e.result.rows for e in runs if e.settings.train_rows == how.get("train_rows")}
        repeats = {e.repeat for e in runs}
        rows.append(
            (
                name,
                ", ".join(map(str, sorted(known))) or "not run",
                how["rounds"],
                how.get("synthetic_rows", 1_000),
                f"1 to {len(repeats)}" if len(repeats) > 1 else len(repeats),
                len(runs),
            )
        )
    heads = "table | training rows | rounds | synthetic rows | repeats | runs"
    return (
        "# Fed-TDA\n\n"
        "Made by `make bench-tda` from `tda.jsonl`; methods and decisions are in\n"
        "`../notes/silos.md`. Five silos, Dirichlet(beta) shares of each label; 3 local epochs. The paper\n"
        f"trains {PAPER_ROUNDS} rounds on all rows; what was thinned out here:\n\n"
        f"{markdown_table(heads, rows)}\n\n"
        f"Clinical without synthetic rows was trained {PAPER_ROUNDS} rounds, too. Covtype is a part of the\n"
        "published table. Scores: area under the ROC curve (clinical) or accuracy on held-out rows, of\n"
        "the model after the last round; ± is the deviation between repeats, which differ in split, start\n"
        "and noise. Where there is no ±, it is one run: differences of a few hundredths say nothing then,\n"
        "nor do those of a tenth on Clinical's 90 held-out rows.\n\n"
        f"`{PAPER}`: exact sums as the paper has them. `{TDA}` without an epsilon: exact sums, our order\n"
        "of categories and assignment to components. **Neither is private.** With an epsilon: every sum\n"
        "has noise, delta = 1e-5, one row added or removed. FedAvg itself is on the silos' own rows and\n"
        "has no privacy in any row of these tables; a method without `+` trains on synthetic rows alone,\n"
        "and only these classifiers are private.\n\n"
        f"`{FED_GAN}` stands for Fed-TGAN: both networks of DP-CTGAN trained by the silos without noise and\n"
        f"averaged by rows; **not private**. `{DP_FED_GAN}` stands for DP-FedAvg-GAN: DP-CTGAN, each silo's\n"
        "gradients clipped and noised at the silo in every round. Thinned out as the tables are; rounds are\n"
        f"{GAN_ROUNDS} each, as in the paper's Table 5, `{FED_GAN}`'s of {GAN_EPOCHS} local epochs, `{DP_FED_GAN}`'s\n"
        f"of one batch a silo (the FLAIM paper's DP-CTGAN has 500). Numbers are in bins as for `{DISTAIM}`.\n"
    )


def _short(store: Store) -> str:
    """Counts the paper's scores by verdict."""
    verdicts = Counter(str(row[_VERDICT]).partition(",")[0] for row in _score_rows(store))
    missing = verdicts.pop("not run", 0)
    total = verdicts.total()
    counted = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
    said = f"{total} scores stand beside the paper's: {counted}."
    if missing:
        said += f" {missing} more were not run."
    if "one run" in verdicts:
        said += " `one run`: a single run is further away than 5 %, which says on which side and no more."
    return f"## In short\n\n{filled(said)}\n"


def _scores(store: Store) -> str:
    heads = "table | beta | method | paper | ours | verdict | ours, 100 rounds on all rows"
    return (
        "## Scores\n\n"
        "Verdicts: `agree` within 5 % of the paper's figure; further apart, `better` and `worse` where that is\n"
        "more than chance (Student's t of our runs, as if the paper's scattered as ours do), else `within\n"
        "spread`; `one run` says on which side a single one is. They go by the last column where it has a figure.\n\n"
        f"{markdown_table(heads, _score_rows(store))}\n"
    )


def _score_rows(store: Store) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = []
    for dataset in NAMES:
        upper = [run_of(dataset, IID), Settings(dataset=dataset, method=IID)]
        rows.append(_score_row(store, dataset, "", "IID", paper.UPPER[dataset], upper))
        for (name, beta, method), printed in paper.SCORES.items():
            if name != dataset:
                continue
            if method in paper.GANS:
                rows.append(_gan_row(store, dataset, beta, method, printed))
                continue
            ours = [
                run_of(dataset, method, beta=beta),
                Settings(dataset=dataset, method=method, beta=beta),
            ]
            rows.append(_score_row(store, dataset, beta, method, printed, ours))
            if method == _TOGETHER and (
                found := store.all_of(run_of(dataset, _AS_PAPER, beta=beta))
            ):
                rows.append(_row(dataset, beta, _AS_PAPER, printed, found, []))
    return rows


def _gan_row(
    store: Store, dataset: str, beta: float, method: str, printed: float
) -> Sequence[object]:
    source = paper.GANS[method]
    epsilon = grid.GANS[source]
    found = store.all_of(run_of(dataset, f"{source}+{FEDAVG}", beta=beta, epsilon=epsilon))
    how = "not private" if epsilon is None else f"epsilon = {epsilon:g}"
    return _row(dataset, beta, f"{source}+{FEDAVG}, {how} ({method})", printed, found, [])


def _score_row(
    store: Store,
    dataset: str,
    beta: object,
    method: str,
    printed: float,
    ours: Sequence[Settings],
) -> Sequence[object]:
    thinned, whole = (store.all_of(settings) for settings in ours)
    return _row(dataset, beta, method, printed, thinned, whole)


def _row(
    dataset: str,
    beta: object,
    method: str,
    printed: float,
    thinned: Sequence[Entry],
    whole: Sequence[Entry],
) -> Sequence[object]:
    judged = _values(whole) or _values(thinned)
    return (
        dataset,
        beta,
        method,
        f"{printed:g}",
        spread(_values(thinned), 3),
        paper.verdict(printed, judged),
        spread(_values(whole), 3),
    )


def _similarity(store: Store) -> str:
    rows = []
    for dataset in NAMES:
        printed = paper.SIMILARITIES[dataset, PAPER_BETA]
        for method, epsilon in (
            (_AS_PAPER, None),
            (TDA, None),
            (FED_GAN, None),
            *((source, eps) for eps in (5.0, 1.0) for source in grid.PRIVATE),
        ):
            found = store.all_of(run_of(dataset, method, epsilon=epsilon))
            shown = f"{printed[0]:g} / {printed[1]:g}" if method == _AS_PAPER else ""
            cells = [
                spread(values_of(found, name), digits)
                for name, digits in (("jsd", 5), ("jsd_root", 3), ("wasserstein", 3))
            ]
            rows.append((dataset, method.partition("+")[0], _said(epsilon), shown, *cells))
    heads = (
        "table | rows of | epsilon | paper: JSD / Wasserstein | JSD, bits | its root | Wasserstein"
    )
    return (
        f"## Similarity of the synthetic rows, beta = {PAPER_BETA:g}\n\n"
        "Means over columns. Without noise the shares of categories are exact, so that the divergence is\n"
        "that of drawing some hundred rows and no more; the paper's figures are larger, whichever of the\n"
        "two columns they are.\n\n"
        f"{markdown_table(heads, rows)}\n"
    )


def _costs(store: Store) -> str:
    rows: list[Sequence[object]] = []
    for dataset in NAMES:
        printed = paper.UPLOADS[dataset]
        runs = {m: _longest(store, dataset, m) for m in (FEDAVG, FEDMIX)}
        rows += [
            (dataset, FEDAVG, f"{printed[FEDAVG]:g}", *_moved(runs[FEDAVG])),
            (dataset, FEDMIX, f"{printed[FEDMIX]:g}", *_moved(runs[FEDMIX], runs[FEDAVG])),
        ]
        exact = _moved(store.all_of(run_of(dataset, _AS_PAPER)))
        rows.append((dataset, PAPER, f"{printed[TDA]:g}", *exact))
        for source in grid.PRIVATE:
            found = store.all_of(run_of(dataset, source, epsilon=1.0))
            shown = f"{printed['DP-FedAvg-GAN']:g}" if source == DP_FED_GAN else ""
            rows.append((dataset, f"{source}, epsilon = 1", shown, *_moved(found)))
        averaged = _moved(store.all_of(run_of(dataset, FED_GAN)))
        rows.append((dataset, FED_GAN, f"{printed['Fed-TGAN']:g}", *averaged))
    heads = "table | method | paper, 100 rounds | ours by its formula | sent by SecAgg | rounds of training"
    return (
        f"## What five silos send, MB, beta = {PAPER_BETA:g}\n\n"
        "The paper's Table 5: FedAvg and FedProx alike; Fedmix's rows beyond that; Fed-TDA's beyond that.\n"
        "It is in 10^6 bytes for models and in MiB for Fed-TDA; all of ours are 10^6 bytes. `sent`: every\n"
        "message of the sessions of SecAgg among five silos, nobody lost, frames and TLS not counted; a\n"
        "model's numbers have 32 bits. Fedmix's rows are sent in the clear, as means of five. DistAIM:\n"
        "uploads of rows, not what its three servers send one another; its formula is of counts.\n"
        "Sessions of few numbers are mostly keys and shares, so that Fed-TDA's hundred sums take more\n"
        "than by formula. GANs: their rounds x silos x numbers of the networks that silos send (both, or\n"
        "the discriminator's gradient); the paper prints no formula for these.\n\n"
        f"{markdown_table(heads, rows)}\n"
    )


def _longest(store: Store, dataset: str, method: str) -> list[Entry]:
    """Returns the runs as in the paper, or else the thinned-out ones."""
    return store.all_of(Settings(dataset=dataset, method=method)) or store.all_of(
        run_of(dataset, method)
    )


def _moved(found: Sequence[Entry], models: Sequence[Entry] = ()) -> Sequence[object]:
    """Returns the MB by formula and as sent, less those of the runs of `models`."""
    if not found:
        return "not run", "", ""
    result, settings = found[0].result, found[0].settings
    sent, formula = result.sent_mb, result.formula_mb
    if models and formula is not None:
        sent -= models[0].result.sent_mb
        formula -= models[0].result.formula_mb or 0.0
    rounds = GAN_ROUNDS if settings.source in grid.GANS else ""
    return mb(formula) or "none", mb(sent), rounds if settings.source else settings.rounds


def _epsilon(store: Store) -> str:
    rows = []
    for dataset in NAMES:
        cells = [
            spread(_values(store.all_of(run_of(dataset, _TOGETHER, epsilon=eps))), 3)
            for eps in (*grid.EPSILONS, None)
        ]
        printed = paper.EPSILONS.get(dataset)
        shown = "" if printed is None else f"{printed[0]:g} to {printed[1]:g}"
        base = spread(_values(store.all_of(run_of(dataset, FEDAVG))), 3)
        rows.append((dataset, base, *cells, shown))
    heads = " | ".join(
        (
            "table",
            FEDAVG,
            *(f"epsilon = {e:g}" for e in grid.EPSILONS),
            "exact",
            "paper: 1 to exact",
        )
    )
    return (
        f"## {_TOGETHER} by epsilon, beta = {PAPER_BETA:g}\n\n"
        "The paper's noise is on the covariance alone and its claim of privacy does not hold; ours is on\n"
        "every sum.\n\n"
        f"{markdown_table(heads, rows)}\n"
    )


def _choice(store: Store) -> str:
    rows = []
    for dataset in NAMES:
        exact = {
            name: spread(_values(store.all_of(run_of(dataset, name))), 3) for name in (FEDAVG, IID)
        }
        for source in grid.PRIVATE:
            cells = [
                spread(_values(store.all_of(run_of(dataset, method, epsilon=eps))), 3)
                for method, eps in ((source, 1.0), (source, 5.0), (f"{source}+{FEDAVG}", 1.0))
            ]
            found = store.all_of(run_of(dataset, source, epsilon=1.0))
            sent = mb(found[0].result.sent_mb) if found else "not run"
            rows.append((dataset, source, *cells, exact[FEDAVG], exact[IID], sent))
    heads = (
        "table | synthetic rows of | alone, epsilon = 1 | alone, epsilon = 5 | with FedAvg, epsilon = 1"
        f" | {FEDAVG} without | IID | MB sent, epsilon = 1"
    )
    return (
        f"## What to choose: private synthetic rows, beta = {PAPER_BETA:g}\n\n"
        "Alone: one classifier from the synthetic rows, which needs no further message and is as private\n"
        "as they are. With FedAvg: each silo's own rows beside them, not private. DistAIM is AIM's loop\n"
        "on counts in the clear, which is what central AIM does with all rows: with every silo from the\n"
        "start the two are the same.\n\n"
        f"{markdown_table(heads, rows)}\n"
    )


_AXES: Sequence[tuple[str, Sequence[float], Callable[[str, float], Settings]]] = (
    (
        "local epochs",
        grid.EPOCHS,
        lambda m, v: run_of("clinical", m, epochs=int(v), synthetic_rows=grid.FIGURE_ROWS),
    ),
    (
        "silos",
        grid.CLIENTS,
        lambda m, v: run_of("clinical", m, clients=int(v), synthetic_rows=grid.FIGURE_ROWS),
    ),
)


def _figures(store: Store, *, drawn: bool) -> str:
    lines = ["## Figures: Clinical by local epochs, silos and epsilon\n"]
    if drawn:
        lines.append(f"![Clinical by local epochs, silos and epsilon]({PICTURE})\n")
    for label, values, make in _AXES:
        rows = [
            (m, *(spread(_values(store.all_of(make(m, v))), 3) for v in values))
            for m in (FEDAVG, _TOGETHER)
        ]
        heads = " | ".join((label, *(f"{v:g}" for v in values)))
        lines.append(f"{markdown_table(heads, rows)}\n")
    lines.append(
        f"Over local epochs and silos with {grid.FIGURE_ROWS} synthetic rows; over epsilon see the table\n"
        "above. The paper has 1 to 10 epochs and 5 to 60 silos.\n"
    )
    return "\n".join(lines)


def _figure(store: Store) -> Figure | None:
    """Returns three panels; None if no line has two points."""
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    places = figure.subplots(1, len(_AXES) + 1)
    some = False
    for axes, (label, values, make) in zip(places, _AXES, strict=False):
        for method in (FEDAVG, _TOGETHER):
            points = [
                (v, score) for v in values if (score := _values(store.all_of(make(method, v))))
            ]
            some |= _line(axes, points, method)
        _label(axes, label)
    for dataset in NAMES:
        points = [
            (eps, score)
            for eps in grid.EPSILONS
            if (score := _values(store.all_of(run_of(dataset, _TOGETHER, epsilon=eps))))
        ]
        some |= _line(places[-1], points, dataset)
    _label(places[-1], f"epsilon of {_TOGETHER}")
    return figure if some else None


def _line(axes: Axes, points: Sequence[tuple[float, Sequence[float]]], label: str) -> bool:
    if len(points) < 2:
        return False
    means = [sum(values) / len(values) for _, values in points]
    axes.plot([x for x, _ in points], means, marker="o", label=label, color=_COLOURS.get(label))
    return True


def _label(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.set_ylabel("AUC or accuracy")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)


def _said(epsilon: float | None) -> str:
    return "none" if epsilon is None else f"{epsilon:g}"


def _values(entries: Sequence[Entry]) -> list[float]:
    return values_of(entries, "score")
