"""Models on the Hugging Face hub: fetched and offered through huggingface_hub, the extra `hub`."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from ..manifest import MANIFEST
from .options import CONFIG
from .resolve import OPTIONS, PUBLISHED, SOFTMAX, VOCABULARY, PathLike, model_folder
from .safetensors_folder import WEIGHTS

CARD = "README.md"
_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\S+))?")
# What a model's files may be called, by this package and by others.
_FETCHED = [CONFIG, WEIGHTS, MANIFEST, OPTIONS, PUBLISHED[0], "*.hdf5", VOCABULARY, CARD]
# What an upload replaces: a softmax left from another model would be taken for the new one's.
_REPLACED = [CONFIG, WEIGHTS, MANIFEST, OPTIONS, "weights.hdf5", "model.hdf5", *PUBLISHED, SOFTMAX, VOCABULARY]


def pretrained_folder(model: PathLike) -> Path:
    """The folder of a model: `model` itself, its newest checkpoint where it is the folder of an unfinished run, or a
    fetched copy where it is a name of the hub.

    model: a folder, or "user/name" or "user/name@revision"; where both exist, the folder.
    Raises: CheckpointError where it is neither, or cannot be fetched.
    """
    if Path(model).exists():
        return model_folder(model)
    if isinstance(model, str) and _NAME.fullmatch(model):
        return fetch(model)
    raise CheckpointError(f"{model}: wanted a folder, or a name of the hub (user/name, user/name@revision); found none")


def fetch(name: str, folder: PathLike | None = None) -> Path:
    """Downloads the model's files of "user/name" or "user/name@revision", and nothing else, and returns their folder.

    folder: where to put them; None: the hub's cache, where what is there already is not fetched again.
    Raises: CheckpointError naming what went wrong.
    """
    repo, revision = _parts(name)
    with _hub(f"{name}: there is no such folder here, and it cannot be fetched from the hub") as hub:
        found = hub.snapshot_download(
            repo, revision=revision, local_dir=folder, allow_patterns=_FETCHED, ignore_patterns=["*/*"]
        )
    return Path(found)


def offer(name: str, files: Iterable[Path], card: str, *, private: bool) -> str:
    """Uploads `files` and the model card, and nothing else, to "user/name"; returns its address.

    The repository is made if need be. In one that is there, what else it holds stays, but for parts of another model
    (config.json, options.json, softmax.hdf5 ...), which are taken away.
    private: refuses a repository that is there and public. Raises: CheckpointError naming what went wrong.
    """
    repo, revision = _parts(name)
    if revision is not None:
        raise CheckpointError(f"{name}: wanted user/name to upload to, found a revision too")
    with _hub(f"{name}: cannot be uploaded") as hub, tempfile.TemporaryDirectory(prefix="elmo-fast-") as staged:
        for file in files:
            os.symlink(file.resolve(), Path(staged, file.name))
        Path(staged, CARD).write_text(card, encoding="utf-8")
        address = hub.create_repo(repo, private=private or None, exist_ok=True)
        if private and not hub.repo_info(repo).private:
            raise CheckpointError(f"{name} is there and public; make it private on the hub first, or take another name")
        hub.upload_folder(
            repo_id=repo,
            folder_path=staged,
            delete_patterns=_REPLACED,
            commit_message="Upload by elmo-fast",
        )
    return str(address)


def _parts(name: str) -> tuple[str, str | None]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise CheckpointError(f"wanted a name of the hub like user/name or user/name@revision, found {name!r}")
    return match[1], match[2]


@contextlib.contextmanager
def _hub(failed: str) -> Iterator[Any]:
    """The module huggingface_hub; what it raises becomes a CheckpointError that begins with `failed`."""
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise CheckpointError(f'{failed}: that needs huggingface_hub; pip install "elmo-fast[hub]"') from error
    # The hub's errors, and those of the library under it where no answer came, which share a base.
    kinds: tuple[type[BaseException], ...] = (*HfHubHTTPError.__bases__, OSError, ValueError)
    try:
        yield huggingface_hub
    except CheckpointError:
        raise
    except kinds as error:
        raise CheckpointError(f"{failed} ({' '.join(str(error).split()) or type(error).__name__})") from error
