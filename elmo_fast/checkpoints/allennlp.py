"""AllenNLP's ELMo: a state dictionary, in a file of torch.save or in memory, with its scalar mixes.

And the ELMo inside a task's trained model (model.tar.gz, or its folder).
"""

import os
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._io.fields import flattened, read_json
from ..errors import CheckpointError, read_failures_named, refuse
from .options import CONFIG, PUBLISHED_CLIPS, CharCnnOptions, ElmoOptions, LstmOptions, read_options
from .state import State, check_state, float32

_MARK = re.compile(r"(.*?)_elmo_lstm\.forward_layer_0\.input_linearity\.weight")
_BILM = re.compile(r"(_token_embedder\.|_elmo_lstm\.(forward|backward)_layer_|_word_embedding\.).*")
_MIX = re.compile(r"scalar_mix_\d+\..*")
# Elmo has the biLM as `_elmo_lstm`, next to its scalar mixes; a bare _ElmoBiLm has neither.
_INSIDE_ELMO = "_elmo_lstm."
# In an archive; in the folder of a training run; what `allennlp push_to_hf` calls the latter on the hub.
TASK_WEIGHTS = ("weights.th", "best.th", "model.th")
ARCHIVED = "fta"  # other files of the configuration, under the keys that named them
# AllenNLP's published options, such as elmo_2x4096_512_2048cnn_2xhighway_5.5B_options.json.
_PUBLISHED = re.compile(r"elmo_(\d+)x(\d+)_(\d+)_2048cnn_(\d+)xhighway(_5\.5B)?_options\.json")
PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # 2048


def read_allennlp_state(
    source: str | os.PathLike[str] | Mapping[str, Any], options: ElmoOptions, *, prefix: str | None = None
) -> State:
    """Copy of the biLM and the scalar mixes in a .th or .pt file or a state dictionary of any model.

    prefix: where the biLM's names begin, such as "text_field_embedder.token_embedder_elmo._elmo._elmo_lstm.";
    needed only if the model contains several different ones.
    Files are never unpickled: only tensors and plain containers are read (torch.load with weights_only=True).
    Raises: CheckpointError naming the file and every wrong tensor, with what was wanted and found.
    """
    _, state = find_elmo(source, prefix)
    check_state(state, options, _name(source))
    return state


def find_elmo(source: str | os.PathLike[str] | Mapping[str, Any], prefix: str | None = None) -> tuple[str, State]:
    """Where the biLM's names begin, and copies of it and its scalar mixes, whose shapes are not compared with options.

    Arguments and errors as in read_allennlp_state.
    """
    name, named_tensors = _name(source), source if isinstance(source, Mapping) else load_torch_file(source)
    # Every tensor in nested dictionaries ({"model": {...}}), under dotted names.
    nested = flattened(named_tensors) if isinstance(named_tensors, Mapping) else {}
    tensors = {key: tensor for key, tensor in nested.items() if isinstance(tensor, Tensor)}
    where = _prefix(name, tensors, prefix)
    state = _part(tensors, where, _BILM)
    if where.endswith(_INSIDE_ELMO):
        state |= _part(tensors, where.removesuffix(_INSIDE_ELMO), _MIX)
    check_stored(name, state)
    return where, {key: float32(tensor) for key, tensor in state.items()}


def _name(source: object) -> str:
    return "state dictionary" if isinstance(source, Mapping) else str(source)


def load_torch_file(path: str | os.PathLike[str]) -> Any:
    """Return the value in a file of torch.save, limited to tensors and plain containers."""
    try:
        with read_failures_named(path), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's notes on old storages; the content is checked by the callers
            return torch.load(path, map_location="cpu", weights_only=True)
    except (CheckpointError, MemoryError):
        raise
    except Exception as error:  # a damaged pickle can raise anything
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, pickle.UnpicklingError) and ("weights_only" in text or "nsupported" in text):
            raise CheckpointError(
                f"{path}: contains Python objects besides tensors; reading those could run code hidden in the file, so "
                "it is not loaded; if you trust it, load it and save only its tensors: torch.save(model.state_dict(), "
                "p)"
            ) from error
        raise CheckpointError(f"{path}: not a torch.save file, or damaged ({text:.200})") from error


def _prefix(name: str, tensors: Mapping[str, Tensor], prefix: str | None) -> str:
    """Return the prefix of the biLM's names.

    Several are allowed if their numbers are equal (a module registered twice).
    """
    prefixes = [match[1] for match in map(_MARK.fullmatch, tensors) if match]
    if prefix is not None:
        if prefix not in prefixes:
            refuse(name, [f"prefix={prefix!r}: wanted a prefix of a biLM's tensors, found biLMs at {prefixes}"])
        return prefix
    if not prefixes:
        refuse(name, ["wanted an ELMo's tensors (…_elmo_lstm.forward_layer_0.input_linearity.weight), found none"])
    first, *others = (_part(tensors, each, _BILM) for each in prefixes)
    for other in others:
        check_stored(name, other)
        if first.keys() != other.keys() or not all(torch.equal(first[key], other[key]) for key in first):
            how = "prefix= or --prefix, or make a model of one: elmo-fast convert --prefix PREFIX"
            refuse(name, [f"contains several different biLMs, at {prefixes}: choose one with {how}"])
    return prefixes[0]


def _part(tensors: Mapping[str, Tensor], prefix: str, names: re.Pattern[str]) -> State:
    inner = ((key.removeprefix(prefix), tensor) for key, tensor in tensors.items() if key.startswith(prefix))
    return {key: tensor for key, tensor in inner if names.fullmatch(key)}


def check_stored(source: object, tensors: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError unless each tensor's numbers are stored: a few bytes of a file can expand to terabytes."""
    for name, each in tensors.items():
        dense = each.layout == torch.strided and each.is_floating_point() and each.device.type != "meta"
        if not dense or each.numel() * each.element_size() > each.untyped_storage().nbytes():
            refuse(source, [f"{name}: wanted a dense tensor of floating-point numbers, each stored"])


def task_weights(folder: Path) -> Path | None:
    """Return the weights of a task's model in a folder with its config.json; None if it contains none."""
    files = [file for name in TASK_WEIGHTS if (file := folder / name).is_file()]
    return files[0] if files and (folder / CONFIG).is_file() else None


def task_files(folder: Path) -> list[Path]:
    """Return the weights, config.json and options of a task's model in a folder; none if it contains none."""
    weights = task_weights(folder)
    return [weights, folder / CONFIG, *sorted((folder / ARCHIVED).glob("*.options_file"))] if weights else []


def read_task_model(
    weights: Path, options_file: str | os.PathLike[str] | None = None, prefix: str | None = None
) -> tuple[State, ElmoOptions]:
    """Return the biLM and the scalar mixes of a task's model, and the biLM's options.

    options_file: the options, if the archive has none and config.json names none of the published ones; prefix: as in
    read_allennlp_state.
    Raises: CheckpointError naming the file and what is missing, or the ELMos of which one must be chosen.
    """
    where, state = find_elmo(weights, prefix)
    options = read_options(options_file) if options_file is not None else _options(weights, where)
    check_state(state, options, weights)
    return state, options


def task_settings(weights: Path, prefix: str | None = None) -> dict[str, Any]:
    """Return what config.json says of the ELMo besides its files: do_layer_norm and dropout, if present."""
    embedders = _embedders(weights)
    if len(embedders) > 1:
        embedders = dict([_embedder(weights, find_elmo(weights, prefix)[0])])
    kinds: dict[str, Any] = {"do_layer_norm": bool, "dropout": int | float}
    embedder = next(iter(embedders.values()), {})
    return {name: embedder[name] for name, kind in kinds.items() if isinstance(embedder.get(name), kind)}


def _options(weights: Path, prefix: str) -> ElmoOptions:
    """Return the options in the archive, or the published ones of the name in config.json."""
    key, embedder = _embedder(weights, prefix)
    archived = weights.parent / ARCHIVED / f"{key}.options_file"
    if archived.is_file():
        return read_options(archived)
    named = embedder["options_file"]
    published = _PUBLISHED.fullmatch(re.split(r"[/\\]", named)[-1])
    if published is None:
        what = f"{key}.options_file is {named}, which is neither in the archive nor one of the published files"
        refuse(
            weights.with_name(CONFIG),
            [f"{what}; give options_file, a copy of that file, and the archive as weight_file"],
        )
    layers, cells, width, highways = map(int, published.groups()[:4])
    return ElmoOptions(
        lstm=LstmOptions(cells, width, layers, **PUBLISHED_CLIPS, use_skip_connections=True),
        char_cnn=CharCnnOptions(PUBLISHED_FILTERS, n_highway=highways),
    )


def _embedders(weights: Path) -> dict[str, dict[str, Any]]:
    """Return the parts of config.json that name an options_file, under their dotted keys, without nested parts."""
    embedders: dict[str, dict[str, Any]] = {}
    for key, value in flattened(read_json(weights.with_name(CONFIG), dict[str, Any])).items():
        place, _, name = key.rpartition(".")
        embedders.setdefault(place, {})[name] = value
    return {place: part for place, part in embedders.items() if isinstance(part.get("options_file"), str)}


def _embedder(weights: Path, prefix: str) -> tuple[str, dict[str, Any]]:
    """Return the key and the part of config.json of the ELMo whose weights begin with `prefix`; of several, by name."""
    embedders, name = _embedders(weights), re.search(r"token_embedder_([^.]+)\.", prefix)
    named = [key for key in embedders if name and key.split(".")[-1] == name[1]] or list(embedders)
    if len({embedders[key]["options_file"] for key in named}) != 1:
        what = f"several: {', '.join(named)}" if named else "none"
        refuse(
            weights.with_name(CONFIG),
            [f"wanted a part with options_file, as of an ELMo, found {what}; give options_file with the weights"],
        )
    return named[0], embedders[named[0]]
