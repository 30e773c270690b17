"""Builds a module from AllenNLP's Params."""

from collections.abc import Mapping
from typing import Any

from elmo_fast.errors import ElmoFastError


def constructed(made: Any, params: Any, extras: Mapping[str, Any], vocab: Any = None) -> Any:
    """`made(**params, **extras)`; params is a dictionary or anything with `pop` and `keys`; the latter is emptied.

    Raises: ElmoFastError for "namespace_to_cache" without a vocab; TypeError for a key that `made` has no argument for.
    """
    if isinstance(params, dict):
        params = dict(params)
    values = {**extras, **{key: params.pop(key) for key in list(params.keys())}}
    values.pop("type", None)
    namespace = values.pop("namespace_to_cache", None)
    if namespace is not None:
        if vocab is None:
            raise ElmoFastError("namespace_to_cache needs the vocab whose words it caches; got vocab=None")
        values["vocab_to_cache"] = list(vocab.get_token_to_index_vocabulary(namespace).keys())
    return made(**values)
