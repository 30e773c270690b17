"""Reads ELMoForManyLangs' folders: config.json, char.dic, word.dic, token_embedder.pkl, encoder.pkl."""

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from ..errors import CheckpointError, shortened
from ..shortage import reader
from ._complaints import Shape, exact_tensors, refuse, shape_complaints
from .allennlp_state import is_stored, load_torch_file
from .bilm_layout import with_zero_row
from .manylangs_options import CHARACTERS, WORDS, named_configuration, read_manylangs_options
from .options import CONFIG, ElmoOptions
from .state import CHAR_EMBEDDING, LEXICON_WORDS, PROJECTION, State, lstm_names, state_shapes

TOKEN_EMBEDDER, ENCODER = "token_embedder.pkl", "encoder.pkl"
# Tensors by name in each file -> where their names begin in a state.
_FILES = {TOKEN_EMBEDDER: "_token_embedder.", ENCODER: "_elmo_lstm."}
# Names in a state, and in token_embedder.pkl.
_RENAMED = {
    CHAR_EMBEDDING: "char_emb_layer.embedding.weight",
    LEXICON_WORDS: "word_emb_layer.embedding.weight",
}
_BEGINNINGS = {"char_conv_": "convolutions.", "_highways.": "highways.", "_projection.": "projection."}


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
    beside = [folder / CHARACTERS, folder / WORDS, folder / named_configuration(folder / CONFIG).name]
    return [*needed, *(file for file in beside if os.path.isfile(file))]


@reader
def read_manylangs(folder: Path) -> tuple[State, ElmoOptions]:
    """The state and the options of the model in a folder; its lexicons are part of the options.

    Raises: CheckpointError naming the file and what is wrong with it; nothing but tensors is unpickled.
    """
    options = read_manylangs_options(folder)
    state: State = {}
    for name in _FILES:
        state |= _read(folder / name, options)
    return state, options


def _read(path: Path, options: ElmoOptions) -> State:
    """The tensors of one file under their names in a state, all checked."""
    tensors = load_torch_file(path)
    if not isinstance(tensors, Mapping) or not all(isinstance(each, Tensor) for each in tensors.values()):
        refuse(path, ["wanted a dictionary of tensors, found something else"])
    ours = _names(path.name, options)
    wanted = {name: shape for name, (_, shape) in ours.items()}
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
    exact = exact_tensors(path, wanted, tensors.__getitem__)
    return {ours[name][0]: with_zero_row(each) if ours[name][0] in _RENAMED else each for name, each in exact.items()}


def _names(file: str, options: ElmoOptions) -> dict[str, tuple[str, Shape]]:
    """Of every tensor in a file: its name there -> its name in a state, and its shape there; a projection is there."""
    found: dict[str, tuple[str, Shape]] = {}
    for ours, shape in state_shapes(options, [*PROJECTION, lstm_names("forward", 0)[3]]).items():
        if ours in _RENAMED and file == TOKEN_EMBEDDER and shape[0] is not None:
            found[_RENAMED[ours]] = ours, (shape[0] - 1, *shape[1:])
        elif ours.startswith(_FILES[file]):
            rest = ours.removeprefix(_FILES[file])
            begins = next((each for each in _BEGINNINGS if rest.startswith(each)), "")
            found[_BEGINNINGS.get(begins, "") + rest.removeprefix(begins)] = ours, shape
    return found
