"""adagrad_, adagrad_rows_, square_norm, merged_square_norm: any shapes, ids outside the table, scales."""

import random

import torch

from elmo_fast.ops import adagrad_, adagrad_rows_, merged_square_norm, row_order, square_norm
from tests.fuzz.tensors import compare, floating, kind, numbers, size, threads, whole


def case(rng: random.Random) -> None:
    threads(rng)
    dtype, values = floating(rng, "adagrad"), kind(rng)
    scale = rng.choice((None, 1.0, 0.3, 0.0, float("nan"), float("inf")))
    scale = None if scale is None else torch.tensor(scale, dtype=rng.choice((torch.float32, dtype)))
    rate = rng.choice((0.2, 0.0, 1e-3))
    if rng.random() < 0.4:
        shapes = [[size(rng, 20) for _ in range(rng.randrange(4))] for _ in range(rng.randrange(5))]
        _dense(rng, [numbers(rng, shape, values, dtype=dtype) for shape in shapes * 3], rate, scale)
        return
    words, width, count = size(rng, 50), size(rng, 30), size(rng, 80)
    flat = rng.random() < 0.3
    shape = [words] if flat else [words, width]
    ids = whole(rng, (count,), words + 2, low=-2, dtype=rng.choice((torch.int64, torch.int32)))
    order = row_order(ids, words) if rng.random() < 0.4 else None
    tensors = [numbers(rng, s, values, dtype=dtype) for s in (shape, shape, [count, *shape[1:]])]
    tensors[1] = tensors[1].abs() + (0.1 if values.scale == 1 else 0)

    def call(t, backend, precision):
        table, sums = t[0].detach().clone(), t[1].detach().clone()
        scaled = None if scale is None else scale.to(torch.float32 if scale.dtype == torch.float32 else table.dtype)
        norm = merged_square_norm(ids, t[2], words, order=order, backend=backend)
        adagrad_rows_(table, sums, ids, t[2].detach(), rate, scaled, order=order, backend=backend)
        return table, sums, norm

    compare("adagrad_rows_", call, tensors, rng, differentiate=False)


def _dense(rng, tensors, rate, scale):
    n = len(tensors) // 3
    tensors[n : 2 * n] = [t.abs() + 0.1 for t in tensors[n : 2 * n]]

    def call(t, backend, precision):
        weights, sums = ([each.detach().clone() for each in part] for part in (t[:n], t[n : 2 * n]))
        scaled = (
            None if scale is None or not t else scale.to(torch.float32 if scale.dtype == torch.float32 else t[0].dtype)
        )
        norms = [square_norm([each.detach() for each in t], backend=backend)] if t else []
        adagrad_(weights, sums, [each.detach() for each in t[2 * n :]], rate, scaled, backend=backend)
        return [*weights, *sums, *norms]

    if tensors:
        compare("adagrad_", call, tensors, rng, differentiate=False)
