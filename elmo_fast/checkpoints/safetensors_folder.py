"""Our own format: a folder with model.safetensors (the state), config.json (version, options) and manifest.json."""

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from torch import Tensor

from .._io.atomic_folder import read_folder, write_folder
from .._io.fields import read_json
from ..errors import CheckpointError, check_choice, read_failures_named, write_failures_named
from .options import CONFIG, OWN_FORMAT, ElmoOptions
from .state import State, check_state, from_int8, to_int8

FORMAT_VERSION = 1
WEIGHTS = "model.safetensors"


class _Config(TypedDict):
    """The content of config.json, besides what only other readers ask for."""

    format: Literal["elmo_fast"]
    format_version: Literal[1]
    weights: dict[str, Any]


def save_folder(
    path: str | os.PathLike[str],
    state: Mapping[str, Tensor],
    options: ElmoOptions,
    extra: Mapping[str, Any] | None = None,
    precision: str = "float32",
) -> None:
    """Write model.safetensors, config.json and manifest.json to a folder; other files in it stay.

    If this is killed, the folder contains either the old model or the new one.
    extra: any JSON value, stored in config.json under "extra" (read_config returns it). precision: "float32", or "int8"
    for the weights of products as `to_int8` makes them.
    Raises: CheckpointError if the state does not match the options, or writing fails.
    """
    folder = Path(path)
    check_state(state, options)
    with write_failures_named(folder), write_folder(folder) as new:
        put_model(new, state, options, extra, precision)


def put_model(
    new: Path,
    state: Mapping[str, Tensor],
    options: ElmoOptions,
    extra: Mapping[str, Any] | None = None,
    precision: str = "float32",
) -> None:
    """Write model.safetensors and config.json as part of a save; arguments and errors as in save_folder."""
    check_choice("precision", precision, ("float32", "int8"))
    config: dict[str, Any] = {"format": OWN_FORMAT, "format_version": FORMAT_VERSION, "options": options.to_dict()}
    config |= {"weights": {"file": WEIGHTS, "precision": precision}, "extra": dict(extra or {})}
    try:
        text = json.dumps(config, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"extra: wanted a JSON value, found something else ({error})") from error
    write_tensors(new / WEIGHTS, to_int8(state) if precision == "int8" else state, {"format": "pt"})
    (new / CONFIG).write_text(text + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file: equal tensors give equal bytes.

    metadata: one entry at most, because safetensors writes several in any order.
    Raises: CheckpointError that names the file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    assert metadata is None or len(metadata) == 1
    written, memory = {name: each.detach().cpu().contiguous() for name, each in tensors.items()}, set[int]()
    for name, each in written.items():  # tied weights: the format has no two names for one
        if (begin := each.untyped_storage().data_ptr()) in memory:
            written[name] = each.clone()
        memory.add(begin)
    try:
        save_file(written, path, metadata)
    except SafetensorError as error:
        raise CheckpointError(f"{path.name}: cannot be written ({error})") from error


def warn_if_rounded(folder: Path) -> None:
    """Warn that training from the model in a folder starts from weights that were rounded to int8."""
    if (folder / WEIGHTS).exists() and read_config(folder)["weights"].get("precision") == "int8":
        warnings.warn(
            f"{folder}: its weights were rounded to int8 when they were written, and training starts from the rounded "
            "ones; a folder of the same model in float32 gives a better start",
            stacklevel=3,
        )


def load_folder(path: str | os.PathLike[str]) -> tuple[State, ElmoOptions]:
    """Return the state and the options in a folder that save_folder wrote.

    A folder whose manifest.json was deleted is read with a warning.
    Raises: CheckpointError naming the file and what is missing, damaged or of another version.
    """
    return read_folder(path, [CONFIG, WEIGHTS], get_model, warns=True)


def get_model(folder: Path) -> tuple[State, ElmoOptions]:
    """Read model.safetensors and config.json, as part of `read_folder`; errors as in load_folder."""
    weights = folder / WEIGHTS
    config = dict[str, Any](read_json(folder / CONFIG, _Config))
    options = ElmoOptions.from_dict(config.get("options"), source=str(folder / CONFIG))
    state = from_int8(read_tensor_file(weights)[0], weights)
    check_state(state, options, weights)
    return state, options


def read_tensor_file(path: Path) -> tuple[State, dict[str, str]]:
    """Return tensors and metadata of a safetensors file. Raises: CheckpointError if it is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with read_failures_named(path), safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file, or damaged ({error})") from error


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of config.json, with digest, format and version checked.

    "extra" is what save_folder was given.
    """
    return read_folder(path, [CONFIG], lambda folder: dict(read_json(folder / CONFIG, _Config)))
