"""The former place of elmo_fast.embed.token_vectors; its names load from there, on first use."""

from elmo_fast._lazy import lazy

__getattr__, __dir__ = lazy("elmo_fast.embed", {"token_vectors": ("TokenVectors", "shared_bilm")})
