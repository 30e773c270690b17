"""`elmo-fast static`: context-free word vectors."""

import os
from collections.abc import Iterator
from typing import Any, Literal

from elmo_fast.cli import _common
from elmo_fast.cli._parser import COMPUTING, MODEL_OPTIONS, TEXT, Parser
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.files import write_json

Format = Literal["auto", "word2vec-binary", "word2vec-text", "glove", "safetensors"]


def add_reading(parser: Any) -> None:
    """Add the file to read, positional, and how; and the common options."""
    parser.shared(*COMPUTING)
    parser.add_argument(
        "vectors", type=str, help="word vectors: word2vec (binary or text), GloVe or safetensors, plain, .gz or .zst"
    )
    parser.reads("vectors", standard_input="copied")
    parser.option("format", Format, "format of the file; auto detects it", "auto")
    parser.option("limit", int, "read only the first N words")
    parser.option("cache", bool, "cache a text file of 32 MB or more, as FILE.cache.safetensors", True)


def read_vectors(arguments: Any) -> Any:
    """Return the Vectors that the options name."""
    from elmo_fast.static import load_vectors

    vectors = load_vectors(arguments.vectors, arguments.format, limit=arguments.limit, cache=arguments.cache)
    _common.logger().info("%s: %d words, %d numbers each", arguments.vectors, len(vectors), vectors.dimension)
    return vectors


def set_up(arguments: Any) -> None:
    """Apply --threads; without it torch, which is slow to load, may not be needed."""
    if arguments.threads is not None:
        _common.set_up(arguments)


def add_output(parser: Any) -> None:
    """Add the file to write, and how."""
    parser.output("output", "file to write: .bin, .txt or .vec (or these with .gz), or .safetensors", required=True)
    parser.option("output_format", Format, "format of the output; auto: by the name", "auto")


def write_vectors(arguments: Any, vectors: Any) -> None:
    """Write Vectors to the file in the options."""
    from elmo_fast.static import save_vectors

    save_vectors(vectors, arguments.output, arguments.output_format)
    _common.logger().info("%s: %d words, %d numbers each", arguments.output, len(vectors), vectors.dimension)


def check_output(arguments: Any) -> None:
    """Raise ElmoFastError for a name without a known format, before any long work."""
    from elmo_fast.embed.word_vectors import format_to_write

    format_to_write(arguments.output, arguments.output_format)


# The settings of word2vec (sg, cbow) and of GloVe, with their defaults.
WORD2VEC: dict[str, Any] = {"epochs": 5, "window": 5, "learning_rate": 0.025, "objective": "ns"}
WORD2VEC |= {"negative": 5, "sample": 1e-3, "workers": 1}
GLOVE: dict[str, Any] = {"epochs": 25, "window": 10, "learning_rate": 0.05, "x_max": 100.0}


def both(name: str) -> str:
    """Return the defaults of an option that word2vec and GloVe have, for its help."""
    return f"(default: {WORD2VEC[name]}; glove: {GLOVE[name]})"


def train_options(parser: Parser) -> None:
    parser.shared(*COMPUTING)
    parser.shared("train_prefix", required=True)
    parser.shared("tokenizer")
    parser.option("algo", Literal["sg", "cbow", "glove"], "skip-gram, CBOW or GloVe", "sg")
    parser.option("dimension", int, "width of the vectors", 100)
    parser.shared("min_count", default=5)
    parser.option("epochs", int, f"passes over the text {both('epochs')}")
    parser.option("window", int, f"words of context on each side {both('window')}")
    parser.option("learning_rate", float, f"initial learning rate {both('learning_rate')}")
    objective = "sg, cbow: ns (negative sampling) or hs (hierarchical softmax) (default: ns)"
    parser.option("objective", Literal["ns", "hs"], objective)
    parser.option("negative", int, "sg, cbow with ns: random words per word (default: 5)")
    rare = "sg, cbow: downsample words that are a larger fraction of the text than this (default: 0.001)"
    parser.option("sample", float, rare)
    threads = "sg, cbow: number of threads; with more than 1, results are not reproducible (default: 1)"
    parser.option("workers", int, threads)
    weight = "glove: pairs this frequent have weight 1; use 10 for a few million words (default: 100)"
    parser.option("x_max", float, weight)
    parser.shared("file_friendly_logging")
    add_output(parser)
    parser.output("results", "JSON file to write the settings and a row per pass to")


def run_train(arguments: Any) -> None:
    """Train word vectors on text of one sentence per line, words separated by spaces.

    gensim trains sg and cbow (word2vec; needs the extra `static`), elmo_fast trains glove. After every pass a line
    shows its time and speed, and GloVe's loss (gensim's is known to be wrong).
    """
    check_output(arguments)
    set_up(arguments)
    glove = arguments.algo == "glove"
    defaults, others = (GLOVE, WORD2VEC) if glove else (WORD2VEC, GLOVE)
    for name in others.keys() - defaults.keys():
        if getattr(arguments, name) not in (None, others[name]):
            raise ElmoFastError(f"--{name} does nothing with --algo {arguments.algo}; leave it out")
    typed = {name: value for name, value in _common.named(arguments, *defaults).items() if value is not None}
    settings: dict[str, Any] = {**defaults, **typed, **_common.named(arguments, "dimension", "min_count", "seed")}
    settings["tokenizer"] = arguments.tokenizer
    passes: list[dict[str, Any]] = []

    def report(epoch: Any) -> None:
        passes.append(epoch._asdict())
        rate = f"{epoch[-1]:,.0f} {epoch._fields[-1].removesuffix('_per_second')}/s"
        loss = f", loss {epoch.loss:.6f}" if hasattr(epoch, "loss") else ""
        _common.logger().info("pass %d of %d: %.1f s, %s%s", epoch.number, epoch.epochs, epoch.seconds, rate, loss)

    if glove:
        from elmo_fast.static import train_glove

        bars: dict[str, _common.Progress] = {}  # one for counting, then one for training

        def progress(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = _common.Progress(arguments, total, unit="words" if what == "counting" else "entries")
            bars[what].reach(done, total)
            if done == total:
                bars[what].close()

        vectors = train_glove(arguments.train_prefix, **settings, report=report, progress=progress)
    else:
        from elmo_fast.static import train_word2vec

        vectors = train_word2vec(arguments.train_prefix, algorithm=arguments.algo, **settings, report=report)
    write_vectors(arguments, vectors)
    if arguments.results is not None:
        about = _common.named(arguments, "algo", "train_prefix", "output")
        content = {**about, "words": len(vectors), "settings": settings, "passes": passes}
        write_json(arguments.results, content, indent=2)


def eval_options(parser: Parser) -> None:
    add_reading(parser)
    parser.input(
        "analogies", "file of analogies: lines of four words; sections begin with ': NAME'", standard_input="copied"
    )
    pairs = "files of word pairs: two words and a score per line, separated by tabs"
    parser.input("pairs", pairs, standard_input="copied", default=[], nargs="+")
    parser.option("restrict_vocab", int, "use only the first N words", 300_000)
    parser.option("case_insensitive", bool, "ignore case", True)
    parser.option("unknown_as_wrong", bool, "count analogies with unknown words as wrong, and pairs as cosine 0", False)
    parser.output("results", "JSON file to write the scores to")


def run_eval(arguments: Any) -> None:
    """Score word vectors as gensim does: analogies (a : b = c : ?, 3CosAdd) by section, and similarity.

    Similarity is how cosines correlate with human scores of word pairs (Pearson, Spearman). Coverage is the fraction of
    a set whose words have vectors: compare two files only at equal coverage. Without --analogies and --pairs the sets
    are those in gensim: Google's analogies, WordSim-353, SimLex-999.
    """
    from elmo_fast.static import evaluate_analogies
    from elmo_fast.static.evaluation import QUESTIONS, SIMLEX999, WORDSIM353, bundled

    set_up(arguments)
    check_counts(**{"--restrict_vocab": arguments.restrict_vocab})
    analogies, pairs = arguments.analogies, list(arguments.pairs)
    if analogies is None and not pairs:
        analogies, pairs = bundled(QUESTIONS), [bundled(WORDSIM353), bundled(SIMLEX999)]
    vectors = read_vectors(arguments)
    results: dict[str, Any] = {"vectors": arguments.vectors, "words": len(vectors), "dimension": vectors.dimension}
    if pairs:
        results["similarity"] = similarity(arguments, vectors, pairs)
    if analogies is not None:
        options = _common.named(arguments, "restrict_vocab", "case_insensitive", "unknown_as_wrong")
        scores = evaluate_analogies(vectors, analogies, **options)
        print(scores.table())
        results["analogies"] = scores.as_dict()
    if arguments.results is not None:
        write_json(arguments.results, results, indent=2)


def similarity(arguments: Any, vectors: Any, pairs: list[str]) -> dict[str, Any]:
    """Print a line for each file of pairs; return the JSON content."""
    from elmo_fast.static import evaluate_similarity

    width = max(len("similarity"), *(len(os.path.basename(path)) for path in pairs))
    print(f"{'similarity':<{width}}   pearson  spearman  coverage  compared / pairs")
    results = {}
    for path in pairs:
        options = _common.named(arguments, "restrict_vocab", "case_insensitive")
        scores = evaluate_similarity(vectors, path, unknown_as_zero=arguments.unknown_as_wrong, **options)
        name = os.path.basename(path)
        both = [f"{'none' if value != value else f'{value:.4f}':>8}" for value in scores[:2]]
        numbers = f"{'  '.join(both)}  {scores.coverage:8.1%}"
        print(f"{name:<{width}}  {numbers}  {scores.compared} / {scores.pairs}")
        results[name] = scores.as_dict()
    return results


def neighbours_options(parser: Parser) -> None:
    add_reading(parser)
    parser.option("words", str, "words to look up; put the file before this option", [], nargs="+")
    parser.option(
        "analogy", str, "words with + or - between them, separated by spaces: king - man + woman", [], nargs="+"
    )
    parser.shared("topn")
    parser.output("results", "JSON file to write them to")


def run_neighbours(arguments: Any) -> None:
    """List the words whose vectors have the largest cosine with a word's, or with a sum and difference of words.

    For tokens in their sentences use `elmo-fast neighbours`.
    """
    from elmo_fast.static import most_similar, nearest_words

    set_up(arguments)
    signed = " ".join(arguments.analogy).split()
    signs, terms = ["+", *signed[1::2]], signed[::2]  # the first word has a plus
    if signed and (len(signed) % 2 == 0 or not {"+", "-"}.issuperset(signs)):
        raise ElmoFastError(
            "--analogy needs words with + or - between them, separated by spaces, such as king - man + woman; got "
            f"{' '.join(signed)!r}"
        )
    if not signed and not "".join(arguments.words).strip():
        raise ElmoFastError("give --words, as --words king night, or --analogy, as --analogy king - man + woman")
    check_counts(**{"--topn": arguments.topn})
    vectors = read_vectors(arguments)
    # A vectors file can contain words with spaces; several words in one argument are split.
    words = [word for each in arguments.words for word in ([each] if each in vectors else each.split())]
    results = dict(zip(words, nearest_words(vectors, words, arguments.topn), strict=True))
    if signed:
        plus, minus = ([word for sign, word in zip(signs, terms, strict=True) if sign == kind] for kind in "+-")
        results[" ".join(signed)] = most_similar(vectors, plus, minus, arguments.topn)
    for asked, neighbours in results.items():
        print(asked)
        for rank, (other, cosine) in enumerate(neighbours, start=1):
            print(f"{rank:>3}  {cosine:.4f}  {other}")
    if arguments.results is not None:
        as_json = {asked: [{"word": o, "cosine": c} for o, c in near] for asked, near in results.items()}
        write_json(arguments.results, as_json, indent=2)


def convert_options(parser: Parser) -> None:
    add_reading(parser)
    add_output(parser)


def run_convert(arguments: Any) -> None:
    """Convert word vectors to another format without loss: text has the fewest digits that give the same float32.

    .safetensors is the fastest to read.
    """
    set_up(arguments)
    check_output(arguments)
    write_vectors(arguments, read_vectors(arguments))


def export_options(parser: Parser) -> None:
    parser.shared(*COMPUTING, *MODEL_OPTIONS, "tokenizer")
    words = "write the context-free vectors of these words, one per line; markers (<S>, </S>, <UNK>) are left out"
    parser.input("vocab_file", words, standard_input="streamed")
    parser.input("corpus", f"write the mean vectors of the words of this {TEXT}", standard_input="streamed")
    parser.option("layer", str, 'with --corpus: layer, "top", "average", "all" or a number from 0', "top")
    parser.shared("min_count", default=1, help="with --corpus: leave out words that occur less often")
    parser.option("max_words", int, "with --corpus: maximum number of words, the most frequent")
    parser.shared("batch_size")
    parser.shared("max_tokens", default=4096)
    parser.shared("file_friendly_logging")
    add_output(parser)


def run_export(arguments: Any) -> None:
    """Write word vectors from an ELMo model, for programs that read word2vec's files.

    Such programs are gensim's KeyedVectors and elmo-fast static eval. --vocab_file: the character encoder's vectors,
    without context. --corpus: the mean of a layer over each word's occurrences in a text.
    """
    if (arguments.vocab_file is None) == (arguments.corpus is None):
        raise ElmoFastError("give --vocab_file (context-free vectors) or --corpus (means over a text)")
    of_corpus = {"layer": "top", "min_count": 1, "max_words": None, "tokenizer": None}
    for name in (name for name, default in of_corpus.items() if getattr(arguments, name) != default):
        if arguments.vocab_file is not None:
            raise ElmoFastError(f"--{name} needs --corpus, and does nothing with --vocab_file; leave it out")
    from elmo_fast.static import averaged_vectors, context_free_vectors
    from elmo_fast.text import MARKERS, read_sentences, read_words, rereadable

    _common.resolve_model(arguments)
    check_output(arguments)
    if arguments.vocab_file is not None:
        words = [word for word in dict.fromkeys(read_words(arguments.vocab_file)) if word and word not in MARKERS]
        bilm = _common.load_embedder(arguments).elmo_bilm
        with _common.Progress(arguments, len(words)) as progress:
            vectors = context_free_vectors(bilm, words, progress=progress.add)
    else:
        tokenizer = _common.tokenizer_of(arguments)

        class Sentences:
            """The sentences of the text, readable any number of times."""

            def __iter__(self) -> Iterator[list[str]]:
                return (tokens for _, tokens in read_sentences(corpus, tokenizer))

        with rereadable(arguments.corpus) as corpus:
            total = sum(map(len, Sentences()))
            bilm, layer = _common.load_embedder(arguments).elmo_bilm, _common.layer_of(arguments.layer)
            with _common.Progress(arguments, total) as progress:
                options = _common.named(arguments, "min_count", "max_words", "batch_size", "max_tokens")
                vectors = averaged_vectors(bilm, Sentences(), layer, progress=progress.add, **options)
    write_vectors(arguments, vectors)
