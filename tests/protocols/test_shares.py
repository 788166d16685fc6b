"""Shares show nothing of what they hold, and only ``base`` and the public calls touch a channel."""

import ast
import copy
import pickle
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from protocols.keystream import Keystream
from protocols.ring import BITS, R32, R64, R128, Ring, RingArray
from protocols.shares import Additive, Entries, Share, concatenate, inner, product

SECRET = 3735928559
PLACE = SimpleNamespace(verifier=None)


def share(ring=R32, value=SECRET) -> Share:
    component = np.full(3, value, ring.dtype)
    return Share(ring, 0, component, component.copy())


@pytest.mark.parametrize("secret", [share(), share().additive(PLACE)], ids=["share", "additive"])
def test_secret_shows_no_value(secret: Share | Additive) -> None:
    for text in (repr(secret), str(secret), f"{secret}"):
        assert str(SECRET) not in text
        assert hex(SECRET)[2:] not in text


@pytest.mark.parametrize("secret", [share(), share().additive(PLACE)], ids=["share", "additive"])
def test_secret_refuses_truth_pickle_and_copy(secret: Share | Additive) -> None:
    with pytest.raises(TypeError, match="truth"):
        bool(secret)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="pickled"):
        copy.deepcopy(secret)


def test_share_compares_by_identity() -> None:
    a = share()
    assert a == a
    assert a != share()


def test_share_rejects_mixed_rings_and_roles() -> None:
    other_role = Share(R32, 1, np.zeros(3, np.uint32), np.zeros(3, np.uint32))
    multiplied = partial(product, PLACE)
    for combine in (lambda a, b: a + b, lambda a, b: a - b, multiplied, concatenate):
        with pytest.raises(TypeError):
            combine(share(), share(R64))
    for combine in (lambda a, b: a + b, multiplied):
        with pytest.raises(TypeError):
            combine(share(), other_role)
    with pytest.raises(TypeError):
        share() ^ share()
    with pytest.raises(TypeError):
        share().additive(PLACE) + share(R64).additive(PLACE)


def test_share_rejects_components_of_another_type_or_shape() -> None:
    with pytest.raises(TypeError):
        Share(R32, 0, np.zeros(3, np.uint64), np.zeros(3, np.uint64))
    with pytest.raises(TypeError):
        Share(R32, 0, np.zeros(3, np.uint32), np.zeros(4, np.uint32))


def test_additive_has_no_way_to_bytes() -> None:
    """An unmasked term offers no buffer, no array and no public attribute that holds it."""
    term = share().additive(PLACE)
    with pytest.raises(TypeError):
        memoryview(term)  # type: ignore[arg-type]
    assert np.asarray(term).dtype == object
    public = {name for name in dir(term) if not name.startswith("_")}
    assert public == {
        "grouped",
        "known_origins",
        "masked",
        "of_table",
        "origins",
        "padded",
        "ring",
        "shape",
        "sum",
        "zeros",
    }
    assert term.origins is None
    # Without a verifier nothing is known of a table's operands either.
    assert term.of_table((Entries(0, 0), Entries(1, 0)), 0) is term


@pytest.mark.parametrize("size", [0, 1, 15, 16, 40, (1 << 16) + 3])
def test_add_to_is_read_and_exclusive_or_wherever_the_stream_is(size: int) -> None:
    first, second = (Keystream(b"k" * 16, b"path") for _ in range(2))
    for start in (size, 7):
        octets = np.arange(start, start + size).astype(np.uint8)
        guarded = np.concatenate((octets, np.full(16, 9, np.uint8)))
        first.add_to(guarded[:size])
        np.testing.assert_array_equal(guarded[:size], octets ^ second.read(size))
        assert (guarded[size:] == 9).all()


def test_keystream_shows_no_key() -> None:
    assert repr(Keystream(b"k" * 16, b"path")) == "Keystream(...)"


def calls(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


SENDERS = {
    "base.py": "what everything else is made of",
    "fixed.py": "truncation: terms, masked by a sharing of zero",
    "inner_proof.py": "proofs of AND, masked by keystreams that the receiver does not have",
    "row_tags.py": "tags, masked by keystreams that become their components, and digests of differences",
    "shamir.py": "points of values, with masks modulo the prime or over the integers",
    "shuffle.py": "permuted rows, masked by keystreams that the other of the pair does not have",
    "verify.py": "which products there are to check, digests of masked values, and that all is right",
    "verify_tables.py": "proofs of tables, masked by keystreams; coins; digests",
}
"""Modules that may call ``round``, with what they send by it."""
DRAWERS = {
    "base.py": "masks, and components that nobody sends",
    "context.py": "noise that has no name",
    "inner_proof.py": "masks of proofs, and challenges",
    "row_tags.py": "keys of two parties, and masks of tags",
    "shuffle.py": "permutations of two parties, and masks of rows",
    "verify_tables.py": "masks of proofs, and coins",
}
"""Modules that may draw from a keystream of two parties, with what they take from it."""


def test_channel_is_touched_by_base_alone() -> None:
    """``round`` sends what is derived from secrets: base may call it, and what has a reason in ``SENDERS``.

    Keystreams that two parties have in common are for base: what others take from it only they know (``DRAWERS``).
    """
    package = Path(__file__).parents[2] / "protocols"
    senders = {path.name for path in package.glob("*.py") if "round" in calls(path)}
    assert senders == set(SENDERS)
    unmaskers = {path.name for path in package.glob("*.py") if "masked" in calls(path)}
    assert unmaskers == {"base.py", "fixed.py"}
    drawers = {
        path.name for path in package.glob("*.py") if {"common", "subtract_common"} & calls(path)
    }
    assert drawers == set(DRAWERS)
    own_drawers = {path.name for path in package.glob("*.py") if "private" in calls(path)}
    assert own_drawers == {"derived.py", "discrete.py"}
    posters = {path.name for path in package.glob("*.py") if "post" in calls(path)}
    assert posters == {"context.py"}


def test_inputs_of_one_party_are_shared_in_one_place_alone() -> None:
    """A party shares own inputs for derived or dealt values (``derived``), and for distributed noise (``measure``)."""
    package = Path(__file__).parents[2] / "protocols"
    users = {
        path.name
        for path in package.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
        and "share_input" in (getattr(node, "id", None), getattr(node, "attr", None))
    }
    assert users == {"derived.py", "measure.py"}


def test_boolean_share_complement_is_public() -> None:
    parts = [np.array([5], np.uint64), np.array([9], np.uint64), np.array([12], np.uint64)]
    shares = [~Share(BITS, pid, parts[pid], parts[(pid + 1) % 3]) for pid in range(3)]
    assert shares[0].own ^ shares[1].own ^ shares[2].own == ~np.array([5 ^ 9 ^ 12], np.uint64)


def test_narrowed_is_the_value_modulo_the_smaller_ring() -> None:
    value = np.array([0, 1, -1, -(1 << 62), (1 << 63) - 1, 5 << 64], dtype=object)
    first = R128.encode(np.arange(6).astype(object) * 12345678901234567890123456789)
    components = [first, R128.encode(np.full(6, -1)), R128.zeros((6,))]
    components[2] = R128.sub(R128.sub(R128.encode(value), components[0]), components[1])
    narrow = [
        Share(R128, i, components[i], components[(i + 1) % 3]).narrowed(R64) for i in range(3)
    ]
    total = R64.add(R64.add(narrow[0].own, narrow[1].own), narrow[2].own)
    assert R64.decode(total).tolist() == [0, 1, -1, -(1 << 62), (1 << 63) - 1, 0]
    with pytest.raises(TypeError, match="narrowed"):
        narrow[0].narrowed(R128)


@pytest.mark.parametrize("ring", [BITS, R32, R64, R128])
@pytest.mark.parametrize("blank", ["", "x.own", "x.next", "y.own", "y.next", "y"])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_inner_is_the_sum_of_products_and_leaves_its_operands(
    ring: Ring, blank: str, rows: int
) -> None:
    stream, shape = Keystream(bytes(16), b"inner"), (rows, 3, 2)

    def component(name: str) -> RingArray:
        if blank in (name, name[0]):
            return ring.blank(shape)
        return ring.from_wire(stream.read(rows * 6 * ring.itemsize), shape)

    x_sh, y_sh = (
        Share(ring, 1, component(f"{name}.own"), component(f"{name}.next")) for name in "xy"
    )
    before = [part.copy() for part in (x_sh.own, x_sh.next, y_sh.own, y_sh.next)]
    expected = product(PLACE, x_sh, y_sh[::-1]).sum(axis=0)
    zero = ring.zeros(shape[1:])
    found = inner(PLACE, x_sh, y_sh[::-1])
    assert np.array_equal(found.masked(zero.copy()), expected.masked(zero.copy()))
    after = (x_sh.own, x_sh.next, y_sh.own, y_sh.next)
    assert all(map(np.array_equal, before, after))


@pytest.mark.parametrize("pid", [0, 1, 2])
def test_public_numbers_change_component_0_alone_and_copy_no_other(pid: int) -> None:
    own, next_ = np.arange(4, dtype=np.uint32), np.arange(4, 8, dtype=np.uint32)
    sum_sh = Share(R32, pid, own, next_) - np.array([1, 2, 3, 4])
    expected = [own - np.arange(1, 5) if pid == 0 else own]
    expected.append(next_ - np.arange(1, 5) if pid == 2 else next_)
    assert np.array_equal(sum_sh.own, expected[0].astype(np.uint32))
    assert np.array_equal(sum_sh.next, expected[1].astype(np.uint32))
    assert (sum_sh.own is own, sum_sh.next is next_) == (pid != 0, pid != 2)
