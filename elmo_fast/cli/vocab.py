"""`elmo-fast vocab`: counts the words of a corpus and writes the vocabulary file that pretraining needs."""

import os
from typing import Any

from elmo_fast.cli import _common


def build_parser() -> Any:
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


def run(arguments: Any) -> int:
    from elmo_fast.corpus import count_words_of
    from elmo_fast.text import Vocabulary, unknown_hints
    from elmo_fast.text.vocabulary import built_vocabulary

    _common.set_up_logging(arguments)
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
