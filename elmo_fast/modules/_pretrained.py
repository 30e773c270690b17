"""Saves an Elmo to a folder and loads it: biLM, weights of the mixes, and settings that the weights do not contain."""

import os
from pathlib import Path
from typing import Any

from torch import Tensor

from elmo_fast.checkpoints import (
    VOCABULARY,
    ElmoOptions,
    State,
    load_checkpoint,
    model_files,
    pretrained_folder,
    read_config,
    save_folder,
    task_settings,
)
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import vocabulary_of
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.word_encoder import WordEncoder

_SETTINGS = ("num_output_representations", "do_layer_norm", "dropout", "keep_sentence_boundaries", "statistics")
_MIX = "scalar_mix_"


def mixes_of(state: State) -> dict[str, Tensor]:
    """The weights of the scalar mixes alone."""
    return {name: tensor for name, tensor in state.items() if name.startswith(_MIX)}


def save_bilm(
    folder: str | os.PathLike[str],
    bilm: BiLM,
    mixes: State | None = None,
    extra: dict[str, Any] | None = None,
    precision: str = "float32",
) -> None:
    """Writes a biLM with its scalar mixes, and vocab.txt for a biLM of word ids that knows its words.

    extra, precision: as in save_folder. Raises: CheckpointError, ElmoFastError.
    """
    save_folder(folder, {**bilm.checkpoint_state(), **(mixes or {})}, bilm.options, extra, precision)
    encoder = bilm.encoder
    if isinstance(encoder, WordEncoder) and encoder.vocabulary is not None:
        encoder.vocabulary.write(os.path.join(folder, VOCABULARY))


def read_elmo(
    model: str | os.PathLike[str], number: int | None, settings: dict[str, Any]
) -> tuple[ElmoOptions, State, dict[str, Any]]:
    """Options, state and arguments of an Elmo: the saved ones, overridden by `number` of mixes and `settings`.

    Raises: ElmoFastError if the folder has another number of mixes; CheckpointError.
    """
    folder = pretrained_folder(model)
    settings, prefix = dict(settings), settings.get("prefix")
    settings.pop("prefix", None)
    state, options = load_checkpoint(folder, prefix=prefix)
    found = len({name.partition(".")[0] for name in mixes_of(state)})
    if found and number not in (None, found):
        raise ElmoFastError(
            f"num_output_representations must be {found}, the number of mixes in {folder}, or None; got {number}"
        )
    kept = {"num_output_representations": 1} | _read_settings(folder, prefix)
    if found or number is not None:
        kept["num_output_representations"] = found or number
    if options.reads_word_ids and settings.get("vocabulary") is None:
        kept["vocabulary"] = vocabulary_of(folder)
        settings = {name: value for name, value in settings.items() if name != "vocabulary"}
    return options, state, kept | settings


def _read_settings(folder: Path, prefix: str | None) -> dict[str, Any]:
    """What save_pretrained keeps in config.json of the arguments that made the module, or what an AllenNLP model's
    config.json says of its ELMo; nothing in other formats."""
    config, weights = model_files(folder)[:2]
    if weights.name == "config.json":
        return task_settings(config, prefix)
    extra = read_config(folder).get("extra") if config.name == "config.json" else None
    kept = extra.get("elmo") if isinstance(extra, dict) else None
    return {name: kept[name] for name in _SETTINGS if name in kept} if isinstance(kept, dict) else {}
