"""Static vectors: counting pairs, GloVe's training, files of vectors, nearest tokens; speed and quality, with gensim.

gensim reads and writes text at a fraction of the speed, so its side gets fewer vectors; rates are per vector. GloVe's
own C program was measured elsewhere at these settings: 0.54 M words/s counted, 1.0 M entries/s on 2 threads.
"""

import functools
import os

import numpy as np
import pytest
import torch

from benchmarks.inputs import DEFAULT
from benchmarks.op_calls import glove_weights
from elmo_fast.embed.layers import unit_rows
from elmo_fast.embed.search import Search
from elmo_fast.embed.token_files import read_cache_folder, writing_cache_folder
from elmo_fast.static import (
    Vectors,
    evaluate_analogies,
    evaluate_similarity,
    load_vectors,
    save_vectors,
    train_glove,
    train_word2vec,
)
from elmo_fast.static.cooccurrences import cooccurrences
from elmo_fast.static.evaluation import bundled
from elmo_fast.static.glove import glove_, words_to_count

DIMENSION, WINDOW, WIDTH = 100, 10, 300
FILES = {"word2vec binary": "v.bin", "word2vec text": "v.txt", "own": "v.safetensors"}
SKIP_GRAM = {"window": 5, "epochs": 5}
GLOVE = {"window": 10, "epochs": 25, "x_max": 10.0}
LOOP = "plain torch, entry by entry in Python"  # as an update of one entry depends on those before it
THREADS = {"elmo_fast": 1, "elmo_fast, two threads": 2}


@pytest.fixture(scope="module")
def counts(text, quick):
    """(parts of the text, words of the table, vocabulary, words of the text, entries)"""
    parts, table, words = words_to_count(text.repeated(300 if quick else 200_000).sentences, 5)
    tokens = sum(int((part > 0).sum()) for part in parts)
    return parts, table, len(words), tokens, cooccurrences(parts, table, len(words), window=WINDOW)


@pytest.mark.turns(7)
@pytest.mark.parametrize("side", THREADS)
def bench_counting(timed, counts, side):
    parts, table, num_words, tokens, _ = counts
    torch.set_num_threads(THREADS[side])
    call = lambda: cooccurrences(parts, table, num_words, window=WINDOW)  # noqa: E731
    timed("counting", call, amount=tokens, unit="words/s", threads=THREADS[side], against="elmo_fast")


@pytest.mark.turns(7)
@pytest.mark.parametrize("side", [*THREADS, LOOP])
def bench_glove(timed, counts, side):
    """Entries in random order; the reference takes them one by one, so it gets few."""
    _, _, num_words, _, entries = counts
    amount = 200 if side == LOOP else min(10_000 if timed.quick else 2_000_000, len(entries.rows))
    order = torch.randperm(len(entries.rows), generator=torch.Generator().manual_seed(0))[:amount]
    rows, columns, values = (column[order] for column in entries)
    weights, squares = glove_weights(num_words, DIMENSION, 0.5 / DIMENSION)
    torch.set_num_threads(THREADS.get(side, 1))
    backend = "reference" if side == LOOP else "native"
    call = lambda: glove_(rows, columns, values, weights, squares, backend=backend)  # noqa: E731
    timed("training", call, amount=amount, unit="entries/s", threads=THREADS.get(side, 1), against=LOOP)


@functools.lru_cache(1)
def vectors(count):
    matrix = np.random.default_rng(0).standard_normal((count, WIDTH), np.float32)
    return Vectors([f"word{i}" for i in range(count)], matrix)


@pytest.mark.case("static_files")
@pytest.mark.turns(5)
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("action", ["write", "read"])
@pytest.mark.parametrize("side", ["elmo_fast", "gensim"])
def bench_files(timed, kind, action, side, tmp_path):
    table = vectors(500 if timed.quick else 50_000)
    path, how = tmp_path / FILES[kind], {"binary": kind.endswith("binary")}
    if side == "gensim":
        models = pytest.importorskip("gensim.models", reason="gensim is not installed")
        if kind == "own":
            pytest.skip("gensim does not read safetensors")
        table = Vectors(table.words[: len(table) // 10], table.matrix[: len(table) // 10])
        keyed = table.to_gensim()
        write = lambda: keyed.save_word2vec_format(path, **how)  # noqa: E731
        read = lambda: models.KeyedVectors.load_word2vec_format(path, **how)  # noqa: E731
    else:
        write = lambda: save_vectors(table, path)  # noqa: E731
        read = lambda: load_vectors(path, cache=False)  # noqa: E731
    if action == "read":
        write()
    call = write if action == "write" else read
    timed(f"{action} {kind}", call, amount=len(table), unit="vectors/s", against="gensim")


@pytest.mark.case("static_files")
@pytest.mark.turns(3)
@pytest.mark.parametrize("width", [256, 1024])
def bench_nearest_tokens(timed, width, tmp_path):
    """The ten nearest to one token, from a file of unit vectors that is checked while it is read."""
    tokens, length = 5000 if timed.quick else 1_000_000, 1000
    path = tmp_path / "tokens"
    with writing_cache_folder(path, [length] * (tokens // length), 1, width, "") as write:
        for sentence in range(tokens // length):
            rows = np.random.default_rng(sentence).standard_normal((length, width), np.float32)
            write(sentence, unit_rows(rows)[None])
    query = np.random.default_rng(0).standard_normal((1, width), np.float32)

    def call():
        search = Search(query, 10)
        search.add_all(read_cache_folder(path).embeddings[:, 0], unit=True)
        search.nearest()

    timed(f"nearest of {tokens} x {width}", call, amount=1, unit="s", rounds=3)


@pytest.mark.case("static_quality")
@pytest.mark.turns(3)
@pytest.mark.parametrize("side", ["elmo_fast GloVe", "gensim skip-gram"])
def bench_quality(timed, side, turn, request):
    """Analogies and similarity after training on the same text; a seed per turn."""
    pytest.importorskip("gensim", reason="gensim is not installed")
    text = request.config.getoption("text")
    pattern = os.fspath(text or DEFAULT.parent / "train-*.txt")
    if text is None and not DEFAULT.is_file():
        pytest.skip("the text is absent")
    how = {"dimension": DIMENSION, "min_count": 5, "seed": turn + 1}
    if timed.quick:
        pattern, how["min_count"] = os.fspath(DEFAULT), 20
    glove = lambda: train_glove(pattern, threads=1, **how, **GLOVE)  # noqa: E731
    skip_gram = lambda: train_word2vec(pattern, **how, **SKIP_GRAM)  # noqa: E731
    train = glove if side == "elmo_fast GloVe" else skip_gram
    trained = timed("training for quality", train, amount=1, unit="s", warmup=0, against="gensim skip-gram")
    result = evaluate_analogies(trained)
    for part in (result.semantic, result.syntactic, result.total):
        timed.figure(f"analogies, {part.name}", side, 100 * part.correct / max(part.asked, 1), "% right")
    for name, file in {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}.items():
        timed.figure(name, side, evaluate_similarity(trained, bundled(file)).spearman, "Spearman")
    timed.note("quality", f"dimension {DIMENSION}, skip-gram {SKIP_GRAM}, GloVe {GLOVE}, three seeds")
