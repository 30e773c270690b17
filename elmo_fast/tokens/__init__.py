"""All tokens of a text by their vectors in context: which lie nearest to a token. Names are loaded when first used."""

from elmo_fast._lazy import loader

_HOMES = {
    "NearestToken": "nearest",
    "TextTokens": "text_tokens",
    "in_context": "text_tokens",
    "nearest_tokens": "nearest",
}
__all__ = sorted(_HOMES)


__getattr__ = loader("elmo_fast.tokens", _HOMES, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
