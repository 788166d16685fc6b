"""Sentences of reports held against the reports' own records, for runs of many kinds.

Each run is made here (central AIM), or was recorded by an earlier tree (three servers, linked, by person, FLAIM), with
the words of today. The rules below know the record and read the page; they are about kinds of statements, and no run's
own words stand here.
"""

import html
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import syncret
from parties.cli.run import closing_lines
from parties.config import load_config
from parties.report import figures
from parties.report.claims import moved_share
from parties.report.public import measured_config, public_page, without_real
from parties.report.shares import at_most_text, distinct_shares, part_text, share_text
from parties.report.verdict import verdict
from tests.drawn_once import draw_once
from tests.golden.archives import RUNS, SUFFIX, unpack

ROWS = 600
RECORDED = (
    "annealed",
    "bins",
    "linked",
    "person",
    "rows-malicious",
    "counts",
    "flaim",
    "flaim-naive",
)
FORBIDDEN = (
    r"\bNone\b",
    r"\bnan\b",
    r"\binf\b",
    r"\b0 rows or more\b",
    r"fewer than 0 rows",
    r"\ball 1\b",
)
NUMBER = re.compile(r"\d[\d,]*")


def frame(kind: str) -> pd.DataFrame:
    """A table with relations, or with what breaks a yardstick."""
    rng = np.random.default_rng(3)
    hidden = rng.integers(0, 3, ROWS)
    columns: dict[str, object] = {
        "ward": np.array(list("ABC"))[(hidden + (rng.random(ROWS) < 0.1)) % 3],
        "age": np.clip(20 * hidden + rng.integers(0, 40, ROWS), 0, 99),
        "ill": np.where(rng.random(ROWS) < 0.2 + 0.3 * hidden, "yes", "no"),
    }
    amount = np.round(np.exp(rng.normal(8, 3, ROWS)), 2)
    amount[0] = 9.9e11
    more: dict[str, dict[str, object]] = {
        "heavy tail": {"amount": amount},
        "mostly one number": {
            "fee": np.where(rng.random(ROWS) < 0.995, 0, rng.integers(1, 10**6, ROWS))
        },
    }
    table = pd.DataFrame(columns | more.get(kind, {}))
    if kind == "one column":
        return table[["age"]]
    return table[["age", "ward"]] if kind == "two columns" else table


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "heavy tail": {},
    "mostly one number": {},
    "one column": {},
    "two columns": {},
    "little budget": {"epsilon": 0.05},
    "much budget": {"epsilon": 50.0},
    "private": {"epsilon": 4.0},
    "target": {"target": "ill"},
    "fixed rounds": {"rounds": 2},
    "refresh": {"rounds": 2},
}


@dataclass(frozen=True)
class Made:
    """A report's record and the words on its page, part by part."""

    kind: str
    record: Mapping[str, Any]
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return " | ".join(self.words)

    def after(self, head: str) -> list[str]:
        """The words that follow a part which is ``head`` and nothing else."""
        return list(self.words[self.words.index(head) + 1 :])


def words_of(page: str) -> tuple[str, ...]:
    """The texts of a page: links to words do not divide a sentence."""
    body = re.sub(r"<(style|title).*?</\1>", "", page, flags=re.DOTALL)
    body = re.sub(r"</?(a|b|i|em|strong)\b[^>]*>", "", body)
    parts = (
        html.unescape(re.sub(r"\s+", " ", part)).strip() for part in re.split(r"<[^>]+>", body)
    )
    return tuple(part for part in parts if part)


@pytest.fixture(scope="module")
def no_pictures() -> Iterator[None]:
    """Pages have empty pictures: here they are read for their words."""
    draw_once()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "to_svg", lambda _: "")
        yield


@pytest.fixture(scope="module")
def made(no_pictures: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of a kind of run, once."""
    folder = tmp_path_factory.mktemp("statements")

    @cache
    def report(kind: str) -> Made:
        if kind in RECORDED:
            return recorded(kind, folder / kind)
        table, keys = frame(kind), dict(KINDS[kind])
        text = syncret.draft(table, private="all" if kind == "private" else "").text
        if kind == "refresh":
            last = folder / "last"
            syncret.synthesize(table, syncret.draft(table), method="aim", out=last, epsilon=20.0)
            text += f'\n[refresh]\nmodel = "{last}"\n'
        path = folder / f"{kind}.toml"
        path.write_text(text)
        run = syncret.synthesize(table, path, method="aim", **keys)
        return Made(kind, json.loads(json.dumps(dict(run.report))), words_of(run.report.html))

    return report


def recorded(name: str, folder: Path) -> Made:
    """A recorded run's report, with today's words."""
    run = unpack(RUNS / f"{name}{SUFFIX}", folder)
    config = measured_config(load_config(run / "config.toml"), run)
    record = without_real(json.loads((run / "report.json").read_text()))
    record["quality"]["verdict"] = verdict(record["quality"], config.domain)
    page = public_page(config, run, record)
    assert page is not None
    return Made(name, record, words_of(page))


EVERY = pytest.mark.parametrize("kind", [*KINDS, *RECORDED])


@EVERY
def test_a_page_says_nothing_that_is_no_statement(made: Any, kind: str) -> None:
    for pattern in FORBIDDEN:
        assert not re.search(pattern, made(kind).text), re.search(
            f".{{40}}{pattern}.*", made(kind).text
        )


@EVERY
def test_the_ground_of_a_bound_is_as_the_record_has_it(made: Any, kind: str) -> None:
    """A marginal was measured, or another one was chosen: never both, never neither."""
    report = made(kind)
    together = set(map(frozenset, report.record["quality"]["dependencies"]["measured"]))
    for marginal in report.record["quality"]["marginals"]:
        name = " × ".join(marginal["columns"])
        start = report.after("Each query").index(name) if marginal["query"] else -1
        rest = report.after("Each query" if marginal["query"] else "Each column and pair")
        row = rest[start if marginal["query"] else rest.index(name) :][:8]
        said = [w for w in row if "measured" in w or "chosen" in w or "wider" in w or "known" in w]
        assert len(said) == 1, row
        # FLAIM may have measured it at some owners alone, whose noise is none of all rows.
        pair = frozenset(marginal["columns"]) in together
        assert ("measured" in said[0]) == (marginal["noise"] is not None or pair), row


@EVERY
def test_rounds_are_those_that_were_done(made: Any, kind: str) -> None:
    report = made(kind)
    done = {item["round"] for item in report.record["selected"]}
    before = report.words[report.words.index("rounds") - 1]
    assert int(before) == report.record["rounds_done"] == len(done)
    assert int(report.after("rounds, at most")[0]) >= len(done)
    (sentence,) = [w for w in report.words if w.startswith("Every column by itself")] or [""]
    if sentence:
        said = re.search(
            r"in (\d+) rounds?, (\d+) quer\w+ w\w+ chosen and measured, (\d+) times? in", sentence
        )
        assert said is not None, sentence
        queries = {tuple(item["query"]) for item in report.record["selected"]}
        counts = len(done), len(queries), len(report.record["selected"])
        assert tuple(map(int, said.groups())) == counts


@EVERY
def test_pairs_are_said_to_be_measured_if_they_were(made: Any, kind: str) -> None:
    quality = made(kind).record["quality"]
    kinds = quality["dependencies"]
    names = sorted(m["columns"][0] for m in quality["marginals"] if len(m["columns"]) == 1)
    assert sum(map(len, kinds.values())) == len(names) * (len(names) - 1) // 2
    measured = {
        frozenset(pair)
        for m in quality["marginals"]
        if m["noise"] is not None
        for pair in itertools.combinations(m["columns"], 2)
    } | {
        frozenset(pair)
        for item in made(kind).record["selected"]
        for pair in itertools.combinations(item["query"], 2)
    }
    for key, pairs in kinds.items():
        for pair in pairs:
            # FLAIM's model has some of the measured pairs.
            assert (frozenset(pair) in measured) == (key == "measured") or (
                "released" in quality["shuffling"] and key != "measured"
            )
    sentences = [*quality["verdict"]["good_for"], *quality["verdict"]["not_for"]]
    for start, key in (
        ("Relations between columns that", "measured"),
        ("Relations taken over", "taken_over"),
    ):
        for sentence in sentences:
            if sentence.startswith(start):
                assert int(NUMBER.findall(sentence)[0]) == len(kinds[key])
    assert ("taken_over" in kinds) == (kind == "refresh")
    assert ("earlier model" in made(kind).text) == (kind == "refresh")


@EVERY
def test_who_held_what_is_the_methods(made: Any, kind: str) -> None:
    report = made(kind)
    central = report.record["method"] == "aim"
    assert ("Nothing else left the secret shares." in report.words) == (
        report.record["method"] == "distaim"
    )
    assert ("One machine had the table." in report.text) == central
    assert ("data owners" in report.words) != central
    if central:
        assert "semi-honest" not in report.words


@EVERY
def test_tasks_agree_with_marks_claims_and_truth(made: Any, kind: str) -> None:
    report = made(kind)
    quality = report.record["quality"]
    held = not any(claim.get("wrong") for claim in quality["columns"])
    tasks = report.after("What the table is good for")
    for name, limit in (("Count rows by one column", None), ("Means of numbers and dates", 0.05)):
        if name not in tasks:
            continue
        row = tasks[tasks.index(name) + 1 :]
        answer, why = row[0], row[1]
        numbers = [c for c in quality["columns"] if limit is None or "moved" in c]
        assert sum(int(n) for n in re.findall(r": (\d+) \(", why)) == len(numbers), why
        true = re.search(r"off by ([\d.]+)%", row[2]) if row[2].startswith("off by") else None
        assert not row[2].startswith("off by more than 100%") or answer != "yes"
        if true and held and answer == "yes":
            assert float(true[1]) <= 5.05, (answer, why, row[2])


@EVERY
def test_a_part_of_a_range_is_not_all_of_it(made: Any, kind: str) -> None:
    quality = made(kind).record["quality"]
    for sentence in quality["verdict"]["not_for"]:
        if re.search(r"is 100% of the range|has 100% of the rows", sentence):
            name = sentence.removeprefix("Values of ").split(":")[0]
            (claim,) = [c for c in quality["columns"] if c["column"] == name]
            assert 1.0 in (claim["widest"]["of_range"], claim["lost"])


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_terminal_says_what_the_report_does(made: Any, kind: str) -> None:
    record = made(kind).record
    lines = dict(line for line in closing_lines(record) if line[0])
    assert lines["synthetic rows"] == str(record["synthetic_rows"])
    shown = lines["chosen queries"]
    assert (
        shown == "none"
        if not record["selected"]
        else shown.startswith(f"{len(record['selected'])}: ")
    )
    for pattern in FORBIDDEN:
        assert not re.search(pattern, " | ".join(lines.values()))


def test_a_refresh_names_its_earlier_model_and_what_both_cost(made: Any) -> None:
    report = made("refresh")
    (sentence,) = [w for w in report.words if "published model" in w]
    assert report.record["about"]["start"][:12] in sentence
    assert "the cost of both runs" in sentence
    kinds = report.record["quality"]["dependencies"]
    assert len(kinds["taken_over"]) == 3 - len(kinds["measured"])


def test_a_longer_tail_makes_no_mean_better(made: Any) -> None:
    """A column's bounds are as far as its farthest value: no yardstick for a mean."""
    claims = {c["column"]: c for c in made("heavy tail").record["quality"]["columns"]}
    tail = claims["amount"]
    assert tail["moved_of_middle"] > 0.15
    tasks = made("heavy tail").after("Means of numbers and dates")
    assert re.search(r"no bound within 15%: \d \([^)]*amount", tasks[1])
    # Where nearly all values are one, there is no range to compare with, and nothing is promised.
    assert moved_share({"moved_of_middle": None, "moved_of_range": 0.0}) is None
    assert moved_share({"moved_of_range": 0.2}) == 0.2


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_words_for_shares_say_neither_nothing_nor_everything_where_there_is_something(
    one: float, other: float
) -> None:
    assert (share_text(one) in ("0.0%", "0%")) == (one == 0)
    assert float(at_most_text(one).rstrip("%")) / 100 >= one - 1e-8
    assert (part_text(one) == "100%") == (one == 1)
    first, second = distinct_shares(one, other)
    assert (first == second) == (one == other) or abs(one - other) < 1e-5


def test_reports_write_shares_by_these_words_alone() -> None:
    """A share with fixed decimals may read as 0."""
    folder = Path(__file__).parents[2] / "parties" / "report"
    own = [p.name for p in folder.glob("*.py") if re.search(r":\.1%\}", p.read_text())]
    assert own == ["shares.py"]
