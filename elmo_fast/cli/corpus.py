"""`elmo-fast vocab` and `elmo-fast prepare`: from text to a vocabulary, and to the numbers that pretraining reads."""

import pathlib
import shlex
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.cli._parser import Parser
from elmo_fast.errors import ElmoFastError
from elmo_fast.fields import MIN_COUNT, docstrings
from elmo_fast.memory import size
from elmo_fast.pretrain.config import DataConfig
from elmo_fast.progress import duration


def vocab_options(parser: Parser) -> None:
    parser.shared("train_prefix", required=True)
    parser.shared("tokenizer", "processes", "file_friendly_logging")
    text = "file to write, compressed if its name ends in .gz; - is the standard output"
    parser.output("vocab_file", text, standard_output="copied", required=True)
    parser.shared("min_count")
    parser.option("max_size", int, "maximum size of the vocabulary, including the three markers")


def run_vocab(arguments: Any) -> None:
    """Write the words of a corpus by decreasing count, after <S>, </S> and <UNK>, one per line."""
    from elmo_fast.corpus import count_words_of
    from elmo_fast.text import Vocabulary, unknown_hints
    from elmo_fast.text.vocabulary import built_vocabulary

    Vocabulary.build({}, arguments.min_count, arguments.max_size)  # reports invalid values at once
    with _common.Progress(arguments, unit="B") as progress:
        counts = count_words_of(arguments.train_prefix, arguments.processes, progress.read, arguments.tokenizer)
    vocabulary, lines = built_vocabulary(counts, arguments.min_count, arguments.max_size)
    vocabulary.write(arguments.vocab_file)
    covered = sum(counts[word] for word in vocabulary.words)
    share = f"{100 * covered / counts.total():.2f}% of {counts.total()} tokens"
    known = f"{len(vocabulary) - 3} of {len(counts)} distinct words"
    hints = unknown_hints(vocabulary, counts.__getitem__, counts.total())
    for line in [*lines, f"{arguments.vocab_file}: {len(vocabulary)} lines; {known}, {share}", *hints]:
        _common.logger().info("%s", line)


def prepare_options(parser: Parser) -> None:
    parser.shared("train_prefix", required=True)
    parser.shared("tokenizer", "processes", "file_friendly_logging")
    parser.output("out_dir", "folder to write", required=True)
    vocabulary = "vocabulary, the words to predict (default: built from the text)"
    parser.input("vocab_file", vocabulary, standard_input="streamed")
    help = docstrings(DataConfig)
    parser.shared("min_count", help=help["min_count"])
    parser.option("max_vocab_size", int, help["max_vocab_size"])
    parser.option("shard_tokens", int, "maximum number of tokens per file", 2**28)
    parser.shared("ray")
    parser.option("overwrite", None, "replace OUT_DIR if it is a prepared folder")


def run_prepare(arguments: Any) -> None:
    """Read text once (one sentence per line) and write it as numbers, which `elmo-fast pretrain` opens at once.

    The length of the text does not matter. The folder appears only when it is complete.
    """
    from elmo_fast.corpus import is_prepared, prepare
    from elmo_fast.corpus.encoding import warn_of_unknown
    from elmo_fast.text import Vocabulary

    if arguments.ray is not None and arguments.processes is not None:
        raise ElmoFastError("--processes is of this machine, and --ray reads with its cluster's; give one of them")
    vocabulary = None
    if arguments.vocab_file is not None:
        if arguments.min_count != MIN_COUNT or arguments.max_vocab_size is not None:
            raise ElmoFastError("--vocab_file names the words; leave out --min_count and --max_vocab_size")
        vocabulary = Vocabulary.read(arguments.vocab_file)
    there = is_prepared(arguments.out_dir) and not arguments.overwrite
    names = ("min_count", "max_vocab_size", "tokenizer", "processes", "ray", "shard_tokens", "overwrite")
    with _common.Progress(arguments, unit="B") as progress:
        corpus = prepare(
            arguments.train_prefix,
            arguments.out_dir,
            vocabulary=vocabulary,
            progress=progress.read,
            report=progress.say,
            **_common.named(arguments, *names),
        )
    if vocabulary is not None:
        warn_of_unknown(corpus)
    how = "existed already, unchanged" if there else f"written in {duration(progress.seconds)}"
    words, known, folder = corpus.tokens, 1 - corpus.unknown / corpus.tokens, arguments.out_dir
    for line in [
        f"text   {words:,} words, {corpus.sentences:,} sentences; {len(corpus.types):,} distinct words, including the "
        "vocabulary",
        f"vocab  {len(corpus.vocabulary):,} words, which are {known:.2%} of the text; others are predicted as <UNK>",
        *corpus.hints,
        f"done   {folder} {how}; {size(sum(file.stat().st_size for file in pathlib.Path(folder).iterdir()))}, shards: "
        f"{len(corpus.shards)}, fingerprint: {corpus.fingerprint[:16]}",
        f"next   elmo-fast pretrain --config small --train_prefix {shlex.quote(folder)} --save_dir run",
        "       with --dry_run, that reports its steps, hours at the speed measured here, memory and disk",
    ]:
        _common.logger().info("%s", line)
