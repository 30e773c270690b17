"""Operations of the ops' products, for torch.utils.flop_counter: two for each weight that a row meets."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._schemas import NAMESPACE, arguments_of


def _numbers(*weights: Tensor | None) -> int:
    return sum(weight.numel() for weight in weights if weight is not None)


def _of_samples(a: Any) -> int:
    samples = len(a.samples) if hasattr(a, "samples") else len(a.ids) - len(a.hidden)
    return a.hidden.numel() * (1 + samples)


# By the arguments of the op or, of the same names, of its backward pass. A path in a tree has its mean length.
_PRODUCTS: dict[str, Callable[[Any], int]] = {
    "matmul": lambda a: a.a.numel() * a.b.shape[1],
    "char_cnn": lambda a: sum(len(a.ids) * (a.ids.shape[1] - w.shape[2] + 1) * w.numel() for w in a.weights),
    "highway": lambda a: len(a.x) * _numbers(*a.weights, a.projection_weight),
    "projected_lstm": lambda a: a.inputs[0].shape[:2].numel() * _numbers(*a.weight_ih, *a.weight_hh, *a.weight_hr),
    "full_softmax": lambda a: len(a.hidden) * a.weight.numel(),
    "sampled_softmax": _of_samples,
    "negative_sampling": _of_samples,
    "hierarchical_softmax": lambda a: a.hidden.numel() * len(a.nodes) // (len(a.weight) + 1),
}


def _register(op: str, products: Callable[[Any], int]) -> None:
    """Register a formula; a backward pass has as many products again for each kind of gradient that is needed."""

    def formula(*values: Any, out_val: Any = None, **named: Any) -> int:
        a = arguments_of(op)(*values, **named)
        needed = [value for name, value in a._asdict().items() if name.startswith("need_") and name != "need_h0"]
        return 2 * products(a) * (sum(needed) if needed else 1 + op.endswith("_backward"))

    register_flop_formula(getattr(getattr(torch.ops, NAMESPACE), op), get_raw=True)(formula)


# Where Triton is missing, torch's module warns as it is imported, of kernels that nobody has there.
_log = logging.getLogger("torch.utils.flop_counter")
_log.disabled = True
from torch.utils.flop_counter import register_flop_formula  # noqa: E402

_log.disabled = False
for _op, _products in _PRODUCTS.items():
    _register(_op, _products)
    if _op != "matmul":
        _register(f"{_op}_backward", _products)
