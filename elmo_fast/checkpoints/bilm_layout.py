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

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError, refuse
from .options import COUNTED, CharCnnOptions, ElmoOptions
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
# Not in bilm-tf either: what losses other than the sampled softmax need beside their table.
COUNTS = "softmax/counts"


def root(name: str) -> str:
    """The first part of a dataset name."""
    return name.split("/")[0]


def bilm_shapes(options: ElmoOptions, found: Mapping[str, Any]) -> dict[str, Shape]:
    """Name -> shape of every dataset that the options require, or that an incomplete part of the file requires."""
    lstm = options.lstm
    width = lstm.projection_dim
    shapes = _encoder_shapes(options, found)
    projected = lstm.dim != width or any(name.endswith("/LSTMCell/W_P_0") for name in found)
    for direction in range(2):
        for layer in range(lstm.n_layers):
            cell = cell_group(direction, layer)
            shapes |= {f"{cell}/W_0": (2 * width, 4 * lstm.dim), f"{cell}/B": (4 * lstm.dim,)}
            if projected:
                shapes[f"{cell}/W_P_0"] = (lstm.dim, width)
            if f"{cell}/{EXACT_FORGET}" in found:
                shapes[f"{cell}/{EXACT_FORGET}"] = (lstm.dim,)
    if options.char_cnn is None or "embedding" in found:
        shapes["embedding"] = (options.n_tokens_vocab if options.char_cnn is None else None, width)
    if any(root(name) == "softmax" for name in found):
        words = _softmax_rows(options, found)
        shapes["softmax/b"] = (words,)
        if options.trained_by in COUNTED:
            shapes[COUNTS] = (options.n_tokens_vocab,)
        if "softmax/W" in found or not options.share_embedding_softmax:
            shapes["softmax/W"] = (words, width)
    return shapes


def _softmax_rows(options: ElmoOptions, found: Mapping[str, Any]) -> int | None:
    """The rows that the options require or, if they leave it open, those of the table, which the bias must match."""
    if options.n_tokens_vocab is None and "softmax/W" in found:
        return (found["softmax/W"].shape or (None,))[0]
    return options.softmax_rows


def _encoder_shapes(options: ElmoOptions, found: Mapping[str, Any]) -> dict[str, Shape]:
    cnn, width = options.char_cnn, options.lstm.projection_dim
    if cnn is None:
        return {}
    with_padding = "char_embed" in found and (found["char_embed"].shape or (0,))[0] == 262
    shapes: dict[str, Shape] = {"char_embed": (262 if with_padding else 261, cnn.embedding_dim)}
    for i, (kernel, number) in enumerate(cnn.filters):
        shapes |= {f"CNN/W_cnn_{i}": (1, kernel, cnn.embedding_dim, number), f"CNN/b_cnn_{i}": (number,)}
    n = cnn.n_filters
    for j in range(cnn.n_highway):
        shapes |= {f"CNN_high_{j}/W_{gate}": (n, n) for gate in ("carry", "transform")}
        shapes |= {f"CNN_high_{j}/b_{gate}": (n,) for gate in ("carry", "transform")}
    if n != width or any(root(name) == "CNN_proj" for name in found):
        shapes |= {"CNN_proj/W_proj": (n, width), "CNN_proj/b_proj": (width,)}
    return shapes


def cell_group(direction: int, layer: int) -> str:
    """The group of a cell's datasets."""
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def unpacked(arrays: Mapping[str, Tensor], options: ElmoOptions, source: object, *, sums: bool = False) -> State:
    """bilm-tf's tensors -> a state, checked. sums: they are AdaGrad's sums of squares, of which only the places change.

    Raises: CheckpointError naming `source` and every wrong tensor.
    """
    state: State = {}
    if options.char_cnn is not None:
        if len(arrays["char_embed"]) == 262 and arrays["char_embed"][0].any() and not sums:
            refuse(source, ["char_embed: wanted 261 rows, or 262 with zeros in the first; found 262 without"])
        state |= _unpacked_encoder(arrays, options.char_cnn, sums)
    for d, direction in enumerate(DIRECTIONS):
        for layer in range(options.lstm.n_layers):
            cell, names = cell_group(d, layer), lstm_names(direction, layer)
            weight = _reordered(arrays[f"{cell}/W_0"].T.contiguous())
            state[names[0]], state[names[1]] = weight.split(options.lstm.projection_dim, dim=1)
            state[names[2]] = _reordered(arrays[f"{cell}/B"] if sums else _with_forget_bias(arrays, cell))
            if f"{cell}/W_P_0" in arrays:
                state[names[3]] = arrays[f"{cell}/W_P_0"].T
    if "embedding" in arrays:
        state[WORD_EMBEDDING] = _with_padding(arrays["embedding"], sums)
    if "softmax/b" in arrays:
        shared = "softmax/W" not in arrays
        state[SOFTMAX_WEIGHT] = arrays["embedding" if shared else "softmax/W"].clone()
        state[SOFTMAX_BIAS] = arrays["softmax/b"]
    if COUNTS in arrays:
        state[SOFTMAX_COUNTS] = arrays[COUNTS]
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    check_state(state, options, source)
    return state


def _unpacked_encoder(arrays: Mapping[str, Tensor], cnn: CharCnnOptions, sums: bool) -> State:
    table = arrays["char_embed"]
    state = {CHAR_EMBEDDING: table if len(table) == 262 else _with_padding(table, sums)}
    carry = 1 if sums else -1
    for i in range(len(cnn.filters)):
        weight, bias = conv_names(i)
        state[weight], state[bias] = arrays[f"CNN/W_cnn_{i}"][0].permute(2, 1, 0), arrays[f"CNN/b_cnn_{i}"]
    for j in range(cnn.n_highway):
        weight, bias = highway_names(j)
        high = {key: arrays[f"CNN_high_{j}/{key}"] for key in ("W_transform", "W_carry", "b_transform", "b_carry")}
        # bilm-tf's carry gates the transformed part, AllenNLP's gates the input: 1 - sigmoid(z) = sigmoid(-z).
        state[weight] = torch.cat([high["W_transform"].T, carry * high["W_carry"].T])
        state[bias] = torch.cat([high["b_transform"], carry * high["b_carry"]])
    if "CNN_proj/W_proj" in arrays:
        weight, bias = PROJECTION
        state[weight], state[bias] = arrays["CNN_proj/W_proj"].T, arrays["CNN_proj/b_proj"]
    return state


def packed(state: Mapping[str, Tensor], options: ElmoOptions) -> dict[str, Tensor]:
    """A state -> bilm-tf's tensors; the inverse of `unpacked`."""
    arrays: dict[str, Tensor] = {}
    if options.char_cnn is not None:
        arrays |= _packed_encoder(state, options.char_cnn)
    for d, direction in enumerate(DIRECTIONS):
        for layer in range(options.lstm.n_layers):
            cell, names = cell_group(d, layer), lstm_names(direction, layer)
            arrays[f"{cell}/W_0"] = _reordered(torch.cat([state[names[0]], state[names[1]]], dim=1)).T
            arrays |= _without_forget_bias(_reordered(state[names[2]]), cell)
            if names[3] in state:
                arrays[f"{cell}/W_P_0"] = state[names[3]].T
    if WORD_EMBEDDING in state:
        arrays["embedding"] = without_zero_row(WORD_EMBEDDING, state[WORD_EMBEDDING])
    if SOFTMAX_WEIGHT in state:
        arrays |= {"softmax/W": state[SOFTMAX_WEIGHT], "softmax/b": state[SOFTMAX_BIAS]}
    if SOFTMAX_COUNTS in state:
        arrays[COUNTS] = state[SOFTMAX_COUNTS]
    return arrays


def _packed_encoder(state: Mapping[str, Tensor], cnn: CharCnnOptions) -> dict[str, Tensor]:
    arrays = {"char_embed": without_zero_row(CHAR_EMBEDDING, state[CHAR_EMBEDDING])}
    for i in range(len(cnn.filters)):
        weight, bias = conv_names(i)
        arrays[f"CNN/W_cnn_{i}"], arrays[f"CNN/b_cnn_{i}"] = state[weight].permute(2, 1, 0)[None], state[bias]
    for j in range(cnn.n_highway):
        weight, bias = highway_names(j)
        for gate, w, b, sign in zip(
            ("transform", "carry"), state[weight].chunk(2), state[bias].chunk(2), (1, -1), strict=True
        ):
            arrays[f"CNN_high_{j}/W_{gate}"], arrays[f"CNN_high_{j}/b_{gate}"] = sign * w.T, sign * b
    if PROJECTION[0] in state:
        arrays["CNN_proj/W_proj"], arrays["CNN_proj/b_proj"] = state[PROJECTION[0]].T, state[PROJECTION[1]]
    return arrays


def _reordered(gates: Tensor) -> Tensor:
    """Gates i, j, f, o along the first dimension -> i, f, j, o (torch's i, f, g, o), and back."""
    i, j, f, o = gates.chunk(4)
    return torch.cat([i, f, j, o])


def _with_forget_bias(arrays: Mapping[str, Tensor], cell: str) -> Tensor:
    i, j, f, o = arrays[f"{cell}/B"].chunk(4)
    exact = arrays.get(f"{cell}/{EXACT_FORGET}", f + 1)
    # B is what the format defines: if it has been edited since, it counts.
    return torch.cat([i, j, torch.where(exact - 1 == f, exact, f + 1), o])


def _without_forget_bias(bias: Tensor, cell: str) -> dict[str, Tensor]:
    i, j, f, o = bias.chunk(4)
    stored = {f"{cell}/B": torch.cat([i, j, f - 1, o])}
    return stored if torch.equal((f - 1) + 1, f) else {**stored, f"{cell}/{EXACT_FORGET}": f}


def with_zero_row(table: Tensor) -> Tensor:
    """The table with a row of zeros (padding) in front."""
    return torch.cat([torch.zeros_like(table[:1]), table])


def _with_padding(table: Tensor, sums: bool) -> Tensor:
    """The table with the padding's row in front: zeros, or the sums of squares before the first step."""
    return torch.cat([torch.ones_like(table[:1]), table]) if sums else with_zero_row(table)


def without_zero_row(name: str, table: Tensor) -> Tensor:
    """The rows after row 0. Raises: CheckpointError if row 0 is not zero."""
    if table[0].any():
        raise CheckpointError(f"{name}: row 0 (the padding) must be zero: bilm-tf's format cannot store it")
    return table[1:]
