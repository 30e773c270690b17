"""`elmo-fast neighbours` and `elmo-fast cache-vocab`: vectors in context searched, those without context written."""

import warnings
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.cli._parser import COMPUTING, MODEL_OPTIONS, READING, Parser
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import Pool
from elmo_fast.progress import duration
from elmo_fast.text import opened_source, read_words
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.tokenizers import RAW_TEXT_ADVICE, first_raw_line

CONTEXT = 6


def neighbours_options(parser: Parser) -> None:
    parser.shared(*COMPUTING, *MODEL_OPTIONS, *READING)
    text = "text to search, one sentence per line, plain, .gz or .zst; - is the standard input; or as --format_in says"
    parser.add_argument("text", type=str, metavar="TEXT", nargs="?", help=text)
    parser.reads("text", standard_input="streamed")
    parser.input("corpus", "same as TEXT", standard_input="streamed")
    parser.option(
        "query", str, "sentence whose nearest sentences to list; with --index: that has the token", required=True
    )
    parser.option(
        "index",
        int,
        "position of a token in --query, from 0: list the nearest tokens, not sentences; TEXT and --query are split by "
        "the same --tokenizer",
    )
    parser.shared("topn")
    parser.option(
        "layer",
        str,
        '"top", "average", "all" (a list for each layer), or a number from 0 (default: average; with --index: top)',
    )
    parser.option(
        "pool",
        Pool,
        "vector of a sentence: the mean or max of its tokens, or first_last, the forward half of the last one and the "
        "backward half of the first (default: mean)",
    )
    parser.shared("batch_size", "max_tokens")
    parser.output(
        "cache",
        "with --index: folder for the vectors of TEXT, which the first query writes and later queries read; it takes 4 "
        "bytes x tokens x width (1024 in the original model) per layer",
    )
    parser.shared("file_friendly_logging")


def run_neighbours(arguments: Any) -> None:
    """List the sentences of a text that are nearest to a sentence, by the cosine of their vectors.

    With --index, list the tokens of the text that are nearest to one token of the sentence.
    """
    if (arguments.text is None) == (arguments.corpus is None):
        raise ElmoFastError(f"name one text, as TEXT or with --corpus; got {arguments.text} and {arguments.corpus}")
    arguments.corpus = arguments.corpus or arguments.text
    _common.resolve_model(arguments, default="mini")
    if arguments.index is None:
        _print_sentences(arguments)
    else:
        _print_tokens(arguments)


def _print_sentences(arguments: Any) -> None:
    from elmo_fast.tokens import nearest_sentences

    if arguments.cache is not None:
        raise ElmoFastError("--cache stores the vectors of tokens: it needs --index; leave it out")
    stored = _common.tokenizer_of(arguments)
    tokenizer: Any = stored or "whitespace"
    with opened_source(arguments.corpus, **_common.reading(arguments, tokenizer)) as corpus:
        bilm = _common.load_embedder(arguments).elmo_bilm
        with _common.Progress(arguments) as progress:
            results = nearest_sentences(
                bilm,
                corpus,
                arguments.query,
                layers=_common.layer_of(arguments.layer or "average"),
                pool=arguments.pool or "mean",
                tokenizer=tokenizer,
                progress=progress.reach,
                **_common.named(arguments, "topn", "batch_size", "max_tokens"),
            )
    lines = [arguments.query, *(sentence.text for near in results.values() for sentence in near)]
    if stored is None and first_raw_line(lines, [len(line.split()) for line in lines]) is not None:
        warnings.warn(f"{arguments.corpus} {RAW_TEXT_ADVICE}", stacklevel=1)
    for name, near in results.items():
        print(f"{arguments.query}   layer {name}")
        for rank, sentence in enumerate(near, start=1):
            text = " ".join(sentence.text.split())  # a value of a table may have several lines
            print(f"{rank:>3}  {sentence.cosine:.4f}  {corpus.place(sentence.line)}: {text}")


def _print_tokens(arguments: Any) -> None:
    from elmo_fast.tokens import check_query, in_context, nearest_tokens

    if arguments.pool is not None:
        raise ElmoFastError("--pool is for sentences, and --index for tokens; leave out one of them")
    tokenizer, index = _common.tokenizer_of(arguments), arguments.index
    query = tokenizer_of(tokenizer)(arguments.query)
    check_query(query, index, arguments.topn)
    with opened_source(arguments.corpus, **_common.reading(arguments, tokenizer)) as corpus:
        bilm = _common.load_embedder(arguments).elmo_bilm
        with _common.Progress(arguments) as progress:
            layers = _common.layer_of(arguments.layer or "top")
            options = _common.named(arguments, "topn", "cache", "batch_size", "max_tokens")
            results = nearest_tokens(bilm, corpus, query, index, layers=layers, progress=progress.reach, **options)
    for name, near in results.items():
        print(f"{in_context(query, index, CONTEXT, ellipsis='...')}   layer {name}")
        for rank, token in enumerate(near, start=1):
            sentence = in_context(token.tokens, token.place, CONTEXT, ellipsis="...")
            print(f"{rank:>3}  {token.cosine:.4f}  {corpus.place(token.line)}: {sentence}")


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
