"""Vectors that know no context: their training, files, evaluation and neighbours. Names are loaded when first used."""

from elmo_fast._lazy import loader

_HOMES = {
    "GloveEpoch": "glove",
    "Vectors": "vectors",
    "averaged_vectors": "from_bilm",
    "context_free_vectors": "from_bilm",
    "evaluate_analogies": "analogies",
    "evaluate_similarity": "similarity",
    "load_vectors": "vectors",
    "most_similar": "neighbours",
    "nearest": "neighbours",
    "nearest_words": "neighbours",
    "save_vectors": "vectors",
    "train_glove": "glove",
    "train_word2vec": "word2vec",
    "write_word_vectors": "from_bilm",
}
__all__ = sorted(_HOMES)


__getattr__ = loader("elmo_fast.static", _HOMES, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
