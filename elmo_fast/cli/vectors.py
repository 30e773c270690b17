"""`elmo-fast neighbours` and `elmo-fast cache-vocab`: vectors in context searched, those without context written."""

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any

from elmo_fast._runtime.progress import duration
from elmo_fast.cli import _common
from elmo_fast.cli._parser import Model, Reading, flag, option
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import Pool
from elmo_fast.text import opened_source, read_words
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.tokenizers import RAW_TEXT_ADVICE, first_raw_line

CONTEXT = 6


@dataclass(kw_only=True)
class _NeighboursOptions(Model, Reading):
    text: str = option("", positional=True, metavar="TEXT", nargs="?")
    """text to search, one sentence per line, plain, .gz or .zst; - is the standard input; or as --format_in says"""
    corpus: str = ""
    """same as TEXT"""
    query: str = ""
    """sentence whose nearest sentences to list; with --index: that has the token"""
    query_file: str | None = None
    """text with many queries, in place of --query: one per line, or any file that TEXT can be"""
    index: int | None = None
    """position of a token in --query, from 0: list the nearest tokens, not sentences; TEXT and --query are split by the
    same --tokenizer"""
    topn: int = 10
    layer: str | None = None
    """layer: "top", "average", "all" (one list per layer) or a number from 0 (default: average; with --index: top)"""
    pool: Pool | None = None
    """vector of a sentence: the mean or max of its tokens, or first_last, the forward half of the last one and the
    backward half of the first (default: mean)"""
    batch_size: int | None = None
    max_tokens: int | None = None
    remove_components: int | None = None
    """of sentences: subtract the mean of all vectors (0), or also their first principal components (1, 2, ...)"""
    cache: str | None = option(None, writes="file")
    """folder for the vectors of TEXT, which the first command writes and later ones read; refused if TEXT, the model or
    an option of the vectors has changed; it takes 4 bytes x sentences (with --index: tokens) x width (1024 in the
    original model) per layer"""
    file_friendly_logging: bool = flag()


def run_neighbours(options: _NeighboursOptions) -> None:
    """List the sentences of a text that are nearest to a sentence, by the cosine of their vectors.

    With --index, list the tokens of the text that are nearest to one token of the sentence.
    """
    if bool(options.text) == bool(options.corpus):
        raise ElmoFastError("name one text, as TEXT or with --corpus")
    options.corpus = options.corpus or options.text
    _common.resolve_model(options, default="mini")
    if options.index is None:
        _print_sentences(options)
    else:
        _print_tokens(options, options.index)


def _print_sentences(options: _NeighboursOptions) -> None:
    from elmo_fast import SentenceIndex
    from elmo_fast.embed.layers import layer_names

    stored = _common.tokenizer_of(options)
    tokenizer: Any = stored or "whitespace"
    queries = _queries(options, tokenizer)
    with opened_source(options.corpus, **_common.reading(options, tokenizer)) as corpus:
        bilm = _common.load_embedder(dataclasses.replace(options, tokenizer=None)).elmo_bilm  # of any text, one digest
        layers = _common.layer_of(options.layer or "average")
        with _common.Progress(options) as progress:
            index = SentenceIndex.build(
                bilm,
                corpus,
                layers=layers,
                pool=options.pool or "mean",
                tokenizer=tokenizer,
                keep=options.layer == "all",
                progress=progress.reach,
                **_common.arguments(options, "cache", "remove_components", "batch_size", "max_tokens"),
            )
            words = [words for _, words in queries]
            names = layer_names(layers, bilm.num_layers)
            results = {name: index.search(words, options.topn, layer=name) for name in names}
    found = [sentence.text for near in results.values() for each in near for sentence in each]
    lines = [*(query for query, _ in queries), *found]
    if stored is None and first_raw_line(lines, [len(line.split()) for line in lines]) is not None:
        warnings.warn(f"{options.corpus} {RAW_TEXT_ADVICE}", stacklevel=1)
    for number, (query, _) in enumerate(queries):
        for name, near in results.items():
            print(f"{query}   layer {name}")
            for rank, sentence in enumerate(near[number], start=1):
                text = " ".join(sentence.text.split())  # a value of a table may have several lines
                print(f"{rank:>3}  {sentence.cosine:.4f}  {corpus.place(sentence.number)}: {text}")


def _queries(options: _NeighboursOptions, tokenizer: str | None) -> list[tuple[str, list[str]]]:
    """Return each query's text and tokens."""
    split = tokenizer_of(tokenizer)
    queries = [(options.query, split(options.query))] if options.query_file is None else []
    if options.query_file is not None:
        with opened_source(options.query_file, column=options.column, tokenizer=tokenizer) as asked:
            queries += [(asked.shown(each), each.tokens) for each in asked.sentences() if each.tokens]
    if bool(options.query) == bool(options.query_file) or not queries or not queries[0][1]:
        raise ElmoFastError("give a query of at least one word with --query, or a file of them with --query_file")
    return queries


def _print_tokens(options: _NeighboursOptions, index: int) -> None:
    from elmo_fast.tokens import check_query, in_context, nearest_tokens

    for name in ("pool", "remove_components", "query_file"):
        if getattr(options, name) is not None:
            raise ElmoFastError(f"--{name} is for sentences, and --index for tokens; leave out one of them")
    tokenizer = _common.tokenizer_of(options)
    query = tokenizer_of(tokenizer)(options.query)
    check_query(query, index, options.topn)
    with opened_source(options.corpus, **_common.reading(options, tokenizer)) as corpus:
        bilm = _common.load_embedder(options).elmo_bilm
        with _common.Progress(options) as progress:
            layers = _common.layer_of(options.layer or "top")
            keywords = _common.arguments(options, "topn", "cache", "batch_size", "max_tokens")
            results = nearest_tokens(bilm, corpus, query, index, layers=layers, progress=progress.reach, **keywords)
    for name, near in results.items():
        print(f"{in_context(query, index, CONTEXT, ellipsis='...')}   layer {name}")
        for rank, token in enumerate(near, start=1):
            sentence = in_context(token.tokens, token.place, CONTEXT, ellipsis="...")
            print(f"{rank:>3}  {token.cosine:.4f}  {corpus.place(token.line)}: {sentence}")


@dataclass(kw_only=True)
class _CacheVocabOptions(Model):
    vocab_file: str
    """words, one per line, such as a vocabulary"""
    output: str = option(writes="file")
    """HDF5 file to write"""
    batch_size: int = 1024
    """words per batch"""
    file_friendly_logging: bool = flag()


def run_cache_vocab(options: _CacheVocabOptions) -> None:
    """Write the dataset `embedding` [words, D]: the character encoder's vector of every word.

    A row is a line of --vocab_file, also if it is blank or a marker (<S>, </S>, <UNK>), of which there may be none.
    """
    from elmo_fast.static import write_word_vectors

    _common.resolve_model(options)
    words, file = read_words(options.vocab_file), options.output
    bilm = _common.load_embedder(options).elmo_bilm
    with _common.Progress(options, len(words), unit="words") as progress:
        write_word_vectors(bilm, words, file, batch_size=options.batch_size, progress=progress.add)
    _common.logger().info("%s: %d words in %s", file, progress.n, duration(progress.seconds))
