"""Reads ELMoForManyLangs' folders: config.json, char.dic, word.dic, token_embedder.pkl, encoder.pkl."""

import os
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any, Literal, NotRequired, TypedDict

from torch import Tensor

from ..errors import CheckpointError, shortened
from ..json_files import read_json, typed
from ..shortage import reader
from ._complaints import Shape, exact_float32, finite_complaints, refuse, shape_complaints
from .allennlp_state import is_stored, load_torch_file
from .bilm_layout import with_zero_row
from .lexicon_files import read_lexicon
from .options import CHARACTER_MARKERS, CONFIG, WORD_MARKERS, ElmoOptions
from .state import CHAR_EMBEDDING, LEXICON_WORDS, PROJECTION, State, lstm_names, state_shapes

TOKEN_EMBEDDER, ENCODER = "token_embedder.pkl", "encoder.pkl"
CHARACTERS, WORDS = "char.dic", "word.dic"
# Where the configuration that config.json names is absent: those of its package, elmoformanylangs/configs. They are the
# same but for their names.
PUBLISHED_NAMES = ("cnn_0_100_512_4096_sample.json", "cnn_50_100_512_4096_sample.json")
PUBLISHED = {
    "encoder": {"name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
    "dropout": 0.1,
}
# Tensors by name in each file -> where their names begin in a state.
_FILES = {TOKEN_EMBEDDER: "_token_embedder.", ENCODER: "_elmo_lstm."}
# Names in token_embedder.pkl, and in a state.
_RENAMED = {
    "char_emb_layer.embedding.weight": CHAR_EMBEDDING,
    "word_emb_layer.embedding.weight": LEXICON_WORDS,
}
_BEGINNINGS = {"convolutions.": "char_conv_", "highways.": "_highways.", "projection.": "_projection."}


class _Encoder(TypedDict):
    name: Literal["elmo", "lstm"]
    dim: int
    projection_dim: int
    n_layers: int
    cell_clip: NotRequired[float | None]
    proj_clip: NotRequired[float | None]


class _TokenEmbedder(TypedDict):
    name: Literal["cnn", "lstm"]
    word_dim: int
    char_dim: int
    filters: NotRequired[Any]
    activation: NotRequired[Any]
    n_highway: NotRequired[Any]
    max_characters_per_token: NotRequired[int]


class _Architecture(TypedDict):
    encoder: _Encoder
    token_embedder: _TokenEmbedder
    dropout: NotRequired[float]


def is_manylangs(folder: Path) -> bool:
    """Whether a folder has one of the files that only such a model has."""
    return any((folder / name).exists() for name in _FILES)


def manylangs_files(folder: Path) -> list[Path]:
    """The files of such a model: its weights, config.json, and what of the others lies in the folder.

    Raises: CheckpointError naming what is missing.
    """
    needed = [folder / name for name in (*_FILES, CONFIG)]
    for file in needed:
        if not os.path.isfile(file):
            raise CheckpointError(f"{file}: missing; an ELMoForManyLangs model has {', '.join((*_FILES, CONFIG))}")
    beside = [folder / CHARACTERS, folder / WORDS, folder / _named_configuration(folder / CONFIG).name]
    return [*needed, *(file for file in beside if os.path.isfile(file))]


@reader
def read_manylangs(folder: Path) -> tuple[State, ElmoOptions]:
    """The state and the options of the model in a folder; its lexicons are part of the options.

    Raises: CheckpointError naming the file and what is wrong with it; nothing but tensors is unpickled.
    """
    options = _options(folder)
    state: State = {}
    for name in _FILES:
        state |= _read(folder / name, options)
    return state, options


def _named_configuration(config: Path) -> PureWindowsPath:
    """The path in config.json, with / or \\ between its parts."""
    named = read_json(config, dict[str, Any]).get("config_path")
    if not isinstance(named, str) or not PureWindowsPath(named).name:
        refuse(config, [f"config_path: wanted the name of another configuration, found {named!r:.60}"])
    return PureWindowsPath(named)


def _configuration(folder: Path) -> tuple[Any, str]:
    """The configuration that config.json names, and the file to blame for it."""
    named = _named_configuration(folder / CONFIG)
    for place in (folder / named.as_posix(), folder / named.name):
        if os.path.isfile(place):  # False for what can be no name of a file
            return read_json(place, Any), str(place)
    if named.name in PUBLISHED_NAMES:
        return PUBLISHED, f"{folder / CONFIG} ({named.name})"
    shown = shortened(repr(named.as_posix()))
    refuse(folder / CONFIG, [f"config_path: {shown} is not there; put a file of that name beside {CONFIG}"])


def _options(folder: Path) -> ElmoOptions:
    values, source = _configuration(folder)
    found = typed(values, _Architecture, source)
    embedder = found["token_embedder"]
    convolves, reads_characters = embedder["name"] == "cnn", embedder["char_dim"] > 0
    if reads_characters and not convolves:
        refuse(source, ['token_embedder.name: "lstm" reads no characters: its own code fails on every batch of them'])
    if convolves and "max_characters_per_token" not in embedder:
        refuse(source, ["token_embedder.max_characters_per_token: wanted a whole number, found nothing"])
    options: dict[str, Any] = {"lstm": _lstm(found["encoder"]), "dropout": found.get("dropout", 0.0)}
    options["lexicon"] = lexicon = _lexicons(folder, embedder)
    if reads_characters:
        given = ("filters", "activation", "n_highway", "max_characters_per_token")
        cnn: dict[str, Any] = {name: value for name, value in embedder.items() if name in given}
        options["char_cnn"] = {**cnn, "embedding": {"dim": embedder["char_dim"]}}
    elif convolves:
        lexicon["longest_word"] = max(embedder["max_characters_per_token"] - 2, 0)
    return ElmoOptions.from_dict(options, source)


def _lstm(encoder: _Encoder) -> dict[str, Any]:
    sizes = {name: value for name, value in encoder.items() if name in ("dim", "projection_dim", "n_layers")}
    if encoder["name"] == "lstm":
        return {**sizes, "joined": True}
    clips = {"cell_clip": encoder.get("cell_clip") or None, "proj_clip": encoder.get("proj_clip") or None}
    return {**sizes, **clips, "use_skip_connections": True}


def _lexicons(folder: Path, embedder: _TokenEmbedder) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if embedder["char_dim"] > 0:
        found["characters"] = read_lexicon(folder / CHARACTERS, CHARACTER_MARKERS)
    if embedder["word_dim"] > 0:
        found |= {"words": read_lexicon(folder / WORDS, WORD_MARKERS), "word_dim": embedder["word_dim"]}
    return found


def _read(path: Path, options: ElmoOptions) -> State:
    """The tensors of one file under their names in a state, all checked."""
    tensors = load_torch_file(path)
    if not isinstance(tensors, Mapping) or not all(isinstance(each, Tensor) for each in tensors.values()):
        refuse(path, ["wanted a dictionary of tensors, found something else"])
    wanted = _wanted(path.name, options)
    complaints = shape_complaints({name: tuple(tensor.shape) for name, tensor in tensors.items()}, wanted)
    unknown = sorted(shortened(str(name)) for name in tensors.keys() - wanted.keys())
    complaints += [f"{name}: the configuration requires no such tensor" for name in unknown]
    complaints += [
        f"{name}: wanted stored floating-point numbers"
        for name in wanted
        if name in tensors and not is_stored(tensors[name])
    ]
    if complaints:
        refuse(path, complaints)
    exact = {name: exact_float32(name, tensors[name], path) for name in wanted}
    if complaints := finite_complaints(exact):
        refuse(path, complaints)
    return {
        _ours(path.name, name): with_zero_row(tensor) if name in _RENAMED else tensor for name, tensor in exact.items()
    }


def _wanted(file: str, options: ElmoOptions) -> dict[str, Shape]:
    """Name -> shape of every tensor in a file; a projection is always there."""
    present = [*PROJECTION, lstm_names("forward", 0)[3]]
    shapes = state_shapes(options, present)
    return {
        name: (shape[0] - 1, *shape[1:]) if name in _RENAMED and shape[0] is not None else shape
        for ours, shape in shapes.items()
        if ours.startswith(_FILES[file])
        for name in [_theirs(file, ours)]
    }


def _ours(file: str, name: str) -> str:
    if name in _RENAMED:
        return _RENAMED[name]
    for theirs, ours in _BEGINNINGS.items() if file == TOKEN_EMBEDDER else ():
        if name.startswith(theirs):
            return f"{_FILES[file]}{ours}{name.removeprefix(theirs)}"
    return _FILES[file] + name


def _theirs(file: str, name: str) -> str:
    for theirs, ours in _RENAMED.items():
        if name == ours:
            return theirs
    rest = name.removeprefix(_FILES[file])
    for theirs, ours in _BEGINNINGS.items() if file == TOKEN_EMBEDDER else ():
        if rest.startswith(ours):
            return f"{theirs}{rest.removeprefix(ours)}"
    return rest
