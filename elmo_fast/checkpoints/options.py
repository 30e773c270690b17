"""The architecture of a biLM, in the names of bilm-tf's options.json, validated once and immutable."""

import dataclasses
import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, shortened
from ..files import write_json
from ..json_files import read_json
from ..manifest import check_written
from ..op_choices import ACTIVATIONS
from ._complaints import failures_named

CONFIG = "config.json"
OWN_FORMAT = "elmo_fast"  # the value of "format" in a config.json
# The losses of a model's training; those in COUNTED need the counts of the words beside their table.
LOSSES = ("sampled_softmax", "negative_sampling", "hierarchical_softmax", "full_softmax")
COUNTED = ("negative_sampling", "hierarchical_softmax")
# What a lexicon must contain: what it lacks, padding; of characters also the markers of sentences and words.
WORD_MARKERS = ("<oov>", "<pad>")
CHARACTER_MARKERS = (*WORD_MARKERS, "<bos>", "<eos>", "<bow>", "<eow>")
_SLOTS_OF_MARKERS = len("<bos>") + 2  # words are cut before they are compared with the markers


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
    "slots": ("a whole number, 3 or more", lambda v: _whole(v) and v >= 3),
    "loss": (f"one of {', '.join(LOSSES)}", lambda v: isinstance(v, str) and v in LOSSES),
    "lexicon": ("a list of strings, none twice and none empty", _lexicon),
    "filters": ("a list of pairs [width, number], whole numbers, 1 or more", _filters),
}
_REQUIRED: Any = dataclasses.MISSING


def _option(kind: str, default: Any = _REQUIRED, key: str | None = None) -> Any:
    return dataclasses.field(default=default, repr=kind != "lexicon", metadata={"kind": kind, "key": key})


def _optional(kind: str) -> Any:
    return dataclasses.field(default=None, metadata={"kind": kind, "key": None, "optional": True})


class _Section:
    """Base of the dataclasses below: an instance validates all fields and reports all complaints at once."""

    def __post_init__(self) -> None:
        if complaints := _complaints(type(self), {_key(f): getattr(self, f.name) for f in _fields(type(self))}, ""):
            raise CheckpointError(f"{type(self).__name__}: {'; '.join(complaints)}")


@dataclass(frozen=True)
class CharCnnOptions(_Section):
    """The character encoder: `filters` are pairs (width in characters, number of filters), in order."""

    filters: tuple[tuple[int, int], ...] = _option("filters")
    activation: str = _option("activation", "relu")
    embedding_dim: int = _option("count", 16, key="embedding.dim")
    max_characters_per_token: int = _option("slots", 50)
    n_characters: int = _option("characters", 262)
    n_highway: int = _option("highways", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "filters", tuple((int(w), int(n)) for w, n in self.filters))
        if (widest := max(width for width, _ in self.filters)) > self.max_characters_per_token:
            raise CheckpointError(
                f"filters: wanted widths up to max_characters_per_token={self.max_characters_per_token}, found {widest}"
            )

    @property
    def n_filters(self) -> int:
        """Width of the concatenated filters and of the highways."""
        return sum(number for _, number in self.filters)


@dataclass(frozen=True)
class LstmOptions(_Section):
    """The stacked LSTM: `dim` cells per direction, projected to `projection_dim`; each clipped."""

    dim: int = _option("count")
    projection_dim: int = _option("count")
    n_layers: int = _option("layers", 1)
    cell_clip: float | None = _option("clip", None)
    proj_clip: float | None = _option("clip", None)
    use_skip_connections: bool = _option("flag", False)
    joined: bool | None = _optional("flag")

    @property
    def n_outputs(self) -> int:
        """How many layers of the LSTM are layers of the biLM: of a joined one the last alone."""
        return 1 if self.joined else self.n_layers


@dataclass(frozen=True)
class LexiconOptions(_Section):
    """The lexicons of a model that reads no bytes, as ELMoForManyLangs': the place of an entry is its id.

    characters: Unicode characters and markers, which char_cnn reads; () without char_cnn. words: beside the characters,
    or alone; () for none, with word_dim 0. longest_word: without char_cnn, how many characters of a word are looked up;
    None: all.
    """

    characters: tuple[str, ...] = _option("lexicon", ())
    words: tuple[str, ...] = _option("lexicon", ())
    word_dim: int = _option("whole", 0)
    longest_word: int | None = _optional("whole")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, markers in (("characters", CHARACTER_MARKERS), ("words", WORD_MARKERS)):
            object.__setattr__(self, name, entries := tuple(getattr(self, name)))
            if missing := [marker for marker in markers if entries and marker not in entries]:
                raise CheckpointError(f"lexicon.{name}: wanted the markers {', '.join(markers)}, found no {missing[0]}")
        if bool(self.words) != bool(self.word_dim):
            raise CheckpointError(f"lexicon.word_dim: wanted 0 without words alone, found {self.word_dim}")


@dataclass(frozen=True)
class ElmoOptions(_Section):
    """A biLM of characters (`char_cnn`), of word ids (`char_cnn=None`, `n_tokens_vocab` words) or of lexicons.

    Defaults are bilm-tf's for a missing key. The fields after `dropout` describe the training; they may be None. `loss`
    is not in bilm-tf: the loss that trained the softmax table, one of LOSSES. Nor are `lexicon` and `lstm.joined`: each
    layer reads both directions of the one below, without clips, and one projection with a bias follows the last.
    """

    lstm: LstmOptions
    char_cnn: CharCnnOptions | None = None
    lexicon: LexiconOptions | None = None
    bidirectional: bool = _option("true", True)
    dropout: float = _option("dropout", 0.1)
    n_tokens_vocab: int | None = _optional("count")
    n_train_tokens: int | None = _optional("whole")
    n_epochs: int | None = _optional("whole")
    batch_size: int | None = _optional("count")
    unroll_steps: int | None = _optional("count")
    n_negative_samples_batch: int | None = _optional("count")
    all_clip_norm_val: float | None = _optional("positive")
    learning_rate: float | None = _optional("positive")
    sample_softmax: bool | None = _optional("flag")
    share_embedding_softmax: bool | None = _optional("flag")
    loss: str | None = _optional("loss")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lexicon is None:
            return
        if bool(self.lexicon.characters) != (self.char_cnn is not None):
            raise CheckpointError("lexicon.characters: wanted them where there is a char_cnn, and only there")
        if not self.lexicon.characters and not self.lexicon.words:
            raise CheckpointError("lexicon: wanted characters, words or both, found none")
        if self.char_cnn is not None and (slots := self.char_cnn.max_characters_per_token) < _SLOTS_OF_MARKERS:
            raise CheckpointError(
                f"char_cnn.max_characters_per_token: wanted {_SLOTS_OF_MARKERS} or more with a lexicon, found {slots}"
            )

    @property
    def reads_word_ids(self) -> bool:
        """Whether a word is its number in a vocabulary: no characters, and no lexicon."""
        return self.char_cnn is None and self.lexicon is None

    @property
    def n_character_rows(self) -> int:
        """Rows of the character embedding: one per byte, marker or entry of the lexicon, behind that of the padding."""
        return 262 if self.lexicon is None else len(self.lexicon.characters) + 1

    @property
    def n_features(self) -> int:
        """Width of what the encoder projects: the filters, the vector of a lexicon's word, or both."""
        filters = 0 if self.char_cnn is None else self.char_cnn.n_filters
        return filters + (0 if self.lexicon is None else self.lexicon.word_dim)

    @property
    def peculiar(self) -> str | None:
        """What of the model neither bilm-tf's format nor training here can express, or None."""
        if self.lexicon is not None:
            return "its characters and words are those of a lexicon, not bytes"
        return "its LSTM joins both directions in each layer" if self.lstm.joined else None

    @property
    def trained_by(self) -> str:
        """The name of the loss: `loss` or, if that is None, what bilm-tf's sample_softmax says."""
        return self.loss or ("full_softmax" if self.sample_softmax is False else "sampled_softmax")

    @property
    def softmax_rows(self) -> int | None:
        """Rows of the softmax table: V, one per word, or V - 1, one per inner node of a hierarchical softmax."""
        if self.n_tokens_vocab is None or self.trained_by != "hierarchical_softmax":
            return self.n_tokens_vocab
        return self.n_tokens_vocab - 1

    @classmethod
    def from_dict(cls, values: Any, source: str = "options") -> "ElmoOptions":
        """The options in a parsed options.json; a CheckpointError begins with `source`."""
        if not isinstance(values, dict):
            raise CheckpointError(f"{source}: wanted an object with the keys lstm and char_cnn, found {_shown(values)}")
        top = {key: value for key, value in values.items() if key not in ("lstm", "char_cnn", "lexicon")}
        sections: dict[str, tuple[type, dict[str, Any]]] = {}
        complaints = []
        for name, section in (("lstm", LstmOptions), ("char_cnn", CharCnnOptions), ("lexicon", LexiconOptions)):
            found = values.get(name)
            if isinstance(found, dict):
                sections[name] = (section, flattened(found))
                complaints += _complaints(section, sections[name][1], f"{name}.")
            elif found is not None or name == "lstm":
                complaints.append(f"{name}: wanted an object, found {'nothing' if found is None else _shown(found)}")
            elif name == "char_cnn" and top.get("n_tokens_vocab") is None and values.get("lexicon") is None:
                complaints.append(
                    "char_cnn: wanted an object (or n_tokens_vocab, for a model of word ids), found nothing"
                )
        complaints += _complaints(cls, flattened(top), "")
        if complaints:
            raise CheckpointError(f"{source}: {'; '.join(complaints)}")
        try:
            made = {name: _made(section, found) for name, (section, found) in sections.items()}
            return _made(cls, flattened(top), **made)
        except CheckpointError as error:
            raise CheckpointError(f"{source}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """bilm-tf's nested dictionary; from_dict reads it back to equal options."""
        sections = {"lstm": _section_dict(self.lstm)}
        if self.char_cnn is not None:
            sections["char_cnn"] = _section_dict(self.char_cnn)
        if self.lexicon is not None:
            sections["lexicon"] = _section_dict(self.lexicon)
            sections.get("char_cnn", {}).pop("n_characters", None)  # a number of bytes
        return {**_section_dict(self), **sections}

    def with_n_characters(self, n_characters: int) -> "ElmoOptions":
        """The same options with `n_characters` 261 (as bilm-tf needs while training) or 262 (when used)."""
        if self.char_cnn is None:
            return self
        return dataclasses.replace(self, char_cnn=dataclasses.replace(self.char_cnn, n_characters=n_characters))


def read_options(path: str | os.PathLike[str]) -> ElmoOptions:
    """The options in a bilm-tf options.json or our config.json.

    Raises: CheckpointError naming every wrong key, with what was wanted and found.
    """
    path = Path(path)
    values: Any = read_json(path, Any)
    if isinstance(values, dict) and values.get("format") == OWN_FORMAT:
        values = values.get("options")
        if path.name == CONFIG:
            check_written(path.parent, [CONFIG])
    return ElmoOptions.from_dict(values, source=str(path))


def write_options(path: str | os.PathLike[str], options: ElmoOptions) -> None:
    """Writes bilm-tf's options.json, complete or not at all."""
    with failures_named(path):
        write_json(path, options.to_dict(), indent=2)


def _fields(section: type) -> list[dataclasses.Field]:
    return [f for f in dataclasses.fields(section) if "kind" in f.metadata]


def _key(field: dataclasses.Field) -> str:
    return field.metadata["key"] or field.name


def _same(value: Any) -> Any:
    return value


# kind -> how a value becomes one of JSON.
_PLAIN: dict[str, Callable[[Any], Any]] = {"filters": lambda v: [list(pair) for pair in v], "lexicon": list}


def _section_dict(section: _Section) -> dict[str, Any]:
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
        place[last] = _PLAIN.get(field.metadata["kind"], _same)(value)
    return result


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"embedding": {"dim": 16}} -> {"embedding.dim": 16}."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            result |= flattened(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def _shown(value: Any) -> str:
    return shortened(json.dumps(value, default=repr))


def _complaints(section: type, found: dict[str, Any], prefix: str) -> list[str]:
    """One sentence per key that is missing, wrong, or unknown (with the nearest known key)."""
    fields = {_key(f): f for f in _fields(section)}
    complaints = []
    for key, field in fields.items():
        wanted, fits = _KINDS[field.metadata["kind"]]
        if key not in found:
            if field.default is _REQUIRED:
                complaints.append(f"{prefix}{key}: wanted {wanted}, found nothing")
        elif not (fits(found[key]) or (found[key] is None and field.metadata.get("optional"))):
            complaints.append(f"{prefix}{key}: wanted {wanted}, found {_shown(found[key])}")
    for key in found.keys() - fields.keys():
        near = difflib.get_close_matches(key, fields, n=1)
        hint = f"did you mean {prefix}{near[0]}?" if near else "remove it if it is a note of your own"
        complaints.append(f"{prefix}{shortened(key)}: unknown key; {hint}")
    return complaints


def _made(section: type, found: dict[str, Any], **more: Any) -> Any:
    return section(**{f.name: found[_key(f)] for f in _fields(section) if _key(f) in found}, **more)
