"""Numbers as multiples of a power of ten, written and read without a double in between."""

import pytest

from mechanisms.written import first_multiple, last_multiple, write_multiple


@pytest.mark.parametrize(
    ("multiple", "places", "text"),
    [(0, 2, "0.00"), (1, 2, "0.01"), (-1, 2, "-0.01"), (-250, 1, "-25.0"), (-3, 0, "-3")],
)
def test_multiple_is_written_with_its_sign_and_all_decimals(
    multiple: int, places: int, text: str
) -> None:
    assert write_multiple(multiple, places) == text


def test_multiples_of_a_bound_lie_inside_it() -> None:
    # 0.3 is below its shortest decimal; as that, it is a multiple itself.
    assert (first_multiple(0.3, 1), last_multiple(0.3, 1)) == (3, 3)
    assert (first_multiple(0.25, 1), last_multiple(0.25, 1)) == (3, 2)
    assert (first_multiple(-0.25, 1), last_multiple(-0.25, 1)) == (-2, -3)
