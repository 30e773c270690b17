"""What a task's training can be told: one flat dataclass, one sentence per field."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from elmo_fast.errors import ElmoFastError

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
    column: int | str | None = _field(None, "Where the label is: upos, xpos, ... or a number; null: the format's own.")
    save_dir: str = _field("", "Folder for the trained model, its scores and what a killed run needs to go on.")

    model: str | None = _field(None, "Folder of a pretrained biLM, which `elmo` puts in.")
    elmo: str = _field("none", "Where ELMo goes in: none, input (of the BiLSTM), output (beside the BiLSTM's), both.")
    layer: int | str = _field("mix", "What of the biLM is used: mix (of all, learned), top, or a layer's number.")
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
        """All fields in a dictionary that from_flat takes."""
        return dataclasses.asdict(self)
