"""TensorFlow's AdaGrad, with row updates for tables whose gradient is sparse, and one clip over all gradients."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


class AdaGrad(torch.optim.Adagrad):
    """AdaGrad as TensorFlow has it: `a += g²; w -= lr·g / √a`, with `a` starting above zero and no ε.

    Dense gradients go through torch's own (fused) update. A sparse gradient touches only its rows: the rows of one id
    are summed before they are squared (Duchi et al. 2011; bilm-tf sums over directions and towers the same way).

    params: what to train; learning_rate: step size; initial_accumulator_value: where `a` starts, above 0.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        learning_rate: float = 0.2,
        initial_accumulator_value: float = 1.0,
    ) -> None:
        trained = list(params)
        super().__init__(
            trained,
            lr=learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            eps=0.0,
            fused=True if all(p.device.type == "cpu" for p in trained) else None,
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Updates every parameter that has a gradient; gradients are left as they are."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        sparse = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    self._update_rows(parameter, parameter.grad.coalesce(), group["lr"])
                    sparse.append((parameter, parameter.grad))
                    parameter.grad = None
        try:
            super().step()
        finally:
            for parameter, gradient in sparse:
                parameter.grad = gradient
        return loss

    def _update_rows(self, parameter: Tensor, gradient: Tensor, learning_rate: float) -> None:
        ids, rows = gradient.indices()[0], gradient.values()
        accumulator = self.state[parameter]["sum"]
        sums = accumulator.index_select(0, ids).addcmul_(rows, rows)
        accumulator.index_copy_(0, ids, sums)
        parameter.index_add_(0, ids, torch.div(rows, sums.sqrt_(), out=sums), alpha=-learning_rate)


@torch.no_grad()
def clip_by_global_norm(params: Iterable[torch.nn.Parameter], max_norm: float) -> float:
    """Scales all gradients in place by `max_norm / max(norm, max_norm)` and returns the norm before.

    norm: the root of the sum of squares of all gradients together; a sparse gradient counts with its merged rows, and
    is left coalesced.
    """
    values = []
    for parameter in params:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            values.append(parameter.grad.values())
        else:
            values.append(parameter.grad)
    norm = torch.nn.utils.get_total_norm(values)
    if norm > max_norm:
        torch._foreach_mul_(values, float(max_norm / norm))
    return float(norm)
