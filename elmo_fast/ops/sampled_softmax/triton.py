"""sampled_softmax in Triton: logits that are never written, their gradient in chunks that stay in L2, no host sync."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _softmax_triton
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._triton import Tiles, define
from elmo_fast.ops.log_uniform_sample.op import CORRECTIONS
from elmo_fast.ops.sampled_softmax.op import SampledSoftmaxArguments


def run(a: SampledSoftmaxArguments) -> Tensor:
    tries, device = a.tries, a.hidden.device
    if isinstance(tries, Tensor):
        tries = tries.to(device, torch.int64, non_blocking=True)
    else:
        tries = torch.full((), tries, dtype=torch.int64, device=device)
    return _op(*a._replace(tries=tries))[0]


def _forward(a: Any) -> tuple[Tensor, ...]:
    """Compute losses [N] and, for backward, log-sum-exps [N, 2], operands and words.

    The operands are of hidden [N, D] and of the samples' rows [S, D], with their offsets [S]; the words are all words
    [N + S], targets first.
    """
    d = _softmax_triton.gather("sampled_softmax", a, a.tries, a.correction, CORRECTIONS[a.correction], 2, 2)
    targets, sampled = d.ids.split([len(d.operands), len(d.rows)])
    parts = _softmax_triton.launch_log_sums(d.sums, d.operands, d.rows, d.offsets, targets, sampled, 0, d.tile)
    _softmax_triton.launch_merge(d.sums, parts, None, d.true, d.losses, d.kept, first=True)
    return d.losses, d.kept, d.operands, d.rows, d.offsets, d.ids


def _backward(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `_softmax_triton.gradients`; the logits of a chunk are computed again."""
    targets, sampled = a.ids.split([len(a.operands), len(a.rows)])

    def write(d: Tensor, sums: Tensor, first: int, rows: slice, scale: Tensor | None, tile: Tiles) -> None:
        start, n = rows.start, rows.stop - rows.start
        h, target, total, g = (x.narrow(0, start, n) for x in (a.operands, targets, a.totals, a.grad))
        _softmax_triton.launch_logit_gradients(
            d, sums, first, h, a.rows, a.offsets, target, sampled, 0, total, None, g, scale, tile
        )  # fmt: skip

    return _softmax_triton.gradients("sampled_softmax", a, a.losses, write, losses=True)


define(
    "sampled_softmax_backward(Tensor grad, Tensor losses, Tensor totals, Tensor operands, Tensor rows, "
    "Tensor offsets, Tensor ids, Tensor weight, bool sparse, int chunk_bytes) "
    "-> (Tensor hidden, Tensor weight, Tensor bias)",
    _backward,
)
_op = define(
    "sampled_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor tries, "
    "str correction, bool sparse, int chunk_bytes, str precision) "
    "-> (Tensor losses, Tensor totals, Tensor operands, Tensor rows, Tensor offsets, Tensor ids)",
    _forward,
    lambda a: _softmax_triton.fake(a, 2),
    Backward(shapes=_softmax_triton.row_shapes, finish=_softmax_triton.tables),
)
