"""Under torch.autocast every op with products takes autocast's dtype as its precision; tensors out are float32."""

import pytest
import torch

from elmo_fast import ops
from elmo_fast.ops import _dispatch, _native

native = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))


def char_cnn(precision, backend):
    weights, biases = [torch.randn(4, 3, 2)], [torch.randn(4)]
    ids = torch.arange(15).reshape(3, 5) % 7
    return ops.char_cnn(ids, torch.randn(7, 3), weights, biases, precision=precision, backend=backend)


def highway(precision, backend):
    x = torch.randn(3, 8).to(torch.bfloat16)
    if precision != "float32":
        x = x.float()
    return ops.highway(x, [torch.randn(16, 8)], [torch.randn(16)], precision=precision, backend=backend)


def sampled_softmax(precision, backend):
    hidden = torch.randn(3, 8).to(torch.bfloat16)
    if precision != "float32":
        hidden = hidden.float()
    targets, samples = torch.tensor([1, 7, 2]), torch.tensor([0, 2, 5])
    table = torch.randn(9, 8), torch.randn(9)
    return ops.sampled_softmax(hidden, targets, *table, samples, 4, precision=precision, backend=backend)


def full_softmax(precision, backend):
    hidden = torch.randn(3, 8).to(torch.bfloat16)
    if precision != "float32":
        hidden = hidden.float()
    table = torch.randn(9, 8), torch.randn(9)
    return ops.full_softmax(hidden, torch.tensor([1, 7, 2]), *table, precision=precision, backend=backend)


def negative_sampling(precision, backend):
    hidden = torch.randn(3, 8).to(torch.bfloat16)
    if precision != "float32":
        hidden = hidden.float()
    table, words = (torch.randn(9, 8), torch.randn(9)), (torch.tensor([1, 7, 2]), torch.tensor([0, 2, 5]))
    return ops.negative_sampling(hidden, words[0], *table, words[1], precision=precision, backend=backend)


def hierarchical_softmax(precision, backend):
    hidden = torch.randn(3, 8).to(torch.bfloat16)
    if precision != "float32":
        hidden = hidden.float()
    tree, targets = ops.huffman_tree(torch.arange(9)), torch.tensor([1, 7, 2])
    table = torch.randn(8, 8), torch.randn(8)
    return ops.hierarchical_softmax(hidden, targets, *table, tree, precision=precision, backend=backend)


@pytest.mark.parametrize("backend", [pytest.param("native", marks=native), "reference"])
@pytest.mark.parametrize(
    "op", [char_cnn, highway, sampled_softmax, full_softmax, negative_sampling, hierarchical_softmax]
)
def test_autocast_is_the_precision(op, backend):
    """16-bit inputs of other layers included; without autocast the same call refuses them or computes otherwise."""
    if backend not in _dispatch.REGISTRY[op.__name__]:
        pytest.skip(f"{op.__name__} has no backend {backend}")
    torch.manual_seed(1)
    wanted = op("bfloat16", backend)
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = op("float32", backend)
    assert ours.dtype == torch.float32
    assert torch.equal(ours, wanted)
