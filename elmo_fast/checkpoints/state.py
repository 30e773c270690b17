"""The tensors that the options require of a state, what is wrong with a file's, and int8 weights.

The package's docstring explains the tensors' names. Weights of products as int8 take about a quarter of float32's size.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import refuse, shortened
from .options import ElmoOptions, LstmOptions

Shape = Sequence[int | None]
State = dict[str, Tensor]
DIRECTIONS = ("forward", "backward")
CHAR_EMBEDDING = "_token_embedder._char_embedding_weights"
WORD_EMBEDDING = "_word_embedding.weight"
LEXICON_WORDS = "_token_embedder._word_vectors"
SOFTMAX_WEIGHT, SOFTMAX_BIAS, SOFTMAX_COUNTS = "softmax.weight", "softmax.bias", "softmax.counts"
_MIX = re.compile(r"scalar_mix_(\d+)\.(gamma|scalar_parameters\.(\d+))")
PROJECTION = ("_token_embedder._projection.weight", "_token_embedder._projection.bias")
# What precision="int8" multiplies as int8 (docs/numerics.md), and the softmax, which is most of a pretrained model; the
# other tensors stay as they are.
_OF_PRODUCTS = re.compile(
    r"_token_embedder\._(highways\._layers\.\d+|projection)\.weight"
    r"|_elmo_lstm\.(forward|backward)_layer_\d+\.(input_linearity|state_linearity|state_projection)\.weight"
    r"|softmax\.weight"
)
_SCALE = ".scale"


def shape_text(shape: Shape) -> str:
    """[4, 8], with * for any size."""
    return f"[{', '.join('*' if size is None else str(size) for size in shape)}]"


def shape_complaints(actual: Mapping[str, Any], expected: Mapping[str, Shape]) -> list[str]:
    """Write a complaint per expected tensor that is missing or has a different shape.

    actual: what has a `shape`, by name; None in `expected` means any size above 0.
    """
    complaints = []
    for name, shape in expected.items():
        found = actual[name].shape or () if name in actual else None
        if (
            found is None
            or len(found) != len(shape)
            or not all(f == w or (f and w is None) for f, w in zip(found, shape, strict=True))
        ):
            text = "no such tensor" if found is None else shape_text(found)
            complaints.append(f"{name}: wanted shape {shape_text(shape)}, found {text}")
    return complaints


def float32(tensor: Tensor) -> Tensor:
    """Return a contiguous copy in float32."""
    return tensor.detach().cpu().to(torch.float32, copy=True).contiguous()


def finite_complaints(tensors: Mapping[str, Tensor]) -> list[str]:
    """One complaint per tensor that contains a NaN or an infinity."""
    complaints = []
    for name, tensor in tensors.items():
        if tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():  # one pass; NaN passes through
            bad = tensor.numel() - int(tensor.isfinite().sum())
            complaints.append(f"{name}: wanted finite numbers, found {bad} NaN or infinite of {tensor.numel()}")
    return complaints


def check_shapes(
    source: object, expected: Mapping[str, Shape], stored: Mapping[str, Any], others: Iterable[str] = ()
) -> None:
    """Raise CheckpointError naming `source` and every tensor of it that does not fit, before one is read.

    others: the names of stored tensors that the options should require and do not.
    """
    complaints = shape_complaints(stored, expected)
    complaints += [
        f"{shortened(str(name))}: shape {shape_text(stored[name].shape or ())}, but the options require no such tensor"
        for name in others
    ]
    if 3 * len(complaints) > len(expected):  # fewer look like damage, and speak for themselves
        complaints.insert(0, "the options may be of another model; give those of these weights")
    if complaints:
        refuse(source, complaints)


def conv_names(i: int) -> tuple[str, str]:
    """Weight and bias of the i-th width."""
    return f"_token_embedder.char_conv_{i}.weight", f"_token_embedder.char_conv_{i}.bias"


def highway_names(j: int) -> tuple[str, str]:
    """Weight and bias of the j-th highway."""
    return f"_token_embedder._highways._layers.{j}.weight", f"_token_embedder._highways._layers.{j}.bias"


def lstm_names(direction: str, layer: int) -> tuple[str, ...]:
    """Input weight, state weight, bias and projection of one layer and direction."""
    root = f"_elmo_lstm.{direction}_layer_{layer}"
    parts = ("input_linearity.weight", "state_linearity.weight", "state_linearity.bias", "state_projection.weight")
    return tuple(f"{root}.{part}" for part in parts)


def state_shapes(options: ElmoOptions, present: Collection[str]) -> dict[str, Shape]:
    """Name -> shape of every tensor that the options require, or that an incomplete part in `present` requires."""
    lstm = options.lstm
    width = lstm.projection_dim
    shapes = _encoder_shapes(options, present)
    shapes |= _joined_shapes(lstm) if lstm.joined else _lstm_shapes(lstm, present)
    if SOFTMAX_WEIGHT in present or SOFTMAX_BIAS in present:
        words = options.n_tokens_vocab
        rows = None if words is None else options.loss_kind.rows(words)
        shapes |= {SOFTMAX_WEIGHT: (rows, width), SOFTMAX_BIAS: (rows,)}
        if options.loss_kind.wants_counts:
            shapes[SOFTMAX_COUNTS] = (words,)
    mixes = {int(match[1]) for match in map(_MIX.fullmatch, present) if match}
    for k in sorted(mixes):
        shapes[f"scalar_mix_{k}.gamma"] = (1,)
        shapes |= {f"scalar_mix_{k}.scalar_parameters.{j}": (1,) for j in range(lstm.n_outputs + 1)}
    return shapes


def _lstm_shapes(lstm: LstmOptions, present: Collection[str]) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    width = lstm.projection_dim
    projected = lstm.dim != width or any(name.endswith(".state_projection.weight") for name in present)
    for direction in DIRECTIONS:
        for layer in range(lstm.n_layers):
            w_input, w_state, bias, projection = lstm_names(direction, layer)
            shapes |= {w_input: (4 * lstm.dim, width), w_state: (4 * lstm.dim, width), bias: (4 * lstm.dim,)}
            if projected:
                shapes[projection] = (width, lstm.dim)
    return shapes


def _joined_shapes(lstm: LstmOptions) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for layer in range(lstm.n_layers):
        inputs = 2 * lstm.dim if layer else lstm.projection_dim
        sizes: dict[str, Shape] = {"weight_ih": (4 * lstm.dim, inputs), "weight_hh": (4 * lstm.dim, lstm.dim)}
        sizes |= {"bias_ih": (4 * lstm.dim,), "bias_hh": (4 * lstm.dim,)}
        for end in (f"l{layer}", f"l{layer}_reverse"):
            shapes |= {f"_elmo_lstm.encoder.{part}_{end}": size for part, size in sizes.items()}
    width = lstm.projection_dim
    return shapes | {"_elmo_lstm.projection.weight": (width, lstm.dim), "_elmo_lstm.projection.bias": (width,)}


def _encoder_shapes(options: ElmoOptions, present: Collection[str]) -> dict[str, Shape]:
    width, cnn = options.lstm.projection_dim, options.char_cnn
    shapes: dict[str, Shape] = {}
    if options.reads_word_ids:
        rows = None if options.n_tokens_vocab is None else options.n_tokens_vocab + 1
        return {WORD_EMBEDDING: (rows, width)}
    if WORD_EMBEDDING in present:
        shapes[WORD_EMBEDDING] = (None, width)
    if options.lexicon is not None and options.lexicon.words:
        shapes[LEXICON_WORDS] = (len(options.lexicon.words) + 1, options.lexicon.word_dim)
    if cnn is not None:
        shapes[CHAR_EMBEDDING] = (options.n_character_rows, cnn.embedding_dim)
        for i, (kernel, number) in enumerate(cnn.filters):
            weight, bias = conv_names(i)
            shapes |= {weight: (number, cnn.embedding_dim, kernel), bias: (number,)}
        for j in range(cnn.n_highway):
            weight, bias = highway_names(j)
            shapes |= {weight: (2 * cnn.n_filters, cnn.n_filters), bias: (2 * cnn.n_filters,)}
    if options.n_features != width or any(name in present for name in PROJECTION):
        weight, bias = PROJECTION
        shapes |= {weight: (width, options.n_features), bias: (width,)}
    return shapes


def check_state(state: Mapping[str, Tensor], options: ElmoOptions, source: object = "state") -> None:
    """Raise CheckpointError, naming `source`, unless the state has what the options require, in finite float32."""
    shapes = state_shapes(options, state.keys())
    complaints = shape_complaints(state, shapes)
    for name in state.keys() - shapes.keys():
        complaints.append(f"{name}: the options require no such tensor (see n_layers, n_highway, filters)")
    if others := [name for name, tensor in state.items() if name in shapes and tensor.dtype != torch.float32]:
        complaints.append(
            f"wanted float32, found {str(state[others[0]].dtype).removeprefix('torch.')} ({len(others)} tensors, such "
            f"as {others[0]}); call .float() on the model before it is saved"
        )
    if not complaints and SOFTMAX_WEIGHT in state and len(state[SOFTMAX_WEIGHT]) != len(state[SOFTMAX_BIAS]):
        rows = len(state[SOFTMAX_WEIGHT])
        complaints.append(
            f"{SOFTMAX_BIAS}: wanted shape [{rows}], as {SOFTMAX_WEIGHT}, found [{len(state[SOFTMAX_BIAS])}]"
        )
    complaints = complaints or finite_complaints(state)
    if complaints:
        refuse(source, complaints)


def bilm_part(state: Mapping[str, Tensor]) -> State:
    """Return the state without its scalar mixes, which belong to a task, not to the language model."""
    return {name: tensor for name, tensor in state.items() if not _MIX.fullmatch(name)}


def to_int8(state: Mapping[str, Tensor]) -> State:
    """Return the state with each weight of products as int8 [N, K], and its scale, float32 [N], as NAME.scale.

    Row n of the weight is about `integers[n] * scale[n]`: scale = largest magnitude / 127.
    """
    rounded: State = {}
    for name, tensor in state.items():
        if not _OF_PRODUCTS.fullmatch(name):
            rounded[name] = tensor
            continue
        largest = tensor.detach().abs().amax(1, keepdim=True)
        times = torch.where(largest > 0, 127 / largest, 0.0)
        rounded[name] = (tensor.detach() * times).round().to(torch.int8)
        rounded[name + _SCALE] = largest[:, 0] / 127
    return rounded


def from_int8(state: State, source: Path) -> State:
    """Return the state in float32.

    Raises: CheckpointError if int8 weights and their scales do not fit each other.
    """
    integers = {name: tensor for name, tensor in state.items() if tensor.dtype == torch.int8}
    tensors = {name: each for name, each in state.items() if name.removesuffix(_SCALE) not in integers}
    for name, tensor in integers.items():
        scale = state.get(name + _SCALE)
        if scale is None or tensor.dim() != 2 or scale.shape != tensor.shape[:1] or scale.dtype != torch.float32:
            actual = "none" if scale is None else f"{str(scale.dtype).removeprefix('torch.')} {list(scale.shape)}"
            refuse(source, [f"{name}{_SCALE}: wanted float32 {list(tensor.shape[:1])}, found {actual}"])
        tensors[name] = tensor.float() * scale[:, None]
    return tensors
