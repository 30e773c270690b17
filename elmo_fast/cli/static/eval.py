"""`elmo-fast static eval`: analogies and similarity of word pairs."""

import os
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.cli.static import _files
from elmo_fast.errors import check_counts
from elmo_fast.files import write_json


def build_parser() -> Any:
    parser = _common.new_parser(
        "static eval",
        "Scores word vectors as gensim does: analogies (a : b = c : ?, 3CosAdd) by section, and how their "
        "cosines correlate with human scores of word pairs (Pearson, Spearman). Coverage is the share of a set whose "
        "words have vectors: compare two files only at equal coverage. Without --analogies and --pairs the sets are "
        "those in gensim: Google's analogies, WordSim-353, SimLex-999.",
    )
    _files.add_reading(parser)
    parser.option("analogies", str, "file of analogies: lines of four words; sections begin with ': NAME'")
    parser.option("pairs", str, "files of word pairs: two words and a score per line, separated by tabs", [], nargs="+")
    parser.option("restrict_vocab", int, "use only the first N words", 300_000)
    parser.option("case_insensitive", bool, "ignore case", True)
    parser.option("unknown_as_wrong", bool, "count analogies with unknown words as wrong, and pairs as cosine 0", False)
    parser.output("results", "JSON file to write the scores to")
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.static import evaluate_analogies
    from elmo_fast.static.evaluation import QUESTIONS, SIMLEX999, WORDSIM353, bundled

    _files.set_up(arguments)
    check_counts(**{"--restrict_vocab": arguments.restrict_vocab})
    analogies, pairs = arguments.analogies, list(arguments.pairs)
    if analogies is None and not pairs:
        analogies, pairs = bundled(QUESTIONS), [bundled(WORDSIM353), bundled(SIMLEX999)]
    vectors = _files.read(arguments)
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
    return 0


def similarity(arguments: Any, vectors: Any, pairs: list[str]) -> dict[str, Any]:
    """Prints a line for each file of pairs; returns the JSON content."""
    from elmo_fast.static import evaluate_similarity

    width = max(len("similarity"), *(len(os.path.basename(path)) for path in pairs))
    print(f"{'similarity':<{width}}   pearson  spearman  coverage  compared / pairs")
    found = {}
    for path in pairs:
        options = _common.named(arguments, "restrict_vocab", "case_insensitive")
        scores = evaluate_similarity(vectors, path, unknown_as_zero=arguments.unknown_as_wrong, **options)
        name = os.path.basename(path)
        both = [f"{'none' if value != value else f'{value:.4f}':>8}" for value in scores[:2]]
        numbers = f"{'  '.join(both)}  {scores.coverage:8.1%}"
        print(f"{name:<{width}}  {numbers}  {scores.compared} / {scores.pairs}")
        found[name] = scores.as_dict()
    return found
