"""The discrete Gaussian as tests/vectors/discrete-gaussian.json has it, for the tests of every sampler of it.

A good vector is a ``sigma`` (a fraction), the ``probabilities`` of |z| = 0, 1, ... to 30 digits until the rest is below
10^-25, and what each rejection sampler makes of the bytes of ``stream``: SHAKE-256(seed || 0), SHAKE-256(seed || 1),
..., 65,536 bytes each, the counter in 8 bytes, little endian. A bad vector names its sampler, the step and the class of
the error.
``python -m tests.gaussian_vectors`` writes the file anew, after a change in how a sampler uses its bytes.

``p_value`` is that of a chi-square test against the probabilities, magnitudes pooled to at least 20 expected samples,
and of a binomial one of the signs: with 20,000 samples and a false-alarm rate of 1e-5 a deviation wrong by 5 % is
caught.
"""

import hashlib
import json
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

PATH = Path(__file__).parent / "vectors" / "discrete-gaussian.json"
GOOD = {"sigma", "probabilities", "seed", "samples"}
BAD = {"name", "sampler", "argument", "step", "error"}
SAMPLERS = {"mechanisms", "secagg"}
ALARM = 1e-5
_BLOCK_BYTES = 1 << 16


def cases(kind: str) -> list[dict[str, Any]]:
    """The ``good`` or the ``bad`` vectors. Raises AssertionError for a key that nobody knows."""
    found: dict[str, list[dict[str, Any]]] = json.loads(PATH.read_text(encoding="utf-8"))
    assert found.keys() == {"good", "bad"}
    for case in found["good"]:
        assert case.keys() == GOOD
        assert case["samples"].keys() == SAMPLERS
    for case in found["bad"]:
        assert case.keys() == BAD
        assert case["sampler"] in SAMPLERS
    return found[kind]


def bad_cases(sampler: str) -> list[dict[str, Any]]:
    """The bad vectors of one sampler; all of them end in the step ``sample``."""
    own = [case for case in cases("bad") if case["sampler"] == sampler]
    assert {case["step"] for case in own} == {"sample"}
    return own


def by_sigma(case: dict[str, Any]) -> str:
    return f"sigma {case['sigma']}"


def by_name(case: dict[str, Any]) -> str:
    return str(case["name"])


def stream(seed: str) -> Callable[[int], bytes]:
    """The bytes of a vector's seed, one after the other."""
    rest, counter = b"", 0

    def random_bytes(count: int) -> bytes:
        nonlocal rest, counter
        while len(rest) < count:
            block = seed.encode() + counter.to_bytes(8, "little")
            rest += hashlib.shake_256(block).digest(_BLOCK_BYTES)
            counter += 1
        data, rest = rest[:count], rest[count:]
        return data

    return random_bytes


def probabilities(case: dict[str, Any]) -> list[Fraction]:
    """Those of |z| = 0, 1, ..., as the file has them."""
    return [Fraction(text) for text in case["probabilities"]]


def p_value(samples: np.ndarray, exact: list[Fraction]) -> float:
    """Of whole numbers against the probabilities of their magnitudes, and against signs that are even."""
    expected = np.array([float(p) for p in exact]) * samples.size
    # A cell ends where another share of the mass has come together; the last one may be short of it.
    cell = np.unique(np.cumsum(expected) // max(40, samples.size / 60), return_inverse=True)[1]
    cell[cell == cell[-1]] -= int(expected[cell == cell[-1]].sum() < 20)
    seen = np.bincount(cell[np.minimum(np.abs(samples), len(exact) - 1)], minlength=cell[-1] + 1)
    wanted = np.bincount(cell, weights=expected)
    shape = stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue
    signs = stats.binomtest(int((samples > 0).sum()), int((samples != 0).sum())).pvalue
    return float(min(1.0, 2 * min(shape, signs)))


def exact_probabilities(sigma: Fraction) -> list[str]:
    """exp(-m^2 / 2 sigma^2), twice that above 0, over their sum: 30 digits of 60."""
    with localcontext() as context:
        context.prec = 60
        scale = -Decimal(sigma.denominator**2) / Decimal(2 * sigma.numerator**2)
        weights = [Decimal(1)]
        while weights[-1] > Decimal(10) ** -50:
            weights.append(2 * (scale * len(weights) ** 2).exp())
        total = sum(weights)
        found, rest = list[str](), Decimal(1)
        for weight in weights:
            if rest < Decimal(10) ** -25:
                break
            found.append(f"{weight / total:.30f}")
            rest -= weight / total
    return found


def write() -> None:
    """Writes the vectors anew."""
    from mechanisms.exact_noise import discrete_gaussian_noise
    from secagg.noise import discrete_gaussian

    good = []
    for sigma in (Fraction(1, 2), Fraction(3, 2), Fraction(81, 4)):
        seed = f"discrete Gaussian of {sigma}"
        by_bytes = discrete_gaussian_noise(stream(seed), float(sigma), 16).tolist()
        by_variance = discrete_gaussian(sigma**2, 16, random_bytes=stream(seed)).tolist()
        good.append(
            {
                "sigma": str(sigma),
                "probabilities": exact_probabilities(sigma),
                "seed": seed,
                "samples": {"mechanisms": by_bytes, "secagg": by_variance},
            }
        )
    rows = [
        ("no deviation", "mechanisms", "0", "ValueError"),
        ("a negative deviation", "mechanisms", "-3/2", "ValueError"),
        ("a deviation of 2^20", "mechanisms", str(1 << 20), "ValueError"),
        ("no variance", "secagg", "0", "ParameterError"),
        ("a negative variance", "secagg", "-9/4", "ParameterError"),
        ("a variance beyond 2^80", "secagg", str((1 << 80) + 1), "ParameterError"),
    ]
    bad = [
        {"name": name, "sampler": who, "argument": argument, "step": "sample", "error": error}
        for name, who, argument, error in rows
    ]
    text = json.dumps({"good": good, "bad": bad}, indent=1)
    PATH.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
