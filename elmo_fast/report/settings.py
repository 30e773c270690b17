"""The settings of a report: the model, the labelled files, and the size of the taggers."""

import dataclasses
import os
from dataclasses import dataclass

from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.fields import described

# The labelled text, and the settings that name its files.
SPLITS = {"train": "train_path", "dev": "dev_path", "test": "test_path"}
EXPERIMENTS = {
    "help": "baseline against + ELMo (table 1 of the paper)",
    "regularisation": "all layers with a large and a small λ against the last layer only (table 2)",
    "placement": "ELMo at the input, at the output, at both (table 3)",
    "layers": "each layer alone with a linear classifier (tables 5 and 6)",
    "share": "accuracy against the share of training data (figure 1)",
    "neighbours": "nearest neighbours of ambiguous words, static vectors against the biLM (table 4)",
}


@dataclass
class ReportSettings:
    """All settings of a report."""

    model: str = described("", "The pretrained biLM: a folder, or a name on the hub.")
    train_path: str = described("", "Labelled text to train on: CoNLL-U, CoNLL columns or TSV.")
    dev_path: str = described("", "Labelled text that chooses the epoch.")
    test_path: str = described("", "Labelled text that is scored.")
    save_dir: str = described("", "Folder of the report; existing results in it are not computed again.")
    task: str = described("tag", "tag (a label for each word) or classify (one for each sentence).")
    format: str = described("auto", "auto, conllu, columns or tsv.")
    column: tuple[str, ...] = described(
        (), "Columns of labels to learn, one model each (CoNLL-U: upos, xpos); none: the default."
    )
    vectors: str | None = described(
        None, "Static vectors of the baseline (GloVe or word2vec); null: learned with the task."
    )
    experiments: tuple[str, ...] = described(tuple(EXPERIMENTS), f"Which of {', '.join(EXPERIMENTS)}.")
    seeds: int = described(3, "Runs of each setting, with seeds 0, 1, ...")
    train_share: float = described(1.0, "Share of the training sentences for all experiments except `share`.")
    shares: tuple[float, ...] = described((0.01, 0.03, 0.1, 0.3, 1.0), "Shares of the training sentences for `share`.")
    small_l2: float = described(0.001, "The small λ, as in the paper, which lets the mix's weights differ.")
    large_l2: float = described(1.0, "The large λ, which keeps the mix close to an average.")
    hidden: int = described(100, "Cells of the tagger's LSTM, per direction.")
    lstm_layers: int = described(1, "Layers of the tagger's LSTM.")
    dropout: float = described(0.5, "Dropout of the tagger.")
    elmo_dropout: float = described(0.5, "Dropout of ELMo's vectors.")
    epochs: int = described(10, "Maximum number of epochs of a run.")
    patience: int = described(3, "A run ends after this many epochs without a better dev score.")
    batch_size: int = described(32, "Sentences per step.")
    learning_rate: float = described(0.001, "Adam's.")
    words: tuple[str, ...] = described(
        (), "Words whose neighbours are shown; none: the most ambiguous words of the training text."
    )
    neighbour_text: int = described(4000, "How many training sentences are searched for neighbours.")
    note: str = described("", "A remark at the top of the page, such as how the biLM was trained.")
    processes: int = described(1, "How many runs at a time, each on one thread.")

    def __post_init__(self) -> None:
        """Raises ElmoFastError that names what is missing or unknown."""
        for name in ("model", *SPLITS.values(), "save_dir"):
            if not getattr(self, name):
                raise ElmoFastError(f"--{name} is needed: {_help_of(name)}")
        for name in SPLITS.values():
            if not os.path.isfile(getattr(self, name)):
                raise ElmoFastError(f"--{name}: there is no file {getattr(self, name)!r}")
        if unknown := sorted(set(self.experiments) - set(EXPERIMENTS)):
            raise ElmoFastError(f"--experiments must be among {', '.join(EXPERIMENTS)}; got {', '.join(unknown)}")
        check_counts(**{"--seeds": self.seeds, "--processes": self.processes})
        if bad := [share for share in [*self.shares, self.train_share] if not 0 < share <= 1]:
            raise ElmoFastError(f"shares of the training data must be above 0 and at most 1; got {bad[0]}")
        if not self.shares:
            raise ElmoFastError("--shares must name at least one share of the training data")

    @property
    def targets(self) -> list[str | None]:
        """The columns to learn; [None] for the format's default."""
        return list(self.column) or [None]


def _help_of(name: str) -> str:
    return next(f.metadata["help"] for f in dataclasses.fields(ReportSettings) if f.name == name)
