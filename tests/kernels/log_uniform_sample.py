"""Launches of the sampler: the published vocabulary, and numbers that take 64 bits."""

import importlib

import torch

from elmo_fast.ops._schemas import arguments_of

kernels = importlib.import_module("elmo_fast.ops.log_uniform_sample.kernels")  # the package has a function of that name


def launches():
    for label, sizes in (
        ("8192 of 793471 words", (8192, 793_471, 1)),
        ("a large seed", (100, 10_000, 2**40)),
    ):
        yield (
            label,
            lambda sizes=sizes: kernels.sample(
                arguments_of("log_uniform_sample")(*sizes, torch.empty(1, dtype=torch.int64))
            ),
        )
