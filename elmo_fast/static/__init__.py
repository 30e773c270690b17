"""Vectors that know no context: their training, files, evaluation and neighbours. Names are loaded when first used."""

import importlib
from typing import Any

_HOMES = {
    "GloveEpoch": "glove",
    "Vectors": "vectors",
    "load_vectors": "vectors",
    "save_vectors": "vectors",
    "train_glove": "glove",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"elmo_fast.static.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'elmo_fast.static' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
