"""vector_text: the lines of GloVe's and word2vec's text files as words and a matrix, and back."""

import re
from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError, shortened
from elmo_fast.ops._checks import check_dtype, check_shape, given
from elmo_fast.ops._dispatch import select
from elmo_fast.static.vector_text.reference import BLANKS, is_number


class VectorText(NamedTuple):
    """The vectors of N lines of text, and the places of their words in it."""

    matrix: Tensor
    """the vectors, [N, D] float32"""
    words: Tensor
    """where each line's word starts and ends in the text, [N, 2] int64"""


def read_vector_text(
    data: Tensor, dimension: int, *, source: str = "the text", first_line: int = 1, backend: str = "auto"
) -> VectorText:
    r"""Word vectors from text: per line a word and D decimal numbers, separated by blanks.

        the 0.418 0.24968 -0.41242 ...

    Numbers are rounded to the nearest float32. A word may contain blanks ("to name@domain.com" in GloVe's files): it is
    everything before the last D numbers. Blanks are spaces and tabs; lines end with \n or \r\n, which blanks may
    precede; empty lines at the end are ignored.

    Args:
        data: bytes of complete lines, [n] uint8, on the host; without the first line of word2vec's files
        dimension: D
        source: the name of the text in errors, such as that of its file
        first_line: the number of the first line in errors
        backend: "auto", "native" or "reference"

    Returns:
        VectorText

    Raises:
        ElmoFastError: a line that is not a word and D finite numbers, with its number; wrong shape or dtype.
    """
    op = "read_vector_text"
    _check_text(op, "data", data)
    if dimension < 1:
        raise ElmoFastError(f"{op}: dimension must be 1 or more; got {dimension}")
    kernel = select("vector_text", backend, data.device, torch.float32)
    matrix, words, (line, begin, end) = kernel.run(data, dimension)
    if line >= 0:
        content = bytes(data[begin:end].tolist())
        raise ElmoFastError(f"{source}, line {first_line + line}: {_complaint(content, dimension)}")
    return VectorText(matrix, words)


def write_vector_text(words: Tensor, ends: Tensor, matrix: Tensor, *, backend: str = "auto") -> Tensor:
    r"""Lines that `read_vector_text` reads back bit by bit: a word, then numbers with the fewest digits that allow it.

    Args:
        words: the words' bytes end to end, [n] uint8
        ends: where each word ends, [N] int64, ascending
        matrix: [N, D] float32, finite
        backend: "auto", "native" or "reference"

    Returns:
        [m] uint8; every line ends with \n

    Raises:
        ElmoFastError: wrong shape or dtype; a number that is not finite; a word that would not be read back unchanged:
            it is empty, contains a line break, starts or ends with a blank, or ends with a blank and a number.
    """
    op = "write_vector_text"
    _check_text(op, "words", words)
    check_shape(op, "matrix", matrix, "N D")
    check_dtype(op, "matrix", matrix, torch.float32)
    check_shape(op, "ends", ends, "N", N=len(matrix))
    check_dtype(op, "ends", ends, torch.int64)
    bounds = torch.cat([ends.new_zeros(1), ends])
    if matrix.shape[1] < 1:
        raise ElmoFastError(f"{op}: matrix must have one column or more; got {given(matrix)}")
    if (bounds.diff() < 1).any() or bounds[-1] != len(words):
        raise ElmoFastError(f"{op}: ends must ascend from above 0 to n = {len(words)}: no word may be empty")
    if not (finite := matrix.isfinite().all(1)).all():
        raise ElmoFastError(f"{op}: row {int(finite.int().argmin())} of matrix contains NaN or infinity")
    _check_words(op, words, bounds)
    kernel = select("vector_text", backend, matrix.device, torch.float32)
    text: Tensor = kernel.write(words.contiguous(), ends.contiguous(), matrix.contiguous())
    return text


def _check_text(op: str, name: str, text: Tensor) -> None:
    check_shape(op, name, text, "n")
    check_dtype(op, name, text, torch.uint8)
    if text.device.type != "cpu":
        raise ElmoFastError(f"{op}: {name} must be on the host; got {given(text)}")


def _check_words(op: str, words: Tensor, bounds: Tensor) -> None:
    """Raises for a word that would not be read back; only words with a blank or a line break need a check each."""
    special = torch.isin(words, torch.tensor(list(b" \t\r\n"), dtype=torch.uint8, device=words.device)).nonzero()
    for row in torch.searchsorted(bounds, special[:, 0], right=True).unique().tolist():
        word = bytes(words[bounds[row - 1] : bounds[row]].tolist())
        last = re.split(BLANKS, word)[-1]
        if re.search(rb"[\r\n]", word) or word != word.strip(b" \t") or is_number(last):
            raise ElmoFastError(
                f"{op}: the word {word.decode(errors='replace')!r} of row {row - 1} would not be read back from text; "
                "rename it or use a binary format"
            )


def _complaint(line: bytes, dimension: int) -> str:
    """What is wrong with a line that could not be read."""
    wanted = f"a word and {dimension} numbers are wanted"
    fields = re.split(BLANKS, line)
    if fields == [b""]:
        return f"the line is empty; {wanted}"
    if not fields[0]:
        return f"the line begins with a blank; {wanted}"
    if len(fields) <= dimension:
        return f"{len(fields) - 1} numbers after the word; {wanted}"
    for field in fields[-dimension:]:
        if not is_number(field):
            return f"{shortened(field.decode(errors='replace'))!r} is not a finite number of float32; {wanted}"
    return f"more numbers than that after the word; {wanted}"
