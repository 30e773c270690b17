"""`elmo-fast plot`: pictures of runs, layers, words and senses."""

from elmo_fast.cli._nested import Chosen, NestedParser

KINDS = {
    "curves": "perplexity, speed and gradient norm of a pretraining run (also: elmo-fast plot RUN)",
    "layers": "how much of each layer the scalar mixes of a model or a task have learned to use",
    "words": "words or tokens in two dimensions, by t-SNE or PCA of their vectors",
    "senses": "all occurrences of one word in a text, by sense, as a page that shows each sentence",
    "projector": "vectors of words or tokens as files for TensorBoard's projector",
}


def build_parser() -> NestedParser:
    """The kinds of `elmo-fast plot`; if the first word names none, it is a run, whose curves are drawn."""
    return NestedParser(
        "plot", "Draws pictures. If the folder of a run has the name of a kind, write ./NAME.", KINDS, "curves"
    )


run = Chosen.run
