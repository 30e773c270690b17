"""read_vector_text and write_vector_text: lines that were damaged, numbers of every form; bit by bit the same."""

import random

import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.static.vector_text import read_vector_text, write_vector_text
from tests.fuzz.damage import damaged
from tests.fuzz.judge import Wrong, sentence
from tests.fuzz.tensors import threads

NUMBERS = (b"0", b"-1.5", b"1e-45", b"3.4028236e38", b"1e39", b"-0", b".5", b"5.", b"+1", b"1e", b"0x1p3", b"inf",
           b"nan", b"1_0", b"1e-400", b"00012", b"123456789012345678901234567890", b"1e+05", b"--1",
           b"1.17549435e-38")  # fmt: skip


def case(rng: random.Random) -> None:
    threads(rng)
    width = rng.randrange(1, 5)
    few = NUMBERS[:4] + NUMBERS[5:9]
    lines = [
        b" ".join(
            (rng.choice((b"the", "é".encode(), b"a b", b"x" * 300, b"7")), *(_number(rng, few) for _ in range(width)))
        )
        for _ in range(rng.randrange(12))
    ]
    data = b"".join(line + rng.choice((b"\n", b"\n", b"\r\n", b" \n", b"\t\r\n", b"\r\r\n")) for line in lines)
    data = damaged(rng, data) if rng.random() < 0.7 else data
    found = []
    for backend in ("native", "reference"):
        try:
            matrix, words = read_vector_text(_bytes(data), width, backend=backend)
            found.append((matrix.shape, matrix.view(torch.int32).tolist(), words.tolist()))
        except ElmoFastError as error:
            sentence(str(error))
            found.append(str(error))
    if found[0] != found[1]:
        raise Wrong(f"read_vector_text: native and reference differ: {str(found[0])[:200]} and {str(found[1])[:200]}")
    if not isinstance(found[0], str):
        _written(data, matrix, words)


def _bytes(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _number(rng, few):
    if rng.random() < 0.5:
        return rng.choice(few if rng.random() < 0.9 else NUMBERS)
    return repr(rng.uniform(-2, 2) * 10.0 ** rng.randrange(-12, 12))[: rng.randrange(3, 22)].encode()


def _written(data, matrix, words):
    """What was read is written and read again, bit by bit."""
    together = b"".join(data[a:b] for a, b in words.tolist())
    ends = torch.tensor([b - a for a, b in words.tolist()], dtype=torch.int64).cumsum(0)
    text = _bytes(together)
    refused = []
    for backend in ("native", "reference"):
        try:
            written = write_vector_text(text, ends, matrix, backend=backend)
        except ElmoFastError as error:
            sentence(str(error))
            refused.append(backend)
            continue
        again = read_vector_text(written, matrix.shape[1]).matrix
        if not torch.equal(again.view(torch.int32), matrix.view(torch.int32)):
            raise Wrong(f"write_vector_text: what was written is read as other numbers ({backend})")
    if len(refused) == 1:
        raise Wrong(f"write_vector_text: {refused[0]} alone refuses")
