"""Fields with a description: of configurations, for the command line, and of results, for help()."""

import dataclasses
import math
import pathlib
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

# The ranges that fields name.
_RANGES: dict[str, Callable[[float], bool]] = {
    "above 0": lambda number: number > 0,
    "0 or more": lambda number: number >= 0,
    "of at least 3": lambda number: number >= 3,
    "from 0 to 1": lambda number: 0 <= number <= 1,
    "from 0 to below 1": lambda number: 0 <= number < 1,
    "above 0 and at most 1": lambda number: 0 < number <= 1,
    "from 0 to 2^24": lambda number: 0 <= number <= 1 << 24,
    "from 1 to 2^24": lambda number: 1 <= number <= 1 << 24,
    "from 0 to 2^42": lambda number: 0 <= number <= 1 << 42,
}
# Of the option and the field `prefix`.
PREFIX = (
    "which ELMo of an AllenNLP model that contains several: how its tensors' names begin, as the error message lists "
    "them"
)
# Words that occur less often are left out of a vocabulary that `prepare`, `vocab` or `pretrain` builds from a text.
MIN_COUNT = 3
_KINDS: dict[type[int | float], str] = {int: "a whole number", float: "a finite number"}


def described(default: Any, sentence: str, within: str | None = None) -> Any:
    """A dataclass field with a sentence that the command line shows as help; a list default is copied per instance.

    within: the range of a number, as an error message words it; None: "above 0" (see field_complaints).
    """
    metadata = {"help": sentence, "within": within}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: [list(row) for row in default], metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def described_as(kind: Any, name: str, default: Any) -> Any:
    """A field with another default and the sentence of the field `name` of `kind`."""
    return described(default, next(field.metadata["help"] for field in dataclasses.fields(kind) if field.name == name))


def field_complaints(config: Any, choices: Mapping[str, Sequence[str]]) -> list[str]:
    """What the fields' types and ranges do not allow: names that are no choice, numbers out of range.

    choices: of fields whose type is no Literal. A field that takes text as well as numbers is not checked.
    """
    found = []
    for field in dataclasses.fields(config):
        value, kinds = getattr(config, field.name), get_args(field.type) or (field.type,)
        known = choices.get(field.name) or (kinds if get_origin(field.type) is Literal else ())
        if known and value not in known:
            found.append(f"{field.name} must be one of {', '.join(known)}; got {value!r}")
        null = "null or " if types.NoneType in kinds else ""
        within, kind = field.metadata["within"] or "above 0", next((kind for kind in _KINDS if kind in kinds), None)
        if kind is None or str in kinds or (null and value is None):
            continue
        if not (is_number(value, kind) and _RANGES[within](value)):
            found.append(f"{field.name} must be {null}{_KINDS[kind]} {within}; got {value!r}")
    return found


def is_number(value: Any, kind: type[int | float]) -> bool:
    """Whether a value is a finite number; kind: int refuses fractions."""
    return isinstance(value, (int, kind)) and not isinstance(value, bool) and -math.inf < value < math.inf


def document_fields(kind: Any) -> None:
    """Gives each field of a NamedTuple the string below it in the source, for help(); leaves anything else alone."""
    if not hasattr(kind, "_fields"):
        return
    try:
        source = pathlib.Path(str(sys.modules[kind.__module__].__file__)).read_text(encoding="utf-8")
    except OSError:  # installed without its sources: help() then shows "Alias for field number 0"
        return
    body = source.partition(f"class {kind.__name__}(NamedTuple):")[2].partition("\n\n\n")[0]
    for name, sentence in re.findall(r'^    (\w+): .*\n    """([^"]+)"""', body, re.MULTILINE):
        getattr(kind, name).__doc__ = sentence
