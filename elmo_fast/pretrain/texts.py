"""The corpora of a run: prepared ones are opened; text is prepared once, into the run's folder."""

import hashlib
import json
import os
import pathlib
from collections.abc import Callable

from elmo_fast.corpus import Corpus, is_prepared, open_corpus, prepare, read_corpus
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import replacing
from elmo_fast.pretrain.config import DataConfig
from elmo_fast.text import Vocabulary, files_matching

CORPUS_FOLDER, SOURCES_FILE = "corpus", "corpus-sources.json"


def training_corpus(
    data: DataConfig, vocabulary: Vocabulary | None, folder: pathlib.Path, report: Callable[[str], None]
) -> Corpus:
    """The corpus that train_prefix names; text is prepared in folder/corpus unless it has been already.

    vocabulary: to encode text with; None: one is built of the text. Raises ElmoFastError when a prepared corpus has
    another vocabulary, or the text has changed since it was prepared.
    """
    if is_prepared(data.train_prefix):
        corpus = open_corpus(data.train_prefix)
        if vocabulary is not None and vocabulary.words != corpus.vocabulary.words:
            raise ElmoFastError(
                f"{data.train_prefix} was prepared with another vocabulary than the one given; leave vocab_file out, "
                "or prepare the text with that one"
            )
        return corpus
    target = folder / CORPUS_FOLDER
    if is_prepared(target):
        _check_sources(data.train_prefix, folder)
        return open_corpus(target)
    _note_sources(data.train_prefix, folder)
    try:
        corpus = prepare(
            data.train_prefix,
            target,
            vocabulary=vocabulary,
            min_count=data.min_count,
            max_vocab_size=data.max_vocab_size,
        )
    except BaseException:
        (folder / SOURCES_FILE).unlink()
        raise
    if vocabulary is None:
        report(
            f"vocab  none given, so one was built: {len(corpus.vocabulary):,} words that occur at least "
            f"{data.min_count} times in {data.train_prefix}"
        )
    return corpus


def heldout_corpus(prefix: str | None, vocabulary: Vocabulary) -> Corpus | None:
    """The held-out corpus, in the vocabulary of the training.

    Raises ElmoFastError when a prepared one has another vocabulary.
    """
    if prefix is None:
        return None
    if not is_prepared(prefix):
        return read_corpus(prefix, vocabulary)
    corpus = open_corpus(prefix)
    if corpus.vocabulary.words != vocabulary.words:
        raise ElmoFastError(
            f"heldout_prefix {prefix}: prepared with another vocabulary than the training text; use that"
        )
    return corpus


def _note_sources(pattern: str, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sources = [{"path": path, **_stamp(path), "sha256": _digest(path)} for path in files_matching(pattern)]
    with replacing(folder / SOURCES_FILE) as aside:
        aside.write_text(json.dumps(sources, indent=2) + "\n", encoding="utf-8")


def _check_sources(pattern: str, folder: pathlib.Path) -> None:
    """Raises ElmoFastError unless the text is that which was prepared; it is read again only where its time changed."""
    try:
        told = {each["path"]: each for each in json.loads((folder / SOURCES_FILE).read_text(encoding="utf-8"))}
        paths = files_matching(pattern)
        changed = sorted(told.keys() ^ set(paths))
        for path in paths:
            now = _stamp(path)
            if path in told and any(told[path][name] != value for name, value in now.items()):
                changed += [path] if now["size"] != told[path]["size"] or _digest(path) != told[path]["sha256"] else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ElmoFastError):
            raise
        raise ElmoFastError(
            f"{folder / SOURCES_FILE}, which names the text of this run, cannot be used ({error!r}); give "
            "another save_dir"
        ) from error
    if changed:
        raise ElmoFastError(
            f"the text of {pattern!r} is not the one this run was started with ({', '.join(changed[:5])} came, went or "
            "changed); give another save_dir"
        )


def _stamp(path: str) -> dict[str, int]:
    told = os.stat(path)
    return {"size": told.st_size, "mtime_ns": told.st_mtime_ns}


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
