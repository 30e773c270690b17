"""Published models of AllenNLP by name: their addresses, and downloads into torch's cache."""

import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from ..errors import CheckpointError, sentence_of
from ..files import NO_ROOM, workplace
from ..memory import size
from .loading import load_checkpoint

BASE = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
_ELSEWHERE = "if you have the files, give their folder"
PathLike = str | os.PathLike[str]


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


def cached_folder(name: str) -> Path:
    """Return the folder that holds a published model once it is downloaded; TORCH_HOME moves it."""
    import torch

    return Path(torch.hub.get_dir(), "elmo_fast", name)


def published_folder(name: str, folder: PathLike | None = None) -> Path:
    """Return the folder of a published model; download it first if it is missing.

    folder: where to put the files; None is `cached_folder`. The folder appears when both files are complete: their
    sizes are the server's, and the weights have the tensors of the options.
    Raises: CheckpointError naming the model and what went wrong.
    """
    target = cached_folder(name) if folder is None else Path(folder)
    model = PUBLISHED[name]
    if all((target / file).is_file() for file in (model.options, model.weights)):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with workplace(target) as work:
            new = work / "new"
            new.mkdir()
            for file in (model.options, model.weights):
                _download(name, f"{BASE}{model.folder}/{file}", new / file)
            try:
                load_checkpoint(options_file=new / model.options, weight_file=new / model.weights)
            except CheckpointError as error:
                reason = str(error).replace(f"{new}{os.sep}", "")
                raise CheckpointError(
                    f"{name}: the download is not the published model, or damaged ({reason}); try again"
                ) from error
            target.mkdir(exist_ok=True)
            for file in (model.options, model.weights):  # the weights last: without them the model counts as missing
                os.replace(new / file, target / file)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise CheckpointError(f"{name}: cannot be written to {target} ({sentence_of(error)})") from error
        needed = "" if model.millions is None else f", of which it needs {size(4e6 * model.millions)}"
        raise CheckpointError(
            f"{name}: no space is left for it in {target.parent}{needed}; free some, or set TORCH_HOME to a folder on "
            "another disk"
        ) from error
    return target


def _download(name: str, url: str, file: Path) -> None:
    """Download one file; raise CheckpointError if the server refuses it or sends less than it announced."""
    import torch

    request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "elmo_fast"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            announced = answer.headers["Content-Length"]
        torch.hub.download_url_to_file(url, os.fspath(file))
    except urllib.error.HTTPError as error:
        with error:
            raise CheckpointError(f"{name}: {url} answered {error.code} {error.reason}; {_ELSEWHERE}") from error
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        raise CheckpointError(f"{name}: {url} cannot be reached ({reason}); {_ELSEWHERE}") from error
    if announced is not None and (received := file.stat().st_size) != int(announced):
        raise CheckpointError(
            f"{name}: the download of {file.name} ended after {received:,} of {int(announced):,} bytes; try again"
        )
