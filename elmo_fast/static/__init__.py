"""Vectors that know no context: their training, files, evaluation and neighbours. Names are loaded when first used."""

import importlib
from typing import Any

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
    "save_vectors": "vectors",
    "train_glove": "glove",
    "train_word2vec": "word2vec",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"elmo_fast.static.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'elmo_fast.static' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
