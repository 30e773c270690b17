"""The datasets that the options require of bilm-tf's weights, and their shapes (bilm_layout explains the names)."""

from collections.abc import Mapping
from typing import Any

from ._complaints import Shape
from .options import COUNTED, ElmoOptions

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
