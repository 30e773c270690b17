"""Options as dataclasses: each field has a kind of value, and all complaints about a section are told at once."""

import dataclasses
import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import CheckpointError, shortened
from ..op_choices import ACTIVATIONS

# The losses of a model's training.
LOSSES = ("sampled_softmax", "negative_sampling", "hierarchical_softmax", "full_softmax")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return (_whole(value) or isinstance(value, float)) and abs(value) <= 1e300


def _filters(value: Any) -> bool:
    pairs = isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(p, list | tuple) for p in value)
    return pairs and all(len(p) == 2 and _whole(p[0]) and _whole(p[1]) and p[0] >= 1 and p[1] >= 1 for p in value)


def _lexicon(value: Any) -> bool:
    strings = isinstance(value, list | tuple) and all(isinstance(entry, str) and entry for entry in value)
    return strings and len(set(value)) == len(value)


# kind -> (what is wanted, as text; whether a value is valid)
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "count": ("a whole number, 1 or more", lambda v: _whole(v) and v >= 1),
    "layers": ("a whole number from 1 to 1000", lambda v: _whole(v) and 1 <= v <= 1000),
    "highways": ("a whole number from 0 to 1000", lambda v: _whole(v) and 0 <= v <= 1000),
    "whole": ("a whole number, 0 or more", lambda v: _whole(v) and v >= 0),
    "flag": ("true or false", lambda v: isinstance(v, bool)),
    "true": ("true (a language model in one direction only is not supported)", lambda v: v is True),
    "positive": ("a number above 0", lambda v: _number(v) and v > 0),
    "clip": ("a number above 0, or null for no clip", lambda v: v is None or (_number(v) and v > 0)),
    "dropout": ("a number from 0 up to, but not including, 1", lambda v: _number(v) and 0 <= v < 1),
    "activation": (" or ".join(map(json.dumps, ACTIVATIONS)), lambda v: isinstance(v, str) and v in ACTIVATIONS),
    "characters": ("261 (bilm-tf while training) or 262 (when used)", lambda v: _whole(v) and v in (261, 262)),
    "slots": ("a whole number from 3 to 10,000", lambda v: _whole(v) and 3 <= v <= 10_000),
    "loss": (f"one of {', '.join(LOSSES)}", lambda v: isinstance(v, str) and v in LOSSES),
    "lexicon": ("a list of strings, none twice and none empty", _lexicon),
    "filters": ("a list of pairs [width, number], whole numbers, 1 or more", _filters),
}
_REQUIRED: Any = dataclasses.MISSING


def option(kind: str, default: Any = _REQUIRED, key: str | None = None) -> Any:
    """A field of a kind, under a key with dots in JSON (None: its name); without a default it is required."""
    return dataclasses.field(default=default, repr=kind != "lexicon", metadata={"kind": kind, "key": key})


def optional(kind: str) -> Any:
    """A field that may be None, and is then left out of JSON."""
    return dataclasses.field(default=None, metadata={"kind": kind, "key": None, "optional": True})


class Section:
    """Base of dataclasses of such fields: an instance validates all of them and reports all complaints at once."""

    def __post_init__(self) -> None:
        if complaints := complaints_of(type(self), {_key(f): getattr(self, f.name) for f in _fields(type(self))}, ""):
            raise CheckpointError(f"{type(self).__name__}: {'; '.join(complaints)}")


def _fields(section: type) -> list[dataclasses.Field]:
    return [f for f in dataclasses.fields(section) if "kind" in f.metadata]


def _key(field: dataclasses.Field) -> str:
    return field.metadata["key"] or field.name


def section_dict(section: Section) -> dict[str, Any]:
    """A section as a JSON object: dotted keys become nested, optional fields that are None are left out."""
    result: dict[str, Any] = {}
    for field in _fields(type(section)):
        value = getattr(section, field.name)
        if value is None and field.metadata.get("optional"):
            continue
        *outer, last = _key(field).split(".")
        place = result
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = _in_json(value)
    return result


def _in_json(value: Any) -> Any:
    return [_in_json(each) for each in value] if isinstance(value, list | tuple) else value


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"embedding": {"dim": 16}} -> {"embedding.dim": 16}."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            result |= flattened(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def shown(value: Any) -> str:
    """A value in a message."""
    return shortened(json.dumps(value, default=repr))


def complaints_of(section: type, found: dict[str, Any], prefix: str) -> list[str]:
    """One sentence per key that is missing, wrong, or unknown (with the nearest known key)."""
    fields = {_key(f): f for f in _fields(section)}
    complaints = []
    for key, field in fields.items():
        wanted, fits = _KINDS[field.metadata["kind"]]
        if key not in found:
            if field.default is _REQUIRED:
                complaints.append(f"{prefix}{key}: wanted {wanted}, found nothing")
        elif not (fits(found[key]) or (found[key] is None and field.metadata.get("optional"))):
            complaints.append(f"{prefix}{key}: wanted {wanted}, found {shown(found[key])}")
    for key in found.keys() - fields.keys():
        near = difflib.get_close_matches(key, fields, n=1)
        hint = f"did you mean {prefix}{near[0]}?" if near else "remove it if it is a note of your own"
        complaints.append(f"{prefix}{shortened(key)}: unknown key; {hint}")
    return complaints


def made_of(section: type, found: dict[str, Any], **more: Any) -> Any:
    """A section from its keys with dots, which have been checked."""
    return section(**{f.name: found[_key(f)] for f in _fields(section) if _key(f) in found}, **more)
