"""Compiled loops give what their definitions give, in Python's integers and bit by bit."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import kernels
from protocols.bitslice import to_bits
from protocols.compiling import compiled
from protocols.mersenne import F61
from protocols.sign_tables import sign_tables

P = F61.modulus
KINDS = ((0, 0), (1, 0), (0, 1), (1, 1))
EDGES = [0, 1, P - 1, 1 << 60]

seeds = st.integers(0, 2**32 - 1)


def gates(words: int, generator: np.random.Generator) -> np.ndarray:
    """(3, words); some are all zeros or all ones."""
    found = generator.integers(0, 1 << 64, (3, words), np.uint64)
    for value in (np.uint64(0), ~np.uint64(0)):
        found[generator.random(found.shape) < 0.1] = value
    return found


def elements(count: int, generator: np.random.Generator) -> np.ndarray:
    drawn = [int(x) for x in generator.integers(0, P, count)]
    return np.array([EDGES[x % 4] if x % 5 == 0 else x for x in drawn], object)


def columns_of(plane: np.ndarray, blocks: int) -> np.ndarray:
    """(columns, blocks)."""
    return to_bits(plane, plane.size * 64).reshape(-1, blocks).astype(int)


def signs(of: np.ndarray, blocks: int, *, left: bool) -> np.ndarray:
    """All four signs of each gate: (4, columns, blocks)."""
    x, y, last = (columns_of(plane, blocks) for plane in of)
    bits = [last ^ x & a ^ y & b if left else last ^ (y ^ a) & (x ^ b) for a, b in KINDS]
    return 1 - 2 * np.array(bits)


def sums(of: np.ndarray, factors: np.ndarray, *, left: bool) -> np.ndarray:
    """Of each quarter's columns the signs with their blocks' factors, of each kind: (16, columns / 4)."""
    found = signs(of, len(factors), left=left).astype(object) @ factors % P
    return found.reshape(4, 4, -1).transpose(1, 0, 2).reshape(16, -1)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([(16, 1), (16, 3), (16, 128), (64, 64), (64, 70), (64, 200)]), seeds)
def test_count_minus_is_the_number_of_minuses(shape: tuple[int, int], seed: int) -> None:
    blocks, words = shape
    generator = np.random.default_rng(seed)
    left, right = (gates(words, generator) for _ in range(2))
    x, y, terms = (columns_of(plane, blocks) for plane in left)
    other_x, other_y, masks = (columns_of(plane, blocks) for plane in right)
    bits = (
        (terms ^ x & y)[:, :, None]
        ^ masks[:, None, :]
        ^ x[:, :, None] & other_y[:, None, :]
        ^ y[:, :, None] & other_x[:, None, :]
    )
    assert np.array_equal(kernels.count_minus(left, right, blocks), bits.sum(axis=0))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([(16, 4), (16, 8), (16, 36), (64, 4), (64, 128), (64, 260)]), seeds)
def test_sums_of_signs_are_multiplied_and_folded_as_integers(
    shape: tuple[int, int], seed: int
) -> None:
    blocks, words = shape
    generator = np.random.default_rng(seed)
    left, right = (gates(words, generator) for _ in range(2))
    alpha, beta, weights = (elements(n, generator) for n in (blocks, blocks, 16))
    tables = sign_tables(alpha, F61), sign_tables(beta, F61)
    of_left, of_right = sums(left, alpha, left=True), sums(right, beta, left=False)

    products = kernels.sum_products(left, right, *tables)
    assert np.array_equal(products.astype(object), of_left @ of_right.T % P)

    for of, table, is_left, expected in (
        (left, tables[0], True, weights @ of_left % P),
        (right, tables[1], False, weights @ of_right % P),
    ):
        folded = kernels.fold_sums(of, is_left, table, weights.astype(np.uint64))
        assert np.array_equal(folded.astype(object), expected)


@pytest.mark.parametrize(
    "code",
    [
        "import parties.cli.main",
        "import protocols.verify",
        "from protocols import cells; cells.load_for(cells.MANY - 1)",
    ],
)
def test_nothing_but_a_proof_or_many_cells_loads_a_compiler(code: str) -> None:
    code += "; import sys; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


_REFUSED = """
import ctypes
# Linux's PR_SET_MDWE: no memory of this process is both written and run.
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    print("no such switch")
else:
    from protocols import cells
    from protocols.errors import ConfigurationError
    from protocols.verify import load_kernels
    try:
        load_kernels()
    except ConfigurationError as error:
        print(error)
    cells.load_for(cells.MANY)
    print("in NumPy" if cells.kernels() is None else "compiled")
"""


def test_where_nothing_compiled_may_run_the_error_says_what_to_allow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED], capture_output=True, text=True, check=True
    )
    if "no such switch" in done.stdout:
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert "MemoryDenyWriteExecute=no" in done.stdout
    # Errors of many cells are computed all the same.
    assert done.stdout.endswith("in NumPy\n")


def test_where_nothing_may_be_kept_kernels_are_compiled_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("numba.core.caching.CompileResultCacheImpl._locator_classes", [])

    @compiled("uint64(uint64)")
    def doubled(x: int) -> int:
        return x + x

    assert doubled(21) == 42


def test_kernels_whose_cache_is_damaged_are_compiled_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(*_: object) -> None:
        raise EOFError("Ran out of input")

    monkeypatch.setattr("numba.core.caching.Cache.load_overload", damaged)

    @compiled("uint64(uint64)")
    def tripled(x: int) -> int:
        return 3 * x

    assert tripled(7) == 21
