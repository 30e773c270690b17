"""State dictionaries of AllenNLP's ELMo, in files of torch.save or in memory: the biLM and its scalar mixes."""

import os
import pickle
import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError, read_failures_named
from ..shortage import reader
from ._complaints import exact_float32, refuse
from .option_fields import flattened
from .options import ElmoOptions
from .state import State, check_state

_MARK = re.compile(r"(.*?)_elmo_lstm\.forward_layer_0\.input_linearity\.weight")
_BILM = re.compile(r"(_token_embedder\.|_elmo_lstm\.(forward|backward)_layer_|_word_embedding\.).*")
_MIX = re.compile(r"scalar_mix_\d+\..*")
# Elmo has the biLM as `_elmo_lstm`, beside its scalar mixes; a bare _ElmoBiLm has neither.
_INSIDE_ELMO = "_elmo_lstm."


def read_allennlp_state(
    source: str | os.PathLike[str] | Mapping[str, Any], options: ElmoOptions, *, prefix: str | None = None
) -> State:
    """Copies of the biLM and the scalar mixes in a .th or .pt file or a state dictionary of any model.

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
    name, found = _name(source), source if isinstance(source, Mapping) else load_torch_file(source)
    # Every tensor in nested dictionaries ({"model": {...}}), under dotted names.
    nested = flattened(found) if isinstance(found, Mapping) else {}
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
    """The value in a file of torch.save, limited to tensors and plain containers."""
    try:
        with read_failures_named(path), open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's notes on old storages; the content is checked below
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "weights_only" not in str(error).lower() and "unsupported" not in str(error).lower():
            raise CheckpointError(f"{path}: not a torch.save file, or damaged ({_line(error)})") from error
        raise CheckpointError(
            f"{path}: contains Python objects besides tensors; reading those could run code hidden in the file, so "
            "it is refused; if you trust it, load it and save only its tensors: torch.save(model.state_dict(), p)"
        ) from error
    except Exception as error:  # a damaged pickle can raise anything; the cause is kept
        raise CheckpointError(f"{path}: not a torch.save file, or damaged ({_line(error)})") from error


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def _prefix(name: str, tensors: Mapping[str, Tensor], wanted: str | None) -> str:
    """The prefix of the biLM's names; several are allowed if their numbers are equal (a module registered twice)."""
    found = [match[1] for match in map(_MARK.fullmatch, tensors) if match]
    if wanted is not None:
        if wanted not in found:
            refuse(name, [f"prefix={wanted!r}: wanted a prefix of a biLM's tensors, found biLMs at {found}"])
        return wanted
    if not found:
        refuse(name, ["wanted an ELMo's tensors (…_elmo_lstm.forward_layer_0.input_linearity.weight), found none"])
    first = _part(tensors, found[0], _BILM)
    for other in found[1:]:
        if not _same(first, _part(tensors, other, _BILM)):
            how = "prefix= or --prefix, or make a model of one: elmo-fast convert --prefix PREFIX"
            refuse(name, [f"contains several different biLMs, at {found}: choose one with {how}"])
    return found[0]


def _same(a: State, b: State) -> bool:
    alike = a.keys() == b.keys() and all(a[k].shape == b[k].shape and is_stored(a[k]) and is_stored(b[k]) for k in a)
    return alike and all(torch.equal(a[k], b[k]) for k in a)


def _part(tensors: Mapping[str, Tensor], prefix: str, names: re.Pattern[str]) -> State:
    inner = ((key.removeprefix(prefix), tensor) for key, tensor in tensors.items() if key.startswith(prefix))
    return {key: tensor for key, tensor in inner if names.fullmatch(key)}


def is_stored(tensor: Tensor) -> bool:
    """Whether its numbers are really stored: a few bytes of a file can expand one number to terabytes."""
    dense = tensor.layout == torch.strided and tensor.is_floating_point() and tensor.device.type != "meta"
    return dense and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
