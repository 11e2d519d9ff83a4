import math

from hypothesis import given
from hypothesis import strategies as st

from django_lockstep.lab.simulator.histogram import Histogram

VALUES = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 10**13)), min_size=1, max_size=200)


def histogram(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


@given(VALUES, st.sampled_from([0.1, 1, 50, 95, 99, 99.9, 100]))
def test_percentiles_are_close_to_the_exact_ones(values: list[int], percent: float) -> None:
    exact = sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]
    estimate = histogram(values).percentile(percent)
    assert estimate is not None
    assert abs(estimate - exact) <= exact * 0.008


@given(VALUES)
def test_largest_and_total_are_exact(values: list[int]) -> None:
    assert histogram(values).largest == max(values)
    assert histogram(values).total == len(values)


@given(VALUES, VALUES)
def test_merging_is_recording_all(left: list[int], right: list[int]) -> None:
    assert Histogram.merge([histogram(left), histogram(right)]) == histogram(left + right)


def test_small_values_are_exact() -> None:
    assert [histogram([value]).percentile(50) for value in range(128)] == list(range(128))


def test_no_values_no_percentile() -> None:
    assert Histogram().percentile(50) is None


def test_memory_does_not_grow_with_the_number_of_values() -> None:
    made = histogram(list(range(1, 300_000, 7)))
    assert len(made.counts) <= 64 * (300_000).bit_length()
