"""Known answers of selections, measurements, checks of bounds and transcripts.

They are in tests/vectors/{select,measure,bounded,transcript}.json.

A good vector is a whole run: what goes in, and what comes out to the byte. A bad one is a good one with something
changed, and names the step in which it ends and the class of the error. ``python -m tests.protocols.test_vectors``
writes the files anew, after a change of the wire format.
"""

import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols import bounded, errors, measure
from protocols.context import Context
from protocols.fields import encode
from protocols.ring import R32
from protocols.select import select
from protocols.shares import Share
from protocols.transcript import Transcript, canonical, chain, read, sealed
from tests.protocols.local import components
from tests.protocols.played import Change, Played, Program, play
from tests.protocols.transcripts import verified_records

FOLDER = Path(__file__).parent.parent / "vectors"
SETTING = {"path", "component_keys", "private_keys", "components"}
SPEC = {"sizes", "answers", "gains", "offsets", "max_rows"}
NOISE = {"noise", "sigma", "max_rows", "security_bits"}
CHECK = {"check", "owners", "bound"}
CHECKING = "check"
OUTCOME = {"rounds", "sent", "opened"}
BAD = {"name", "of", "step", "error"}
ERRORS = {
    "ValueError": ValueError,
    "InvalidSignature": InvalidSignature,
    "CheckFailed": errors.CheckFailed,
    "ProtocolViolation": errors.ProtocolViolation,
}


def vectors(name: str) -> dict[str, Any]:
    path = FOLDER / f"{name}.json"
    return (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"good": [], "bad": []}
    )


SELECT, MEASURE, TRANSCRIPT = vectors("select"), vectors("measure"), vectors("transcript")
BOUNDED = vectors("bounded")


def test_vector_files_hold_good_and_bad_ones_under_different_names() -> None:
    for found in (SELECT, MEASURE, BOUNDED, TRANSCRIPT):
        assert found.keys() == {"good", "bad"}
        for cases in found.values():
            assert len({case["name"] for case in cases}) == len(cases) > 0


def named(case: dict[str, Any]) -> str:
    return str(case["name"])


# Runs of the engine.


def selection(case: dict[str, Any]) -> Program:
    async def program(ctx: Context, x_sh: Share) -> int:
        spec = SimpleNamespace(
            sizes=np.array(case["sizes"]),
            answers=np.array(case["answers"], np.uint32),
            gains=tuple(case["gains"]),
            offsets=tuple(case["offsets"]),
            max_rows=case["max_rows"],
        )
        return await select(ctx, x_sh, spec)

    return program


def measurement(case: dict[str, Any]) -> Program:
    async def program(ctx: Context, x_sh: Share) -> list[float]:
        noise = measure.noise_of(case["noise"], case["security_bits"])
        noisy = await measure.measure(ctx, x_sh, case["sigma"], case["max_rows"], noise)
        return noisy.tolist()

    return program


def checking(case: dict[str, Any]) -> Program:
    """Sums of owners side by side, or their cells one owner after the other."""

    async def program(ctx: Context, x_sh: Share) -> list[bool]:
        owners, bound = case["owners"], case["bound"]
        with ctx.step(CHECKING) as c:
            if case["check"] == "totals":
                sums = x_sh.reshape(x_sh.size // owners, owners)
                verdicts = await bounded.check_totals(c, sums, bound)
            else:
                cells = x_sh.reshape(owners, x_sh.size // owners)
                verdicts = await bounded.check_cells(c, cells, bound)
            return (await bounded.open_verdicts(c, verdicts, "passed")).tolist()

    return program


def outcome(played: Played) -> dict[str, Any]:
    assert not played.failed
    return {
        "rounds": played.rounds,
        "sent": played.sent(),
        "opened": [list(o) for o in played.opened],
    }


def check_bad(case: dict[str, Any], good: dict[str, Any], program: Callable[..., Program]) -> None:
    """A ``message`` changed on its way, or ``arguments`` in the place of the good vector's."""
    extra = case.keys() - BAD
    assert extra in ({"message"}, {"arguments"})
    change = Change(**case["message"]) if "message" in case else None
    changed = good | case.get("arguments", {})
    assert changed.keys() == good.keys()
    played = play(changed, program(changed), change)
    found = list(played.failed.values())
    assert {type(error) for error in found} == {ERRORS[case["error"]]}
    if isinstance(found[0], errors.ProtocolError):
        assert played.mesh.changed == 1
        assert any(f"in step {case['step']!r}" in str(error) for error in found)
    else:
        # Refused before anything of the step is sent, by all alike: "" where no step has begun.
        assert played.steps == {case["step"]}
        assert played.mesh.messages == []


@pytest.mark.parametrize("case", SELECT["good"], ids=named)
def test_select_vectors_good(case: dict[str, Any]) -> None:
    assert case.keys() == {"name", "chosen"} | SETTING | SPEC | OUTCOME
    played = play(case, selection(case))
    assert played.result == [case["chosen"]] * 3
    assert outcome(played) == {key: case[key] for key in OUTCOME}


@pytest.mark.parametrize("case", SELECT["bad"], ids=named)
def test_select_vectors_bad(case: dict[str, Any]) -> None:
    good = next(g for g in SELECT["good"] if g["name"] == case["of"])
    check_bad(case, good, selection)


@pytest.mark.parametrize("case", MEASURE["good"], ids=named)
def test_measure_vectors_good(case: dict[str, Any]) -> None:
    assert case.keys() == {"name", "noisy"} | SETTING | NOISE | OUTCOME
    played = play(case, measurement(case))
    assert played.result == [case["noisy"]] * 3
    assert outcome(played) == {key: case[key] for key in OUTCOME}


@pytest.mark.parametrize("case", MEASURE["bad"], ids=named)
def test_measure_vectors_bad(case: dict[str, Any]) -> None:
    good = next(g for g in MEASURE["good"] if g["name"] == case["of"])
    check_bad(case, good, measurement)


@pytest.mark.parametrize("case", BOUNDED["good"], ids=named)
def test_bounded_vectors_good(case: dict[str, Any]) -> None:
    assert case.keys() == {"name", "passed"} | SETTING | CHECK | OUTCOME
    played = play(case, checking(case))
    assert played.result == [case["passed"]] * 3
    assert outcome(played) == {key: case[key] for key in OUTCOME}


@pytest.mark.parametrize("case", BOUNDED["bad"], ids=named)
def test_bounded_vectors_bad(case: dict[str, Any]) -> None:
    good = next(g for g in BOUNDED["good"] if g["name"] == case["of"])
    check_bad(case, good, checking)


# Transcripts.


def signer(case: dict[str, Any]) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(case["signing_key"]))


def written(case: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The file of the vector's calls, the clocks standing where it says: ``time`` and 25 ms a record."""
    ticks = itertools.count()
    monkeypatch.setattr("time.time", lambda: case["time"])
    monkeypatch.setattr("time.monotonic", lambda: next(ticks) / 40)
    transcript = Transcript(path, sign=signer(case).sign, header=case["header"])
    for call in case["calls"]:
        assert call.keys() == {"name", "arguments"}
        arguments = dict(call["arguments"])
        for binary in {"digest", "value"} & arguments.keys() if call["name"] != "client" else ():
            arguments[binary] = bytes.fromhex(arguments[binary])
        getattr(transcript, call["name"])(**arguments)
    transcript.close()
    return path.read_bytes()


@pytest.mark.parametrize("case", TRANSCRIPT["good"], ids=named)
def test_transcript_vectors_good(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert case.keys() == {
        "name",
        "signing_key",
        "time",
        "header",
        "calls",
        "lines",
        "head",
        "ended",
    }
    path = tmp_path / "t.jsonl"
    data = written(case, path, monkeypatch)
    assert data.decode() == "".join(f"{line}\n" for line in case["lines"])
    reading = read(path)
    assert (reading.head.hex(), reading.ended, reading.torn) == (case["head"], case["ended"], 0)
    records = verified_records(path, verify=signer(case).public_key().verify)
    assert [canonical(record).decode() for record in records] == case["lines"]
    seals = [seal.line for seal in reading.seals if seal.fits]
    assert seals == [n for n, line in enumerate(case["lines"], 1) if '"kind":"seal"' in line]


@pytest.mark.parametrize("case", TRANSCRIPT["bad"], ids=named)
def test_transcript_vectors_bad(case: dict[str, Any], tmp_path: Path) -> None:
    """``line`` n of the good one, from 1, is ``text``; ``step`` says as what it is refused."""
    assert case.keys() == BAD | {"line", "text"}
    good = next(g for g in TRANSCRIPT["good"] if g["name"] == case["of"])
    lines = list(good["lines"])
    assert lines[case["line"] - 1] != case["text"]
    lines[case["line"] - 1] = case["text"]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    error = ERRORS[case["error"]]
    if case["step"] == "file":
        with pytest.raises(error):
            read(path)
        return
    reading = read(path)
    broken = {number for number, record in enumerate(reading.records, 1) if record is None}
    assert (broken == {case["line"]}) is (case["step"] == "record")
    unfit = [seal.line for seal in reading.seals if not seal.fits]
    assert bool(unfit) is (case["step"] in ("record", "seal"))
    assert case["step"] in ("record", "seal", "signature")
    with pytest.raises(error):
        verified_records(path, verify=signer(good).public_key().verify)


# Writing the files anew.


def _setting(name: str, counts: list[int]) -> dict[str, Any]:
    def key(holder: str) -> str:
        return hashlib.sha256(f"{name}/{holder}".encode()).hexdigest()[:32]

    return {
        "name": name,
        "path": f"vectors/{name}".encode().hex(),
        "component_keys": [key(f"component {c}") for c in range(3)],
        "private_keys": [key(f"private {p}") for p in range(3)],
        "components": [part.tolist() for part in components(R32, counts, seed=len(counts))],
    }


def _select_case(
    name: str, sizes: list[int], gain: int, max_rows: int, wrap: bool
) -> dict[str, Any]:
    cells = sum(sizes)
    counts = [7 * cell % 23 + (1 << 31 if wrap and cell == 1 else 0) for cell in range(cells)]
    spec = {
        "sizes": sizes,
        "answers": [64 * (5 * cell % 17) + cell % 64 for cell in range(cells)],
        "gains": [gain + group for group in range(len(sizes))],
        "offsets": [40 * group for group in range(len(sizes))],
        "max_rows": max_rows,
    }
    case = _setting(name, counts) | spec
    played = play(case, selection(case))
    assert not played.failed
    return case | {"chosen": played.result[0]} | outcome(played)


def _measure_case(name: str, noise: str, sigma: float, security_bits: int) -> dict[str, Any]:
    case = _setting(name, [0, 3, 250, 17, 999]) | {
        "noise": noise,
        "sigma": sigma,
        "max_rows": 1000,
        "security_bits": security_bits,
    }
    played = play(case, measurement(case))
    assert not played.failed
    return case | {"noisy": played.result[0]} | outcome(played)


Row = tuple[str, str, tuple[int, int], int, str]
"""A bad vector of one changed message: name; step, (sender, receiver) and which of theirs in it; what happens to it."""


def _messages(
    case: dict[str, Any], program: Callable[..., Program], last: str, rows: list[Row]
) -> list[dict[str, Any]]:
    """A message of another size ends its own step; a bit in one is found when the step ``last`` opens something."""
    played = play(case, program(case))
    bad = []
    for name, step, (sender, receiver), index, how in rows:
        label = played.labels(step, sender, receiver)[index]
        flipped = how == "flipped"
        bad.append(
            {
                "name": name,
                "of": case["name"],
                "message": {"sender": sender, "receiver": receiver, "label": label, "how": how},
                "step": last if flipped else step,
                "error": "CheckFailed" if flipped else "ProtocolViolation",
            }
        )
    return bad


def _refused(name: str, of: str, step: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "of": of, "arguments": arguments, "step": step, "error": "ValueError"}


def _select() -> dict[str, Any]:
    good = [
        _select_case("three candidates", [2, 1, 3], 1 << 20, 1000, False),
        _select_case("one candidate", [4], 1 << 20, 50, False),
        _select_case("eighteen candidates", [1, 5, 2] * 6, 1 << 18, 100_000, False),
        _select_case("a count that is none", [2, 3], 1 << 20, 1000, True),
    ]
    error, choose = "select.scores", "select.choose"
    rows: list[Row] = [
        ("the opened index flipped", choose, (0, 1), -1, "flipped"),
        ("the digest of the opening flipped", choose, (1, 0), -1, "flipped"),
        ("the last carry flipped", choose, (1, 0), -2, "flipped"),
        ("a message of the errors short", error, (0, 2), 0, "short"),
        ("a message of the errors longer", error, (2, 1), 0, "longer"),
        ("a message of the choice short", choose, (1, 0), 3, "short"),
    ]
    bad = _messages(good[0], selection, choose, rows)
    of = "three candidates"
    bad += [
        _refused("no candidate", of, "", sizes=[], answers=[], gains=[], offsets=[]),
        _refused("errors beyond 31 bits", of, "", max_rows=1 << 25),
        _refused("scores beyond 62 bits", of, "", gains=[1 << 50] * 3),
        _refused("answers beyond the rows", of, "", answers=[70_000] * 6),
        _refused("answers of another table", of, "select.scores", sizes=[2, 1, 2]),
    ]
    return {"good": good, "bad": bad}


def _measure() -> dict[str, Any]:
    exact, mueller, shared = measure.DISCRETE, measure.BOX_MULLER, measure.DISTRIBUTED
    good = [
        _measure_case("exact", exact, 3.0, 64),
        _measure_case("exact, a sum of two tables, 2^-40", exact, 150.0, 40),
        _measure_case("Box-Muller", mueller, 2.5, 64),
        _measure_case("distributed", shared, 4.0, 64),
    ]
    noise, opening = "measure.noise", "measure.open"
    rows: list[Row] = [
        ("a noisy count flipped", opening, (2, 0), -1, "flipped"),
        ("the digest of the opening flipped", opening, (2, 1), -1, "flipped"),
        ("noise flipped", noise, (1, 0), -1, "flipped"),
        ("a message of the noise short", noise, (0, 2), 2, "short"),
        ("a noisy count more", opening, (0, 1), -1, "longer"),
    ]
    bad = _messages(good[0], measurement, opening, rows)
    bad += [
        _refused("too small a sigma", "exact", noise, sigma=0.1),
        _refused("too large a sigma", "exact", noise, sigma=1600.0),
        _refused("counts beyond 32 bits", "exact", noise, max_rows=1 << 31),
        _refused("another noise", "exact", "", noise="laplace"),
        _refused("more bits than there are", "exact", noise, security_bits=129),
        _refused("no sigma for Box-Muller", "Box-Muller", noise, sigma=0.0),
    ]
    return {"good": good, "bad": bad}


def _bounded_case(name: str, check: str, owners: int, bound: int, x: list[int]) -> dict[str, Any]:
    case = _setting(name, x) | {"check": check, "owners": owners, "bound": bound}
    played = play(case, checking(case))
    assert not played.failed
    return case | {"passed": played.result[0]} | outcome(played)


def _bounded() -> dict[str, Any]:
    sums = [[9, 10, 11, 0, 9, -1, 9], [9, 10, 11, 0, 8, -1, 9 - (1 << 31)]]
    cells = [[0, 10, 3, 9, 1], [0, 11, 0, 0, 0], [10, 10, 10, 10, -1], [10, 10, 10, 10, 10]]
    good = [
        _bounded_case("sums", "totals", 7, 10, [*sums[0], *sums[1], *sums[0]]),
        _bounded_case("one sum each", "totals", 7, 10, sums[0]),
        _bounded_case("cells", "cells", 4, 10, [*itertools.chain(*cells)]),
    ]
    rows: list[Row] = [
        ("a verdict flipped", CHECKING, (0, 1), -1, "flipped"),
        ("the digest of the verdicts flipped", CHECKING, (1, 0), -1, "flipped"),
        ("the last product flipped", CHECKING, (1, 0), -2, "flipped"),
        ("a message of the sums short", CHECKING, (0, 2), 0, "short"),
        ("a verdict more", CHECKING, (0, 1), -1, "longer"),
    ]
    bad = _messages(good[0], checking, CHECKING, rows)
    bad += [
        _refused("a bound below 0", "sums", CHECKING, bound=-1),
        _refused("a bound from 2^31", "cells", CHECKING, bound=1 << 31),
    ]
    return {"good": good, "bad": bad}


def _call(call: str, **arguments: Any) -> dict[str, Any]:
    return {"name": call, "arguments": arguments}


def _every_record() -> list[dict[str, Any]]:
    message = {"step": "select.choose", "round": 3, "size": 1234, "digest": "5a" * 32}
    here = {"step": "measure.open", "round": 3}
    counts = {"what": "measure.counts", "count": 2, "value": bytes(range(1, 9)).hex()}
    cost = {"rounds": 1, "sent": 9, "received": 7, "messages": 2, "seconds": 0.25}
    return [
        _call("message", direction="sent", peer=2, label=-1, **message),
        _call("message", direction="received", peer=1, label=1 << 62, **message),
        _call("client", client="clinic-ä", digest="ab", round=0, accepted=False, reason="late"),
        _call("ledger", round=3, step="measure", event={"sigma": 2.5}, rho=0.08, spent=0.5),
        _call("opened", **here, **counts),
        _call("step", **here, **cost),
        _call("note", what="chosen", candidate=17),
        _call("seal", reason="round 3"),
        _call("note", what="end", completed=True),
    ]


def _transcript() -> dict[str, Any]:
    import tempfile

    key, header = bytes(range(32)).hex(), {"run": "demo", "party": 0, "config": "00" * 32}
    good = []
    for name, calls in (("every record", _every_record()), ("nothing but a header", [])):
        case = {"name": name, "signing_key": key, "time": 1e9, "header": header, "calls": calls}
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            path = Path(folder) / "t.jsonl"
            lines = written(case, path, patch).decode().splitlines()
            reading = read(path)
        good.append(case | {"lines": lines, "head": reading.head.hex(), "ended": reading.ended})
    lines = good[0]["lines"]
    own, other = signer(good[0]), Ed25519PrivateKey.from_private_bytes(bytes(32))
    last = len(lines)

    def resealed(reason: str, head: str, key: Ed25519PrivateKey) -> str:
        record = json.loads(lines[-1]) | {"reason": reason, "head": head}
        signature = key.sign(sealed(bytes.fromhex(head), reason, record["t"])).hex()
        return canonical(record | {"signature": signature}).decode()

    head = json.loads(lines[-1])["head"]
    wrong_head = chain(bytes(32), b"").hex()

    def with_seal(**fields: Any) -> str:
        return canonical(json.loads(lines[-1]) | fields).decode()

    value, other_value = encode(bytes(range(1, 9))), encode(bytes(8))
    rows = [
        ("no transcript", 1, '{"kind":"note"}', "file"),
        ("no JSON", 3, lines[2][:-1], "record"),
        ("no kind", 3, '{"t":5}', "record"),
        ("a blank in a record", 4, lines[3].replace(",", ", ", 1), "record"),
        ("a number written otherwise", 5, lines[4].replace("0.08", "0.080"), "record"),
        ("a charge lowered", 5, lines[4].replace('"spent":0.5', '"spent":0.4'), "seal"),
        ("an opening changed", 6, lines[5].replace(value, other_value), "seal"),
        ("a seal of another chain", last, resealed("end", wrong_head, own), "seal"),
        ("another reason", last, with_seal(reason="stop"), "signature"),
        ("another key's signature", last, resealed("end", head, other), "signature"),
        ("no signature", last, with_seal(signature=""), "signature"),
    ]
    bad = [
        {
            "name": name,
            "of": "every record",
            "line": line,
            "text": text,
            "step": step,
            "error": "InvalidSignature" if step == "signature" else "CheckFailed",
        }
        for name, line, text, step in rows
    ]
    return {"good": good, "bad": bad}


def write() -> None:
    """Writes the vectors anew."""
    for name, content in (
        ("select", _select()),
        ("measure", _measure()),
        ("bounded", _bounded()),
        ("transcript", _transcript()),
    ):
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
