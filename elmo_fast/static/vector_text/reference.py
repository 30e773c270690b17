"""The definition, in plain Python: every line split at blanks, every number by float()."""

import re

import numpy as np
import torch
from torch import Tensor

BLANKS = rb"[ \t]+"
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST = float(np.finfo(np.float32).max) * (1 + 2.0**-25)  # from here on the nearest float32 is infinity


def is_number(field: bytes) -> bool:
    """Whether a field is decimal and finite as a float32."""
    return _NUMBER.fullmatch(field) is not None and abs(float(field)) < _LARGEST


def run(data: Tensor, dimension: int) -> tuple[Tensor, Tensor, tuple[int, int, int]]:
    """The matrix, the words' places, and the first bad line's number, start and end: -1, 0, 0 if all are good."""
    rows: list[list[float]] = []
    words: list[tuple[int, int]] = []
    begin = 0
    contents = data.numpy().tobytes().split(b"\n")
    while contents and not _bare(contents[-1]):
        contents.pop()
    for number, content in enumerate(contents):
        line = _bare(content)
        fields = re.split(BLANKS, line)
        last = [is_number(field) for field in fields[-dimension:]]
        if not fields[0] or len(last) < dimension or not all(last) or not _is_word(fields[:-dimension]):
            return torch.empty(0, dimension), torch.empty(0, 2), (number, begin, begin + len(line))
        numbers = re.search(BLANKS + BLANKS.join(map(re.escape, fields[-dimension:])) + rb"\Z", line)
        assert numbers is not None
        words.append((begin, begin + numbers.start()))
        rows.append([float(field) for field in fields[-dimension:]])
        begin += len(content) + 1
    matrix = torch.tensor(rows, dtype=torch.float64, device="cpu").view(-1, dimension).float()
    return matrix, torch.tensor(words, dtype=torch.int64, device="cpu").view(-1, 2), (-1, 0, 0)


def _bare(line: bytes) -> bytes:
    """A line without its line break and the blanks before that."""
    return line.removesuffix(b"\r").rstrip(b" \t")


def _is_word(fields: list[bytes]) -> bool:
    return len(fields) == 1 or (len(fields) > 1 and not is_number(fields[-1]))


def write(words: Tensor, ends: Tensor, matrix: Tensor) -> Tensor:
    text, begin, lines = words.numpy().tobytes(), 0, []
    for end, row in zip(ends.tolist(), matrix.numpy(), strict=True):
        lines.append(b" ".join([text[begin:end], *(str(value).encode() for value in row)]) + b"\n")
        begin = end
    return torch.frombuffer(bytearray(b"".join(lines)), dtype=torch.uint8) if lines else words.new_empty(0)
