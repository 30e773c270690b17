"""The splits that training reads, with the layers of a frozen biLM where ELMo is part of the features."""

import pathlib
from collections.abc import Callable

from elmo_fast.tasks.cache import cached_layers
from elmo_fast.tasks.config import TaskConfig
from elmo_fast.tasks.data import TaskData
from elmo_fast.tasks.features import ElmoFeatures
from elmo_fast.tasks.prediction import Progress
from elmo_fast.tasks.split import Split


def training_splits(
    config: TaskConfig,
    data: TaskData,
    elmo: ElmoFeatures | None,
    report: Callable[[str], None],
    progress: Progress | None = None,
) -> dict[str, Split]:
    """The splits "train" (the share that is used), "dev" and, where there is one, "test".

    elmo: those of the model, or None; where its biLM is frozen, the biLM's layers are computed once and kept on disk.

    The layers of all of train_path are kept, whatever train_share: runs of other shares find them.
    """
    per_word, splits = config.task == "tag", dict[str, Split]()
    folder = pathlib.Path(config.cache_dir or pathlib.Path(config.save_dir) / "cache")
    for name, examples in data.files.items():
        cache, chosen = None, None
        if elmo is not None and not elmo.fine_tuned:
            cache = cached_layers(elmo.bilm, examples, folder, report=report, progress=progress)
            chosen = elmo.layers
        if name == "train":
            examples, cache = data.train, cache and cache.subset(data.kept)
        splits[name] = Split(examples, data.labels, per_word=per_word, cache=cache, layers=chosen)
    return splits
