"""Prepares a corpus folder from text files."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast.corpus import _format
from elmo_fast.corpus._format import FileStamp, digests, is_prepared, read_meta
from elmo_fast.corpus._shards import Shards, array_file, renumbered
from elmo_fast.corpus.encoding import Corpus, fingerprint_begun, ranked
from elmo_fast.corpus.folder import as_written, open_corpus
from elmo_fast.corpus.pieces import pieces_matching
from elmo_fast.corpus.word_counts import TextProgress, read_pieces
from elmo_fast.errors import ElmoFastError
from elmo_fast.fields import MIN_COUNT
from elmo_fast.files import flush
from elmo_fast.lock import folder_lock
from elmo_fast.manifest import move_together
from elmo_fast.text import Vocabulary
from elmo_fast.text.vocabulary import built_vocabulary
from elmo_fast.workplace import workplace

SHARD_TOKENS = 2**28


def prepare(
    pattern: str,
    folder: str | os.PathLike[str],
    *,
    vocabulary: Vocabulary | None = None,
    min_count: int = MIN_COUNT,
    max_vocab_size: int | None = None,
    processes: int | None = None,
    shard_tokens: int = SHARD_TOKENS,
    overwrite: bool = False,
    progress: TextProgress | None = None,
    report: Callable[[str], None] | None = None,
) -> Corpus:
    """Writes the corpus of the files that `pattern` names into a folder that appears when complete, and opens it.

    vocabulary: the words to predict; None builds one from the words that occur at least min_count times, with at most
    max_vocab_size entries including the three markers; processes: how many read at a time, None for all cores (the
    result is the same); shard_tokens: maximum numbers per shard including boundaries, except for a longer sentence;
    overwrite: replace a prepared folder; without it, a folder that already contains this corpus is kept; progress:
    called with bytes done, total bytes, words; report: called with lines on a vocabulary that is built, before anything
    is written.

    Raises ElmoFastError if the text has no words or cannot be read, the vocabulary contains a word twice, `folder`
    contains something else, or another process prepares it; OSError if it cannot be written.
    """
    target = pathlib.Path(os.path.realpath(folder))
    _check(vocabulary, min_count, max_vocab_size, shard_tokens)
    with pieces_matching(pattern) as pieces:
        made_from = {
            "bytes of text": sum(piece.end - piece.begin for piece in pieces),
            "vocab_file": vocabulary and vocabulary.digest[:16],
            "min_count": min_count,
            "max_vocab_size": max_vocab_size,
            "shard_tokens": shard_tokens,
        }
        _check_target(target, made_from, overwrite)
        with folder_lock(target, "out_dir", "prepares a corpus", beside=True), workplace(target) as work:
            types, stems = read_pieces(pieces, work, processes, progress, keep_ids=True)
            words, counts = types.words, types.counts
            if not words:
                raise ElmoFastError(f"{pattern}: it contains no words; every line is blank")
            if vocabulary is None:
                counter = dict(zip(words, counts.tolist(), strict=True))
                vocabulary, lines = built_vocabulary(counter, min_count, max_vocab_size)
                if report is not None:
                    for line in lines:
                        report(line)
            new = work / "new"
            new.mkdir()
            meta = {**_write(new, words, counts, vocabulary, stems, shard_tokens), "made from": made_from}
            return _put(new, target, work, meta, overwrite)


def _check(vocabulary: Vocabulary | None, min_count: int, max_vocab_size: int | None, shard_tokens: int) -> None:
    sizes = {"min_count": (min_count, 1), "max_vocab_size": (max_vocab_size, 3), "shard_tokens": (shard_tokens, 3)}
    for name, (value, least) in sizes.items():
        if value is not None and value < least:
            raise ElmoFastError(f"{name} must be {least} or more; got {value}")
    seen: dict[str, int] = {}
    for line, word in enumerate([] if vocabulary is None else vocabulary.words, 1):
        if seen.setdefault(word, line) != line:
            raise ElmoFastError(
                f"the vocabulary has the word {word!r} on line {seen[word]} and again on line {line}; the first "
                "would never be trained: remove one"
            )


def _check_target(target: pathlib.Path, made_from: dict[str, Any], overwrite: bool) -> None:
    """Raises ElmoFastError if `target` exists and is known to differ from what would be written."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ElmoFastError(f"{target} is not a folder; name a new folder to write to")
    if not is_prepared(target):
        if any(target.iterdir()):
            raise ElmoFastError(f"{target} contains other files than a prepared corpus; name a new or empty folder")
    elif not overwrite:
        before = read_meta(target)["made from"]
        if changed := [
            f"{name}: {before[name]} then, {made_from[name]} now" for name in before if before[name] != made_from[name]
        ]:
            raise ElmoFastError(
                f"{target} exists already, with another corpus ({'; '.join(changed)}); --overwrite replaces it"
            )


def _write(
    new: pathlib.Path,
    words: Sequence[str],
    counts: npt.NDArray[np.int64],
    vocabulary: Vocabulary,
    stems: Sequence[str],
    shard_tokens: int,
) -> dict[str, Any]:
    """Writes all files except meta.json and returns its content; the pieces' files are deleted as they are read."""
    types, type_counts, numbers = ranked(words, counts, vocabulary)
    vocabulary.write(new / _format.VOCABULARY)
    for name, values in ((_format.TYPES, types.data), (_format.TYPE_ENDS, types.ends), (_format.COUNTS, type_counts)):
        with array_file(new / name) as file:
            file.append(values)
    fingerprint = fingerprint_begun(types, len(vocabulary))
    with Shards(new, shard_tokens, fingerprint) as shards:
        for stem in stems:
            for part in renumbered(pathlib.Path(f"{stem}.ids"), numbers[np.fromfile(f"{stem}.map", np.uint32)]):
                shards.add(part)
            os.remove(f"{stem}.ids")
    return {
        "fingerprint": fingerprint.hexdigest(),
        "sentences": shards.sentences,
        "tokens": shards.numbers - shards.sentences,
        "types": len(types),
        "vocabulary": len(vocabulary),
        "shards": shards.count,
        "files": digests(new, sorted(os.listdir(new))),
    }


def _put(new: pathlib.Path, target: pathlib.Path, work: pathlib.Path, meta: dict[str, Any], overwrite: bool) -> Corpus:
    # Again: it may have appeared meanwhile.
    _check_target(target, meta["made from"], overwrite)
    if is_prepared(target) and not overwrite:
        if read_meta(target)["fingerprint"] != meta["fingerprint"]:
            raise ElmoFastError(f"{target} exists already, with the corpus of another text; --overwrite replaces it")
        return open_corpus(target)
    (new / _format.META).write_text(_format.meta_text(meta), encoding="utf-8")
    flush(new / _format.META)
    if is_prepared(target):
        move_together(new, target, work)
        for shard in target.glob("*-*.npy"):
            if shard.name not in meta["files"]:
                shard.unlink()
    else:
        flush(new)
        os.rename(new, target)
        flush(target.parent)
    return as_written(target, meta, {name: FileStamp.of(target / name) for name in meta["files"]})
