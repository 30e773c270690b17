"""vector_text: words and numbers from lines and back, to the last bit, and what is wrong with which line."""

import fractions
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native
from elmo_fast.static.vector_text import read_vector_text, write_vector_text
from tests.backends import backends

BACKENDS = backends("vector_text", reference=True)
native = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))


def text_of(content):
    return torch.tensor(list(content), dtype=torch.uint8)


def read(content, dimension, **options):
    """The words as bytes, and the matrix."""
    matrix, words = read_vector_text(text_of(content), dimension, **options)
    return [content[a:b] for a, b in words.tolist()], matrix


def write(words, matrix, **options):
    ends = torch.tensor(np.cumsum([len(word) for word in words]), dtype=torch.int64)
    return bytes(write_vector_text(text_of(b"".join(words)), ends, matrix, **options).tolist())


@pytest.mark.parametrize("backend", BACKENDS)
def test_words_and_numbers(backend):
    """Blanks within words, at line ends and between numbers, \\r\\n, signs, exponents, no newline at the end."""
    content = b"the 0.5 -1 2e1\r\n. . . 1 2 3 \nnaive\xc2\xa0x\t-.5\t+7. 1E-2\nx  0 0  -0\n, 1 2 3"
    words, matrix = read(content, 3, backend=backend)
    assert words == [b"the", b". . .", b"naive\xc2\xa0x", b"x", b","]
    assert matrix.dtype == torch.float32
    assert torch.equal(matrix, torch.tensor([[0.5, -1, 20], [1, 2, 3], [-0.5, 7, 0.01], [0, 0, -0.0], [1, 2, 3]]))
    assert matrix[3, 2].signbit()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("content", [b"", b"\n", b" \n\r\n"])
def test_no_lines(backend, content):
    words, matrix = read(content, 4, backend=backend)
    assert words == []
    assert matrix.shape == (0, 4)
    assert write([], torch.empty(0, 4), backend=backend) == b""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("end", [b"\r\r\n", b"\r \n\n"])
def test_a_line_has_one_end_the_last_as_all_others(backend, end):
    """What is left of another one belongs to a number, and is none."""
    for content in (b"a 1" + end, b"a 1" + end + b"b 2\n"):
        with pytest.raises(ElmoFastError, match="line 1: "):
            read(content, 1, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=12),
    words=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), min_size=1, max_size=5
    ),
)
def test_what_is_written_is_read_back_bit_by_bit(backend, numbers, words):
    """Every float32, denormal and negative zero too, under words of any characters that text can hold."""
    names = [f"{word};".strip(" \t").encode() for word in words]
    matrix = torch.tensor([numbers] * len(names))
    found, again = read(write(names, matrix, backend=backend), len(numbers), backend=backend)
    assert found == names
    assert torch.equal(again.view(torch.int32), matrix.view(torch.int32))


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
    """Digits of all lengths, and decimals beside the middle of two floats, which rounding twice gets wrong."""
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
    texts += [
        "1e-46",
        "0.7e-45",
        "0.71e-45",
        "3.4028235677e38",
        "16777217",
        "9007199254740993",
        "0" * 40 + "1.5",
        "0e999",
    ]
    _, matrix = read(("w " + " ".join(texts)).encode(), len(texts), backend="native")
    wanted = np.array([nearest(text) for text in texts], np.float32)
    wrong = (matrix[0].numpy() != wanted).nonzero()[0]
    assert [(texts[i], matrix[0, i].item(), wanted[i]) for i in wrong] == []


@native
def test_many_lines_on_two_threads():
    """Shares of lines meet without a gap: equal to what the reference reads and writes."""
    words = [f"w{i}".encode() for i in range(1000)]
    matrix = torch.randn(1000, 7) * 10 ** torch.randint(-9, 9, (1000, 7)).float()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        content = write(words, matrix, backend="native")
        found, again = read(content, 7, backend="native")
        with pytest.raises(ElmoFastError, match="line 301: 5 numbers"):
            read(content.replace(b"\nw300 ", b"\nw300 1 2 3 4 5\nw "), 7, backend="native")
    finally:
        torch.set_num_threads(before)
    assert found == words
    assert torch.equal(again, matrix)
    assert torch.equal(read(content, 7, backend="reference")[1], matrix)


BAD_LINES = [
    (b"a 1 2\n\nb 3 4\n", r"vectors.txt, line 12: the line is empty; a word and 2 numbers are wanted"),
    (b"a 1 2\nb 3\n", "line 12: 1 numbers after the word"),
    (b"a 1 2\nb\n", "line 12: 0 numbers after the word"),
    (b"a 1 2\nb 3 4 5\n", "line 12: more numbers than that after the word"),
    (b"a 1 2\nb 3 4x\nc\n", "line 12: '4x' is not a finite number"),
    (b"a 1 2\nb 3 nan", "line 12: 'nan' is not a finite number"),
    (b"a 1 2\nb 1e39 4", "line 12: '1e39' is not a finite number"),
    (b"a 1 2\nb 3 \xff4", "line 12: '\ufffd4' is not a finite number"),
    (b"a 1 2\n 3 4\n", "line 12: the line begins with a blank"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("content", "message"), BAD_LINES)
def test_a_bad_line_is_named(backend, content, message):
    with pytest.raises(ElmoFastError, match=message):
        read(content, 2, source="vectors.txt", first_line=11, backend=backend)


@pytest.mark.parametrize("backend", ["native", "reference"] if _native.C is not None else ["reference"])
def test_a_number_ends_with_the_text_whatever_lies_behind_it(backend):
    """In memory a digit follows."""
    matrix, words = read_vector_text(text_of(b"a 15")[:3], 1, backend=backend)
    assert matrix.tolist() == [[1.0]]
    assert words.tolist() == [[0, 1]]


TEXT, MATRIX = np.frombuffer(b"a 1\n", np.uint8), np.ones((2, 3), np.float32)
BAD_WORDS = [b"a b\n", b" a", b"a\t", b"x 12", b"\r", b"1 -1e3"]


@pytest.mark.parametrize("word", BAD_WORDS)
def test_a_word_that_would_not_be_read_back_is_refused(word):
    with pytest.raises(ElmoFastError, match="of row 1 would not be read back from text"):
        write([b"good one", word, b"x"], torch.ones(3, 2))


@native
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.read_vector_text(TEXT, 0), ValueError, "dimension must be at least 1; got 0"),
        (lambda c: c.read_vector_text(TEXT.astype(int), 1), TypeError, "incompatible"),
        (lambda c: c.read_vector_text(TEXT[::2], 1), TypeError, "incompatible"),
        (lambda c: c.write_vector_text(TEXT, np.array([1, 5]), MATRIX), ValueError, "ends must rise from 0 to 4"),
        (lambda c: c.write_vector_text(TEXT, np.array([2, 1]), MATRIX), ValueError, "0 to 4; got 1"),
        (lambda c: c.write_vector_text(TEXT, np.array([-1, 1]), MATRIX), ValueError, "ends must rise"),
        (lambda c: c.write_vector_text(TEXT, np.array([1]), MATRIX), ValueError, "matrix must have a row for each"),
        (lambda c: c.write_vector_text(TEXT, np.array([1, 2]), MATRIX.T), TypeError, "incompatible"),
        (lambda c: c.write_vector_text(TEXT, np.array([1, 2]), MATRIX[0]), ValueError, "matrix must have a row"),
    ],
)  # fmt: skip
def test_memory_is_safe_where_the_kernels_are_called_alone(call, error, message):
    with pytest.raises(error, match=message):
        call(_native.C)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read_vector_text(torch.zeros(3), 2), r"data must be uint8; got shape \(3,\), float32"),
        (lambda: read_vector_text(text_of(b"a 1"), 0), "dimension must be 1 or more; got 0"),
        (
            lambda: read_vector_text(text_of(b"a 1"), 1, backend="cuda"),
            "backend must be one of auto, native, reference",
        ),
        (lambda: write([b"a"], torch.ones(2, 2)), r"ends must have shape \[N=2\]"),
        (lambda: write([b"a"], torch.ones(1, 2).double()), "matrix must be float32"),
        (lambda: write([b"a", b""], torch.ones(2, 2)), "ends must ascend from above 0"),
        (lambda: write([b"a"], torch.ones(1, 0)), "matrix must have one column or more"),
        (lambda: write([b"a", b"b"], torch.tensor([[1.0], [torch.inf]])), "row 1 of matrix contains NaN or infinity"),
    ],
)
def test_bad_arguments_say_what_was_wanted(call, message):
    with pytest.raises(ElmoFastError, match=message):
        call()
