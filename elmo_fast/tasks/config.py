"""The configuration of a task: one flat dataclass, whose docstrings are the options' help; every complaint at once."""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from elmo_fast._io.fields import field_complaints, within
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import Backend, InferencePrecision, Tokenizer

# Where ELMo is used -> the inputs that its mixes are.
ELMO_AT = {"none": (), "input": ("input",), "output": ("output",), "both": ("input", "output")}
Pooling = Literal["max", "mean", "both"]
Metric = Literal["auto", "spans", "labels"]

# The fields that may change when a run is resumed.
MAY_CHANGE = ("epochs", "patience", "resume", "save_dir", "test_path", "cache_dir", "copy_model", "threads", "backend")
# Those that name files: they may be written in another way, or have moved; a digest of the content must not change.
MAY_MOVE = ("train_path", "dev_path", "model", "vectors")


@dataclass
class TaskConfig:
    """All settings of the training of a tagger or classifier."""

    task: Literal["tag", "classify"] = "tag"
    """tag: a label per word; classify: a label per sentence"""
    train_path: str = ""
    """labelled sentences to train on"""
    dev_path: str = ""
    """labelled sentences whose score chooses the epoch to keep and stops training"""
    test_path: str | None = None
    """labelled sentences on which the kept epoch is scored; null: none"""
    format: Literal["auto", "conllu", "columns", "tsv", "csv", "jsonl", "parquet"] = "auto"
    """format of the files: conllu, columns (CoNLL 2000/2003), tsv, or a table: csv, jsonl or parquet; auto: by the
    suffix"""
    column: int | str | None = None
    """column of the labels: upos, xpos, ... or a number; of a table (csv, jsonl, parquet, or a tsv whose first line
    names its columns) that of the sentences; null: the format's default, of a table text"""
    label_column: str | None = None
    """of a table: column of the labels; null: label"""
    pair_column: str | None = None
    """with classify, of a table: column of second texts, to classify pairs, such as a premise and a hypothesis, by
    [u; v; |u - v|; u * v] of their pooled vectors; null: single sentences"""
    tokenizer: Tokenizer | None = None
    """tokenizer of sentences in tables, tsv and text files: whitespace, basic, spacy or logs; null: that of the model,
    else whitespace"""
    save_dir: str = ""
    """folder for the trained model, its scores and the state for resuming"""

    model: str | None = None
    """pretrained biLM: a folder (such as that of options.json and weights.hdf5), an archive, or a name that
    `elmo-fast models` lists; --elmo says where it is used"""
    prefix: str | None = None
    elmo: Literal["none", "input", "output", "both"] = "none"
    """where ELMo is used: none, input (of the BiLSTM), output (with its output) or both"""
    layer: int | str = "mix"
    """layer of the biLM: mix (of all, learned), top, or a number from 0"""
    mix_l2: float = within(0.001, "0 or more")
    """λ of the penalty λ Σ w² on the mix's weights before the softmax (bilm-tf's is the same sum)"""
    elmo_dropout: float = within(0.5, "from 0 to below 1")
    """dropout probability of ELMo's vectors"""
    fine_tune: bool = False
    """also train the weights of the biLM"""
    elmo_learning_rate: float = 0.0001
    """with fine_tune: Adam's learning rate for the biLM"""
    cache_dir: str | None = None
    """folder for the cached layers of a frozen biLM; null: save_dir/cache"""
    copy_model: bool = False
    """copy the frozen biLM into save_dir, which then predicts without the biLM's own folder, wherever it is moved; a
    fine-tuned biLM always lies there"""

    vectors: str | None = None
    """static word vectors: word2vec, GloVe or safetensors, plain or .gz; null: learned with the task"""
    train_vectors: bool = False
    """also train the static vectors"""
    word_dim: int = within(100, "from 0 to 2^24")
    """without vectors: width of the word embeddings learned with the task; 0: none"""
    characters: bool = False
    """add a small character CNN, trained with the task"""

    hidden: int = within(128, "from 1 to 2^24")
    """cells of the BiLSTM per layer and direction"""
    lstm_layers: int = within(1, "from 0 to 2^24")
    """layers of the BiLSTM; 0: none, linear on the features"""
    dropout: float = within(0.5, "from 0 to below 1")
    """dropout probability at the BiLSTM's input, between its layers and at its output"""
    metric: Metric = "auto"
    """score of a tagger, which in training chooses the epoch to keep: spans (F1 of spans by BIO, IOBES or BMES tags;
    other tags count as O) or labels (accuracy); auto: spans if the training data has more tags like B-X and I-X
    than other tags except O"""
    crf: bool = False
    """score the tags of a sentence jointly, with a CRF"""
    pooling: Pooling = "both"
    """with classify: pooling over the words: max, mean or both (concatenated)"""

    batch_size: int = within(32, "from 1 to 2^24")
    """sentences per step"""
    epochs: int = 100
    """maximum number of passes over the training sentences; `patience` usually ends training before"""
    patience: int = within(5, "0 or more")
    """stop after this many epochs without a better dev score; 0: never"""
    learning_rate: float = 0.001
    """Adam's learning rate"""
    grad_clip: float = 5.0
    """maximum norm of all gradients together"""
    train_share: float = within(1.0, "above 0 and at most 1")
    """share of the training sentences to use, drawn by the seed; a smaller share is a subset of a larger one"""
    seed: int = within(0, "from 0 to 2^42")
    """seed of initial weights, order, dropout and the share"""
    precision: InferencePrecision = "float32"
    """rounds the operands of matrix products, for speed (see elmo-fast info); float32 rounds nothing; int8: in the
    frozen biLM only"""
    backend: Backend = "auto"
    threads: int | None = None
    resume: bool = True
    """resume the run in save_dir; false: start over"""

    def flat(self) -> dict[str, Any]:
        """All fields in a dictionary."""
        return dataclasses.asdict(self)


# Field -> the field that takes away its effect, at which values (in words too), and what to do. One that is left at its
# default, or asks for nothing (0 or false), is no mistake.
_NO_EFFECT: dict[str, tuple[str, Callable[[Any], bool], str, str]] = {
    "pooling": ("task", lambda task: task == "tag", "--task tag", "give --task classify"),
    "pair_column": ("task", lambda task: task == "tag", "--task tag", "give --task classify"),
    "train_vectors": ("vectors", lambda path: path is None, "no --vectors", "give --vectors FILE"),
    "word_dim": ("vectors", lambda path: path is not None, "--vectors", "leave --vectors out"),
    "mix_l2": ("layer", lambda layer: layer != "mix", "one --layer", "give --layer mix"),
    "elmo_learning_rate": ("fine_tune", lambda tuned: not tuned, "a frozen biLM", "give --fine_tune true"),
    "crf": ("task", lambda task: task == "classify", "--task classify", "give --task tag"),
    "prefix": ("model", lambda model: model is None, "no --model", "give --model"),
    "fine_tune": ("elmo", lambda elmo: elmo == "none", "--elmo none", "give --elmo input, output or both"),
    "copy_model": ("elmo", lambda elmo: elmo == "none", "--elmo none", "give --elmo input, output or both"),
    "cache_dir": ("fine_tune", lambda tuned: tuned, "--fine_tune true", "leave --fine_tune out"),
}


def validate(config: TaskConfig) -> None:
    """Raise ElmoFastError with every complaint about the fields; check that files exist, and does not open them."""
    # It imports torch, which the options of a command need not.
    from elmo_fast.checkpoints import missing_model

    complaints, layer = field_complaints(config), config.layer
    for name, (other, takes_away, words, remedy) in _NO_EFFECT.items():
        value = getattr(config, name)
        if value and value != getattr(TaskConfig, name) and takes_away(getattr(config, other)):
            complaints.append(f"--{name} does nothing with {words}: {remedy}, or leave --{name} out")
    if layer not in ("mix", "top") and (isinstance(layer, bool) or not isinstance(layer, int)):
        complaints.append(f'layer must be "mix", "top" or the number of a layer, 0 being the lowest; got {layer!r}')
    if config.elmo != "none" and config.model is None:
        complaints.append(f"--elmo {config.elmo} needs --model, a pretrained biLM: a folder, or a name such as mini")
    if config.fine_tune and config.precision == "int8":
        complaints.append("--fine_tune needs gradients, which int8 does not have: give --precision bfloat16 or float32")
    if config.elmo in ("none", "output") and not (config.vectors or config.word_dim or config.characters):
        advice = "give --elmo input, --vectors FILE, --word_dim 100 or --characters true"
        complaints.append(f"the BiLSTM has no features: {advice}")
    if config.metric == "spans" and config.task == "classify":
        complaints.append("--metric spans is for tagging; a classifier has one label per sentence")
    for name in ("train_path", "dev_path", "test_path", "vectors", "save_dir"):
        path = getattr(config, name)
        if not path and name in ("train_path", "dev_path", "save_dir"):
            complaints.append(f"{name} is missing: give --{name}")
        elif path and name != "save_dir" and not os.path.exists(path):
            complaints.append(f"--{name}: there is no file {path!r}")
    if config.model and config.elmo != "none" and (missing := missing_model(config.model)):
        complaints.append(f"--model {missing}")
    if complaints:
        raise ElmoFastError("; ".join(complaints))
