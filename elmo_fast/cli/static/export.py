"""`elmo-fast static export`: a model's vectors of words as a file of word vectors."""

from typing import Any

from elmo_fast.cli import _common, _model, _progress
from elmo_fast.cli.static import _files
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import MARKERS, Vocabulary, read_sentences, rereadable


def build_parser() -> Any:
    parser = _common.new_parser(
        "static export",
        "Writes word vectors from an ELMo model, for programs that read word2vec's files (gensim's KeyedVectors, "
        "elmo-fast static eval). --vocab_file: the character encoder's vectors, without context. --corpus: the mean of "
        "a layer over each word's occurrences in a text.",
    )
    parser.shared(*_model.OPTIONS)
    parser.option("vocab_file", str, "write the context-free vectors of these words, one per line")
    parser.option("corpus", str, f"write the mean vectors of the words of this {_common.TEXT}")
    parser.alternatives(["vocab_file"], ["corpus"])
    parser.option("layer", str, 'with --corpus: layer, "top", "average", "all" or a number from 0', "top")
    parser.shared("min_count", default=1, help="with --corpus: leave out words that occur less often")
    parser.option("max_words", int, "with --corpus: maximum number of words, the most frequent")
    parser.shared("batch_size")
    parser.shared("max_tokens", type=int, default=4096)
    parser.shared("file_friendly_logging")
    _files.add_output(parser)
    return parser


def run(arguments: Any) -> int:
    if (arguments.vocab_file is None) == (arguments.corpus is None):
        raise ElmoFastError("give --vocab_file (context-free vectors) or --corpus (means over a text)")
    _model.resolve(arguments)
    _files.check_output(arguments)
    if arguments.vocab_file is not None:
        vectors = of_vocabulary(arguments, Vocabulary.read(arguments.vocab_file))
    else:
        with rereadable(arguments.corpus) as corpus:
            vectors = of_text(arguments, corpus)
    _files.write(arguments, vectors)
    return 0


def of_vocabulary(arguments: Any, vocabulary: Vocabulary) -> Any:
    """Layer 0 of every word except the markers."""
    from elmo_fast.static import context_free_vectors

    words = [word for word in vocabulary.words if word not in MARKERS]
    bilm = _model.load_embedder(arguments).elmo_bilm
    with _progress.progress_bar(arguments, len(words)) as progress:
        return context_free_vectors(bilm, words, progress=progress.add)


class Sentences:
    """The sentences of a file, readable any number of times."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __iter__(self) -> Any:
        return (tokens for _, tokens in read_sentences(self.path))


def of_text(arguments: Any, corpus: str) -> Any:
    """The mean of a layer over each word's occurrences."""
    from elmo_fast.static import averaged_vectors

    sentences = Sentences(corpus)
    total = sum(map(len, sentences))
    bilm = _model.load_embedder(arguments).elmo_bilm
    with _progress.progress_bar(arguments, total) as progress:
        options = _common.named(arguments, "min_count", "max_words", "batch_size", "max_tokens")
        return averaged_vectors(bilm, sentences, _model.layer_of(arguments.layer), progress=progress.add, **options)
