"""What is the value that a share of the values is not above?"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.bind.latency import percentile

AGES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300).map(sorted)
SHARES = st.sampled_from(["0.001", "0.01", "0.05", "0.29", "0.5", "0.57", "0.9", "0.95", "0.99", "0.999", "1"])


@given(AGES, SHARES)
def test_it_is_the_smallest_value_that_the_share_of_the_values_is_not_above(ages: list[float], text: str) -> None:
    share, found = Fraction(text), percentile(ages, float(text))
    assert found in ages
    assert sum(age <= found for age in ages) >= share * len(ages)
    below = [age for age in ages if age < found]
    assert not below or sum(age <= below[-1] for age in ages) < share * len(ages)


@pytest.mark.parametrize(
    ("count", "share", "wanted"),
    [
        (1, 0.5, 1),
        (1, 0.99, 1),
        (2, 0.5, 1),
        (3, 0.5, 2),
        (10, 0.0, 1),
        (10, 1.0, 10),
        (100, 0.29, 29),
        (100, 0.57, 57),
        (100, 0.99, 99),
        (101, 0.99, 100),
        (1000, 0.999, 999),
    ],
)
def test_of_the_numbers_from_one_it_is_the_number_itself(count: int, share: float, wanted: int) -> None:
    assert percentile([float(number) for number in range(1, count + 1)], share) == wanted
