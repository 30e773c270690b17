"""`elmo-fast vocab`: counts the words of a corpus and writes the vocabulary file that pretraining needs."""

import os
from typing import Any

from elmo_fast.cli import _common, _progress


def build_parser() -> Any:
    """The options of `elmo-fast vocab`."""
    parser = _common.new_parser(
        "vocab", "Writes the words of a corpus by decreasing count, after <S>, </S> and <UNK>, one per line."
    )
    add_text_options(parser)
    parser.add_argument("--vocab_file", type=str, required=True, help="file to write, gzip if it ends in .gz")
    parser.writes("vocab_file")
    parser.add_argument("--min_count", type=int, default=1, help="leave out words that occur less often")
    parser.add_argument(
        "--max_size", type=int | None, default=None, help="maximum number of lines, including the three markers"
    )
    return parser


def add_text_options(parser: Any) -> None:
    """What `vocab` and `prepare` read, and how."""
    parser.add_argument(
        "--train_prefix",
        type=str,
        required=True,
        help="a text file, a folder of text files, or a glob in quotes: 'news/*.gz'",
    )
    parser.add_argument(
        "--processes", type=int | None, default=None, help="number of processes that read (default: one per core)"
    )
    parser.add_argument("--file_friendly_logging", action="store_true", help="progress as lines instead of a bar")


def run(arguments: Any) -> int:
    """Counts, sorts, writes."""
    from elmo_fast.corpus import count_words_of
    from elmo_fast.text import Vocabulary, unknown_hints

    _common.set_up_logging(arguments)
    Vocabulary.build({}, arguments.min_count, arguments.max_size)  # reports invalid values at once
    # Finding a missing folder only at the end would be late.
    os.scandir(os.path.dirname(os.path.abspath(arguments.vocab_file))).close()
    with _progress.TextProgressBar(lines=arguments.file_friendly_logging, quiet=arguments.quiet) as progress:
        counts = count_words_of(arguments.train_prefix, arguments.processes, progress)
    vocabulary = Vocabulary.build(counts, arguments.min_count, arguments.max_size)
    vocabulary.write(arguments.vocab_file)
    covered = sum(counts[word] for word in vocabulary.words)
    _common.logger().info(
        "%s: %d lines; %d of %d distinct words, %.2f%% of %d tokens",
        arguments.vocab_file,
        len(vocabulary),
        len(vocabulary) - 3,
        len(counts),
        100 * covered / counts.total(),
        counts.total(),
    )
    for line in unknown_hints(vocabulary, counts.__getitem__, counts.total()):
        _common.logger().info(line)
    return 0
