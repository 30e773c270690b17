"""negative_sampling in Triton: scores that are never written, their gradient in chunks in L2, no host sync."""

import math
from typing import Any

from torch import Tensor

from elmo_fast.ops import _softmax_triton
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._triton import Tiles, cdiv, define, launch
from elmo_fast.ops.negative_sampling import kernels
from elmo_fast.ops.negative_sampling.op import NegativeSamplingArguments


def run(a: NegativeSamplingArguments) -> Tensor:
    log_noise = None if a.log_noise is None else a.log_noise.detach()
    options = a.negatives, a.log_noise is not None, a.sparse, a.chunk_bytes, a.precision
    return _op(a.hidden, a.targets, a.weight, a.bias, a.samples, log_noise, *options)[0]


def _forward(a: Any) -> tuple[Tensor, ...]:
    """losses [N]; for backward: slopes of the targets' terms [N], operands of hidden [N, D] and of the samples' rows
    [S, D], their offsets [S], and all words [N + S], targets first."""
    law, correction, term = None, "none", 0.0
    if a.log_noise is not None:
        law, correction, term = a.log_noise.contiguous(), "noise", math.log(a.negatives)
    d = _softmax_triton.gather("negative_sampling", a, law, correction, term, 1, 1)
    (count, width), size = d.operands.shape, len(d.rows)
    parts = cdiv(size, d.tile.columns)
    launch(
        kernels.softplus_sums, (cdiv(count, d.tile.rows), parts), d.operands, d.rows, d.offsets, d.ids,
        d.ids.narrow(0, count, size), d.sums, count, size, width,
        COUNT_HITS=a.count_hits, **_softmax_triton.constants(d.tile, d.operands),
    )  # fmt: skip
    launch(
        kernels.finish, (cdiv(count, 32),), d.sums, d.true, d.losses, d.kept, count, parts, a.negatives / size,
        ROWS=32, PARTS=32,
    )  # fmt: skip
    return d.losses, d.kept, d.operands, d.rows, d.offsets, d.ids


def _backward(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """As `_softmax_triton.gradients`: the scores of a chunk are computed again."""
    (count, width), size = a.operands.shape, len(a.rows)
    share = a.negatives / size

    def write(d: Tensor, sums: Tensor, first: int, rows: slice, scale: Tensor | None, tile: Tiles) -> None:
        n = rows.stop - rows.start
        h, target, g = (x.narrow(0, rows.start, n) for x in (a.operands, a.ids, a.grad))
        launch(
            kernels.score_gradients, (cdiv(n, tile.rows), cdiv(size, tile.columns)), h, a.rows, a.offsets, target,
            a.ids.narrow(0, count, size), g, g.stride(0), share, scale, d, sums, first, n, size, width,
            COUNT_HITS=a.count_hits, **_softmax_triton.constants(tile, h),
        )  # fmt: skip

    # σ(s) times the share is what float16 has to hold: the share's power of two goes into the scale.
    lift = _softmax_triton.LIFT - math.ceil(math.log2(share))
    return _softmax_triton.gradients("negative_sampling", a, a.slopes, write, losses=False, lift=lift)


define(
    "negative_sampling_backward(Tensor grad, Tensor slopes, Tensor operands, Tensor rows, Tensor offsets, Tensor ids, "
    "Tensor weight, float negatives, bool count_hits, bool sparse, int chunk_bytes) "
    "-> (Tensor hidden, Tensor weight, Tensor bias)",
    _backward,
)
_op = define(
    "negative_sampling(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor? log_noise, "
    "float negatives, bool count_hits, bool sparse, int chunk_bytes, str precision) "
    "-> (Tensor losses, Tensor slopes, Tensor operands, Tensor rows, Tensor offsets, Tensor ids)",
    _forward,
    lambda a: _softmax_triton.fake(a, 1),
    Backward(shapes=_softmax_triton.row_shapes, finish=_softmax_triton.tables),
)
