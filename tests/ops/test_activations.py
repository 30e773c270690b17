"""The gates' sigmoid and tanh: within 3 units in the last place of the true value, saturated, NaN stays."""

import pytest
import torch

from elmo_fast.ops import _native

pytestmark = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))


def activations(x):
    """sigmoid(x) and tanh(x) as the LSTM saves its gates; its products are by 1 and by nothing."""
    one, none, nothing = torch.ones(4, 1), torch.zeros(4, 1), torch.zeros(4)
    rows = torch.zeros(len(x), dtype=torch.int64) + 1
    gates = torch.ops.elmo_fast.projected_lstm(
        [x.view(-1, 1, 1)], [one], [none], [nothing], [], rows, None, None, [], [False], 0, 0, False, "float32", True
    )[3][0]
    places = gates.view(len(x), 4, -1)[:, :, 0]  # input, forget, cell, output
    return places[:, 1], places[:, 2]


def errors_in_ulp(actual, truth):
    one = truth.float()
    ulp = (torch.nextafter(one.abs(), torch.tensor(float("inf"))) - one.abs()).double()
    return ((actual.double() - truth) / ulp).abs()


def near_and_tiny():
    tiny = 10 ** torch.linspace(-30, 0, 10_001)
    return torch.cat([torch.linspace(-30, 30, 400_001), torch.linspace(-1, 1, 200_001), tiny])


def test_both_are_within_three_units_in_the_last_place():
    x = near_and_tiny()
    for actual, exactly in zip(activations(x), (torch.sigmoid, torch.tanh), strict=True):
        assert errors_in_ulp(actual, exactly(x.double())).max() <= 3


def test_far_values_saturate_and_nan_stays():
    x = torch.tensor([-3e38, -200.0, -90.0, 90.0, 200.0, 3e38, float("-inf"), float("inf"), float("nan"), 0.0, -0.0])
    sigmoid, tanh = activations(x)
    torch.testing.assert_close(sigmoid, torch.sigmoid(x), rtol=2e-7, atol=1e-34, equal_nan=True)
    torch.testing.assert_close(tanh, torch.tanh(x), rtol=2e-7, atol=0, equal_nan=True)
