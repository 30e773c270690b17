"""C++ on the CPU: the lines are divided among torch's threads."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._native import describe


def run(data: Tensor, dimension: int) -> tuple[Tensor, Tensor, tuple[int, int, int]]:
    """The matrix, the words' places, and the first bad line's number, start and end: -1, 0, 0 if all are good."""
    matrix, words, fault = torch.ops.elmo_fast.read_vector_text(data, dimension)
    line, begin, end = fault.tolist()
    return matrix, words, (line, begin, end)


def write(words: Tensor, ends: Tensor, matrix: Tensor) -> Tensor:
    text: Tensor = torch.ops.elmo_fast.write_vector_text(words, ends, matrix)
    return text


def _fake_read(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows, new = torch.library.get_ctx().new_dynamic_size(), a.data.new_empty
    return new(rows, a.dimension, dtype=torch.float32), new(rows, 2, dtype=torch.int64), new(3, dtype=torch.int64)


describe("read_vector_text", _fake_read)
describe("write_vector_text", lambda a: a.words.new_empty(torch.library.get_ctx().new_dynamic_size()))
