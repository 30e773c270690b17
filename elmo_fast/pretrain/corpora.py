"""The corpora of a run: prepared ones, and text that is prepared once, in the run's folder."""

import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo_fast._io.fields import changes
from elmo_fast._runtime.progress import duration
from elmo_fast.checkpoints import saved_steps
from elmo_fast.corpus import Corpus, is_prepared, open_corpus, prepare, read_corpus
from elmo_fast.corpus.encoding import heldout_line
from elmo_fast.corpus.folder import choices, heldout_of, read_meta
from elmo_fast.corpus.pieces import bytes_of_text
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import LOSS_KINDS, Loss, Tokenizer
from elmo_fast.pretrain.config import DataConfig
from elmo_fast.text import Vocabulary
from elmo_fast.text.sources import check_tables, files_to_read

CORPUS_FOLDER = "corpus"


def check_text(data: DataConfig, built: bool, folder: pathlib.Path) -> None:
    """Raise ElmoFastError unless the text has the size of the one that the run prepared, and is prepared as then.

    built: whether a vocabulary is built of the text.
    """
    made_from = read_meta(folder / CORPUS_FOLDER)["made from"]
    now: dict[str, Any] = dict.fromkeys(data.reading) | choices(data.reading)
    now["heldout_share"] = data.heldout_share or None
    now["bytes of text"] = bytes_of_text(data.train_prefix, data.format_in)
    # A vocabulary that init_from gave is not given again when the run resumes: then there is nothing to compare.
    if built and made_from["vocab_file"] is None:
        now |= {"min_count": data.min_count, "max_vocab_size": data.max_vocab_size}
    if changed := changes({name: made_from.get(name) for name in now}, now):
        raise ElmoFastError(
            f"the text of {data.train_prefix!r} is not as this run prepared it: {'; '.join(changed)}; give what it "
            "was, or another --save_dir or, to train on with this text, another --save_dir, --resume CHECKPOINT and "
            "--allow_other_corpus true (same vocabulary)"
        )


def open_training_corpus(
    data: DataConfig,
    vocabulary: Vocabulary | None,
    tokenizer: Tokenizer | None,
    folder: pathlib.Path,
    report: Callable[[str], None],
) -> Corpus:
    """Return the corpus that train_prefix names; text is prepared in folder/corpus unless it has been already.

    vocabulary: to encode text with; None: one is built of the text; tokenizer: of the text; None: that of a prepared
    corpus, else white space. Raises ElmoFastError when a prepared corpus has another vocabulary, or the text or what it
    was prepared with has changed since the run's first checkpoint. Before that the text is prepared again.
    """
    if is_prepared(data.train_prefix):
        return open_corpus(data.train_prefix, tokenizer, data.heldout_share, vocabulary)
    target = folder / CORPUS_FOLDER
    if is_prepared(target):
        try:
            check_text(data, vocabulary is None, folder)
            return open_corpus(target, tokenizer, data.heldout_share, vocabulary)
        except ElmoFastError as error:
            if saved_steps(folder):
                raise
            report(f"data   this run has no checkpoint, so that the text is prepared again: {error}")
    if data.column != "text":
        check_tables(data.column, files_to_read(data.train_prefix, data.format_in))
    began = last_report = time.monotonic()

    def progress(done: int, total: int, words: int) -> None:
        nonlocal last_report
        now = time.monotonic()
        if now - last_report >= 10.0:
            last_report, left = now, duration((now - began) * (total - done) / max(done, 1))
            report(f"data   preparing the text: {done / max(total, 1):.0%}, {words:,} words, {left} left")

    return prepare(
        data.train_prefix, target, vocabulary=vocabulary, min_count=data.min_count, max_vocab_size=data.max_vocab_size,
        tokenizer=tokenizer, heldout_share=data.heldout_share, overwrite=True, progress=progress, report=report,
        **data.reading,
    )  # fmt: skip


def prepared_folder(data: DataConfig, folder: pathlib.Path) -> pathlib.Path:
    """Return the folder of the corpus that `open_training_corpus` has found or prepared, perhaps in another process.

    Raises ElmoFastError where it cannot be seen from here.
    """
    prepared = next((at for at in (pathlib.Path(data.train_prefix), folder / CORPUS_FOLDER) if is_prepared(at)), None)
    if prepared is None:
        raise ElmoFastError(
            f"{folder / CORPUS_FOLDER} is not there, though another process has prepared it; save_dir must be on "
            "a file system that all machines see"
        )
    return prepared


def open_heldout_corpus(
    data: DataConfig, training: Corpus, folder: pathlib.Path, report: Callable[[str], None]
) -> Corpus | None:
    """Open the held-out corpus with vocabulary and tokenizer of the training corpus; folder: of the run.

    Raises ElmoFastError if a prepared one has a different vocabulary.
    """
    prefix: str | pathlib.Path | None = data.heldout_prefix
    if data.heldout_share:
        prefix = heldout_of(whole := prepared_folder(data, folder))
        if not is_prepared(prefix):
            raise ElmoFastError(
                f"{prefix}, the lines that are held out of {whole}, is missing; copy it from where {whole} came from, "
                "or prepare the text again (elmo-fast prepare; for a run's own folder, another save_dir)"
            )
    if prefix is None:
        return None
    if not is_prepared(prefix):
        return read_corpus(str(prefix), training.vocabulary, training.tokenizer, **data.reading)
    corpus = open_corpus(prefix, vocabulary=training.vocabulary)
    if data.heldout_share:
        report(heldout_line(corpus, training))
    return corpus


def target_counts(corpus: Corpus) -> Tensor:
    """How often each word of the vocabulary is a target in an epoch, at least 1, [V] float32; some losses need it.

    A sentence's end is </S> forward and <S> backward; words outside the vocabulary are <UNK>. float32, as checkpoints
    keep it, so that a resumed run reads the same counts: those above 2^24 are rounded to 24 bits.
    """
    vocabulary = corpus.vocabulary
    counts = torch.from_numpy(corpus.counts.astype("int64"))
    words = counts[: len(vocabulary)].clone()
    words[vocabulary.unk] += counts[len(vocabulary) :].sum()
    words[vocabulary.eos] += corpus.sentences
    words[vocabulary.bos] += corpus.sentences
    return words.clamp(min=1).float()


def check_vocabulary_order(corpus: Corpus, loss: Loss) -> None:
    """Raise ElmoFastError if the loss samples words by their place in a vocabulary that is not sorted by frequency.

    Sampled softmax takes word k for the k-th most frequent. A vocabulary of different text does too: its first tenth
    need only cover half as much of this text as the most frequent tenth.
    """
    kind, vocabulary = LOSS_KINDS[loss], corpus.vocabulary
    if not kind.samples or kind.wants_counts or len(vocabulary) < 100:
        return
    counts = corpus.counts[: len(vocabulary)].astype("int64")
    counts[[vocabulary.bos, vocabulary.eos, vocabulary.unk]] = 0
    tenth = len(vocabulary) // 10
    first, most = int(counts[:tenth].sum()), int(np.sort(counts)[-tenth:].sum())
    if 2 * first < most:
        raise ElmoFastError(
            f"the vocabulary is not sorted by frequency: its first {tenth:,} words occur {first:,} times in the text, "
            f"the {tenth:,} most frequent ones {most:,} times, and {loss} samples words by their place, so that it "
            "would train a far worse model; sort it, most frequent first (elmo-fast vocab writes it so), or give "
            "--loss negative_sampling, which samples by counts"
        )
