"""char_cnn in C++: only windows that differ are computed; the backward pass touches one window per feature."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import Backward, requires_grad
from elmo_fast.ops._checks import described
from elmo_fast.ops._native import describe
from elmo_fast.ops._table_rows import first_rows
from elmo_fast.ops._weights import run_stamped
from elmo_fast.ops.char_cnn.op import CharCNNArguments

MOST_SLOTS = torch.iinfo(torch.int16).max  # a winner, the first slot of a window, is stored as such a number


def run(a: CharCNNArguments) -> Tensor:
    if a.ids.shape[1] > MOST_SLOTS:
        raise ElmoFastError(
            f"char_cnn: the C++ kernel takes ids of at most {MOST_SLOTS:,} slots; got {described(a.ids)}; "
            'use backend="reference" or truncate the words'
        )
    save, op = requires_grad(a.embedding, *a.weights, *a.biases), torch.ops.elmo_fast.char_cnn
    results = run_stamped(op, a.weights, a.ids, a.embedding, a.weights, a.biases, a.tanh, a.precision, save)
    return first_rows(results[0], a.rows)


def fake(a: Any) -> tuple[Tensor, Tensor]:
    """Allocate features and winners, for this backend and the GPU's."""
    features = a.embedding.new_empty(a.ids.shape[0], sum(weight.shape[0] for weight in a.weights))
    return features, features.new_empty(a.ids.shape[0] if a.save else 0, features.shape[1], dtype=torch.int16)


BACKWARD = Backward(
    covers={"need_weights": ["weights", "biases"]},
    shapes=lambda a: {"biases": [weight.shape[:1] for weight in a.weights]},
)
describe("char_cnn", fake, BACKWARD)
