"""Models on the disk, with the softmax that only pretraining and evaluation need."""

import os
import pathlib
import re
import shutil
import tempfile

from elmo_fast.checkpoints import file_beside, load_checkpoint, model_folder, save_folder
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.language_model import LanguageModel

VOCABULARY_FILE = "vocab.txt"
CHECKPOINTS = "checkpoints"
_STEP = re.compile(r"step-(\d+)")


def save_model(folder: pathlib.Path, model: LanguageModel, step: int) -> None:
    """Writes config.json and model.safetensors, each whole or not at all, into `folder`."""
    save_folder(folder, model.checkpoint_state(), model.options, extra={"pretraining_step": step})


def saved_steps(folder: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    """The complete checkpoints `step-N` of a folder, the newest last."""
    found = [(int(match[1]), path) for path in folder.glob("step-*") if (match := _STEP.fullmatch(path.name))]
    return sorted(found)


def save_step(folder: pathlib.Path, model: LanguageModel, step: int, keep: int) -> pathlib.Path:
    """Writes the checkpoint folder/step-N, which appears under its name only when complete; keeps the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"step-{step:07d}"
    aside = pathlib.Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    try:
        save_model(aside, model, step)
        os.chmod(aside, 0o755)
        os.replace(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    for _, path in saved_steps(folder)[:-keep]:
        shutil.rmtree(path)
    return target


def load_model(
    folder: str | os.PathLike[str] | None,
    options_file: str | os.PathLike[str] | None = None,
    weight_file: str | os.PathLike[str] | None = None,
    softmax_file: str | os.PathLike[str] | None = None,
    *,
    precision: str = "float32",
    backend: str = "auto",
) -> LanguageModel:
    """The language model of a folder, or of bilm-tf's files, as `load_checkpoint` reads them.

    Raises ElmoFastError when a file is missing, damaged or has no softmax.
    """
    state, options = load_checkpoint(folder, options_file, weight_file, softmax_file)
    return LanguageModel.from_checkpoint(options, state, precision=precision, backend=backend)


def newest_model(folder: str | os.PathLike[str]) -> pathlib.Path:
    """`folder` itself or, when a run in it did not come to its end, the newest of its checkpoints."""
    return model_folder(folder)


def vocabulary_beside(folder: str | os.PathLike[str]) -> pathlib.Path:
    """vocab.txt of a run's folder, given that folder or one of its checkpoints.

    Raises ElmoFastError when there is none.
    """
    if (found := file_beside(folder)) is not None:
        return found
    raise ElmoFastError(f"{folder} has no {VOCABULARY_FILE}; name the vocabulary it was trained with by --vocab_file")
