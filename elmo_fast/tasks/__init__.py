"""Taggers and classifiers over ELMo: files of examples, features, the cache of a frozen biLM, training, scores.

Names are loaded on first use, so that a command's options need no torch.
"""

from elmo_fast._lazy import loader

_HOMES = {
    "CRF": "crf",
    "UNSEEN": "labels",
    "BiLSTM": "bilstm",
    "CharacterFeatures": "character_features",
    "Classifier": "heads",
    "ElmoFeatures": "elmo_features",
    "Example": "formats",
    "Labels": "labels",
    "LayerCache": "cache",
    "Scores": "scores",
    "StaticFeatures": "static_features",
    "Tagger": "heads",
    "TaskConfig": "config",
    "TaskResult": "saved",
    "cached_layers": "cache",
    "evaluate_task": "run",
    "load_bilm": "elmo_features",
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


__getattr__ = loader("elmo_fast.tasks", _HOMES, __all__)


def __dir__() -> list[str]:
    return sorted(_HOMES)
