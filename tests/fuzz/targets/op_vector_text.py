"""read_vector_text and write_vector_text: lines that were damaged, numbers of every form; bit by bit the same."""

import random
import unittest.mock

import numpy as np

from elmo_fast.embed.vector_text import is_read_back, read_in_python, read_vector_text, write_vector_text
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native
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
    actual = []
    for read in (_native.C.read_vector_text, read_in_python):
        matrix, places, fault = read(np.frombuffer(data, np.uint8), width)
        actual.append((fault, matrix.shape, matrix.view(np.int32).tolist(), places.tolist()) if fault[0] < 0 else fault)
    if actual[0] != actual[1]:
        raise Wrong(f"read_vector_text: C++ and Python differ: {str(actual[0])[:200]} and {str(actual[1])[:200]}")
    try:
        words, matrix = read_vector_text(data, width)
    except ElmoFastError as error:
        sentence(str(error))
        return
    if not all(map(is_read_back, words)):
        raise Wrong("read_vector_text: a word that was read would not be read back")
    written = {bytes(write_vector_text(words, matrix))}
    with unittest.mock.patch.object(_native, "C", None):
        written.add(bytes(write_vector_text(words, matrix)))
    for text in written:
        again, numbers = read_vector_text(text, width)
        if again != words or not np.array_equal(numbers.view(np.int32), matrix.view(np.int32)):
            raise Wrong("write_vector_text: what was written is read otherwise")


def _number(rng, few):
    if rng.random() < 0.5:
        return rng.choice(few if rng.random() < 0.9 else NUMBERS)
    return repr(rng.uniform(-2, 2) * 10.0 ** rng.randrange(-12, 12))[: rng.randrange(3, 22)].encode()
