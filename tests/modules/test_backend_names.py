"""One list of backends and precisions serves ops, modules and configurations."""

import pytest
import torch

from elmo_fast import ScalarMix
from elmo_fast.modules.projected_lstm import ProjectedLSTM
from elmo_fast.op_choices import BACKEND_CHOICES
from elmo_fast.ops import _dispatch
from tests.support.backends import on_device_of


def lstm(backend):
    torch.manual_seed(0)
    module = ProjectedLSTM(4, 4, 6, True, 0.0, 3.0, 3.0, backend=backend)
    return module(torch.ones(2, 3, 4), [3, 2])[0]


def mix(backend):
    return ScalarMix(2, backend=backend)([torch.ones(2, 3, 4), torch.zeros(2, 3, 4)])


@pytest.mark.parametrize(("op", "module"), [("projected_lstm", lstm), ("scalar_mix", mix)])
@pytest.mark.parametrize("backend", BACKEND_CHOICES)
def test_a_module_takes_every_name_and_auto_where_its_op_lacks_the_backend(op, module, backend):
    """Instead of failing at the first batch."""
    if backend in _dispatch.backends_of(op) and backend not in ("native", "reference"):
        pytest.skip("a GPU's")
    with on_device_of(backend):
        torch.testing.assert_close(module(backend), module("auto"))
