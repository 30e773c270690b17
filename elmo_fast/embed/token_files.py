"""Files of token vectors: the formats that `embed` writes, and safetensors read again, also as a cache.

Each format is a context manager yielding write(index, vectors [L, n, 2D] or [n, 2D]); sentences may come in any order.
The file appears under its name when all of it is on the disk (`elmo_fast._io.atomic_file`), or not at all.
`ElmoEmbedder.embed_file` says what each holds.
"""

import contextlib
import itertools
import json
import math
import os
import pathlib
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from elmo_fast._io.atomic_file import atomic_file, free_bytes, hdf5_written
from elmo_fast._io.atomic_folder import MANIFEST, has_files, read_folder, write_folder
from elmo_fast._runtime.memory import size
from elmo_fast.errors import CheckpointError, ElmoFastError, check_choice, read_failures_named, require

Path = str | os.PathLike[str]
Format = Literal["hdf5", "hdf5-flat", "safetensors", "npz", "parquet", "jsonl"]
ENDINGS = {".hdf5": "hdf5", ".h5": "hdf5"} | {f".{name}": name for name in ("npz", "safetensors", "parquet", "jsonl")}
STANDARD_OUTPUT = "-"  # for which only jsonl serves
NAMED = ("hdf5", "safetensors", "parquet", "jsonl")  # the formats that store the sentences
DTYPES = {"float16": "F16", "float32": "F32", "int64": "I64", "uint8": "U8"}  # of safetensors
ALIGNED = 64
GROUP_BYTES = 1 << 26  # of vectors in a row group of a Parquet file
Write = Callable[[int, np.ndarray[Any, Any]], None]


class FileLayout(NamedTuple):
    """What a file is to hold.

    lengths: tokens of each sentence, or 1 if pooled, [sentences] int64
    layers: how many layers are kept, L; 0 for a single one without an axis of its own
    width: 2D
    dtype: np.float32 or np.float16
    metadata: where the vectors come from
    names: of the sentences, for the formats of NAMED; None leaves them out
    keyed: whether the names are those of the datasets (format hdf5), in place of a dataset sentence_to_index
    pooled: whether each sentence has one vector, in place of one for each token
    others: columns of the input, a pyarrow.Table, that the format parquet also stores
    """

    lengths: np.ndarray[Any, np.dtype[np.int64]]
    layers: int
    width: int
    dtype: Any
    metadata: dict[str, str]
    names: Sequence[str] | None = None
    keyed: bool = False
    pooled: bool = False
    others: Any = None

    @property
    def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where each sentence's rows start in the flat formats, and the last one's end, [sentences + 1] int64."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])

    @property
    def row(self) -> tuple[int, ...]:
        """Shape of a row of the flat formats, [layers, 2D]; of a single layer [1, 2D] or, if pooled, [2D]."""
        return (self.width,) if self.pooled and not self.layers else (max(self.layers, 1), self.width)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all rows of the flat formats."""
        return int(self.lengths.sum()), *self.row

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors alone."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    def rows(self, vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """[L, n, 2D] or [n, 2D] as n rows of the flat formats, contiguous, in the dtype."""
        tokens_first = vectors.swapaxes(0, 1) if vectors.ndim == 3 else vectors
        return np.ascontiguousarray(tokens_first, self.dtype).reshape(-1, *self.row)


def format_of(path: Path, file_format: str | None = None, default: str = "hdf5") -> str:
    """Return the format of a file to write: by the ending of its name, or `file_format`; `default` if neither says.

    Raises ElmoFastError: an unknown format, an unknown ending, an ending of another format than `file_format`.
    """
    if file_format is not None:
        check_choice("file_format", file_format, FORMATS)
    name, ending = os.fspath(path), os.path.splitext(path)[1]
    named = "jsonl" if name == STANDARD_OUTPUT else ENDINGS.get(ending.lower())
    if named is None and not ending:
        return file_format or default
    if named is None:
        table = '; for a table, use ElmoEmbedder.encode(sentences, output="pandas")' * (ending in (".csv", ".tsv"))
        raise ElmoFastError(
            f"{name}: the name must end in {', '.join(ENDINGS)}, which say the format, or have no ending; got "
            f"{ending!r}{table}"
        )
    if file_format is not None and file_format.split("-")[0] != named:
        raise ElmoFastError(
            f"{name}: the name says the format {named}, but {file_format} was chosen; give one that fits the other"
        )
    return file_format or named


def check_room(path: str | os.PathLike[str], needed: int, advice: str = "") -> None:
    """Raise ElmoFastError if the disk has less room than the vectors take; advice: what takes less."""
    if os.fspath(path) == STANDARD_OUTPUT:
        return
    free = free_bytes(path)
    if needed > free:
        raise ElmoFastError(
            f"no space left on device for {os.fspath(path)!r}: the vectors take {size(needed)} and {size(free)} are "
            f"free{advice}"
        )


def write_sentence_to_index(file: Any, sentences: Sequence[str]) -> None:
    """Write that dataset, a JSON object: sentence -> its dataset, of equal sentences the last one's; no blank lines."""
    import h5py

    content = json.dumps({sentence: str(index) for index, sentence in enumerate(sentences) if sentence})
    file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())[0] = content


@contextlib.contextmanager
def hdf5(path: Path, layout: FileLayout) -> Iterator[Write]:
    """Write AllenNLP's layout: dataset "{index}" [L, n, 2D] or [n, 2D] per sentence, and sentence_to_index.

    A blank line is a dataset of 0 tokens; with datasets named by sentences it has none. h5py creates all datasets, in
    the order of the sentences, and reserves their space; then each is written at its place, in any order.
    """
    import h5py

    names, keyed = layout.names, layout.keyed
    lengths, layers = layout.lengths.tolist(), (layout.layers,) if layout.layers else ()
    reserved = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    reserved.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    reserved.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    reserved.set_obj_track_times(False)  # equal vectors, equal files
    places: list[int | None] = []
    with atomic_file(path) as temporary:
        with hdf5_written(temporary, path) as (file, written):
            kind = h5py.h5t.py_create(np.dtype(layout.dtype))
            for index, length in enumerate(lengths):
                place = None
                if length or not keyed:
                    name = names[index] if keyed and names is not None else str(index)
                    space = h5py.h5s.create_simple((*layers, length, layout.width))
                    place = h5py.h5d.create(file.id, name.encode(), kind, space, reserved).get_offset()
                places.append(place)
                written.check()
            if names is not None and not keyed:
                write_sentence_to_index(file, names)
        with open(temporary, "r+b") as whole:

            def write(index: int, vectors: np.ndarray[Any, Any]) -> None:
                if vectors.shape != (expected := (*layers, lengths[index], layout.width)):
                    raise ValueError(f"vectors of sentence {index} must have shape {expected}; got {vectors.shape}")
                if (place := places[index]) is not None:
                    whole.seek(place)
                    whole.write(np.ascontiguousarray(vectors, layout.dtype).data)

            yield write


@contextlib.contextmanager
def hdf5_flat(path: Path, layout: FileLayout) -> Iterator[Write]:
    """Write HDF5: `embeddings` and, unless pooled, `offsets`; the metadata are attributes."""
    offsets = layout.offsets
    with atomic_file(path) as temporary, hdf5_written(temporary, path) as (file, written):
        embeddings = file.create_dataset("embeddings", layout.shape, layout.dtype)
        if not layout.pooled:
            file.create_dataset("offsets", data=offsets)
        if layout.names is not None:
            write_sentence_to_index(file, layout.names)
        file.attrs.update(layout.metadata)

        def write(index: int, vectors: np.ndarray[Any, Any]) -> None:
            embeddings[offsets[index] : offsets[index + 1]] = layout.rows(vectors)
            written.check()

        yield write


def safetensors_header(tensors: Mapping[str, tuple[Any, tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """Return the header of a file, with its length before it; the tensors follow, in their order.

    The library writes only tensors that lie in memory as a whole. tensors: by name, dtype and shape of each.
    """
    content: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name, (dtype, shape) in tensors.items():
        end = at + math.prod(shape) * np.dtype(dtype).itemsize
        content[name] = {"dtype": DTYPES[np.dtype(dtype).name], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(content).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)  # so that the tensors lie as memory maps want them
    return len(text).to_bytes(8, "little") + text


@contextlib.contextmanager
def safetensors(path: Path, layout: FileLayout) -> Iterator[Write]:
    """Write safetensors, each sentence's vectors at their offset as they come; `names` is a JSON list, as bytes."""
    offsets = layout.offsets
    stored = b"" if layout.pooled else offsets.astype("<i8").tobytes()
    tensors: dict[str, tuple[Any, tuple[int, ...]]] = {} if layout.pooled else {"offsets": (np.int64, offsets.shape)}
    names = b"" if layout.names is None else json.dumps(list(layout.names)).encode()
    names += b" " * (-len(names) % 8)  # the vectors after them stay aligned
    if names:
        tensors["names"] = np.uint8, (len(names),)
    header = safetensors_header(tensors | {"embeddings": (layout.dtype, layout.shape)}, layout.metadata)
    before = header + stored + names
    row = math.prod(layout.row) * np.dtype(layout.dtype).itemsize
    with atomic_file(path) as temporary, open(temporary, "r+b") as file:
        file.write(before)

        def write(index: int, vectors: np.ndarray[Any, Any]) -> None:
            file.seek(len(before) + int(offsets[index]) * row)
            file.write(layout.rows(vectors).data)

        yield write


def in_order(put: Callable[[np.ndarray[Any, Any]], Any]) -> Write:
    """Return a `write` that hands sentences on in their order; those before their turn wait in memory."""
    waiting: dict[int, np.ndarray[Any, Any]] = {}
    turn = 0

    def write(index: int, vectors: np.ndarray[Any, Any]) -> None:
        nonlocal turn
        waiting[index] = vectors
        while turn in waiting:
            put(waiting.pop(turn))
            turn += 1

    return write


@contextlib.contextmanager
def npz(path: Path, layout: FileLayout) -> Iterator[Write]:
    """`embeddings`, `offsets` (not where pooled) and `metadata` (JSON) as numpy's npz."""
    arrays = {"metadata": np.array(json.dumps(layout.metadata))}
    if not layout.pooled:
        arrays = {"offsets": layout.offsets, **arrays}
    with atomic_file(path) as temporary, zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        with archive.open("embeddings.npy", "w", force_zip64=True) as member:
            descr = np.lib.format.dtype_to_descr(np.dtype(layout.dtype))
            header = {"descr": descr, "fortran_order": False, "shape": layout.shape}
            np.lib.format.write_array_header_1_0(member, header)
            yield in_order(lambda vectors: member.write(layout.rows(vectors).data))


@contextlib.contextmanager
def parquet(path: Path, layout: FileLayout) -> Iterator[Write]:
    """Write a row for each sentence; a vector is a fixed-size list [2D] or, of all layers, [L, 2D]."""
    arrow = require("pyarrow", "parquet", f"{os.fspath(path)}")
    tables = require("pyarrow.parquet", "parquet", f"{os.fspath(path)}")
    sizes = [layout.width, *([layout.layers] if layout.layers else [])]
    kind = arrow.from_numpy_dtype(np.dtype(layout.dtype))
    for size_of in sizes:
        kind = arrow.list_(kind, size_of)
    column = ("embedding", kind) if layout.pooled else ("embeddings", arrow.list_(kind))
    columns = [column] if layout.names is None else [("sentence", arrow.string()), column]
    if (others := layout.others) is not None:
        if both := set(others.column_names).intersection(name for name, _ in columns):
            raise ElmoFastError(
                f"{os.fspath(path)}: the input and the output both have a column {both.pop()!r}; rename the input's"
            )
        columns = [*((each.name, each.type) for each in others.schema), *columns]
    group: list[np.ndarray[Any, Any]] = []
    first = waiting = 0

    def write_group() -> None:
        nonlocal first, waiting
        values = arrow.array(np.concatenate(group).reshape(-1))
        for size_of in sizes:
            values = arrow.FixedSizeListArray.from_arrays(values, size_of)
        if not layout.pooled:
            values = arrow.ListArray.from_arrays(np.cumsum([0, *map(len, group)]).astype(np.int32), values)
        last = first + len(group)
        carried = [] if others is None else others.slice(first, len(group)).columns
        names = [] if layout.names is None else [arrow.array(list(layout.names[first:last]))]
        file.write_table(arrow.Table.from_arrays([*carried, *names, values], schema=schema))
        first, waiting = last, 0
        group.clear()

    def put(vectors: np.ndarray[Any, Any]) -> None:
        nonlocal waiting
        group.append(layout.rows(vectors))
        waiting += vectors.nbytes
        if waiting >= GROUP_BYTES:
            write_group()

    schema = arrow.schema(columns, metadata=layout.metadata)
    with atomic_file(path) as temporary, tables.ParquetWriter(temporary, schema) as file:
        yield in_order(put)
        if group:
            write_group()


@contextlib.contextmanager
def jsonl(path: Path, layout: FileLayout) -> Iterator[Write]:
    """Write a JSON object per line; numbers have the digits that give the same float32 or float16 again."""
    key = "embedding" if layout.pooled else "embeddings"
    digits = "%.5g" if np.dtype(layout.dtype) == np.float16 else "%.9g"
    vector, indices = f"[{', '.join([digits] * layout.width)}]", itertools.count()

    def text_of(array: np.ndarray[Any, Any]) -> str:
        return vector % tuple(array.tolist()) if array.ndim == 1 else f"[{', '.join(map(text_of, array))}]"

    def put(vectors: np.ndarray[Any, Any]) -> None:
        index, rows = next(indices), layout.rows(vectors)
        value = rows[0] if layout.pooled else rows if layout.layers else rows[:, 0]
        name = "" if layout.names is None else f'"sentence": {json.dumps(layout.names[index])}, '
        file.write(f'{{{name}"{key}": {text_of(value)}}}\n')

    with contextlib.ExitStack() as stack:
        file: TextIO = sys.stdout
        if os.fspath(path) != STANDARD_OUTPUT:
            temporary = stack.enter_context(atomic_file(path))
            file = stack.enter_context(open(temporary, "w", encoding="utf-8"))
        yield in_order(put)


FORMATS: dict[str, Callable[[Path, FileLayout], contextlib.AbstractContextManager[Write]]] = {
    "hdf5": hdf5,
    "hdf5-flat": hdf5_flat,
    "safetensors": safetensors,
    "npz": npz,
    "parquet": parquet,
    "jsonl": jsonl,
}


# Of a cache of token vectors: the metadata "format" of its file, and the file.
FORMAT, VECTORS = "elmo_fast.token_vectors 5", "token_vectors.safetensors"


class FlatFile(NamedTuple):
    """A safetensors file of `embed`: offsets [N + 1] int64, and embeddings [tokens, L or 1, 2D], memory-mapped.

    names: of the sentences of a cache, if it stores them.
    """

    offsets: npt.NDArray[np.int64]
    embeddings: npt.NDArray[Any]
    metadata: dict[str, str]
    names: list[str] | None = None


def names_in(path: pathlib.Path) -> list[str] | None:
    """Return the sentences, or their keys, in a safetensors file of `embed`; None if it does not store them."""
    from safetensors import safe_open

    with read_failures_named(path), safe_open(path, framework="numpy") as file:
        return json.loads(file.get_tensor("names").tobytes()) if "names" in set(file.keys()) else None


def read_flat(path: pathlib.Path) -> FlatFile:
    """Open a safetensors file of `embed`. Raises CheckpointError for another file, or a damaged one."""
    from safetensors import SafetensorError, safe_open

    try:
        with read_failures_named(path), safe_open(path, framework="numpy") as file:
            if not {"offsets", "embeddings"} <= set(file.keys()):
                raise CheckpointError(
                    f"{path}: no file of token vectors that `elmo-fast embed --format safetensors` wrote; one of a "
                    "vector per sentence (--pool) is read by safetensors.numpy.load_file"
                )
            offsets, metadata, rows = file.get_tensor("offsets"), file.metadata() or {}, file.get_slice("embeddings")
            shape, dtype = tuple(rows.get_shape()), {"F32": "<f4", "F16": "<f2"}.get(rows.get_dtype())
    except SafetensorError as error:
        raise CheckpointError(
            f"{path}: damaged, or no safetensors file ({error}); of other formats of `elmo-fast embed`, h5py opens "
            ".hdf5, numpy.load .npz and pandas .parquet"
        ) from error
    if dtype is None or len(shape) != 3 or offsets[-1:].tolist() != [shape[0]]:
        raise CheckpointError(f"{path}: damaged: its header is not what was written")
    if not (numbers := math.prod(shape)):
        return FlatFile(offsets, np.empty(shape, dtype), metadata)  # no memory to map
    start = os.path.getsize(path) - numbers * np.dtype(dtype).itemsize  # it is the last tensor
    return FlatFile(offsets, np.memmap(path, dtype, "r", start, shape), metadata)


@contextlib.contextmanager
def writing_cache_folder(
    path: Path,
    lengths: npt.ArrayLike,
    layers: int,
    width: int,
    made_from: str,
    names: Sequence[str] | None = None,
) -> Iterator[Write]:
    """Yield write(sentence, vectors [L, n, D]) of a new cache, which is at `path` once all sentences are written.

    They may come in any order. lengths: tokens of each sentence; made_from: what the vectors depend on, for the reader;
    names: of the sentences.
    Raises OSError: the disk is full, the folder cannot be written.
    """
    about = {"format": FORMAT, "made_from": made_from}
    layout = FileLayout(np.asarray(lengths, np.int64), layers, width, np.dtype(np.float32), about, names)
    with write_folder(path) as new, FORMATS["safetensors"](new / VECTORS, layout) as write:
        yield write


def read_cache_folder(path: str | os.PathLike[str]) -> FlatFile:
    """Open a cache that `writing_cache_folder` wrote, after comparing all of it with its digest.

    Raises CheckpointError if it is truncated, changed or of another version, ElmoFastError if it is something else.
    """
    if not has_files(path, VECTORS, MANIFEST):
        raise ElmoFastError(f"{path}: is no folder of vectors that elmo_fast wrote; name another")

    def read(folder: pathlib.Path) -> FlatFile:
        file = read_flat(folder / VECTORS)
        if file.metadata.get("format") != FORMAT:
            raise CheckpointError(f"{folder / VECTORS}: written by another version")
        return file._replace(names=names_in(folder / VECTORS))

    return read_folder(path, [VECTORS], read, advice="")
