"""Findings about a GPU, kept between processes: one JSON file per combination of GPU, driver and sources."""

import contextlib
import hashlib
import json
import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any, Generic, TypedDict, TypeVar

from elmo_fast.errors import CheckpointError, sentence_of
from elmo_fast.files import write_json
from elmo_fast.json_files import read_json, typed

Kind = TypeVar("Kind")


class _Content(TypedDict):
    about: dict[str, str]
    digest: str
    found: dict[str, Any]


def folder() -> pathlib.Path:
    """The folder of the files: $XDG_CACHE_HOME/elmo_fast/gpu, by default in ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache) / "elmo_fast" / "gpu"


def digest_of(value: Any) -> str:
    """The SHA-256 of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class CardFile(Generic[Kind]):
    """Values of one kind by name, for one combination; only in memory if the folder cannot be written."""

    def __init__(self, about: Mapping[str, str], kind: type[Kind], what: str) -> None:
        """kind: of the values, as json_files.typed takes it; what: their name, in the file's name and in messages."""
        self.about, self.kind, self.what = dict(about), kind, what
        self.path = folder() / f"{digest_of(self.about)[:24]}.{what}.json"
        self._unkept: dict[str, Kind] = {}

    def read(self) -> dict[str, Kind]:
        """All values; none, with a warning, if the file is damaged."""
        if not self.path.exists():
            return dict(self._unkept)
        try:
            content = read_json(self.path, _Content)
            if content["about"] != self.about or content["digest"] != digest_of(content["found"]):
                raise CheckpointError(f"{self.path}: its content is not what was written")
            found = typed(content["found"], dict[str, self.kind], os.fspath(self.path))  # type: ignore[name-defined]
        except CheckpointError as error:
            warnings.warn(f"{error}; the {self.what} on this GPU are made anew", stacklevel=2)
            with contextlib.suppress(OSError):
                self.path.unlink()
            return dict(self._unkept)
        return {**found, **self._unkept}

    def add(self, new: Mapping[str, Kind]) -> None:
        """Adds values to the file. A caller that holds the lock overwrites nothing of another process."""
        kept = {**self.read(), **new}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, {"about": self.about, "digest": digest_of(kept), "found": kept})
        except OSError as error:
            self._unkept.update(new)
            warnings.warn(
                f"the {self.what} on this GPU cannot be kept ({sentence_of(error)}), so each process makes them; "
                "let XDG_CACHE_HOME name a folder that can be written",
                stacklevel=2,
            )
