"""The files of a task read and looked over: train, dev and test, the share of train that is used, and its labels."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks.config import TaskConfig
from elmo_fast.tasks.formats import Example, read_examples
from elmo_fast.tasks.labels import Labels
from elmo_fast.tasks.order import shared_subset


@dataclasses.dataclass(frozen=True)
class TaskData:
    """What training reads.

    files: split ("train", "dev", "test") -> all its sentences; kept: which of train are used; labels: of those; notes:
    on labels of dev and test that are not among them.
    """

    files: dict[str, list[Example]]
    kept: np.ndarray
    labels: Labels
    notes: list[str]

    @property
    def train(self) -> list[Example]:
        """The training sentences that are used."""
        return [self.files["train"][index] for index in self.kept]


def read_data(config: TaskConfig) -> TaskData:
    """Reads the files that a configuration names.

    Raises ElmoFastError where a file is empty, does not fit its format or has not the labels that the task needs.
    """
    paths = {"train": config.train_path, "dev": config.dev_path, "test": config.test_path}
    files = {split: read_labelled(path, config.task, config) for split, path in paths.items() if path is not None}
    kept = shared_subset(len(files["train"]), config.train_share, config.seed)
    labels = Labels.of(files["train"][index] for index in kept)
    notes = [labels.unseen(files[split], split) for split in files if split != "train"]
    return TaskData(files, kept, labels, [note for note in notes if note])


def read_labelled(path: str, task: str, config: TaskConfig) -> list[Example]:
    """The sentences of a file with the labels that a task needs; ElmoFastError names the first that has others."""
    examples = read_examples(path, config.format, config.column)
    for number, example in enumerate(examples, start=1):
        wanted = len(example.words) if task == "tag" else 1
        if len(example.labels) != wanted:
            raise ElmoFastError(
                f"{path}: sentence {number}: task {task!r} needs {'a label per word' if task == 'tag' else 'one label'}; "
                f"got {len(example.labels)} labels for {len(example.words)} words; is the format or the task another?"
            )
    return examples


def word_list(examples: Sequence[Example]) -> list[str]:
    """The words that get a random embedding of their own: those that occur twice or more, so that the others train the
    one of unknown words; in the order of names."""
    counts: dict[str, int] = {}
    for example in examples:
        for word in example.words:
            counts[word] = counts.get(word, 0) + 1
    return sorted(word for word, count in counts.items() if count > 1)
