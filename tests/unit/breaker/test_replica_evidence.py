"""What the replica breaker rests on: samples of a window, the comparison of medians, and the control by signature."""

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.breaker.culprit import Culprits
from gateway.breaker.outlier import OutlierPolicy, Samples, compare

POLICY = OutlierPolicy(factor=3.0, deviations=5.0, min_replicas=3)


@given(values=st.lists(st.floats(0, 100), min_size=1, max_size=255))
def test_the_median_of_few_samples_is_exact(values: list[float]) -> None:
    samples = Samples()
    for value in values:
        samples.add(value)

    assert (len(samples), samples.median()) == (len(values), median(values))


def test_many_samples_are_thinned_out_evenly() -> None:
    samples = Samples()
    for value in range(100_000):  # the last as well as the first
        samples.add(value)

    assert len(samples) == 100_000
    assert len(samples._kept) <= 256
    assert samples.median() == pytest.approx(50_000, rel=0.02)

    samples.clear()
    samples.add(7.0)
    assert (len(samples), samples.median()) == (1, 7.0)


@pytest.mark.parametrize(
    ("medians", "outliers"),
    [
        ([1, 1, 4], [2]),
        ([1, 1, 3], []),  # three times is not more than three times
        ([0.1, 0.1, 0.4], []),  # below the floor
        ([1, 4], []),  # fewer than are needed
        ([], []),
        ([0, 0, 0], []),
        ([0, 0, 2], [2]),
        ([4, 1, 4, 1, 1, 1, 1], [0, 2]),  # two of seven, each beside the others
        ([4, 4, 1], []),  # most are slow: the quick one is the odd one
        ([1, 2, 3, 4, 9], []),  # more than three times, but they differ widely among themselves
        ([2.5, 2.6, 2.4, 2.5, 13], [4]),
    ],
)
def test_an_outlier_lies_far_from_the_others_by_every_measure(medians: list[float], outliers: list[int]) -> None:
    compared = compare({f"r{at}": value for at, value in enumerate(medians)}, POLICY, floor=0.5)

    assert [name for name, seen in compared.items() if seen.is_outlier] == [f"r{at}" for at in outliers]


@given(medians=st.lists(st.floats(0.001, 1e6), min_size=3, max_size=9))
def test_never_are_half_of_the_replicas_outliers(medians: list[float]) -> None:
    compared = compare({str(at): value for at, value in enumerate(medians)}, POLICY, floor=0.0)

    assert sum(seen.is_outlier for seen in compared.values()) <= len(medians) / 2


def test_a_signature_is_a_culprit_once_it_fails_on_another_trusted_replica_too() -> None:
    culprits = Culprits(window_s=20)
    culprits.faulted("s", "a", 0.0)
    assert not culprits.is_culprit("s", "a", 0.0)
    assert culprits.is_culprit("s", "b", 0.0)

    culprits.faulted("s", "b", 5.0)
    assert culprits.is_culprit("s", "a", 5.0)
    assert not culprits.is_culprit("other", "a", 5.0)
    assert not culprits.is_culprit("s", "a", 25.1)  # of long ago

    culprits.distrusted("b")
    assert not culprits.is_culprit("s", "a", 5.0)

    culprits.faulted("s", "b", 6.0)
    culprits.answered("s")
    assert not culprits.is_culprit("s", "a", 6.0)


def test_what_is_remembered_of_signatures_is_bounded() -> None:
    culprits = Culprits(window_s=20, capacity=100)
    for at in range(1000):
        culprits.faulted(f"s{at}", "a", float(at))
    assert len(culprits) == 100

    culprits.faulted("", "a", 1000.0)  # of nobody
    assert len(culprits) == 100

    culprits.forget_old(1010.0)
    assert len(culprits) == 10
