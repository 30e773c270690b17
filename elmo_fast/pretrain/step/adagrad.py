"""TensorFlow's AdaGrad, with row updates for tables whose gradient is sparse, and the clip before it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import RowOrder, adagrad_, adagrad_rows_, clip_scale
from elmo_fast.pretrain.step.clip import clip_by_global_norm, global_norm, host_reads_norm, norm_on_host

__all__ = ["AdaGrad", "clip_and_step", "clip_by_global_norm"]


class AdaGrad(torch.optim.Adagrad):
    """AdaGrad as TensorFlow has it: `a += g²; w -= lr·g / √a`, with `a` starting above zero and no ε.

    Dense gradients go through `ops.adagrad_`, which never waits for a GPU. A sparse gradient touches only its rows: the
    rows of one id are summed before they are squared (Duchi et al. 2011; bilm-tf sums over directions and towers the
    same way).

    params: what to train; learning_rate: step size; initial_accumulator_value: where `a` starts, above 0; backend: of
    the ops, "auto", "native", "triton" or "reference".

    skipped: how many updates were left out because their `scale` was not finite, [] int64 on the device, or None
    before the first step with a scale.
    """

    backend = "auto"
    skipped: Tensor | None = None

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        learning_rate: float = 0.2,
        initial_accumulator_value: float = 1.0,
        *,
        backend: str = "auto",
    ) -> None:
        trained = list(params)
        super().__init__(
            trained,
            lr=learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            eps=0.0,
            fused=True if all(p.device.type == "cpu" for p in trained) else None,
        )
        self.backend = backend

    @torch.no_grad()
    def step(  # type: ignore[override]
        self,
        closure: Callable[[], float] | None = None,
        *,
        scale: Tensor | float | None = None,
        orders: Mapping[Tensor, RowOrder] | None = None,
    ) -> float | None:
        """Updates every parameter that has a gradient; gradients are left as they are.

        scale: factor of all gradients, a number or a [] tensor on their device; a tensor that is not finite leaves all
        weights as they are and is counted in `skipped`; orders: `ops.row_order` of sparse gradients, if already
        computed.
        """
        loss = None if closure is None else torch.enable_grad()(closure)()
        self.update(scale, orders)
        self.count_step(p for group in self.param_groups for p in group["params"] if p.grad is not None)
        return loss

    @torch.no_grad()
    def update(
        self,
        scale: Tensor | float | None = None,
        orders: Mapping[Tensor, RowOrder] | None = None,
        learning_rate: Tensor | None = None,
    ) -> None:
        """What `step` does on the device, around which a CUDA graph may be captured.

        learning_rate: of all groups, [] on their device; None: each group's own.
        """
        if isinstance(scale, Tensor):
            if self.skipped is None:
                self.skipped = torch.zeros((), dtype=torch.int64, device=scale.device)
            self.skipped += (scale - scale).ne(0)  # NaN where it is not finite, in fewer launches than isfinite
        for group in self.param_groups:
            if extras := [name for name in ("eps", "lr_decay", "weight_decay", "maximize") if group[name]]:
                raise ElmoFastError(
                    f"AdaGrad: {' and '.join(extras)} must be 0 or false, as it has none; got others in a state_dict"
                )
            trained = [p for p in group["params"] if p.grad is not None]
            rate = group["lr"] if learning_rate is None else learning_rate
            if trained and trained[0].device.type != "cpu" and not isinstance(rate, Tensor):
                rate = torch.full((), rate, dtype=torch.float32, device=trained[0].device)  # once for all tensors
            self._update(trained, rate, scale, orders or {})

    def count_step(self, parameters: Iterable[Tensor]) -> None:
        """What `step` does on the host: counts one more for each of these, as torch's optimizers do."""
        for parameter in parameters:
            self.state[parameter]["step"] += 1

    def accumulator(self, parameter: Tensor) -> Tensor:
        """`a` of a parameter; created here for one that was added later, as torch's own step does."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["sum"] = torch.full_like(parameter, self.defaults["initial_accumulator_value"])
        sums: Tensor = state["sum"]
        return sums

    def _update(
        self,
        parameters: list[Tensor],
        learning_rate: float | Tensor,
        scale: Tensor | float | None,
        orders: Mapping[Tensor, RowOrder],
    ) -> None:
        dense: dict[tuple[torch.device, torch.dtype], list[tuple[Tensor, Tensor, Tensor]]] = {}
        for parameter in parameters:
            accumulator, gradient = self.accumulator(parameter), parameter.grad
            assert gradient is not None
            if gradient.is_sparse:
                ids, rows = gradient._indices()[0], gradient._values()
                order, factor = orders.get(parameter), _factor(scale, gradient)
                adagrad_rows_(
                    parameter, accumulator, ids, rows, learning_rate, factor, order=order, backend=self.backend
                )
            else:
                dense.setdefault((gradient.device, gradient.dtype), []).append((parameter, accumulator, gradient))
        for each in dense.values():
            weights, sums, gradients = (list(column) for column in zip(*each, strict=True))
            adagrad_(weights, sums, gradients, learning_rate, _factor(scale, gradients[0]), backend=self.backend)


def _factor(scale: Tensor | float | None, gradient: Tensor) -> Tensor | None:
    """The scale as a tensor: a number of the host's in the gradient's dtype."""
    return torch.tensor(scale, dtype=gradient.dtype, device=gradient.device) if isinstance(scale, float) else scale


@torch.no_grad()
def clip_and_step(
    optimizer: torch.optim.Optimizer,
    params: Iterable[torch.nn.Parameter],
    max_norm: float,
    tables: Sequence[Sequence[Tensor]] = (),
) -> float | Tensor:
    """`clip_by_global_norm`, then the optimizer's step; returns the norm before the clip.

    AdaGrad multiplies the gradients by the clip's factor as it updates, not in a pass of their own: they stay
    unchanged. If the norm is not finite, the update is left out. On a GPU the factor is read from the device
    (`AdaGrad.skipped` counts the updates left out); on the CPU the host reads the norm. tables: as `global_norm`'s.
    """
    trained = [parameter for parameter in params if parameter.grad is not None]
    if not isinstance(optimizer, AdaGrad):
        norm = clip_by_global_norm(trained, max_norm)
        # Other optimizers cannot skip an update on the device: the host reads the norm.
        if math.isfinite(norm):
            optimizer.step()
        return norm
    if host_reads_norm(trained, optimizer.backend):
        norm = norm_on_host(trained)
        if math.isfinite(norm):
            optimizer.step(scale=max_norm / norm if norm > max_norm else None)
        return norm
    total, orders = global_norm(trained, optimizer.backend, tables)
    optimizer.step(scale=clip_scale(total, max_norm), orders=orders)
    return total


@torch.no_grad()
def clip_and_update(
    optimizer: AdaGrad,
    params: Iterable[torch.nn.Parameter],
    max_norm: float,
    learning_rate: Tensor,
    tables: Sequence[Sequence[Tensor]] = (),
) -> Tensor:
    """`clip_and_step` on the device alone, for a CUDA graph; learning_rate: as `AdaGrad.update`'s; tables: as
    `global_norm`'s."""
    total, orders = global_norm([p for p in params if p.grad is not None], optimizer.backend, tables)
    optimizer.update(clip_scale(total, max_norm), orders, learning_rate)
    return total
