"""The configuration of a task: one flat dataclass, one sentence per field, and every complaint about it at once."""

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from elmo_fast.errors import ElmoFastError
from elmo_fast.fields import described, field_complaints
from elmo_fast.op_choices import BACKENDS, INFERENCE_PRECISIONS

# Where ELMo is used -> the inputs that its mixes are.
PLACES: dict[str, tuple[str, ...]] = {
    "none": (),
    "input": ("input",),
    "output": ("output",),
    "both": ("input", "output"),
}
POOLINGS = ("max", "mean", "both")
L2_KINDS = ("paper", "bilm-tf")
_CHOICES: dict[str, tuple[str, ...]] = {
    "task": ("tag", "classify"),
    "elmo": tuple(PLACES),
    "format": ("auto", "conllu", "columns", "tsv"),
    "pooling": POOLINGS,
    "mix_l2_kind": L2_KINDS,
    "precision": INFERENCE_PRECISIONS,
    "backend": BACKENDS,
}

# The fields that may change when a run is resumed.
MAY_CHANGE = ("epochs", "patience", "resume", "save_dir", "test_path", "cache_dir", "threads", "backend")


@dataclass
class TaskConfig:
    """Everything the training of a tagger or classifier can be told."""

    task: str = described("tag", "tag: a label per word; classify: a label per sentence.")
    train_path: str = described("", "File of training sentences.")
    dev_path: str = described("", "File of sentences whose score stops training and chooses the epoch to keep.")
    test_path: str | None = described(None, "File of sentences to score the kept epoch on; null: none.")
    format: str = described("auto", "Format of the files: conllu, columns (CoNLL 2000/2003), tsv; auto: by the suffix.")
    column: int | str | None = described(None, "Label column: upos, xpos, ... or a number; null: the format's default.")
    save_dir: str = described("", "Folder for the trained model, its scores and the state for resuming.")

    model: str | None = described(None, "Folder of a pretrained biLM; `elmo` chooses where it is used.")
    elmo: str = described("none", "Where ELMo is used: none, input (of the BiLSTM), output (beside its output), both.")
    layer: int | str = described("mix", "Layers of the biLM: mix (of all, learned), top, or a layer's number.")
    mix_l2: float = described(0.001, "λ: weight of the mix's penalty.", within="0 or more")
    mix_l2_kind: str = described("paper", "The penalty: paper, λ Σ w² before the softmax; or bilm-tf's form of it.")
    elmo_dropout: float = described(0.5, "Dropout probability on ELMo's vectors.", within="from 0 to below 1")
    fine_tune: bool = described(False, "Whether the biLM's own weights are trained too.")
    elmo_learning_rate: float = described(0.0001, "Adam's step size for a fine-tuned biLM's weights.")
    cache_dir: str | None = described(None, "Folder for the layers of a frozen biLM; null: save_dir/cache.")

    vectors: str | None = described(None, "File of static word vectors (word2vec, GloVe, safetensors).")
    train_vectors: bool = described(False, "Whether these vectors are trained too.")
    word_dim: int = described(
        100, "Width of random, trained word embeddings if no vectors are given; 0: none.", within="from 0 to 2^24"
    )
    characters: bool = described(False, "Whether to add a small character CNN, trained with the task, to the features.")

    hidden: int = described(128, "Cells of the BiLSTM per layer and direction.", within="from 1 to 2^24")
    lstm_layers: int = described(1, "Layers of the BiLSTM; 0: linear on the features.", within="from 0 to 2^24")
    dropout: float = described(
        0.5,
        "Dropout probability at the BiLSTM's input, between its layers and at its output.",
        within="from 0 to below 1",
    )
    crf: bool = described(False, "Whether a CRF scores the tags of a sentence jointly.")
    pooling: str = described("both", "A classifier's pooling over the words: max, mean, or both, concatenated.")

    batch_size: int = described(32, "Sentences per step.", within="from 1 to 2^24")
    epochs: int = described(50, "Maximum number of passes over the training sentences.")
    patience: int = described(
        5, "Training stops after this many epochs without a better dev score; 0: never.", within="0 or more"
    )
    learning_rate: float = described(0.001, "Adam's step size.")
    grad_clip: float = described(5.0, "Maximum norm of all gradients together.")
    train_share: float = described(
        1.0,
        "Share of the training sentences to use, drawn by the seed; a smaller share is a subset of a larger one.",
        within="above 0 and at most 1",
    )
    seed: int = described(0, "Seed of initial weights, order, dropout and the share.", within="from 0 to 2^42")
    precision: str = described(
        "float32",
        "Matrix products round their operands to float32 (not at all), bfloat16 or float16; int8: those of the frozen "
        "biLM, what is trained stays float32.",
    )
    backend: str = described("auto", f"Backend of the ops: {', '.join(BACKENDS)}; an op without it takes auto.")
    threads: int | None = described(None, "CPU threads; null leaves torch's choice.")
    resume: bool = described(True, "Resume the run in save_dir; false: start over.")

    def features(self) -> str:
        """What the BiLSTM is given, for people; and that a model is named but not used."""
        parts = []
        if self.elmo != "none":
            parts.append(f"ELMo at {self.elmo} ({'fine-tuned' if self.fine_tune else 'frozen'}, layer {self.layer})")
        if self.vectors:
            parts.append(f"vectors of {self.vectors}")
        elif self.word_dim:
            parts.append(f"random word embeddings of {self.word_dim}")
        if self.characters:
            parts.append("a character CNN")
        unused = (
            f"; {self.model} is not used: elmo is none (input puts it in)" if self.model and self.elmo == "none" else ""
        )
        return " + ".join(parts) + unused

    def flat(self) -> dict[str, Any]:
        """All fields in a dictionary."""
        return dataclasses.asdict(self)


def validate(config: TaskConfig) -> None:
    """Raises ElmoFastError with every complaint about the fields; checks that files exist, and does not open them."""
    complaints = [*field_complaints(config, _CHOICES), *_together(config), *_files(config)]
    if complaints:
        raise ElmoFastError("; ".join(complaints))


def _together(config: TaskConfig) -> list[str]:
    found, layer = [], config.layer
    if layer not in ("mix", "top") and (isinstance(layer, bool) or not isinstance(layer, int)):
        found.append(f'layer must be "mix", "top" or the number of a layer, 0 being the lowest; got {layer!r}')
    if config.elmo != "none" and config.model is None:
        found.append(f"elmo {config.elmo!r} needs model, the folder of a pretrained biLM")
    if config.fine_tune and config.precision == "int8":
        found.append("fine_tune needs gradients, which precision int8 has not: take bfloat16 or float32")
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
