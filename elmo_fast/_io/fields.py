"""One validator, by the types of dataclasses' fields: of configurations, of a model's options, of our own JSON files.

A field may say more than its type: the range of its values and, in a docstring below it, a sentence of help. All
errors come at once, with the key, what was wanted and what was found.
"""

import dataclasses
import difflib
import functools
import json
import os
import stat
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from elmo_fast.errors import CheckpointError, read_failures_named, refuse, shortened

Kind = TypeVar("Kind")
TYPE_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", types.NoneType: "null"}
_UNIONS = (Union, types.UnionType)


def _are_pairs(value: Any) -> bool:
    pairs = len(value) > 0 and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value)
    return pairs and all(_fits(each, int, "above 0") for pair in value for each in pair)


def _are_entries(value: Any) -> bool:
    return all(isinstance(entry, str) and entry for entry in value) and len(set(value)) == len(value)


# The ranges that fields name, as an error message words them.
_RANGES: dict[str, Callable[[Any], bool]] = {
    "above 0": lambda number: number > 0,
    "0 or more": lambda number: number >= 0,
    "of at least 3": lambda number: number >= 3,
    "from 0 to 1": lambda number: 0 <= number <= 1,
    "from 0 to below 1": lambda number: 0 <= number < 1,
    "above 0 and at most 1": lambda number: 0 < number <= 1,
    "from 1 to 1000": lambda number: 1 <= number <= 1000,
    "from 0 to 1000": lambda number: 0 <= number <= 1000,
    "from 3 to 10,000": lambda number: 3 <= number <= 10_000,
    "from 0 to 2^24": lambda number: 0 <= number <= 1 << 24,
    "from 1 to 2^24": lambda number: 1 <= number <= 1 << 24,
    "from 0 to 2^42": lambda number: 0 <= number <= 1 << 42,
    "of pairs [width, number], whole numbers above 0": _are_pairs,
    "of strings, none twice and none empty": _are_entries,
}
MOST_BYTES = 1 << 26  # of a JSON file; what a server sends as one, or /dev/zero, may have no end
# Words that occur less often are left out of a vocabulary that `prepare`, `vocab` or `pretrain` builds from a text.
MIN_COUNT = 3


def within(default: Any, words: str) -> Any:
    """Return a dataclass field with the range of its number, as an error message words it."""
    return dataclasses.field(default=default, metadata={"within": words})


def field_complaints(config: Any) -> list[str]:
    """Return what the types and ranges of a configuration's fields do not allow: no choice, numbers out of range.

    A number without a range is above 0. A field that takes text as well as numbers is not checked.
    """
    complaints = []
    for field in dataclasses.fields(config):
        value, kind = getattr(config, field.name), field.type
        kinds = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
        if str in kinds or not any(one in (int, float) or get_origin(one) is Literal for one in kinds):
            continue
        limits = field.metadata.get("within", "above 0")
        wrong: list[str] = []
        _converted(value, kind, "", wrong, limits)
        if wrong:
            complaints.append(f"{field.name} must be {_words(kind, limits)}; got {value!r}")
    return complaints


def read_json(path: str | os.PathLike[str], kind: type[Kind]) -> Kind:
    """Return the value in a JSON file, of the type `kind`.

    See `parsed`. Raises CheckpointError if it cannot be read.
    """
    with read_failures_named(path):
        if stat.S_ISFIFO(os.stat(path).st_mode):
            refuse(path, ["wanted a regular file, found a pipe"])  # which might never end
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        refuse(path, [f"more than {MOST_BYTES:,} bytes, which is no JSON file of a model, run or task"])
    return parsed(text, kind, os.fspath(path))


def parsed(text: str | bytes, kind: type[Kind], source: str) -> Kind:
    """Return the value of a JSON text, of the type `kind`.

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
    """Return a parsed JSON value as a `kind`: see `parsed`."""
    complaints: list[str] = []
    converted: Kind = _converted(value, kind, "", complaints)
    if complaints:
        refuse(source, complaints)
    return converted


def check_fields(instance: Any) -> None:
    """Raise CheckpointError with all that is wrong with those fields of a dataclass that have metadata."""
    complaints: list[str] = []
    for field in dataclasses.fields(instance):
        if field.metadata:
            key = field.metadata.get("key") or field.name
            _converted(getattr(instance, field.name), field.type, key, complaints, field.metadata["within"])
    if complaints:
        refuse(type(instance).__name__, complaints)


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"embedding": {"dim": 16}} -> {"embedding.dim": 16}."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            result |= flattened(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


class _Field(NamedTuple):
    name: str
    kind: Any
    within: str | None
    required: bool


@functools.cache
def _fields_of(kind: Any) -> dict[str, _Field]:
    """Return the fields of a dataclass or a TypedDict by their keys in JSON.

    A key with dots is one of nested objects.
    """
    hints = get_type_hints(kind)
    if is_typeddict(kind):
        return {name: _Field(name, hint, None, name in kind.__required_keys__) for name, hint in hints.items()}
    fields = {}
    for field in dataclasses.fields(kind):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        key = field.metadata.get("key") or field.name
        fields[key] = _Field(field.name, hints[field.name], field.metadata.get("within"), required)
    return fields


def _converted(value: Any, kind: Any, key: str, complaints: list[str], within: str | None = None) -> Any:
    """Return the value, with JSON objects as the dataclasses of the type; what is wrong is added to `complaints`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if _is_object(kind) and isinstance(value, dict):
        return _object(value, kind, key, complaints)
    if origin in _UNIONS:
        for one in arguments:
            wrong: list[str] = []
            converted = _converted(value, one, key, wrong, within)
            if not wrong or (_is_object(one) and isinstance(value, dict)):
                complaints += wrong
                return converted
    elif origin is list and isinstance(value, list):
        return [_converted(each, arguments[0], f"{key}[{index}]", complaints) for index, each in enumerate(value)]
    elif origin is dict and isinstance(value, dict):
        return {name: _converted(each, arguments[1], _below(key, name), complaints) for name, each in value.items()}
    elif _fits(value, kind, within):
        return value
    complaints.append(f"{key and f'{key}: '}wanted {_words(kind, within)}, found {_quoted(value)}")
    return value


def _object(value: dict[str, Any], kind: Any, key: str, complaints: list[str]) -> Any:
    fields, wrong, values = _fields_of(kind), list[str](), dict[str, Any]()
    if any("." in name for name in fields):
        value = flattened(value)
    for name in [] if is_typeddict(kind) else sorted(value.keys() - fields.keys())[:10]:
        near = difflib.get_close_matches(shortened(name), fields, 1)
        hint = f"did you mean {_below(key, near[0])}?" if near else f"known: {', '.join(sorted(fields))}"
        wrong.append(f"{_below(key, shortened(name))}: unknown key; {hint}")
    for name, field in fields.items():
        if name in value:
            values[field.name] = _converted(value[name], field.kind, _below(key, name), wrong, field.within)
        elif field.required:
            wrong.append(f"{_below(key, name)}: wanted {_words(field.kind, field.within)}, found nothing")
    complaints += wrong
    if is_typeddict(kind):
        return {**value, **values}
    if wrong:
        return value
    try:
        return kind(**values)
    except CheckpointError as error:  # what the fields must be together
        complaints.append(str(error))
        return value


def _is_object(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or is_typeddict(kind)


def _fits(value: Any, kind: Any, within: str | None) -> bool:
    origin = get_origin(kind)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in get_args(kind))
    if kind in (int, float):
        right = isinstance(value, (int, kind)) and not isinstance(value, bool)
        # A number of JSON may be infinite, one with a range may not; nor may it be a whole one that no float can be.
        right = right and (within is None or kind is int or abs(value) <= 1e300)
    elif origin is tuple:
        right = isinstance(value, list | tuple)
    else:
        return kind is Any or type(value) is kind
    return right and (within is None or _RANGES[within](value))


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _words(kind: Any, within: str | None = None) -> str:
    """Return a type and a range as text."""
    if get_origin(kind) in _UNIONS:
        return " or ".join(_words(one, within) for one in get_args(kind))
    if get_origin(kind) is Literal:
        words = get_args(kind)
        return f"one of {', '.join(map(str, words))}" if len(words) > 1 else json.dumps(words[0])
    if within is None or not (kind in (int, float) or get_origin(kind) is tuple):
        return TYPE_WORDS.get(kind) or ("a list" if get_origin(kind) in (list, tuple) else "an object")
    return f"{'a finite number' if kind is float else _words(kind)} {within}"


def _quoted(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return "an object" if isinstance(value, dict) else "a list"
    return shortened(json.dumps(value, default=repr))


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return "NAME was X, now Y" for each value that differs; a missing one is None."""
    names = dict.fromkeys([*before, *now])
    pairs = {name: (before.get(name), now.get(name)) for name in names}
    return [f"{name} was {then!r}, now {value!r}" for name, (then, value) in pairs.items() if then != value]
