"""Prepared corpora: a file that is damaged, left out or swapped is refused, or the numbers are the same."""

import random

import numpy as np

from elmo_fast.corpus import open_corpus, prepare
from tests.fuzz import folders
from tests.fuzz.damage import damaged, damaged_json
from tests.fuzz.judge import Wrong, may_refuse

TEXT = "the cat sat on the mat .\na dog .\nRésumé of the cat , the dog and a bird .\n" * 5


@folders.valid
def valid(folder):
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    prepare(str(folder / "text.txt"), folder / "corpus", shard_tokens=40)
    return folder / "corpus"


def case(rng: random.Random) -> None:
    folder = folders.copied(valid())
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    path = folder / rng.choice(files)
    how = rng.random()
    if how < 0.05:
        path.unlink()
    elif how < 0.1:
        path.write_bytes((folder / rng.choice(files)).read_bytes())
    elif path.suffix == ".json" and how < 0.9:
        path.write_bytes(damaged_json(rng, path.read_text()))
    else:
        path.write_bytes(damaged(rng, path.read_bytes()))
    with may_refuse():
        actual, whole = _all(open_corpus(folder)), _all(open_corpus(valid()))
        if actual != whole:
            raise Wrong(f"corpus: {path.name.partition('-')[0]} damaged and believed")


def _all(corpus):
    numbers = [np.asarray(part).tolist() for part in (*corpus.shards, *corpus.starts, corpus.counts)]
    return corpus.vocabulary.words, corpus.fingerprint, corpus.types.words(), numbers
