"""Complaints about a task's configuration, all at once."""

import os
from collections.abc import Callable

from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import BACKENDS, PRECISIONS
from elmo_fast.tasks.config import TaskConfig

TASKS = ("tag", "classify")
PLACES = ("none", "input", "output", "both")
FORMATS = ("auto", "conllu", "columns", "tsv")
POOLINGS = ("max", "mean", "both")
L2_KINDS = ("paper", "bilm-tf")


def validate(config: TaskConfig) -> None:
    """Raises ElmoFastError with every complaint about the fields; looks whether files exist, but not into them."""
    complaints = [*_choices(config), *_numbers(config), *_together(config), *_files(config)]
    if complaints:
        raise ElmoFastError("; ".join(complaints))


def _choices(config: TaskConfig) -> list[str]:
    named = {
        "task": TASKS, "elmo": PLACES, "format": FORMATS, "pooling": POOLINGS, "mix_l2_kind": L2_KINDS,
        "precision": PRECISIONS, "backend": BACKENDS,
    }  # fmt: skip
    found = [
        f"{name} must be one of {', '.join(choices)}; got {getattr(config, name)!r}"
        for name, choices in named.items()
        if getattr(config, name) not in choices
    ]
    layer = config.layer
    if layer not in ("mix", "top") and (isinstance(layer, bool) or not isinstance(layer, int)):
        found.append(f'layer must be "mix", "top" or the number of a layer, 0 being the lowest; got {layer!r}')
    return found


def _numbers(config: TaskConfig) -> list[str]:
    bounds: dict[str, tuple[Callable[[float], bool], str]] = {
        "be 1 or more": (lambda value: value >= 1, "hidden batch_size epochs threads"),
        "be 0 or more": (lambda value: value >= 0, "lstm_layers patience word_dim mix_l2 seed"),
        "be at most 2^24": (lambda value: value <= 1 << 24, "hidden batch_size lstm_layers word_dim"),
        "be at most 2^42": (lambda value: value <= 1 << 42, "seed"),
        "be more than 0": (lambda value: value > 0, "learning_rate elmo_learning_rate grad_clip"),
        "lie in [0, 1)": (lambda value: 0 <= value < 1, "dropout elmo_dropout"),
        "lie in (0, 1]": (lambda value: 0 < value <= 1, "train_share"),
    }
    return [
        f"{name} must {wanted}; got {value}"
        for wanted, (holds, names) in bounds.items()
        for name in names.split()
        if (value := getattr(config, name)) is not None and not holds(value)
    ]


def _together(config: TaskConfig) -> list[str]:
    found = []
    if config.elmo != "none" and config.model is None:
        found.append(f"elmo {config.elmo!r} needs model, the folder of a pretrained biLM")
    if config.fine_tune and config.elmo == "none":
        found.append("fine_tune needs elmo: input, output or both")
    if config.elmo in ("none", "output") and not (config.vectors or config.word_dim or config.characters):
        found.append("no features are left for the BiLSTM: give vectors, word_dim, characters or elmo: input")
    if config.crf and config.task == "classify":
        found.append("crf is of tagging; a classifier has one label per sentence")
    return found


def _files(config: TaskConfig) -> list[str]:
    found = [f"{name} is missing" for name in ("train_path", "dev_path", "save_dir") if not getattr(config, name)]
    for name in ("train_path", "dev_path", "test_path", "vectors", "model"):
        path = getattr(config, name)
        if path and not os.path.exists(path) and not (name == "model" and config.elmo == "none"):
            found.append(f"{name}: there is no {path!r}")
    return found
