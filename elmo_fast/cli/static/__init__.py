"""`elmo-fast static`: context-free word vectors."""

from elmo_fast.cli._nested import Chosen, NestedParser

KINDS = {
    "train": "train word vectors on your own text: skip-gram or CBOW (by gensim), or GloVe",
    "eval": "score analogies and the similarity of word pairs, with the coverage of each set",
    "neighbours": "list the words nearest to words, or to king - man + woman",
    "convert": "convert between word2vec's binary and text files, GloVe's and our own format",
    "export": "export an ELMo model's word vectors, context-free or averaged over a text",
}


def build_parser() -> NestedParser:
    """The kinds of `elmo-fast static`."""
    return NestedParser(
        "static",
        "Context-free word vectors, for comparison with ELMo. An input's format is detected from its content, an "
        "output's from its name: .bin (word2vec binary), .txt or .vec (word2vec text), .safetensors (our own, "
        "fastest); the first three also with .gz.",
        KINDS,
    )


run = Chosen.run
