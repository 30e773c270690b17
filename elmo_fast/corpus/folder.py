"""Opens a prepared corpus."""

import pathlib
from typing import Any

from elmo_fast.corpus import _format
from elmo_fast.corpus._format import FileStamp, Path, array, check_files, damaged, read_meta, shard_files
from elmo_fast.corpus.encoding import Corpus
from elmo_fast.corpus.type_table import TypeTable
from elmo_fast.text import Vocabulary


def open_corpus(folder: Path) -> Corpus:
    """The corpus of a folder that `prepare` wrote; its sentences stay on disk and are memory-mapped.

    Every file is always read once, and its SHA-256 compared with the recorded one.

    Raises ElmoFastError naming the file that is missing, damaged or of another version.
    """
    place = pathlib.Path(folder)
    meta = read_meta(place)
    return as_written(place, meta, check_files(place, meta["files"]))


def as_written(place: pathlib.Path, meta: dict[str, Any], states: dict[str, FileStamp]) -> Corpus:
    """The corpus of a folder whose files are known to match meta.json and `states`."""
    names = [shard_files(shard) for shard in range(meta["shards"])]
    corpus = Corpus(
        TypeTable(array(place, _format.TYPES), array(place, _format.TYPE_ENDS)),
        Vocabulary.read(place / _format.VOCABULARY),
        [array(place, ids, mapped=True) for ids, _ in names],
        [array(place, starts, mapped=True) for _, starts in names],
        array(place, _format.COUNTS),
        meta["fingerprint"],
        {place / name: states[name] for pair in names for name in pair},
    )
    found = [corpus.sentences, corpus.tokens, len(corpus.types), len(corpus.vocabulary)]
    if found != [meta[name] for name in ("sentences", "tokens", "types", "vocabulary")]:
        raise damaged(place / _format.META, "its counts do not match the files")
    corpus.check_unchanged()
    return corpus
