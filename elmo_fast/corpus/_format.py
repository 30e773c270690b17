"""The files of a prepared corpus: names, dtypes, digests, and the errors about damaged ones."""

import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypedDict

import numpy as np

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.files import sha256_of
from elmo_fast.json_files import read_json, typed
from elmo_fast.manifest import settle

FORMAT, VERSION = "elmo_fast corpus", 1
META, VOCABULARY = "meta.json", "vocab.txt"
TYPES, TYPE_ENDS, COUNTS = "types.npy", "type_ends.npy", "counts.npy"
DTYPES = {"types": np.uint8, "type_ends": np.uint64, "counts": np.uint64, "ids": np.uint32, "starts": np.uint64}
Path = str | os.PathLike[str]


class _FileMark(TypedDict):
    bytes: int
    sha256: str


class _Head(TypedDict):
    version: int
    sha256: str


_Meta = TypedDict(
    "_Meta",
    {
        "fingerprint": str,
        "sentences": int,
        "tokens": int,
        "types": int,
        "vocabulary": int,
        "shards": int,
        "files": dict[str, _FileMark],
        "made from": dict[str, Any],
    },
)


class FileStamp(NamedTuple):
    """Identifies the file that was opened."""

    inode: int
    bytes: int
    modified: int

    @classmethod
    def of(cls, path: Path) -> "FileStamp":
        """The current state of the file."""
        found = os.stat(path)
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


def shard_files(shard: int) -> tuple[str, str]:
    """The file names of a shard's numbers and of its sentence starts."""
    return f"ids-{shard:05d}.npy", f"starts-{shard:05d}.npy"


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of the array in the file of this name."""
    return np.dtype(DTYPES[name.removesuffix(".npy").partition("-")[0]])


def is_prepared(path: Path) -> bool:
    """Whether `path` is a folder that `prepare` wrote, intact or damaged."""
    try:
        with open(pathlib.Path(path) / META, "rb") as file:
            return FORMAT.encode() in file.read(100)
    except (FileNotFoundError, NotADirectoryError):
        return False


def digests(folder: pathlib.Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of each file, several at a time."""

    def digest(name: str) -> tuple[str, dict[str, Any]]:
        path = folder / name
        return name, {"bytes": path.stat().st_size, "sha256": sha256_of(path)}

    with ThreadPoolExecutor(8) as threads:
        return dict(threads.map(digest, names))


def _own_digest(meta: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in meta.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()


def meta_text(meta: Mapping[str, Any]) -> str:
    """The content of meta.json, which contains a digest of itself."""
    whole = {"format": FORMAT, "version": VERSION, **meta}
    return json.dumps({**whole, "sha256": _own_digest(whole)}, indent=1) + "\n"


def read_meta(folder: pathlib.Path) -> dict[str, Any]:
    """meta.json; ElmoFastError when it is absent, damaged or of another version."""
    path = folder / META
    if not is_prepared(folder):
        raise ElmoFastError(f"{folder} is not a prepared corpus: it has no {META} from `elmo-fast prepare`")
    settle(folder)
    try:
        meta = read_json(path, dict[str, Any])
        version = typed(meta, _Head, META)["version"]
    except CheckpointError as error:
        raise damaged(path, f"it cannot be read ({error})") from error
    if version != VERSION:
        raise ElmoFastError(
            f"{path}: version {version!r} of a prepared corpus, but this elmo_fast reads version {VERSION}; "
            "prepare the text again, or use the elmo_fast that prepared it"
        )
    if meta.get("sha256") != _own_digest(meta):
        raise damaged(path, "its content has changed")
    try:
        typed(meta, _Meta, META)
    except CheckpointError as error:
        raise damaged(path, str(error)) from error
    shards = (name for shard in range(meta["shards"]) for name in shard_files(shard))
    for name in itertools.chain((VOCABULARY, TYPES, TYPE_ENDS, COUNTS), shards):
        if name not in meta["files"]:
            raise damaged(path, f"it does not list {name}")
    return meta


def damaged(path: Path, what: str) -> ElmoFastError:
    """The error about a file that has changed since it was written."""
    return ElmoFastError(
        f"{os.fspath(path)} is damaged: {what}; copy the folder again from an intact one, or prepare the text again "
        "with --overwrite"
    )


def check_files(folder: pathlib.Path, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, FileStamp]:
    """Reads all files; the state of each, before it was read.

    Raises ElmoFastError naming the first that is missing, has another size or, if there is no such, another digest.
    """
    stamps = {}
    for name, each in wanted.items():
        if not (folder / name).is_file():
            raise damaged(folder / name, "it is missing")
        stamps[name] = FileStamp.of(folder / name)
        if stamps[name].bytes != each["bytes"]:
            raise damaged(folder / name, f"it has {stamps[name].bytes:,} bytes and had {each['bytes']:,}")
    for name, found in digests(folder, wanted).items():
        if found != wanted[name]:
            raise damaged(folder / name, "its bytes are not those that were written (SHA-256)")
    return stamps


def array(folder: pathlib.Path, name: str, *, mapped: bool = False) -> Any:
    """An array of the folder, in memory or memory-mapped; ElmoFastError if it does not match its name."""
    # Mode "c": unmodified pages cost nothing, and torch refuses read-only arrays.
    found = np.load(folder / name, mmap_mode="c" if mapped else None, allow_pickle=False)
    if found.dtype != dtype_of(name) or found.ndim != 1:
        raise damaged(folder / name, f"it contains {found.dtype} {found.shape} instead of {dtype_of(name)} [n]")
    return found
