"""Our own format: a folder with model.safetensors (the state), config.json (version, options) and manifest.json."""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from torch import Tensor

from ..errors import CheckpointError, check_choice, read_failures_named, write_failures_named
from ..fields import read_json
from ..manifest import check_older, check_written, warn_unchecked, writing_together
from ..memory import reader
from .options import CONFIG, OWN_FORMAT, ElmoOptions
from .state import State, check_state, from_int8, to_int8

FORMAT_VERSION = 1
WEIGHTS = "model.safetensors"


class _Weights(TypedDict, total=False):
    precision: str
    sha256: str  # written by older versions


class _Config(TypedDict):
    """The content of config.json, besides what only other readers ask for."""

    format: Literal["elmo_fast"]
    format_version: Literal[1]
    weights: _Weights


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
    with write_failures_named(folder / WEIGHTS), writing_together(folder) as new:
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
    try:
        json.dumps(extra := dict(extra or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"extra: wanted a JSON value, found something else ({error})") from error
    tensors = to_int8(state) if precision == "int8" else state
    write_tensors(new / WEIGHTS, tensors, {"format": "pt", "elmo_fast": json.dumps(config)}, WEIGHTS)
    config["weights"] = {"file": WEIGHTS, "precision": precision}
    (new / CONFIG).write_text(json.dumps({**config, "extra": extra}, indent=2) + "\n", encoding="utf-8")


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None, shown: object = None
) -> None:
    """Write a safetensors file. Raises: CheckpointError that names it as `shown`, or by its path."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: each.detach().cpu().contiguous() for name, each in tensors.items()}, path, metadata)
    except SafetensorError as error:
        raise CheckpointError(f"{shown or path}: cannot be written ({error})") from error
    # Sort the metadata, which safetensors writes in any order, so that equal models give equal files.
    with open(path, "r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        if len(metadata := header.get("__metadata__", {})) > 1:
            header["__metadata__"] = dict(sorted(metadata.items()))
            ordered = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
            file.seek(8)
            file.write(ordered.ljust(size))


def warn_if_rounded(folder: Path) -> None:
    """Warn that training from the model in a folder starts from weights that were rounded to int8."""
    if (folder / WEIGHTS).exists() and read_config(folder)["weights"].get("precision") == "int8":
        warnings.warn(
            f"{folder}: its weights were rounded to int8 when they were written, and training starts from the rounded "
            "ones; a folder of the same model in float32 gives a better start",
            stacklevel=3,
        )


@reader
def load_folder(path: str | os.PathLike[str], others: Sequence[str] = ()) -> tuple[State, ElmoOptions]:
    """Return the state and the options in a folder that save_folder wrote.

    A folder of an older version, without manifest.json, is read with a warning that names what could not be checked.
    others: other files that the caller reads from it, for that warning.
    Raises: CheckpointError naming the file and what is missing, damaged or of another version.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(path)
    weights = folder / WEIGHTS
    whole = check_written(folder, [CONFIG, WEIGHTS])
    config = dict[str, Any](read_json(folder / CONFIG, _Config))
    options = ElmoOptions.from_dict(config.get("options"), source=str(folder / CONFIG))
    digest = config["weights"].get("sha256")
    if not whole:
        check_older(weights, digest, CONFIG)
    with read_failures_named(weights):
        try:
            state = from_int8(load_file(weights), weights)
        except SafetensorError as error:
            raise CheckpointError(f"{weights}: not a safetensors file, or damaged ({error})") from error
    check_state(state, options, weights)
    if not whole:
        warn_unchecked(folder, [*others, CONFIG, *([] if digest else [WEIGHTS])])
    return state, options


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of config.json, with digest, format and version checked.

    "extra" is what save_folder was given.
    """
    file = Path(path) / CONFIG
    check_written(file.parent, [CONFIG])
    return dict(read_json(file, _Config))
