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

from collections.abc import Iterator, Mapping
from typing import Any

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
    state_shapes,
)

# Not in bilm-tf: the forget biases including the 1, written if subtracting 1 would round them.
EXACT_FORGET = "forget_bias_plus_1"
_TABLES = {"char_embed": CHAR_EMBEDDING, "embedding": WORD_EMBEDDING}
# The counts are not in bilm-tf either: what losses other than the sampled softmax need besides their table.
_SOFTMAX = {"softmax/W": SOFTMAX_WEIGHT, "softmax/b": SOFTMAX_BIAS, "softmax/counts": SOFTMAX_COUNTS}


def root(name: str) -> str:
    """Return the first part of a dataset name."""
    return name.split("/")[0]


def _cells(options: ElmoOptions) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield where the datasets of each cell begin, and the names of its tensors in a state."""
    for d, direction in enumerate(DIRECTIONS):
        for layer in range(options.lstm.n_layers):
            yield f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell", lstm_names(direction, layer)


def bilm_shapes(options: ElmoOptions, stored: Mapping[str, Any], source: object) -> dict[str, Shape]:
    """Map each dataset that the options require, or that an incomplete part of the file requires, to its shape.

    stored: what has a `shape`, by the names of datasets.
    Raises: CheckpointError naming `source` if the format has no place for such a model, or no tensor can be so large.
    """
    check_storable(options, source)
    parts = {"/LSTMCell/W_P_0": lstm_names("forward", 0)[3:], "CNN_proj/": PROJECTION, "softmax/": [SOFTMAX_BIAS]}
    present = [name for part, names in parts.items() if any(part in dataset for dataset in stored) for name in names]
    present += [WORD_EMBEDDING] * ("embedding" in stored)
    # Sizes that the options leave open are the file's.
    words, (rows, biases, counts) = _rows(stored, "embedding"), (_rows(stored, dataset) for dataset in _SOFTMAX)
    given = {WORD_EMBEDDING: (words or 1) + 1, SOFTMAX_WEIGHT: rows or biases, SOFTMAX_BIAS: rows or biases}
    given[SOFTMAX_COUNTS] = counts
    try:
        state = {
            name: torch.empty([given[name] or 1 if size is None else size for size in shape], device="meta")
            for name, shape in state_shapes(options, present).items()
        }
        shapes = {dataset: tuple(array.shape) for dataset, array in _packed(state, options).items()}
    except (RuntimeError, TypeError) as error:  # torch's, of sizes that no memory has
        raise CheckpointError(
            f"{source}: the options want tensors larger than any memory; give those of these weights ({error})"
        ) from error
    if _rows(stored, "char_embed") == 262:
        shapes["char_embed"] = (262, *shapes["char_embed"][1:])
    left_out = ["softmax/W"] * bool(options.share_embedding_softmax)
    left_out += [dataset for dataset in shapes if dataset.endswith(EXACT_FORGET)]
    return {dataset: shape for dataset, shape in shapes.items() if dataset in stored or dataset not in left_out}


def unpacked(arrays: Mapping[str, Tensor], options: ElmoOptions, source: object, *, sums: bool = False) -> State:
    """Convert bilm-tf's tensors to a state, and check it.

    sums: they are AdaGrad's sums of squares, of which only the places change. Raises: CheckpointError naming `source`
    and every wrong tensor.
    """
    state: State = {}
    sign = 1 if sums else -1
    for dataset, name in _TABLES.items():
        if (table := arrays.get(dataset)) is None:
            continue
        has_padding = name == CHAR_EMBEDDING and len(table) == 262
        if has_padding and table[0].any() and not sums:
            refuse(source, ["char_embed: wanted 261 rows, or 262 with zeros in the first; found 262 without"])
        state[name] = table if has_padding else with_zero_row(table)
        if sums:
            state[name][0] = 1  # the sum before the first step
    for k in range(len(options.char_cnn.filters) if options.char_cnn else 0):
        weight, bias = conv_names(k)
        state |= {weight: arrays[f"CNN/W_cnn_{k}"][0].permute(2, 1, 0), bias: arrays[f"CNN/b_cnn_{k}"]}
    for j in range(options.char_cnn.n_highway if options.char_cnn else 0):
        # bilm-tf's carry gates the transformed part, AllenNLP's gates the input: 1 - sigmoid(z) = sigmoid(-z).
        for name, part in zip(highway_names(j), "Wb", strict=True):
            transform, carry = arrays[f"CNN_high_{j}/{part}_transform"], arrays[f"CNN_high_{j}/{part}_carry"]
            state[name] = torch.cat([transform.transpose(0, -1), sign * carry.transpose(0, -1)])
    if "CNN_proj/W_proj" in arrays:
        state |= zip(PROJECTION, (arrays["CNN_proj/W_proj"].T, arrays["CNN_proj/b_proj"]), strict=True)
    for cell, (w_input, w_state, bias, projection) in _cells(options):
        kernel = _reordered(arrays[f"{cell}/W_0"].T)
        state[w_input], state[w_state] = kernel.chunk(2, dim=1)
        i, f, g, o = _reordered(arrays[f"{cell}/B"]).chunk(4)
        if not sums:
            # B is what the format defines: if it has been edited since, it counts.
            exact = arrays.get(f"{cell}/{EXACT_FORGET}", f + 1)
            f = torch.where(exact - 1 == f, exact, f + 1)
        state[bias] = torch.cat([i, f, g, o])
        if f"{cell}/W_P_0" in arrays:
            state[projection] = arrays[f"{cell}/W_P_0"].T
    state |= {name: arrays[dataset] for dataset, name in _SOFTMAX.items() if dataset in arrays}
    if SOFTMAX_BIAS in state and SOFTMAX_WEIGHT not in state:
        state[SOFTMAX_WEIGHT] = arrays["embedding"].clone()  # shared
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    check_state(state, options, source)
    return state


def packed(state: Mapping[str, Tensor], options: ElmoOptions) -> dict[str, Tensor]:
    """Convert a state to bilm-tf's tensors; the inverse of `unpacked`."""
    for name in _TABLES.values():
        if name in state:
            without_zero_row(name, state[name])
    arrays = _packed(state, options)
    for dataset in [each for each in arrays if each.endswith(EXACT_FORGET)]:
        if torch.equal((arrays[dataset] - 1) + 1, arrays[dataset]):
            del arrays[dataset]
    return arrays


def _packed(state: Mapping[str, Tensor], options: ElmoOptions) -> dict[str, Tensor]:
    """Convert a state, whose values are not looked at: they may be on meta."""
    arrays = {dataset: state[name][1:] for dataset, name in _TABLES.items() if name in state}
    for k in range(len(options.char_cnn.filters) if options.char_cnn else 0):
        weight, bias = conv_names(k)
        arrays |= {f"CNN/W_cnn_{k}": state[weight].permute(2, 1, 0)[None], f"CNN/b_cnn_{k}": state[bias]}
    for j in range(options.char_cnn.n_highway if options.char_cnn else 0):
        for name, part in zip(highway_names(j), "Wb", strict=True):
            transform, gate = state[name].chunk(2)
            arrays[f"CNN_high_{j}/{part}_transform"] = transform.transpose(0, -1)
            arrays[f"CNN_high_{j}/{part}_carry"] = -gate.transpose(0, -1)
    if PROJECTION[0] in state:
        arrays |= {"CNN_proj/W_proj": state[PROJECTION[0]].T, "CNN_proj/b_proj": state[PROJECTION[1]]}
    for cell, (w_input, w_state, bias, projection) in _cells(options):
        arrays[f"{cell}/W_0"] = _reordered(torch.cat([state[w_input], state[w_state]], dim=1)).T
        i, forget, g, o = state[bias].chunk(4)
        arrays |= {f"{cell}/B": torch.cat([i, g, forget - 1, o]), f"{cell}/{EXACT_FORGET}": forget}
        if projection in state:
            arrays[f"{cell}/W_P_0"] = state[projection].T
    return arrays | {dataset: state[name] for dataset, name in _SOFTMAX.items() if name in state}


def check_storable(options: ElmoOptions, source: object) -> None:
    """Raise CheckpointError if bilm-tf's format has no place for such a model."""
    if options.why_not_trainable is not None:
        refuse(source, [f"bilm-tf's format cannot store this model: {options.why_not_trainable}"])


def _rows(stored: Mapping[str, Any], dataset: str) -> int | None:
    return (*(stored[dataset].shape or ()), None)[0] if dataset in stored else None


def _reordered(gates: Tensor) -> Tensor:
    """Reorder gates i, j, f, o along the first dimension to i, f, j, o (torch's i, f, g, o), or back."""
    i, j, f, o = gates.chunk(4)
    return torch.cat([i, f, j, o])


def with_zero_row(table: Tensor) -> Tensor:
    """Put a row of zeros (padding) in front of a table."""
    return torch.cat([torch.zeros_like(table[:1]), table])


def without_zero_row(name: str, table: Tensor) -> Tensor:
    """Return the rows after row 0. Raises: CheckpointError if row 0 is not zero."""
    if table[0].any():
        raise CheckpointError(f"{name}: row 0 (the padding) must be zero: bilm-tf's format cannot store it")
    return table[1:]
