"""Launches of dropout's factors, for the inputs of two layers and the result of 128 rows of 20 steps."""

import torch

from elmo_fast.ops._kernels import launch_dropout


def launches():
    for label, threshold, seed, shape in (
        ("128 x 20", 2**32 // 10, 1, (6, 128, 20 * 512)),
        ("a large seed, a ragged row", 2**31, 2**40, (2, 1, 7)),
    ):
        yield (
            label,
            lambda threshold=threshold, seed=seed, shape=shape: launch_dropout(
                threshold, 1.1, seed, torch.empty(1, dtype=torch.int64), 0, shape
            ),
        )
