"""full_softmax: cross entropy against the whole vocabulary, without ever holding all logits."""

from typing import Any

from torch import Tensor

from elmo_fast.ops._autograd import Backward, describe, requires_grad
from elmo_fast.ops._checks import check_output_layer, check_tensor
from elmo_fast.ops._dispatch import checked, kernel, register, select
from elmo_fast.ops._precision import under_autocast
from elmo_fast.ops.full_softmax import reference


def full_softmax(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    chunk_bytes: int = 32 * 2**20,
    precision: str = "float32",
    backend: str = "auto",
) -> Tensor:
    """Compute the cross entropy of each row over all V words, by a log-sum-exp over blocks of words.

        loss_n = ln(sum_v exp(h_n · w_v + b_v)) - (h_n · w_t + b_t)            t = targets_n

    At most `chunk_bytes` of logits exist at a time; the backward pass computes them again, block by block. On a GPU the
    forward pass writes no logits, and `chunk_bytes` bounds the rounded copy of a part of the table.

    Args:
        hidden: h, [N, D]
        targets: [N] int64, words of the table
        weight: the softmax table w, [V, D]
        bias: b, [V]
        chunk_bytes: bound for the logits, bytes (Triton: at least one tile of them)
        precision: dtype to which hidden and table are rounded for the products; under torch.autocast "float32" means
            autocast's dtype
        backend: "auto", "native", "triton" or "reference"

    Returns:
        losses: [N], dtype of hidden, nats; exp of their mean is the perplexity

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not fit; a target outside the table (on a GPU, where values
            are not validated, its loss is NaN instead).

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax.
    """
    op = "full_softmax"
    check_tensor("full_softmax", "hidden", hidden)
    precision, cast, no_autocast = under_autocast(precision, hidden.device)
    hidden = cast(hidden)
    check_output_layer(op, hidden, targets, weight, bias, chunk_bytes)
    backend = select(op, backend, hidden.device, hidden.dtype, precision)
    with no_autocast:
        if backend == "reference":
            return checked(op, reference.full_softmax)(hidden, targets, weight, bias, precision, chunk_bytes)
        save = requires_grad(hidden, weight, bias)
        return kernel(op, backend)(hidden, targets, weight, bias, precision, chunk_bytes, save)[0]


def _native_saved(a: Any) -> list[Tensor]:
    return [a.hidden.new_empty(a.hidden.shape[0], 2)]


describe("full_softmax", lambda a: a.hidden.new_empty(a.hidden.shape[0]), Backward(), _native_saved)
register("full_softmax", "native", "triton", kernels="elmo_fast.ops._vocabulary_loss_kernels")
