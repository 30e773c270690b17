"""Calls of the ops' host functions on tensors of more than 2^31 elements, on fake tensors."""

import functools
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import torch

from elmo_fast.ops import _softmax_triton
from elmo_fast.ops._triton import undispatched
from elmo_fast.ops.projected_lstm import triton, triton_forward
from elmo_fast.ops.scalar_mix import triton as scalar_mix_triton
from tests.kernels import (
    adagrad,
    char_cnn,
    full_softmax,
    hierarchical_softmax,
    highway,
    negative_sampling,
    sampled_softmax,
    scalar_mix,
    unique_rows,
)
from tests.ptx.far import TAIL, Values

WORDS, WIDTH, ROWS = 793_471, 4096, 600_000  # words · width and rows · width lie between 2^31 and 2^32
STEPS, LONGEST = hierarchical_softmax.STEPS, hierarchical_softmax.LONGEST


class Case(NamedTuple):
    call: Callable[[], object]
    values: Values
    """what the end of a tensor of numbers holds, or another number, by the kernel's name for it; else zeros"""
    of_kernel: dict[str, Values] = {}  # noqa: RUF012 - never changed
    """others, for one kernel"""
    left_out: dict[str, str] = {}  # noqa: RUF012 - never changed
    """kernel -> why it does not run"""
    reversed: tuple[str, ...] = ()
    """kernels whose first block has the last steps"""
    unread: frozenset[str] = frozenset()
    """far tensors that a kernel may leave alone"""


def ids(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=torch.int64)


def all_words() -> None:
    saved, weight, bias = full_softmax.forward(ROWS, "float16", width=WIDTH)
    # hundreds of thousands of launches, of tiles of one chunk
    with mock.patch.object(_softmax_triton, "launch_logit_gradients"):
        undispatched("full_softmax_backward")(
            torch.empty(2560), *(s[:2560] for s in saved[:-1]), saved[-1], weight, bias, full_softmax.CHUNK
        )


def paths() -> None:
    for rows in (ROWS // LONGEST, ROWS):  # far are the rows of gradients, then hidden
        hierarchical_softmax.both_passes(rows, "float16", width=WIDTH, backward=rows < ROWS)


def mix(layer_norm: bool) -> None:
    with mock.patch.object(scalar_mix_triton, "PROGRAMS", 2**31):  # else a block's share is thousands of tiles
        dropout = 0.0 if layer_norm else 0.5
        scalar_mix.passes(torch.float16, 3, dropout, layer_norm, layers=5, shape=(2_200_000, 1024))


BATCH = 128


def lstm(time: int, size: int, cells: int, dtype: torch.dtype, width: int = 512) -> None:
    inputs, projected = [torch.empty(BATCH, time, width) for _ in range(2)], size != cells
    sizes = ((4 * cells, width), (4 * cells, size), (4 * cells,), (size, cells))
    weights = [[torch.empty(size) for _ in range(2)] for size in sizes]
    weights[3] = weights[3] if projected else []
    state = (torch.empty(2, BATCH, size), torch.empty(2, BATCH, cells))
    options = [False, True], 3.0, 3.0, not projected, str(dtype).removeprefix("torch.")
    masks = [] if projected else [torch.empty(BATCH, size) for _ in range(2)]
    given = triton.ForwardArguments(inputs, *weights, ids(BATCH), *state, masks, *options, True)
    (outputs, h, c), *saved = triton_forward.forward(given)
    (steps, order, falling), backward = saved, undispatched("projected_lstm_backward")
    kinds = weights[0], weights[1], weights[3]
    backward(outputs, h, c, inputs, *kinds, masks, *steps, order, falling, *options, True, True, True)


TIMES = (2100, 4200)
LAST_WORDS = torch.arange(WORDS - TAIL, WORDS)
LAST_PATH = torch.arange(STEPS - LONGEST * (TAIL - 1), STEPS + 1, LONGEST)
DISTINCT = 50_000_000
DENSE = ((7,), (WORDS, WIDTH))
OF_WORDS: Values = dict.fromkeys(("targets", "samples", "ids", "inverse"), WORDS - 1)
CASES = {
    "gather_rows": Case(
        functools.partial(unique_rows.there_and_back, ROWS, WIDTH),
        dict.fromkeys(("ids", "inverse", "order"), ROWS - 1)
        | {"offsets": ROWS - 1 + torch.arange(1 - TAIL, 1).clamp(-2)},
    ),
    "padded_unique_rows": Case(
        functools.partial(unique_rows.there_and_back, DISTINCT, 1),
        {"order": DISTINCT - 1, "rank": DISTINCT, "first": 1},
    ),
    "adagrad": Case(adagrad.dense(torch.bfloat16, clipped=False, shapes=DENSE), {}),
    "adagrad, norm": Case(functools.partial(adagrad.norm, DENSE), {}),
    "adagrad_rows": Case(
        adagrad.rows(WIDTH, clipped=False, n=ROWS),
        {"ids": LAST_WORDS, "order": ROWS - 1},
        {"sum_pieces": {"ids": WORDS - 1, "order": ROWS - 1}},
    ),
    "sampled_softmax": Case(functools.partial(sampled_softmax.both_passes, ROWS, "float16", width=WIDTH), OF_WORDS),
    "negative_sampling": Case(functools.partial(negative_sampling.both_passes, ROWS, "float16", width=WIDTH), OF_WORDS),
    "full_softmax": Case(all_words, OF_WORDS),
    "hierarchical_softmax": Case(
        paths,
        {"targets": WORDS - 1, "first": LAST_PATH, "nodes": WORDS - 2, "ids": WORDS - 2, "slopes": 1},
    ),
    "highway": Case(functools.partial(highway.passes, 1_100_000, torch.float16, False), {"unless_ptr": 2.0}),
    "char_cnn": Case(
        functools.partial(char_cnn.both_ways, 1_200_000, "float16", counted=False),
        {"ids": torch.arange(TAIL) % 2},
        left_out={"weight_sums": "a block adds 75,000 rows"},
    ),
    "scalar_mix": Case(functools.partial(mix, False), {}),
    "scalar_mix, layer norm": Case(functools.partial(mix, True), {"counted_ptr": 1}),
    **{
        f"projected_lstm, {name}": Case(
            functools.partial(lstm, *sizes),
            # The block that runs is the last of those that share a sum to arrive, so it adds the others' parts.
            {"lengths": sizes[0], "order": BATCH - 1, "arrived": splits - 1},
            reversed=("put_back 2", "put_back 4"),
            unread=frozenset({"d_gates"}),
        )
        for name, splits, sizes in (
            ("float16", 16, (TIMES[0], 512, 4096, torch.float16)),
            ("bfloat16", 16, (TIMES[0], 512, 4096, torch.bfloat16)),
            ("unprojected", 2, (TIMES[1], 4096, 4096, torch.float16, 4096)),
        )
    },
}
