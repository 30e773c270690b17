"""C++ on the CPU: the lines shared out among torch's threads."""

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported


def run(data: Tensor, dimension: int) -> tuple[Tensor, Tensor, tuple[int, int, int]]:
    """The matrix, the words' places, and the first bad line's number, begin and end: -1, 0, 0 when all are good."""
    matrix, words, fault = torch.ops.elmo_fast.read_vector_text(data, dimension)
    line, begin, end = fault.tolist()
    return matrix, words, (line, begin, end)


def write(words: Tensor, ends: Tensor, matrix: Tensor) -> Tensor:
    text: Tensor = torch.ops.elmo_fast.write_vector_text(words, ends, matrix)
    return text


if _native.C is not None:

    @torch.library.register_fake("elmo_fast::read_vector_text")
    def _fake_read(data: Tensor, dimension: int) -> tuple[Tensor, Tensor, Tensor]:
        rows = torch.library.get_ctx().new_dynamic_size()
        long = torch.int64
        return (
            data.new_empty(rows, dimension, dtype=torch.float32),
            data.new_empty(rows, 2, dtype=long),
            data.new_empty(3, dtype=long),
        )

    @torch.library.register_fake("elmo_fast::write_vector_text")
    def _fake_write(words: Tensor, ends: Tensor, matrix: Tensor) -> Tensor:
        return words.new_empty(torch.library.get_ctx().new_dynamic_size())
