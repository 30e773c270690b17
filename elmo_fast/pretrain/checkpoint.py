"""A run's checkpoints: saving, replacing and removing them."""

import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

from elmo_fast.checkpoints import (
    CHECKPOINTS,
    VOCABULARY,
    file_beside,
    save_folder,
    saved_steps,
    step_name,
)
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import flush
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.workplace import remove_leftovers

_UNFINISHED = ".unfinished-"


def save_model(place: Any, model: LanguageModel, step: int, write: Callable[..., None] = save_folder) -> None:
    """Writes the model and its step to a place that `write` knows: into a folder, or among files that go together."""
    write(place, model.checkpoint_state(), model.options, extra={"pretraining_step": step})


def save_checkpoint(run: pathlib.Path, step: int, keep: int, write: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Makes the checkpoint run/checkpoints/step-N of what `write` puts into the folder it is given; keeps `keep`.

    It appears under its name when it is complete and on the disk. write: flushes its files, and replaces those of that
    step all at once, as `writing_together` does.
    """
    folder = run / CHECKPOINTS
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / step_name(step)
    aside = folder / f"{_UNFINISHED}{target.name}"
    remove_unfinished(run)
    if target.exists():
        write(target)
    else:
        aside.mkdir()
        try:
            write(aside)
            flush(aside)
            os.replace(aside, target)
            flush(folder)
        finally:
            remove_unfinished(run)
    older = [path for number, path in saved_steps(run) if number < step]
    for path in older[: len(older) + 1 - keep]:
        # First under a name that no reader looks for; what cannot be removed now is at the next save.
        shutil.rmtree(path.rename(folder / f"{_UNFINISHED}{path.name}"), ignore_errors=True)
    return target


def remove_unfinished(run: pathlib.Path) -> None:
    """Removes what killed saves have left in a run's folder."""
    remove_leftovers(run)
    for path in (run / CHECKPOINTS).glob(f"{_UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)


def find_vocabulary_file(folder: str | os.PathLike[str]) -> pathlib.Path:
    """vocab.txt of a run's folder, given that folder or one of its checkpoints.

    Raises ElmoFastError when there is none.
    """
    if (found := file_beside(folder)) is not None:
        return found
    raise ElmoFastError(f"{folder} has no {VOCABULARY}; name the vocabulary it was trained with by --vocab_file")
