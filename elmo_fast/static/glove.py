"""GloVe: weighted least squares by AdaGrad over how often words occur near each other."""

import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo_fast._runtime.threads import torch_threads
from elmo_fast.corpus import Corpus, encode, is_prepared, open_corpus, read_corpus
from elmo_fast.embed.word_vectors import Vectors
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.op_choices import Tokenizer
from elmo_fast.ops._autograd import register_op
from elmo_fast.ops._checks import check_device, check_dtype, check_same, check_shapes, check_words, checked
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.static.cooccurrences import BOUNDARY, LEFT_OUT, Cooccurrences, cooccurrences
from elmo_fast.text import MARKERS, Vocabulary

# Entries of one call of the op; between calls Ctrl-C is noticed and progress reported.
SLICE = 1 << 20


class GloveWeights(NamedTuple):
    """GloVe's parameters or, of the same shapes, the sums of their squared gradients."""

    words: Tensor
    """w, [V, D]"""
    contexts: Tensor
    """w~, [V, D]"""
    word_biases: Tensor
    """b, [V]"""
    context_biases: Tensor
    """b~, [V]"""


@torch.no_grad()
def glove_(
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    weights: GloveWeights,
    squares: GloveWeights,
    *,
    learning_rate: float = 0.05,
    x_max: float = 100.0,
    alpha: float = 0.75,
    backend: str = "auto",
) -> Tensor:
    """GloVe's loss over the entries X_ij in the order given, and a step of AdaGrad for each, in place.

        J = sum of f(X_ij) (w_i · w~_j + b_i + b~_j - ln X_ij)²,    f(x) = min(1, (x / x_max)^alpha)
        g = learning_rate · (half of the entry's gradient);    parameter -= g / √a,    a += g²

    The squares include the rate, as in the published program: while a is near its initial value, 1, a step is
    the rate times the gradient; in the end it is g / √(sum of g²), whatever the rate. "native" divides the entries
    among torch's threads, which write to the tables without locks (Hogwild): on one thread the result is that of
    entry after entry; on several it differs from run to run.

    Args:
        rows, columns: i and j of each entry, [Z] int32
        values: X, [Z], dtype of the weights, above 0
        weights: w, w~, b and b~, contiguous, float32 or float64; changed
        squares: a of each, of the same shapes; changed
        learning_rate, x_max, alpha: see above
        backend: "auto", "native" or "reference"

    Returns:
        J, each entry before its step, [] float64

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not match, indices outside the tables, values not above 0.

    Source: Pennington et al. 2014, eq. 8 and 9, section 4.2; Niu et al. 2011, Hogwild!.
    """
    _check(rows, columns, values, weights, squares)
    check_settings(learning_rate, x_max, alpha)
    if values.is_meta:
        return values.new_empty((), dtype=torch.float64)
    backend = select("glove", backend, values.device, values.dtype)
    run = checked("glove", _reference) if backend == "reference" else registered_op("glove", backend)
    entries = rows.contiguous(), columns.contiguous(), values.contiguous()
    loss: Tensor = run(*entries, list(weights), list(squares), learning_rate, x_max, alpha)
    return loss


def check_settings(learning_rate: float, x_max: float, alpha: float) -> None:
    """Raise ElmoFastError for a setting out of range."""
    if not (learning_rate > 0 and x_max > 0 and 0 <= alpha <= 1):
        got = f"{learning_rate}, {x_max}, {alpha}"
        raise ElmoFastError(f"glove: learning_rate and x_max must be above 0 and alpha from 0 to 1; got {got}")


def _reference(
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    weights: Sequence[Tensor],
    squares: Sequence[Tensor],
    learning_rate: float,
    x_max: float,
    alpha: float,
) -> Tensor:
    """Run glove_ in plain torch, entry after entry: the definition."""
    words, contexts, word_biases, context_biases = weights
    loss = torch.zeros((), dtype=torch.float64, device=values.device)
    factors = (values / x_max).clamp_max(1) ** alpha
    logarithms = values.log()
    for entry, (i, j) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        difference = words[i] @ contexts[j] + word_biases[i] + context_biases[j] - logarithms[entry]
        loss += factors[entry] * difference.double() ** 2
        slope = learning_rate * factors[entry] * difference
        steps = slope * contexts[j], slope * words[i], slope, slope
        for weight, sums, at, step in zip(weights, squares, (i, j, i, j), steps, strict=True):
            weight[at] -= step / sums[at].sqrt()
            sums[at] += step**2
    return loss


def _check(rows: Tensor, columns: Tensor, values: Tensor, weights: GloveWeights, squares: GloveWeights) -> None:
    op = "glove_"
    check_shapes(op, ("weights.words", weights.words, "V D"))
    num_words, dimension = weights.words.shape
    for group, tables in (("weights", weights), ("squares", squares)):
        for name, table in tables._asdict().items():
            letters = "V" if name.endswith("biases") else "V D"
            check_shapes(op, (f"{group}.{name}", table, letters), V=num_words, D=dimension)
            if not table.is_contiguous():
                raise ElmoFastError(f"{op}: {group}.{name} must be contiguous, as it is changed in place")
    check_same(op, "weights, squares and values", [*weights, *squares, values], floating=True)
    check_shapes(op, ("values", values, "Z"), ("rows", rows, "Z"), ("columns", columns, "Z"))
    for name, index in (("rows", rows), ("columns", columns)):
        check_dtype(op, name, index, torch.int32)
        check_device(op, f"{name} and values", index, values)
    check_words(op, num_words, rows=rows, columns=columns)
    if len(values) and not values.is_meta:
        low, high = (float(end) for end in values.aminmax())
        if not (low > 0 and high < torch.inf):
            raise ElmoFastError(f"{op}: values must be finite and above 0; got {low} to {high}")


register_op("glove", lambda a: a.values.new_empty((), dtype=torch.float64))
register("glove", "native")


class GloveEpoch(NamedTuple):
    """A finished pass over the entries."""

    number: int
    """of the pass, from 1"""
    epochs: int
    """passes in all"""
    loss: float
    """the mean of f(X)(...)² over the entries"""
    seconds: float
    """that the pass took"""
    entries_per_second: float
    """speed of the pass"""


Text = str | os.PathLike[str] | Corpus | Iterable[Sequence[str]]
# Called with "counting" or "training", how much of it is done, and the total.
GloveProgress = Callable[[str, int, int], None]


def train_glove(
    text: Text,
    *,
    dimension: int = 100,
    window: int = 10,
    min_count: int = 5,
    max_vocab_size: int | None = None,
    x_max: float = 100.0,
    alpha: float = 0.75,
    learning_rate: float = 0.05,
    epochs: int = 25,
    symmetric: bool = True,
    add_contexts: bool = True,
    init_from: Vectors | None = None,
    threads: int | None = None,
    seed: int = 0,
    memory: int = 1 << 30,
    folder: str | os.PathLike[str] | None = None,
    report: Callable[[GloveEpoch], None] | None = None,
    progress: GloveProgress | None = None,
    tokenizer: Tokenizer | None = None,
) -> Vectors:
    """Train word vectors w + w~ (or w, without `add_contexts`) on a text, the most frequent words first.

        J = sum over X_ij > 0 of min(1, (X_ij / x_max)^alpha) (w_i · w~_j + b_i + b~_j - ln X_ij)²

    Entries are shuffled once and visited `epochs` times. With threads=1 equal arguments give equal vectors; more
    threads update the tables without locks, so the vectors differ from run to run.

    Args:
        text: one sentence per line, words separated by spaces: a file, a folder or a glob; a prepared folder or an open
            corpus, read in place; or sentences as lists of words
        dimension: D
        window: words on each side, 1 to 255, not counting words that are left out
        min_count, max_vocab_size: words that occur less often, or are not among the most frequent, are left out
        x_max, alpha: of the weight above; in a text of a few million words few entries approach an x_max of 100, and 10
            works better
        learning_rate: of AdaGrad's first steps; see `glove_`
        epochs: passes; the paper uses 50 below 300 dimensions, else 100
        symmetric: count the words on both sides; False: only those before
        add_contexts: return w + w~, as the paper does; False: w, the vectors of words without those of contexts
        init_from: vectors to continue from, of width D: their words start there (w and w~ at one half each with
            add_contexts), other words and all biases as usual
        threads: None: torch's number
        seed: of the initial vectors and the order of entries
        memory: bytes for counting; the matrix needs 12 more bytes per entry, 24 while it is shuffled
        folder: for temporary files
        report: called after every pass
        tokenizer: of files: one of elmo_fast.text.TOKENIZERS; None splits at white space
        progress: called with "counting" or "training", how much is done (words; entries of all passes), and the total

    Raises:
        ElmoFastError: settings out of range, a text that cannot be read, no words that are frequent enough or near each
            other, a loss that is not finite (use a smaller learning_rate).

    Source: Pennington et al. 2014, eq. 8 and sections 3 and 4.2.
    """
    counts = {"dimension": dimension, "min_count": min_count, "epochs": epochs, "max_vocab_size": max_vocab_size}
    check_counts(**counts, threads=threads)
    check_settings(learning_rate, x_max, alpha)
    if init_from is not None:
        init_from.check_width(dimension)
    tell = progress or (lambda stage, done, total: None)
    with torch_threads(threads):
        parts, numbers, vocabulary = words_to_count(text, min_count, max_vocab_size, tokenizer)
        how: dict[str, Any] = {"window": window, "symmetric": symmetric, "memory": memory, "folder": folder}
        cells = cooccurrences(parts, numbers, len(vocabulary), **how, progress=functools.partial(tell, "counting"))
        if not len(cells.rows):
            raise ElmoFastError(f"{_named(text)}: no two words occur near each other; give longer sentences")
        draw = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(cells.rows), generator=draw, device="cpu")
        cells, count = Cooccurrences(*(column[order] for column in cells)), len(order)
        # Small weights, uniform within ±1 / 2D, and squares of 1, as in the published program.
        shapes = (len(vocabulary), dimension), (len(vocabulary), dimension), (len(vocabulary),), (len(vocabulary),)
        sampled = (torch.rand(*shape, generator=draw, device="cpu") for shape in shapes)
        weights = GloveWeights(*((values - 0.5) / dimension for values in sampled))
        if init_from is not None:
            tables = weights[: 1 + add_contexts]
            start_from = Vectors(init_from.words, init_from.matrix / np.float32(len(tables)))
            for table in tables:
                start_from.copy_to(vocabulary, table.numpy())
        squares = GloveWeights(*(torch.ones_like(table) for table in weights))
        rates: dict[str, Any] = {"learning_rate": learning_rate, "x_max": x_max, "alpha": alpha}
        for number in range(1, epochs + 1):
            start, total, done = time.monotonic(), 0.0, 0
            for rows, columns, values in zip(*(column.split(SLICE) for column in cells), strict=True):
                loss = glove_(rows, columns, values, weights, squares, **rates).item()
                if not np.isfinite(loss):
                    raise ElmoFastError(f"the loss became {loss}; give a learning_rate below {learning_rate}")
                total, done = total + loss, done + len(rows)
                tell("training", (number - 1) * count + done, epochs * count)
            seconds = time.monotonic() - start
            if report is not None:
                report(GloveEpoch(number, epochs, total / count, seconds, count / max(seconds, 1e-9)))
    return Vectors(vocabulary, (weights.words + weights.contexts if add_contexts else weights.words).numpy())


def words_to_count(
    text: Text, min_count: int, max_vocab_size: int | None = None, tokenizer: Tokenizer | None = None
) -> tuple[list[Tensor], Tensor, list[str]]:
    """Return the text's parts, the word of each of its numbers (as `cooccurrences` takes them), and the words.

    Words are in order of falling count, then of code points. Raises ElmoFastError if none is frequent enough.
    """
    if not isinstance(text, str | os.PathLike):
        corpus = text if isinstance(text, Corpus) else encode(text, Vocabulary(MARKERS))
    elif is_prepared(text):
        corpus = open_corpus(text, tokenizer)
    else:
        corpus = read_corpus(os.fspath(text), Vocabulary(MARKERS), tokenizer)
    types = np.flatnonzero(corpus.counts >= min_count)
    words, counts = corpus.types.words(types), corpus.counts[types].tolist()
    order = sorted(range(len(types)), key=lambda i: (-counts[i], words[i]))[:max_vocab_size]
    if not order:
        raise ElmoFastError(f"{_named(text)}: no word occurs min_count={min_count} times; give a smaller min_count")
    numbers = np.full(len(corpus.counts) + 1, LEFT_OUT, np.int32)
    numbers[0], numbers[types[order] + 1] = BOUNDARY, np.arange(len(order))
    parts = [torch.from_numpy(shard.view(np.int32)) for shard in corpus.shards]
    return parts, torch.from_numpy(numbers), [words[i] for i in order]


def _named(text: Text) -> str:
    """Return the name of a text in errors."""
    return os.fspath(text) if isinstance(text, str | os.PathLike) else "the text"
