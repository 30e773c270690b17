"""Which text a run was started with, and whether it is still the same."""

import json
import os
import pathlib

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import replacing, sha256_of
from elmo_fast.pretrain.config import DataConfig
from elmo_fast.text import files_matching

SOURCES_FILE = "corpus-sources.json"


def _settings(data: DataConfig, built: bool) -> dict[str, int | None]:
    """What a vocabulary built of the text depends on besides it; nothing where one was given."""
    return {"min_count": data.min_count, "max_vocab_size": data.max_vocab_size} if built else {}


def note_sources(data: DataConfig, built: bool, folder: pathlib.Path) -> None:
    """Writes down which text a corpus is prepared of; built: whether its vocabulary is built of the text too."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {path: {**_stamp(path), "sha256": sha256_of(path)} for path in files_matching(data.train_prefix)}
    with replacing(folder / SOURCES_FILE) as aside:
        aside.write_text(json.dumps({"files": files, **_settings(data, built)}, indent=2) + "\n", encoding="utf-8")


def check_sources(data: DataConfig, built: bool, folder: pathlib.Path) -> None:
    """Raises ElmoFastError unless the text is that which was prepared; it is read again only where its time changed."""
    try:
        told = json.loads((folder / SOURCES_FILE).read_text(encoding="utf-8"))
        changed = _changed(told.pop("files"), files_matching(data.train_prefix))
        # A vocabulary given then, by init_from, is not given again when the run goes on: then nothing was noted.
        changed += [
            f"{name} ({told[name]} before)" for name in told if built and _settings(data, True)[name] != told[name]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ElmoFastError):
            raise
        raise ElmoFastError(
            f"{folder / SOURCES_FILE}, which names the text of this run, cannot be used ({error!r}); give another "
            "save_dir"
        ) from error
    if changed:
        raise ElmoFastError(
            f"the text of {data.train_prefix!r} is not the one this run was started with; changed: "
            f"{', '.join(changed[:5])}; give another save_dir"
        )


def _changed(before: dict[str, dict[str, int | str]], paths: list[str]) -> list[str]:
    found = sorted(before.keys() ^ set(paths))
    for path in paths:
        now = _stamp(path)
        if path in before and any(before[path][name] != value for name, value in now.items()):
            same = now["size"] == before[path]["size"] and sha256_of(path) == before[path]["sha256"]
            found += [] if same else [path]
    return found


def _stamp(path: str) -> dict[str, int]:
    told = os.stat(path)
    return {"size": told.st_size, "mtime_ns": told.st_mtime_ns}
