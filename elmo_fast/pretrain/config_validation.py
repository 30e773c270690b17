"""Complaints about a configuration, all at once, each with the name, the wanted and the given."""

import glob
import pathlib
from typing import Any

from elmo_fast.checkpoints import LOSSES
from elmo_fast.errors import ElmoFastError
from elmo_fast.fields import field_complaints, is_number
from elmo_fast.pretrain.config import SECTIONS, DataConfig, ModelConfig, OptimizerConfig, PretrainConfig


def _is_count(value: Any) -> bool:
    return is_number(value, int) and value > 0


def _model_complaints(model: ModelConfig) -> list[str]:
    found = []
    slots = model.max_characters_per_token
    filters = [] if model.filters is None else model.filters  # as a line `filters:` without a value gives
    if not filters:
        found.append("filters must hold at least one [width, number]; got none")
    found += [
        f"filters must be [width of 1 to max_characters_per_token={slots}, number above 0]; got {pair}"
        for pair in filters
        if len(pair) != 2 or not all(_is_count(n) for n in pair) or pair[0] > slots
    ]
    if _is_count(model.dim) and _is_count(model.projection_dim) and model.projection_dim > model.dim:
        found.append(f"projection_dim must not exceed dim={model.dim}; got {model.projection_dim}")
    return found


def _input_complaints(config: PretrainConfig) -> list[str]:
    found, path = [], config.data.vectors_file
    if config.model.input == "vectors" and path is None:
        found.append("vectors_file must name the vectors of input: vectors; got nothing")
    if config.model.input == "vectors" and config.run.init_from is not None:
        found.append("input: vectors creates a new table, and init_from brings one; give input: words with init_from")
    if config.run.prefix is not None and config.run.init_from is None:
        found.append(f"prefix chooses one of the ELMos of init_from; got {config.run.prefix!r} without init_from")
    if config.model.input != "vectors" and path is not None:
        found.append(f"vectors_file goes with input: vectors; got {path!r} with input: {config.model.input}")
    if path is not None and not pathlib.Path(path).is_file():
        found.append(f"vectors_file must exist; got {path!r}")
    if config.model.input != "vectors" and not config.model.train_vectors:
        found.append(f"train_vectors: false goes with input: vectors; got input: {config.model.input}")
    if config.optimizer.negatives is not None and config.optimizer.loss != "negative_sampling":
        found.append(f"negatives goes with loss: negative_sampling; got loss: {config.optimizer.loss}")
    return found


def _shards_complaints(optimizer: OptimizerConfig) -> list[str]:
    """What does not go with exact_shards."""
    found, shards, rows = [], optimizer.exact_shards, optimizer.batch_size
    if shards is None or not _is_count(shards):
        return []
    if shards & (shards - 1):
        found.append(f"exact_shards must be a power of two (1, 2, 4, 8 ...); got {shards}")
    elif _is_count(rows) and rows % shards:
        found.append(f"batch_size must be divisible by exact_shards={shards}; got {rows}")
    if optimizer.micro_batches != 1:
        found.append(
            f"micro_batches must be 1 with exact_shards={shards}, whose shards are computed one after the other and "
            f"save the same memory; got {optimizer.micro_batches!r}"
        )
    if optimizer.optimiser == "adamw":
        found.append(
            "exact_shards goes with optimiser: adagrad (with adamw each shard has gradients of whole tables, which "
            "torch may add in any order on a GPU); got adamw"
        )
    return found


def _data_complaints(data: DataConfig) -> list[str]:
    found = []
    if not data.train_prefix:
        found.append("train_prefix must name the training files, as in 'corpus/train-*'; got nothing")
    for name in ("train_prefix", "heldout_prefix"):
        pattern = getattr(data, name)
        if pattern and not glob.glob(pattern):
            found.append(f"{name} must match at least one file; {pattern!r} matches none")
    if data.vocab_file is not None and not glob.glob(glob.escape(data.vocab_file)):
        found.append(
            f"vocab_file must exist (leave it out to build one from the training text); got {data.vocab_file!r}"
        )
    return found


def complaints(config: PretrainConfig) -> list[str]:
    """Everything that is wrong with `config`, one sentence each; an empty list when it can be run."""
    optimizer = config.optimizer
    found = [one for name in SECTIONS for one in field_complaints(getattr(config, name), {"loss": LOSSES})]
    found += _model_complaints(config.model) + _data_complaints(config.data) + _input_complaints(config)
    found += _shards_complaints(optimizer)
    if optimizer.weight_decay and optimizer.optimiser == "adagrad":
        found.append(f"weight_decay is of adamw; with adagrad it must be 0; got {optimizer.weight_decay!r}")
    if not config.run.save_dir:
        found.append("save_dir must name the folder to write to; got nothing")
    return found


def validate(config: PretrainConfig) -> None:
    """Raises one ElmoFastError that lists every complaint about `config`."""
    found = complaints(config)
    if found:
        raise ElmoFastError("the configuration cannot be run:\n" + "\n".join(f"  - {one}" for one in found))
