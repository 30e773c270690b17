"""char_cnn's "cuda" backend where there is no GPU: how its forward and its backward op hang together.

The kernels themselves: tests/csrc/backward.cpp on the CPU, tests/ops/test_char_cnn.py on a GPU.
"""

import pytest
import torch

from elmo_fast.ops import _dispatch, _native, _triton, char_cnn

pytestmark = [
    pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT)),
    pytest.mark.skipif(not _triton.INTERPRETED, reason=_triton.WHY_NOT or "Triton's kernels are not interpreted here"),
]


@pytest.fixture
def stand_in():
    """The CPU's backward in place of the GPU's: the same contract, less the count, whose rows pass no gradient."""
    seen = []

    def run(grad, features, winners, ids, embedding, weights, count, *options):
        seen.append(count)
        if count is not None:
            grad = grad * (torch.arange(len(grad)) < count)[:, None]
        *options, need_embedding, need_weights = options
        arguments = ids, embedding, weights, [], None, *options, False, need_embedding, need_weights
        return torch.ops.elmo_fast.char_cnn_backward(grad, features, [winners], *arguments)

    library = torch.library.Library("elmo_fast", "IMPL")
    library.impl("char_cnn_cuda_backward", run, "CPU")
    yield seen
    library._destroy()


def run(ids, embedding, weights, biases, count=None, tanh=False):
    """The features of the backend "cuda", by Triton's interpreter."""
    save = torch.is_grad_enabled()
    arguments = ids, embedding, weights, biases, count, tanh, "float32", save, True
    return _dispatch.kernel("char_cnn", "cuda")(*arguments)[0]


def words(characters=9):
    embedding = torch.randn(characters, 4, requires_grad=True)
    weights = [torch.randn(n, 4, k, requires_grad=True) for k, n in ((1, 3), (3, 5))]
    biases = [torch.randn(n, requires_grad=True) for n in (3, 5)]
    return torch.randint(0, 9, (6, 7)), embedding, weights, biases


@pytest.mark.parametrize("count", [None, 4])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_gradients_reach_their_parameters(stand_in, activation, count):
    """Each argument in its place, on the way in and on the way out."""
    ids, embedding, weights, biases = words()
    count = None if count is None else torch.tensor(count)
    parameters = [embedding, *weights, *biases]
    grad = torch.randn(6, 8)
    features = run(ids, embedding, weights, biases, count, activation == "tanh")
    expected = char_cnn(ids, embedding, weights, biases, activation=activation, count=count, backend="reference")
    torch.testing.assert_close(features, expected)
    actual = torch.autograd.grad(features, parameters, grad)
    if count is not None:
        grad[4:] = 0
    for one, other in zip(actual, torch.autograd.grad(expected, parameters, grad), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert stand_in == [count]


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_only_what_is_asked_for_has_a_gradient(stand_in, asked):
    ids, embedding, weights, biases = words()
    groups = [[embedding], weights, biases]
    for i, group in enumerate(groups):
        for parameter in group:
            parameter.requires_grad_(i == asked)
    run(ids, embedding, weights, biases).sum().backward()
    for i, group in enumerate(groups):
        assert all((parameter.grad is not None) == (i == asked) for parameter in group)


def test_a_large_alphabet_and_inference_are_left_to_triton(stand_in):
    """Neither calls for sums over characters."""
    from elmo_fast.ops.char_cnn.kernels import CUDA_CHARACTERS

    run(*words(CUDA_CHARACTERS + 1)).sum().backward()
    with torch.no_grad():
        run(*words())
    assert stand_in == []
    run(*words(CUDA_CHARACTERS)).sum().backward()
    assert stand_in == [None]


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_opcheck(stand_in, needs):
    """The backward op's fake, and that it cannot be differentiated again."""
    ids, embedding, weights, biases = words()
    embedding, weights, biases = embedding.detach(), [w.detach() for w in weights], [b.detach() for b in biases]
    features, (winners,) = torch.ops.elmo_fast.char_cnn(ids, embedding, weights, biases, None, False, "float32", True)
    arguments = (torch.randn(6, 8), features, winners, ids, embedding, weights, None, False, "float32", *needs)
    torch.library.opcheck(torch.ops.elmo_fast.char_cnn_cuda_backward.default, arguments)
