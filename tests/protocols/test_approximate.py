"""Public tables are the same integers on every machine: pinned, and independent of the processor's float functions."""

import hashlib
import json
import math
import os
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import pytest

from protocols import box_muller, gumbel
from protocols.approximate import cosine, interpolate, sine, to_units

PINNED = {
    "trigonometric": "2382cf231bcca25eaa1acc11c25a62cdc4acf5c38fc9e396db53d0b3a92e12da",
    "gumbel": "47c415aa08845b39f897e3e974adb04505c66e50e2a0ff768674adaca0b31d05",
}
SHOW = "import json; from tests.protocols.test_approximate import digests; print(json.dumps(digests()))"


def digests() -> dict[str, str]:
    noise = gumbel.table()
    tables = {
        "trigonometric": (box_muller.radius_table(), box_muller.octant_polynomials()),
        "gumbel": (
            noise.lowest,
            noise.outcomes,
            noise.thresholds,
            noise.first,
            noise.second,
            noise.tail,
        ),
    }
    return {
        name: hashlib.sha256(json.dumps(table).encode()).hexdigest()
        for name, table in tables.items()
    }


def test_public_tables_are_pinned() -> None:
    assert digests() == PINNED


def test_public_tables_do_not_depend_on_the_processors_features() -> None:
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512_SKX AVX2 FMA3"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SHOW],
        env=environment,
        capture_output=True,
        check=True,
    )
    assert json.loads(run.stdout) == PINNED


@pytest.mark.parametrize("x", [0.0, 0.5, 1.0, 3.1, -2.0])
def test_cosine_and_sine_match_math(x: float) -> None:
    assert math.isclose(cosine(Decimal(x)), math.cos(x), abs_tol=1e-15)
    assert math.isclose(sine(Decimal(x)), math.sin(x), abs_tol=1e-15)


def test_interpolate_recovers_a_polynomial() -> None:
    found = interpolate(lambda x: 3 - 2 * x + x**3, Fraction(-1), Fraction(2), 4)
    assert [to_units(c, 40) for c in found] == [3 << 40, -(2 << 40), 0, 1 << 40, 0]
