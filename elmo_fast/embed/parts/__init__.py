"""Vectors of a text in parts, written by any number of processes that share a folder and nothing else."""

from elmo_fast._lazy import lazy

_MODULES = {
    "vectors": ("ElmoVectors", "merge_parts"),
    "embedding": ("embed_parts",),
}
__getattr__, __dir__ = lazy("elmo_fast.embed.parts", _MODULES)
__all__ = __dir__()
