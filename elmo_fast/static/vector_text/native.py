"""C++ on the CPU: the lines are divided among torch's threads."""

import torch
from torch import Tensor

from elmo_fast.ops import _native


def run(data: Tensor, dimension: int) -> tuple[Tensor, Tensor, tuple[int, int, int]]:
    """The matrix, the words' places, and the first bad line's number, start and end: -1, 0, 0 if all are good."""
    assert _native.C is not None
    matrix, words, fault = _native.C.read_vector_text(data.contiguous().numpy(), dimension)
    return torch.from_numpy(matrix), torch.from_numpy(words), fault


def write(words: Tensor, ends: Tensor, matrix: Tensor) -> Tensor:
    assert _native.C is not None
    return torch.from_numpy(_native.C.write_vector_text(words.numpy(), ends.numpy(), matrix.detach().numpy()))
