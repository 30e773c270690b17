"""`elmo-fast vocab` and `elmo-fast prepare`: from text to a vocabulary, and to the numbers that pretraining reads."""

import os
import shlex
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.errors import ElmoFastError
from elmo_fast.fields import MIN_COUNT
from elmo_fast.progress import duration


def vocab_parser() -> Any:
    parser = _common.new_parser(
        "vocab",
        "Writes the words of a corpus by decreasing count, after <S>, </S> and <UNK>, one per line.",
        shared=(),
    )
    parser.shared("train_prefix", "tokenizer", "processes", "file_friendly_logging")
    parser.output("vocab_file", "file to write; compressed if its name ends in .gz", required=True)
    parser.shared("min_count")
    parser.option("max_size", int, "maximum size of the vocabulary, including the three markers")
    return parser


def run_vocab(arguments: Any) -> int:
    from elmo_fast.corpus import count_words_of
    from elmo_fast.text import Vocabulary, unknown_hints
    from elmo_fast.text.vocabulary import built_vocabulary

    Vocabulary.build({}, arguments.min_count, arguments.max_size)  # reports invalid values at once
    # Finding a missing folder only at the end would be late.
    os.scandir(os.path.dirname(os.path.abspath(arguments.vocab_file))).close()
    with _common.Progress(arguments, unit="B") as progress:
        counts = count_words_of(arguments.train_prefix, arguments.processes, progress.read, arguments.tokenizer)
    vocabulary, lines = built_vocabulary(counts, arguments.min_count, arguments.max_size)
    for line in lines:
        _common.logger().info(line)
    vocabulary.write(arguments.vocab_file)
    covered = sum(counts[word] for word in vocabulary.words)
    share = f"{100 * covered / counts.total():.2f}% of {counts.total()} tokens"
    known = f"{len(vocabulary) - 3} of {len(counts)} distinct words"
    _common.logger().info("%s: %d lines; %s, %s", arguments.vocab_file, len(vocabulary), known, share)
    for line in unknown_hints(vocabulary, counts.__getitem__, counts.total()):
        _common.logger().info(line)
    return 0


def prepare_parser() -> Any:
    parser = _common.new_parser(
        "prepare",
        "Reads text once (one sentence per line) and writes it as numbers, which "
        "`elmo-fast pretrain` opens at once, however long the text. The folder appears only when it is complete.",
        shared=(),
    )
    parser.shared("train_prefix", "tokenizer", "processes", "file_friendly_logging")
    parser.output("out_dir", "folder to write", required=True)
    parser.option("vocab_file", str, "vocabulary, the words to predict (default: built from the text)")
    parser.shared("min_count", help="if the vocabulary is built from the text: leave out words that occur less often")
    parser.option(
        "max_vocab_size", int, "if the vocabulary is built from the text: its maximum size, including the three markers"
    )
    parser.option("shard_tokens", int, "maximum number of tokens per file", 2**28)
    parser.shared("ray")
    parser.flag("overwrite", "replace OUT_DIR if it is a prepared folder")
    return parser


def run_prepare(arguments: Any) -> int:
    from elmo_fast.corpus import is_prepared, prepare
    from elmo_fast.text import Vocabulary

    vocabulary = None
    if arguments.vocab_file is not None:
        if arguments.min_count != MIN_COUNT or arguments.max_vocab_size is not None:
            raise ElmoFastError("--vocab_file names the words; leave out --min_count and --max_vocab_size")
        vocabulary = Vocabulary.read(arguments.vocab_file)
    there = is_prepared(arguments.out_dir) and not arguments.overwrite
    with _common.Progress(arguments, unit="B") as progress:
        options = _common.named(
            arguments, "min_count", "max_vocab_size", "tokenizer", "processes", "ray", "shard_tokens", "overwrite"
        )
        corpus = prepare(
            arguments.train_prefix,
            arguments.out_dir,
            vocabulary=vocabulary,
            progress=progress.read,
            report=progress.say,
            **options,
        )
    for line in summary(corpus, arguments.out_dir, there, duration(progress.seconds)):
        _common.logger().info(line)
    return 0


def summary(corpus: Any, folder: str, there: bool, time: str) -> list[str]:
    """Return a summary of a prepared corpus, and what to do next."""
    words, known = corpus.tokens, 1 - corpus.unknown / corpus.tokens
    how = "existed already, unchanged" if there else f"written in {time}"
    return [
        f"text   {words:,} words, {corpus.sentences:,} sentences; {len(corpus.types):,} distinct words, including the "
        "vocabulary",
        f"vocab  {len(corpus.vocabulary):,} words, which are {known:.2%} of the text; others are predicted as <UNK>",
        *corpus.hints,
        f"done   {folder} {how}; shards: {len(corpus.shards)}, fingerprint: {corpus.fingerprint[:16]}",
        f"next   elmo-fast pretrain --config small --train_prefix {shlex.quote(folder)} --save_dir run",
    ]
