"""Settings of a report, and the runs that it needs: a cell of a table is one setting of the task, trained per seed."""

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import yaml

from elmo_fast._docstrings import docstrings
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.pictures.layers import layer_name
from elmo_fast.tasks import TaskConfig
from elmo_fast.tasks.formats import conllu_column, format_of, is_table

# The labelled text, and the settings that name its files.
SPLITS = {"train": "train_path", "dev": "dev_path", "test": "test_path"}
EXPERIMENTS = {
    "help": "baseline against + ELMo (table 1 of the paper), and how many updates each needs",
    "regularisation": "all layers with a large, a middle and a small λ against the last layer only (table 2), and what "
    "λ does to the weights",
    "placement": "ELMo at the input, at the output, at both (table 3)",
    "layers": "each layer alone with a linear classifier (table 6)",
    "share": "accuracy against the share of training data (figure 1)",
    "neighbours": "nearest neighbours of ambiguous words, static vectors against the biLM (table 4)",
}
# The settings that --task senses uses.
OF_SENSES = ("model", "prefix", "train_path", "test_path", "save_dir", "task", "format", "column", "words", "note")


@dataclass
class ReportSettings:
    """All settings of a report; a field without a docstring has that of TaskConfig."""

    model: str = ""
    """pretrained biLM: a folder or archive, or a name on the hub"""
    prefix: str | None = None
    train_path: str = ""
    dev_path: str = ""
    test_path: str = ""
    """labelled sentences on which each run is scored"""
    save_dir: str = ""
    """folder of the report; runs that are complete in it are not repeated"""
    task: Literal["tag", "classify", "senses"] = "tag"
    """tag: a label per word; classify: a label per sentence or pair; senses: word senses by nearest neighbour, by each
    layer (table 5), from tables with columns word, sense and sentence or from tagged words; nothing is trained"""
    format: str = "auto"
    pair_column: str | None = None
    column: tuple[str, ...] = ()
    """columns of the labels, with one model for each (CoNLL-U: upos, xpos); none: the format's default"""
    metric: str = "auto"
    vectors: str | None = None
    experiments: tuple[str, ...] = tuple(EXPERIMENTS)
    """experiments to run, one or more"""
    seeds: int = 3
    """runs of each setting, with seeds 0, 1, ..."""
    train_share: float = 1.0
    """share of the training sentences for all experiments except `share`"""
    shares: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    """shares of the training sentences for `share`"""
    small_l2: float = 0.001
    """small λ, with which the weights of the mix may differ"""
    large_l2: float = 1.0
    """large λ, which keeps the mix close to an average"""
    hidden: int = 100
    lstm_layers: int = 1
    dropout: float = 0.5
    elmo_dropout: float = 0.5
    epochs: int = TaskConfig.epochs
    patience: int = TaskConfig.patience
    batch_size: int = 32
    learning_rate: float = 0.001
    words: tuple[str, ...] = ()
    """words whose neighbours are shown, or with senses the words to score; none: the most ambiguous words of the
    training text, or all"""
    neighbour_text: int = 4000
    """number of training sentences in which neighbours are searched"""
    note: str = ""
    """remark at the top of the page, such as how the biLM was trained"""
    processes: int = 1
    """number of runs at a time, each on one thread"""

    def __post_init__(self) -> None:
        """Raise an ElmoFastError that names what is missing or unknown."""
        paths = [name for name in SPLITS.values() if self.task != "senses" or name != "dev_path"]
        for name in ("model", *paths, "save_dir"):
            if not getattr(self, name):
                raise ElmoFastError(f"--{name} is needed: {HELP[name]}")
        for field in dataclasses.fields(self) if self.task == "senses" else ():
            if field.name not in OF_SENSES and getattr(self, field.name) != field.default:
                raise ElmoFastError(f"--{field.name} does nothing with --task senses; leave it out")
        if self.task == "senses" and len(self.column) > 1:
            raise ElmoFastError(f"--column must be one with --task senses; got {', '.join(self.column)}")
        for name in paths:
            if not os.path.isfile(getattr(self, name)):
                raise ElmoFastError(f"--{name}: there is no file {getattr(self, name)!r}")
        if unknown := sorted(set(self.experiments) - set(EXPERIMENTS)):
            raise ElmoFastError(f"--experiments must be among {', '.join(EXPERIMENTS)}; got {', '.join(unknown)}")
        check_counts(**{"--seeds": self.seeds, "--processes": self.processes})
        if bad := [share for share in [*self.shares, self.train_share] if not 0 < share <= 1]:
            raise ElmoFastError(f"--shares and --train_share must be above 0 and at most 1; got {bad[0]}")
        if not self.shares:
            raise ElmoFastError("--shares must name at least one share of the training data")

    @property
    def targets(self) -> list[str | None]:
        """The columns to learn, in CoNLL-U by their names; [None] for another format's default."""
        columns: tuple[str | None, ...] = self.column or (None,)
        format = format_of(self.train_path, self.format)
        if self.column and is_table(format, self.column[0], None):
            advice = "leave it out and call the columns text and label"
            raise ElmoFastError(f"--column chooses no labels of a table; got {', '.join(self.column)}: {advice}")
        return [conllu_column(self.train_path, each) if format == "conllu" else each for each in columns]

    def as_yaml(self) -> str:
        """Return the settings as YAML that --config takes in any folder."""
        values: dict[str, Any] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
            if value not in (None, ()) and (self.task != "senses" or name in OF_SENSES)
        }
        for name in ("model", *SPLITS.values(), "vectors", "save_dir"):
            if name in values and (os.path.exists(values[name]) or name == "save_dir"):
                values[name] = os.path.abspath(values[name])
        return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True)).rstrip("\n")


# Field -> its help.
HELP = docstrings(TaskConfig) | docstrings(ReportSettings)


class Cell(NamedTuple):
    """A setting, its place in the tables, and its runs.

    experiment: of settings.EXPERIMENTS; target: the column of labels, None for the default; label: the row's name;
    changes: what it changes in the task's configuration; runs: the results.json of each seed, once they are run.
    """

    experiment: str
    target: str | None
    label: str
    changes: dict[str, Any]
    runs: Sequence[dict[str, Any]] = ()


def cells(settings: ReportSettings, layers: int) -> list[Cell]:
    """List every cell of the report's tables, for a biLM with `layers` layers, including the characters."""
    baseline: dict[str, Any] = {"elmo": "none"}
    large: dict[str, Any] = {"elmo": "input", "layer": "mix", "mix_l2": settings.large_l2}
    small = {**large, "mix_l2": settings.small_l2}
    middle = {**large, "mix_l2": float(f"{math.sqrt(settings.large_l2 * settings.small_l2):.1g}")}
    both = [("baseline", baseline), ("+ ELMo", small)]
    alone = {"elmo": "input", "lstm_layers": 0, "vectors": None, "word_dim": 0}
    places = {"input": "input only", "both": "input and output", "output": "output only"}
    rows: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "help": both,
        "regularisation": [
            ("baseline", baseline),
            ("last layer only", {"elmo": "input", "layer": "top"}),
            *((f"all layers, λ = {mixed['mix_l2']:g}", mixed) for mixed in (large, middle, small)),
        ],
        "placement": [(label, {**small, "elmo": place}) for place, label in places.items()],
        "layers": [
            *((layer_name(number), {**alone, "layer": number}) for number in range(layers)),
            ("all, mixed", {**alone, "layer": "mix", "mix_l2": settings.small_l2}),
        ],
        "share": [
            (f"{label} {share:g}", {**changes, "train_share": share})
            for share in settings.shares
            for label, changes in both
        ],
    }
    asked = [name for name in rows if name in settings.experiments]
    return [Cell(name, target, *row) for target in settings.targets for name in asked for row in rows[name]]


def config_of(cell: Cell, seed: int, settings: ReportSettings) -> TaskConfig:
    """Return the configuration of one run of a cell; `key_of` determines its folder."""
    names = [field.name for field in dataclasses.fields(TaskConfig) if hasattr(settings, field.name)]
    values: dict[str, Any] = {name: getattr(settings, name) for name in names}
    values |= {"column": cell.target, "seed": seed, **cell.changes}
    if values["elmo"] == "none":
        values["model"] = values["prefix"] = None
    return TaskConfig(**values)


def key_of(config: TaskConfig, digests: dict[str, str], device: str = "cpu") -> str:
    """Return a name for a run: a digest of its configuration and its files, so that any change causes a new run.

    digests: path or name -> digest of the content, which counts in its place: that of the model is of the biLM which
    `prefix` chooses; device: type of the device, whose scores another's differ from.
    """
    values = {
        name: digests.get(value, value) if isinstance(value, str) else value
        for name, value in config.flat().items()
        if name not in ("save_dir", "cache_dir", "threads", "resume", "prefix")
    }
    values["format"] = format_of(config.train_path, config.format)
    if device != "cpu":
        values["device"] = device
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
