"""Models by name: those that come with the package, published ones, and the Hugging Face hub's (the extra `hub`)."""

import contextlib
import functools
import os
import re
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError

import torch
from tqdm import tqdm

from .._io.atomic_folder import MANIFEST, has_files, write_folder
from .._io.fields import MOST_BYTES
from .._runtime.memory import size
from ..errors import CheckpointError, did_you_mean, install_command, sentence_of, shortened
from .allennlp import ARCHIVED, TASK_WEIGHTS, task_weights
from .loading import OPTIONS, PAIR_NAMES, SOFTMAX, VOCABULARIES, PathLike, load_checkpoint, model_files, model_folder
from .manylangs import CHARACTERS, ENCODER, TOKEN_EMBEDDER, WORDS
from .options import CONFIG
from .safetensors_folder import WEIGHTS
from .tensor_bundle import INDEX

CARD = "README.md"
# A folder for each model that comes with the package.
_BUNDLED = Path(__file__).parents[1] / "models"
_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\S+))?")
_TIMEOUT = 60  # seconds that a server may take to send the next bytes
_ON_HUB = "a name on the hub (user/name, user/name@revision)"
_MANYLANGS = [TOKEN_EMBEDDER, ENCODER, CHARACTERS, WORDS, "cnn*.json"]
# File names of models, of this package, AllenNLP, bilm-tf and ELMoForManyLangs.
_NAMES = [CONFIG, WEIGHTS, MANIFEST, OPTIONS, PAIR_NAMES[0], *VOCABULARIES, *_MANYLANGS, *TASK_WEIGHTS]
_FETCHED = [*_NAMES, "*.hdf5", CARD, "checkpoint", f"*{INDEX}", "*.data-*-of-*"]
# What an upload replaces: a leftover softmax of another model would be mistaken for the new one's.
_REPLACED = [*_NAMES, "weights.hdf5", "model.hdf5", PAIR_NAMES[1], SOFTMAX, f"{ARCHIVED}/*"]
# Where AllenNLP's published models are.
BASE = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"


class Published(NamedTuple):
    """A published model: the folder below BASE, the names of its files there, and what it was trained on."""

    folder: str
    options: str
    weights: str
    millions: float | None
    """weights in millions, 4 bytes each; None if AllenNLP's page does not say"""
    text: str


def _english(sizes: str, millions: float, text: str) -> Published:
    return Published(sizes, f"elmo_{sizes}_options.json", f"elmo_{sizes}_weights.hdf5", millions, text)


_ORIGINAL = "elmo_2x4096_512_2048cnn_2xhighway"
_NEWS = "English news, 1 Billion Word Benchmark"
PUBLISHED = {
    "small": _english("2x1024_128_2048cnn_1xhighway", 13.6, _NEWS),
    "medium": _english("2x2048_256_2048cnn_1xhighway", 28.0, _NEWS),
    "original": _english("2x4096_512_2048cnn_2xhighway", 93.6, _NEWS),
    "original-5.5B": _english("2x4096_512_2048cnn_2xhighway_5.5B", 93.6, "English Wikipedia and news"),
    "pubmed": Published(
        "contributed/pubmed", f"{_ORIGINAL}_options.json", f"{_ORIGINAL}_weights_PubMed_only.hdf5", 93.6, "PubMed"
    ),
    "pt-wikipedia": Published(
        "contributed/pt/wikipedia", "options.json", "elmo_pt_weights.hdf5", None, "Portuguese Wikipedia"
    ),
    "pt-brwac": Published(
        "contributed/pt/brwac", "options.json", "elmo_pt_weights_dgx1.hdf5", None, "Portuguese web pages, brWaC"
    ),
}


def bundled_models() -> list[str]:
    """Return the names of the models that come with the package."""
    return sorted(path.name for path in _BUNDLED.iterdir() if (path / CONFIG).is_file())


def named_folder(model: PathLike) -> Path | None:
    """Return the folder of a model that comes with the package or is a published one, by its name; else None."""
    if model in bundled_models():
        return _BUNDLED / model
    return published_folder(str(model)) if model in PUBLISHED else None


def pretrained_folder(model: PathLike, *, from_hub: bool = True) -> Path:
    """Return the folder of a model: the one place that decides what a model's name or path stands for.

    `model` itself, its newest checkpoint if it is the folder of an unfinished run, that of a model which comes with the
    package, or a downloaded copy if it is a name on the hub.

    model: a folder or its archive, "mini" or a published model ("original", ...), which is downloaded into torch's
    cache, or "user/name" or "user/name@revision" on the hub; a folder takes precedence.
    from_hub: whether a name on the hub is downloaded; False, as in the commands: an error that says how to.
    Raises: CheckpointError if it is none of these, or cannot be downloaded.
    """
    if Path(model).exists():
        return model_folder(model)
    if (folder := named_folder(model)) is not None:
        return folder
    if from_hub and isinstance(model, str) and _NAME.fullmatch(model):
        return download(model)
    raise CheckpointError(missing_model(model))


def missing_model(model: PathLike) -> str | None:
    """Return the sentence with which `pretrained_folder(from_hub=False)` refuses a model; None if it does not."""
    if Path(model).exists() or model in bundled_models() or model in PUBLISHED:
        return None
    name = os.fspath(model)
    advice = f"; commands take the folder that `elmo-fast download {name}` prints" if _NAME.fullmatch(name) else ""
    return f"{name}: wanted a folder or archive, {_known_names(name)}, or {_ON_HUB}; found none{advice}"


def _known_names(name: str) -> str:
    names = [*bundled_models(), *PUBLISHED]
    return f"a name that `elmo-fast models` lists ({', '.join(names)}{did_you_mean(name, names)})"


def cached_folder(name: str) -> Path:
    """Return the folder that holds a published model once it is downloaded; TORCH_HOME moves it."""
    return Path(torch.hub.get_dir(), "elmo_fast", name)


def published_folder(name: str, folder: PathLike | None = None) -> Path:
    """Return the folder of a published model; download it first if it is missing.

    folder: where to put the files; None is `cached_folder`. The folder appears when both files are complete: the
    weights have the tensors of the options.
    Raises: CheckpointError naming the model and what went wrong.
    """
    target = cached_folder(name) if folder is None else Path(folder)
    model = PUBLISHED[name]
    if has_files(target, model.options, model.weights):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with write_folder(target) as new:
            bytes_of_weights = 8e6 * (model.millions or 250)  # twice what is known
            for file, most in ((model.options, MOST_BYTES), (model.weights, int(bytes_of_weights))):
                _download(name, f"{BASE}{model.folder}/{file}", new / file, most)
            try:
                load_checkpoint(options_file=new / model.options, weight_file=new / model.weights)
            except CheckpointError as error:
                reason = str(error).replace(f"{new}{os.sep}", "")
                raise CheckpointError(
                    f"{name}: the download is not the published model, or damaged ({reason}); try again"
                ) from error
    except OSError as error:
        needed = "" if model.millions is None else f"it takes {size(4e6 * model.millions)}; "
        raise CheckpointError(
            f"{name}: cannot be written to {target} ({sentence_of(error)}); {needed}TORCH_HOME moves the folder"
        ) from error
    return target


def _download(name: str, url: str, file: Path, most: int) -> None:
    """Download one file of up to `most` bytes, whose completeness its reader checks."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, open(file, "wb") as out:
            total = done = int(answer.headers.get("Content-Length", 0))
            with tqdm(total=total or None, unit="B", unit_scale=True, disable=not sys.stderr.isatty()) as bar:
                while done <= most and (part := answer.read(1 << 20)):
                    bar.update(out.write(part))
                    done = max(total, out.tell())
        if done > most:
            raise ValueError(f"it sends {size(done)}, more than {size(most)}")
    except (URLError, HTTPException, ConnectionError, TimeoutError, ValueError, OverflowError) as error:
        reason = shortened(" ".join(str(error).split()) or type(error).__name__)
        if isinstance(error, HTTPError):
            error.close()
        raise CheckpointError(
            f"{name}: {url} cannot be downloaded ({reason}); if you have the files, give their folder"
        ) from error


def download(name: str, folder: PathLike | None = None) -> Path:
    """Download only the model's files of "user/name" or "user/name@revision" and returns their folder.

    folder: where to put them; None: the hub's cache, which does not download existing files again.
    Raises: CheckpointError naming what went wrong.
    """
    if (match := _NAME.fullmatch(name)) is None:
        raise CheckpointError(f"wanted {_known_names(name)}, or {_ON_HUB}; found {name!r}")
    repo, revision = match.groups()
    with _hub(f"{name}: there is no such folder here, and it cannot be downloaded from the hub") as hub:
        snapshot = functools.partial(hub.snapshot_download, repo, revision=revision, local_dir=folder)
        target = Path(snapshot(allow_patterns=_FETCHED, ignore_patterns=["*/*"]))
        if task_weights(target) is not None:
            snapshot(allow_patterns=[f"{ARCHIVED}/*.options_file"])
    try:
        model_files(target)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; no model is at the top of {name}, and folders and archives in it are not fetched: download "
            "those yourself and give their path"
        ) from error
    return target


def upload(name: str, files: Iterable[Path], card: str, *, private: bool) -> str:
    """Upload only `files` and the model card to "user/name"; return its address.

    The repository is created if necessary. Other files in an existing repository stay, except parts of another model
    (config.json, options.json, softmax.hdf5 ...), which are deleted.
    private: refuses an existing public repository. Raises: CheckpointError naming what went wrong.
    """
    if (match := _NAME.fullmatch(name)) is None or match[2] is not None:
        raise CheckpointError(f"wanted a name on the hub like user/name, without a revision; found {name!r}")
    with _hub(f"{name}: cannot be uploaded") as hub, tempfile.TemporaryDirectory(prefix="elmo-fast-") as staged:
        for file in files:
            place = Path(staged, ARCHIVED if file.parent.name == ARCHIVED else "", file.name)
            place.parent.mkdir(exist_ok=True)
            os.symlink(file.resolve(), place)
        Path(staged, CARD).write_text(card, encoding="utf-8")
        address = hub.create_repo(name, private=private or None, exist_ok=True)
        if private and not hub.repo_info(name).private:
            raise CheckpointError(
                f"{name} exists and is public; make it private on the hub first, or choose another name"
            )
        hub.upload_folder(
            repo_id=name, folder_path=staged, delete_patterns=_REPLACED, commit_message="Upload by elmo-fast"
        )
    return str(address)


@contextlib.contextmanager
def _hub(failed: str) -> Iterator[Any]:
    """Yield the module huggingface_hub; its exceptions become a CheckpointError that begins with `failed`."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise CheckpointError(f"{failed}: this needs huggingface_hub: {install_command('hub')}") from error
    try:
        yield huggingface_hub
    except CheckpointError:
        raise
    except Exception as error:  # its own, and those of its HTTP library
        raise CheckpointError(f"{failed} ({' '.join(str(error).split()) or type(error).__name__})") from error
