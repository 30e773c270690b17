"""Taggers and classifiers over ELMo: files of examples, features, the cache of a frozen biLM, scores."""

from elmo_fast.tasks.formats import Example, read_examples, write_examples
from elmo_fast.tasks.labels import UNSEEN, Labels
from elmo_fast.tasks.scores import Scores, spans_of, tag_scores

__all__ = [
    "UNSEEN",
    "Example",
    "Labels",
    "Scores",
    "read_examples",
    "spans_of",
    "tag_scores",
    "write_examples",
]
