"""`elmo-fast vocab` and `elmo-fast prepare`: from text to a vocabulary, and to the numbers that pretraining reads."""

import pathlib
import shlex
from dataclasses import dataclass

from elmo_fast._io.fields import MIN_COUNT
from elmo_fast._runtime.memory import size
from elmo_fast._runtime.progress import duration
from elmo_fast.cli import _common
from elmo_fast.cli._parser import Reading, flag, option
from elmo_fast.errors import ElmoFastError


@dataclass(kw_only=True)
class _VocabOptions(Reading):
    train_prefix: str
    processes: int | None = None
    file_friendly_logging: bool = flag()
    vocab_file: str = option(writes="stream")
    """file to write, compressed if its name ends in .gz; - is the standard output"""
    min_count: int = MIN_COUNT
    max_size: int | None = None
    """maximum size of the vocabulary, including the three markers"""


def run_vocab(options: _VocabOptions) -> None:
    """Write the words of a corpus by decreasing count, after <S>, </S> and <UNK>, one per line."""
    from elmo_fast.corpus import count_words_of
    from elmo_fast.text import Vocabulary
    from elmo_fast.text.vocabulary import built_vocabulary

    Vocabulary.build({}, options.min_count, options.max_size)  # reports invalid values at once
    with _common.Progress(options, unit="B") as progress:
        reading = _common.reading(options, options.tokenizer)
        counts = count_words_of(options.train_prefix, options.processes, progress.read, **reading)
    vocabulary, lines = built_vocabulary(counts, options.min_count, options.max_size)
    with _common.printed_text(options.vocab_file) as file:
        vocabulary.write(file)
    covered = sum(counts[word] for word in vocabulary.words)
    share = f"{100 * covered / counts.total():.2f}% of {counts.total()} tokens"
    known = f"{len(vocabulary) - 3} of {len(counts)} distinct words"
    name = "standard output" if options.vocab_file == "-" else options.vocab_file
    for line in [*lines, f"{name}: {len(vocabulary)} lines; {known}, {share}"]:
        _common.logger().info("%s", line)


@dataclass(kw_only=True)
class _PrepareOptions(Reading):
    train_prefix: str
    processes: int | None = None
    file_friendly_logging: bool = flag()
    out_dir: str
    """folder to write"""
    vocab_file: str | None = None
    """vocabulary, the words to predict (default: built from the text)"""
    min_count: int = MIN_COUNT
    """if the vocabulary is built from the text: leave out words that occur less often"""
    max_vocab_size: int | None = None
    """if the vocabulary is built from the text: its maximum size, including the three markers"""
    heldout_share: float = 0.0
    """fraction of the lines, such as 0.01, chosen by a digest of each line (so in any order of files the same ones),
    that are written to OUT_DIR-heldout in place of OUT_DIR, to evaluate on (pretrain --heldout_share)"""
    shard_tokens: int = 2**28
    """maximum number of tokens per file"""
    ray: str | None = None
    overwrite: bool = flag()
    """replace OUT_DIR if it is a prepared folder"""


def run_prepare(options: _PrepareOptions) -> None:
    """Read text once (one sentence per line) and write it as numbers, which `elmo-fast pretrain` opens at once.

    The length of the text does not matter. The folder appears only when it is complete.
    """
    from elmo_fast.corpus import is_prepared, prepare
    from elmo_fast.corpus.encoding import heldout_line, warn_of_unknown
    from elmo_fast.corpus.folder import heldout_of, open_corpus
    from elmo_fast.text import Vocabulary

    if options.ray is not None and options.processes is not None:
        raise ElmoFastError("--processes is of this machine, and --ray reads with its cluster's; give one of them")
    vocabulary = None
    if options.vocab_file is not None:
        if options.min_count != MIN_COUNT or options.max_vocab_size is not None:
            raise ElmoFastError("--vocab_file names the words; leave out --min_count and --max_vocab_size")
        vocabulary = Vocabulary.read(options.vocab_file)
    there = is_prepared(options.out_dir) and not options.overwrite
    names = ("min_count", "max_vocab_size", "processes", "ray", "shard_tokens", "heldout_share", "overwrite")
    with _common.Progress(options, unit="B") as progress:
        corpus = prepare(
            options.train_prefix,
            options.out_dir,
            vocabulary=vocabulary,
            progress=progress.read,
            report=progress.say,
            **_common.arguments(options, *names),
            **_common.reading(options, options.tokenizer),
        )
    if vocabulary is not None:
        warn_of_unknown(corpus)
    how = "existed already, unchanged" if there else f"written in {duration(progress.seconds)}"
    heldout = open_corpus(heldout_of(options.out_dir)) if options.heldout_share else None
    share = f"--heldout_share {options.heldout_share} " if heldout else ""
    words, known, folder = corpus.tokens, 1 - corpus.unknown / corpus.tokens, options.out_dir
    for line in [
        f"text   {words:,} words, {corpus.sentences:,} sentences; {len(corpus.types):,} distinct words, including the "
        "vocabulary",
        f"vocab  {len(corpus.vocabulary):,} words, which are {known:.2%} of the text; others are predicted as <UNK>",
        *([heldout_line(heldout, corpus)] if heldout else []),
        f"done   {folder} {how}; {size(sum(file.stat().st_size for file in pathlib.Path(folder).iterdir()))}, shards: "
        f"{len(corpus.shards)}, fingerprint: {corpus.fingerprint[:16]}",
        f"next   elmo-fast pretrain --config small --train_prefix {shlex.quote(folder)} {share}--save_dir run",
        "       with --dry_run, that reports its steps, hours at the speed measured here, memory and disk",
    ]:
        _common.logger().info("%s", line)
