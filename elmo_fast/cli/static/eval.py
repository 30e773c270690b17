"""`elmo-fast static eval`: analogies and similarity of word pairs."""

import os
from typing import Any

from elmo_fast.cli import _common, _progress
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
    parser.shared("batch_size", default=256, help="analogies per batch")
    parser.output("results", "JSON file to write the scores to")
    parser.shared("file_friendly_logging")
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.static.evaluation import bundled
    from elmo_fast.static.similarity import SIMLEX999, WORDSIM353

    device = _common.set_up(arguments)
    check_counts(**{"--restrict_vocab": arguments.restrict_vocab, "--batch_size": arguments.batch_size})
    analogies, pairs = arguments.analogies, list(arguments.pairs)
    if analogies is None and not pairs:
        analogies, pairs = bundled("questions-words.txt"), [bundled(WORDSIM353), bundled(SIMLEX999)]
    vectors = _files.read(arguments)
    results: dict[str, Any] = {"vectors": arguments.vectors, "words": len(vectors), "dimension": vectors.dimension}
    if pairs:
        results["similarity"] = similarity(arguments, vectors, pairs)
    if analogies is not None:
        scores = answered(arguments, vectors, analogies, device)
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


def answered(arguments: Any, vectors: Any, path: str, device: Any) -> Any:
    """The scores of a file of analogies; shows a progress bar."""
    from elmo_fast.static import evaluate_analogies

    with _progress.progress_bar(arguments, unit="questions") as bar:
        options = _common.named(arguments, "restrict_vocab", "case_insensitive", "unknown_as_wrong", "batch_size")
        return evaluate_analogies(vectors, path, device=str(device), progress=bar.reach, **options)
