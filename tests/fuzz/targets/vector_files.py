"""Vector files, gzip among them: word2vec's text and binary, GloVe's, the own one (never believed damaged)."""

import gzip
import random

import numpy as np

from elmo_fast.static import Vectors, load_vectors, save_vectors
from tests.fuzz import folders
from tests.fuzz.damage import damaged
from tests.fuzz.judge import Wrong, may_refuse

FILES = {"glove": "v.glove.txt", "word2vec-text": "v.vec", "word2vec-binary": "v.bin", "safetensors": "v.safetensors"}


def whole() -> Vectors:
    words = ["the", "cat", "Résumé", "a" * 40, "7", "•", *(f"w{i}" for i in range(14))]
    return Vectors(words, np.random.default_rng(0).normal(size=(20, 5)).astype("f4"))


@folders.valid
def valid(folder):
    for format, name in FILES.items():
        save_vectors(whole(), folder / name, format)
    return folder


def case(rng: random.Random) -> None:
    format = rng.choice(sorted(FILES))
    data = damaged(rng, (valid() / FILES[format]).read_bytes())
    packed = rng.random() < 0.2
    if packed:
        data = gzip.compress(data, 1)
        data = damaged(rng, data) if rng.random() < 0.7 else data
    path = folders.fresh() / (FILES[format] + ".gz" * packed)
    path.write_bytes(data)
    with may_refuse():
        vectors = load_vectors(
            path, rng.choice(("auto", format)), limit=rng.choice((None, None, 3, 0, 10**9, 10**18)), cache=False
        )
        if not np.isfinite(vectors.matrix).all() or vectors.matrix.dtype != np.float32:
            raise Wrong("vector_files: vectors that are not finite float32 were accepted")
        if data[8:9] == b"{":
            known = whole()
            if not all(np.array_equal(vectors.vector(w), known.vector(w)) for w in vectors.words):
                raise Wrong("vector_files: the own format damaged and believed")
        _written(path, vectors)


def _written(path, vectors):
    with may_refuse():
        other = path.with_name("again.safetensors")
        save_vectors(vectors, other)
        again = load_vectors(other)
        if again.words != vectors.words or not np.array_equal(again.matrix, vectors.matrix):
            raise Wrong("vector_files: what was written is read otherwise")
