"""The task cache, the neighbours' cache, the cache of vector files: damaged ones are said, and results are the same."""

import contextlib
import io
import random
import warnings

import numpy as np
import torch

from elmo_fast.cli.main import main
from elmo_fast.embed import word_vectors as vector_files
from elmo_fast.embed.token_files import VECTORS
from elmo_fast.static import load_vectors
from elmo_fast.tasks import Example, cached_layers, load_bilm
from tests.fuzz import folders
from tests.fuzz.damage import damaged, damaged_json
from tests.fuzz.judge import Wrong, may_refuse
from tests.support.weights import make_weights

TEXT = ["the quick brown fox", "one", "it was the age of foolishness , it was"]
EXAMPLES = [Example(line.split(), []) for line in TEXT]


def case(rng: random.Random) -> None:
    rng.choice((_task, _token, _vectors))(rng)


def _hurt(rng, path):
    """Damages a safetensors file: as bytes, or its header as JSON."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    if rng.random() < 0.5:
        path.write_bytes(damaged(rng, data))
    else:
        header = damaged_json(rng, data[8 : 8 + size].decode())
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])


@folders.valid
def task(folder):
    cached_layers(load_bilm(make_weights(folder / "bilm")[0].parent), EXAMPLES, folder / "cache")
    return folder


def _task(rng):
    folder = folders.copied(task())
    _hurt(rng, next((folder / "cache").glob("*/*.safetensors")))
    model = load_bilm(folder / "bilm")
    with may_refuse():
        actual, whole = (cached_layers(model, EXAMPLES, f / "cache").batch([0, 1, 2])[0] for f in (folder, task()))
        if not torch.equal(actual, whole):
            raise Wrong("task cache: damaged and believed")


def _neighbours(folder):
    """Return the command's output and status."""
    printed = io.StringIO()
    words = ["neighbours", "--model", folder / "bilm", "--corpus", folder / "text.txt", "--query", "the fox", "--index",
             0, "--cache", folder / "tokens", "--quiet"]  # fmt: skip
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return main(list(map(str, words))), printed.getvalue()


@folders.valid
def token(folder):
    make_weights(folder / "bilm")
    (folder / "text.txt").write_text("\n".join(TEXT) + "\n")
    _neighbours(folder)
    return folder


def _token(rng):
    folder = folders.copied(token())
    _hurt(rng, folder / "tokens" / VECTORS)
    status, printed = _neighbours(folder)
    if status not in (0, 2) or (status == 0 and printed != _neighbours(token())[1]):
        raise Wrong(f"neighbours' cache: damaged and believed, status {status}")


@folders.valid
def vectors(folder):
    rows = np.random.default_rng(0).normal(size=(20, 4)).astype("f4")
    (folder / "v.txt").write_text("".join(f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows)))
    _load(folder)
    return folder


def _load(folder):
    before, vector_files.WORTH_BYTES = vector_files.WORTH_BYTES, 0
    try:
        return load_vectors(folder / "v.txt", limit=None)
    finally:
        vector_files.WORTH_BYTES = before


def _vectors(rng):
    folder = folders.fresh() / "copy"
    import shutil

    shutil.copytree(vectors(), folder, copy_function=shutil.copy2)
    _hurt(rng, folder / "v.txt.cache.safetensors")
    with may_refuse():
        actual, whole = _load(folder), _load(vectors())
        if actual.words != whole.words or not np.array_equal(actual.matrix, whole.matrix):
            raise Wrong("cache of a vector file: damaged and believed")
