"""`elmo-fast cache-vocab`: the context-free vector of every word of a vocabulary (bilm-tf's dump_token_embeddings)."""

from typing import Any

from elmo_fast.cli import _common
from elmo_fast.progress import duration
from elmo_fast.text import Vocabulary


def build_parser() -> Any:
    parser = _common.new_parser(
        "cache-vocab", "Writes the dataset `embedding` [words, D]: the character encoder's vector of every word."
    )
    parser.shared(*_common.MODEL_OPTIONS)
    parser.option("vocab_file", str, "vocabulary: one word per line, including <S>, </S> and <UNK>", required=True)
    parser.output("output", "HDF5 file to write", required=True)
    parser.shared("batch_size", default=1024, help="words per batch")
    parser.shared("file_friendly_logging")
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.static import write_word_vectors

    _common.resolve_model(arguments)
    words, file = Vocabulary.read(arguments.vocab_file).words, arguments.output
    bilm = _common.load_embedder(arguments).elmo_bilm
    with _common.Progress(arguments, len(words), unit="words") as progress:
        write_word_vectors(bilm, words, file, batch_size=arguments.batch_size, progress=progress.add)
    _common.logger().info("%s: %d words in %s", file, progress.done, duration(progress.seconds))
    return 0
