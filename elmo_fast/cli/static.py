"""`elmo-fast static`: context-free word vectors."""

import inspect
import itertools
import os
import warnings
from collections.abc import Iterator
from typing import Any, Literal

from elmo_fast._io.atomic_file import write_json
from elmo_fast.cli import _common
from elmo_fast.cli._parser import TEXT, Command, Computing, Model, flag, option
from elmo_fast.embed.word_vectors import format_to_write
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.op_choices import Tokenizer

Format = Literal["auto", "word2vec-binary", "word2vec-text", "glove", "safetensors"]


class _VectorsOptions(Computing):
    """The file of vectors to read, and how."""

    vectors: str = option(positional=True)
    """word vectors: word2vec (binary or text), GloVe or safetensors, plain, .gz or .zst"""
    format: Format = "auto"
    """format of the file; auto detects it"""
    limit: int | None = None
    """read only the first N words"""
    cache: bool = True
    """cache a text file of 32 MB or more, as FILE.cache.safetensors"""


class _OutputOptions(Command):
    """The file of vectors to write, and how."""

    output: str = option(writes="file")
    """file to write: .bin, .txt or .vec (or these with .gz), or .safetensors"""
    output_format: Format = "auto"
    """format of the output; auto: by the name"""


def read_vectors(options: _VectorsOptions) -> Any:
    """Return the Vectors that the options name."""
    from elmo_fast.static import load_vectors

    vectors = load_vectors(options.vectors, options.format, limit=options.limit, cache=options.cache)
    _common.logger().info("%s: %d words, %d numbers each", options.vectors, len(vectors), vectors.dimension)
    return vectors


def set_up(options: Computing) -> None:
    """Apply --threads; without it torch, which is slow to load, may not be needed."""
    if options.threads is not None:
        _common.set_up(options)


def write_vectors(options: _OutputOptions, vectors: Any) -> None:
    """Write Vectors to the file in the options."""
    from elmo_fast.static import save_vectors

    save_vectors(vectors, options.output, options.output_format)
    _common.logger().info("%s: %d words, %d numbers each", options.output, len(vectors), vectors.dimension)


class _TrainOptions(Computing, _OutputOptions):
    train_prefix: str
    tokenizer: Tokenizer | None = None
    algo: Literal["sg", "cbow", "glove"] = "sg"
    """skip-gram, CBOW or GloVe"""
    dimension: int = 100
    """width of the vectors"""
    min_count: int = 5
    max_vocab_size: int | None = None
    """keep only the N most frequent words"""
    init_from: str | None = None
    """file of word vectors to continue from, of width --dimension; words of the text that it lacks start as usual"""
    epochs: int | None = None
    """passes over the text (default: 5; glove: 25)"""
    window: int | None = None
    """words of context on each side (default: 5; glove: 10)"""
    learning_rate: float | None = None
    """initial learning rate (default: 0.025; glove: 0.05)"""
    objective: Literal["ns", "hs"] | None = None
    """sg, cbow: ns (negative sampling) or hs (hierarchical softmax) (default: ns)"""
    negative: int | None = None
    """sg, cbow with ns: random words per word; large texts need fewer (default: 10 below 10 million words, 5 below a
    billion, else 3)"""
    sample: float | None = None
    """sg, cbow: downsample words that are a larger fraction of the text than this (default: 0.001)"""
    workers: int | None = None
    """sg, cbow: number of threads; with more than 1, results are not reproducible (default: 1)"""
    x_max: float | None = None
    """glove: pairs this frequent have weight 1; use 10 for a few million words (default: 100)"""
    alpha: float | None = None
    """glove: rarer pairs have weight (count / x_max) ^ alpha, from 0 (equal weights) to 1 (default: 0.75)"""
    symmetric: bool | None = None
    """glove: count the words on both sides of a word; false counts only those before it (default: true)"""
    add_contexts: bool | None = None
    """glove: write w + w~, a word's vector plus its vector as context, as the paper does; false writes w (default:
    true)"""
    file_friendly_logging: bool = flag()
    results: str | None = option(None, writes="file")
    """JSON file to write the settings and a row per pass to"""


def run_train(options: _TrainOptions) -> None:
    """Train word vectors on text of one sentence per line, words separated by spaces.

    gensim trains sg and cbow (word2vec; needs the extra `static`), elmo_fast trains glove. After every pass a line
    shows its time and speed, and GloVe's loss (gensim's is known to be wrong).
    """
    from elmo_fast import static

    format_to_write(options.output, options.output_format)  # an error comes before long work
    set_up(options)
    glove = options.algo == "glove"
    parameters = inspect.signature(static.train_glove if glove else static.train_word2vec).parameters
    own = {name: each.default for name, each in parameters.items()}
    for name in ("objective", "negative", "sample", "workers", "x_max", "alpha", "symmetric", "add_contexts"):
        if name not in own and getattr(options, name) is not None:
            raise ElmoFastError(f"--{name} does nothing with --algo {options.algo}; leave it out")
    typed = {name: value for name, value in vars(options).items() if name in own and value is not None}
    settings = {name: value for name, value in (own | typed).items() if hasattr(options, name) and name != "threads"}
    if options.objective == "hs" and options.negative is not None:
        raise ElmoFastError("--negative does nothing with --objective hs; leave it out")
    start = None if options.init_from is None else static.load_vectors(options.init_from)
    passes: list[dict[str, Any]] = []

    def report(epoch: Any) -> None:
        passes.append(epoch._asdict())
        if epoch.number == 1 and getattr(epoch, "negative", 0) and options.negative is None:
            settings["negative"] = epoch.negative
            _common.logger().info("--negative %d, chosen by the size of the text", epoch.negative)
        rate = f"{epoch[-1]:,.0f} {epoch._fields[-1].removesuffix('_per_second')}/s"
        loss = f", loss {epoch.loss:.6f}" if hasattr(epoch, "loss") else ""
        _common.logger().info("pass %d of %d: %.1f s, %s%s", epoch.number, epoch.epochs, epoch.seconds, rate, loss)

    arguments = settings | {"init_from": start, "report": report}
    if glove:
        with _common.Progress(options, unit="words") as bar:

            def progress(what: str, done: int, total: int) -> None:
                bar.unit = " words" if what == "counting" else " entries"
                bar.reach(done, total)

            vectors = static.train_glove(options.train_prefix, **arguments, progress=progress)
    else:
        vectors = static.train_word2vec(options.train_prefix, algorithm=options.algo, **arguments)
    if start is not None:
        known = sum(word in start for word in vectors.words)
        _common.logger().info("%d of %d words continued from %s", known, len(vectors), options.init_from)
    write_vectors(options, vectors)
    if options.results is not None:
        about = _common.arguments(options, "algo", "train_prefix", "output")
        content = {**about, "words": len(vectors), "settings": settings, "passes": passes}
        write_json(options.results, content, indent=2)


class _EvalOptions(_VectorsOptions):
    analogies: str | None = None
    """file of analogies: lines of four words; sections begin with ': NAME'"""
    pairs: tuple[str, ...] = option((), nargs="+")
    """files of word pairs with scores: SimLex-999, WordSim-353 or MEN as published, or two words and a score per line,
    separated by tabs, commas or spaces"""
    restrict_vocab: int = 300_000
    """use only the first N words"""
    case_insensitive: bool = True
    """ignore case"""
    unknown_as_wrong: bool = False
    """count analogies with unknown words as wrong, and pairs as cosine 0"""
    results: str | None = option(None, writes="file")
    """JSON file to write the scores to"""


def run_eval(options: _EvalOptions) -> None:
    """Score word vectors as gensim does: analogies (a : b = c : ?, 3CosAdd) by section, and similarity.

    Similarity is how cosines correlate with human scores of word pairs (Pearson, Spearman). Coverage is the fraction of
    a set whose words have vectors: compare two files only at equal coverage. Width is how many numbers a vector has.
    The rows "one-hot" are the baseline: one number per word of the vocabulary, and different words have cosine 0.
    Without --analogies and --pairs the sets are those in gensim: Google's analogies, WordSim-353, SimLex-999.
    """
    from elmo_fast.static import evaluate_analogies
    from elmo_fast.static.evaluation import QUESTIONS, SIMLEX999, WORDSIM353, bundled

    set_up(options)
    check_counts(**{"--restrict_vocab": options.restrict_vocab})
    analogies, pairs = options.analogies, list(options.pairs)
    if analogies is None and not pairs:
        analogies, pairs = bundled(QUESTIONS), [bundled(WORDSIM353), bundled(SIMLEX999)]
    vectors = read_vectors(options)
    results: dict[str, Any] = {"vectors": options.vectors, "words": len(vectors), "dimension": vectors.dimension}
    if pairs:
        results["similarity"] = similarity(options, vectors, pairs)
    if analogies is not None:
        keywords = _common.arguments(options, "restrict_vocab", "case_insensitive", "unknown_as_wrong")
        scores = evaluate_analogies(vectors, analogies, **keywords)
        print(scores.table())
        results["analogies"] = scores.as_dict()
    if options.results is not None:
        write_json(options.results, results, indent=2)


def similarity(options: _EvalOptions, vectors: Any, pairs: list[str]) -> dict[str, Any]:
    """Print a line for each file of pairs; return the JSON content."""
    from elmo_fast.static import evaluate_similarity

    width = max(len("similarity"), *(len(os.path.basename(path)) for path in pairs))
    print(f"{'similarity':<{width}}   pearson  spearman  coverage  compared / pairs  width")
    results = {}
    for path, one_hot in itertools.product(pairs, (False, True)):
        keywords = _common.arguments(options, "restrict_vocab", "case_insensitive")
        with warnings.catch_warnings():
            if one_hot:
                warnings.simplefilter("ignore")  # the row above has said it of this file
            scores = evaluate_similarity(
                vectors, path, unknown_as_zero=options.unknown_as_wrong, one_hot=one_hot, **keywords
            )
        both = [f"{'none' if value != value else f'{value:.4f}':>8}" for value in scores[:2]]
        name = os.path.basename(path)
        counted = f"{scores.compared} / {scores.pairs}"
        dimension = len(vectors) if one_hot else vectors.dimension
        label = "  one-hot" if one_hot else name
        print(f"{label:<{width}}  {'  '.join(both)}  {scores.coverage:8.1%}  {counted:<16}  {dimension}")
        results[f"{name}, one-hot" if one_hot else name] = scores.as_dict()
    return results


class _NeighboursOptions(_VectorsOptions):
    words: tuple[str, ...] = option((), nargs="+")
    """words to look up; put the file before this option"""
    analogy: tuple[str, ...] = option((), nargs="+")
    """words with + or - between them, separated by spaces: king - man + woman"""
    topn: int = 10
    results: str | None = option(None, writes="file")
    """JSON file to write them to"""


def run_neighbours(options: _NeighboursOptions) -> None:
    """List the words whose vectors have the largest cosine with a word's, or with a sum and difference of words.

    For tokens in their sentences use `elmo-fast neighbours`.
    """
    from elmo_fast.static import most_similar, nearest_words

    set_up(options)
    signed = " ".join(options.analogy).split()
    signs, terms = ["+", *signed[1::2]], signed[::2]  # the first word has a plus
    if signed and (len(signed) % 2 == 0 or not {"+", "-"}.issuperset(signs)):
        raise ElmoFastError(
            "--analogy needs words with + or - between them, separated by spaces, such as king - man + woman; got "
            f"{' '.join(signed)!r}"
        )
    if not signed and not "".join(options.words).strip():
        raise ElmoFastError("give --words, as --words king night, or --analogy, as --analogy king - man + woman")
    vectors = read_vectors(options)
    # A vectors file can contain words with spaces; several words in one argument are split.
    words = [word for each in options.words for word in ([each] if each in vectors else each.split())]
    results = dict(zip(words, nearest_words(vectors, words, options.topn), strict=True))
    if signed:
        plus, minus = ([word for sign, word in zip(signs, terms, strict=True) if sign == kind] for kind in "+-")
        results[" ".join(signed)] = most_similar(vectors, plus, minus, options.topn)
    for asked, neighbours in results.items():
        print(asked)
        for rank, (other, cosine) in enumerate(neighbours, start=1):
            print(f"{rank:>3}  {cosine:.4f}  {other}")
    if options.results is not None:
        as_json = {asked: [{"word": o, "cosine": c} for o, c in near] for asked, near in results.items()}
        write_json(options.results, as_json, indent=2)


class _ConvertOptions(_VectorsOptions, _OutputOptions):
    pass


def run_convert(options: _ConvertOptions) -> None:
    """Convert word vectors to another format without loss: text has the fewest digits that give the same float32.

    .safetensors is the fastest to read.
    """
    set_up(options)
    format_to_write(options.output, options.output_format)
    write_vectors(options, read_vectors(options))


class _ExportOptions(Model, _OutputOptions):
    tokenizer: Tokenizer | None = None
    vocab_file: str | None = None
    """write the context-free vectors of these words, one per line; markers (<S>, </S>, <UNK>) are left out"""
    corpus: str = option("", help=f"write the mean vectors of the words of this {TEXT}")
    layer: int | str = "top"
    """with --corpus: layer, "top", "average", "all" or a number from 0"""
    min_count: int = 1
    """with --corpus: leave out words that occur less often"""
    max_words: int | None = None
    """with --corpus: maximum number of words, the most frequent"""
    batch_size: int | None = None
    max_tokens: int = 4096
    file_friendly_logging: bool = flag()


def run_export(options: _ExportOptions) -> None:
    """Write word vectors from an ELMo model, for programs that read word2vec's files.

    Such programs are gensim's KeyedVectors and elmo-fast static eval. --vocab_file: the character encoder's vectors,
    without context. --corpus: the mean of a layer over each word's occurrences in a text.
    """
    if (options.vocab_file is None) == (not options.corpus):
        raise ElmoFastError("give --vocab_file (context-free vectors) or --corpus (means over a text)")
    of_corpus = {"layer": "top", "min_count": 1, "max_words": None, "tokenizer": None}
    for name in (name for name, default in of_corpus.items() if getattr(options, name) != default):
        if options.vocab_file is not None:
            raise ElmoFastError(f"--{name} needs --corpus, and does nothing with --vocab_file; leave it out")
    from elmo_fast.static import averaged_vectors, context_free_vectors
    from elmo_fast.text import MARKERS, read_words, rereadable
    from elmo_fast.text.sources import TextFile

    _common.resolve_model(options)
    format_to_write(options.output, options.output_format)  # an error comes before long work
    if options.vocab_file is not None:
        words = [word for word in dict.fromkeys(read_words(options.vocab_file)) if word and word not in MARKERS]
        bilm = _common.load_embedder(options).elmo_bilm
        with _common.Progress(options, len(words)) as progress:
            vectors = context_free_vectors(bilm, words, progress=progress.add)
    else:
        tokenizer = _common.tokenizer_of(options)

        class Sentences:
            """The sentences of the text, readable any number of times."""

            def __iter__(self) -> Iterator[list[str]]:
                return (tokens for tokens, _ in TextFile(corpus, tokenizer=tokenizer).sentences())

        with rereadable(options.corpus) as corpus:
            total = sum(map(len, Sentences()))
            bilm = _common.load_embedder(options).elmo_bilm
            with _common.Progress(options, total) as progress:
                keywords = _common.arguments(options, "layer", "min_count", "max_words", "batch_size", "max_tokens")
                vectors = averaged_vectors(bilm, Sentences(), progress=progress.add, **keywords)
    write_vectors(options, vectors)
