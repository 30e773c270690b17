"""Text to vectors: a biLM run over sentences, and the files that its vectors, and those of words, are written to.

Names are loaded on first use.
"""

from elmo_fast._lazy import lazy

_MODULES = {
    "embedder": ("ElmoEmbedder",),
    "sentence_index": ("SentenceIndex",),
    "token_vectors": ("TokenVectors",),
    "parts.embedding": ("embed_parts",),
    "parts.vectors": ("ElmoVectors", "merge_parts"),
}
__getattr__, __dir__ = lazy("elmo_fast.embed", _MODULES)
__all__ = __dir__()
