"""`elmo-fast vocab`: counts the words of a corpus and writes the vocabulary file that pretraining wants."""

from collections import Counter
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import Vocabulary, count_words, files_matching, read_sentences


def build_parser() -> Any:
    """The options of `elmo-fast vocab`."""
    parser = _common.new_parser(
        "vocab", "Writes the words of a corpus by falling count, after <S>, </S> and <UNK>, one per line."
    )
    parser.add_argument("--train_prefix", type=str, required=True, help="a text file, or a glob in quotes: 'news/*.gz'")
    parser.add_argument("--vocab_file", type=str, required=True, help="file to write")
    parser.add_argument("--min_count", type=int, default=1, help="leave out rarer words")
    parser.add_argument("--max_size", type=int | None, default=None, help="most lines, the three markers included")
    return parser


def run(arguments: Any) -> int:
    """Counts, sorts, writes."""
    _common.set_up_logging(arguments)
    counts: Counter[str] = Counter()
    for file in files_matching(arguments.train_prefix):
        counts.update(count_words(tokens for _, tokens in read_sentences(file)))
    if not counts:
        raise ElmoFastError(f"--train_prefix {arguments.train_prefix!r}: there is not one word in it")
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
    return 0
