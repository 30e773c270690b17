"""Vectors of a text in parts, written by any number of processes that share a folder and nothing else."""

from elmo_fast._lazy import lazy

_MODULES = {
    "vectors": ("ElmoVectors",),
    "agreement": ("Settings",),
    "embedding": ("embed_parts",),
    "merging": ("merge_parts",),
}
__getattr__, __dir__ = lazy("elmo_fast.parts", _MODULES)
__all__ = __dir__()
