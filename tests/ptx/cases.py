"""Calls of the ops, forward and backward, that launch every family of GPU kernels at a small fixed shape."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import triton

from elmo_fast.ops import (
    _softmax_triton,
    adagrad_rows_,
    char_cnn,
    full_softmax,
    gather_rows,
    hierarchical_softmax,
    highway,
    huffman_tree,
    negative_sampling,
    padded_unique_rows,
    projected_lstm,
    sampled_softmax,
    scalar_mix,
    square_norm,
)
from elmo_fast.ops._triton import cdiv, launch, undispatched
from elmo_fast.ops.projected_lstm import triton_forward
from tests.ops import char_cnn_cases, highway_cases, lstm_cases
from tests.ptx import cuda

# So that small layers have what large ones have: several blocks, tiles and slices, and sums in parts of several tiles.
SMALL = {triton_forward: {"MULTIPROCESSORS": 12}}


@contextlib.contextmanager
def small_blocks() -> Iterator[None]:
    """Within it the LSTM's host functions choose for `SMALL`."""
    with contextlib.ExitStack() as stack:
        for module, values in SMALL.items():
            stack.enter_context(mock.patch.multiple(module, **values))
        yield


BACKEND = {"backend": "triton"}


def backward(*results):
    torch.autograd.backward(results, [torch.randn_like(r) for r in results])


def run_highway(rows=20, width=272, layers=1, projection=24, precision="float16"):
    made = highway_cases.case(rows, width, layers, projection).to(torch.float32)
    backward(highway(*made, precision=precision, **BACKEND))


def run_char_cnn(rows=20, characters=12, filters=char_cnn_cases.FEW, precision="float16"):
    made = char_cnn_cases.case("mixed", rows, characters, 16, filters).to(torch.float32)
    backward(char_cnn(*made, precision=precision, **BACKEND))


def run_projected_lstm(
    batch=5, size=160, cells=288, precision="float16", *, width=9, lengths=None, masked=False, residual=False
):
    """lengths: None: 2 and 1; of as many cells as the layer's size it has no projection."""
    if lengths is None:
        lengths = torch.randint(1, 3, (batch,))
        lengths[0] = 2
    made = lstm_cases.make(batch, 2, width, size, cells, directions=1, lengths=lengths, projected=size != cells)
    masks = [torch.randn(batch, size)] if masked else None
    options = {"reverse": (True,), "residual": residual, "recurrent_masks": masks}
    out, state = projected_lstm(*lstm_cases.cast(made, torch.float32), precision=precision, **options, **BACKEND)
    backward(out, *state)


def run_scalar_mix(shape=(3, 5, 70), mixes=3, count=3, dropout=None):
    """With dropout, or with a layer norm."""
    layers = [torch.randn(shape, requires_grad=True) for _ in range(count)]
    weights = torch.randn(mixes, count, requires_grad=True), torch.randn(mixes, requires_grad=True)
    norm = {"layer_norm": True, "statistics_mask": torch.rand(shape[:-1]) < 0.7}
    options = norm if dropout is None else {"dropout": dropout, "seed": 3}
    backward(scalar_mix(layers, *weights, **options, **BACKEND))


def ids_of(rows, words):
    """Most of them 0, so that its rows fill whole chunks and loops come round several times."""
    return torch.randint(0, words, (rows,)) * (torch.rand(rows) < 0.3)


def run_unique_rows(rows=130, entries=7, width=33):
    table = torch.randn(entries, width, requires_grad=True)
    backward(gather_rows(table, ids_of(rows, entries), **BACKEND))


def softmax_case(rows, width, words):
    """The last row's target is the last word, past which the table ends."""
    hidden, weight = torch.randn(rows, width, requires_grad=True), torch.randn(words, width, requires_grad=True)
    targets = torch.cat((torch.randint(0, words, (rows - 1,)), torch.tensor([words - 1])))
    return hidden, targets, weight, torch.randn(words, requires_grad=True)


def run_full_softmax(rows=40, width=32, words=150, precision="float16", **options):
    backward(full_softmax(*softmax_case(rows, width, words), precision=precision, **options, **BACKEND))


def run_sampled_softmax(rows=40, width=32, words=150, samples=70, precision="float16"):
    made = softmax_case(rows, width, words)
    drawn = torch.randperm(words)[:samples]
    backward(sampled_softmax(*made, drawn, 90, precision=precision, **BACKEND))


def run_negative_sampling(rows=40, width=32, words=150, samples=70, precision="float16", noise=False):
    drawn, made = torch.randint(0, words, (samples,)), softmax_case(rows, width, words)
    options = {"negatives": 5, "log_noise": torch.randn(words) if noise else None}
    backward(negative_sampling(*made, drawn, precision=precision, **options, **BACKEND))


def run_hierarchical_softmax(rows=9, width=33, words=60, precision="float16", deep=True):
    """deep: a tree with a path of every length."""
    hidden, targets, weight, bias = softmax_case(rows, width, words - 1)
    tree = huffman_tree(2 ** torch.arange(words) if deep else 10**6 // torch.arange(1, words + 1))
    backward(hierarchical_softmax(hidden, targets, weight, bias, tree, precision=precision, **BACKEND))


def run_softmax_parts(rows=40, parts=70):
    sums = torch.randn(2, parts, rows).unbind(0)
    _softmax_triton.launch_merge(
        sums, parts, None, torch.randn(rows), torch.empty(rows), torch.empty(rows, 2), first=True
    )


def run_target_rows(rows=40, width=96):
    """finish_rows as for 32 columns, over more than it takes at once."""
    table, ids, (high, columns) = torch.randn(9, width), torch.randint(0, 9, (rows,)), _softmax_triton.row_blocks(32)
    d_hidden, d_rows, d_offsets = torch.randn(rows, width), torch.empty(rows, width), torch.empty(rows)
    launch(
        _softmax_triton.finish_rows, (cdiv(rows, high),), torch.randn(rows), 1, torch.randn(rows),
        torch.randn(rows, width).half(), ids, table, *table.stride(), torch.ones(2), d_hidden, d_rows,
        d_offsets, rows, width, LOSSES=False, ROWS=high, WIDTH=columns,
    )  # fmt: skip


def run_adagrad(rows=131, words=12, width=33):
    table, sums = torch.randn(words, width), torch.rand(words, width) + 0.5
    adagrad_rows_(table, sums, ids_of(rows, words), torch.randn(rows, width), 0.1, **BACKEND)


def run_padded_unique_rows(rows=37, width=21):
    """Each row twice; the first is the last of the sorted ones."""
    ids = torch.randint(0, 2, (rows, width))
    ids[0] = 0
    padded_unique_rows(torch.cat((ids, ids)), **BACKEND)


def run_adagrad_dense(sizes=(1500, 7)):
    """Of each tensor a last block that is not full; with a kept copy, and without."""
    weights, gradients, sums = ([torch.rand(size) + 0.5 for size in sizes] for _ in range(3))
    square_norm(gradients, **BACKEND)
    for copies in ([], [torch.ones_like(w, dtype=torch.float16) for w in weights]):
        undispatched("adagrad_")(weights, gradients, sums, copies, torch.tensor(0.1), None)


def run_log_uniform_sample(sizes=((1500, 2000), (4500, 1_300_000))):
    """Several waves each; the second bitmap is larger than a block's shared memory."""
    for samples, words in sizes:
        cuda.sample(triton.runtime.driver.active, samples, words, 0, 0)


def char_cnn_words(rows, size=16, characters=31, widths=char_cnn_cases.FEW, wild=False, narrow=False):
    """What char_cnn's backward takes; wild: winners and characters are any numbers."""
    made = char_cnn_cases.case("full", rows, 12, size, widths)
    shape = rows, sum(filters for _, filters in widths)
    least, most = (-(2**15), 2**15) if wild else (0, 12 - max(width for width, _ in widths) + 1)
    winners = torch.randint(least, most, shape).to(torch.int16)
    ids = torch.randint(-5, characters + 5, (rows, 12)) if wild else torch.randint(0, characters, (rows, 12))
    ids = ids.int() if narrow else ids
    return torch.randn(shape), torch.randn(shape).tanh(), winners, ids, torch.randn(characters, size), made.weights


def run_char_cnn_backward(rows=20, size=40, characters=31, count=18):
    """More numbers in a character than are multiplied at once, three times."""
    made = char_cnn_words(rows, size, characters)
    cuda.char_cnn_backward(triton.runtime.driver.active, *made, torch.tensor([count]))


def named(module: dict[str, Any]) -> dict[str, Callable[..., None]]:
    """name -> call, of the functions run_<name>"""
    return {name.removeprefix("run_"): call for name, call in module.items() if name.startswith("run_")}


CASES = named(globals())
"""name of the op -> call"""

OF_CUDA = ("log_uniform_sample", "char_cnn_backward")
"""those whose kernels are CUDA C++; all others are Triton's"""
PARAMETERS = [pytest.param(name, marks=cuda.NEEDED if name in OF_CUDA else ()) for name in CASES]
"""the names, for tests of all that can run here"""
