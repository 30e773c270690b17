"""`elmo-fast plot senses`: all occurrences of one word in a text, by sense."""

import os
from typing import Any, Literal

from elmo_fast.cli import _common, _model
from elmo_fast.cli.plot import _vectors
from elmo_fast.errors import ElmoFastError


def build_parser() -> Any:
    parser = _common.new_parser(
        "plot senses",
        "Draws each occurrence of a word in a text as a point, by the vector that a model gives it in its sentence, "
        "coloured by cluster. A .html page shows the sentence of the point under the mouse.",
    )
    parser.shared(*_model.OPTIONS)
    parser.option("word", str, "the word, a token of the text", required=True)
    parser.option("text", str, _common.TEXT, required=True)
    parser.output("output", "files to write: .html, .png, .pdf, .svg", ["senses.html"], nargs="+")
    parser.option("layer", str, 'layer: "top" or a number from 0 (0 has no context)', "top")
    parser.option("clusters", str, 'number of clusters, or "auto" (the best silhouette)', "auto")
    parser.option("clustering", Literal["kmeans", "agglomerative"], "method of clustering", "kmeans")
    parser.option("method", Literal["pca", "tsne"], "projection to two dimensions", "pca")
    parser.flag("match_case", "distinguish upper and lower case")
    parser.option("most", int, "maximum number of occurrences, sampled by --seed", 2000)
    parser.shared("batch_size")
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.pictures import find_occurrences, senses_of

    _common.set_up_logging(arguments)
    _check_outputs(arguments.output)
    if arguments.clusters != "auto" and not arguments.clusters.isdecimal():
        raise ElmoFastError(f'--clusters must be "auto" or a number; got {arguments.clusters!r}')
    _model.resolve(arguments)
    chosen = _common.named(arguments, "most", "match_case", "seed")
    occurrences, total = find_occurrences(arguments.text, arguments.word, **chosen)
    if total > len(occurrences):
        _common.logger().info("%d of %d occurrences are drawn", len(occurrences), total)
    vectors, number = _vectors.embedded(arguments, occurrences)
    model = os.path.basename(os.path.normpath(arguments.model or arguments.weight_file))
    about = f"{os.path.basename(arguments.text)}, layer {number} of {model}"
    clusters = arguments.clusters if arguments.clusters == "auto" else int(arguments.clusters)
    senses = senses_of(occurrences, vectors, clusters, **_common.named(arguments, "clustering", "method", "seed"))
    if total > len(occurrences):
        about = f"{len(occurrences)} of {total} occurrences in {about}"
    _write(arguments, senses, occurrences, about)
    return 0


def _check_outputs(outputs: list[str]) -> None:
    from elmo_fast.pictures.style import format_of

    for output in outputs:
        if not output.lower().endswith((".html", ".htm")):
            format_of(output)


def _write(arguments: Any, senses: Any, occurrences: Any, about: str) -> None:
    from elmo_fast.pictures import senses_picture, write_senses_page

    for cluster, (size, typical) in enumerate(zip(senses.sizes, senses.typical, strict=True), start=1):
        _common.logger().info("cluster %d: %d occurrences; %s", cluster, size, ", ".join(typical))
    for output in arguments.output:
        if output.lower().endswith((".html", ".htm")):
            write_senses_page(senses, occurrences, arguments.word, output, about)
        else:
            senses_picture(senses, arguments.word, output, about)
        print(output)
