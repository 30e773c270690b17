"""All tokens of a text by their vectors in context: which lie nearest to a token. Names are loaded when first used."""

from elmo_fast._lazy import lazy

_MODULES = {
    "nearest": ("NearestToken", "TextTokens", "in_context", "nearest_tokens"),
}
__getattr__, __dir__ = lazy("elmo_fast.tokens", _MODULES)
__all__ = __dir__()
