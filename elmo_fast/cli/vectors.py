"""`elmo-fast neighbours` and `elmo-fast cache-vocab`: vectors in context searched, those without context written."""

from typing import Any

from elmo_fast.cli import _common
from elmo_fast.cli._parser import COMPUTING, MODEL_OPTIONS, TEXT, Parser
from elmo_fast.progress import duration
from elmo_fast.text import read_words, rereadable, tokenizer

CONTEXT = 6


def neighbours_options(parser: Parser) -> None:
    parser.shared(*COMPUTING, *MODEL_OPTIONS, "tokenizer")
    parser.input("corpus", TEXT, standard_input="streamed", required=True)
    parser.option("query", str, "sentence that contains the token", required=True)
    parser.option("index", int, "position of the token in --query, from 0", required=True)
    parser.shared("topn")
    parser.option("layer", str, '"top", "average", "all" (a list for each layer), or a number from 0', "top")
    parser.shared("batch_size", "max_tokens")
    parser.output(
        "cache",
        "folder for the vectors of the corpus, which the first query writes and later queries read; it takes 4 bytes x "
        "tokens x width (1024 in the original model) per layer",
    )
    parser.shared("file_friendly_logging")


def run_neighbours(arguments: Any) -> None:
    """List the tokens of a corpus that are nearest to one token of a sentence, by the cosine of their vectors."""
    from elmo_fast.tokens import check_query, in_context, nearest_tokens

    _common.resolve_model(arguments)
    query, index = tokenizer(_common.tokenizer_of(arguments))(arguments.query), arguments.index
    check_query(query, index, arguments.topn)
    with rereadable(arguments.corpus) as corpus:
        bilm = _common.load_embedder(arguments).elmo_bilm
        with _common.Progress(arguments) as progress:
            layers = _common.layer_of(arguments.layer)
            options = _common.named(arguments, "topn", "cache", "batch_size", "max_tokens")
            results = nearest_tokens(bilm, corpus, query, index, layers=layers, progress=progress.reach, **options)
    for name, near in results.items():
        print(f"{in_context(query, index, CONTEXT, ellipsis='...')}   layer {name}")
        for rank, token in enumerate(near, start=1):
            sentence = in_context(token.tokens, token.place, CONTEXT, ellipsis="...")
            print(f"{rank:>3}  {token.cosine:.4f}  line {token.line + 1}: {sentence}")


def cache_vocab_options(parser: Parser) -> None:
    parser.shared(*COMPUTING, *MODEL_OPTIONS)
    parser.input("vocab_file", "words, one per line, such as a vocabulary", standard_input="streamed", required=True)
    parser.output("output", "HDF5 file to write", required=True)
    parser.shared("batch_size", default=1024, help="words per batch")
    parser.shared("file_friendly_logging")


def run_cache_vocab(arguments: Any) -> None:
    """Write the dataset `embedding` [words, D]: the character encoder's vector of every word.

    A row is a line of --vocab_file, also if it is blank or a marker (<S>, </S>, <UNK>), of which there may be none.
    """
    from elmo_fast.static import write_word_vectors

    _common.resolve_model(arguments)
    words, file = read_words(arguments.vocab_file), arguments.output
    bilm = _common.load_embedder(arguments).elmo_bilm
    with _common.Progress(arguments, len(words), unit="words") as progress:
        write_word_vectors(bilm, words, file, batch_size=arguments.batch_size, progress=progress.add)
    _common.logger().info("%s: %d words in %s", file, progress.done, duration(progress.seconds))
