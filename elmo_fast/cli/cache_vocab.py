"""`elmo-fast cache-vocab`: the context-free vector of every word of a vocabulary (bilm-tf's dump_token_embeddings)."""

from typing import Any

from elmo_fast.cli import _common, _model, _progress
from elmo_fast.durations import duration
from elmo_fast.text import Vocabulary


def build_parser() -> Any:
    """The options of `elmo-fast cache-vocab`."""
    parser = _common.new_parser(
        "cache-vocab", "Writes the dataset `embedding` [words, D]: the character encoder's vector of every word."
    )
    _model.add_options(parser)
    parser.add_argument("--vocab_file", type=str, required=True, help="a vocabulary with <S>, </S> and <UNK>")
    parser.add_argument("--output", type=str, required=True, help="HDF5 file to write")
    parser.renamed("outfile", "output")
    parser.writes("output")
    parser.add_argument("--batch_size", type=int, default=1024, help="words encoded together")
    parser.add_argument("--file_friendly_logging", action="store_true", help="progress as lines instead of a bar")
    return parser


def run(arguments: Any) -> int:
    """Encodes the vocabulary batch by batch and writes as it goes."""
    from elmo_fast.static import write_word_vectors

    _model.resolve(arguments)
    words, file = Vocabulary.read(arguments.vocab_file).words, arguments.output
    device = _common.set_up(arguments)
    bilm = _model.load_embedder(arguments, device, stateful=False).elmo_bilm
    lines, quiet = arguments.file_friendly_logging, arguments.quiet
    with _progress.ProgressBar(len(words), lines=lines, quiet=quiet, unit="words") as progress:
        write_word_vectors(bilm, words, file, batch_size=arguments.batch_size, progress=progress.add)
    _common.logger().info("%s: %d words in %s", file, progress.done, duration(progress.seconds))
    return 0
