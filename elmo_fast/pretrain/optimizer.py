"""The optimizers: TensorFlow's AdaGrad with row updates for tables, one clip over all gradients, the learning rate."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import (
    RowOrder,
    adagrad_,
    adagrad_rows_,
    backend_for,
    clip_scale,
    merged_square_norm,
    row_order,
    square_norm,
)
from elmo_fast.ops._table_rows import coalesced, coalesced_at_once
from elmo_fast.pretrain.config import OptimizerConfig
from elmo_fast.pretrain.language_model import LanguageModel


class AdaGrad(torch.optim.Adagrad):
    """AdaGrad as TensorFlow has it: `a += g²; w -= lr·g / √a`, with `a` starting above zero and no ε.

    Parameters are on one device and of one dtype. Dense gradients go through `ops.adagrad_`, which never waits for a
    GPU. A sparse gradient touches only its rows: the rows of one id are summed before they are squared (Duchi et al.
    2011; bilm-tf sums over directions and towers the same way).

    params: what to train; learning_rate: step size; initial_accumulator_value: where `a` starts, above 0; backend: of
    the ops, "auto", "native", "triton" or "reference".

    skipped: how many updates were left out because their `scale` was not finite, [] int64 on the device, or None
    before the first step with a scale.
    """

    skipped: Tensor | None = None

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        learning_rate: float = 0.2,
        initial_accumulator_value: float = 1.0,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__(params, learning_rate, initial_accumulator_value=initial_accumulator_value, eps=0.0)
        self.backend = backend

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as torch does; ElmoFastError for one with an ε, a decay or `maximize`, which no update here has.

        The learning rate and the sums are the state's.
        """
        names = ("eps", "lr_decay", "weight_decay", "maximize")
        for group in state_dict["param_groups"]:
            if foreign := {name: group[name] for name in names if group.get(name)}:
                raise ElmoFastError(
                    f"state_dict must be of elmo_fast's AdaGrad, without {', '.join(names)}; got {foreign}: go on with "
                    "torch.optim.Adagrad, or give this one the sums alone"
                )
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def step(self, *, scale: Tensor | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; gradients are left as they are. scale: as of `update`."""
        self.update(scale=scale)
        self.count_step()

    def count_step(self) -> None:
        """Count a step of all parameters in the optimizer's state, on the host: `update` may be a graph's."""
        if counts := [state["step"] for state in self.state.values() if state]:
            torch._foreach_add_(counts, 1)

    @torch.no_grad()
    def update(
        self,
        *,
        scale: Tensor | None = None,
        orders: Mapping[Tensor, RowOrder] | None = None,
        rates: Tensor | None = None,
    ) -> None:
        """Update as `step`, which also counts; a function of tensors that a CUDA graph can hold.

        scale: factor of all gradients, [] on their device; one that is not finite leaves all weights as they are and is
        counted in `skipped`; orders: `ops.row_order` of sparse gradients, if already computed; rates: learning rate of
        each group, [G] float32 on the device, None: that of the group.
        """
        if scale is not None:
            if self.skipped is None:
                self.skipped = torch.zeros((), dtype=torch.int64, device=scale.device)
            self.skipped += (scale - scale).ne(0)  # NaN where it is not finite, in fewer launches than isfinite
        numbers = [group["lr"] for group in self.param_groups] if rates is None else rates.unbind(0)
        for group, rate in zip(self.param_groups, numbers, strict=True):
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            dense = list[tuple[Tensor, Tensor, Tensor]]()
            for parameter in trained:
                accumulator, gradient = self.state[parameter]["sum"], parameter.grad
                if gradient.is_sparse:
                    ids, rows = gradient._indices()[0], gradient._values()
                    order = (orders or {}).get(parameter)
                    adagrad_rows_(parameter, accumulator, ids, rows, rate, scale, order=order, backend=self.backend)
                else:
                    dense.append((parameter, accumulator, gradient))
            if dense:
                weights, sums, gradients = (list(column) for column in zip(*dense, strict=True))
                adagrad_(weights, sums, gradients, rate, scale, backend=self.backend)


@torch.no_grad()
def clip_and_update(
    optimizer: AdaGrad,
    params: Iterable[Tensor],
    max_norm: float,
    tables: Sequence[Sequence[Tensor]] = (),
    rates: Tensor | None = None,
) -> Tensor:
    """Do what `clip_and_step` does, but count no step, as a function of tensors; return the norm, [].

    The host reads nothing of a GPU: `AdaGrad.skipped` counts the updates left out. It scales as it updates, not in a
    pass of its own. rates: as of `AdaGrad.update`; tables: parameters whose gradients have the same ids, which are then
    sorted once.
    """
    trained = [parameter for parameter in params if parameter.grad is not None]
    for parameter in trained if optimizer.backend == "auto" else ():  # merged once, for norm and update
        if (gradient := parameter.grad) is not None and gradient.is_sparse and coalesced_at_once(gradient.device):
            parameter.grad = coalesced(gradient)
    total, orders = _global_norm(trained, optimizer.backend, tables)
    optimizer.update(scale=clip_scale(total, max_norm), orders=orders, rates=rates)
    return total


@torch.no_grad()
def clip_and_step(
    optimizer: torch.optim.Optimizer,
    params: Iterable[torch.nn.Parameter],
    max_norm: float,
) -> float:
    """Update with all gradients scaled by `max_norm / max(norm, max_norm)`; return the norm before the clip.

    The norm is the root of the sum of squares of all gradients together; a sparse gradient counts with its merged rows.
    Without a finite norm the update is left out. The host reads the norm.
    """
    trained = [parameter for parameter in params if parameter.grad is not None]
    norm = float(_global_norm(trained, "auto")[0])
    if not math.isfinite(norm):
        return norm
    if norm > max_norm:
        gradients: Any = [p.grad._values() if p.grad.is_sparse else p.grad for p in trained]  # type: ignore[union-attr]
        torch._foreach_mul_(gradients, max_norm / norm)
    optimizer.step()
    return norm


def _global_norm(
    parameters: Sequence[Tensor], backend: str, tables: Sequence[Sequence[Tensor]] = ()
) -> tuple[Tensor, dict[Tensor, RowOrder]]:
    """Return the norm of all gradients, [] on their device, and the orders in which sparse ones were merged."""
    if not parameters:
        return torch.zeros((), device="cpu"), {}
    squares, dense, orders = list[Tensor](), list[Tensor](), dict[Tensor, RowOrder]()
    others = {parameter: table for table in tables for parameter in table}
    for parameter in parameters:
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse and not gradient.is_coalesced():
            ids, words = gradient._indices()[0], parameter.shape[0]
            known = [orders[each] for each in others.get(parameter, ()) if each in orders]
            order = orders[parameter] = known[0] if known else row_order(ids, words)
            squares.append(merged_square_norm(ids, gradient._values(), words, order=order, backend=backend))
        else:
            dense.append(gradient._values() if gradient.is_sparse else gradient)
    if dense:
        squares.append(square_norm(dense, backend=backend))
    return torch.stack(squares).sum().sqrt(), orders


def make_optimizer(config: OptimizerConfig, model: LanguageModel) -> torch.optim.Optimizer:
    """Return AdaGrad as bilm-tf has it, which updates only used rows of the tables, or torch's AdamW."""
    rate, trained = config.rate, [parameter for _, parameter in model.trained()]
    if config.optimiser == "adagrad":
        with torch.device("cpu"):  # where torch creates the number of steps
            backend = backend_for("adagrad", model.backend)
            return AdaGrad(trained, rate, config.initial_accumulator_value, backend=backend)
    return torch.optim.AdamW(trained, rate, weight_decay=config.weight_decay, fused=True)


def rate_of_step(config: OptimizerConfig, total_steps: int, step: int) -> float:
    """Return the learning rate of step `step` (from 0), as `schedule` says: it has no state."""
    warmup, end = config.warmup_steps, config.final_share
    if step < warmup:
        return config.rate * ((step + 1) / (warmup + 1))
    if config.schedule == "constant":
        return config.rate
    gone = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    left = 1 - gone if config.schedule == "linear" else (1 + math.cos(math.pi * gone)) / 2
    return config.rate * (end + (1 - end) * left)
