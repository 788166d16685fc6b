"""A client's upload: exact sums, sizes, what each server sees, hostile clients, and fixed vectors."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from protocols.errors import CheckFailed
from protocols.upload import (
    NAMES,
    PLAIN,
    SEEDED,
    StoredUpload,
    UploadSeeds,
    body_size,
    check_component,
    common_size,
    component_digests,
    parse_upload,
    private_size,
    upload,
    upload_components,
    upload_form,
)

VECTORS = json.loads(
    (Path(__file__).parent.parent / "vectors" / "upload.json").read_text(encoding="utf-8")
)
Values = NDArray[np.unsignedinteger]
Components = list[tuple[Values, Values]]

edge_counts = st.lists(
    st.sampled_from([0, 1, 2**31, 2**32 - 1]) | st.integers(0, 2**32 - 1), max_size=40
)


def given_to(form: str, values: Sequence[int]) -> Values:
    """These numbers as the form takes them: counts, or bytes of packed rows."""
    return np.array(values, dtype=np.uint32).astype(upload_form(form).value)


def received(bodies: Sequence[bytes], form: str, count: int) -> Components:
    """Components of the three servers."""
    return [upload_components(pid, form, bodies[pid], count) for pid in range(3)]


@pytest.mark.parametrize("form", NAMES)
@given(values=edge_counts)
def test_upload_components_make_what_was_shared(form: str, values: list[int]) -> None:
    shared = given_to(form, values)
    parts = received(upload(shared, form).bodies, form, shared.size)
    for pid in range(3):
        np.testing.assert_array_equal(parts[pid][1], parts[(pid + 1) % 3][0])
        assert parts[pid][0].dtype == parts[pid][1].dtype == shared.dtype
    combine = np.bitwise_xor if upload_form(form).boolean else np.add
    total = combine(combine(parts[0][0], parts[1][0]), parts[2][0])
    np.testing.assert_array_equal(total, shared)


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize("count", [0, 1, 4, 8, 1000])
def test_upload_bodies_have_the_stated_sizes(form: str, count: int) -> None:
    parts = upload(given_to(form, [0] * count), form)
    sizes = [len(part) for part in parts.private]
    assert sizes == [private_size(pid, form, count) for pid in range(3)]
    assert sum(sizes) == (48 * count if form == PLAIN else 64)
    once = {SEEDED: 4 * count, PLAIN: 0}.get(form, count)
    assert len(parts.common) == common_size(form, count) == once
    assert [len(body) for body in parts.bodies] == [body_size(pid, form, count) for pid in range(3)]


def test_upload_gives_the_holders_of_x2_one_copy_of_it() -> None:
    parts = upload(np.arange(8, dtype=np.uint32), SEEDED)
    assert parts.holders == (1, 2)
    assert parts.bodies == (parts.private[0], *(p + parts.common for p in parts.private[1:]))
    plain = upload(np.arange(8, dtype=np.uint32), PLAIN)
    assert (plain.holders, plain.common, plain.bodies) == ((), b"", plain.private)
    assert parts.common.hex() not in repr(parts)


@pytest.mark.parametrize("form", NAMES)
def test_upload_bodies_change_entirely_under_fresh_seeds(form: str) -> None:
    shared = given_to(form, range(64))
    both = upload(shared, form).bodies, upload(shared, form).bodies
    for first, second in zip(*both, strict=True):
        one, two = (np.frombuffer(body, np.uint8) for body in (first, second))
        # Each byte is equal by chance with probability 1/256; half of them never are.
        assert np.mean(one == two) < 0.25
        assert first[:16] != second[:16]


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize("value", [0, 1, 2**32 - 1])
def test_upload_elements_are_uniform_at_each_server_for_constant_input(
    form: str, value: int
) -> None:
    """Statistic: chi-square of byte values, 255 degrees of freedom, 65,536 bytes and more; false alarm below 1e-9.

    The control is the input itself, which a forgotten mask would put on the wire.
    """
    count = 1 << 16
    shared = given_to(form, [value] * count)

    def statistic(data: bytes) -> float:
        seen = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
        expected = len(data) / 256
        return float(((seen - expected) ** 2 / expected).sum())

    for own, next_ in received(upload(shared, form).bodies, form, count):
        for component in (own, next_):
            assert statistic(component.tobytes()) < 410
    assert statistic(shared.tobytes()) > 410


@pytest.mark.parametrize("form", NAMES)
def test_upload_view_of_one_server_is_the_same_for_other_input_and_matching_randomness(
    form: str,
) -> None:
    """With the seeds that one server sees held fixed, what it gets besides is masked by one it does not see."""
    first, second = given_to(form, [0] * 32), given_to(form, range(1, 33))
    seeds = UploadSeeds.draw()
    assert upload(first, form, seeds).bodies[0] == upload(second, form, seeds).bodies[0]
    # Server 1 does not see s0, server 2 not s1: with another one, x2 differs although the input is the same.
    other_s0 = UploadSeeds(UploadSeeds.draw().s0, seeds.s1)
    other_s1 = UploadSeeds(seeds.s0, UploadSeeds.draw().s1)
    bodies = upload(first, form, seeds).bodies
    assert bodies[1][-4:] != upload(first, form, other_s0).bodies[1][-4:]
    assert bodies[2] != upload(first, form, other_s1).bodies[2]


def test_upload_seeds_are_different_each_time_and_never_shown() -> None:
    seeds = [UploadSeeds.draw() for _ in range(50)]
    drawn = Counter(part for pair in seeds for part in (pair.s0, pair.s1))
    assert max(drawn.values()) == 1
    assert repr(seeds[0]) == "UploadSeeds(...)"
    with pytest.raises(ValueError, match="16 bytes"):
        UploadSeeds(b"short", bytes(16))


@pytest.mark.parametrize("form", NAMES)
def test_stored_upload_repr_holds_no_content(form: str) -> None:
    stored = parse_upload(1, form, upload(given_to(form, range(4)), form).bodies[1], 4)
    assert stored.next.data.hex() not in repr(stored)
    assert repr(stored.next.data) not in repr(stored)


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize(
    "other", [np.zeros(3, np.int64), np.zeros((2, 2), np.uint32), np.zeros((2, 2), np.uint8)]
)
def test_upload_refuses_other_arrays(form: str, other: Values) -> None:
    with pytest.raises(ValueError, match=r"takes a uint(8|32) vector"):
        upload(other, form)


def test_upload_refuses_another_form_or_pid() -> None:
    with pytest.raises(ValueError, match="seeded, plain, rows"):
        upload(np.zeros(1, np.uint32), "zipped")
    with pytest.raises(ValueError, match="pid 3"):
        parse_upload(3, SEEDED, b"", 1)


@pytest.mark.parametrize("form", NAMES)
@given(values=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9))
def test_component_digests_agree_between_honest_holders(form: str, values: list[int]) -> None:
    shared = given_to(form, values)
    bodies = upload(shared, form).bodies
    digests = [
        component_digests(parse_upload(pid, form, bodies[pid], shared.size)) for pid in range(3)
    ]
    for pid in range(3):
        check_component(digests[(pid + 1) % 3][0], digests[pid][1])


@pytest.mark.parametrize("form", NAMES)
@given(data=st.data())
def test_component_digests_find_a_flipped_bit_anywhere(form: str, data: st.DataObject) -> None:
    count = 5
    bodies = list(upload(given_to(form, range(count)), form).bodies)
    pid = data.draw(st.integers(0, 2))
    bit = data.draw(st.integers(0, 8 * len(bodies[pid]) - 1))
    changed = bytearray(bodies[pid])
    changed[bit // 8] ^= 1 << (bit % 8)
    bodies[pid] = bytes(changed)
    stored = [parse_upload(i, form, bodies[i], count) for i in range(3)]

    def compare(sender: int) -> None:
        own = component_digests(stored[(sender + 1) % 3])[0]
        check_component(own, component_digests(stored[sender])[1])

    failures = 0
    for sender in range(3):
        try:
            compare(sender)
        except CheckFailed:
            failures += 1
    assert failures == 1


@pytest.mark.parametrize(
    "case", VECTORS["good"], ids=lambda case: f"{case['form']}-{len(case['values'])}"
)
def test_upload_vectors_good(case: dict[str, object]) -> None:
    case = dict(case)
    form = str(case.pop("form"))
    values = given_to(form, case.pop("values"))  # type: ignore[arg-type]
    seeds = UploadSeeds(bytes.fromhex(str(case.pop("s0"))), bytes.fromhex(str(case.pop("s1"))))
    bodies = upload(values, form, seeds).bodies
    assert [body.hex() for body in bodies] == case.pop("bodies")
    parts = received(bodies, form, values.size)
    assert [own.tolist() for own, _ in parts] == case.pop("components")
    assert not case


@pytest.mark.parametrize(
    "case", VECTORS["bad"], ids=lambda case: f"{case['form']}-{case['pid']}-{case['what']}"
)
def test_upload_vectors_bad(case: dict[str, object]) -> None:
    case = dict(case)
    form, pid, count = str(case.pop("form")), int(str(case.pop("pid"))), int(str(case.pop("count")))
    body, step = bytes.fromhex(str(case.pop("body"))), case.pop("step")
    previous = bytes.fromhex(str(case.pop("previous", "")))
    assert case.pop("error") == "CheckFailed"
    case.pop("what")
    assert not case
    if step == "parse":
        with pytest.raises(CheckFailed, match=f"to server {pid} has"):
            parse_upload(pid, form, body, count)
        return
    stored: StoredUpload = parse_upload(pid, form, body, count)
    assert step == "compare"
    sent = component_digests(parse_upload((pid - 1) % 3, form, previous, count))[1]
    with pytest.raises(CheckFailed, match="different versions"):
        check_component(component_digests(stored)[0], sent)
