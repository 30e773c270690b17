"""Spreads and verdicts by hand."""

import pytest

from elmo_fast.report.outcome import beyond_the_spread, comparison, error_reduction, spread


def test_a_spread_is_mean_deviation_and_range():
    found = spread([0.90, 0.92, 0.94])
    assert found.mean == pytest.approx(0.92)
    assert found.deviation == pytest.approx(0.02)
    assert (found.low, found.high, found.runs) == (0.90, 0.94, 3)
    assert str(found) == "92.00 ± 2.00"


def test_one_run_has_no_deviation_and_proves_nothing():
    one, other = spread([0.9]), spread([0.1])
    assert str(one) == "90.00"
    assert not beyond_the_spread(one, other)
    assert comparison(one, other) == 0


@pytest.mark.parametrize(("worse", "verdict"), [([0.8, 0.89], 1), ([0.8, 0.905], 0), ([0.97, 0.98], -1)])
def test_better_means_that_no_seed_of_the_worse_reaches_the_better(worse, verdict):
    assert comparison(spread([0.90, 0.95]), spread(worse)) == verdict


def test_the_share_of_errors_that_is_gone():
    assert error_reduction(spread([0.95]), spread([0.90])) == pytest.approx(0.5)
    assert error_reduction(spread([1.0]), spread([1.0])) == 0.0
