"""The compiled sums of products: those of NumPy to the bit for any arrays, and errors for what they cannot be of."""

import itertools
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.products import KERNELS, low_bits, sums_of

compiled = pytest.importorskip("protocols._products", reason="nothing was compiled here")
VARIANTS = pytest.mark.parametrize("variant", compiled.VARIANTS)
LOWEST, HIGHEST = -(2**15), 2**15 - 1
SIZES = (0, 1, 2, 3, 5, 31, 32, 33, 66)
ROWS = (0, 1, 31, 32, 33, 1023, 1024, 1025, 2100)

Layout = Callable[[np.ndarray], np.ndarray]


def numbers(entries: int, rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(LOWEST, HIGHEST + 1, (entries, rows), np.int16)


def in_numpy(left: np.ndarray, right: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The control, by what counts where nothing is compiled."""
    both = np.concatenate([left, right])
    made = sums_of(both, slice(0, len(left)), slice(len(left), len(both)))
    return sums + low_bits(made)


def check(left: np.ndarray, right: np.ndarray, sums: np.ndarray, variant: str) -> None:
    expected = in_numpy(left, right, sums)
    compiled.add(left, right, sums, variant)
    assert np.array_equal(sums, expected), (left.shape, right.shape)


def test_variants_are_the_kernels_before_numpy_and_one_is_for_any_processor() -> None:
    assert (*compiled.VARIANTS, "numpy") == KERNELS
    assert compiled.VARIANTS[-1] == "portable"


@VARIANTS
def test_sums_are_numpys_for_sizes_around_those_of_blocks(variant: str) -> None:
    for number, (a, b) in enumerate(itertools.product(SIZES, SIZES)):
        rows = ROWS[number % len(ROWS)]
        sums = numbers(a, b, number).view(np.uint16)
        check(numbers(a, rows, number), numbers(b, rows, number + 1), sums, variant)
    for rows in ROWS:
        check(numbers(5, rows, 1), numbers(33, rows, 2), np.zeros((5, 33), np.uint16), variant)


@VARIANTS
@pytest.mark.parametrize("left", [LOWEST, -1, HIGHEST])
@pytest.mark.parametrize("right", [LOWEST, -1, HIGHEST])
def test_sums_wrap_for_the_largest_numbers(variant: str, left: int, right: int) -> None:
    sums = np.full((5, 3), 2**16 - 1, np.uint16)
    check(np.full((5, 2047), left, np.int16), np.full((3, 2047), right, np.int16), sums, variant)


def unaligned(x: np.ndarray) -> np.ndarray:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    found = np.ndarray(x.shape, x.dtype, memory, offset=1)
    found[...] = x
    assert not found.flags.aligned or not x.size
    return found


def apart(x: np.ndarray) -> np.ndarray:
    wide = np.full((2 * len(x), 3 * x.shape[1]), 77, x.dtype)
    wide[::2, ::3] = x
    return wide[::2, ::3]


LAYOUTS: dict[str, Layout] = {
    "in a row": np.ascontiguousarray,
    "columns first": np.asfortranarray,
    "unaligned": unaligned,
    "apart": apart,
    "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
}


@VARIANTS
@given(
    *[st.integers(0, 9)] * 2,
    st.integers(0, 70),
    *[st.sampled_from(sorted(LAYOUTS))] * 3,
    st.integers(0, 99),
)
def test_sums_are_numpys_for_any_layout(
    variant: str, a: int, b: int, rows: int, left: str, right: str, to: str, seed: int
) -> None:
    sums = LAYOUTS[to](numbers(a, b, seed + 2).view(np.uint16))
    x, y = LAYOUTS[left](numbers(a, rows, seed)), LAYOUTS[right](numbers(b, rows, seed + 1))
    check(x, y, sums, variant)


@VARIANTS
def test_sums_write_nothing_but_their_own_cells(variant: str) -> None:
    memory = np.full((9, 12), 7, np.uint16)
    left, right = numbers(3, 40, 1), numbers(5, 40, 2)
    compiled.add(left, right, memory[3:6, 4:9], variant)
    assert np.array_equal(memory[3:6, 4:9], in_numpy(left, right, np.full((3, 5), 7, np.uint16)))
    memory[3:6, 4:9] = 7
    assert np.all(memory == 7)


GUARDED = """
import ctypes, mmap
import numpy as np
from protocols import _products

def at_the_end(entries, rows, dtype):
    # An array whose last byte is the last before a page of which nothing may be read or written.
    size, page = 2 * entries * rows, mmap.PAGESIZE
    before = -(-size // page) * page
    memory = mmap.mmap(-1, before + page)
    kept.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + before), page, 0) == 0
    return np.ndarray((entries, rows), dtype, memory, offset=before - size)

kept = []
for a, b in ((1, 1), (3, 2), (4, 3), (5, 33)):
    for rows in (1, 31, 33, 1025):
        arrays = at_the_end(a, rows, np.int16), at_the_end(b, rows, np.int16)
        for variant in _products.VARIANTS:
            _products.add(*arrays, at_the_end(a, b, np.uint16), variant)
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page of memory as Linux does")
def test_sums_read_and_write_nothing_beyond_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_operands_may_be_read_only_and_one_array() -> None:
    x = numbers(6, 50, 3)
    x.flags.writeable = False
    check(x, x, np.zeros((6, 6), np.uint16), compiled.VARIANTS[0])


X, Y, SUMS = np.zeros((2, 5), np.int16), np.zeros((3, 5), np.int16), np.zeros((2, 3), np.uint16)


@pytest.mark.parametrize(
    ("left", "right", "sums", "said"),
    [
        (
            X[:, :4],
            Y,
            SUMS,
            r"left is \(2, 4\), right \(3, 5\) and sums \(2, 3\); expected \(a, rows\)",
        ),
        (X, Y, SUMS[:1], r"sums \(1, 3\)"),
        (X, Y, SUMS[:, :2], r"sums \(2, 2\)"),
        (X, Y, SUMS.T, r"sums \(3, 2\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    left: np.ndarray, right: np.ndarray, sums: np.ndarray, said: str
) -> None:
    for variant in compiled.VARIANTS:
        with pytest.raises(ValueError, match=said):
            compiled.add(left, right, sums, variant)


@pytest.mark.parametrize(
    ("left", "right", "sums", "said"),
    [
        (X.astype(np.int32), Y, SUMS, "left has 2 axes and numbers of type 'i'; expected 2 axes"),
        (X.view(np.uint16), Y, SUMS, "left has 2 axes and numbers of type 'H'; .* type 'h'"),
        (X, Y.astype(">i2"), SUMS, "right has 2 axes and numbers of type '>h'"),
        (X, Y[0], SUMS, "right has 1 axes"),
        (X, Y, SUMS.view(np.int16), "sums has 2 axes and numbers of type 'h'; .* type 'H'"),
        (X, Y, SUMS[None], "sums has 3 axes"),
        (X, Y, np.zeros((), np.uint16), "sums has 0 axes"),
        (bytes(20), Y, SUMS, "left has 1 axes and numbers of type 'B'"),
        (None, Y, SUMS, "bytes-like object is required"),
        ([[1]], Y, SUMS, "bytes-like object is required"),
    ],
)
def test_other_types_are_refused(left: object, right: object, sums: object, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        compiled.add(left, right, sums, compiled.VARIANTS[0])


def test_sums_that_cannot_be_written_are_refused() -> None:
    fixed = SUMS.copy()
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        compiled.add(X, Y, fixed, compiled.VARIANTS[0])


@pytest.mark.parametrize("variant", ["", "sse", "numpy"])
def test_other_variants_are_refused(variant: str) -> None:
    with pytest.raises(ValueError, match=f"variant '{variant}' is none of VARIANTS"):
        compiled.add(X, Y, SUMS.copy(), variant)


def test_other_arguments_are_refused() -> None:
    for arguments in ((), (X, Y, SUMS), (X, Y, SUMS, 1), (X, Y, SUMS, "avx2", 1)):
        with pytest.raises(TypeError):
            compiled.add(*arguments)
