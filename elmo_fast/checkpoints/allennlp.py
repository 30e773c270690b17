"""AllenNLP's ELMo: a state dictionary, in a file of torch.save or in memory, with its scalar mixes.

And the ELMo inside a task's trained model (model.tar.gz, or its folder).
"""

import mmap
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from ..errors import CheckpointError, read_failures_named, refuse
from ..fields import flattened, read_json
from ..memory import reader
from .options import CONFIG, CharCnnOptions, ElmoOptions, LstmOptions, read_options
from .state import State, check_state, exact_float32

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
    strange = [
        f"{key}: wanted a dense tensor of floating-point numbers, each stored"
        for key, t in state.items()
        if not is_stored(t)
    ]
    if strange:
        refuse(name, strange)
    return where, {key: exact_float32(key, tensor, name) for key, tensor in state.items()}


def _name(source: object) -> str:
    return "state dictionary" if isinstance(source, Mapping) else str(source)


@reader
def load_torch_file(path: str | os.PathLike[str]) -> Any:
    """Return the value in a file of torch.save, limited to tensors and plain containers."""
    try:
        with read_failures_named(path), open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's notes on old storages; the content is checked below
            _refuse_expanding(path, file)
            return torch.load(file, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except pickle.UnpicklingError as error:
        if "weights_only" not in str(error).lower() and "unsupported" not in str(error).lower():
            raise CheckpointError(f"{path}: not a torch.save file, or damaged ({_line(error)})") from error
        raise CheckpointError(
            f"{path}: contains Python objects besides tensors; reading those could run code hidden in the file, so "
            "it is not loaded; if you trust it, load it and save only its tensors: torch.save(model.state_dict(), p)"
        ) from error
    except Exception as error:  # a damaged pickle can raise anything; the cause is kept
        raise CheckpointError(f"{path}: not a torch.save file, or damaged ({_line(error)})") from error


def _refuse_expanding(path: str | os.PathLike[str], file: BinaryIO) -> None:
    """Raise CheckpointError for a file of which a few bytes can take any memory, in ways that torch.save never uses.

    These are compressed or overlapping tensors, and bytearray(n).
    """
    size = os.fstat(file.fileno()).st_size
    if file.read(4) == b"PK\x03\x04":
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
        packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
        if packed or sum(member.file_size for member in members) > size:
            raise CheckpointError(
                f"{path}: its members are compressed or overlap, which torch.save never writes; unpacked, they could "
                "take any memory, so it is not loaded"
            )
    if size:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(b"\nbytearray\n") >= 0:  # how pickles name it; torch loads it among plain containers
                raise CheckpointError(
                    f"{path}: contains a bytearray, which could take any memory, so it is not loaded; save only the "
                    "tensors: torch.save(model.state_dict(), p)"
                )
    file.seek(0)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


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
    a = _part(tensors, prefixes[0], _BILM)
    for other in prefixes[1:]:
        b = _part(tensors, other, _BILM)
        alike = a.keys() == b.keys() and all(
            a[k].shape == b[k].shape and is_stored(a[k]) and is_stored(b[k]) for k in a
        )
        if not alike or not all(torch.equal(a[k], b[k]) for k in a):
            how = "prefix= or --prefix, or make a model of one: elmo-fast convert --prefix PREFIX"
            refuse(name, [f"contains several different biLMs, at {prefixes}: choose one with {how}"])
    return prefixes[0]


def _part(tensors: Mapping[str, Tensor], prefix: str, names: re.Pattern[str]) -> State:
    inner = ((key.removeprefix(prefix), tensor) for key, tensor in tensors.items() if key.startswith(prefix))
    return {key: tensor for key, tensor in inner if names.fullmatch(key)}


def is_stored(tensor: Tensor) -> bool:
    """Whether its numbers are really stored: a few bytes of a file can expand one number to terabytes."""
    dense = tensor.layout == torch.strided and tensor.is_floating_point() and tensor.device.type != "meta"
    return dense and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def task_weights(folder: Path) -> Path | None:
    """Return the weights of a task's model in a folder with its config.json; None if it contains none."""
    files = [file for name in TASK_WEIGHTS if (file := folder / name).is_file()]
    return files[0] if files and (folder / CONFIG).is_file() else None


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
    embedders = _embedders(weights.with_name(CONFIG))
    if len(embedders) > 1:
        embedders = {key: embedders[key] for key in [_entry(weights.with_name(CONFIG), find_elmo(weights, prefix)[0])]}
    kinds: dict[str, Any] = {"do_layer_norm": bool, "dropout": int | float}
    embedder = next(iter(embedders.values()), {})
    return {name: embedder[name] for name, kind in kinds.items() if isinstance(embedder.get(name), kind)}


def _options(weights: Path, prefix: str) -> ElmoOptions:
    """Return the options in the archive, or the published ones of the name in config.json."""
    config = weights.with_name(CONFIG)
    key = _entry(config, prefix)
    archived = weights.parent / ARCHIVED / f"{key}.options_file"
    if archived.is_file():
        return read_options(archived)
    named = str(_embedders(config)[key]["options_file"])
    published = _PUBLISHED.fullmatch(re.split(r"[/\\]", named)[-1])
    if published is None:
        what = f"{key}.options_file is {named}, which is neither in the archive nor one of the published files"
        refuse(config, [f"{what}; give options_file, a copy of that file, and the archive as weight_file"])
    layers, cells, width, highways = map(int, published.groups()[:4])
    return ElmoOptions(
        lstm=LstmOptions(cells, width, layers, cell_clip=3, proj_clip=3, use_skip_connections=True),
        char_cnn=CharCnnOptions(PUBLISHED_FILTERS, n_highway=highways),
    )


def _embedders(config: Path) -> dict[str, dict[str, Any]]:
    """Return the parts of config.json that name an options_file, under their dotted keys.

    Without what is nested in them.
    """
    embedders: dict[str, dict[str, Any]] = {}
    values = read_json(config, dict[str, Any])
    for key, value in flattened(values).items():
        place, _, name = key.rpartition(".")
        embedders.setdefault(place, {})[name] = value
    return {place: part for place, part in embedders.items() if isinstance(part.get("options_file"), str)}


def _entry(config: Path, prefix: str) -> str:
    """Return the key of the ELMo in config.json whose weights begin with `prefix`.

    By its name, if there are several.
    """
    embedders = _embedders(config)
    if not embedders:
        refuse(
            config, ["wanted a part with options_file, as of an ELMo, found none; give options_file with the weights"]
        )
    name = re.search(r"token_embedder_([^.]+)\.", prefix)
    named = [key for key in embedders if name and key.split(".")[-1] == name[1]] or list(embedders)
    if len({embedders[key]["options_file"] for key in named}) > 1:
        refuse(config, [f"several parts name options_file: {', '.join(named)}; give options_file with the weights"])
    return named[0]
