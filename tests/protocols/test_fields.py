"""The kinds of a record's fields, and what a schema says of whole records."""

from collections.abc import Callable
from pathlib import Path

import pytest

from protocols import fields
from protocols.fields import encode
from protocols.transcript import Transcript, ended_round, read, round_ended, schema

SCHEMA = schema({"run": fields.text}, {"round": {"round": fields.natural}})


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (fields.natural, [0, 7], [-1, 1.0, True, None, "1"]),
        (fields.optional_natural, [0, None], [-1, False, ""]),
        (fields.number, [0, -1.5], [True, float("inf"), float("nan"), None, "1"]),
        (fields.numbers, [[], [1, 2.5]], [None, [1, None], (1,)]),
        (fields.flag, [True, False], [0, 1, None]),
        (fields.text, ["", "x"], [None, 1, []]),
        (fields.texts, [[], ["x"]], [[1], "x", None]),
        (fields.table, [{}, {"a": 1}], [[], None]),
        (fields.label, ["0" * 16], ["0" * 15, "g" * 16, "A" * 16, "0" * 16 + "\n", None]),
        (fields.hex64, ["0f" * 32], ["0f" * 31, "0F" * 32, None]),
        (fields.hex_bytes, ["00", "ff01"], ["", "0", "0g", None]),
        (fields.binary, ["", "AA", encode(b"xyz")], ["A", "AA==", "AB", "?", None]),
        (fields.digest, [encode(bytes(32))], ["", encode(bytes(31)), None]),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_kind_is_what_it_says(
    kind: Callable[[object], bool], good: list[object], bad: list[object]
) -> None:
    assert [value for value in good if not kind(value)] == []
    assert [value for value in bad if kind(value)] == []


def test_schema_has_no_problem_with_what_a_transcript_writes(tmp_path: Path) -> None:
    """One record of every kind: a writer that changes without its schema is noticed here."""
    transcript = Transcript(tmp_path / "t.jsonl", sign=bytes, header={"run": "x"})
    for direction in ("sent", "received"):
        transcript.message(
            step="s", round=None, direction=direction, peer=1, label=3, size=8, digest=bytes(32)
        )
    transcript.opened(step="s", round=1, what="x", count=2, value=b"12")
    transcript.ledger(round=1, step="s", event={"kind": "e"}, rho=0.1, spent=0.1)
    transcript.client(client="c", digest="00" * 32, round=0, accepted=True)
    transcript.step(step="s", round=0, rounds=1, sent=2, received=3, messages=4, seconds=0.5)
    transcript.note("round", round=1)
    transcript.close()
    Transcript(tmp_path / "t.jsonl", sign=bytes, header={"run": "x"}).close()
    records = [record for record in read(tmp_path / "t.jsonl").records if record]
    assert {str(record["kind"]) for record in records} == {*SCHEMA.records, "note"}
    assert [SCHEMA.problem(record) for record in records] == [None] * len(records)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"kind": "gossip", "t": 0}, "there is no record 'gossip'"),
        ({"kind": "note", "t": 0, "what": "x"}, "there is no record \"note 'x'\""),
        ({"kind": "note", "t": 0}, "there is no record \"note 'None'\""),
        ({"kind": "note", "t": 0, "what": "round"}, "exactly its fields"),
        ({"kind": "note", "t": 0, "what": "round", "round": -1}, "round of note 'round'"),
        ({"kind": "note", "t": -1, "what": "round", "round": 1}, "exactly its fields"),
        ({"kind": "seal", "t": 0, "head": "", "reason": "", "signature": ""}, "their order"),
        ({"kind": "seal", "t": 0, "reason": 1, "head": "", "signature": ""}, "reason of seal"),
    ],
)
def test_schema_says_what_is_wrong(record: dict[str, object], problem: str) -> None:
    assert problem in str(SCHEMA.problem(record))


def test_ended_round_is_the_inverse_of_round_ended() -> None:
    assert [ended_round(round_ended(number)) for number in (0, 7, 120)] == [0, 7, 120]
    assert [ended_round(reason) for reason in ("end", "agreed", "rounds")] == [None] * 3
    for garbled in ("round ", "round x", "round -1", "round 1 2"):
        with pytest.raises(ValueError, match="a seal is said to be made"):
            ended_round(garbled)
