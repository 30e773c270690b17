"""char_cnn: the context-free features of a word, from its characters."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.op_choices import ACTIVATIONS
from elmo_fast.ops._autograd import register_op, requires_grad
from elmo_fast.ops._checks import (
    check_count,
    check_device,
    check_dtype,
    check_same,
    check_shapes,
    check_values,
    checked,
    described,
)
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._packed import PackedWeights, pack
from elmo_fast.ops._precision import rounded, under_autocast
from elmo_fast.ops._table_rows import first_rows

MOST_SLOTS = torch.iinfo(torch.int16).max  # a winner, the first slot of a window, is stored as such a number


def char_cnn(
    ids: Tensor,
    embedding: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    *,
    activation: str = "relu",
    precision: str = "float32",
    count: Tensor | None = None,
    packed: PackedWeights | None = None,
    backend: str = "auto",
) -> Tensor:
    """Compute word features: character embedding, a convolution per width, maximum over all windows, activation.

        x = embedding[ids]                                                  [N, C, E]
        y_k[n, f, t] = bias_k[f] + sum_{e, j < k} weight_k[f, e, j] x[n, t + j, e]     t = 0 .. C-k
        features = concat_k activation(max_t y_k[n, :, t])                  [N, F], F = sum of n_k

    The maximum is over all windows of the C slots, even those entirely in padding, as in the published models.
    Of windows that tie, the first passes the gradient.

    Args:
        ids: rows of `embedding`, one per slot, [N, C] int64|int32, any strides; padding is an id like any other. On a
            GPU, where ids are not validated, "triton" returns NaN features for a word with an id outside of it.
        embedding: one vector per character, [characters, E] float32|float64.
        weights: one per width k, [n_k, E, k], k <= C, dtype of `embedding`.
        biases: one per width, [n_k].
        activation: "relu" or "tanh".
        precision: dtype to which the operands of the products are rounded: "bfloat16", "float16", or "float32" (not at
            all; "int8" means the same here, as it is for the layers after this one); under torch.autocast "float32"
            means autocast's dtype.
        count: number of rows to compute, [] int64 on the device of `ids`; the features of later rows are 0 and pass no
            gradient (None: all N).
        packed: holds copies of the weights as kernels read them between calls, for inference; None: made at each call.
        backend: "auto", "native", "triton" or "reference".

    Returns:
        features, [N, F], dtype of `embedding`, in the order of `weights`.

    Raises:
        ElmoFastError: a wrong shape, dtype, device, activation, precision or backend, or an id outside `embedding`.

    Source: Kim et al. 2016, "Character-Aware Neural Language Models", section 2.2; Peters et al. 2018, section 3.
    """
    op = "char_cnn"
    check_choice(f"{op}: activation", activation, ACTIVATIONS)
    check_dtype(op, "ids", ids, torch.int64, torch.int32)
    if len(weights) != len(biases) or not weights:
        raise ElmoFastError(
            f"{op}: weights and biases must have one tensor per width each; got {len(weights)} and {len(biases)}"
        )
    shaped = [("ids", ids, "N C"), ("embedding", embedding, "characters E")]
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        shaped += [(f"weights[{i}]", weight, f"filters{i} E width{i}"), (f"biases[{i}]", bias, f"filters{i}")]
    check_shapes(op, *shaped)
    check_same(op, "embedding, weights and biases", [embedding, *weights, *biases], floating=True)
    check_device(op, "ids and embedding", ids, embedding)
    for i, weight in enumerate(weights):
        if not 1 <= weight.shape[2] <= ids.shape[1]:
            raise ElmoFastError(
                f"{op}: the width of weights[{i}] must be from 1 to {ids.shape[1]} (slots of ids); got "
                f"{described(weight)}"
            )
    last = embedding.shape[0] - 1
    check_values(op, "ids", ids, last, "lie from 0 to {}, the rows of embedding")
    if count is not None:
        check_count(op, "ids", count, ids)
    precision, _, no_autocast = under_autocast("float32" if precision == "int8" else precision, embedding.device)
    backend = select(op, backend, embedding.device, embedding.dtype, precision)
    weights, biases, tanh = list(weights), list(biases), activation == "tanh"
    with no_autocast:
        if backend == "reference":
            run = checked(op, reference)
            return run(ids, embedding, weights, biases, count, tanh, precision)
        if ids.shape[1] > MOST_SLOTS:
            raise ElmoFastError(
                f"{op}: kernels take ids of at most {MOST_SLOTS:,} slots; got {described(ids)}; "
                'use backend="reference" or truncate the words'
            )
        run, save = registered_op(op, backend), requires_grad(embedding, *weights, *biases)
        if backend == "native":
            copied = functools.partial(pack, precision, filters=weights)
            copies = None if packed is None else packed.of(precision, weights, copied)
            features = run(ids, embedding, weights, biases, None, tanh, precision, save, copies)[0]
            return features if count is None else first_rows(features, count)
        copies = None
        if packed is not None and not save:
            from elmo_fast.ops.char_cnn import kernels

            copied = functools.partial(kernels.pack, embedding, weights, precision)
            copies = packed.of(precision, [embedding, *weights], copied)
        return run(ids, embedding, weights, biases, count, tanh, precision, save, copies)[0]


def reference(
    ids: Tensor,
    embedding: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    count: Tensor | None,
    tanh: bool,
    precision: str,
) -> Tensor:
    """Compute char_cnn in plain torch: the definition."""
    characters = F.embedding(ids, rounded(embedding, precision)).transpose(1, 2)  # [N, E, C]
    maxima = []
    for weight, bias in zip(weights, biases, strict=True):
        windows = _convolved(characters, rounded(weight, precision), bias)  # [N, n_k, C-k+1]
        maxima.append(windows.max(dim=2).values)
    features = torch.cat(maxima, dim=1)
    return first_rows(torch.tanh(features) if tanh else torch.relu(features), count)


def _convolved(characters: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.numel():
        return F.conv1d(characters, weight, bias)
    # torch's convolution rejects zero filters, and drops the bias if there are zero dimensions.
    return torch.einsum("newk,fek->nfw", characters.unfold(2, weight.shape[2], 1), weight) + bias[:, None]


def _fake(a: Any) -> Tensor:
    return a.embedding.new_empty(a.ids.shape[0], sum(weight.shape[0] for weight in a.weights))


register_op(
    "char_cnn", _fake, lambda a: [_fake(a).short()],  # the window that gave each feature
    products=lambda a: sum(len(a.ids) * (a.ids.shape[1] - w.shape[2] + 1) * w.numel() for w in a.weights),
)  # fmt: skip
register("char_cnn", "native", "triton", kernels="elmo_fast.ops.char_cnn.kernels", int8=True)
