"""Which text a run was started with, and whether it is still the same."""

import os
import pathlib
from typing import NotRequired, TypedDict

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import sha256_of, write_json
from elmo_fast.json_files import read_json
from elmo_fast.pretrain.config import DataConfig
from elmo_fast.text import files_matching

SOURCES_FILE = "corpus-sources.json"


class _Source(TypedDict):
    size: int
    mtime_ns: int
    sha256: str


class _SourcesFile(TypedDict):
    """The content of corpus-sources.json; the settings of a vocabulary that was built of the text."""

    files: dict[str, _Source]
    min_count: NotRequired[int | None]
    max_vocab_size: NotRequired[int | None]


def _settings(data: DataConfig, built: bool) -> dict[str, int | None]:
    """The settings of a vocabulary that is built from the text; empty if a vocabulary was given."""
    return {"min_count": data.min_count, "max_vocab_size": data.max_vocab_size} if built else {}


def record_sources(data: DataConfig, built: bool, folder: pathlib.Path) -> None:
    """Records the text that a corpus is prepared from; built: whether its vocabulary is built from the text too."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {path: {**_stamp(path), "sha256": sha256_of(path)} for path in files_matching(data.train_prefix)}
    write_json(folder / SOURCES_FILE, {"files": files, **_settings(data, built)}, indent=2)


def check_sources(data: DataConfig, built: bool, folder: pathlib.Path) -> None:
    """Raises ElmoFastError unless text and settings are those of the preparation; files with a new time stamp are read
    again."""
    path = folder / SOURCES_FILE
    try:
        told = read_json(path, _SourcesFile)
    except ElmoFastError as error:
        raise ElmoFastError(f"{error}; it names the text of this run: give another save_dir") from error
    changed = _changed(told["files"], files_matching(data.train_prefix))
    # A vocabulary that init_from gave is not given again when the run resumes: then nothing was recorded.
    before = {name: value for name, value in told.items() if built and name != "files"}
    other = [
        f"{name} was {before[name]}, now {now}"
        for name, now in _settings(data, built).items()
        if name in before and before[name] != now
    ]
    if changed:
        raise ElmoFastError(
            f"the text of {data.train_prefix!r} is not the one this run was started with; changed: "
            f"{', '.join([*changed[:5], *other])}; give another --save_dir or, to train on with this text, another "
            "--save_dir, --resume CHECKPOINT and --allow_other_corpus true (same vocabulary)"
        )
    if other:
        raise ElmoFastError(
            f"the text of {data.train_prefix!r} is the one this run was started with, but {'; '.join(other)}: give "
            "what it was, or another --save_dir"
        )


def _changed(before: dict[str, _Source], paths: list[str]) -> list[str]:
    found = sorted(before.keys() ^ set(paths))
    for path in paths:
        now, then = _stamp(path), before.get(path)
        if then is not None and (then["size"], then["mtime_ns"]) != (now["size"], now["mtime_ns"]):
            same = now["size"] == then["size"] and sha256_of(path) == then["sha256"]
            found += [] if same else [path]
    return found


def _stamp(path: str) -> dict[str, int]:
    told = os.stat(path)
    return {"size": told.st_size, "mtime_ns": told.st_mtime_ns}
