"""Under torch.autocast every op with products takes autocast's dtype as its precision; tensors out are float32."""

import pytest
import torch

from elmo_fast.ops.cases import CASES, Draw
from tests.backends import needs

CPU = torch.device("cpu")


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("op", [op for op, (_, multiplies) in CASES.items() if multiplies])
def test_autocast_is_the_precision(op, backend):
    """16-bit inputs of other layers included; without autocast the same call refuses them or computes otherwise."""
    needs(op, backend, "bfloat16")
    case = CASES[op][0](Draw())[0]
    made = {name: tensor.bfloat16() for name, tensor in case.tensors.items() if name in ("x", "hidden")}
    rounded = {**case.tensors, **{name: tensor.float() for name, tensor in made.items()}}
    wanted = case.call(rounded, {"precision": "bfloat16", "backend": backend})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = case.call({**case.tensors, **made}, {"precision": "float32", "backend": backend})
    for name, tensor in found.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, wanted[name]), name
