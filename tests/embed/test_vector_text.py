"""vector_text: words and numbers from lines and back, to the last bit, and what is wrong with which line."""

import fractions
import random
import re
import unittest.mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_fast.embed.vector_text import is_read_back, read_vector_text, write_vector_text
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native

native = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
in_both = pytest.mark.parametrize(
    "extension", [pytest.param(_native.C, marks=native, id="C++"), pytest.param(None, id="Python")]
)


def read(content, dimension, extension=_native.C, **options):
    with unittest.mock.patch.object(_native, "C", extension):
        return read_vector_text(content, dimension, **options)


def write(words, matrix, extension=_native.C):
    with unittest.mock.patch.object(_native, "C", extension):
        return bytes(write_vector_text(words, matrix))


@in_both
def test_words_and_numbers(extension):
    """Blanks within words, at line ends and between numbers, \\r\\n, signs, exponents, no newline at the end."""
    content = b"the 0.5 -1 2e1\r\n. . . 1 2 3 \nnaive\xc2\xa0x\t-.5\t+7. 1E-2\nx  0 0  -0\n, 1 2 3"
    words, matrix = read(content, 3, extension)
    assert words == [b"the", b". . .", b"naive\xc2\xa0x", b"x", b","]
    expected = [[0.5, -1, 20], [1, 2, 3], [-0.5, 7, 0.01], [0, 0, -0.0], [1, 2, 3]]
    assert matrix.tobytes() == np.array(expected, np.float32).tobytes()


@in_both
@pytest.mark.parametrize("content", [b"", b"\n", b" \n\r\n"])
def test_no_lines(extension, content):
    words, matrix = read(content, 4, extension)
    assert words == []
    assert matrix.shape == (0, 4)
    assert write([], np.empty((0, 4), np.float32), extension) == b""


@in_both
@pytest.mark.parametrize("end", [b"\r\r\n", b"\r \n\n"])
def test_a_line_has_one_end_the_last_as_all_others(extension, end):
    """The rest of a second line end would belong to the number, which then is none."""
    for content in (b"a 1" + end, b"a 1" + end + b"b 2\n"):
        with pytest.raises(ElmoFastError, match="line 1: "):
            read(content, 1, extension)


@in_both
@given(
    numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=12),
    words=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), min_size=1, max_size=5
    ),
)
def test_what_is_written_is_read_back_bit_by_bit(extension, numbers, words):
    """Every float32, denormal and negative zero too, under words of any characters that text can hold."""
    names = [f"{word};".strip(" \t").encode() for word in words]
    assert all(map(is_read_back, names))
    matrix = np.array([numbers] * len(names), np.float32)
    actual, again = read(write(names, matrix, extension), len(numbers), extension)
    assert actual == names
    assert again.tobytes() == matrix.tobytes()


def nearest(text):
    """The float32 nearest to a decimal, ties to even, from exact arithmetic."""
    exact = fractions.Fraction(text)
    first = np.float32(float(exact))
    with np.errstate(over="ignore"):
        near = [
            x for x in (first, *(np.nextafter(first, np.float32(end)) for end in (-np.inf, np.inf))) if np.isfinite(x)
        ]
    return min(near, key=lambda x: (abs(fractions.Fraction(float(x)) - exact), int(x.view(np.int32)) & 1))


@native
def test_every_number_is_the_nearest_float32():
    """Digits of all lengths, and decimals near the middle of two floats, which rounding twice gets wrong."""
    draw = random.Random(0)
    texts = [f"{draw.uniform(-10, 10):.{draw.randint(0, 25)}f}" for _ in range(3000)]
    texts += [f"{draw.uniform(-1, 1):.{draw.randint(0, 18)}e}" for _ in range(500)]
    for _ in range(500):
        below = np.float32(draw.uniform(0.5, 0.9))
        middle = (fractions.Fraction(float(below)) + fractions.Fraction(float(np.nextafter(below, np.float32(99))))) / 2
        shift = draw.choice([-1, 0, 1])
        digits = 10**30 * middle.numerator // middle.denominator + shift
        texts.append(f"{digits // 10**30}.{digits % 10**30:030d}")
        # The nearest double is the middle itself, though these 16 digits are not.
        texts.append(f"0.{round(10**16 * middle):016d}")
    texts += ["1e-46", "0.7e-45", "0.71e-45", "3.4028235677e38", "0e999"]
    texts += ["16777217", "9007199254740993", "184467440737095516170"]
    texts += ["18446744073709551616.5", "0" * 40 + "1.5"]  # 2^64, where 64 bits of digits would begin at 0 again
    texts += ["0." + "0" * 20 + "111", "0." + "0" * 37 + "12345678"]  # the last one below the normal floats
    _, matrix = read(("w " + " ".join(texts)).encode(), len(texts))
    expected = np.array([nearest(text) for text in texts], np.float32)
    wrong = (matrix[0] != expected).nonzero()[0]
    assert [(texts[i], matrix[0, i], expected[i]) for i in wrong] == []


@native
def test_many_lines_on_two_threads():
    """Shares of lines meet without a gap: equal to what the reference reads and writes."""
    words = [f"w{i}".encode() for i in range(1000)]
    draw = np.random.default_rng(0)
    matrix = (draw.standard_normal((1000, 7)) * 10.0 ** draw.integers(-9, 9, (1000, 7))).astype(np.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        content = write(words, matrix)
        actual, again = read(content, 7)
        with pytest.raises(ElmoFastError, match="line 301: "):
            read(content.replace(b"\nw300 ", b"\nw300 1 2 3 4 5\nw "), 7)
    finally:
        torch.set_num_threads(before)
    assert actual == words
    assert np.array_equal(again, matrix)
    assert np.array_equal(read(content, 7, None)[1], matrix)


@in_both
@pytest.mark.parametrize(
    "line", ["", "b 3", "b", "b 3 4 5", "b 3 4x", "b 3 nan", "b 1e39 4", "b 3 \ufffd4", " 3 4", "b 3 4" + "x" * 60]
)
def test_a_bad_line_is_shown_with_its_number(extension, line):
    """Empty, too few or too many numbers, none, not finite, invalid UTF-8, a blank at the start, too long to show."""
    content = b"a 1 2\n" + line.encode().replace("\ufffd".encode(), b"\xff") + b"\nc 1 2\n"
    message = re.escape(repr(line if len(line) < 60 else line[:57] + "..."))
    with pytest.raises(
        ElmoFastError, match=rf"vectors.txt, line 12: wanted a word and 2 finite numbers of float32; found {message}"
    ):
        read(content, 2, extension, source="vectors.txt", first_line=11)


@native
def test_a_number_ends_with_the_text_whatever_lies_behind_it():
    """In memory a digit follows."""
    matrix, places, _ = _native.C.read_vector_text(np.frombuffer(b"a 15", np.uint8)[:3], 1)
    assert matrix.tolist() == [[1.0]]
    assert places.tolist() == [[0, 1]]


TEXT, MATRIX = np.frombuffer(b"a 1\n", np.uint8), np.ones((2, 3), np.float32)


def test_a_word_that_would_not_be_read_back_is_known():
    assert not any(map(is_read_back, [b"a b\n", b" a", b"a\t", b"x 12", b"\r", b"1 -1e3"]))
    assert is_read_back(b"good one")


@native
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.read_vector_text(TEXT, 0), ValueError, "dimension must be at least 1; got 0"),
        (lambda c: c.read_vector_text(TEXT[::2], 1), TypeError, "incompatible"),
        (lambda c: c.write_vector_text(TEXT, np.array([1, 5]), MATRIX), ValueError, "ends must rise from 0 to 4"),
        (lambda c: c.write_vector_text(TEXT, np.array([2, 1]), MATRIX), ValueError, "0 to 4; got 1"),
        (lambda c: c.write_vector_text(TEXT, np.array([-1, 1]), MATRIX), ValueError, "ends must rise"),
        (lambda c: c.write_vector_text(TEXT, np.array([1]), MATRIX), ValueError, "matrix must have a row for each"),
        (lambda c: c.write_vector_text(TEXT, np.array([1, 2]), MATRIX[0]), ValueError, "matrix must have a row"),
    ],
)  # fmt: skip
def test_memory_is_safe_where_the_kernels_are_called_alone(call, error, message):
    with pytest.raises(error, match=message):
        call(_native.C)
