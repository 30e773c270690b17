"""Reads ELMoForManyLangs' folders: config.json, char.dic, word.dic, token_embedder.pkl, encoder.pkl.

A lexicon (*.dic) has one entry a line, a tab, its id; ids from 0 on, in any order.
"""

import os
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from torch import Tensor

from .._io.fields import read_json
from ..errors import CheckpointError, read_failures_named, refuse, shortened
from .allennlp import PUBLISHED_FILTERS, check_stored, load_torch_file
from .bilm_layout import with_zero_row
from .options import CHARACTER_MARKERS, CLIPS, CONFIG, PUBLISHED_CLIPS, WORD_MARKERS, ElmoOptions
from .state import (
    CHAR_EMBEDDING,
    LEXICON_WORDS,
    PROJECTION,
    Shape,
    State,
    check_shapes,
    check_state,
    float32,
    lstm_names,
    state_shapes,
)

# The entry of a line that has an id alone: white space at its ends, which a line loses, was all of the entry.
_BLANK = "\u3000"
_DIGITS = 9  # of an id: a number of more is none, and Python takes long to read thousands
CHARACTERS, WORDS = "char.dic", "word.dic"
# Where the configuration that config.json names is absent: those of its package, elmoformanylangs/configs. They are the
# same but for their names.
PUBLISHED_NAMES = ("cnn_0_100_512_4096_sample.json", "cnn_50_100_512_4096_sample.json")
PUBLISHED: dict[str, Any] = {
    "encoder": {"name": "elmo", "projection_dim": 512, **PUBLISHED_CLIPS, "dim": 4096, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": PUBLISHED_FILTERS,
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
    "dropout": 0.1,
}
TOKEN_EMBEDDER, ENCODER = "token_embedder.pkl", "encoder.pkl"
# Tensors by name in each file -> where their names begin in a state.
_FILES = {TOKEN_EMBEDDER: "_token_embedder.", ENCODER: "_elmo_lstm."}
# Names in a state, and in token_embedder.pkl.
_RENAMED = {
    CHAR_EMBEDDING: "char_emb_layer.embedding.weight",
    LEXICON_WORDS: "word_emb_layer.embedding.weight",
}
_BEGINNINGS = {"char_conv_": "convolutions.", "_highways.": "highways.", "_projection.": "projection."}


def read_lexicon(path: Path, markers: Collection[str]) -> list[str]:
    """Return the entries in the order of their ids; `markers` must be among them.

    Raises: CheckpointError naming the file and the line or the entry that is wrong or missing.
    """
    with read_failures_named(path):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(10) + 1
        raise CheckpointError(f"{path}: line {line} is not UTF-8; convert the file") from error
    pairs = [_parsed(path, number, line) for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)]
    entries = {id: entry for entry, id in pairs}
    for what, counts in (("entry", Counter(entry for entry, _ in pairs)), ("id", Counter(id for _, id in pairs))):
        value, count = counts.most_common(1)[0]
        if count > 1:
            refuse(path, [f"wanted each {what} once; {shortened(repr(value))} is in it {count} times"])
    missing = [repr(id) for id in range(len(pairs)) if id not in entries]
    if missing := missing or [marker for marker in markers if marker not in entries.values()]:
        refuse(
            path,
            [f"wanted the ids 0 to {len(pairs) - 1} and the entries {', '.join(markers)}; {missing[0]} is missing"],
        )
    return [entries[id] for id in range(len(entries))]


def _parsed(path: Path, number: int, line: str) -> tuple[str, int]:
    *entry, id = line.strip().split("\t")
    if len(entry) > 1 or not (id.isascii() and id.isdecimal()) or len(id) > _DIGITS:
        refuse(path, [f"line {number}: wanted an entry, a tab and its id, found {shortened(repr(line))}"])
    return entry[0] if entry else _BLANK, int(id)


def named_configuration(config: Path) -> PureWindowsPath:
    """Return the path in config.json, with / or \\ between its parts."""
    named = read_json(config, dict[str, Any]).get("config_path")
    if not isinstance(named, str) or not PureWindowsPath(named).name:
        refuse(config, [f"config_path: wanted the name of another configuration, found {named!r:.60}"])
    return PureWindowsPath(named)


def _configuration(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the configuration that config.json names, and the file to blame for it."""
    named = named_configuration(folder / CONFIG)
    within = [] if named.anchor or ".." in named.parts else [folder / named.as_posix()]
    for place in (*within, folder / named.name):  # published ones name a file of the machine that trained them
        if os.path.isfile(place):  # False for what can be no name of a file
            return read_json(place, dict[str, Any]), str(place)
    if named.name in PUBLISHED_NAMES:
        return PUBLISHED, f"{folder / CONFIG} ({named.name})"
    quoted = shortened(repr(named.as_posix()))
    refuse(folder / CONFIG, [f"config_path: {quoted} is missing; put a file of that name next to {CONFIG}"])


def read_manylangs_options(folder: Path) -> ElmoOptions:
    """Return the options, with the lexicons. Raises: CheckpointError naming the file and what is wrong with it."""
    values, source = _configuration(folder)
    encoder: Any = values.get("encoder")
    embedder: Any = values.get("token_embedder")
    for part, value, kinds in (("encoder", encoder, ("elmo", "lstm")), ("token_embedder", embedder, ("cnn", "lstm"))):
        if not isinstance(value, dict) or value.get("name") not in kinds:
            found = value.get("name") if isinstance(value, dict) else None
            refuse(source, [f"{part}.name: wanted one of {', '.join(kinds)}, found {found!r:.60}"])
    convolves, reads_characters = embedder["name"] == "cnn", bool(embedder.get("char_dim"))
    if reads_characters and not convolves:
        refuse(source, ['token_embedder.name: "lstm" reads no characters: its own code fails on every batch of them'])
    slots = embedder.get("max_characters_per_token")
    if convolves and not isinstance(slots, int):
        refuse(source, [f"token_embedder.max_characters_per_token: wanted a whole number, found {slots!r:.60}"])
    lstm: dict[str, Any] = {name: encoder.get(name) for name in ("dim", "projection_dim", "n_layers")}
    if encoder["name"] == "lstm":
        lstm["joined"] = True
    else:
        lstm |= {clip: encoder.get(clip) or None for clip in CLIPS}
        lstm["use_skip_connections"] = True
    options: dict[str, Any] = {"lstm": lstm, "dropout": values.get("dropout", 0.0)}
    lexicon: dict[str, Any] = {}
    options["lexicon"] = lexicon
    if reads_characters:
        lexicon["characters"] = read_lexicon(folder / CHARACTERS, CHARACTER_MARKERS)
        names = ("filters", "activation", "n_highway", "max_characters_per_token")
        options["char_cnn"] = {name: embedder.get(name) for name in names} | {
            "embedding": {"dim": embedder["char_dim"]}
        }
    elif convolves:
        lexicon["longest_word"] = max(slots - 2, 0)
    if embedder.get("word_dim"):
        lexicon |= {"words": read_lexicon(folder / WORDS, WORD_MARKERS), "word_dim": embedder["word_dim"]}
    return ElmoOptions.from_dict(options, source)


def manylangs_files(folder: Path) -> list[Path]:
    """Return the files of such a model: its weights, config.json, and what of the others lies in the folder.

    None if it has neither of the weights. Raises: CheckpointError naming what is missing.
    """
    needed = [folder / name for name in (*_FILES, CONFIG)]
    if not any(file.exists() for file in needed[:2]):
        return []
    for file in needed:
        if not os.path.isfile(file):
            raise CheckpointError(f"{file}: missing; an ELMoForManyLangs model has {', '.join((*_FILES, CONFIG))}")
    optional = [folder / CHARACTERS, folder / WORDS, folder / named_configuration(folder / CONFIG).name]
    return [*needed, *(file for file in optional if os.path.isfile(file))]


def read_manylangs(folder: Path) -> tuple[State, ElmoOptions]:
    """Return the state and the options of the model in a folder; its lexicons are part of the options.

    Raises: CheckpointError naming the file and what is wrong with it; nothing but tensors is unpickled.
    """
    options = read_manylangs_options(folder)
    state: State = {}
    for name in _FILES:
        state |= _read(folder / name, options)
    check_state(state, options, folder)
    return state, options


def _read(path: Path, options: ElmoOptions) -> State:
    """Return the tensors of one file under their names in a state."""
    tensors = load_torch_file(path)
    if not isinstance(tensors, Mapping) or not all(isinstance(each, Tensor) for each in tensors.values()):
        refuse(path, ["wanted a dictionary of tensors, found something else"])
    names = _names(path.name, options)
    check_shapes(
        path,
        {name: shape for name, (_, shape) in names.items()},
        tensors,
        [name for name in tensors if name not in names],
    )
    check_stored(path, tensors)
    state = {ours: float32(tensors[name]) for name, (ours, _) in names.items()}
    return {name: with_zero_row(tensor) if name in _RENAMED else tensor for name, tensor in state.items()}


def _names(file: str, options: ElmoOptions) -> dict[str, tuple[str, Shape]]:
    """Of every tensor in a file: its name there -> its name in a state, and its shape there; a projection is there."""
    names: dict[str, tuple[str, Shape]] = {}
    for name, shape in state_shapes(options, [*PROJECTION, lstm_names("forward", 0)[3]]).items():
        if name in _RENAMED and file == TOKEN_EMBEDDER and shape[0] is not None:
            names[_RENAMED[name]] = name, (shape[0] - 1, *shape[1:])
        elif name.startswith(_FILES[file]):
            rest = name.removeprefix(_FILES[file])
            begins = next((each for each in _BEGINNINGS if rest.startswith(each)), "")
            names[_BEGINNINGS.get(begins, "") + rest.removeprefix(begins)] = name, shape
    return names
