"""The configuration and the lexicons in ELMoForManyLangs' folders, as options."""

import os
from pathlib import Path, PureWindowsPath
from typing import Any, Literal, NotRequired, TypedDict

from ..errors import shortened
from ..json_files import read_json, typed
from ._complaints import refuse
from .lexicon_files import read_lexicon
from .option_sections import CHARACTER_MARKERS, WORD_MARKERS
from .options import CONFIG, ElmoOptions

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


def named_configuration(config: Path) -> PureWindowsPath:
    """The path in config.json, with / or \\ between its parts."""
    named = read_json(config, dict[str, Any]).get("config_path")
    if not isinstance(named, str) or not PureWindowsPath(named).name:
        refuse(config, [f"config_path: wanted the name of another configuration, found {named!r:.60}"])
    return PureWindowsPath(named)


def _configuration(folder: Path) -> tuple[Any, str]:
    """The configuration that config.json names, and the file to blame for it."""
    named = named_configuration(folder / CONFIG)
    within = [] if named.anchor or ".." in named.parts else [folder / named.as_posix()]
    for place in (*within, folder / named.name):  # published ones name a file of the machine that trained them
        if os.path.isfile(place):  # False for what can be no name of a file
            return read_json(place, Any), str(place)
    if named.name in PUBLISHED_NAMES:
        return PUBLISHED, f"{folder / CONFIG} ({named.name})"
    shown = shortened(repr(named.as_posix()))
    refuse(folder / CONFIG, [f"config_path: {shown} is not there; put a file of that name beside {CONFIG}"])


def read_manylangs_options(folder: Path) -> ElmoOptions:
    """The options, with the lexicons. Raises: CheckpointError naming the file and what is wrong with it."""
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
