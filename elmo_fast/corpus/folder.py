"""The folder of a prepared corpus: its files, how it is written from text files, and how it is opened."""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from elmo_fast._io.atomic_folder import MANIFEST, check_files, read_folder, write_folder
from elmo_fast._io.fields import MIN_COUNT, changes, read_json
from elmo_fast._io.locks import temporary_folder
from elmo_fast.corpus.encoding import Corpus, TypeTable, file_stamp, fingerprint_begun, ranked
from elmo_fast.corpus.pieces import FORMAT, META, ChosenLines, Ids, is_prepared, pieces_matching
from elmo_fast.corpus.word_counts import TextProgress, read_pieces
from elmo_fast.errors import ElmoFastError, check_choice, check_counts
from elmo_fast.op_choices import TOKENIZERS
from elmo_fast.text import Vocabulary
from elmo_fast.text.sources import Reading
from elmo_fast.text.vocabulary import built_vocabulary

VERSION = 2
VOCABULARY = "vocab.txt"
TYPES, TYPE_ENDS, COUNTS = "types.npy", "type_ends.npy", "counts.npy"
DTYPES = {"types": np.uint8, "type_ends": np.uint64, "counts": np.uint64, "ids": np.uint32, "starts": np.uint64}
Path = str | os.PathLike[str]


def shard_files(shard: int) -> tuple[str, str]:
    """Return the file names of a shard's numbers and of its sentence starts."""
    return f"ids-{shard:05d}.npy", f"starts-{shard:05d}.npy"


def read_meta(folder: pathlib.Path) -> dict[str, Any]:
    """meta.json; ElmoFastError when it is absent, damaged or of another version."""
    return read_folder(folder, [META], _meta_in, _ADVICE)


def _meta_in(folder: pathlib.Path) -> dict[str, Any]:
    if not is_prepared(folder):
        raise ElmoFastError(f"{folder} is not a prepared corpus: it has no {META} from `elmo-fast prepare`")
    meta = read_json(folder / META, dict[str, Any])
    if (version := meta.get("version")) != VERSION:
        raise ElmoFastError(
            f"{folder / META}: version {version!r} of a prepared corpus, but this elmo_fast reads version {VERSION}; "
            "prepare the text again with --overwrite, or use the elmo_fast that prepared it"
        )
    if not (folder / MANIFEST).exists():  # all files are then as they were written
        raise ElmoFastError(f"{folder / MANIFEST} is missing; {_ADVICE}")
    return meta


_ADVICE = "copy the folder again from an intact one, or prepare the text again with --overwrite"
_OF_A_RUN = " (for a run: another save_dir)"


_BOUNDARY = np.zeros(1, np.uint32)


class ArrayFile(contextlib.AbstractContextManager["ArrayFile"]):
    """A one-dimensional .npy file of the dtype of its name, which grows by appending; complete when it is closed.

    `numpy.save` does not report a full disk.
    """

    def __init__(self, path: pathlib.Path) -> None:
        dtype = np.dtype(DTYPES[path.stem.partition("-")[0]])
        self._file, self._dtype, self.length = open(path, "wb"), dtype.newbyteorder("<"), 0  # noqa: SIM115
        self._write_header()

    def __exit__(self, *error: object) -> None:
        with self._file:
            self._write_header()

    def _write_header(self) -> None:
        """Write the current length; numpy leaves room for it to grow."""
        about = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.length,)}
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(self._file, about)

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append the values."""
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self.length += len(values)


def _write_shards(
    folder: pathlib.Path, parts: Iterable[Ids], most: int, digest: "hashlib._Hash"
) -> tuple[int, int, int]:
    """Write the shard files of a folder; return the numbers of shards, sentences, and words and sentence ends.

    parts: whole sentences, their numbers and a 0 after each; most: numbers in a shard, which a longer sentence, in a
    shard of its own, exceeds; digest: updated with the sentences.
    """
    shards, sentences, positions = 1, 0, 0
    with contextlib.ExitStack() as files:

        def begun(shard: int) -> list[ArrayFile]:
            ids, starts = (files.enter_context(ArrayFile(folder / name)) for name in shard_files(shard))
            ids.append(_BOUNDARY)
            return [ids, starts]

        ids, starts = begun(0)
        for numbers in parts:
            ends = np.flatnonzero(numbers == 0) + 1
            while ends.size:
                fit = int(np.searchsorted(ends, most - ids.length, side="right"))
                if not fit and starts.length:
                    files.close()
                    ids, starts = begun(shards)
                    shards += 1
                    continue
                some = ends[: max(fit, 1)]
                starts.append(ids.length - 1 + np.concatenate([[0], some[:-1]]))
                ids.append(numbers[: some[-1]])
                # Boundaries are before sentences there, and after them here.
                digest.update(_BOUNDARY.data)
                digest.update(numbers[: some[-1] - 1].data)
                sentences, positions = sentences + len(some), positions + int(some[-1])
                numbers, ends = numbers[some[-1] :], ends[len(some) :] - some[-1]
    return shards, sentences, positions


def renumbered(path: pathlib.Path, numbers: Ids, at_once: int = 1 << 20) -> Iterator[Ids]:
    """Yield the text of a piece with each number replaced by that of `numbers`, in parts of whole sentences."""
    rest = np.zeros(0, np.uint32)
    with open(path, "rb") as file:
        while data := file.read(4 * max(at_once, len(rest))):
            part = np.concatenate([rest, numbers[np.frombuffer(data, np.uint32)]])
            zeros = np.flatnonzero(part == 0)
            end = int(zeros[-1]) + 1 if zeros.size else 0
            rest = part[end:]
            if end:
                yield part[:end]


def heldout_of(folder: Path) -> pathlib.Path:
    """Return the folder for the lines that are held out of the corpus of a folder."""
    return pathlib.Path(f"{os.path.realpath(folder)}-heldout")


def open_corpus(
    folder: Path, tokenizer: str | None = None, heldout_share: float = 0.0, vocabulary: Vocabulary | None = None
) -> Corpus:
    """Return the corpus of a folder that `prepare` wrote; its sentences stay on disk and are memory-mapped.

    Every file is always read once, and its SHA-256 compared with the recorded one. tokenizer, heldout_share,
    vocabulary: that the text must have been prepared with; None and 0: any.

    Raises ElmoFastError naming the file that is missing, damaged or of another version, or what is different.
    """

    def read(place: pathlib.Path) -> Corpus:
        meta = _meta_in(place)
        made_from = {"tokenizer": "whitespace", "heldout_share": 0} | meta["made from"]
        for name, wanted in (("tokenizer", tokenizer), ("heldout_share", heldout_share)):
            if wanted and wanted != (actual := made_from[name]):
                raise ElmoFastError(
                    f"{folder} was prepared with {name} {actual}, not {wanted}; give {name}={actual}, or prepare the "
                    f"text again in another folder{_OF_A_RUN}"
                )
        names = [shard_files(shard) for shard in range(meta["shards"])]
        check_files(place, [VOCABULARY, TYPES, TYPE_ENDS, COUNTS, *itertools.chain(*names)], _ADVICE)
        # Mode "c": unmodified pages cost nothing, and torch refuses read-only arrays.
        corpus = Corpus(
            TypeTable(np.load(place / TYPES), np.load(place / TYPE_ENDS)),
            Vocabulary.read(place / VOCABULARY),
            [np.load(place / ids, mmap_mode="c") for ids, _ in names],
            [np.load(place / starts, mmap_mode="c") for _, starts in names],
            np.load(place / COUNTS),
            meta["fingerprint"],
            {place / name: file_stamp(place / name) for pair in names for name in pair},
            meta["made from"].get("tokenizer"),
        )
        if vocabulary is not None and vocabulary.words != corpus.vocabulary.words:
            raise ElmoFastError(
                f"{folder} was prepared with a different vocabulary than the model's; give its vocab.txt as vocab_file "
                f"to train a new model, or prepare the text again with the model's, in another folder{_OF_A_RUN}"
            )
        return corpus

    return read_folder(folder, [META], read, _ADVICE)


SHARD_TOKENS = 2**28


def prepare(
    pattern: str,
    folder: str | os.PathLike[str],
    *,
    vocabulary: Vocabulary | None = None,
    min_count: int = MIN_COUNT,
    max_vocab_size: int | None = None,
    tokenizer: str | None = None,
    processes: int | None = None,
    ray: str | None = None,
    shard_tokens: int = SHARD_TOKENS,
    heldout_share: float = 0.0,
    overwrite: bool = False,
    progress: TextProgress | None = None,
    report: Callable[[str], None] | None = None,
    **reading: Unpack[Reading],
) -> Corpus:
    """Write the corpus of the files that `pattern` names into a folder that appears when complete, and open it.

    vocabulary: the words to predict; None builds one from the words that occur at least min_count times, with at
    most max_vocab_size entries including the three markers; tokenizer: one of TOKENIZERS, None for white space;
    processes: how many read at a time, None for all cores; ray: address of a Ray cluster whose machines do it, on
    a disk that they share (the result is the same); shard_tokens: maximum numbers
    per shard including boundaries, except for a longer sentence; heldout_share: fraction of the lines, chosen by a
    digest of each, that this corpus leaves out and another one with its vocabulary holds, in the folder
    "FOLDER-heldout" (`heldout_of`); overwrite: replace a prepared folder; without it,
    a folder that already contains this corpus is kept; progress: called with bytes done, total bytes, words;
    report: called with lines on a vocabulary that is built, before anything is written; reading: format_in, column and
    split of tables, as in `opened_source`.

    Raises ElmoFastError if the text has no words or cannot be read, the vocabulary contains a word twice, or `folder`
    contains something else; OSError if it cannot be written.
    """
    target = pathlib.Path(os.path.realpath(folder))
    check_counts(min_count=min_count, shard_tokens=shard_tokens)
    if max_vocab_size is not None and max_vocab_size < 4:
        raise ElmoFastError(f"max_vocab_size counts <S>, </S> and <UNK>, and must be 4 or more; got {max_vocab_size}")
    if not 0 <= heldout_share < 1:
        raise ElmoFastError(f"heldout_share must be from 0 to below 1, such as 0.01; got {heldout_share}")
    if vocabulary is not None and (twice := [word for word, n in Counter(vocabulary.words).items() if n > 1]):
        raise ElmoFastError(
            f"the vocabulary has the word {twice[0]!r} twice, and the first would never be trained: remove one"
        )
    check_choice("tokenizer", tokenizer or "whitespace", TOKENIZERS)  # a name: it is stored
    with pieces_matching(pattern, **reading) as pieces:
        made_from: dict[str, Any] = {
            "bytes of text": sum(piece.end - piece.begin for piece in pieces),
            "vocab_file": vocabulary and vocabulary.digest[:16],
            "min_count": min_count,
            "max_vocab_size": max_vocab_size,
            "shard_tokens": shard_tokens,
        }
        if tokenizer not in (None, "whitespace"):
            made_from["tokenizer"] = tokenizer
        made_from |= choices(reading) | ({"heldout_share": heldout_share} if heldout_share else {})
        _check_target(target, made_from, overwrite)
        read = functools.partial(
            read_pieces, pattern, processes=processes, progress=progress, tokenizer=tokenizer, ray=ray
        )
        lines, heldout = ChosenLines(heldout_share), heldout_of(target)
        with temporary_folder(target) as work:
            words, counts, stems = read([piece._replace(lines=lines) for piece in pieces], work=work)
            if vocabulary is None:
                counter = dict(zip(words, counts.tolist(), strict=True))
                vocabulary, said = built_vocabulary(counter, min_count, max_vocab_size)
                if report is not None:
                    report(said)
            put = functools.partial(_put, vocabulary=vocabulary, shard_tokens=shard_tokens, overwrite=overwrite)
            if heldout_share:  # first, so that it is there wherever the other corpus is
                of_heldout = made_from | {"vocab_file": vocabulary.digest[:16], "heldout": True}
                _check_target(heldout, of_heldout, overwrite)
                lines = lines._replace(heldout=True)
                with temporary_folder(heldout) as other:
                    found = read([piece._replace(lines=lines) for piece in pieces], work=other)
                    put(heldout, *found, made_from=of_heldout)
            return put(target, words, counts, stems, made_from=made_from)


def choices(reading: Reading) -> dict[str, Any]:
    """Return what a caller chose for the reading of tables, all but the defaults."""
    defaults = {"format_in": None, "column": "text", "split": "train"}
    return {name: value for name, value in reading.items() if value != defaults[name]}


def _put(
    target: pathlib.Path,
    words: Sequence[str],
    counts: npt.NDArray[np.int64],
    stems: Sequence[str],
    *,
    vocabulary: Vocabulary,
    shard_tokens: int,
    made_from: dict[str, Any],
    overwrite: bool,
) -> Corpus:
    """Write the corpus of what `read_pieces` returned into the folder `target`, and open it."""
    types, type_counts, numbers = ranked(words, counts, vocabulary)

    def parts() -> Iterator[Ids]:
        """Yield the text of all pieces; their files are deleted as they are read."""
        for stem in stems:
            yield from renumbered(pathlib.Path(f"{stem}.ids"), numbers[np.fromfile(f"{stem}.map", np.uint32)])
            os.remove(f"{stem}.ids")

    with write_folder(target, replace=overwrite) as new:
        vocabulary.write(new / VOCABULARY)
        for name, values in ((TYPES, types.data), (TYPE_ENDS, types.ends), (COUNTS, type_counts)):
            with ArrayFile(new / name) as file:
                file.append(values)
        digest = fingerprint_begun(types, len(vocabulary))
        shards, sentences, positions = _write_shards(new, parts(), shard_tokens, digest)
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": digest.hexdigest(),
            "sentences": sentences,
            "tokens": positions - sentences,
            "types": len(types),
            "vocabulary": len(vocabulary),
            "shards": shards,
            "made from": made_from,
        }
        (new / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
        names = os.listdir(new)
    corpus = open_corpus(target)
    if corpus.fingerprint != meta["fingerprint"]:  # perhaps of another process, meanwhile
        raise ElmoFastError(f"{target} exists already, with the corpus of another text; --overwrite replaces it")
    for shard in target.glob("*-" + "[0-9]" * 5 + ".npy"):  # of a corpus of more shards, which this one replaced
        if overwrite and shard.name not in names:
            shard.unlink()
    return corpus


def _check_target(target: pathlib.Path, made_from: dict[str, Any], overwrite: bool) -> None:
    """Raise ElmoFastError if `target` exists and is known to differ from what would be written."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ElmoFastError(f"{target} is not a folder; name a new folder to write to")
    if not is_prepared(target):
        if any(not path.name.startswith(f".{MANIFEST}.") for path in target.iterdir()):  # what `write_folder` makes
            raise ElmoFastError(f"{target} contains other files than a prepared corpus; name a new or empty folder")
    elif not overwrite and (changed := changes(read_meta(target)["made from"], made_from)):
        raise ElmoFastError(
            f"{target} exists already, with another corpus ({'; '.join(changed)}); --overwrite replaces it"
        )
