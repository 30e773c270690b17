"""What a task's training can be told: one flat dataclass, one sentence per field, all complaints at once."""

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from elmo_fast.errors import ElmoFastError

TASKS = ("tag", "classify")
PLACES = ("none", "input", "output", "both")
FORMATS = ("auto", "conllu", "columns", "tsv")
POOLINGS = ("max", "mean", "both")
L2_KINDS = ("paper", "bilm-tf")
PRECISIONS = ("float32", "bfloat16", "float16")
BACKENDS = ("auto", "native", "triton", "reference")
# What may change between two sittings of one run.
MAY_CHANGE = ("epochs", "patience", "resume", "save_dir", "test_path", "cache_dir", "threads", "backend")


def _field(default: Any, sentence: str) -> Any:
    """A dataclass field with its sentence, which the command line shows as help."""
    return dataclasses.field(default=default, metadata={"help": sentence})


@dataclass
class TaskConfig:
    """Everything the training of a tagger or classifier can be told."""

    task: str = _field("tag", "tag: a label per word; classify: a label per sentence.")
    train_path: str = _field("", "File of training sentences.")
    dev_path: str = _field("", "File of the sentences whose score ends training and chooses the epoch that is kept.")
    test_path: str | None = _field(None, "File of the sentences that the kept epoch is scored on; null: none.")
    format: str = _field("auto", "Of these files: conllu, columns (CoNLL 2000/2003), tsv, or auto: by name and look.")
    column: str | int | None = _field(None, "Where the label is: upos, xpos, ... or a number; null: the format's own.")
    save_dir: str = _field("", "Folder for the trained model, its scores and what a killed run needs to go on.")

    model: str | None = _field(None, "Folder of a pretrained biLM.")
    elmo: str = _field("none", "Where ELMo goes in: none, input (of the BiLSTM), output (beside the BiLSTM's), both.")
    layer: str | int = _field("mix", "What of the biLM is used: mix (of all layers, learned), top, or a layer's number.")
    mix_l2: float = _field(0.001, "λ: weight of the mix's penalty.")
    mix_l2_kind: str = _field(
        "paper", "What the penalty is: paper, λ Σ w² of the weights before the softmax; or bilm-tf, as bilm-tf's."
    )
    elmo_dropout: float = _field(0.5, "Chance of dropping a number of ELMo's vectors.")
    fine_tune: bool = _field(False, "Whether the biLM's own weights are trained too.")
    elmo_learning_rate: float = _field(0.0001, "Adam's step size for a fine-tuned biLM's weights.")
    cache_dir: str | None = _field(None, "Folder for the layers of a frozen biLM; null: save_dir/cache.")

    vectors: str | None = _field(None, "File of static word vectors (word2vec, GloVe, safetensors).")
    train_vectors: bool = _field(False, "Whether these vectors are trained too.")
    word_dim: int = _field(100, "Width of random word embeddings, trained, where no vectors are given; 0: none.")
    characters: bool = _field(False, "Whether a small character CNN, trained with the task, is part of the features.")

    hidden: int = _field(128, "Cells of the BiLSTM per layer and direction.")
    lstm_layers: int = _field(1, "Layers of the BiLSTM; 0: linear on the features.")
    dropout: float = _field(0.5, "Chance of dropping a number at the BiLSTM's input, between layers and at its output.")
    crf: bool = _field(False, "Whether a CRF scores the tags of a sentence together.")
    pooling: str = _field("both", "What a classifier takes over the words: max, mean, or both side by side.")

    batch_size: int = _field(32, "Sentences per step.")
    epochs: int = _field(50, "Most passes over the training sentences.")
    patience: int = _field(5, "Epochs without a better dev score after which training ends; 0: never.")
    learning_rate: float = _field(0.001, "Adam's step size.")
    grad_clip: float = _field(5.0, "Largest norm of all gradients together.")
    train_share: float = _field(
        1.0, "Share of the training sentences that is used, drawn by the seed; a smaller share is part of a larger one."
    )
    seed: int = _field(0, "Seed of initial weights, order, dropout and the share.")
    precision: str = _field(
        "float32", "To what operands of matrix products are rounded in biLM and BiLSTM: float32, bfloat16 or float16."
    )
    backend: str = _field("auto", "Who computes: auto, native (C++), triton or reference (plain torch).")
    threads: int | None = _field(None, "CPU threads; null leaves torch's choice.")
    resume: bool = _field(True, "Go on from what a run left in save_dir; false: begin anew.")

    @classmethod
    def from_flat(cls, values: dict[str, Any]) -> "TaskConfig":
        """The configuration of these fields, defaults for the rest.

        Raises ElmoFastError that names every unknown key.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise ElmoFastError(f"unknown configuration keys: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return cls(**values)

    def flat(self) -> dict[str, Any]:
        """All fields in a dictionary that from_flat takes."""
        return dataclasses.asdict(self)


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
    if layer not in ("mix", "top") and (isinstance(layer, str) or layer < 0):
        found.append(f'layer must be "mix", "top" or the number of a layer, 0 or more; got {layer!r}')
    return found


def _numbers(config: TaskConfig) -> list[str]:
    found = []
    for name, least in (("hidden", 1), ("batch_size", 1), ("epochs", 1), ("lstm_layers", 0), ("patience", 0),
                        ("word_dim", 0), ("mix_l2", 0)):  # fmt: skip
        if not getattr(config, name) >= least:
            found.append(f"{name} must be {least} or more; got {getattr(config, name)}")
    for name in ("learning_rate", "elmo_learning_rate", "grad_clip"):
        if not getattr(config, name) > 0:
            found.append(f"{name} must be more than 0; got {getattr(config, name)}")
    for name in ("dropout", "elmo_dropout"):
        if not 0 <= getattr(config, name) < 1:
            found.append(f"{name} must lie in [0, 1); got {getattr(config, name)}")
    if not 0 < config.train_share <= 1:
        found.append(f"train_share must lie in (0, 1]; got {config.train_share}")
    if config.threads is not None and config.threads < 1:
        found.append(f"threads must be 1 or more; got {config.threads}")
    return found


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
