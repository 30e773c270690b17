"""Taggers and classifiers over ELMo: files of examples, features, the cache of a frozen biLM, scores."""

from elmo_fast.tasks.cache import LayerCache, cached_layers, model_digest
from elmo_fast.tasks.features import CharacterFeatures, ElmoFeatures, StaticFeatures, load_bilm
from elmo_fast.tasks.formats import Example, read_examples, write_examples
from elmo_fast.tasks.labels import UNSEEN, Labels
from elmo_fast.tasks.scores import Scores, spans_of, tag_scores

__all__ = [
    "UNSEEN",
    "CharacterFeatures",
    "ElmoFeatures",
    "Example",
    "Labels",
    "LayerCache",
    "Scores",
    "StaticFeatures",
    "cached_layers",
    "load_bilm",
    "model_digest",
    "read_examples",
    "spans_of",
    "tag_scores",
    "write_examples",
]
