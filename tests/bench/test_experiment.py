"""The kit of experiments: lists by commas, documents of records and their pages, lines of runs, bars, workers."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bench.experiment.appendix import parted
from bench.experiment.circumstances import circumstances, made_by
from bench.experiment.commands import NAME_LIST, POSITIVE, failures, whole_numbers
from bench.experiment.documents import Document, Row, command_records, read_records, record_a_line
from bench.experiment.lines import Lines
from bench.experiment.progress import progress_bar
from bench.experiment.runs import known_fields
from bench.experiment.workers import results_of
from bench.fetch import DatasetError


@dataclass(frozen=True)
class Weight:
    """A record."""

    name: str
    grams: int


def page(weights: Sequence[Weight]) -> str:
    return "\n".join(f"{one.name}: {one.grams}" for one in weights) + "\n"


WEIGHTS = Document(
    "weights.json",
    "weigh",
    parse=lambda row: Weight(**row),
    to_row=asdict,
    key=lambda one: one.name,
    order=lambda one: one.grams,
    page=("weights.md", page),
    form=record_a_line,
)


# Lists by commas


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        (whole_numbers(100, "4,32"), "4, 32,4", (4, 32)),
        (POSITIVE, "0.5,1", (0.5, 1.0)),
        (NAME_LIST, "a,b", ("a", "b")),
        (NAME_LIST, ("a",), ("a",)),
    ],
)
def test_listed_has_each_value_once(
    kind: "click.ParamType[object]", given: object, found: object
) -> None:
    assert kind.convert(given, None, None) == found


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (whole_numbers(100, "4,32"), "0", "whole numbers from 1 to 100, as 4,32"),
        (whole_numbers(100, "4,32"), "4,101", "from 1 to 100"),
        (whole_numbers(100, "4,32"), "", "from 1 to 100"),
        (whole_numbers(100, "4,32"), "four", "'four'; expected by commas"),
        (POSITIVE, "1,nan", "positive numbers"),
        (POSITIVE, "inf", "positive numbers"),
        (NAME_LIST, "a,,b", "at least one name"),
    ],
)
def test_listed_says_what_would_be_right(
    kind: "click.ParamType[object]", given: str, said: str
) -> None:
    with pytest.raises(click.BadParameter, match=said):
        kind.convert(given, None, None)


def test_failures_are_one_message_of_the_command() -> None:
    @click.command()
    def fails() -> None:
        with failures(DatasetError):
            raise DatasetError("no table")

    result = CliRunner().invoke(fails)
    assert (result.exit_code, result.stderr) == (1, "Error: no table\n")


# Documents


def test_a_document_replaces_records_of_the_same_key_and_makes_its_page_of_all(
    tmp_path: Path,
) -> None:
    there = tmp_path / "there"
    assert WEIGHTS.read(there) == []
    WEIGHTS.add(there, [Weight("pear", 200), Weight("plum", 30)])
    WEIGHTS.add(there, [Weight("pear", 20)])
    assert WEIGHTS.read(there) == [Weight("pear", 20), Weight("plum", 30)]
    assert (there / "weights.md").read_text() == "pear: 20\nplum: 30\n"
    lines = (there / "weights.json").read_text().splitlines()
    assert lines[1] == '{"grams": 20, "name": "pear"},'
    assert len(json.loads("\n".join(lines))["records"]) == 2


@pytest.mark.parametrize("text", ["", "[]", '{"records": 1}', '{"records": [{"name": "plum"}]}'])
def test_a_damaged_document_is_named_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "weights.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=r"weights\.json: cannot be used as a result of `weigh`"):
        WEIGHTS.add(tmp_path, [Weight("plum", 30)])
    assert path.read_text() == text
    assert not (tmp_path / "weights.md").exists()


def test_records_of_commands_have_their_circumstances(tmp_path: Path) -> None:
    def text(records: Sequence[Row]) -> str:
        return "\n".join(map(made_by, records))

    document = command_records("seen", "look", text, order=lambda row: row["command"])
    for _ in range(2):
        document.add(tmp_path, [{"command": "look --far", **circumstances()}])
    (record,) = document.read(tmp_path)
    assert set(record) == {"command", "commit", "date", "machine"}
    said = (tmp_path / "seen.md").read_text()
    assert said.startswith(f"`look --far`, commit {record['commit']}, {record['date']}; cores ")
    assert str(Path.home()) not in said
    assert read_records(tmp_path / "seen.json", "look", len, field="records") == [4]


# Runs


def test_lines_after_a_torn_one_are_whole_whoever_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "there" / "lines.jsonl"
    Lines(path, "weigh").append([{"n": 1}])
    with path.open("a") as file:
        file.write('{"n": 2')
    # Without having read the file.
    Lines(path, "weigh").append([{"n": 3}])
    found: list[int] = []
    Lines(path, "weigh").read(lambda line: found.append(line["n"]))
    assert found == [1, 3]


def test_known_fields_passes_over_those_of_a_later_version() -> None:
    assert known_fields(Weight, {"name": "plum", "grams": 3, "colour": "blue"}) == Weight("plum", 3)
    with pytest.raises(TypeError):
        known_fields(Weight, {"name": "plum"})


def test_a_bar_says_its_lines_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(2) as bar:
        bar.show("unheard")
        bar.beside("run")("unheard, too")
        bar.say("a remark")
        bar.done()
        bar.done("the second")
    assert capsys.readouterr().err == "a remark\n2 of 2: the second\n"


def test_results_come_with_their_jobs() -> None:
    def lost(job: int, error: BaseException) -> int:
        raise AssertionError(f"{job}: {error}")

    assert dict(results_of([1, 2, 3], lambda job: job * job, lost)) == {1: 1, 2: 4, 3: 9}
    assert list(results_of([], lambda job: job, lost, dask="tcp://127.0.0.1:9")) == []


PAGE = """# Fruit

Head.

## In short

- A pear weighs more.

## Pears

### Green (ripe)

1

## Plums, 2nd crop

2
"""


def test_a_page_keeps_its_first_sections_and_links_to_the_others() -> None:
    files = parted("fruit.md", PAGE, ("Pears",))
    assert files == {
        "fruit.md": PAGE.partition("## Plums")[0]
        + "## Appendix\n\n[The appendix](fruit-appendix.md) has:\n\n- Plums, 2nd crop\n",
        "fruit-appendix.md": "# Fruit: appendix\n\nWhat the words mean is on [the page](fruit.md).\n\n"
        "## Plums, 2nd crop\n\n2\n",
    }
    assert parted("fruit.md", PAGE, ("Pears", "Plums")) == {"fruit.md": PAGE}
    assert parted("fruit.md", PAGE, ()) == {"fruit.md": PAGE}
