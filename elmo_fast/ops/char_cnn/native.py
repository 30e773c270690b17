"""C++ on the CPU: only windows that differ are computed, backward touches one window per feature."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import Backward, requires_grad
from elmo_fast.ops._checks import given
from elmo_fast.ops._native import describe
from elmo_fast.ops._table_rows import first_rows
from elmo_fast.ops._weights import stamps
from elmo_fast.ops.char_cnn.op import CharCNNArguments

MOST_SLOTS = torch.iinfo(torch.int16).max  # a winner, the first slot of a window, is kept as such a number


def run(a: CharCNNArguments) -> Tensor:
    if a.ids.shape[1] > MOST_SLOTS:
        raise ElmoFastError(
            f"char_cnn: the C++ kernel takes ids of at most {MOST_SLOTS:,} slots; got {given(a.ids)}; "
            'use backend="reference" or cut the words'
        )
    save = requires_grad(a.embedding, *a.weights, *a.biases)
    found = torch.ops.elmo_fast.char_cnn(
        a.ids, a.embedding, a.weights, a.biases, a.tanh, a.precision, save, stamps(*a.weights)
    )
    return first_rows(found[0], a.rows)


def fake(a: Any) -> tuple[Tensor, Tensor]:
    """Features and winners, of this backend and of the GPU's."""
    features = a.embedding.new_empty(a.ids.shape[0], sum(weight.shape[0] for weight in a.weights))
    return features, features.new_empty(a.ids.shape[0] if a.save else 0, features.shape[1], dtype=torch.int16)


BACKWARD = Backward(
    covers={"need_weights": ["weights", "biases"]},
    shapes=lambda a: {"biases": [weight.shape[:1] for weight in a.weights]},
)
describe("char_cnn", fake, BACKWARD)
