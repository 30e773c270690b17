"""Vectors that know no context: their training, files, evaluation and neighbours. Names are loaded when first used."""

from elmo_fast._lazy import lazy

_MODULES = {
    "glove": ("GloveEpoch", "train_glove"),
    "elmo_fast.embed.word_vectors": ("Vectors", "load_vectors", "save_vectors"),
    "from_bilm": ("averaged_vectors", "context_free_vectors", "write_word_vectors"),
    "evaluation": ("evaluate_analogies", "evaluate_similarity"),
    "elmo_fast.embed.search": ("nearest",),
    "neighbours": ("most_similar", "nearest_words"),
    "word2vec": ("train_word2vec",),
}
__getattr__, __dir__ = lazy("elmo_fast.static", _MODULES)
__all__ = __dir__()
