"""Taggers and classifiers over ELMo: files of examples, features, the cache of a frozen biLM, training, scores.

Names are loaded when first used, so that the options of a command cost no torch.
"""

import importlib
from typing import Any

_HOMES = {
    "CRF": "crf",
    "UNSEEN": "labels",
    "BiLSTM": "bilstm",
    "CharacterFeatures": "features",
    "Classifier": "classifier",
    "ElmoFeatures": "features",
    "Example": "formats",
    "Labels": "labels",
    "LayerCache": "cache",
    "Scores": "scores",
    "StaticFeatures": "features",
    "Tagger": "tagger",
    "TaskConfig": "config",
    "TaskResult": "result",
    "cached_layers": "cache",
    "evaluate_task": "run",
    "load_bilm": "features",
    "load_task": "saved",
    "model_digest": "cache",
    "predict_task": "run",
    "read_examples": "formats",
    "spans_of": "scores",
    "tag_scores": "scores",
    "train_task": "run",
    "write_examples": "formats",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"elmo_fast.tasks.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'elmo_fast.tasks' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(_HOMES)
