"""`elmo-fast embed`: vectors of every token of a text file, in the form and the file layout of `allennlp elmo`."""

import json
from array import array
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from elmo_fast.cli import _common, _model, _progress
from elmo_fast.errors import ElmoFastError
from elmo_fast.sizes import size
from elmo_fast.text import batches, read_lines, read_sentences, rereadable

# Batches whose sentences are sorted by length together, where the order does not matter.
WINDOW = 16
SHOWN_LINES = 5


def build_parser() -> Any:
    """The options of `elmo-fast embed`."""
    from jsonargparse import ActionYesNo

    parser = _common.new_parser(
        "embed",
        "Writes the vectors of every token of INPUT (one sentence per line, tokens split by white space; '-' is the "
        "standard input, .gz is unpacked) to OUTPUT. A file appears under that name when it is complete.",
    )
    parser.add_argument("input_file", type=str, help="text, one sentence per line")
    parser.add_argument("output_file", type=str, help="file to write")
    parser.writes("output_file")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="all layers, [layers, tokens, 2D] per sentence")
    which.add_argument("--top", action="store_true", help="the top layer, [tokens, 2D]")
    which.add_argument("--average", action="store_true", help="the mean of the layers, [tokens, 2D]")
    _model.add_options(parser)
    parser.add_argument(
        "--format",
        type=Literal["hdf5", "hdf5-flat", "safetensors", "npz"],
        default="hdf5",
        help="hdf5: a dataset per sentence, as AllenNLP; the others: embeddings [tokens, layers, 2D] and offsets",
    )
    parser.add_argument("--dtype", type=Literal["f32", "f16"], default="f32", help="of the numbers written")
    parser.add_argument("--batch_size", type=int, default=64, help="most sentences run together")
    parser.add_argument("--max_tokens", type=int | None, default=None, help="most tokens run together, padding counted")
    parser.add_argument(
        "--stateful",
        action=ActionYesNo(no_prefix="no_"),
        default=True,
        help="carry the state from batch to batch, as AllenNLP does; without it a sentence always has the same vectors "
        "and sentences of like length are run together",
    )
    parser.add_argument("--forget_sentences", action="store_true", help="leave out the dataset sentence_to_index")
    parser.add_argument("--use_sentence_keys", action="store_true", help="name the datasets by their sentences")
    parser.add_argument("--file_friendly_logging", action="store_true", help="progress as lines instead of a bar")
    parser.add_argument("--cuda_device", type=int, default=-1, help="number of the GPU; -1 is the CPU")
    parser.add_argument("--vocab_path", type=str | None, default=None, help="ignored, as by AllenNLP")
    return parser


def run(arguments: Any) -> int:
    """Reads the text once to check it and count its tokens, then embeds it, writing as it goes."""
    if arguments.cuda_device >= 0:
        arguments.device = f"cuda:{arguments.cuda_device}"
    if arguments.use_sentence_keys and arguments.format != "hdf5":
        raise ElmoFastError(f"--use_sentence_keys needs --format hdf5; got --format {arguments.format}")
    _model.resolve(arguments)
    with rereadable(arguments.input_file) as path:
        name = "standard input" if arguments.input_file == "-" else arguments.input_file
        lengths = survey(path, name, keys=arguments.use_sentence_keys)
        device = _common.set_up(arguments)
        embedder = _model.load_embedder(arguments, device, stateful=arguments.stateful)
        progress = _progress.Progress(int(lengths.sum()), lines=arguments.file_friendly_logging, quiet=arguments.quiet)
        write_vectors(arguments, path, lengths, embedder, progress)
    _common.logger().info(
        "%s: %d sentences, %d tokens in %s (%d tok/s)",
        arguments.output_file,
        len(lengths),
        progress.done,
        _progress.duration(progress.seconds),
        progress.rate,
    )
    return 0


def survey(path: str, name: str, *, keys: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The number of tokens of each line, [sentences] int64.

    Raises ElmoFastError naming the lines that are blank or, where sentences are to be keys, that cannot be keys.
    """
    lengths = array("q")
    blank: list[int] = []
    seen: dict[str, int] = {}
    for index, line in read_lines(path):
        lengths.append(len(line.split()))
        if not lengths[-1]:
            blank.append(index + 1)
        if keys and ("/" in line or line == "."):
            raise ElmoFastError(
                f"{name}, line {index + 1}: {line[:60]!r} cannot be the name of a dataset (HDF5 takes '/' for a group "
                "and '.' for this one); leave out --use_sentence_keys"
            )
        if keys and seen.setdefault(line, index) != index:
            raise ElmoFastError(
                f"{name}: lines {seen[line] + 1} and {index + 1} are the same sentence, and a name can be given once; "
                "leave out --use_sentence_keys"
            )
    if not lengths:
        raise ElmoFastError(f"{name} is empty: it holds no sentence")
    if blank:
        more = f" and {len(blank) - SHOWN_LINES} more" if len(blank) > SHOWN_LINES else ""
        shown = ", ".join(map(str, blank[:SHOWN_LINES]))
        raise ElmoFastError(f"{name}: nothing but white space on line {shown}{more}; remove such lines")
    return np.array(lengths, np.int64)


def write_vectors(
    arguments: Any, path: str, lengths: np.ndarray[Any, np.dtype[np.int64]], embedder: Any, progress: _progress.Progress
) -> None:
    """Embeds the file in batches and writes each sentence as soon as it is there."""
    from elmo_fast.cli._vector_files import FORMATS

    contents = contents_of(arguments, path, lengths, embedder)
    check_room(arguments.output_file, contents.nbytes)
    sentences = unchanged(path, lengths)
    window, check_memory = 0 if arguments.stateful else WINDOW, _model.MemoryCheck(embedder)
    with progress, FORMATS[arguments.format](arguments.output_file, contents) as write:
        for indices, members in batches(
            sentences, batch_size=arguments.batch_size, max_tokens=arguments.max_tokens, window=window
        ):
            check_memory(members, [i + 1 for i in indices])
            for index, vectors in zip(indices, embedder.embed_batch(members), strict=True):
                write(index, kept(arguments, vectors, index))
            progress.add(sum(map(len, members)))


def contents_of(arguments: Any, path: str, lengths: np.ndarray[Any, np.dtype[np.int64]], embedder: Any) -> Any:
    """What the output file will hold."""
    from elmo_fast import __version__
    from elmo_fast.cli._vector_files import Contents

    which = "all" if arguments.all else "top" if arguments.top else "average"
    keys: Callable[[int], str] = str
    if arguments.use_sentence_keys:
        lines = [line for _, line in read_lines(path)]
        keys = lines.__getitem__
    remembered = not (arguments.use_sentence_keys or arguments.forget_sentences)
    return Contents(
        lengths=lengths,
        layers=embedder.elmo_bilm.num_layers if arguments.all else 0,
        width=embedder.elmo_bilm.get_output_dim(),
        dtype=np.float16 if arguments.dtype == "f16" else np.float32,
        metadata={
            "model": _model.model_name(arguments),
            "layers": which,
            "precision": arguments.precision,
            "stateful": str(arguments.stateful).lower(),
            "tokenizer": "whitespace",
            "writer": f"elmo_fast {__version__}",
        },
        keys=keys,
        closing=(lambda: sentence_to_index(path)) if remembered else None,
    )


def sentence_to_index(path: str) -> str:
    """The JSON text that maps each sentence to the name of its dataset (of equal sentences, the last one's)."""
    return json.dumps({line: str(index) for index, line in read_lines(path)})


def unchanged(path: str, lengths: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[list[str]]:
    """The sentences of a file that has been surveyed; ElmoFastError when it is no longer the same."""
    count = 0
    for index, tokens in read_sentences(path):
        if index >= len(lengths) or len(tokens) != lengths[index]:
            raise ElmoFastError(f"{path} changed while it was read, at line {index + 1}")
        count += 1
        yield tokens
    if count != len(lengths):
        raise ElmoFastError(f"{path} changed while it was read: it had {len(lengths)} lines and now has {count}")


def kept(arguments: Any, vectors: np.ndarray[Any, Any], index: int) -> np.ndarray[Any, Any]:
    """The layers asked for, of one sentence; ElmoFastError when numbers are no longer finite."""
    chosen = vectors if arguments.all else vectors[-1] if arguments.top else np.average(vectors, axis=0)
    if arguments.dtype == "f16":
        with np.errstate(over="ignore"):
            chosen = chosen.astype(np.float16)
    if not np.isfinite(chosen).all():
        hint = "; --dtype f32 holds larger numbers" if arguments.dtype == "f16" else ""
        raise ElmoFastError(f"line {index + 1} of {arguments.input_file} gave vectors that are not finite{hint}")
    return chosen


def check_room(path: str, needed: int) -> None:
    """Raises ElmoFastError when the disk has less room than the vectors take."""
    from elmo_fast.cli._vector_files import free_bytes

    free = free_bytes(path)
    if needed > free:
        raise ElmoFastError(
            f"no space left on device for {path!r}: the vectors take {size(needed)} and {size(free)} are free; "
            "--average, --top and --dtype f16 take less"
        )
