"""Forward, or forward and backward, as one call."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def differentiated(
    forward: Callable[[], Any], leaves: Sequence[Tensor], *, train: bool = True
) -> Callable[[], tuple[Any, tuple[Tensor, ...]]]:
    """A call that returns what forward() does (a tensor, or a tuple) and, if `train`, the gradients of `leaves`.

    The gradient of an output is random and depends on its shape alone, so that sides of a comparison have the same.
    """

    def run() -> tuple[Any, tuple[Tensor, ...]]:
        with torch.set_grad_enabled(train):
            outputs = forward()
            return outputs, torch.autograd.grad(outputs, leaves, cotangents) if train else ()

    cotangents = []
    if train:
        outputs = forward()
        for each in outputs if isinstance(outputs, tuple) else (outputs,):
            generator = torch.Generator(each.device).manual_seed(1)
            cotangents.append(torch.randn(each.shape, device=each.device, generator=generator).to(each.dtype))
        del outputs, each  # and what their backward pass would have read
    return run
