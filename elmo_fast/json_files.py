"""Our own JSON files: read, and validated against the type that the caller expects."""

import dataclasses
import json
import os
import pathlib
import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from elmo_fast.errors import CheckpointError, read_failures_named, shortened

# What a run of training appends to, one JSON object a line.
METRICS_FILE = "metrics.jsonl"
Kind = TypeVar("Kind")
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", types.NoneType: "null"}


def read_json(path: str | os.PathLike[str], kind: type[Kind]) -> Kind:
    """The value in a JSON file, of the type `kind`: see `parsed`. Raises CheckpointError if it cannot be read."""
    with read_failures_named(path):
        text = pathlib.Path(path).read_bytes()
    return parsed(text, kind, os.fspath(path))


def parsed(text: str | bytes, kind: type[Kind], source: str) -> Kind:
    """The value of a JSON text, of the type `kind`.

    kind: a dataclass, a TypedDict (additional keys are allowed), list[...], dict[str, ...], Literal[...], a union, Any,
    or one of bool, int, float, str and None. Raises CheckpointError naming `source`, the key, what was wanted and what
    was found.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source}: not JSON text, or damaged ({error})") from error
    return typed(value, kind, source)


def typed(value: Any, kind: type[Kind], source: str) -> Kind:
    """A parsed JSON value as a `kind`: see `parsed`."""
    try:
        made: Kind = _made(value, kind, "")
    except CheckpointError as error:
        raise CheckpointError(f"{source}: {error}") from error
    return made


def _made(value: Any, kind: Any, key: str) -> Any:
    """The value, with JSON objects converted to the dataclasses of the type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if (dataclasses.is_dataclass(kind) or is_typeddict(kind)) and isinstance(value, dict):
        return _object(value, kind, key)
    if origin in (Union, types.UnionType):
        for one in arguments:
            try:
                return _made(value, one, key)
            except CheckpointError:
                continue
    elif origin is list and isinstance(value, list):
        return [_made(each, arguments[0], f"{key}[{index}]") for index, each in enumerate(value)]
    elif origin is dict and isinstance(value, dict):
        return {name: _made(each, arguments[1], _below(key, name)) for name, each in value.items()}
    elif origin is Literal:
        if any(value == one and type(value) is type(one) for one in arguments):
            return value
    elif kind is Any or type(value) is kind or (kind is float and type(value) is int):
        return value
    raise CheckpointError(f"{key and f'{key}: '}wanted {_words(kind)}, found {_shown(value)}")


def _object(value: dict[str, Any], kind: Any, key: str) -> Any:
    hints = get_type_hints(kind)
    if is_typeddict(kind):
        required = kind.__required_keys__
    else:
        defaults = (dataclasses.MISSING, dataclasses.MISSING)
        required = {f.name for f in dataclasses.fields(kind) if (f.default, f.default_factory) == defaults}
        if unknown := sorted(value.keys() - hints.keys()):
            raise CheckpointError(
                f"{_below(key, shortened(unknown[0]))}: unknown key; known: {', '.join(sorted(hints))}"
            )
    if missing := sorted(required - value.keys()):
        raise CheckpointError(f"{_below(key, missing[0])}: wanted {_words(hints[missing[0]])}, found nothing")
    made = {name: _made(value[name], hints[name], _below(key, name)) for name in hints.keys() & value.keys()}
    return {**value, **made} if is_typeddict(kind) else kind(**made)


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _words(kind: Any) -> str:
    """A type as text."""
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(map(_words, get_args(kind)))
    if get_origin(kind) is Literal:
        return " or ".join(json.dumps(one) for one in get_args(kind))
    return _WORDS.get(kind) or ("a list" if get_origin(kind) is list else "an object")


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return shortened(json.dumps(value))
