"""`elmo-fast task`: taggers and classifiers over ELMo or over static vectors."""

from elmo_fast.cli._nested import Chosen, NestedParser

KINDS = {
    "train": "train on labelled sentences until the dev score no longer improves",
    "eval": "score a trained model on labelled sentences",
    "predict": "label sentences with a trained model",
}


def build_parser() -> NestedParser:
    """The kinds of `elmo-fast task`."""
    return NestedParser(
        "task", "Trains, scores and uses a tagger (a label per word) or a classifier (a label per sentence).", KINDS
    )


run = Chosen.run
