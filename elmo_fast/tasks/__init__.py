"""Taggers and classifiers over ELMo: files of examples, features, the cache of a frozen biLM, training, scores.

Names are loaded on first use, so that a command's options need no torch.
"""

from elmo_fast._lazy import lazy

_MODULES = {
    "crf": ("CRF",),
    "labels": ("UNSEEN", "Labels"),
    "bilstm": ("BiLSTM",),
    "character_features": ("CharacterFeatures",),
    "heads": ("Classifier", "Tagger"),
    "elmo_features": ("ElmoFeatures", "load_bilm"),
    "formats": ("Example", "read_examples", "write_examples"),
    "cache": ("LayerCache", "cached_layers", "model_digest"),
    "scores": ("Scores", "spans_of", "tag_scores"),
    "static_features": ("StaticFeatures",),
    "config": ("TaskConfig",),
    "saved": ("SavedTask", "TaskResult", "load_task"),
    "run": ("evaluate_task", "predict_task", "train_task"),
}
__getattr__, __dir__ = lazy("elmo_fast.tasks", _MODULES)
__all__ = __dir__()
