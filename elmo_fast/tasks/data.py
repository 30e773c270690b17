"""The files of a task read and looked over: train, dev and test, the share of train that is used, and its labels."""

import dataclasses

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
    kept: list[int]
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
    files = {split: read_labelled(path, config) for split, path in paths.items() if path is not None}
    kept = shared_subset(len(files["train"]), config.train_share, config.seed)
    labels = Labels.of(files["train"][index] for index in kept)
    notes = [labels.unseen(files[split], split) for split in files if split != "train"]
    return TaskData(files, kept, labels, [note for note in notes if note])


def read_labelled(path: str, config: TaskConfig) -> list[Example]:
    """The sentences of a file with the labels that the task needs; ElmoFastError names the first that has others."""
    tags = config.task == "tag"
    examples = read_examples(path, config.format, config.column)
    for number, example in enumerate(examples, start=1):
        wanted = len(example.words) if tags else 1
        if len(example.labels) != wanted:
            raise ElmoFastError(
                f"{path}: sentence {number}: task {config.task!r} needs {'a label per word' if tags else 'one label'}; "
                f"got {len(example.labels)} labels for {len(example.words)} words; is the format or the task another?"
            )
    return examples
