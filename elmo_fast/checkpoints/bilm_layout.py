"""bilm-tf's tensors <-> a state: names, shapes, transposes, gate order, signs and forget bias.

The datasets, in the letters of the package's docstring (x is a row vector, multiplied from the right):

    char_embed                                            [261, E]
    CNN/W_cnn_{i}, b_cnn_{i}                              [1, k, E, n], [n]
    CNN_high_{j}/W_carry, W_transform, b_carry, ...       [W, W], [W, W], [W], [W]
    CNN_proj/W_proj, b_proj                               [W, D], [D]
    RNN_{0,1}/RNN/MultiRNNCell/Cell{l}/LSTMCell/W_0       [2D, 4H]   rows: input, recurrent; columns: gates i, j, f, o
                                                B         [4H]       the forget bias's 1 is added at run time
                                                W_P_0     [H, D]
    embedding                                             [V, D]
    softmax/W, softmax/b                                  [V, D], [V]
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import CheckpointError, refuse
from .options import ElmoOptions
from .state import (
    CHAR_EMBEDDING,
    DIRECTIONS,
    PROJECTION,
    SOFTMAX_BIAS,
    SOFTMAX_COUNTS,
    SOFTMAX_WEIGHT,
    WORD_EMBEDDING,
    Shape,
    State,
    check_state,
    conv_names,
    highway_names,
    lstm_names,
)

# Not in bilm-tf: the forget biases including the 1, written if subtracting 1 would round them.
EXACT_FORGET = "forget_bias_plus_1"
# Not in bilm-tf either: what losses other than the sampled softmax need besides their table.
COUNTS = "softmax/counts"


def root(name: str) -> str:
    """Return the first part of a dataset name."""
    return name.split("/")[0]


class _Part(NamedTuple):
    """Datasets and the tensors of a state that hold the same numbers, and how one becomes the other."""

    shapes: dict[str, Shape]
    names: tuple[str, ...]
    unpack: Callable[..., Sequence[Tensor]]
    """the datasets, in the order of shapes -> the tensors, in the order of names"""
    pack: Callable[..., Sequence[Tensor]]
    """its inverse"""
    required: bool = True


def _parts(options: ElmoOptions, datasets: Mapping[str, Shape] | None, sums: bool = False) -> Iterator[_Part]:
    """Yield all that a model of the options may consist of, but its softmax.

    datasets: shapes of those in a file; None if it is to be written. sums: as in `unpacked`.
    """
    lstm, cnn, width, present = options.lstm, options.char_cnn, options.lstm.projection_dim, datasets or {}

    def transposed(tensor: Tensor) -> list[Tensor]:
        return [tensor.T]

    def padded(table: Tensor) -> list[Tensor]:
        """Put the padding's row in front of a table: zeros, or the sums of squares before the first step."""
        return [torch.cat([torch.ones_like(table[:1]), table]) if sums else with_zero_row(table)]

    if cnn is not None:
        n, sign = cnn.n_filters, 1 if sums else -1
        with_padding = tuple(present.get("char_embed", ()))[:1] == (262,)
        yield _Part(
            {"char_embed": (262 if with_padding else 261, cnn.embedding_dim)}, (CHAR_EMBEDDING,),
            (lambda table: [table]) if with_padding else padded,
            lambda table: [without_zero_row(CHAR_EMBEDDING, table)],
        )  # fmt: skip
        for i, (kernel, number) in enumerate(cnn.filters):
            yield _Part(
                {f"CNN/W_cnn_{i}": (1, kernel, cnn.embedding_dim, number), f"CNN/b_cnn_{i}": (number,)}, conv_names(i),
                lambda weight, bias: [weight[0].permute(2, 1, 0), bias],
                lambda weight, bias: [weight.permute(2, 1, 0)[None], bias],
            )  # fmt: skip
        for j in range(cnn.n_highway):
            high = f"CNN_high_{j}"
            # bilm-tf's carry gates the transformed part, AllenNLP's gates the input: 1 - sigmoid(z) = sigmoid(-z).
            yield _Part(
                {f"{high}/W_transform": (n, n), f"{high}/W_carry": (n, n), f"{high}/b_transform": (n,),
                 f"{high}/b_carry": (n,)}, highway_names(j),
                lambda w, w_carry, b, b_carry: [torch.cat([w.T, sign * w_carry.T]), torch.cat([b, sign * b_carry])],
                lambda w, b: [w.chunk(2)[0].T, -w.chunk(2)[1].T, b.chunk(2)[0], -b.chunk(2)[1]],
            )  # fmt: skip
        yield _Part(
            {"CNN_proj/W_proj": (n, width), "CNN_proj/b_proj": (width,)}, PROJECTION,
            lambda weight, bias: [weight.T, bias], lambda weight, bias: [weight.T, bias], n != width,
        )  # fmt: skip
    projected = lstm.dim != width or any(name.endswith("/LSTMCell/W_P_0") for name in present)
    for d, direction in enumerate(DIRECTIONS):
        for layer in range(lstm.n_layers):
            cell, names = f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell", lstm_names(direction, layer)
            yield _Part(
                {f"{cell}/W_0": (2 * width, 4 * lstm.dim)}, names[:2],
                lambda kernel: _reordered(kernel.T.contiguous()).split(width, dim=1),
                lambda w_input, w_state: [_reordered(torch.cat([w_input, w_state], dim=1)).T],
            )  # fmt: skip
            bias: dict[str, Shape] = {f"{cell}/B": (4 * lstm.dim,)}
            if datasets is None or f"{cell}/{EXACT_FORGET}" in datasets:
                bias[f"{cell}/{EXACT_FORGET}"] = (lstm.dim,)
            unpack: Any = (lambda b: [_reordered(b)]) if sums else _with_forget_bias
            yield _Part(bias, names[2:3], unpack, _without_forget_bias)
            yield _Part({f"{cell}/W_P_0": (lstm.dim, width)}, names[3:], transposed, transposed, projected)
    words = options.n_tokens_vocab if cnn is None else None
    yield _Part(
        {"embedding": (words, width)}, (WORD_EMBEDDING,),
        padded, lambda table: [without_zero_row(WORD_EMBEDDING, table)], cnn is None,
    )  # fmt: skip


def bilm_shapes(options: ElmoOptions, datasets: Mapping[str, Shape]) -> dict[str, Shape]:
    """Map each dataset that the options require, or that an incomplete part of the file requires, to its shape."""
    shapes: dict[str, Shape] = {}
    for part in _parts(options, datasets):
        if part.required or part.shapes.keys() & datasets.keys():
            shapes |= part.shapes
    if any(root(name) == "softmax" for name in datasets):
        words = options.softmax_rows
        if options.n_tokens_vocab is None and "softmax/W" in datasets:  # those of the table, which the bias matches
            words = (*datasets["softmax/W"], None)[0]
        shapes["softmax/b"] = (words,)
        if options.loss_kind.wants_counts:
            shapes[COUNTS] = (options.n_tokens_vocab,)
        if "softmax/W" in datasets or not options.share_embedding_softmax:
            shapes["softmax/W"] = (words, options.lstm.projection_dim)
    return shapes


def unpacked(arrays: Mapping[str, Tensor], options: ElmoOptions, source: object, *, sums: bool = False) -> State:
    """Convert bilm-tf's tensors to a state, and check it.

    sums: they are AdaGrad's sums of squares, of which only the places change. Raises: CheckpointError naming `source`
    and every wrong tensor.
    """
    table = arrays.get("char_embed")
    if table is not None and len(table) == 262 and table[0].any() and not sums:
        refuse(source, ["char_embed: wanted 261 rows, or 262 with zeros in the first; found 262 without"])
    state: State = {}
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    for part in _parts(options, shapes, sums):
        if part.shapes.keys() <= arrays.keys():
            state |= zip(part.names, part.unpack(*(arrays[name] for name in part.shapes)), strict=True)
    if "softmax/b" in arrays:
        shared = "softmax/W" not in arrays
        state[SOFTMAX_WEIGHT] = arrays["embedding" if shared else "softmax/W"].clone()
        state[SOFTMAX_BIAS] = arrays["softmax/b"]
    if COUNTS in arrays:
        state[SOFTMAX_COUNTS] = arrays[COUNTS]
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    check_state(state, options, source)
    return state


def packed(state: Mapping[str, Tensor], options: ElmoOptions) -> dict[str, Tensor]:
    """Convert a state to bilm-tf's tensors; the inverse of `unpacked`."""
    arrays: dict[str, Tensor] = {}
    for part in _parts(options, None):
        if part.names[0] in state:
            arrays |= zip(part.shapes, part.pack(*(state[name] for name in part.names)), strict=False)
    softmax = {"softmax/W": SOFTMAX_WEIGHT, "softmax/b": SOFTMAX_BIAS, COUNTS: SOFTMAX_COUNTS}
    return arrays | {dataset: state[name] for dataset, name in softmax.items() if name in state}


def _reordered(gates: Tensor) -> Tensor:
    """Reorder gates i, j, f, o along the first dimension to i, f, j, o (torch's i, f, g, o), or back."""
    i, j, f, o = gates.chunk(4)
    return torch.cat([i, f, j, o])


def _with_forget_bias(bias: Tensor, exact: Tensor | None = None) -> list[Tensor]:
    i, j, f, o = bias.chunk(4)
    forget = f + 1
    if exact is not None:  # B is what the format defines: if it has been edited since, it counts
        forget = torch.where(exact - 1 == f, exact, forget)
    return [torch.cat([i, forget, j, o])]


def _without_forget_bias(bias: Tensor) -> list[Tensor]:
    i, f, j, o = bias.chunk(4)
    stored = torch.cat([i, j, f - 1, o])
    return [stored] if torch.equal((f - 1) + 1, f) else [stored, f]


def with_zero_row(table: Tensor) -> Tensor:
    """Put a row of zeros (padding) in front of a table."""
    return torch.cat([torch.zeros_like(table[:1]), table])


def without_zero_row(name: str, table: Tensor) -> Tensor:
    """Return the rows after row 0. Raises: CheckpointError if row 0 is not zero."""
    if table[0].any():
        raise CheckpointError(f"{name}: row 0 (the padding) must be zero: bilm-tf's format cannot store it")
    return table[1:]
