"""full_softmax: the whole vocabulary's loss by blocks, against torch's cross entropy in float64."""

import pytest
import torch
from torch.nn import functional

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import full_softmax
from elmo_fast.ops.full_softmax import reference
from tests.tolerances import assert_close, assert_no_worse


def problem(count=7, width=6, words=40, dtype=torch.float64):
    targets = torch.randint(0, words, (count,))
    return (
        torch.randn(count, width, dtype=dtype),
        targets,
        torch.randn(words, width, dtype=dtype),
        torch.randn(words).to(dtype),
    )


def whole(hidden, targets, weight, bias):
    return functional.cross_entropy(hidden @ weight.T + bias, targets, reduction="none")


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 9), (129, 33, 1001), (7, 64, 200)])
@pytest.mark.parametrize("chunk_bytes", [1, 1000, 2**25])
def test_loss_is_the_whole_softmaxs(shape, chunk_bytes):
    """One word a block, some, all."""
    if shape[2] > 500 and chunk_bytes == 1:
        chunk_bytes = 129 * 8 * 37
    arguments = problem(*shape)
    assert_close("losses", full_softmax(*arguments, chunk_bytes=chunk_bytes), whole(*arguments), "float64")


def test_more_rows_than_a_block_of_them(monkeypatch):
    """Rows are cut too: blocks of 4 rows and of 3 words."""
    monkeypatch.setattr(reference, "ROWS", 4)
    arguments = problem(11)
    assert_close("losses", full_softmax(*arguments, chunk_bytes=4 * 3 * 8), whole(*arguments), "float64")


def test_float32_is_no_worse_than_torch():
    """Against float64, with logits of every size."""
    exact = problem(50, 64, 3000)
    single = [x.float() if x.is_floating_point() else x for x in exact]
    exact = [x.double() if x.is_floating_point() else x for x in single]
    found = full_softmax(*single, chunk_bytes=50 * 4 * 100)
    assert_no_worse("losses", found, whole(*single), whole(*exact), "float32")


def test_large_logits_do_not_overflow():
    """Logits of 1e4 in one block and -1e4 in another."""
    hidden, targets = torch.ones(2, 1), torch.tensor([0, 3])
    weight, bias = torch.tensor([[1e4], [1e4], [-1e4], [9999.0]]), torch.zeros(4)
    found = full_softmax(hidden, targets, weight, bias, chunk_bytes=8)
    truth = whole(hidden.double(), targets, weight.double(), bias.double())
    assert_no_worse("losses", found, whole(hidden, targets, weight, bias), truth, "float32")


@pytest.mark.parametrize("chunk_bytes", [200, 2**25])
def test_gradcheck(chunk_bytes):
    """Gradients to hidden, table and bias, blocks computed again."""
    hidden, targets, weight, bias = problem()
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]
    assert torch.autograd.gradcheck(lambda h, w, b: full_softmax(h, targets, w, b, chunk_bytes=chunk_bytes), leaves)


def test_no_rows():
    """Nothing in, nothing out."""
    assert full_softmax(*problem(0)).shape == (0,)


def test_precision_rounds_operands_alone():
    """bfloat16: the loss of rounded operands, computed in float32."""
    hidden, targets, weight, bias = problem(dtype=torch.float32)
    rounded = [x.bfloat16().float() for x in (hidden, weight)]
    found = full_softmax(hidden, targets, weight, bias, precision="bfloat16")
    assert_close("losses", found, whole(rounded[0], targets, rounded[1], bias))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"targets": torch.tensor([0, 9])}, "targets must be words from 0 to V - 1 = 8"),
        ({"weight": torch.zeros(0, 3), "bias": torch.zeros(0)}, "at least one word"),
        ({"bias": torch.zeros(8)}, r"bias must have shape \[V=9\]"),
        ({"targets": torch.zeros(2)}, "targets must be int64"),
        ({"chunk_bytes": 0}, "chunk_bytes must be at least 1"),
        ({"backend": "native"}, "backend must be one of auto, reference"),
    ],
)
def test_bad_arguments_are_refused(change, wanted):
    """Each in one sentence: argument, wanted, given."""
    given = {
        "hidden": torch.zeros(2, 3),
        "targets": torch.tensor([0, 1]),
        "weight": torch.zeros(9, 3),
        "bias": torch.zeros(9),
    }
    with pytest.raises(ElmoFastError, match=wanted):
        full_softmax(**(given | change))
