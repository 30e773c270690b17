"""Complaints about a configuration, all at once, each with the name, the wanted and the given."""

import glob
import math
import pathlib
from typing import Any

from elmo_fast.checkpoints import LOSSES
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import ACTIVATIONS, BACKENDS, PRECISIONS
from elmo_fast.pretrain.config import (
    INPUTS,
    OPTIMISERS,
    PLACEMENTS,
    SCHEDULES,
    DataConfig,
    ModelConfig,
    OptimiserConfig,
    PretrainConfig,
)

_POSITIVE = (
    "char_embedding_dim",
    "dim",
    "projection_dim",
    "n_layers",
    "min_count",
    "batch_size",
    "micro_batches",
    "unroll_steps",
    "n_negative_samples_batch",
    "n_epochs",
    "checkpoint_interval",
    "keep_checkpoints",
    "log_interval",
)
_POSITIVE_OR_NULL = ("max_vocab_size", "n_train_tokens", "max_steps", "heldout_interval", "threads")
_POSITIVE_NUMBER = ("initial_accumulator_value", "all_clip_norm_val")
_POSITIVE_NUMBER_OR_NULL = ("cell_clip", "proj_clip", "learning_rate", "max_seconds", "negatives")
_CHOICES = {
    "activation": ACTIVATIONS,
    "precision": ("float32", "tf32", *PRECISIONS[1:]),
    "backend": BACKENDS,
    "optimiser": OPTIMISERS,
    "schedule": SCHEDULES,
    "placement": PLACEMENTS,
    "input": INPUTS,
    "loss": LOSSES,
}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_positive_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _range_complaints(values: dict[str, Any]) -> list[str]:
    rules = [
        (_POSITIVE, False, _is_count, "a whole number above 0"),
        (_POSITIVE_OR_NULL, True, _is_count, "null or a whole number above 0"),
        (_POSITIVE_NUMBER, False, _is_positive_number, "a finite number above 0"),
        (_POSITIVE_NUMBER_OR_NULL, True, _is_positive_number, "null or a finite number above 0"),
    ]
    return [
        f"{name} must be {wanted}; got {values[name]!r}"
        for names, nullable, good, wanted in rules
        for name in names
        if not (good(values[name]) or (nullable and values[name] is None))
    ] + [
        f"{name} must be one of {', '.join(choices)}; got {values[name]!r}"
        for name, choices in _CHOICES.items()
        if values[name] not in choices
    ]


def _model_complaints(model: ModelConfig) -> list[str]:
    found = []
    slots = model.max_characters_per_token
    if not isinstance(slots, int) or slots < 3:
        found.append(f"max_characters_per_token must be a whole number of at least 3; got {slots!r}")
        slots = 3
    if not model.filters:
        found.append("filters must hold at least one [width, number]; got none")
    found += [
        f"filters must be [width of 1 to max_characters_per_token={slots}, number above 0]; got {pair}"
        for pair in model.filters
        if len(pair) != 2 or not all(_is_count(n) for n in pair) or pair[0] > slots
    ]
    if not isinstance(model.n_highway, int) or model.n_highway < 0:
        found.append(f"n_highway must be a whole number, 0 or more; got {model.n_highway!r}")
    if not isinstance(model.dropout, int | float) or not 0 <= model.dropout < 1:
        found.append(f"dropout must be at least 0 and below 1; got {model.dropout!r}")
    if _is_count(model.dim) and _is_count(model.projection_dim) and model.projection_dim > model.dim:
        found.append(f"projection_dim must not exceed dim={model.dim}; got {model.projection_dim}")
    return found


def _input_complaints(config: PretrainConfig) -> list[str]:
    found, path = [], config.data.vectors_file
    if config.model.input == "vectors" and path is None:
        found.append("vectors_file must name the vectors of input: vectors; got nothing")
    if config.model.input == "vectors" and config.run.init_from is not None:
        found.append("input: vectors creates a new table, and init_from brings one; give input: words with init_from")
    if config.model.input != "vectors" and path is not None:
        found.append(f"vectors_file goes with input: vectors; got {path!r} with input: {config.model.input}")
    if path is not None and not pathlib.Path(path).is_file():
        found.append(f"vectors_file must exist; got {path!r}")
    if config.model.input != "vectors" and not config.model.train_vectors:
        found.append(f"train_vectors: false goes with input: vectors; got input: {config.model.input}")
    if config.optimiser.negatives is not None and config.optimiser.loss != "negative_sampling":
        found.append(f"negatives goes with loss: negative_sampling; got loss: {config.optimiser.loss}")
    return found


def _optimiser_complaints(optimiser: OptimiserConfig) -> list[str]:
    found = []
    if not isinstance(optimiser.warmup_steps, int) or optimiser.warmup_steps < 0:
        found.append(f"warmup_steps must be a whole number, 0 or more; got {optimiser.warmup_steps!r}")
    if not isinstance(optimiser.state_reset, int | float) or not 0 <= optimiser.state_reset <= 1:
        found.append(f"state_reset must be 0 to 1; got {optimiser.state_reset!r}")
    if not isinstance(optimiser.final_share, int | float) or not 0 <= optimiser.final_share <= 1:
        found.append(f"final_share must be 0 to 1; got {optimiser.final_share!r}")
    if not isinstance(optimiser.weight_decay, int | float) or not 0 <= optimiser.weight_decay < math.inf:
        found.append(f"weight_decay must be a finite number, 0 or more; got {optimiser.weight_decay!r}")
    elif optimiser.weight_decay and optimiser.optimiser == "adagrad":
        found.append(f"weight_decay is of adamw; with adagrad it must be 0; got {optimiser.weight_decay!r}")
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
    found = _range_complaints(config.flat()) + _model_complaints(config.model)
    found += _optimiser_complaints(config.optimiser) + _data_complaints(config.data) + _input_complaints(config)
    if not isinstance(config.run.seed, int) or config.run.seed < 0:
        found.append(f"seed must be a whole number, 0 or more; got {config.run.seed!r}")
    if not config.run.save_dir:
        found.append("save_dir must name the folder to write to; got nothing")
    return found


def validate(config: PretrainConfig) -> None:
    """Raises one ElmoFastError that lists every complaint about `config`."""
    found = complaints(config)
    if found:
        raise ElmoFastError("the configuration cannot be run:\n" + "\n".join(f"  - {one}" for one in found))
