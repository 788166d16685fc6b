"""The compiled loops over gates give what those of ``kernels`` give, which are compared with their definitions."""

import subprocess
import sys

import numpy as np
import pytest

from protocols import verify_bits
from protocols.mersenne import F61
from protocols.records import Record, Side
from protocols.ring import BITS
from protocols.shares import Origin, Share
from protocols.sign_tables import APART, DIGIT_BITS, DIGITS, drawn_digits
from protocols.verify_bits import Gates
from tests.protocols.test_sign_tables import stream

_gates = pytest.importorskip("protocols._gates", reason="nothing was compiled here")
pytestmark = pytest.mark.skipif(not _gates.VARIANTS, reason="compiled for other processors")

LARGEST = sum(((1 << DIGIT_BITS) - 1) << APART * i for i in range(DIGITS))
# Around a tile of 2,048 words, a group of 1,024, a column of 64; and more groups than 16 bits have counts for.
SIZES = (2049, 2113, 3072, 4096 + 63, 10_000, 255 * 1024 + 1)


def placed(x: np.ndarray) -> np.ndarray:
    """The same words at an odd address, as a message may have them."""
    memory = np.zeros(x.nbytes + 1, np.uint8)
    found = np.ndarray(x.shape, x.dtype, memory, offset=1)
    found[...] = x
    return found


def share(words: int, seed: int, kind: str) -> Share:
    if kind == "random":
        drawn = np.random.default_rng(seed).integers(0, 1 << 64, (2, words), np.uint64)
    else:
        drawn = np.full((2, words), 0 if kind == "zeros" else (1 << 64) - 1, np.uint64)
    return Share(BITS, 0, placed(drawn[0]), drawn[1])


def records(words: int, kind: str = "random") -> list[Record]:
    """Records of all sizes, one of no words; every other one has added terms."""
    cuts, found = sorted({0, 1, words // 7, words // 7 + 70, words // 2, words}), []
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, words], strict=True)):
        x, y, mask, z, more = (share(stop - start, 9 * number + i, kind) for i in range(5))
        origins = (Origin(x, y), Origin(more, None)) if number % 2 else (Origin(x, y),)
        found.append(Record(origins, mask, z))
    return found


def everything(gates: Gates, alpha: np.ndarray, beta: np.ndarray) -> list[np.ndarray]:
    weights = F61.uniform(lambda n: stream().read(8 * n).view(np.uint64).reshape(n, 1), 16)
    return [
        gates.gram(),
        gates.second_gram(alpha, beta) % F61.modulus,
        *(gates.fold_left(side, alpha, weights) for side in Side),
        *(gates.fold_right(side, beta, weights) for side in Side),
    ]


def check(gates: Gates, alpha: np.ndarray, beta: np.ndarray, patch: pytest.MonkeyPatch) -> None:
    compiled = {}
    for variant in _gates.VARIANTS:
        patch.setattr(verify_bits, "VARIANTS", (variant,))
        compiled[variant] = everything(gates, alpha, beta)
    patch.setattr(verify_bits, "VARIANTS", ())
    expected = everything(gates, alpha, beta)
    for variant, found in compiled.items():
        for number, (x, y) in enumerate(zip(found, expected, strict=True)):
            assert x.shape == y.shape
            assert np.array_equal(x, y), (variant, number)


def test_the_compiled_loops_are_used_where_they_run() -> None:
    assert verify_bits.VARIANTS == _gates.VARIANTS
    assert Gates(records(2049))._compiled
    assert not Gates(records(2048))._compiled


@pytest.mark.parametrize("words", SIZES)
def test_compiled_loops_are_those_of_the_kernels(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = stream()
    alpha, beta = (drawn_digits(drawn, F61, 64) for _ in range(2))
    check(Gates(records(words)), alpha, beta, monkeypatch)


@pytest.mark.parametrize("variant", _gates.VARIANTS)
def test_counts_are_added_up_before_they_are_full(variant: str) -> None:
    """Of 257 groups in which every gate is a minus, 256 in each number of 16 bits."""
    zero = np.zeros(257 * 1024, np.uint64)
    minus = np.zeros((64, 64), np.int64)
    _gates.count([(zero, zero, zero, ~zero, None)], [(zero, zero, zero)], zero.size, minus, variant)
    assert np.all(minus == zero.size)


@pytest.mark.parametrize("kind", ["zeros", "ones"])
@pytest.mark.parametrize("factor", [1, LARGEST])
def test_the_largest_sums_are_exact(
    kind: str, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All signs alike, factors the largest, their sum with one odd digit: of more products than one sum may have."""
    factors = np.full(64, factor, object)
    factors[5] -= factor & 1
    check(Gates(records(4 * 1500, kind)), factors, factors, monkeypatch)


def test_a_gate_with_an_error_is_a_minus_on_the_diagonal() -> None:
    """z = x y of zeros is right; each changed bit of z costs the trace 4, the last one too."""
    words = 5000
    zero = Share(BITS, 0, *np.zeros((2, words), np.uint64))
    wrong = np.zeros(words, np.uint64)
    wrong[[0, 1, 2047, 2048, words - 1]] = 1, 1 << 63, 5, 1, 1 << 63
    record = Record((Origin(zero, zero),), zero, Share(BITS, 0, wrong, zero.next))
    gates = Gates([record])
    assert gates._compiled
    assert int(np.trace(gates.gram())) == 2 * gates.count - 4 * 6


@pytest.mark.parametrize("variant", _gates.VARIANTS)
def test_arrays_that_do_not_fit_are_refused(variant: str) -> None:
    x, found = np.zeros(8, np.uint64), np.zeros((64, 64), np.int64)
    part = (x, x, x, x, None)
    with pytest.raises(ValueError, match="has 56 bytes; expected whole words, as many as"):
        _gates.count([part], [(x, x[:7], x)], 8, found, variant)
    with pytest.raises(ValueError, match="has 7 bytes"):
        _gates.count([(x.view(np.uint8)[:7], x, x, x, None)], [], 8, found, variant)
    with pytest.raises(ValueError, match="not C-contiguous"):
        _gates.count([(x[::2], x, x, x, None)], [], 8, found, variant)
    with pytest.raises(IndexError):
        _gates.count([(x, x, x)], [], 8, found, variant)
    with pytest.raises(SystemError):
        _gates.count((part,), [], 8, found, variant)
    with pytest.raises(ValueError, match=r"found has 8 bytes; expected 4096 words"):
        _gates.count([part], [part[:3]], 8, found[0, :1], variant)
    with pytest.raises(ValueError, match="variant sse does not run here"):
        _gates.count([part], [part[:3]], 8, found, "sse")
    table, weights = np.zeros((8, 256), np.uint64), np.zeros(16, np.uint64)
    with pytest.raises(ValueError, match=r"right_tables has 14336 bytes; expected 2048 words"):
        _gates.multiply([], [], 8, table, table[:7], np.zeros((16, 16), np.uint64), variant)
    for words in (-1, 7, 9):
        with pytest.raises(ValueError, match=f"found has 64 bytes; expected {words} words"):
            _gates.fold([part], True, words, table, weights, np.zeros(8, np.uint64))
    for _ in range(3):
        before = sys.getrefcount(x)
        _gates.fold([part], True, 8, table, weights, np.ones(8, np.uint64))
        assert sys.getrefcount(x) == before


def test_where_nothing_is_compiled_the_kernels_prove() -> None:
    code = (
        "import sys; sys.modules['protocols._gates'] = None\n"
        "from protocols import verify_bits; print(verify_bits.VARIANTS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "()\n"
