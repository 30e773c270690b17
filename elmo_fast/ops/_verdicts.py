"""What was found on a card, kept from process to process: one JSON file for each combination that results depend on."""

import contextlib
import hashlib
import json
import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any, TypedDict

from elmo_fast.errors import CheckpointError, sentence_of
from elmo_fast.files import write_json
from elmo_fast.json_files import read_json


class Verdict(TypedDict):
    """Of one unit of the check."""

    why: str | None
    """why it is refused, or None where it agrees"""
    seconds: float
    """that the check took"""
    date: str


class _Content(TypedDict):
    about: dict[str, str]
    digest: str
    verdicts: dict[str, Verdict]


def folder() -> pathlib.Path:
    """Where verdicts are kept: $XDG_CACHE_HOME/elmo_fast/gpu, by default in ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(cache) / "elmo_fast" / "gpu"


def digest_of(value: Any) -> str:
    """The SHA-256 of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class VerdictFile:
    """The verdicts of one combination, by the unit's name; of a folder that cannot be written, in memory alone."""

    def __init__(self, about: Mapping[str, str]) -> None:
        self.about = dict(about)
        self.path = folder() / f"{digest_of(self.about)[:24]}.json"
        self._unkept: dict[str, Verdict] = {}

    def read(self) -> dict[str, Verdict]:
        """All verdicts; none, with a warning, where the file is damaged."""
        if not self.path.exists():
            return dict(self._unkept)
        try:
            content = read_json(self.path, _Content)
            if content["about"] != self.about or content["digest"] != digest_of(content["verdicts"]):
                raise CheckpointError(f"{self.path}: its content is not what was written")
        except CheckpointError as error:
            warnings.warn(f"{error}; the GPU kernels are checked anew", stacklevel=2)
            with contextlib.suppress(OSError):
                self.path.unlink()
            return dict(self._unkept)
        return {**content["verdicts"], **self._unkept}

    def add(self, new: Mapping[str, Verdict]) -> None:
        """Keeps verdicts; a caller that holds the lock loses none of another process."""
        kept = {**self.read(), **new}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, {"about": self.about, "digest": digest_of(kept), "verdicts": kept})
        except OSError as error:
            self._unkept.update(new)
            warnings.warn(
                f"the verdicts on GPU kernels cannot be kept ({sentence_of(error)}), so each process checks them; "
                "let XDG_CACHE_HOME name a folder that can be written",
                stacklevel=2,
            )
