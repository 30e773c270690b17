"""Every tensor that an op makes by itself is made on the device of its arguments.

The tests of a GPU backend make the GPU the default device, which would hide a factory without `device=`. Here the
default is the meta device, on which nothing can be computed: such a tensor shows at once, on the CPU too.
"""

import pytest
import torch

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.static import cooccurrences as counting
from elmo_fast.static import glove as steps
from elmo_fast.static import vector_text as lines
from tests.backends import backends, device_of


def noise(device, *shape):
    return torch.randn(*shape, device=device, requires_grad=True)


def char_cnn(device, **options):
    ids = torch.randint(0, 9, (5, 7), device=device)
    arguments = (
        noise(device, 9, 4),
        [noise(device, 3, 4, 1), noise(device, 5, 4, 3)],
        [noise(device, 3), noise(device, 5)],
    )
    return lambda: ops.char_cnn(ids, *arguments, **options)


def highway(device, **options):
    layers = [noise(device, 12, 6)], [noise(device, 12)]
    arguments = noise(device, 5, 6), *layers, noise(device, 4, 6), noise(device, 4)
    return lambda: ops.highway(*arguments, **options)


def projected_lstm(device, **options):
    sizes = (24, 4), (24, 4), (24,), (4, 6)
    weights = [ops.LSTMWeights(*(noise(device, *size) for size in sizes)) for _ in range(2)]
    x, lengths = noise(device, 3, 4, 4), torch.tensor([4, 0, 2], device=device)
    return lambda: ops.projected_lstm([x, x], weights, lengths, residual=True, **options)[0]


def scalar_mix(device, **options):
    layers, scalars, gammas = [noise(device, 3, 4, 5) for _ in range(3)], noise(device, 2, 3), noise(device, 2)
    return lambda: ops.scalar_mix(layers, scalars, gammas, layer_norm=True, **options)


def sampled_softmax(device, **options):
    targets, samples = torch.tensor([1, 7, 2], device=device), torch.tensor([0, 2, 5], device=device)
    tries = torch.tensor(4, device=device)
    hidden, weight, bias = noise(device, 3, 4), noise(device, 9, 4), noise(device, 9)
    return lambda: ops.sampled_softmax(hidden, targets, weight, bias, samples, tries, **options)


def full_softmax(device, **options):
    targets = torch.tensor([1, 7, 2], device=device)
    hidden, weight, bias = noise(device, 3, 4), noise(device, 9, 4), noise(device, 9)
    return lambda: ops.full_softmax(hidden, targets, weight, bias, **options)


def negative_sampling(device, **options):
    targets, samples = torch.tensor([1, 7, 2], device=device), torch.tensor([0, 2, 2, 5], device=device)
    hidden, weight, bias = noise(device, 3, 4), noise(device, 9, 4), noise(device, 9)
    law = torch.zeros(9, device=device)
    return lambda: ops.negative_sampling(hidden, targets, weight, bias, samples, log_noise=law, **options)


def hierarchical_softmax(device, **options):
    tree = ops.huffman_tree(torch.tensor([9, 4, 4, 2, 1])).to(device)
    hidden, weight, bias = noise(device, 3, 4), noise(device, 4, 4), noise(device, 4)
    targets = torch.tensor([1, 4, 0], device=device)
    return lambda: ops.hierarchical_softmax(hidden, targets, weight, bias, tree, **options)


def alias_sample(device, **options):
    weights = torch.tensor([3.0, 1.0, 0.5], device=device)
    return lambda: ops.alias_sample(5, ops.alias_table(weights, **options), seed=0, **options).float()


def unique_rows(device, **options):
    ids = torch.tensor([[1, 2], [0, 2], [1, 2]], device=device)
    find = getattr(
        ops, "padded_unique_rows", ops.unique_rows
    )  # the one whose shapes depend on no value, if it is there
    return lambda: find(ids, **options)[1].float()


def gather_runs(device, **options):
    values, runs = torch.arange(9, dtype=torch.int32, device=device), torch.tensor([[0, 7], [2, 3]], device="cpu")
    return lambda: ops.gather_runs([values[:5], values[5:]], runs[0], runs[1], 1, **options).float()


def vector_text(device, **options):
    text = torch.tensor(list(b"a 1 2\nb 3 4\n"), dtype=torch.uint8, device="cpu")

    def call():
        matrix, words = lines.read_vector_text(text, 2, **options)
        written = lines.write_vector_text(text[words[:, 0]], torch.tensor([1, 2], device="cpu"), matrix, **options)
        assert written.device == text.device
        return matrix

    return call


def cooccurrences(device, **options):
    text, words = (
        torch.tensor([0, 1, 2], dtype=torch.int32, device="cpu"),
        torch.arange(3, dtype=torch.int32, device="cpu"),
    )
    return lambda: counting.cooccurrences([text], words, 3, **options).values


def glove(device, **options):
    """In place too."""
    places = torch.tensor([0, 2, 1], dtype=torch.int32, device=device)
    shapes = (3, 4), (3, 4), (3,), (3,)
    weights, squares = (steps.GloveWeights(*(torch.rand(*shape, device=device) + 1 for shape in shapes)) for _ in "wa")

    def call():
        steps.glove_(places, places.flip(0), weights.word_biases + 1, weights, squares, **options)
        return weights.words

    return call


def adagrad(device, **options):
    """In place: the weights are the result."""
    weight, sums, gradient = (torch.rand(5, 3, device=device) + 1 for _ in range(3))
    ids = torch.tensor([4, 0, 4], device=device)

    def call():
        ops.adagrad_([weight], [sums], [gradient], 0.1, ops.clip_scale(ops.square_norm([gradient]), 1.0), **options)
        ops.adagrad_rows_(weight, sums, ids, gradient[:3], 0.1, **options)
        return weight

    return call


WITH_TENSORS = [
    char_cnn, highway, projected_lstm, scalar_mix, sampled_softmax, full_softmax, unique_rows, gather_runs, adagrad,
    negative_sampling, hierarchical_softmax, alias_sample,
    vector_text, cooccurrences, glove,
]  # fmt: skip
CASES = [
    pytest.param(case, *each.values, marks=each.marks, id=f"{case.__name__}-{each.values[0]}")
    for case in WITH_TENSORS
    if case.__name__ in ops.op_names()
    for each in backends(case.__name__, reference=True)
]


@pytest.mark.parametrize(("case", "backend"), CASES)
def test_an_op_needs_no_default_device(case, backend):
    """Forward and backward under a default device that is of no use."""
    device = device_of(backend)
    call = case(device, backend=backend)
    with torch.device("meta"):
        found = call()
        loss = found.sum()
        if loss.requires_grad:
            loss.backward()
    assert found.device.type == device.type
    assert torch.isfinite(loss)


ON_META = [case for case in WITH_TENSORS if case not in (alias_sample, vector_text, cooccurrences)]  # of the CPU alone


@pytest.mark.parametrize("case", ON_META, ids=lambda case: case.__name__)
def test_shapes_come_out_of_tensors_without_values(case):
    """On the device meta: shape and dtype of the result are those of the CPU, and the backward pass runs."""
    wanted, found = case(torch.device("cpu"))(), case(torch.device("meta"))()
    assert (found.shape, found.dtype, found.is_meta) == (wanted.shape, wanted.dtype, True)
    if wanted.requires_grad:
        found.sum().backward()


def test_how_many_rows_are_distinct_is_not_told_of_tensors_without_values():
    with pytest.raises(ElmoFastError, match="on meta there are none; take padded_unique_rows"):
        ops.unique_rows(torch.empty(3, 2, dtype=torch.int64, device="meta"))


def test_no_op_is_left_out():
    """Every registered op has its case above; the sampler takes no tensor that would say where it runs."""
    assert set(ops.op_names()) - {case.__name__ for case in WITH_TENSORS} <= {"log_uniform_sample"}
