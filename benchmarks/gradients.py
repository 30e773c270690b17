"""Forward, or forward and backward, as one call."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def differentiated(
    forward: Callable[[], Tensor], leaves: Sequence[Tensor], *, train: bool = True
) -> Callable[[], tuple[Tensor, tuple[Tensor, ...]]]:
    """A call that returns what forward() does and, if `train`, the gradients of `leaves`, else ().

    The gradient of the output is random and depends on its shape alone, so that sides of a comparison have the same.
    """

    def run() -> tuple[Tensor, tuple[Tensor, ...]]:
        with torch.set_grad_enabled(train):
            outputs = forward()
            return outputs, torch.autograd.grad(outputs, leaves, cotangent) if train else ()

    cotangent = None
    if train:
        outputs = forward()
        generator = torch.Generator(outputs.device).manual_seed(1)
        cotangent = torch.randn(outputs.shape, device=outputs.device, generator=generator).to(outputs.dtype)
        del outputs  # and what its backward pass would have read
    return run
