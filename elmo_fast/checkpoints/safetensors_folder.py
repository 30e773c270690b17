"""The own format: a folder with model.safetensors (the state) and config.json (version, options, digest)."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import CheckpointError
from ..files import sha256_of
from ..shortage import reader
from ._complaints import refuse
from ._writing import written_aside
from .options import OWN_FORMAT, ElmoOptions, read_json
from .state import State, check_state

FORMAT_VERSION = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save_folder(
    path: str | os.PathLike[str],
    state: Mapping[str, Tensor],
    options: ElmoOptions,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Writes the folder; other files in it stay.

    Each file is whole or as it was; config.json comes last and holds the digest of the weights it belongs to.
    extra: anything JSON can hold, kept in config.json under "extra" (read_config returns it).
    Raises: CheckpointError where the state does not fit the options, or the disk does not take it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    folder = Path(path)
    check_state(state, options)
    config = {"format": OWN_FORMAT, "format_version": FORMAT_VERSION, "options": options.to_dict()}
    try:
        json.dumps(extra := dict(extra or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"extra: wanted what JSON can hold, found something else ({error})") from error
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with written_aside(folder / CONFIG) as aside_config, written_aside(folder / WEIGHTS) as aside:
        try:
            save_file(tensors, aside, metadata={"format": "pt", "elmo_fast": json.dumps(config)})
        except SafetensorError as error:
            raise CheckpointError(f"{folder / WEIGHTS}: cannot be written ({error})") from error
        weights = {"file": WEIGHTS, "sha256": sha256_of(aside)}
        text = json.dumps({**config, "weights": weights, "extra": extra}, indent=2)
        aside_config.write_text(text + "\n", encoding="utf-8")


@reader
def load_folder(path: str | os.PathLike[str]) -> tuple[State, ElmoOptions]:
    """The state and the options in a folder that save_folder wrote.

    Raises: CheckpointError naming the file and what is missing, damaged or of another version.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(path)
    config = read_config(folder)
    options = ElmoOptions.from_dict(config.get("options"), source=str(folder / CONFIG))
    weights = folder / WEIGHTS
    try:
        digest = sha256_of(weights)
        if digest != config["weights"]["sha256"]:
            wanted = config["weights"]["sha256"][:64]
            refuse(weights, [f"damaged, or not of one save with {CONFIG}: wanted sha256 {wanted}, found {digest}"])
        state = load_file(weights)
    except OSError as error:
        raise CheckpointError(f"{weights}: cannot be read ({error.strerror or error})") from error
    except SafetensorError as error:
        raise CheckpointError(f"{weights}: not a safetensors file, or a damaged one ({error})") from error
    check_state(state, options, weights)
    return state, options


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What config.json holds, its format and version checked; "extra" is what save_folder was given."""
    file = Path(path) / CONFIG
    config = read_json(file)
    if not isinstance(config, dict) or config.get("format") != OWN_FORMAT:
        refuse(file, [f'format: wanted "{OWN_FORMAT}"; this is not a folder that elmo_fast wrote'])
    version = config.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        refuse(file, [f"format_version: wanted {FORMAT_VERSION}, found {version!r}; another release wrote this folder"])
    weights = config.get("weights")
    if not isinstance(weights, dict) or not isinstance(weights.get("sha256"), str):
        refuse(file, ["weights.sha256: wanted the digest of model.safetensors, found none"])
    return config
