"""Static vectors: files read and written, analogies, and the nearest of a million token vectors, beside gensim.

gensim's sides are skipped where it is not installed. Its text files are read at a fraction of the speed, so that its
side gets fewer vectors; rates are per vector.
"""

import functools
import importlib.util
import logging
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.cases import Settings
from benchmarks.results import Report, faster, measure
from benchmarks.timing import rate, seconds
from elmo_fast.static import Vectors, evaluate_analogies, load_vectors, save_vectors
from elmo_fast.static.evaluation import unit_rows
from elmo_fast.token_files import CacheFile, writing_cache_file
from elmo_fast.tokens.corpus_cache import nearest_in

WIDTH = 300
NAMES = {"word2vec binary": "v.bin", "word2vec text": "v.txt", "own": "v.safetensors"}


def run(settings: Settings) -> Report:
    """Rows "vectors/s", "questions/s" and "s"."""
    torch.set_num_threads(1)
    logging.getLogger("gensim").setLevel(logging.ERROR)
    report = Report(notes={"vectors": f"random normal, {WIDTH} numbers each; files in a folder of temporary files"})
    gensim = importlib.util.find_spec("gensim") is not None
    if not gensim:
        report.skipped.append("gensim is not installed")
    with tempfile.TemporaryDirectory() as folder:
        files(report, settings, pathlib.Path(folder), gensim)
        analogies(report, settings, pathlib.Path(folder), gensim)
        neighbours(report, settings, pathlib.Path(folder))
    return report


def made(count: int, words: list[str] | None = None) -> Vectors:
    """Random vectors of `words` and of as many others as are missing."""
    matrix = np.random.default_rng(0).standard_normal((count, WIDTH), np.float32)
    return Vectors([*(words or []), *(f"word{i}" for i in range(count - len(words or [])))], matrix)


def files(report: Report, settings: Settings, folder: pathlib.Path, gensim: bool) -> None:
    """Reading and writing, each format."""
    vectors = made(500 if settings.quick else 50_000)
    fewer = Vectors(vectors.words[: len(vectors) // 10], vectors.matrix[: len(vectors) // 10])
    report.notes["files"] = f"{len(vectors)} vectors, gensim's {len(fewer)}; in the page cache; no cache beside text"
    rounds = 2 if settings.quick else 5
    for variant, name in NAMES.items():
        path, theirs = folder / name, folder / f"gensim-{name}"
        write = {"elmo_fast": rate(len(vectors), functools.partial(save_vectors, vectors, path))}
        read = {"elmo_fast": rate(len(vectors), functools.partial(load_vectors, path, cache=False))}
        if gensim and name != "v.safetensors":
            from gensim.models import KeyedVectors

            how = {"binary": name == "v.bin"}
            saved = functools.partial(fewer.to_gensim().save_word2vec_format, theirs, **how)
            write["gensim"] = rate(len(fewer), saved)
            loaded = functools.partial(KeyedVectors.load_word2vec_format, theirs, **how)
            read["gensim"] = rate(len(fewer), loaded)
        add(report, f"write {variant}", write, rounds, "vectors/s")
        add(report, f"read {variant}", read, rounds, "vectors/s")
    report.notes["aim"] = "50,000 vectors/s"


def add(report: Report, variant: str, sides: dict[str, Callable[[], float]], rounds: int, unit: str) -> None:
    """Rows of one variant; ours beside gensim's where that ran."""
    rows = measure(variant, sides, rounds, unit=unit)
    if len(rows) == 2:
        faster(*rows)
    report.rows += reversed(rows)


def analogies(report: Report, settings: Settings, folder: pathlib.Path, gensim: bool) -> None:
    """Questions about words that all have vectors, among 100,000."""
    count, asked, theirs = (300, 40, 10) if settings.quick else (100_000, 4000, 100)
    words = [f"w{i}" for i in range(200)]
    vectors = made(count, words)
    draw = np.random.default_rng(0)
    paths = []
    for number in (asked, theirs):
        paths.append(folder / f"{number}.txt")
        lines = [" ".join(words[i] for i in draw.choice(200, 4, replace=False)) for _ in range(number)]
        paths[-1].write_text(": all\n" + "\n".join(lines) + "\n")
    sides = {"elmo_fast": rate(asked, lambda: evaluate_analogies(vectors, paths[0]))}
    if gensim:
        keyed = vectors.to_gensim()
        sides["gensim"] = rate(theirs, lambda: keyed.evaluate_word_analogies(paths[1]))
        ours, (accuracy, _) = evaluate_analogies(vectors, paths[1]), keyed.evaluate_word_analogies(paths[1])
        if ours.total.accuracy != accuracy:
            report.failures.append(f"analogies: accuracy {ours.total.accuracy}, gensim's {accuracy}")
    add(report, f"analogies, {count} words", sides, 2 if settings.quick else 3, "questions/s")


def neighbours(report: Report, settings: Settings, folder: pathlib.Path) -> None:
    """The ten nearest to one token, from a file of unit vectors that is checked while it is read."""
    for tokens, width in ((5000, 16),) if settings.quick else ((1_000_000, 256), (1_000_000, 1024)):
        path, length = folder / "tokens", 1000
        with writing_cache_file(path, [length] * (tokens // length), 1, width, "") as file:
            for sentence in range(tokens // length):
                rows = np.random.default_rng(sentence).standard_normal((length, width), np.float32)
                file.write(sentence, unit_rows(rows)[None])
        query = np.random.default_rng(0).standard_normal((1, width), np.float32)

        ask = functools.partial(nearest, path, query)
        add(report, f"nearest of {tokens} x {width}", {"elmo_fast": ask}, 3 if settings.quick else 9, "s")
        path.unlink()


def nearest(path: pathlib.Path, query: np.ndarray) -> float:
    """Seconds to open the file and to read it all."""
    return seconds(lambda: nearest_in(CacheFile(path), 0, query, 10))
