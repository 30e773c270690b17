"""negative_sampling in Triton, beyond what every backend shares: addresses, float16's scale, no host sync."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.ops import _triton, negative_sampling
from tests.ops.output_layer import SOME_IDS, alone, check_no_word_leaves_the_table, losses_and_gradients
from tests.ops.test_negative_sampling import problem

if _triton.WHY_NOT is not None:
    pytest.skip(_triton.WHY_NOT, allow_module_level=True)

from elmo_fast.ops.negative_sampling import triton
from elmo_fast.ops.negative_sampling.op import NegativeSamplingArguments


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of the NaNs that are wanted
@settings(max_examples=12, deadline=None)
@given(targets=SOME_IDS, samples=SOME_IDS, noise=st.booleans())
def test_no_word_leaves_the_table(targets, samples, noise):
    def call(*given):
        law = given[3] if noise else None
        return triton.run(NegativeSamplingArguments(*given, law, 5.0, True, 2**20, "float32"))

    check_no_word_leaves_the_table(call, targets, samples)


@alone
@pytest.mark.parametrize("negatives", [1e-4, 1e4])
def test_float16_holds_slopes_of_any_share(backend, negatives):
    """K / S far from 1 does not leave float16's range: errors stay near its 2^-11."""
    given = problem(30, 16, 200, dtype=torch.float32) | {"negatives": negatives}
    truth = losses_and_gradients(negative_sampling, given, torch.float64)["weight"]
    options = {"precision": "float16", "backend": backend}
    ours = losses_and_gradients(negative_sampling, given, torch.float32, **options)["weight"]
    others = given["samples"][~torch.isin(given["samples"], given["targets"])]
    assert (ours[others] - truth[others]).norm() / truth[others].norm() < 2e-3
