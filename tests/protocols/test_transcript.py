"""Transcripts: the chain and its seals, continuing after a crash, what an edit breaks, and what is never written."""

import asyncio
import base64
import hashlib
import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from protocols import transcript as module
from protocols.errors import CheckFailed
from protocols.fields import decode, encode
from protocols.mesh import TlsFiles
from protocols.runtime import PartyRuntime
from protocols.transcript import (
    FORMAT,
    Record,
    Transcript,
    Value,
    canonical,
    chain,
    read,
)
from tests.parties.support import file_size_limit
from tests.protocols.network import connected
from tests.protocols.transcripts import verified_records

HEADER = {"run": "demo", "party": 0, "config": "00" * 32}
KEY = ec.generate_private_key(ec.SECP256R1())
DIGEST = hashlib.sha256(b"payload").digest()


def sign(data: bytes, key: Any = KEY) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def verify(signature: bytes, data: bytes, key: Any = KEY) -> None:
    key.public_key().verify(signature, data, ec.ECDSA(hashes.SHA256()))


def open_transcript(path: Path) -> Transcript:
    return Transcript(path, sign=sign, header=HEADER)


def send(transcript: Transcript, label: int = 5, size: int = 8_000_000) -> None:
    transcript.message(
        step="select", round=3, direction="sent", peer=2, label=label, size=size, digest=DIGEST
    )


def without(record: Record, *fields: str) -> Record:
    return {field: value for field, value in record.items() if field not in fields}


def write_all(path: Path) -> Transcript:
    """A closed transcript with a record of every kind but ``resumed``."""
    transcript = open_transcript(path)
    send(transcript, label=-1)
    transcript.opened(step="measure", round=3, what="measure.counts", count=40, value=b"opened")
    transcript.ledger(round=3, step="measure", event={"sigma": 2.5}, rho=0.08, spent=0.5)
    transcript.client(client="hospital-1", digest="ab", round=0, accepted=False, reason="late")
    transcript.note("chosen", candidate=17)
    transcript.step(
        step="measure", round=3, rounds=20, sent=9, received=7, messages=3, seconds=0.25
    )
    transcript.seal("round 3")
    transcript.close()
    return transcript


def test_transcript_holds_every_record_in_order(tmp_path: Path) -> None:
    path = tmp_path / "party-0.jsonl"
    write_all(path)
    records = verified_records(path, verify=verify)
    assert [record["kind"] for record in records] == [
        "header",
        "sent",
        "opened",
        "ledger",
        "client",
        "note",
        "step",
        "seal",
        "seal",
    ]
    header = {"kind": "header", "format": FORMAT, "cut": 0, **HEADER}
    assert without(records[0], "t", "time") == header
    assert without(records[1], "t") == {
        "kind": "sent",
        "peer": 2,
        "step": "select",
        "round": 3,
        "label": "f" * 16,
        "bytes": 8_000_000,
        "digest": encode(DIGEST),
    }
    assert decode(records[2]["value"]) == b"opened"
    assert records[3]["event"] == {"sigma": 2.5}
    assert without(records[6], "t") == {
        "kind": "step",
        "step": "measure",
        "round": 3,
        "rounds": 20,
        "sent": 9,
        "received": 7,
        "messages": 3,
        "ms": 250,
    }
    assert records[-1]["reason"] == "end"


def test_transcript_chain_is_what_the_module_says(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    transcript = write_all(path)
    head = bytes(32)
    for line in path.read_bytes().splitlines():
        record = json.loads(line)
        if record["kind"] == "seal":
            assert record["head"] == head.hex()
        head = hashlib.sha256(head + line).digest()
    assert transcript.head == head.hex()
    assert chain(bytes(32), b"a") == hashlib.sha256(bytes(32) + b"a").digest()


@pytest.mark.parametrize("label", [0, 5, -(1 << 63), (1 << 63) - 1])
def test_message_record_stays_small(tmp_path: Path, label: int) -> None:
    path = tmp_path / "t.jsonl"
    transcript = open_transcript(path)
    transcript.close()
    before = path.stat().st_size
    transcript = open_transcript(path)
    transcript.close()
    empty = path.stat().st_size - before
    transcript = open_transcript(path)
    for _ in range(10):
        transcript.message(
            step="measure.gaussian",
            round=1000,
            direction="received",
            peer=2,
            label=label,
            size=(1 << 28),
            digest=DIGEST,
        )
    transcript.close()
    assert path.stat().st_size - before - 2 * empty < 10 * 200


def test_transcript_goes_on_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_all(path)
    again = open_transcript(path)
    send(again)
    again.close()
    records = verified_records(path, verify=verify)
    assert [record["kind"] for record in records[8:]] == ["seal", "resumed", "sent", "seal"]


def test_transcript_cuts_a_torn_line_and_goes_on(tmp_path: Path) -> None:
    """Anywhere in the last record, as a crash might leave it."""
    path = tmp_path / "t.jsonl"
    write_all(path)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in [*range(last, len(whole), 13), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        assert len(verified_records(path, verify=verify)) == 8  # Reading changes nothing.
        assert path.stat().st_size == cut
        assert read(path).torn == cut - last
        open_transcript(path).close()
        records = verified_records(path, verify=verify)
        assert [record["kind"] for record in records[6:]] == ["step", "seal", "resumed", "seal"]
        assert records[8]["cut"] == cut - last


def test_transcript_starts_anew_when_the_header_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    open_transcript(path).close()
    header = path.read_bytes().split(b"\n")[0]
    for cut in (0, 1, 10, 30, len(header)):
        path.write_bytes(header[:cut])
        open_transcript(path).close()
        kinds = [record["kind"] for record in verified_records(path, verify=verify)]
        assert kinds == ["header", "seal"]


def test_transcript_of_another_format_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    write_all(path)
    whole = path.read_bytes()
    monkeypatch.setattr(module, "FORMAT", FORMAT + 1)
    with pytest.raises(CheckFailed, match=f"was begun in format {FORMAT}"):
        open_transcript(path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "content",
    [b"name,age\nx,1\n", b"one line without an end", b'{"kind":"note"}\n', b"\n", b"\0" * 99],
)
def test_transcript_refuses_another_file_and_leaves_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    with pytest.raises(CheckFailed, match="is not a transcript"):
        open_transcript(path)
    with pytest.raises(CheckFailed, match="is not a transcript"):
        verified_records(path, verify=verify)
    assert path.read_bytes() == content


def test_transcript_raises_when_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_transcript(tmp_path / "missing" / "t.jsonl")
    with pytest.raises(IsADirectoryError):
        open_transcript(tmp_path)


def change(field: str, value: object) -> Callable[[list[bytes], int], None]:
    def edit(lines: list[bytes], number: int) -> None:
        record = json.loads(lines[number])
        assert record[field] != value
        lines[number] = json.dumps(record | {field: value}, separators=(",", ":")).encode()

    return edit


def drop(lines: list[bytes], number: int) -> None:
    del lines[number]


def double(lines: list[bytes], number: int) -> None:
    lines.insert(number, lines[number])


def swap(lines: list[bytes], number: int) -> None:
    lines[number], lines[number + 1] = lines[number + 1], lines[number]


def respace(lines: list[bytes], number: int) -> None:
    lines[number] = lines[number].replace(b",", b", ")


def spoil(lines: list[bytes], number: int) -> None:
    lines[number] = b"[1, 2]"


@pytest.mark.parametrize(
    ("number", "edit"),
    [
        (0, change("party", 1)),
        (1, change("bytes", 1)),
        (2, change("count", 1)),
        (3, change("rho", 0.0)),
        (4, change("accepted", True)),
        (1, drop),
        (3, drop),
        (2, double),
        (2, swap),
        (1, respace),
        (3, spoil),
        (7, change("head", "00" * 32)),
        (7, change("signature", "00")),
        (7, change("signature", "no hexadecimal")),
        (7, change("signature", None)),
        (7, change("reason", "round 4")),
        (8, change("reason", "all well")),
        (8, change("t", 99_999)),
    ],
)
def test_read_finds_an_edit(
    tmp_path: Path, number: int, edit: Callable[[list[bytes], int], None]
) -> None:
    path = tmp_path / "t.jsonl"
    write_all(path)
    lines = path.read_bytes().splitlines()
    edit(lines, number)
    path.write_bytes(b"\n".join(lines) + b"\n")
    # What a seal covers breaks its head; what it says itself is under its signature.
    with pytest.raises(CheckFailed if number < 7 else (CheckFailed, InvalidSignature)):
        verified_records(path, verify=verify)


def test_read_finds_a_chain_that_was_made_anew_without_the_key(tmp_path: Path) -> None:
    """All heads recomputed after an edit: only the signatures are wrong."""
    path = tmp_path / "t.jsonl"
    write_all(path)
    lines = path.read_bytes().splitlines()
    change("spent", 0.1)(lines, 3)
    head = bytes(32)
    for number, line in enumerate(lines):
        record = json.loads(line)
        if record["kind"] == "seal":
            lines[number] = canonical(record | {"head": head.hex()})
        head = chain(head, lines[number])
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(InvalidSignature):
        verified_records(path, verify=verify)


def test_ledger_and_seal_are_on_the_disk_when_they_return(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    transcript = open_transcript(path)
    transcript.ledger(round=1, step="select", event={"epsilon": 1.0}, rho=0.1, spent=0.1)
    assert path.read_bytes().splitlines()[-1].startswith(b'{"kind":"ledger"')
    transcript.seal("round 1")
    assert path.read_bytes().splitlines()[-1].startswith(b'{"kind":"seal"')
    transcript.close()


def test_transcript_time_never_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the host's clock was set back between two attempts, or during one."""
    path = tmp_path / "t.jsonl"
    write_all(path)
    ended = read(path).ended
    monkeypatch.setattr("time.time", lambda: 1000.0)
    again = open_transcript(path)
    send(again)
    again.close()
    records = verified_records(path, verify=verify)
    assert [record["t"] for record in records[:9]] == sorted(record["t"] for record in records[:9])  # type: ignore[type-var]
    assert records[9]["time"] == ended
    assert read(path).ended >= ended


@pytest.mark.parametrize("text", [None, 5, "A", "AB=", "A B", "AA==", "AB", "é"])
def test_decode_refuses_all_but_the_one_form(text: Value) -> None:
    """ "AB" has bits that no byte holds."""
    with pytest.raises(ValueError, match="base64"):
        decode(text)


@given(st.binary())
def test_decode_is_the_inverse_of_encode(data: bytes) -> None:
    assert decode(encode(data)) == data


@pytest.mark.parametrize(
    "line", [b'{"kind":"note","kind":"note"}', b'{"kind": "note"}', b'{"kind":"n","x":NaN}', b"[]"]
)
def test_read_refuses_a_second_way_of_writing_a_record(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "t.jsonl"
    open_transcript(path).close()
    path.write_bytes(path.read_bytes() + line + b"\n")
    assert read(path).records[-1] is None


def test_close_closes_the_file_when_the_key_cannot_sign(tmp_path: Path) -> None:
    def refuse(_: bytes) -> bytes:
        raise OSError("the key is gone")

    transcript = Transcript(tmp_path / "t.jsonl", sign=refuse, header=HEADER)
    with pytest.raises(OSError, match="key is gone"):
        transcript.close()
    assert transcript._file.closed


def test_transcript_writes_nothing_after_half_a_record_and_goes_on_when_opened_again(
    tmp_path: Path,
) -> None:
    """The disk was full for a moment: what comes after half a record would be lost with it."""
    path = tmp_path / "t.jsonl"
    transcript = open_transcript(path)
    send(transcript)
    transcript.flush()
    size = path.stat().st_size
    with file_size_limit(size + 5000), pytest.raises(OSError, match="too large"):
        transcript.note("counted", clients=["somebody"] * 5000)
    for write in (partial(send, transcript), transcript.flush, transcript.close):
        with pytest.raises(OSError, match="too large"):
            write()
    assert path.stat().st_size == size + 5000
    assert read(path).torn == 5000
    open_transcript(path).close()
    kinds = [record["kind"] for record in verified_records(path, verify=verify)]
    assert kinds == ["header", "sent", "resumed", "seal"]


def test_transcript_keeps_its_chain_when_threads_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    transcript = open_transcript(path)

    def work(start: int) -> None:
        for label in range(start, start + 200):
            send(transcript, label)
            if label % 50 == 0:
                transcript.seal(f"seal {label}")

    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    transcript.close()
    records = verified_records(path, verify=verify)
    labels = [record["label"] for record in records if record["kind"] == "sent"]
    assert len(set(labels)) == len(labels) == 800


@pytest.mark.usefixtures("nothing_left")
async def test_transcripts_of_three_parties_match_and_hold_no_payload(
    tls: list[TlsFiles], tmp_path: Path
) -> None:
    """Every send has its receive with the same digest; neither payloads nor keys are anywhere in the files."""
    keys = [serialization.load_pem_private_key(one.key.read_bytes(), None) for one in tls]
    paths = [tmp_path / f"party-{pid}.jsonl" for pid in range(3)]
    transcripts = [
        Transcript(path, sign=partial(sign, key=key), header=HEADER)
        for path, key in zip(paths, keys, strict=True)
    ]
    payloads = [bytes([65 + pid]) * 48 for pid in range(3)]

    async def work(party: PartyRuntime) -> None:
        with party.context().step("select", round=1) as ctx:
            await ctx.exchange(payloads[party.pid])

    async with connected(tls, recorders=transcripts) as parties:
        await asyncio.gather(*(work(party) for party in parties))
        secrets = payloads + [
            key
            for party in parties
            for key in (party.private_key(), party.component_key(party.pid))
        ]
    for transcript in transcripts:
        transcript.close()
    found: dict[str, set[tuple[Value, ...]]] = {"sent": set(), "received": set()}
    for pid, (path, key) in enumerate(zip(paths, keys, strict=True)):
        for record in verified_records(path, verify=partial(verify, key=key)):
            if record["kind"] in found:
                ends = (pid, record["peer"])
                by_sender = ends if record["kind"] == "sent" else ends[::-1]
                message = (record["step"], record["round"], record["label"], record["bytes"])
                found[record["kind"]].add((*by_sender, *message, record["digest"]))
        written = path.read_bytes()
        for secret in secrets:
            # Nor its plain digest, which would let whoever holds the other components try all short payloads.
            plain_digest = hashlib.sha256(secret).hexdigest().encode()
            for form in (secret, secret.hex().encode(), base64.b64encode(secret), plain_digest):
                assert form not in written
    assert found["sent"] == found["received"]
    assert len(found["sent"]) == 6
