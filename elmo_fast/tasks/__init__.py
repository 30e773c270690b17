"""Taggers and classifiers over ELMo: files of examples, features, the cache of a frozen biLM, training, scores.

Names are loaded on first use, so that a command's options need no torch.
"""

from elmo_fast._lazy import lazy

_MODULES = {
    "crf": ("CRF",),
    "data": ("UNSEEN", "Labels"),
    "heads": ("BiLSTM", "Classifier", "Tagger"),
    "features": ("CharacterFeatures", "ElmoFeatures", "StaticFeatures", "load_bilm"),
    "formats": ("Example", "read_examples", "write_examples"),
    "cache": ("LayerCache", "cached_layers", "model_digest"),
    "scores": ("Scores", "spans_of", "tag_scores"),
    "config": ("TaskConfig",),
    "run": ("SavedTask", "TaskResult", "evaluate_task", "load_task", "predict_task", "train_task"),
}
__getattr__, __dir__ = lazy("elmo_fast.tasks", _MODULES)
__all__ = __dir__()
