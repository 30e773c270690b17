"""char_cnn with Triton's forward pass and a backward pass in CUDA C++.

The backward pass adds each gradient once per position of its window, not once per number of the window's embeddings
(csrc/char_cnn/backward.h).
"""

import torch
from torch import Tensor

from elmo_fast.ops import _native, _triton
from elmo_fast.ops._autograd import requires_grad
from elmo_fast.ops.char_cnn import triton
from elmo_fast.ops.char_cnn.native import BACKWARD, fake
from elmo_fast.ops.char_cnn.op import CharCNNArguments

MOST_WIDTHS, MOST_CHARACTERS = 32, 1056  # limits of one launch; four passes over the rows


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """Explain in one sentence why Triton or the extension cannot serve these, or return None."""
    return _native.cuda_unsupported(device, dtype, precision) or _triton.unsupported(device, dtype, precision)


def run(a: CharCNNArguments) -> Tensor:
    """Run elmo_fast.ops.char_cnn.

    If the alphabet is so large that most sums would be empty, the backward pass is Triton's.
    """
    save = requires_grad(a.embedding, *a.weights, *a.biases)
    if not save or len(a.weights) > MOST_WIDTHS or a.embedding.shape[0] > MOST_CHARACTERS:
        return triton.run(a)
    return _forward_op(*a, save)[0]


if _native.has("char_cnn_cuda_backward"):
    _forward_op = _triton.define(
        f"char_cnn_for_cuda{triton.SCHEMA}",
        triton.forward,
        fake,
        BACKWARD._replace(op="elmo_fast::char_cnn_cuda_backward"),
    )
