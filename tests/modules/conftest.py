"""Random models on disk, and sentences that reach the corners."""

import pytest

from elmo_fast import ops
from tests.support.weights import make_weights

# Batches of changing size: a word longer than the slots, a multi-byte one, repeated words, an empty sentence.
BATCHES = [
    [["The", "cat", "sat", "on", "the", "mat", "."], ["naïve", "•", "x" * 60], ["a"]],
    [["The", "cat"], ["again", "The", "cat", "sat", "down", "again"]],
    [["one", "two", "three"], [], ["the", "the", "the", "the"], ["new", "row"]],
    [["last"]],
]


@pytest.fixture
def files(tmp_path):
    """Makes a random model: files(**sizes) -> (options_file, weight_file), as tests.support.weights.make_weights."""
    numbers = iter(range(100))

    def make(**sizes):
        return make_weights(tmp_path / f"model{next(numbers)}", **sizes)

    return make


@pytest.fixture
def native_encoder():
    """Skips unless the character encoder runs in C++, whose rows do not depend on one another."""
    import torch

    for op in ("char_cnn", "highway"):
        choice = ops.explain(op, torch.device("cpu"), torch.float32)
        if choice.backend != "native":
            pytest.skip(f"{op} has no C++ kernel here: {choice.refusals or 'none is registered'}")
