"""The most exact dtype of each backend (Triton's kernels take float32 alone), and numbers that all devices share."""

import torch

from tests.support.tolerances import assert_close


def exact(backend):
    """The most exact dtype that a backend takes."""
    return torch.float32 if backend == "triton" else torch.float64


def assert_exactly(name, actual, truth, backend):
    """`assert_close` at that dtype."""
    assert_close(name, actual, truth, str(exact(backend)).removeprefix("torch."))


def fixed(like):
    """The same numbers on every device."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(1), device="cpu").to(like)
