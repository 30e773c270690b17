"""`elmo-fast static`: vectors that know no context."""

from elmo_fast.cli._nested import Chosen, NestedParser

KINDS = {
    "train": "word vectors of your own text: skip-gram or CBOW (by gensim), or GloVe",
    "eval": "analogies and similarity of word pairs, with how much of each set is covered",
    "neighbours": "the words nearest to words, or to king - man + woman",
    "convert": "between word2vec's binary and text files, GloVe's and the own",
    "export": "an ELMo model's vectors of words, by themselves or averaged over a text, as such a file",
}


def build_parser() -> NestedParser:
    """The kinds of `elmo-fast static`."""
    return NestedParser(
        "static",
        "Word vectors that know no context, to compare ELMo with. Files are told apart by what is in them; written "
        "ones by their names: .bin (word2vec binary), .txt or .vec (word2vec text), .safetensors (own, fastest), each "
        "of the first three also with .gz.",
        KINDS,
    )


def run(chosen: Chosen) -> int | None:
    """Does what was chosen."""
    return chosen.run()
